// "What do these two models share?" in the side panel: the button, the choice of the other model, and the answer.

import { oneLine } from "../shared/canvas";
import { button, el, nameSpan } from "../shared/dom";
import { counted, exactNumber, shortNumber } from "../shared/format";
import { hyperLine } from "../shared/hyper";
import { folded, section, table } from "../panel/parts";
import {
  type ComparedRow,
  compare,
  type Comparison,
  innermost,
  outermost,
  type Side,
  type SharedOf
} from "./comparison";
import type { Knowledge } from "./data";
import { emptyNote } from "./empty";
import { ModelPicker } from "./model_picker";
import type { ExplorerStore } from "./state";

const SHOWN = 12; // rows of a list before the rest is folded up

/** The part of a model's panel that is about another one. */
export function compareSections(data: Knowledge, store: ExplorerStore, model: number): HTMLElement[] {
  const key = data.key({ kind: "model", index: model, level: 0 });
  const other = data.find(store.get("other"));
  const isCompared = store.get("comparing") === key && other?.kind === "model" && other.index !== model;
  if (!isCompared) return [chooser(data, store, model, "Compare with…")];
  return [chooser(data, store, model, "Compare with another…"), ...answer(data, model, other.index)];
}

/** Back from a structure of the answer to the answer. */
export function wayBack(data: Knowledge, store: ExplorerStore): HTMLElement[] {
  const [one, other] = [data.find(store.get("comparing")), data.find(store.get("other"))];
  if (!one || !other || data.find(store.get("selected"))?.kind !== "module") return [];
  const back = button("mkg-link mkg-kg-back", "", "Back to the comparison");
  back.append("← ", nameSpan("", data.name(one)), " and ", nameSpan("", data.name(other)));
  back.dataset.mkgKey = data.key(one);
  return [back];
}

function chooser(data: Knowledge, store: ExplorerStore, model: number, text: string): HTMLElement {
  const place = el("div", "mkg-kg-compare");
  if (data.modelCount < 2) {
    place.append(emptyNote("others", store));
    return place;
  }
  const open = button("mkg-button mkg-kg-compare-with", text, "What this model and another have in common");
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
  said.append("In common with ", nameSpan("mkg-kg-other", names[1]), `: ${counted(both.length, "structure")}, `);
  said.append(`overlap ${overlap.toFixed(3)} (Jaccard). `, ...sharedInWords(data, comparison));
  const figures = el("div", "mkg-kg-figures");
  figures.append(table(["Shared", ...names], figureRows(sides)));
  return [
    section("Compared", said, figures),
    listed(data, "In both", both, ({ uses: [a, b] }) =>
      a === b ? `×${exactNumber(a)}` : `×${exactNumber(a)} / ×${exactNumber(b)}`
    ),
    listed(data, `Only in ${names[0]}`, first, ({ uses }) => `×${exactNumber(uses[0])}`),
    listed(data, `Only in ${names[1]}`, second, ({ uses }) => `×${exactNumber(uses[1])}`)
  ];
}

const NAMED = 3; // structures that a sentence names

/** What is shared and what is not, as one would say it. */
function sharedInWords(data: Knowledge, { sides, both, first, second }: Comparison): (string | HTMLElement)[] {
  const name = ({ model }: Side) => nameSpan("", data.payload.models.name[model]);
  const [one, other] = sides;
  if (first.length + second.length === 0) return ["They are built of the same structures."];
  const roots = sides.map(({ model }) => data.payload.models.root[model]);
  const isInside = ({ entity }: ComparedRow) => !roots.includes(entity);
  if (![...first, ...second].some(isInside)) return numbersInWords(data, both);
  const alone = (side: Side, rows: readonly ComparedRow[]) =>
    rows.length > 0 ? [" Only in ", name(side), ": ", ...named(data, innermost(data, rows)), "."] : [];
  if (both.length === 0) return ["Nothing in the one is in the other.", ...alone(one, first), ...alone(other, second)];
  const part = ({ params: { shared, all } }: Side) => (all > 0 ? shared / all : 0);
  const share = (side: Side) => `${(100 * part(side)).toFixed(0)} %`;
  if (sides.every(side => part(side) < 0.005)) {
    const little = ["Shared is only what has next to no parameters: ", ...named(data, outermost(data, both)), "."];
    return [...little, ...alone(one, first), ...alone(other, second)];
  }
  const whole = [
    ...(first.length === 0 ? ["All of ", name(one), " is in ", name(other), ". "] : []),
    ...(second.length === 0 ? ["All of ", name(other), " is in ", name(one), ". "] : [])
  ];
  return [
    ...whole,
    "Shared are above all ",
    ...named(data, outermost(data, both)),
    `: ${share(one)} of the parameters of `,
    name(one),
    `, ${share(other)} of `,
    name(other),
    ".",
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
    ` ×${exactNumber(a)} and ×${exactNumber(b)}`
  ]);
  return ["They are built of the same structures, in other numbers or order", ...said, "."];
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
  return rest > 0 ? [...parts, ` and ${exactNumber(rest)} more`] : parts;
}

function figureRows(sides: readonly Side[]): HTMLElement[][] {
  const row = (text: string, of: (side: Side) => SharedOf, format: (value: number) => string) => [
    el("span", "", text),
    ...sides.map(side => share(of(side), format))
  ];
  return [
    row("structures", side => side.structures, exactNumber),
    row("modules", side => side.modules, exactNumber),
    row("parameters", side => side.params, shortNumber)
  ];
}

function share({ shared, all }: SharedOf, format: (value: number) => string): HTMLElement {
  const cell = el("span", "mkg-kg-share");
  cell.title = `${exactNumber(shared)} of ${exactNumber(all)}`;
  const percent = all > 0 ? `${((100 * shared) / all).toFixed(1)} %` : "–";
  cell.append(el("b", "", percent), el("span", "mkg-dim", ` ${format(shared)} of ${format(all)}`));
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
  if (lines.length > SHOWN) part.append(folded(`${exactNumber(lines.length - SHOWN)} more`, list(lines.slice(SHOWN))));
  return part;
}

function list(lines: readonly HTMLElement[]): HTMLElement {
  const element = el("ul", "mkg-kg-list");
  element.append(...lines);
  return element;
}

/** A row that selects its structure, wherever it is clicked. */
function line(data: Knowledge, entity: number, end: string): HTMLElement {
  const row = button("mkg-kg-row", "", "Select this structure");
  row.dataset.mkgKey = data.payload.entities.digest[entity];
  const settings = hyperLine(data.hyper(entity));
  const params = data.params[entity] ?? 0;
  const detail = settings || (params > 0 ? `${shortNumber(params)} parameters` : "");
  row.append(
    nameSpan("mkg-kg-row-name", data.payload.entities.name[entity]),
    nameSpan("mkg-kg-row-detail", detail),
    el("span", "mkg-kg-count", end)
  );
  const item = el("li");
  item.append(row);
  return item;
}
