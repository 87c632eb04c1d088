// The side panel of an explorer: facts about the selection or, without one, about the whole graph.

import { button, el, listen, nameSpan, setAttribute, Part, setRole } from "../../shared/ui/dom";
import { exactNumber, shortNumber } from "../../shared/base/format";
import { copyButton, Copier, Facts, foldedWhenLong, section, settingText, table, folded } from "../../panel/parts";
import { toNumber } from "../../shared/payload/payload";
import type { Count, Knowledge, Entity } from "../data/knowledge";
import { compareSections, backLink } from "./compare_panel";
import { LEVELS, type ResultColumn } from "../data/payload";
import type { ExplorerStore } from "../data/state";
import { measureLabel } from "../data/descriptions";
import type { Value } from "../../shared/base/schema";
import { oneLine } from "../../shared/base/canvas";
import { valueText } from "../../metrics/base/value_axis";
import * as words from "../../words/knowledge";

const NEAREST = 6; // models that are named beside one
const TOP = 8; // structures that are named of a group

export class ExplorerPanel extends Part {
  private readonly copier: Copier;

  constructor(
    host: HTMLElement,
    private readonly data: Knowledge,
    private readonly store: ExplorerStore
  ) {
    super(host);
    this.copier = new Copier(store);
    host.classList.add("mkg-side-panel", "mkg-kg-panel");
    setRole(host, "region", words.SELECTION);
    this.disposers.add(
      store.on(["selected", "comparing", "other"], () => this.render()),
      listen(host, "click", event => this.clicked(event))
    );
    this.render();
  }

  override dispose(): void {
    this.copier.dispose();
    super.dispose();
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
    const text = key === null ? words.NO_SELECTION : words.NOT_FOUND;
    const facts = new Facts();
    facts.text(words.MODELS, exactNumber(data.modelCount));
    facts.text(words.STRUCTURES, exactNumber(payload.size));
    facts.text(words.FAMILIES, exactNumber(payload.families.length));
    if (!data.isAnalysed) return [el("p", "mkg-empty", text), section(words.GRAPH, facts.list), this.waiting()];
    facts.text(words.USES, exactNumber(data.uses.reduce((sum, count) => sum + count, 0)));
    facts.text(
      words.COMMUNITIES,
      words.modularity(exactNumber(payload.communities.count), small(payload.communities.modularity))
    );
    facts.text(words.TYPES, payload.types.map(({ name, level }) => words.atLevel(name.length, level)).join(", "));
    const most = Array.from({ length: data.size }, (_, i) => i)
      .sort((a, b) => data.uses[b] - data.uses[a])
      .slice(0, TOP);
    return [
      el("p", "mkg-empty", text),
      section(words.GRAPH, facts.list),
      section(words.MOST_USED, this.ranked(most.map(index => ({ index, count: data.uses[index] })))),
      ...jobSection(data, jobsOf(data, null), thing => this.link(thing))
    ];
  }

  private sections(thing: Entity): HTMLElement[] {
    if (thing.kind === "module") return this.module(thing);
    return thing.kind === "model" ? this.model(thing) : this.group(thing);
  }

  private heading(thing: Entity, title: string, line: HTMLElement | null): HTMLElement {
    const head = el("header", "mkg-panel-head");
    head.append(el("div", "mkg-kg-kind", words.KINDS[thing.kind]), nameSpan("mkg-panel-class", title));
    if (line) head.append(line);
    return head;
  }

  // ------------------------------------------------------------ structures

