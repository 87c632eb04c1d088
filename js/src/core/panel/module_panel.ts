// The side panel of a model graph: facts about the selected module.

import * as words from "../words/panel";
import "../../../style/side_panel.css";
import { axesOf } from "../shared/model/axes";
import { titleOf, valueOf } from "../shared/stage/color";
import { Counterparts, type Mark, changeMarks } from "../shared/model/differences";
import { dataflowOf } from "../shared/model/dataflow";
import { button, el, listen, nameSpan, setAttribute, Part, setRole } from "../shared/ui/dom";
import { exactNumber } from "../shared/base/format";
import type { Hierarchy } from "../shared/model/hierarchy";
import { activeAxis, addFlops, axisList, axisTensors, operatorSection, trafficSection } from "./traced_sections";
import { attributeSection, type FileActions, FilePanel } from "./file_panel";
import { groupSection } from "./operator_section";
import { breakable, copyButton, Copier, Facts, foldedWhenLong, section, settingText, shapeText, table } from "./parts";
import type { Tensor } from "../shared/payload/payload";
import { reveal } from "../shared/model/expansion";
import type { GraphStore } from "../shared/model/graph_store";
import { below } from "../tree/tree_rows";
import { push } from "../shared/base/multimap";

const ALWAYS = new Set(["params", "own_params", "bytes"]); // have sentences of their own
export class ModulePanel extends Part {
  private readonly usedAs: ReadonlyMap<number, readonly Use[]>;
  private readonly counterparts: Counterparts | undefined; // in a comparison
  private readonly marks: readonly (Mark | null)[] | undefined;
  private readonly copier: Copier;
  private readonly file: FilePanel | null;
  private whole: string | null = null; // the axis of which all members are listed

  constructor(
    host: HTMLElement,
    private readonly h: Hierarchy,
    private readonly store: GraphStore,
    actions: FileActions = {}
  ) {
    super(host);
    const { file } = h.payload;
    this.file = file ? new FilePanel(h, file, actions, () => this.render()) : null;
    this.copier = new Copier(store);
    host.classList.add("mkg-side-panel");
    setRole(host, "region", words.PANEL);
    this.usedAs = usesByTarget(h);
    this.counterparts = h.payload.compare ? new Counterparts(h.payload.compare) : undefined;
    this.marks = changeMarks(h);
    for (const key of ["selected", "axis", "operators", "view", "colorBy", "overlay", "pruned", "focus"] as const) {
      this.disposers.add(store.on(key, () => this.render()));
    }
    this.disposers.add(listen(host, "click", event => this.clicked(event)));
    this.render();
  }

  override dispose(): void {
    this.copier.dispose();
    super.dispose();
  }

  private render(): void {
    const path = this.store.get("selected");
    const node = path === null ? undefined : this.h.find(path);
    setAttribute(this.host, "data-mkg-path", node === undefined ? null : path);
    const content = node === undefined ? this.overview(path) : this.sections(node);
    this.keepingGroup(() => this.host.replaceChildren(...this.activeAxis(), ...content));
  }

  /** The channel group that has the focus keeps it, and its place on the screen: a click moves nothing. */
  private keepingGroup(renew: () => void): void {
    const before = this.host.contains(document.activeElement) ? (document.activeElement as HTMLElement) : null;
    const axis = before?.dataset.mkgAxis;
    const top = before?.getBoundingClientRect().top ?? 0;
    renew();
    const groups = [...this.host.querySelectorAll<HTMLElement>("[data-mkg-axis]")];
    const same = groups.find(each => each.dataset.mkgAxis === axis && each.className === before?.className);
    if (axis === undefined || !same) return;
    same.focus({ preventScroll: true });
    this.host.scrollTop += same.getBoundingClientRect().top - top;
  }

  private activeAxis(): HTMLElement[] {
    const axis = this.store.get("axis");
    return activeAxis(this.h, this.store, axis !== null && axis === this.whole);
  }

  /** Nothing is selected: what to do, and of a traced model its axes. */
  private overview(path: string | null): HTMLElement[] {
    const axes = path === null ? axesOf(this.h) : null;
    const about = path === null ? (this.file?.about(true) ?? []) : [];
    return [this.invitation(path), ...about, ...(axes ? axisList(axes, 0, this.store.get("axis")) : [])];
  }

