// View of a saved pruning plan: sizes before and after, indices removed of each axis, corrections of the dry run.

import { button, el, nameSpan } from "../shared/ui/dom";
import { exactNumber, shortNumber } from "../shared/base/format";
import type { Pair, SavedAxis, SavedPlan } from "../shared/payload/saved_file";
import type { Translations } from "../shared/payload/file_problem";

export const ROWS = 500; // drawn at once; more on request
const MAX_RUNS = 12; // of dropped indices that are written out
const MAX_MEMBERS = 3;

/** Fills `host`; whatever was there goes. */
export function showPlan(host: HTMLElement, plan: SavedPlan, words: Translations): void {
  host.classList.add("mkg-widget", "mkg-plan-view");
  host.replaceChildren(
    facts(plan, words),
    table(
      words.__("Channel groups"),
      [words.__("Channel group"), words.__("Before"), words.__("After"), words.__("Removed"), words.__("Tensors")],
      plan.axes,
      axis => axisCells(axis, words),
      words
    ),
    ...corrections(plan, words),
    ...attributes(plan, words)
  );
}

function facts({ params, flops, macs, axes, tensors }: SavedPlan, words: Translations): HTMLElement {
  const list = el("dl", "mkg-plan-facts");
  const add = (name: string, value: Pair) => {
    const shown = el("dd", "", `${shortNumber(value[0])} → ${shortNumber(value[1])}${share(value)}`);
    shown.title = value.map(exactNumber).join(" → ");
    list.append(el("dt", "", name), shown);
  };
  add(words.__("Parameters"), params);
  add(words.__("FLOPs"), flops);
  add(words.__("MACs"), macs);
  const cut = axes.filter(axis => axis.dropped.length > 0).length;
  list.append(
    el("dt", "", words.__("Cut")),
    el("dd", "", words.__("%1 of %2 channel groups; tensors: %3", cut, axes.length, tensors))
  );
  return list;
}

/** " (−25.0 %)" */
function share([before, after]: Pair): string {
  if (before === 0) {
    return "";
  }
  const percent = (100 * (after - before)) / before;
  return ` (${percent < 0 ? "−" : "+"}${Math.abs(percent).toFixed(1)} %)`;
}

function axisCells({ name, size, dropped, members }: SavedAxis, words: Translations): HTMLElement[] {
  const more = members.length - MAX_MEMBERS;
  const listed = members.slice(0, MAX_MEMBERS).join(", ");
  const kept = nameSpan("", more > 0 ? words.__("%1 and %2 more", listed, more) : listed);
  kept.title = members.slice(0, 40).join("\n");
  const gone = el("span", "", dropped.length ? ranges(dropped) : "–");
  return [
    nameSpan("mkg-plan-axis", name),
    el("span", "", exactNumber(size)),
    el("span", "", exactNumber(size - dropped.length)),
    gone,
    kept
  ];
}

/** Ascending numbers, with runs of neighbours as "3–7". */
export function ranges(numbers: readonly number[]): string {
  const runs: string[] = [];
  for (let at = 0; at < numbers.length && runs.length <= MAX_RUNS;) {
    let end = at;
    while (end + 1 < numbers.length && numbers[end + 1] === numbers[end] + 1) {
      end += 1;
    }
    runs.push(end > at + 1 ? `${numbers[at]}–${numbers[end]}` : numbers.slice(at, end + 1).join(", "));
    at = end + 1;
  }
  return runs.length > MAX_RUNS ? `${runs.slice(0, MAX_RUNS).join(", ")}, …` : runs.join(", ");
}

function corrections({ changes }: SavedPlan, words: Translations): HTMLElement[] {
  if (changes.length === 0) {
    return [];
  }
  const head = [words.__("Kind"), words.__("What"), words.__("Source")];
  const cells = (change: SavedPlan["changes"][number]) =>
    [change.kind, change.what, change.source].map(text => nameSpan("", text));
  return [table(words.__("Corrections of the dry run"), head, changes, cells, words)];
}

function attributes(plan: SavedPlan, words: Translations): HTMLElement[] {
  if (plan.attributes.length === 0) {
    return [];
  }
  const head = [words.__("Attribute"), words.__("Before"), words.__("After")];
  const cells = ({ name, before, after }: SavedPlan["attributes"][number]) =>
    [name, before, after].map(text => nameSpan("", text));
  return [table(words.__("Sizes stored in modules"), head, plan.attributes, cells, words)];
}

function table<T>(
  title: string,
  head: readonly string[],
  entries: readonly T[],
  cells: (entry: T) => HTMLElement[],
  words: Translations
): HTMLElement {
  const section = el("section", "mkg-plan-section");
  const grid = el("table", "mkg-plan-table");
  const rows = el("tbody");
  const top = el("tr");
  top.append(...head.map(text => column(text)));
  const thead = el("thead");
  thead.append(top);
  grid.append(el("caption", "", `${title} (${exactNumber(entries.length)})`), thead, rows);
  section.append(grid);
  addRows(section, rows, entries, cells, words);
  return section;
}

function column(text: string): HTMLElement {
  const cell = el("th", "", text);
  cell.scope = "col";
  return cell;
}

/** The next rows, and a button for those after them. */
function addRows<T>(
  section: HTMLElement,
  rows: HTMLElement,
  entries: readonly T[],
  cells: (entry: T) => HTMLElement[],
  words: Translations
): void {
  const begin = rows.childElementCount;
  for (const entry of entries.slice(begin, begin + ROWS)) {
    const row = el("tr");
    cells(entry).forEach((content, at) => {
      const cell = el(at === 0 ? "th" : "td");
      if (at === 0) {
        cell.setAttribute("scope", "row");
      }
      cell.append(content);
      row.append(cell);
    });
    rows.append(row);
  }
  const left = entries.length - rows.childElementCount;
  if (left > 0) {
    const more = button("mkg-button mkg-plan-more", words.__("Show more (%1 left)", left));
    more.onclick = () => {
      more.remove();
      addRows(section, rows, entries, cells, words);
    };
    section.append(more);
  }
}
