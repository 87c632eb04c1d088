// A table of thousands of rows: sortable by its heads, walked by keys, and only what is in view is in the page.

import { button, Disposers, el, listen, nameSpan, setAttribute } from "../../shared/ui/dom";
import { VirtualList } from "../../shared/ui/virtual_list";
import type { Sorting } from "../data/state";
import * as words from "../../words/knowledge";

export interface Cell {
  readonly text: string;
  readonly title?: string;
}

export interface Column {
  readonly name: string;
  readonly label: string;
  readonly help?: string;
  readonly isNumber: boolean;
  readonly least: number; // width in pixels
  readonly share: number; // of the room that is left
  value(row: number): number | string | null;
  cell(row: number): Cell;
}

interface TableData {
  readonly label: string;
  readonly columns: readonly Column[];
  readonly rows: readonly number[];
  readonly sorting: Sorting;
  readonly key: (row: number) => string | null; // what a row selects
}

interface TableEvents {
  pick(key: string): void;
  sort(sorting: Sorting): void;
}

const ROW = 28;
const ASSUMED = 14; // rows in view of a table without a size
const COLUMN_GAP = 10; // as knowledge_views.css has it
const SPARE = 8; // rows above and below those in view

export class SortedTable {
  private readonly disposers = new Disposers();
  private readonly head = el("div", "mkg-kg-table-head");
  private readonly scroller = el("div", "mkg-kg-table-rows");
  private readonly list: VirtualList<number>; // by place
  private data?: TableData;
  private order: readonly number[] = [];
  private selected: string | null = null;
  private at = 0; // row that has the focus

  constructor(
    private readonly host: HTMLElement,
    private readonly events: TableEvents
  ) {
    host.classList.add("mkg-kg-table");
    host.setAttribute("role", "grid");
    this.head.setAttribute("role", "row");
    this.scroller.setAttribute("role", "rowgroup");
    this.list = new VirtualList(
      this.scroller,
      { rowHeight: ROW, overscan: SPARE, assumed: ASSUMED },
      {
        count: () => this.order.length,
        key: place => place,
        make: place => this.row(place),
        draw: (row, place) => this.markRow(row, place),
        active: () => this.at
      }
    );
    this.list.space.className = "mkg-kg-table-space";
    this.list.space.setAttribute("role", "presentation");
    this.scroller.tabIndex = -1;
    host.append(this.head, this.scroller);
    this.disposers.add(
      listen(this.scroller, "click", event => this.clicked(event)),
      listen(this.scroller, "keydown", event => this.key(event))
    );
  }

  dispose(): void {
    this.disposers.dispose();
    this.list.dispose();
    this.host.replaceChildren();
  }

  draw(data: TableData, selected: string | null): void {
    this.data = data;
    this.selected = selected;
    this.order = ordered(data);
    this.host.setAttribute("aria-label", data.label);
    this.host.setAttribute("aria-rowcount", String(this.order.length + 1));
    const widths = data.columns.map(({ least, share }) => `minmax(${least}px, ${share}fr)`);
    const least = data.columns.reduce((sum, column) => sum + column.least + COLUMN_GAP, 2 * COLUMN_GAP);
    this.host.style.setProperty("--mkg-columns", widths.join(" "));
    this.host.style.setProperty("--mkg-least", `${least}px`);
    this.drawHead(data);
    this.list.forget();
    this.at = Math.max(
      0,
      this.order.findIndex(row => data.key(row) === selected)
    );
    this.list.show(this.at);
    this.list.render();
  }

  mark(selected: string | null): void {
    this.selected = selected;
    const at = this.data ? this.order.findIndex(row => this.data?.key(row) === selected) : -1;
    if (at >= 0 && at !== this.at) {
      this.at = at;
      this.list.show(at);
    }
    this.list.render();
  }

