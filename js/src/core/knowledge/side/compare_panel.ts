// The comparison of two models in the side panel: a button, the choice of the other model, and what they share.

import { oneLine } from "../../shared/base/canvas";
import { button, el, listen, nameSpan, setAttribute, setRole } from "../../shared/ui/dom";
import { exactNumber, shortNumber, hyperLine } from "../../shared/base/format";
import { folded, section, table } from "../../panel/parts";
import type { Knowledge } from "../data/knowledge";
import { emptyNote } from "../data/descriptions";
import type { ExplorerStore } from "../data/state";
import { highlight } from "../../shared/search/search";
import { toNumber } from "../../shared/payload/payload";
import * as words from "../../words/knowledge";

// A list of models to choose one from, by typing, arrow keys or a click: those most like a given one first.

const MAX_ROWS = 100; // rows; a list of more is narrowed by typing
let created = 0;

interface PickerEvents {
  choose(model: number): void;
  cancel(): void;
}

class ModelPicker {
  readonly element = el("div", "mkg-kg-picker");
  private readonly input = el("input");
  private readonly list = el("div", "mkg-kg-picker-list");
  private readonly note = el("p", "mkg-dim");
  private readonly others: readonly number[];
  private shown: readonly number[] = [];
  private at = 0;

  constructor(
    private readonly data: Knowledge,
    model: number,
    private readonly events: PickerEvents
  ) {
    const { input, list, element } = this;
    const others = Array.from({ length: data.modelCount }, (_, i) => i).filter(i => i !== model);
    this.others = others.sort((a, b) => data.overlap(model, b) - data.overlap(model, a) || a - b);
    list.id = `mkg-kg-picker-${++created}`;
    setRole(list, "listbox", words.PICKER);
    input.type = "text";
    input.placeholder = words.PICKER_FIELD;
    input.spellcheck = false;
    input.autocomplete = "off";
    for (const [name, value] of Object.entries({
      role: "combobox",
      "aria-label": words.PICKER_LABEL,
      "aria-expanded": "true",
      "aria-autocomplete": "list",
      "aria-controls": list.id
    }))
      input.setAttribute(name, value);
    this.note.setAttribute("role", "status");
    element.append(input, list, this.note);
    // they go with the elements that they listen to
    listen(input, "input", () => this.draw());
    listen(input, "keydown", event => this.key(event));
    listen(list, "mousedown", event => event.preventDefault()); // the field keeps the focus
    listen(list, "click", event => this.clicked(event));
    this.draw();
  }

  focus(): void {
    this.input.focus({ preventScroll: true });
  }

  private draw(): void {
    const { name } = this.data.payload.models;
    const needles = this.input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = this.others.filter(model => needles.every(needle => name[model].toLowerCase().includes(needle)));
    const typed = this.input.value.trim().toLowerCase();
    const nearness = (model: number) => {
      const own = name[model].toLowerCase();
      return typed === "" ? 0 : own === typed ? 2 : Number(own.startsWith(typed));
    };
    this.shown = found.sort((a, b) => nearness(b) - nearness(a)).slice(0, MAX_ROWS); // else those with most in common
    this.at = 0;
    this.list.replaceChildren(...this.shown.map((model, i) => this.row(name[model], i, needles)));
    this.list.hidden = this.shown.length === 0;
    this.note.textContent = found.length === 0 ? words.NO_MODEL : found.length > MAX_ROWS ? words.NARROW : "";
    this.mark();
  }

  private row(name: string, i: number, needles: readonly string[]): HTMLElement {
    const row = el("div", "mkg-kg-picker-row");
    row.id = `${this.list.id}-${i}`;
    row.setAttribute("role", "option");
    row.dataset.mkgPick = String(i);
    const text = nameSpan("", "");
    highlight(oneLine(name), needles).forEach((part, k) => {
      if (part) text.append(k % 2 ? el("mark", "mkg-hit", part) : part);
    });
    row.append(text);
    return row;
  }