  private invitation(path: string | null): HTMLElement {
    const text = path === null ? words.INVITATION : words.NO_MODULE;
    return el("p", "mkg-empty", text);
  }

  private sections(node: number): HTMLElement[] {
    return [
      ...this.operators(node),
      this.heading(node),
      ...this.warnings(node),
      ...(node === 0 && this.file ? this.file.about(false) : []),
      this.numbers(node),
      ...this.traffic(node),
      ...this.built(node),
      ...this.relations(node),
      this.identity(node)
    ];
  }

  /** Of a traced model first what its tensors are made of, as that is what a trace is for. */
  private built(node: number): HTMLElement[] {
    const [settings, tensors, axes] = [this.settings(node), this.tensors(node), this.axes(node)];
    return axesOf(this.h) ? [...tensors, ...axes, ...settings] : [...settings, ...tensors];
  }

  private heading(node: number): HTMLElement {
    const { h } = this;
    const head = el("header", "mkg-panel-head");
    const name = node === 0 ? h.className(node) : h.name(node) || '""';
    head.append(breakable("mkg-panel-class", name));
    if (node !== 0 && h.word(node)) head.append(nameSpan("mkg-panel-kind", h.word(node)));
    const line = el("div", "mkg-panel-path");
    line.append(breakable("mkg-path", node === 0 ? words.WHOLE_MODEL : h.path(node)));
    line.append(copyButton(words.COPY_PATH, h.path(node)));
    head.append(line);
    if (this.hasInside(node) && node !== this.store.get("focus") && node !== 0) {
      const focus = button("mkg-button mkg-focus", words.FOCUS, words.FOCUS_HELP);
      focus.dataset.mkgFocus = String(node);
      head.append(focus);
    }
    return head;
  }

  /** Modules; in the view of operators these too. */
  private hasInside(node: number): boolean {
    const flow = this.store.get("view") === "operators" ? dataflowOf(this.h) : null;
    return this.h.isContainer(node) || (flow?.callsOf(node).some(call => flow.operators(call) > 1) ?? false);
  }

  private warnings(node: number): HTMLElement[] {
    const lists = [
      ["mkg-marks", this.h.marks(node)],
      ["mkg-block", this.h.blocks(node)]
    ] as const;
    return lists.flatMap(([name, texts]) => {
      const list = el("ul", name);
      for (const text of texts) {
        const line = el("li");
        line.append(nameSpan("", text));
        list.append(line);
      }
      return texts.length ? [list] : [];
    });
  }

  private numbers(node: number): HTMLElement {
    const { h } = this;
    const facts = new Facts();
    this.addNumber(facts, node, "params", words.PARAMETERS);
    if (h.isContainer(node)) this.addNumber(facts, node, "own_params", words.OWN_PARAMETERS);
    this.addNumber(facts, node, "bytes", words.MEMORY);
    addFlops(h, facts, node);
    for (const column of Object.keys(h.payload.columns)) {
      if (!ALWAYS.has(column) && !(column === "flops" && h.payload.flow))
        this.addNumber(facts, node, column, capital(titleOf(h, column)));
    }
    const colorBy = this.store.get("colorBy");
    if (colorBy === "overlay" || colorBy === "pruned") {
      const shown = valueOf(h, this.store, node);
      if (shown && shown.value !== null) facts.number(titleOf(h, colorBy), shown.value, colorBy, shown.note);
    }
    const same = h.column("occurrences")?.[node] ?? 1;
    facts.text(words.OCCURRENCES, same === 1 ? words.ONCE : words.occurrences(exactNumber(same)));
    const fold = h.fold(node);
    if (fold) {
      const place = words.copyOf(exactNumber(below(fold.members, node) + 1), exactNumber(fold.count));
      const how = fold.kind === "exact" ? words.SAME : words.OTHER_SIZES;
      const parts = [place, how, fold.kind === "exact" ? "" : fold.label];
      facts.text(words.FOLDED, parts.filter(Boolean).join(" · "));
    }
    this.addComparison(facts, node);
    return section("", facts.list);
  }