  private drawHead({ columns, sorting }: TableData): void {
    const focused =
      document.activeElement instanceof HTMLElement ? document.activeElement.dataset.mkgColumn : undefined;
    const heads = columns.map(column => {
      const head = el("div", `mkg-kg-th${column.isNumber ? " mkg-is-number" : ""}`);
      head.setAttribute("role", "columnheader");
      const isSorted = sorting.column === column.name;
      head.setAttribute("aria-sort", isSorted ? (sorting.descending ? "descending" : "ascending") : "none");
      const sort = button("mkg-kg-sort", column.label, column.help ?? words.sortBy(column.label));
      sort.dataset.mkgColumn = column.name;
      sort.append(el("span", "mkg-kg-arrow", isSorted ? (sorting.descending ? "▼" : "▲") : ""));
      sort.addEventListener("click", () => {
        const descending = isSorted ? !sorting.descending : column.isNumber;
        this.events.sort({ column: column.name, descending });
      });
      head.append(sort);
      return head;
    });
    const hadFocus = focused !== undefined && this.head.contains(document.activeElement);
    this.head.replaceChildren(...heads);
    if (hadFocus)
      heads
        .map(head => head.querySelector("button"))
        .find(sort => sort?.dataset.mkgColumn === focused)
        ?.focus();
  }

  private row(place: number): HTMLElement {
    const row = el("div", "mkg-kg-tr");
    row.setAttribute("role", "row");
    row.setAttribute("aria-rowindex", String(place + 2));
    row.dataset.mkgRow = String(place);
    const { data } = this;
    if (!data) return row;
    const key = data.key(this.order[place]);
    if (key !== null) row.dataset.mkgKey = key;
    for (const column of data.columns) {
      const { text, title } = column.cell(this.order[place]);
      const cell = el("div", `mkg-kg-td${column.isNumber ? " mkg-is-number" : ""}`);
      cell.setAttribute("role", "gridcell");
      cell.append(nameSpan("", text));
      if (title ?? text) cell.title = title ?? text;
      row.append(cell);
    }
    return row;
  }

  private markRow(row: HTMLElement, place: number): void {
    setAttribute(
      row,
      "aria-selected",
      String(row.dataset.mkgKey !== undefined && row.dataset.mkgKey === this.selected)
    );
    row.tabIndex = place === this.at ? 0 : -1;
  }

  private goTo(place: number): void {
    const { data } = this;
    if (!data || this.order.length === 0) return;
    this.at = Math.max(0, Math.min(this.order.length - 1, place));
    this.list.show(this.at);
    this.list.render();
    this.list.focus(this.at);
    const key = data.key(this.order[this.at]);
    if (key !== null) this.events.pick(key);
  }

  private clicked(event: MouseEvent): void {
    const place = this.list.keyAt(event.target);
    if (place !== undefined) this.goTo(place);
  }

  private key(event: KeyboardEvent): void {
    const { page } = this.list;
    const places: Record<string, number> = {
      ArrowDown: this.at + 1,
      ArrowUp: this.at - 1,
      PageDown: this.at + page,
      PageUp: this.at - page,
      Home: 0,
      End: this.order.length - 1,
      Enter: this.at,
      " ": this.at
    };
    if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in places)) return;
    event.preventDefault();
    event.stopPropagation();
    this.goTo(places[event.key]);
  }
}

/** What has no value comes last, either way. */
function ordered({ columns, rows, sorting }: TableData): number[] {
  const column = columns.find(({ name }) => name === sorting.column);
  if (!column) return [...rows];
  const sign = sorting.descending ? -1 : 1;
  const values = new Map(rows.map(row => [row, column.value(row)]));
  return [...rows].sort((a, b) => {
    const [x, y] = [values.get(a) ?? null, values.get(b) ?? null];
    if (x === null || y === null) return x === y ? a - b : x === null ? 1 : -1;
    const order = typeof x === "string" || typeof y === "string" ? compare(String(x), String(y)) : x - y;
    return sign * order || a - b;
  });
}

const compare = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);