  private module(thing: Entity): HTMLElement[] {
    const { data } = this;
    const { index } = thing;
    return [
      this.heading(thing, data.name(thing), copyLine(data.payload.entities.digest[index], words.FINGERPRINT)),
      section("", this.moduleFacts(index)),
      ...this.settings(index),
      ...this.typeSections(index),
      ...this.counts(words.CONTAINS, data.children(index)),
      ...this.counts(words.CONTAINED_IN, data.parents[index]),
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
    facts.number(words.PARAMETERS, data.params[entity] ?? 0, "params", "", data.payload.entities.params[entity]);
    facts.number(words.MEMORY, data.bytes[entity] ?? 0, "bytes", "", data.payload.entities.bytes[entity]);
    const levels = LEVELS.flatMap((level, i) => {
      const count = data.levelUses[i][entity];
      return count > 0 ? [words.usedAs(count, level)] : [];
    });
    facts.text(words.USES, exactNumber(data.uses[entity]));
    facts.text(words.USES_BY_LEVEL, levels.join(", "));
    facts.text(words.MODELS, exactNumber(data.modelsOf[entity].length));
    const community = data.payload.entities.community[entity];
    if (community >= 0) facts.add(words.COMMUNITY, this.link({ kind: "community", index: community, level: 0 }));
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
        if (flops !== null) facts.number("FLOPs", flops, "flops", words.within(models.name[index]));
      }
    }
  }

  private settings(entity: number): HTMLElement[] {
    const rows = this.data
      .hyper(entity)
      .map(([name, value]) => [nameSpan("", name), nameSpan("mkg-code", settingText(value))]);
    return rows.length ? [section(words.SETTINGS, table([words.NAME, words.VALUE], rows))] : [];
  }

  private typeSections(entity: number): HTMLElement[] {
    const facts = new Facts();
    for (const { level, of, differs, texts } of this.data.payload.types) {
      if (of[entity] < 0) continue;
      const value = el("span");
      value.append(this.link({ kind: "type", index: of[entity], level }));
      const different = texts[differs[entity]];
      value.append(el("span", "mkg-dim", different ? words.DIFFERS : words.TYPICAL));
      if (different) value.append(nameSpan("mkg-code", different));
      facts.add(level === 1 ? words.TYPE : words.DEPTH_FAMILY, value);
    }
    return facts.list.childElementCount ? [section(words.IS_A, facts.list)] : [];
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
    return [section(words.IN_MODELS, listOf(lines, "model"))];
  }

  private identity(entity: number): HTMLElement {
    const facts = new Facts();
    facts.text(words.CLASS, this.data.qualifiedName(entity), "mkg-code");
    return section(words.IDENTITY, facts.list);
  }

  // ------------------------------------------------------------ models and groups

  private model(thing: Entity): HTMLElement[] {
    const { data } = this;
    const { index } = thing;
    const { models } = data.payload;
    const facts = new Facts();
    facts.number(words.PARAMETERS, toNumber(models.params[index]) ?? 0, "params", "", models.params[index]);
    facts.number(words.MEMORY, toNumber(models.bytes[index]) ?? 0, "bytes", "", models.bytes[index]);
    const flops = toNumber(models.flops[index]);
    if (flops !== null) facts.number("FLOPs", flops, "flops", "", models.flops[index]);
    facts.text(words.MODULES, exactNumber(models.modules[index]));
    facts.text(words.STRUCTURES, exactNumber(models.structures[index]));
    facts.add(words.FAMILY_LABEL, this.link({ kind: "family", index: models.family[index], level: 0 }));
    if (models.root[index] >= 0)
      facts.add(words.ROOT, this.link({ kind: "module", index: models.root[index], level: 0 }));
    return [
      this.heading(thing, data.name(thing), copyLine(data.name(thing), words.NAME_NOUN)),
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
      ...this.counts(words.CONTAINS, data.children(root))
    ];
  }

  private waiting(): HTMLElement {
    const isRunning = this.data.payload.analysis === "running";
    return el("p", "mkg-dim", isRunning ? words.STRUCTURES_LATER : words.STRUCTURES_UNKNOWN);
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
    return lines.length ? [section(words.LARGEST_OVERLAP, listOf(lines, "model"))] : [];
  }

  private group(thing: Entity): HTMLElement[] {
    const { data } = this;
    const members = data.members(thing);
    const facts = new Facts();
    const own = data.modelsFor(thing);
    const models = own ?? data.modelsWith(members);
    if (thing.kind === "superfamily") facts.text(words.FAMILIES, exactNumber(data.familiesIn(thing.index).length));
    facts.text(words.MODELS, exactNumber(models.length));
    if (data.isAnalysed) {
      facts.text(words.STRUCTURES, exactNumber(members.length));
      facts.text(words.USES, exactNumber(members.reduce((sum, entity) => sum + data.uses[entity], 0)));
    }
    const families = thing.kind === "community" ? data.familiesOf(thing.index) : [];
    if (families.length) facts.text(words.MOSTLY_IN, families.join(", "));
    const lines = models.map(index => this.line({ kind: "model", index, level: 0 }, ""));
    const top = members.slice(0, TOP).map(index => ({ index, count: data.uses[index] }));
    return [
      this.heading(thing, data.name(thing), null),
      section("", facts.list),
      ...(thing.kind === "superfamily" ? [this.families(thing.index)] : []),
      ...(data.isAnalysed ? [section(words.MOST_USED_HERE, this.ranked(top))] : [this.waiting()]),
      section(words.MODELS, listOf(lines, "model")),
      ...(own ? jobSection(data, jobsOf(data, models), other => this.link(other)) : [])
    ];
  }

  private families(superfamily: number): HTMLElement {
    const lines = this.data.familiesIn(superfamily).map(index => {
      const count = this.data.modelsIn(index).length;
      return this.line({ kind: "family", index, level: 0 }, ` ×${exactNumber(count)}`);
    });
    return section(words.FAMILIES, listOf(lines, "family", "families"));
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
    const link = button("mkg-link", "", words.select(words.KINDS[thing.kind]));
    link.append(nameSpan("", this.data.name(thing)));
    link.dataset.mkgKey = this.data.key(thing);
    return link;
  }

  private clicked(event: MouseEvent): void {
    const target = event.target instanceof Element ? event.target.closest<HTMLElement>("button") : null;
    if (!target) return;
    const { mkgCopy, mkgKey } = target.dataset;
    if (mkgCopy !== undefined) void this.copier.copy(target, mkgCopy);
    if (mkgKey !== undefined) {
      this.store.set("item", null);
      this.store.set("selected", mkgKey);
    }
  }
}