  private mark(): void {
    const rows = Array.from(this.list.children) as HTMLElement[];
    rows.forEach((row, i) => setAttribute(row, "aria-selected", String(i === this.at)));
    const row = rows[this.at] as HTMLElement | undefined;
    setAttribute(this.input, "aria-activedescendant", row?.id ?? null);
    if (!row) return;
    const [top, bottom] = [row.offsetTop, row.offsetTop + row.offsetHeight];
    if (top < this.list.scrollTop) this.list.scrollTop = top;
    else if (bottom > this.list.scrollTop + this.list.clientHeight)
      this.list.scrollTop = bottom - this.list.clientHeight;
  }

  private clicked(event: MouseEvent): void {
    const row = event.target instanceof Element ? event.target.closest<HTMLElement>("[data-mkg-pick]") : null;
    if (row) this.choose(Number(row.dataset.mkgPick));
  }

  private choose(i: number): void {
    const model = this.shown[i] as number | undefined;
    if (model !== undefined) this.events.choose(model);
  }

  private key(event: KeyboardEvent): void {
    if (event.isComposing) return;
    event.stopPropagation(); // letters are text here, not shortcuts of the widget
    const last = this.shown.length - 1;
    const steps: Record<string, number> = { ArrowDown: Math.min(last, this.at + 1), ArrowUp: Math.max(0, this.at - 1) };
    if (event.key in steps) {
      this.at = steps[event.key];
      this.mark();
    } else if (event.key === "Enter") this.choose(this.at);
    else if (event.key === "Escape") this.events.cancel();
    else return;
    event.preventDefault();
  }
}

const SHOWN = 12; // rows of a list before the rest is folded up

/** The part of a model's panel that is about another one. */
export function compareSections(data: Knowledge, store: ExplorerStore, model: number): HTMLElement[] {
  const key = data.key({ kind: "model", index: model, level: 0 });
  const other = data.find(store.get("other"));
  const isCompared = store.get("comparing") === key && other?.kind === "model" && other.index !== model;
  if (!isCompared) return [chooser(data, store, model, words.COMPARE)];
  return [chooser(data, store, model, words.COMPARE_ANOTHER), ...answer(data, model, other.index)];
}

/** Back from a structure of the answer to the answer. */
export function backLink(data: Knowledge, store: ExplorerStore): HTMLElement[] {
  const [one, other] = [data.find(store.get("comparing")), data.find(store.get("other"))];
  if (!one || !other || data.find(store.get("selected"))?.kind !== "module") return [];
  const back = button("mkg-link mkg-kg-back", "", words.BACK);
  back.append("← ", nameSpan("", data.name(one)), words.AND, nameSpan("", data.name(other)));
  back.dataset.mkgKey = data.key(one);
  return [back];
}

function chooser(data: Knowledge, store: ExplorerStore, model: number, text: string): HTMLElement {
  const place = el("div", "mkg-kg-compare");
  if (data.modelCount < 2) {
    place.append(emptyNote("others", store));
    return place;
  }
  const open = button("mkg-button mkg-kg-compare-with", text, words.COMPARE_TITLE);
  open.setAttribute("aria-expanded", "false");
  const close = () => {
    open.setAttribute("aria-expanded", "false");
    place.replaceChildren(open);
    open.focus({ preventScroll: true });
  };
  const choose = (other: number) => {
    const key = (index: number) => data.key({ kind: "model", index, level: 0 });
    const panel = place.parentElement; // each change draws what is in it anew
    store.set("comparing", key(model));
    store.set("other", key(other));
    panel?.querySelector<HTMLElement>(".mkg-kg-answer")?.focus({ preventScroll: true });
  };
  open.addEventListener("click", () => {
    if (open.getAttribute("aria-expanded") === "true") return close();
    open.setAttribute("aria-expanded", "true");
    const picker = new ModelPicker(data, model, { choose, cancel: close });
    place.append(picker.element);
    picker.focus();
  });
  place.append(open);
  return place;
}