  private addComparison(facts: Facts, node: number): void {
    const { compare } = this.h.payload;
    if (!compare) return;
    const there = this.counterparts?.path(node);
    const isElsewhere = there !== undefined && there !== this.h.path(node); // such as behind a prefix
    const said = this.marks?.[node] === "changed inside" ? words.CHANGED_INSIDE : words.STATUS[compare.left[node]];
    facts.text(words.OTHER_MODEL, isElsewhere ? said.replace(words.IN_PLACE, "") : said);
    if (isElsewhere) facts.text(words.OTHER_PATH, there || words.WHOLE_MODEL, "mkg-code");
  }

  private addNumber(facts: Facts, node: number, column: string, label: string): void {
    if (!this.h.column(column)) return;
    const raw = this.h.payload.columns[column][node];
    const value = this.h.column(column)?.[node];
    if (value !== null && value !== undefined) facts.number(label, value, column, "", raw, words.HELP.get(column));
  }

  /** What was clicked in the module: one operator, or a group with all that it has. */
  private operators(node: number): HTMLElement[] {
    const flow = dataflowOf(this.h);
    const steps = this.store.get("operators");
    const owner = flow && steps ? flow.payload.calls.node[flow.payload.steps.call[steps[0]]] : -1;
    if (!flow || !steps || owner !== node) return [];
    if (steps.length > 1) return [groupSection(flow, steps)];
    return [operatorSection(flow, steps[0], attributeSection(this.h.payload.file, steps[0]))];
  }

  private traffic(node: number): HTMLElement[] {
    const flow = dataflowOf(this.h);
    return flow ? trafficSection(flow, node) : [];
  }

  private axes(node: number): HTMLElement[] {
    const axes = axesOf(this.h);
    return axes ? axisList(axes, node, this.store.get("axis")) : [];
  }

  private settings(node: number): HTMLElement[] {
    const here = new Map(this.h.hyper(node).map(([name, value]) => [name, settingText(value)]));
    const there = this.counterparts?.hyper(node)?.map(([name, value]) => [name, settingText(value)] as const);
    return this.table(words.SETTINGS, words.VALUE, here, there && new Map(there));
  }

  private tensors(node: number): HTMLElement[] {
    if (this.file && !this.counterparts) return this.file.tensors(node);
    const axes = this.counterparts ? null : axesOf(this.h);
    if (axes) return axisTensors(this.h, axes, node, this.store.get("axis"));
    const named = ([name, role, shape]: Tensor) =>
      [role === "buffer" ? `${name} (${words.BUFFER})` : name, shapeText(shape)] as const;
    const there = this.counterparts?.tensors(node)?.map(named);
    return this.table(words.PARAMETERS, words.SHAPE, new Map(this.h.tensors(node).map(named)), there && new Map(there));
  }

  /** Names and values; beside what the other model has, where that differs. */
  private table(
    title: string,
    what: string,
    here: ReadonlyMap<string, string>,
    there: ReadonlyMap<string, string> = here
  ): HTMLElement[] {
    const names = [...new Set([...here.keys(), ...there.keys()])];
    const differ = names.some(name => here.get(name) !== there.get(name));
    const rows = names.map(name => {
      const values = differ ? [here.get(name), there.get(name)] : [here.get(name)];
      const className = values[0] === values[values.length - 1] ? "mkg-code" : "mkg-code mkg-differs";
      return [breakable("mkg-name", name), ...values.map(value => nameSpan(className, value ?? "–"))];
    });
    if (!rows.length) return [];
    return [section(title, table(differ ? [words.NAME, words.HERE, words.THERE] : [words.NAME, what], rows))];
  }