function copyLine(text: string, what: string): HTMLElement {
  const line = el("div", "mkg-panel-path");
  line.append(nameSpan("mkg-path", text), copyButton(words.copy(what), text));
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

// Sections of the side panel for a model: trainings, results, and nearest models.

const MAX_ROWS = 60; // lines; all are in the table of training

/** The jobs of some models, the best first; of all for null. Those of nobody that say a result alone are results. */
function jobsOf(data: Knowledge, models: readonly number[] | null): number[] {
  const { jobs, models: table } = data.payload;
  const names = models && new Set(models.map(index => table.name[index]));
  const isRun = (job: number) => jobs.user[job] !== null || jobs.metrics[job].length > 0 || !data.resultJobs.has(job);
  const found = jobs.name.flatMap((_, job) =>
    isRun(job) && (!names || names.has(jobs.model[job] ?? "")) ? [job] : []
  );
  const accuracy = (job: number) => toNumber(jobs.accuracy[job]) ?? -1;
  return found.sort((a, b) => accuracy(b) - accuracy(a) || a - b);
}

function jobSection(data: Knowledge, found: readonly number[], link: (thing: Entity) => HTMLElement): HTMLElement[] {
  if (found.length === 0) return [];
  const list = el("ul", "mkg-kg-list");
  for (const job of found.slice(0, MAX_ROWS)) list.append(jobLine(data, job, link));
  const shown = foldedWhenLong(Math.min(MAX_ROWS, found.length), "job", list);
  if (found.length <= MAX_ROWS) return [section(words.TRAINING_RUNS, shown)];
  return [section(words.TRAINING_RUNS, shown, el("p", "mkg-dim", words.moreRuns(found.length - MAX_ROWS)))];
}

function jobLine(data: Knowledge, job: number, link: (thing: Entity) => HTMLElement): HTMLElement {
  const { jobs, models } = data.payload;
  const line = el("li", "mkg-kg-job");
  const model = models.name.indexOf(jobs.model[job] ?? "");
  line.append(nameSpan("mkg-kg-job-user", jobs.user[job] ?? words.UNKNOWN_USER), words.TRAINED);
  if (model >= 0) line.append(link({ kind: "model", index: model, level: 0 }));
  else line.append(nameSpan("", jobs.model[job] ?? words.A_MODEL));
  if (jobs.dataset[job] !== null) line.append(words.ON, nameSpan("", jobs.dataset[job] ?? ""));
  const accuracy = percent(jobs.accuracy[job]);
  if (accuracy) line.append(`: ${accuracy}`);
  const steps = toNumber(jobs.convergence[job]);
  if (steps !== null && Number.isFinite(steps))
    line.append(el("span", "mkg-dim", words.converged(words.steps(Math.round(steps)))));
  return line;
}

/** A fraction as people say it. */
export function percent(value: Value): string {
  const share = toNumber(value);
  return share === null ? "" : Number.isFinite(share) ? `${(100 * share).toFixed(1)} %` : shortNumber(share);
}

export function day(seconds: Value): string {
  const time = toNumber(seconds);
  return time === null || time === 0 || !(Math.abs(time) < 8.64e12)
    ? ""
    : new Date(1000 * time).toISOString().slice(0, 10);
}

// What a model reached, and which models are like it.

type Link = (thing: Entity) => HTMLElement;

interface Reached {
  readonly column: ResultColumn;
  readonly at: number; // place in it
  readonly value: number;
}

/** The best value of each target, accuracies before costs; then, folded up, all others. */
function resultSection(data: Knowledge, model: number): HTMLElement[] {
  const columns = data.payload.results.map(column => reachedBy(column, model)).filter(found => found.length > 0);
  if (columns.length === 0) return [];
  const ranked = [false, true].flatMap(isCost => columns.filter(([{ column }]) => column.cost === isCost));
  const best = ranked.map(([first]) => first);
  const others = ranked.flatMap(([, ...rest]) => rest);
  const rest = others.length > 0 ? [folded(words.more(others.length), resultList(data, others))] : [];
  return [section(words.RESULTS, resultList(data, best), ...rest)];
}

/** The best first. */
function reachedBy(column: ResultColumn, model: number): Reached[] {
  const found = column.model.flatMap((each, at) => {
    const value = each === model ? toNumber(column.value[at]) : null;
    return value === null ? [] : [{ column, at, value }];
  });
  return found.sort((a, b) => (column.cost ? a.value - b.value : b.value - a.value));
}

function resultList(data: Knowledge, every: readonly Reached[]): HTMLElement {
  const list = el("ul", "mkg-kg-list");
  for (const { column, at, value } of every) {
    const { target, unit, dataset, device } = column;
    const where = [dataset, device].filter((part): part is string => part !== null);
    const line = el("li", "mkg-kg-result-line");
    line.append(nameSpan("", oneLine([target, ...where].join(", "))));
    line.append(el("b", "mkg-kg-count", ` ${valueText(value)}${unit === null ? "" : ` ${oneLine(unit)}`}`));
    const training = data.payload.jobs.training[column.job[at]] ?? sizeText(toNumber(column.size[at]));
    if (training) line.append(el("span", "mkg-dim", ` ${oneLine(training)}`));
    list.append(line);
  }
  return list;
}

const sizeText = (size: number | null): string => (size === null ? "" : `image_size ${exactNumber(size)}`);

/** The models whose structure is most like one's, as `kg.similar` tells them. */
function nearestSection(data: Knowledge, model: number, link: Link): HTMLElement[] {
  const nearest = data.nearest(model);
  if (nearest.length === 0) return [];
  const list = el("ul", "mkg-kg-list");
  for (const { index, count: likeness } of nearest) {
    const line = el("li", "mkg-kg-near");
    const shared = data.shared(model, index);
    line.append(link({ kind: "model", index, level: 0 }), el("span", "mkg-kg-count", ` ${likeness.toFixed(2)}`));
    if (shared > 0) line.append(el("span", "mkg-dim", words.shared(words.structures(shared))));
    list.append(line);
  }
  const note = el("p", "mkg-dim", words.SIMILARITY);
  return [section(words.MOST_SIMILAR, note, list)];
}
