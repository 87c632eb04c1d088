// Everything that is known of what is selected; with nothing selected, of the whole graph.

import { button, copyText, Disposers, el, listen, nameSpan, setAttribute } from "../../shared/ui/dom";
import { exactNumber, shortNumber } from "../../shared/base/format";
import { copyButton, Facts, foldedWhenLong, section, settingText, table } from "../../panel/parts";
import { toNumber } from "../../shared/payload/payload";
import type { Count, Knowledge, Entity } from "../data/knowledge";
import { compareSections, backLink } from "./compare_panel";
import { jobSection, jobsOf, nearestSection, resultSection } from "./model_sections";
import { LEVELS } from "../data/payload";
import type { ExplorerStore } from "../data/state";
import { KIND_WORDS, measureLabel } from "../data/descriptions";

const COPIED = "Copied.";
const COPIED_FOR = 2000; // ms
const NEAREST = 6; // models that are named beside one
const TOP = 8; // structures that are named of a group

export class ExplorerPanel {
  private readonly disposers = new Disposers();
  private copied: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly host: HTMLElement,
    private readonly data: Knowledge,
    private readonly store: ExplorerStore
  ) {
    host.classList.add("mkg-side-panel", "mkg-kg-panel");
    host.setAttribute("role", "region");
    host.setAttribute("aria-label", "Selection");
    this.disposers.add(
      store.on(["selected", "comparing", "other"], () => this.render()),
      listen(host, "click", event => this.clicked(event))
    );
    this.render();
  }

  dispose(): void {
    clearTimeout(this.copied);
    this.disposers.dispose();
    this.host.replaceChildren();
  }

  private render(): void {
    const key = this.store.get("selected");
    const thing = this.data.find(key);
    setAttribute(this.host, "data-mkg-key", thing ? key : null);
    this.host.scrollTop = 0;
    const hadFocus = this.host.contains(document.activeElement);
    const back = backLink(this.data, this.store);
    this.host.replaceChildren(...back, ...(thing ? this.sections(thing) : this.overview(key)));
    if (hadFocus) this.host.querySelector<HTMLElement>(".mkg-kg-answer, .mkg-kg-back")?.focus({ preventScroll: true });
  }

  private overview(key: string | null): HTMLElement[] {
    const { data } = this;
    const { payload } = data;
    const text =
      key === null ? "Click a circle, a row or a name to see what it is." : "The graph has nothing of this name.";
    const facts = new Facts();
    facts.text("Models", exactNumber(data.modelCount));
    facts.text("Structures", exactNumber(payload.size));
    facts.text("Families", exactNumber(payload.families.length));
    if (!data.isAnalysed) return [el("p", "mkg-empty", text), section("The graph", facts.list), this.waiting()];
    facts.text("Uses", exactNumber(data.uses.reduce((sum, count) => sum + count, 0)));
    facts.text(
      "Communities",
      `${exactNumber(payload.communities.count)}, modularity ${small(payload.communities.modularity)}`
    );
    facts.text(
      "Types",
      payload.types.map(({ name, level }) => `${exactNumber(name.length)} at level ${level}`).join(", ")
    );
    const most = Array.from({ length: data.size }, (_, i) => i)
      .sort((a, b) => data.uses[b] - data.uses[a])
      .slice(0, TOP);
    return [
      el("p", "mkg-empty", text),
      section("The graph", facts.list),
      section("Most used", this.ranked(most.map(index => ({ index, count: data.uses[index] })))),
      ...jobSection(data, jobsOf(data, null), thing => this.link(thing))
    ];
  }

  private sections(thing: Entity): HTMLElement[] {
    if (thing.kind === "module") return this.module(thing);
    return thing.kind === "model" ? this.model(thing) : this.group(thing);
  }

  private heading(thing: Entity, title: string, line: HTMLElement | null): HTMLElement {
    const head = el("header", "mkg-panel-head");
    head.append(el("div", "mkg-kg-kind", KIND_WORDS[thing.kind]), nameSpan("mkg-panel-class", title));
    if (line) head.append(line);
    return head;
  }

  // ------------------------------------------------------------ structures

  private module(thing: Entity): HTMLElement[] {
    const { data } = this;
    const { index } = thing;
    return [
      this.heading(thing, data.name(thing), copyLine(data.payload.entities.digest[index], "fingerprint")),
      section("", this.moduleFacts(index)),
      ...this.settings(index),
      ...this.typeSections(index),
      ...this.counts("Contains", data.children(index)),
      ...this.counts("Contained in", data.parents[index]),
      ...this.models(data.modelsOf[index]),
      ...jobSection(
        data,
        jobsOf(
          data,
          data.modelsOf[index].map(({ index: model }) => model)
        ),
        other => this.link(other)
      ),
      this.identity(index)
    ];
  }

  private moduleFacts(entity: number): HTMLElement {
    const { data } = this;
    const facts = new Facts();
    facts.number("Parameters", data.params[entity] ?? 0, "params", "", data.payload.entities.params[entity]);
    facts.number("Memory", data.bytes[entity] ?? 0, "bytes", "", data.payload.entities.bytes[entity]);
    const levels = LEVELS.flatMap((level, i) => {
      const count = data.levelUses[i][entity];
      return count > 0 ? [`${exactNumber(count)} as ${level}`] : [];
    });
    facts.text("Uses", exactNumber(data.uses[entity]));
    facts.text("of them", levels.join(", "));
    facts.text("Models", exactNumber(data.modelsOf[entity].length));
    const community = data.payload.entities.community[entity];
    if (community >= 0) facts.add("Community", this.link({ kind: "community", index: community, level: 0 }));
    for (const measure of data.measures) {
      const value = data.column(measure)?.[entity];
      if (value !== null && value !== undefined) facts.number(measureLabel(measure), value, measure);
    }
    this.addFlops(facts, entity);
    return facts.list;
  }

  /** What a structure costs in the models that were traced. */
  private addFlops(facts: Facts, entity: number): void {
    const { models } = this.data.payload;
    for (const { index } of this.data.modelsOf[entity].slice(0, NEAREST)) {
      const flat = models.module_flops[index];
      for (let at = 0; at < flat.length; at += 2) {
        const flops = flat[at] === entity ? toNumber(flat[at + 1]) : null;
        if (flops !== null) facts.number("FLOPs", flops, "flops", `in ${models.name[index]}`);
      }
    }
  }

  private settings(entity: number): HTMLElement[] {
    const rows = this.data
      .hyper(entity)
      .map(([name, value]) => [nameSpan("", name), nameSpan("mkg-code", settingText(value))]);
    return rows.length ? [section("Settings", table(["Name", "Value"], rows))] : [];
  }

  private typeSections(entity: number): HTMLElement[] {
    const facts = new Facts();
    for (const { level, of, differs, texts } of this.data.payload.types) {
      if (of[entity] < 0) continue;
      const value = el("span");
      value.append(this.link({ kind: "type", index: of[entity], level }));
      const different = texts[differs[entity]];
      value.append(el("span", "mkg-dim", different ? " differs in " : " as most of its kind"));
      if (different) value.append(nameSpan("mkg-code", different));
      facts.add(level === 1 ? "Type" : "Depth family", value);
    }
    return facts.list.childElementCount ? [section("Is a", facts.list)] : [];
  }

  private counts(title: string, counts: readonly Count[]): HTMLElement[] {
    return counts.length ? [section(title, this.ranked(counts, " ×"))] : [];
  }

  private models(counts: readonly Count[]): HTMLElement[] {
    const lines = [...counts]
      .sort((a, b) => b.count - a.count)
      .map(({ index, count }) => {
        return this.line({ kind: "model", index, level: 0 }, ` ×${exactNumber(count)}`);
      });
    return [section("In models", listOf(lines, "model"))];
  }

  private identity(entity: number): HTMLElement {
    const facts = new Facts();
    facts.text("Class", this.data.qualifiedName(entity), "mkg-code");
    return section("Identity", facts.list);
  }

  // ------------------------------------------------------------ models and groups

  private model(thing: Entity): HTMLElement[] {
    const { data } = this;
    const { index } = thing;
    const { models } = data.payload;
    const facts = new Facts();
    facts.number("Parameters", toNumber(models.params[index]) ?? 0, "params", "", models.params[index]);
    facts.number("Memory", toNumber(models.bytes[index]) ?? 0, "bytes", "", models.bytes[index]);
    const flops = toNumber(models.flops[index]);
    if (flops !== null) facts.number("FLOPs", flops, "flops", "", models.flops[index]);
    facts.text("Modules", exactNumber(models.modules[index]));
    facts.text("Structures", exactNumber(models.structures[index]));
    facts.add("Family", this.link({ kind: "family", index: models.family[index], level: 0 }));
    if (models.root[index] >= 0) facts.add("Root", this.link({ kind: "module", index: models.root[index], level: 0 }));
    return [
      this.heading(thing, data.name(thing), copyLine(data.name(thing), "name")),
      ...(data.isAnalysed ? compareSections(data, this.store, index) : []),
      section("", facts.list),
      ...resultSection(data, index),
      ...nearestSection(data, index, other => this.link(other)),
      ...(data.isAnalysed ? this.structuresOf(index) : [this.waiting()])
    ];
  }

  private structuresOf(model: number): HTMLElement[] {
    const { data } = this;
    const root = data.payload.models.root[model];
    return [
      ...this.typeSections(root),
      ...jobSection(data, jobsOf(data, [model]), other => this.link(other)),
      ...this.nearest(model),
      ...this.counts("Built of", data.children(root))
    ];
  }

  private waiting(): HTMLElement {
    const isRunning = this.data.payload.analysis === "running";
    return el("p", "mkg-dim", isRunning ? "Structures follow when they are analysed." : "Structures are not known.");
  }

  private nearest(model: number): HTMLElement[] {
    const { data } = this;
    const others = Array.from({ length: data.modelCount }, (_, i) => i).filter(i => i !== model);
    const nearest = others
      .map(index => ({ index, count: data.overlap(model, index) }))
      .filter(({ count }) => count > 0);
    nearest.sort((a, b) => b.count - a.count);
    const lines = nearest.slice(0, NEAREST).map(({ index, count }) => {
      return this.line({ kind: "model", index, level: 0 }, ` ${small(count)}`);
    });
    return lines.length ? [section("Most in common (Jaccard)", listOf(lines, "model"))] : [];
  }

  private group(thing: Entity): HTMLElement[] {
    const { data } = this;
    const members = data.members(thing);
    const facts = new Facts();
    const own = data.modelsFor(thing);
    const models = own ?? data.modelsWith(members);
    if (thing.kind === "superfamily") facts.text("Families", exactNumber(data.familiesIn(thing.index).length));
    facts.text("Models", exactNumber(models.length));
    if (data.isAnalysed) {
      facts.text("Structures", exactNumber(members.length));
      facts.text("Uses", exactNumber(members.reduce((sum, entity) => sum + data.uses[entity], 0)));
    }
    const families = thing.kind === "community" ? data.familiesOf(thing.index) : [];
    if (families.length) facts.text("Mostly in", families.join(", "));
    const lines = models.map(index => this.line({ kind: "model", index, level: 0 }, ""));
    const top = members.slice(0, TOP).map(index => ({ index, count: data.uses[index] }));
    return [
      this.heading(thing, data.name(thing), null),
      section("", facts.list),
      ...(thing.kind === "superfamily" ? [this.families(thing.index)] : []),
      ...(data.isAnalysed ? [section("Most used in it", this.ranked(top))] : [this.waiting()]),
      section("Models", listOf(lines, "model")),
      ...(own ? jobSection(data, jobsOf(data, models), other => this.link(other)) : [])
    ];
  }

  private families(superfamily: number): HTMLElement {
    const lines = this.data.familiesIn(superfamily).map(index => {
      const count = this.data.modelsIn(index).length;
      return this.line({ kind: "family", index, level: 0 }, ` ×${exactNumber(count)}`);
    });
    return section("Families", listOf(lines, "family", "families"));
  }

  // ------------------------------------------------------------ pieces

  private ranked(counts: readonly Count[], sign = " "): HTMLElement {
    const lines = counts.map(({ index, count }) => {
      return this.line({ kind: "module", index, level: 0 }, `${sign}${exactNumber(count)}`);
    });
    return listOf(lines, "structure");
  }

  private line(thing: Entity, end: string): HTMLElement {
    const line = el("li");
    line.append(this.link(thing), el("span", "mkg-kg-count", end));
    return line;
  }

  private link(thing: Entity): HTMLElement {
    const link = button("mkg-link", "", `Select this ${KIND_WORDS[thing.kind]}`);
    link.append(nameSpan("", this.data.name(thing)));
    link.dataset.mkgKey = this.data.key(thing);
    return link;
  }

  private clicked(event: MouseEvent): void {
    const target = event.target instanceof Element ? event.target.closest<HTMLElement>("button") : null;
    if (!target) return;
    const { mkgCopy, mkgKey } = target.dataset;
    if (mkgCopy !== undefined) void this.copy(target, mkgCopy);
    if (mkgKey !== undefined) {
      this.store.set("item", null);
      this.store.set("selected", mkgKey);
    }
  }

  private async copy(target: HTMLElement, text: string): Promise<void> {
    const done = await copyText(text);
    target.classList.toggle("mkg-is-done", done);
    this.store.set("notice", done ? COPIED : "The browser did not allow copying.");
    clearTimeout(this.copied);
    this.copied = setTimeout(() => {
      target.classList.remove("mkg-is-done");
      if (this.store.get("notice") === COPIED) this.store.set("notice", "");
    }, COPIED_FOR);
  }
}

function copyLine(text: string, what: string): HTMLElement {
  const line = el("div", "mkg-panel-path");
  line.append(nameSpan("mkg-path", text), copyButton(`Copy ${what}`, text));
  return line;
}

function listOf(lines: readonly HTMLElement[], noun: string, many?: string): HTMLElement {
  const list = el("ul", "mkg-kg-list");
  list.append(...lines);
  return foldedWhenLong(lines.length, noun, list, many);
}

function small(value: number | string | null): string {
  const found = value === null ? null : toNumber(value);
  return found === null
    ? "–"
    : Number.isFinite(found) && Math.abs(found) < 1000
      ? String(Number(found.toFixed(3)))
      : shortNumber(found);
}