function answer(data: Knowledge, one: number, other: number): HTMLElement[] {
  const comparison = compare(data, one, other);
  const { sides, overlap, both, first, second } = comparison;
  const names = sides.map(({ model }) => data.payload.models.name[model]);
  const said = el("p", "mkg-kg-answer");
  said.tabIndex = -1;
  said.append(words.IN_COMMON, nameSpan("mkg-kg-other", names[1]), `: ${words.structures(both.length)}, `);
  said.append(words.overlap(overlap.toFixed(3)), ...sharedInWords(data, comparison));
  const figures = el("div", "mkg-kg-figures");
  figures.append(table([words.SHARED, ...names], figureRows(sides)));
  return [
    section(words.COMPARISON, said, figures),
    listed(data, words.IN_BOTH, both, ({ uses: [a, b] }) =>
      a === b ? `×${exactNumber(a)}` : `×${exactNumber(a)} / ×${exactNumber(b)}`
    ),
    listed(data, words.onlyIn(names[0]), first, ({ uses }) => `×${exactNumber(uses[0])}`),
    listed(data, words.onlyIn(names[1]), second, ({ uses }) => `×${exactNumber(uses[1])}`)
  ];
}

const NAMED = 3; // structures that a sentence names

/** What is shared and what is not, as one would say it. */
function sharedInWords(data: Knowledge, { sides, both, first, second }: Comparison): (string | HTMLElement)[] {
  const name = ({ model }: Side) => nameSpan("", data.payload.models.name[model]);
  const [one, other] = sides;
  if (first.length + second.length === 0) return [words.SAME_STRUCTURES];
  const roots = sides.map(({ model }) => data.payload.models.root[model]);
  const isInside = ({ entity }: ComparedRow) => !roots.includes(entity);
  if (![...first, ...second].some(isInside)) return numbersInWords(data, both);
  const alone = (side: Side, rows: readonly ComparedRow[]) =>
    rows.length > 0 ? [words.ONLY_IN, name(side), ": ", ...named(data, innermost(data, rows)), "."] : [];
  if (both.length === 0) return [words.NOTHING_SHARED, ...alone(one, first), ...alone(other, second)];
  const part = ({ params: { shared, all } }: Side) => (all > 0 ? shared / all : 0);
  const share = (side: Side) => `${(100 * part(side)).toFixed(0)} %`;
  if (sides.every(side => part(side) < 0.005)) {
    const little = [words.FEW_SHARED, ...named(data, outermost(data, both)), "."];
    return [...little, ...alone(one, first), ...alone(other, second)];
  }
  const whole = [
    ...(first.length === 0 ? [words.ALL_OF, name(one), words.IS_IN, name(other), ". "] : []),
    ...(second.length === 0 ? [words.ALL_OF, name(other), words.IS_IN, name(one), ". "] : [])
  ];
  return [
    ...whole,
    words.MAINLY_SHARED,
    ...named(data, outermost(data, both)),
    words.ofParameters(share(one)),
    name(one),
    `, ${share(other)}${words.OF}`,
    name(other),
    ").",
    ...alone(one, first),
    ...alone(other, second)
  ];
}

/** Of two models that are built of the same structures but for the whole: of which there are more in the one. */
function numbersInWords(data: Knowledge, both: readonly ComparedRow[]): (string | HTMLElement)[] {
  const every = new Set(outermost(data, both));
  const others = both.filter(({ entity, uses: [a, b] }) => every.has(entity) && a !== b).slice(0, NAMED);
  const said = others.flatMap(({ entity, uses: [a, b] }, i) => [
    i === 0 ? ": " : ", ",
    nameSpan("", data.payload.entities.name[entity]),
    words.counts(a, b)
  ]);
  return [words.SAME_BUT_COUNTS, ...said, "."];
}

