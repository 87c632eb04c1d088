// The results of a search, best first, in place of the tree.

import { Disposers, el, listen, nameSpan, setAttribute } from "../../shared/ui/dom";
import { exactNumber } from "../../shared/base/format";
import { oneLine } from "../../shared/base/canvas";
import { highlight } from "../../shared/search/search";
import type { Knowledge, Entity } from "../data/knowledge";
import { noResultsNote, search } from "../data/search";
import type { ExplorerStore } from "../data/state";
import { keepInView } from "../map/tree";
import { detailOf } from "../data/descriptions";

const MAX_ROWS = 200; // rows; a search of more has to say more

export class ResultList {
  private readonly disposers = new Disposers();
  private readonly list = el("div", "mkg-kg-results-list");
  private readonly note = el("p", "mkg-kg-results-note");
  private things: readonly Entity[] = [];
  private stepped: string | null = null; // the search in which a step was made
  private rows: HTMLElement[] = [];
  private at = 0;

  constructor(
    private readonly host: HTMLElement,
    private readonly data: Knowledge,
    private readonly store: ExplorerStore
  ) {
    host.classList.add("mkg-kg-results");
    this.list.setAttribute("role", "listbox");
    this.list.setAttribute("aria-label", "Found");
    host.append(this.list, this.note);
    this.disposers.add(
      store.on("query", () => this.draw()),
      store.on("selected", () => this.mark()),
      listen(this.list, "click", event => this.clicked(event)),
      listen(this.list, "keydown", event => this.key(event))
    );
    this.draw();
  }

  dispose(): void {
    this.disposers.dispose();
    this.host.replaceChildren();
  }

  /** The best answer becomes the selection; after it the next one, as long as the search is the same. */
  step(): void {
    if (this.things.length === 0) return;
    const selected = this.things.findIndex(thing => this.data.key(thing) === this.store.get("selected"));
    const isNew = this.stepped !== this.store.get("query");
    this.stepped = this.store.get("query");
    this.choose(isNew ? 0 : (selected + 1) % this.things.length);
  }

  private draw(): void {
    const query = this.store.get("query");
    const { things, needles, notice } = search(this.data, query);
    this.things = things.slice(0, MAX_ROWS);
    this.at = 0;
    this.rows = this.things.map((thing, i) => this.row(thing, i, needles));
    this.list.replaceChildren(...this.rows);
    this.list.hidden = this.rows.length === 0;
    const left = things.length - this.things.length;
    const isNothing = query.trim() !== "" && things.length === 0 && !notice;
    this.note.textContent = notice || (left > 0 ? `and ${exactNumber(left)} more: narrow the search` : "");
    this.note.hidden = this.note.textContent === "";
    this.host.querySelector(".mkg-kg-nothing")?.remove();
    if (isNothing) this.host.append(noResultsNote(this.store, true));
    this.mark();
  }

  private row(thing: Entity, i: number, needles: readonly string[]): HTMLElement {
    const row = el("div", "mkg-kg-result");
    row.setAttribute("role", "option");
    row.dataset.mkgKey = this.data.key(thing);
    row.dataset.mkgRow = String(i);
    const name = nameSpan("mkg-kg-result-name", "");
    highlight(oneLine(this.data.name(thing)), needles).forEach((part, k) => {
      if (part) name.append(k % 2 ? el("mark", "mkg-hit", part) : part);
    });
    row.append(name, nameSpan("mkg-kg-result-detail", detailOf(this.data, thing)));
    return row;
  }

  private mark(): void {
    const selected = this.store.get("selected");
    this.rows.forEach((row, i) => {
      const isSelected = row.dataset.mkgKey === selected;
      if (isSelected) this.at = i;
      setAttribute(row, "aria-selected", String(isSelected));
    });
    this.rows.forEach((row, i) => (row.tabIndex = i === this.at ? 0 : -1));
    const row = this.rows[this.at];
    if (row?.getAttribute("aria-selected") === "true") keepInView(this.list, row);
  }

  private choose(i: number): void {
    const thing = this.things[i];
    if (!thing) return;
    this.at = i;
    this.store.set("item", null);
    this.store.set("selected", this.data.key(thing));
    this.mark();
  }

  private clicked(event: MouseEvent): void {
    const row = event.target instanceof Element ? event.target.closest<HTMLElement>("[data-mkg-row]") : null;
    if (!row) return;
    this.choose(Number(row.dataset.mkgRow));
    row.focus({ preventScroll: true });
  }

  private key(event: KeyboardEvent): void {
    const steps: Record<string, number> = {
      ArrowDown: this.at + 1,
      ArrowUp: this.at - 1,
      Home: 0,
      End: this.rows.length - 1
    };
    const isChoice = event.key === "Enter" || event.key === " ";
    if (!(event.key in steps) && !isChoice) return;
    event.preventDefault();
    event.stopPropagation();
    this.choose(isChoice ? this.at : steps[event.key]);
    this.rows[this.at]?.focus({ preventScroll: true });
  }
}
