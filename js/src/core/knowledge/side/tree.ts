// The list beside the map: the tree of its groups and members, for the keyboard and for screen readers, and in its place the
// results of a search.

import { el, listen, nameSpan, setAttribute, Part, setRole } from "../../shared/ui/dom";
import { exactNumber } from "../../shared/base/format";
import { onSettings } from "../../shared/base/settings";
import type { Entity, Knowledge } from "../data/knowledge";
import { nodeColors } from "../map/node_colors";
import { isOfModels, type MapItem, type MapPicture } from "../data/map_items";
import { around, itemOf } from "../map/map_contents";
import type { ExplorerStore } from "../data/state";
import { push } from "../../shared/base/multimap";
import { oneLine } from "../../shared/base/canvas";
import { highlight } from "../../shared/search/search";
import { detailOf } from "../data/descriptions";
import { noResultsNote, search } from "../data/search";
import * as words from "../../words/knowledge";

interface TreeEvents {
  open(id: string): void;
  narrow(item: MapItem): void;
}

const HEADINGS = new Map([
  ["community", words.COMMUNITIES],
  ["superfamily", words.MODEL_FAMILIES],
  ["family", words.MODEL_FAMILIES]
]);

export class KnowledgeTree extends Part {
  private items: readonly MapItem[] = [];
  private rows: HTMLElement[] = [];
  private readonly cache = new Map<string, { readonly look: string; readonly row: HTMLElement }>();
  private current: string | null = null; // id of the row that Tab reaches
  private dark = false;

  constructor(
    host: HTMLElement,
    private readonly data: Knowledge,
    private readonly store: ExplorerStore,
    private readonly events: TreeEvents
  ) {
    super(host);
    host.classList.add("mkg-tree", "mkg-kg-tree");
    setRole(host, "tree", words.TREE);
    this.disposers.add(
      listen(host, "click", event => this.clicked(event)),
      listen(host, "dblclick", event => this.doubleClicked(event)),
      listen(host, "keydown", event => this.key(event)),
      store.on(["selected", "item"], () => this.mark(true)),
      store.on("colorBy", () => this.color()),
      onSettings(() => this.color())
    );
  }

  draw(picture: MapPicture, dark: boolean): void {
    const hadFocus = this.host.contains(document.activeElement);
    this.items = inOrder(picture.items);
    this.dark = dark;
    const parts: HTMLElement[] = [];
    let above: string | undefined;
    this.rows = this.items.map(item => {
      const title = HEADINGS.get(item.kind);
      if (item.depth === 0 && title !== undefined && title !== above) {
        above = title;
        const heading = el("div", "mkg-kg-tree-heading", title);
        heading.setAttribute("role", "presentation");
        parts.push(heading);
      }
      const row = this.known(item, picture.isSearched);
      parts.push(row);
      return row;
    });
    const ids = new Set(this.items.map(({ id }) => id));
    for (const id of this.cache.keys()) if (!ids.has(id)) this.cache.delete(id);
    this.host.replaceChildren(...parts);
    this.color();
    this.mark(false);
    if (hadFocus) this.focus(this.current);
  }

  /** A row that would look the same is taken again: most stay as they are when a group opens. */
  private known(item: MapItem, isSearched: boolean): HTMLElement {
    const { id, title, detail, count, depth, isOpen, isHit } = item;
    const look = [title, detail, count, depth, isOpen, isHit, isSearched].join("\0");
    const before = this.cache.get(id);
    const row = before?.look === look ? before.row : this.row(item, isSearched);
    this.cache.set(id, { look, row });
    return row;
  }

  private row(item: MapItem, isSearched: boolean): HTMLElement {
    const row = el("div", "mkg-tree-row");
    row.setAttribute("role", "treeitem");
    row.setAttribute("aria-level", String(item.depth + 1));
    row.dataset.mkgItem = item.id;
    if (item.thing) row.dataset.mkgKey = this.data.key(item.thing);
    if (item.isGroup) row.setAttribute("aria-expanded", String(item.isOpen));
    row.style.setProperty("--mkg-indent", `${item.depth * 14}px`);
    row.classList.toggle("mkg-is-leaf", !item.isGroup);
    row.classList.toggle("mkg-is-match", item.isHit);
    row.classList.toggle("mkg-is-dim", isSearched && !item.isHit);
    row.append(
      el("span", "mkg-twisty"),
      el("span", `mkg-chip${isOfModels(item.kind) ? " mkg-is-square" : ""}`),
      nameSpan("mkg-row-name", item.title)
    );
    if (item.isGroup) row.append(el("span", "mkg-row-count", exactNumber(item.count)));
    else row.append(nameSpan("mkg-row-class", item.detail));
    row.title = item.detail ? `${item.title} – ${item.detail}` : item.title;
    return row;
  }

  private color(): void {
    const inks = nodeColors(this.data, this.store, this.dark);
    this.items.forEach((item, i) => {
      const chip = this.rows[i].children[1] as HTMLElement;
      const ink = item.kind === "more" ? "transparent" : inks.of(item);
      if (chip.dataset.mkgInk === ink) return;
      chip.dataset.mkgInk = ink;
      chip.style.backgroundColor = ink;
    });
  }