/** "Bottleneck12, Conv2d7 (64 → 128 · k 3) and 5 more". */
function named(data: Knowledge, found: readonly number[]): (string | HTMLElement)[] {
  const names = found.slice(0, NAMED).map(entity => {
    const settings = hyperLine(data.hyper(entity));
    const end = settings ? ` (${settings})` : "";
    return nameSpan("", oneLine(data.payload.entities.name[entity] + end));
  });
  const rest = found.length - names.length;
  const parts: (string | HTMLElement)[] = names.flatMap((each, i) => (i === 0 ? [each] : [", ", each]));
  return rest > 0 ? [...parts, words.andMore(rest)] : parts;
}

function figureRows(sides: readonly Side[]): HTMLElement[][] {
  const row = (text: string, of: (side: Side) => SharedOf, format: (value: number) => string) => [
    el("span", "", text),
    ...sides.map(side => share(of(side), format))
  ];
  return [
    row(words.STRUCTURES_ROW, side => side.structures, exactNumber),
    row(words.MODULES_ROW, side => side.modules, exactNumber),
    row(words.PARAMETERS_ROW, side => side.params, shortNumber)
  ];
}

function share({ shared, all }: SharedOf, format: (value: number) => string): HTMLElement {
  const cell = el("span", "mkg-kg-share");
  cell.title = words.outOf(exactNumber(shared), exactNumber(all));
  const percent = all > 0 ? `${((100 * shared) / all).toFixed(1)} %` : "–";
  cell.append(el("b", "", percent), el("span", "mkg-dim", ` ${words.outOf(format(shared), format(all))}`));
  return cell;
}

function listed(
  data: Knowledge,
  title: string,
  rows: readonly ComparedRow[],
  end: (row: ComparedRow) => string
): HTMLElement {
  const lines = rows.map(row => line(data, row.entity, end(row)));
  const part = section("", list(lines.slice(0, SHOWN)));
  const heading = el("h4");
  heading.append(nameSpan("mkg-kg-heading", title), el("span", "mkg-kg-count", ` ${exactNumber(rows.length)}`));
  part.prepend(heading);
  if (lines.length > SHOWN) part.append(folded(words.more(lines.length - SHOWN), list(lines.slice(SHOWN))));
  return part;
}

function list(lines: readonly HTMLElement[]): HTMLElement {
  const element = el("ul", "mkg-kg-list");
  element.append(...lines);
  return element;
}

/** A row that selects its structure, wherever it is clicked. */
function line(data: Knowledge, entity: number, end: string): HTMLElement {
  const row = button("mkg-kg-row", "", words.select(words.KINDS.module));
  row.dataset.mkgKey = data.payload.entities.digest[entity];
  const settings = hyperLine(data.hyper(entity));
  const params = data.params[entity] ?? 0;
  const detail = settings || (params > 0 ? words.parameters(shortNumber(params)) : "");
  row.append(
    nameSpan("mkg-kg-row-name", data.payload.entities.name[entity]),
    nameSpan("mkg-kg-row-detail", detail),
    el("span", "mkg-kg-count", end)
  );
  const item = el("li");
  item.append(row);
  return item;
}

// The structures that two models have in common, from the payload alone.

interface SharedOf {
  readonly shared: number;
  readonly all: number;
}

/** How much of one model lies in what the other has, too. */
interface Side {
  readonly model: number;
  readonly structures: SharedOf;
  readonly modules: SharedOf; // occurrences
  readonly params: SharedOf;
}

interface ComparedRow {
  readonly entity: number;
  readonly uses: readonly [number, number]; // occurrences in the one and in the other
}

interface Comparison {
  readonly sides: readonly [Side, Side];
  readonly overlap: number;
  readonly both: readonly ComparedRow[]; // the most used first, as in kg.difference
  readonly first: readonly ComparedRow[];
  readonly second: readonly ComparedRow[];
}