  /** What else points at the same module or tensor. */
  private relations(node: number): HTMLElement[] {
    const { h } = this;
    const lines: HTMLElement[] = [];
    for (const use of this.usedAs.get(node) ?? []) {
      lines.push(
        this.relation(use.kind === "cycle" ? words.REACHED_AS : words.USED_AS, use.slot, words.IN, use.parent)
      );
    }
    for (const link of h.links(node)) {
      lines.push(
        this.relation(words.SLOT, link.slot, link.kind === "cycle" ? words.LEADS_BACK : words.SAME_MODULE, link.target)
      );
    }
    for (const tie of h.tied(node)) {
      lines.push(
        this.relation(words.TENSOR, tie.name, words.SAME_TENSOR, tie.other, [
          breakable("mkg-code", tie.otherName),
          words.OF
        ])
      );
    }
    if (!lines.length) return [];
    const list = el("ul", "mkg-relations");
    list.append(...lines);
    return [section(words.SHARED, foldedWhenLong(lines.length, words.CONNECTION, list))];
  }

  private relation(
    before: string,
    name: string,
    between: string,
    target: number,
    also: readonly (HTMLElement | string)[] = []
  ): HTMLElement {
    const line = el("li");
    const label = target === 0 ? words.THE_WHOLE_MODEL : this.h.path(target);
    const link = button("mkg-link", "", words.SELECT_MODULE);
    link.append(nameSpan("", label));
    link.dataset.mkgTarget = String(target);
    line.append(before, breakable("mkg-code", name), between, ...also, link);
    return line;
  }

  private identity(node: number): HTMLElement {
    const { h } = this;
    const facts = new Facts();
    const isTitle = node === 0 && h.payload.file?.name === h.qualifiedName(node);
    if (isTitle) facts.text(words.CLASS, kindText(""));
    else if (h.isKind(node)) facts.text(words.CLASS, kindText(h.word(node)));
    else facts.add(words.CLASS, breakable("mkg-code", h.qualifiedName(node)));
    const source = h.source(node);
    if (source) facts.text(words.SOURCE, source, "mkg-code");
    if (!h.payload.file) this.addFingerprint(facts, node); // of a file the page and the kernel count another one
    return section(words.IDENTITY, facts.list);
  }

  private addFingerprint(facts: Facts, node: number): void {
    const { h } = this;
    const digest = h.digest(node);
    if (digest) {
      facts.text(words.DISPLAY_NAME, h.entityName(node), "mkg-code");
      const line = el("span", "mkg-panel-path");
      const short = el("span", "mkg-code mkg-digest", digest);
      short.title = words.FINGERPRINT_HELP;
      line.append(short, copyButton(words.COPY_FINGERPRINT, digest));
      facts.add(words.FINGERPRINT, line);
    } else {
      facts.text(words.FINGERPRINT, words.NO_FINGERPRINT);
    }
  }

  private clicked(event: MouseEvent): void {
    const target = event.target instanceof Element ? event.target.closest<HTMLElement>("button") : null;
    if (!target) return;
    const { mkgCopy, mkgTarget, mkgFocus, mkgAxis, mkgMembers } = target.dataset;
    if (mkgMembers !== undefined) this.showMembers(this.whole === mkgMembers ? null : mkgMembers);
    if (mkgAxis !== undefined) this.store.set("axis", this.store.get("axis") === mkgAxis ? null : mkgAxis);
    if (mkgCopy !== undefined) void this.copier.copy(target, mkgCopy);
    if (mkgTarget !== undefined) this.select(Number(mkgTarget));
    if (mkgFocus !== undefined) this.store.set("focus", Number(mkgFocus));
  }

  private showMembers(axis: string | null): void {
    this.whole = axis;
    this.render();
    this.host.querySelector<HTMLElement>(".mkg-members-more")?.focus();
  }

  private select(node: number): void {
    const path = this.h.path(node);
    reveal(this.h, this.store, path);
    this.store.set("selected", path);
  }
}

/** Of a module of a file. */
function kindText(word: string): string {
  return word === "" ? words.NO_CLASS : words.guessed(word);
}

function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

interface Use {
  readonly parent: number;
  readonly slot: string;
  readonly kind: "shared" | "cycle";
}

function usesByTarget(h: Hierarchy): Map<number, Use[]> {
  const uses = new Map<number, Use[]>();
  for (const [parent, slot, target, kind] of h.payload.links) {
    push(uses, target, { parent, slot, kind });
  }
  return uses;
}