  private mark(scroll: boolean): void {
    const selected = itemOf(this.data, this.items, this.store.get("selected"), this.store.get("item"));
    const isThere = this.items.some(({ id }) => id === this.current);
    this.current = selected?.id ?? (isThere ? this.current : (this.items[0]?.id ?? null));
    this.items.forEach(({ id }, i) => {
      setAttribute(this.rows[i], "aria-selected", String(id === selected?.id));
      this.rows[i].tabIndex = id === this.current ? 0 : -1;
      if (scroll && id === selected?.id) keepInView(this.host, this.rows[i]);
    });
  }

  private itemAt(target: EventTarget | null): MapItem | undefined {
    const row = target instanceof Element ? target.closest<HTMLElement>("[data-mkg-item]") : null;
    return this.items.find(({ id }) => id === row?.dataset.mkgItem);
  }

  private clicked(event: MouseEvent): void {
    const item = this.itemAt(event.target);
    if (!item) return;
    if (item.isGroup && event.target instanceof Element && event.target.matches(".mkg-twisty"))
      this.events.open(item.id);
    else this.select(item);
  }

  private doubleClicked(event: MouseEvent): void {
    const item = this.itemAt(event.target);
    const onTwisty = event.target instanceof Element && event.target.matches(".mkg-twisty");
    if (item?.isGroup && !onTwisty) this.events.open(item.id);
  }

  private select(item: MapItem): void {
    this.current = item.id;
    if (!item.thing) {
      if (!item.isGroup) this.events.narrow(item);
      return;
    }
    this.store.set("item", item.id);
    this.store.set("selected", this.data.key(item.thing));
    this.focus(item.id);
  }

  private key(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const at = this.items.findIndex(({ id }) => id === this.current);
    const item = this.items[at];
    if (!item || !this.move(event.key, at, item)) return;
    event.preventDefault();
    event.stopPropagation();
  }

  private move(key: string, at: number, item: MapItem): boolean {
    const steps: Record<string, number> = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: this.items.length - 1 };
    if (key in steps) this.goTo(this.items[steps[key]]);
    else if (key === "Enter" || key === " ") {
      if (item.isGroup) this.events.open(item.id);
      else this.select(item);
    } else if (key === "ArrowRight") {
      if (item.isGroup && !item.isOpen) this.events.open(item.id);
      else if (item.isOpen) this.goTo(this.items[at + 1]);
    } else if (key === "ArrowLeft") {
      if (item.isOpen) this.events.open(item.id);
      else this.goTo(this.items.find(({ id }) => id === around(item.id).pop()));
    } else return false;
    return true;
  }

  /** The focus takes the selection along, as in the tree of a model. */
  private goTo(item: MapItem | undefined): void {
    if (!item) return;
    if (item.thing) this.select(item);
    else {
      this.current = item.id;
      this.rows.forEach(row => (row.tabIndex = row.dataset.mkgItem === item.id ? 0 : -1));
      this.focus(item.id);
    }
  }

  private focus(id: string | null): void {
    const row = this.rows.find(each => each.dataset.mkgItem === id);
    row?.focus({ preventScroll: true });
    if (row) keepInView(this.host, row);
  }
}

/** Members stand under their group. */
function inOrder(items: readonly MapItem[]): MapItem[] {
  const inside = new Map<number, number[]>();
  items.forEach(({ parent }, place) => {
    push(inside, parent, place);
  });
  const found: MapItem[] = [];
  const visit = (place: number) => {
    found.push(items[place]);
    inside.get(place)?.forEach(visit);
  };
  inside.get(-1)?.forEach(visit);
  return found;
}

// The results of a search, best first.

const MAX_ROWS = 200; // rows; a search of more has to say more

export class ResultList extends Part {
  private readonly list = el("div", "mkg-kg-results-list");
  private readonly note = el("p", "mkg-kg-results-note");
  private things: readonly Entity[] = [];
  private stepped: string | null = null; // the search in which a step was made
  private rows: HTMLElement[] = [];
  private at = 0;

  constructor(
    host: HTMLElement,
    private readonly data: Knowledge,
    private readonly store: ExplorerStore
  ) {
    super(host);
    host.classList.add("mkg-kg-results");
    setRole(this.list, "listbox", words.FOUND);
    host.append(this.list, this.note);
    this.disposers.add(
      store.on("query", () => this.draw()),
      store.on("selected", () => this.mark()),
      listen(this.list, "click", event => this.clicked(event)),
      listen(this.list, "keydown", event => this.key(event))
    );
    this.draw();
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
    this.note.textContent = notice || (left > 0 ? words.moreFound(left) : "");
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

/** Scrolls the list alone, never the page. */
function keepInView(host: HTMLElement, row: HTMLElement): void {
  const [top, bottom] = [row.offsetTop, row.offsetTop + row.offsetHeight];
  if (top < host.scrollTop) host.scrollTop = top;
  else if (bottom > host.scrollTop + host.clientHeight) host.scrollTop = bottom - host.clientHeight;
}