export function compare(data: Knowledge, one: number, other: number): Comparison {
  const uses = [usesIn(data, one), usesIn(data, other)] as const;
  const rows = [...new Set([...uses[0].keys(), ...uses[1].keys()])].map((entity): ComparedRow => {
    return { entity, uses: [uses[0].get(entity) ?? 0, uses[1].get(entity) ?? 0] };
  });
  const { name } = data.payload.entities;
  const total = ({ uses: [a, b] }: ComparedRow) => a + b;
  rows.sort((a, b) => total(b) - total(a) || (name[a.entity] < name[b.entity] ? -1 : 1));
  const both = rows.filter(row => row.uses.every(count => count > 0));
  const shared = new Set(both.map(({ entity }) => entity));
  return {
    sides: [sideOf(data, one, uses[0], shared), sideOf(data, other, uses[1], shared)],
    overlap: data.overlap(one, other),
    both,
    first: rows.filter(row => row.uses[1] === 0),
    second: rows.filter(row => row.uses[0] === 0)
  };
}

/** Those of a list that lie in no other of it, the largest first: what it comes to in a few names. */
export function outermost(data: Knowledge, rows: readonly ComparedRow[]): number[] {
  const size = (entity: number) => data.params[entity] ?? 0;
  const inside = new Set<number>();
  const enter = (entity: number) => {
    const waiting = [entity];
    for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
      for (const { index } of data.children(next)) {
        if (inside.has(index)) continue;
        inside.add(index);
        waiting.push(index);
      }
    }
  };
  const found: number[] = [];
  for (const { entity } of [...rows].sort((a, b) => size(b.entity) - size(a.entity) || a.entity - b.entity)) {
    if (inside.has(entity)) continue;
    found.push(entity);
    enter(entity);
  }
  return found;
}

/** Those of a list that hold no other of it, the largest first: what really differs, not all that is around it. */
export function innermost(data: Knowledge, rows: readonly ComparedRow[]): number[] {
  const size = (entity: number) => data.params[entity] ?? 0;
  const every = new Set(rows.map(({ entity }) => entity));
  const own = [...every].filter(entity => !data.children(entity).some(({ index }) => every.has(index)));
  return own.sort((a, b) => size(b) - size(a) || a - b);
}

function usesIn(data: Knowledge, model: number): Map<number, number> {
  const members = data.payload.models.members[model];
  const uses = new Map<number, number>();
  for (let at = 0; at < members.length; at += 3) uses.set(members[at], (uses.get(members[at]) ?? 0) + members[at + 2]);
  return uses;
}

function sideOf(data: Knowledge, model: number, uses: ReadonlyMap<number, number>, shared: ReadonlySet<number>): Side {
  let modules = 0;
  for (const [entity, count] of uses) if (shared.has(entity)) modules += count;
  const all = toNumber(data.payload.models.params[model]) ?? 0;
  return {
    model,
    structures: { shared: shared.size, all: uses.size },
    modules: { shared: modules, all: data.payload.models.modules[model] },
    params: { shared: Math.min(all, paramsIn(data, model, uses, shared, all)), all }
  };
}

/** Parameters in shared structures; what lies in a shared one is shared, so the outermost of them are summed up. */
function paramsIn(
  data: Knowledge,
  model: number,
  uses: ReadonlyMap<number, number>,
  shared: ReadonlySet<number>,
  all: number
): number {
  if (shared.has(data.payload.models.root[model])) return all;
  const outermost = new Map<number, number>();
  for (const [entity, times] of uses) {
    if (shared.has(entity)) continue;
    for (const { index, count } of data.children(entity))
      if (shared.has(index)) outermost.set(index, (outermost.get(index) ?? 0) + times * count);
  }
  let sum = 0;
  // one that several modules hold is there once
  for (const [entity, count] of outermost) sum += Math.min(count, uses.get(entity) ?? 0) * (data.params[entity] ?? 0);
  return sum;
}
