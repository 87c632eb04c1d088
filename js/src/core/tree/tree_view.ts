// The ARIA tree twin of the canvas: the same modules as rows, for the keyboard and for screen readers.

import * as words from "../words/tree";
import "../../../style/tree.css";
import { axesOf } from "../shared/model/axes";
import { type Fold, type Hierarchy, badgeDescriptions } from "../shared/model/hierarchy";
import { colorOf } from "../shared/stage/color";
import { dataflowOf } from "../shared/model/dataflow";
import { type Mark, changeMarks } from "../shared/model/differences";
import { Disposers, el, listen, setAttribute, setRole } from "../shared/ui/dom";
import { reveal, toggle, unfold } from "../shared/model/expansion";
import { search } from "../shared/search/search";
import type { GraphStore } from "../shared/model/graph_store";
import { VirtualList } from "../shared/ui/virtual_list";
import {
  accessibleName,
  amountOf,
  below,
  hiddenMatches,
  rowKey,
  rowLabel,
  type RowSize,
  rowSize,
  sizeBar,
  TreeRow,
  treeRows
} from "./tree_rows";

// The keyboard of the tree: the WAI-ARIA tree pattern, where selection follows focus.

/** What the keyboard needs of the tree. */
interface KeyTarget {
  readonly rows: readonly TreeRow[];
  readonly activeIndex: number;
  readonly page: number;
  choose(index: number): void;
  toggle(row: TreeRow): void;
}

const PAUSE = 500; // ms after which type-ahead starts over

class TreeKeys {
  private typed = "";
  private typedAt = 0;
  private readonly actions: ReadonlyMap<string, (index: number, row: TreeRow) => void>;

  constructor(
    private readonly target: KeyTarget,
    private readonly h: Hierarchy
  ) {
    const choose = (index: number) => target.choose(index);
    const actions: Record<string, (index: number, row: TreeRow) => void> = {
      ArrowDown: index => choose(index + 1),
      ArrowUp: index => choose(index - 1),
      PageDown: index => choose(index + target.page),
      PageUp: index => choose(index - target.page),
      Home: () => choose(0),
      End: () => choose(target.rows.length - 1),
      ArrowRight: (index, row) => this.inwards(index, row),
      ArrowLeft: (index, row) => this.outwards(index, row),
      Enter: (_index, row) => target.toggle(row),
      " ": index => choose(index)
    };
    this.actions = new Map(Object.entries(actions));
  }

  handle(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const index = this.target.activeIndex;
    const action = this.actions.get(event.key);
    const typing = event.key === " " && this.isTyping(event.timeStamp);
    if (action && !typing) action(index, this.target.rows[index]);
    else if (event.key.length !== 1 || event.key === "/" || event.key === "?")
      return; // "/" goes on to the search box, "?" to the keys
    else this.typeAhead(event.key, event.timeStamp, index);
    event.preventDefault();
    event.stopPropagation();
  }

  private inwards(index: number, row: TreeRow): void {
    if (row.open === false) this.target.toggle(row);
    else if (row.open) this.target.choose(index + 1);
  }

  private outwards(index: number, row: TreeRow): void {
    if (row.open && row.level > 1) this.target.toggle(row);
    else this.toParent(index, row);
  }

  private toParent(index: number, row: TreeRow): void {
    let above = index - 1;
    while (above >= 0 && this.target.rows[above].level >= row.level) above -= 1;
    if (above >= 0) this.target.choose(above);
  }

  private isTyping(now: number): boolean {
    return this.typed !== "" && now - this.typedAt < PAUSE;
  }

  /** The next row whose name begins with what was typed; one letter again and again walks through its rows. */
  private typeAhead(key: string, now: number, index: number): void {
    this.typed = (this.isTyping(now) ? this.typed : "") + key.toLowerCase();
    this.typedAt = now;
    const repeated = [...this.typed].every(letter => letter === this.typed[0]);
    const wanted = repeated ? this.typed[0] : this.typed;
    const { rows } = this.target;
    const start = repeated ? index + 1 : index;
    for (let step = 0; step < rows.length; step += 1) {
      const at = (start + step) % rows.length;
      if (!rows[at].rest && this.h.name(rows[at].node).toLowerCase().startsWith(wanted)) {
        this.target.choose(at);
        return;
      }
    }
  }
}

export const ROW_HEIGHT = 24;
const ALL_ROWS = 300; // up to here every row is in the page
const OVERSCAN = 12;
const ASSUMED = 20; // rows in view of a tree without a size
const INDENT = 14;
const MAX_INDENT = 20; // deeper levels would leave no room for the name, however wide the tree is
const MAX_TITLE_LENGTH = 600;

export class TreeView {
  readonly tree = el("div", "mkg-tree");
  private readonly list: VirtualList<number>; // by node
  private onAxis?: { axis: number; nodes: readonly number[] };
  private readonly contents = new WeakMap<Element, string>(); // what was drawn last
  private readonly disposers = new Disposers();
  private readonly color: (node: number) => string | null;
  private readonly marks: readonly (Mark | null)[] | undefined; // of a comparison
  private listed: TreeRow[] = [];
  private readonly places = new Map<number, number>(); // key -> index in `listed`
  private stale = true;
  private active = 0;
  private selection: { path: string | null; node: number | undefined } = { path: null, node: undefined };

  constructor(
    host: HTMLElement,
    private readonly h: Hierarchy,
    private readonly store: GraphStore
  ) {
    this.color = colorOf(h, store);
    this.marks = changeMarks(h);
    setRole(this.tree, "tree", words.MODULES);
    this.list = new VirtualList(
      this.tree,
      { rowHeight: ROW_HEIGHT, overscan: OVERSCAN, assumed: ASSUMED, all: ALL_ROWS },
      {
        count: () => this.rows.length,
        key: index => rowKey(this.rows[index]),
        make: index => this.newRow(this.rows[index]),
        draw: (element, index) => this.draw(element, this.rows[index]),
        active: () => this.activeIndex
      }
    );
    this.list.space.className = "mkg-tree-space";
    this.list.space.setAttribute("role", "none");
    host.append(this.tree);
    this.listen();
    this.active = this.selectedNode() ?? 0;
    this.list.render();
  }

  /** To be called once the tree has its place on the page. */
  showActive(): void {
    if (this.activeIndex > 0) this.scrollTo(this.active); // the first row is in view by itself
  }

  dispose(): void {
    this.disposers.dispose();
    this.list.dispose();
    this.tree.remove();
  }

  /** The rows as they are now. */
  get rows(): readonly TreeRow[] {
    if (this.stale) this.relist();
    return this.listed;
  }

  get activeIndex(): number {
    void this.rows;
    return this.places.get(this.active) ?? 0;
  }

  /** How many rows fit into the viewport. */
  get page(): number {
    return this.list.page;
  }

  /** Move to a row and select it, as arrows and clicks do. */
  choose(index: number): void {
    const row = this.rows[Math.min(Math.max(index, 0), this.rows.length - 1)];
    this.active = rowKey(row);
    if (!row.rest) this.select(this.h.path(row.node));
    this.list.render();
    this.scrollTo(this.active);
    this.list.focus(this.active);
  }

  private select(path: string): void {
    reveal(this.h, this.store, path);
    this.store.set("operators", null);
    this.store.set("selected", path);
  }

  /** Open or close the container in a row. */
  toggle(row: TreeRow): void {
    if (row.open === null || row.node === 0) return;
    if (row.rest) return this.showCopies(row.rest, row.node);
    if (row.open && this.h.isInside(this.store.get("focus"), row.node)) this.leaveFocus(row.node);
    else toggle(this.h, this.store, row.node);
    this.list.render();
  }

  /** The first of them takes the place of the row. */
  private showCopies(fold: Fold, drawn: number): void {
    if (!unfold(this.h, this.store, fold)) return;
    const first = fold.members[drawn === fold.first ? 1 : 0];
    this.choose(
      Math.max(
        0,
        this.rows.findIndex(({ node }) => node === first)
      )
    );
  }

  /** Containers around the focus are open without being listed: closing one shows what lies around it. */
  private leaveFocus(node: number): void {
    const path = this.h.path(node);
    this.store.set("focus", this.h.parent(node));
    this.store.set(
      "expanded",
      this.store.get("expanded").filter(other => other !== path)
    );
  }

  private listen(): void {
    const keys = new TreeKeys(this, this.h);
    const follow = (key: Parameters<GraphStore["on"]>[0], relist: boolean) =>
      this.disposers.add(this.store.on(key, () => this.changed(relist)));
    for (const key of ["expanded", "shown", "unfolded", "focus"] as const) follow(key, true);
    for (const key of ["query", "axis", "colorBy", "overlay", "pruned", "view"] as const) follow(key, false);
    this.disposers.add(
      this.store.on("selected", () => this.followSelection()),
      listen(this.tree, "keydown", event => keys.handle(event)),
      listen(this.tree, "click", event => this.clicked(event)),
      listen(this.tree, "dblclick", event => this.doubleClicked(event))
    );
  }

  private changed(relist: boolean): void {
    this.stale ||= relist;
    this.list.schedule();
  }

  /** Looking up a path takes time in deep models, so the answer is kept for as long as the selection. */
  private selectedNode(): number | undefined {
    const path = this.store.get("selected");
    if (path !== this.selection.path) {
      this.selection = { path, node: path === null ? undefined : this.h.find(path) };
    }
    return this.selection.node;
  }

  private followSelection(): void {
    const node = this.selectedNode();
    if (node !== undefined && node !== this.active) {
      if (!this.isVisible(node)) reveal(this.h, this.store, this.h.path(node));
      this.active = node;
      this.list.render();
      this.scrollTo(node);
    } else {
      this.list.schedule();
    }
  }

  /** Whether the node has a row, and the canvas shows its surroundings. */
  private isVisible(node: number): boolean {
    void this.rows;
    return this.places.has(node) && this.h.isInside(node, this.store.get("focus"));
  }

  private relist(): void {
    const open = new Set(this.store.get("expanded"));
    const focus = this.store.get("focus");
    const around = new Set([...this.h.ancestors(focus), focus]);
    this.listed = treeRows(this.h, {
      isOpen: node => around.has(node) || open.has(this.h.path(node)),
      shown: this.store.get("shown"),
      unfolded: this.store.get("unfolded")
    });
    this.places.clear();
    this.listed.forEach((row, index) => this.places.set(rowKey(row), index));
    this.stale = false;
    this.keepActive();
  }

  /** When the active row was closed away, its nearest visible ancestor takes its place. */
  private keepActive(): void {
    const wanted = this.selectedNode();
    if (wanted !== undefined && this.places.has(wanted)) this.active = wanted;
    if (this.active < 0 && !this.places.has(this.active)) this.active = ~this.active;
    while (!this.places.has(this.active)) {
      const fold = this.h.fold(this.active);
      const drawn = fold && (this.store.get("shown").get(fold.first) ?? fold.first);
      this.active = drawn !== undefined && this.places.has(drawn) ? drawn : this.h.parent(this.active);
    }
  }

  private scrollTo(node: number): void {
    const index = this.places.get(node);
    if (index === undefined) return;
    if (this.list.show(index, 1, 0)) this.list.render();
  }

  private draw(element: HTMLElement, row: TreeRow): void {
    const selected = this.selectedNode() === rowKey(row);
    element.style.setProperty("--mkg-indent", `${Math.min(row.level - 1, MAX_INDENT) * INDENT}px`);
    element.tabIndex = rowKey(row) === this.active ? 0 : -1;
    setAttribute(element, "aria-level", row.level);
    setAttribute(element, "aria-posinset", row.position);
    setAttribute(element, "aria-setsize", row.siblings);
    setAttribute(element, "aria-expanded", row.open === null ? null : String(row.open));
    setAttribute(element, "aria-selected", String(selected));
    this.fill(element, row);
  }

  private newRow({ node, rest }: TreeRow): HTMLElement {
    const element = el("div", "mkg-tree-row");
    const path = this.h.path(rest?.first ?? node);
    element.setAttribute("role", "treeitem");
    element.setAttribute(rest ? "data-mkg-copies" : "data-mkg-path", path);
    return element;
  }

  /** What a row has no room for. */
  private title({ node, fold, rest }: TreeRow): string {
    const { h } = this;
    if (rest) return words.SHOW_COPIES;
    const lines = [h.path(node), h.qualifiedName(node), ...badgeDescriptions(h, node, fold)];
    return lines.filter(Boolean).join("\n").slice(0, MAX_TITLE_LENGTH);
  }

  /** Redraw what is in the row, unless nothing of it changed. */
  private fill(element: HTMLElement, row: TreeRow): void {
    const found = search(this.h, this.store.get("query"));
    const key = rowKey(row); // what is said of the node is said in its own row
    const at = below(found.nodes, key);
    const matched = found.nodes[at] === key;
    const hidden = hiddenMatches(this.h, row, found.nodes);
    const color = row.rest ? null : this.color(row.node);
    const status = this.store.get("view") === "diff" && !row.rest ? this.marks?.[row.node] : undefined;
    const label = accessibleName(this.h, row);
    const members = this.axisMembers();
    const onAxis = members[below(members, key)] === key;
    const holds = !onAxis && hiddenMatches(this.h, row, members) > 0;
    const size = rowSize(this.h, this.store, row);
    const look = [color, status, onAxis, holds, size?.column];
    const content = JSON.stringify([matched && found.needles, hidden, look, label, row.open === null]);
    if (content === this.contents.get(element)) return;
    this.contents.set(element, content);
    const inside = hidden ? words.matchesInside(hidden) : "";
    setAttribute(
      element,
      "aria-label",
      label +
        (size ? `, ${amountOf(size)}` : "") +
        (status ? `, ${status}` : "") +
        inside +
        (onAxis ? words.IN_GROUP : "")
    );
    setAttribute(element, "data-mkg-status", status ?? null);
    setAttribute(element, "title", this.title(row));
    element.classList.toggle("mkg-is-match", matched);
    element.classList.toggle("mkg-is-on-axis", onAxis);
    element.classList.toggle("mkg-holds-axis", holds);
    element.classList.toggle("mkg-is-leaf", row.open === null || row.node === 0); // the root cannot be closed
    element.replaceChildren(...this.parts(row, matched ? found.needles : [], hidden, color, size));
  }

  /** The modules that the chosen axis runs along, and the leaves that it runs through, in tree order. */
  private axisMembers(): readonly number[] {
    const axes = axesOf(this.h);
    const axis = axes?.find(this.store.get("axis"));
    if (!axes || axis === undefined) return [];
    if (this.onAxis?.axis !== axis) {
      const through = dataflowOf(this.h)?.pathOf(axis).leaves ?? [];
      const nodes = [...new Set([...axes.nodes(axis), ...through])].sort((a, b) => a - b);
      this.onAxis = { axis, nodes };
    }
    return this.onAxis.nodes;
  }

  private parts(
    row: TreeRow,
    needles: readonly string[],
    hidden: number,
    color: string | null,
    size: RowSize | undefined
  ): HTMLElement[] {
    const { h } = this;
    const parts: HTMLElement[] = [el("span", "mkg-twisty")];
    const isBarColored = size?.column === this.store.get("colorBy");
    if (color && !isBarColored) {
      const chip = el("span", "mkg-chip");
      chip.style.backgroundColor = color;
      parts.push(chip);
    }
    parts.push(rowLabel(h, row, needles));
    if (hidden) parts.push(el("span", "mkg-row-hits", String(hidden)));
    if (size) parts.push(sizeBar(h, row, size, isBarColored ? color : null));
    return parts;
  }

  private rowAt(event: MouseEvent): TreeRow | undefined {
    const node = this.list.keyAt(event.target);
    void this.rows;
    const index = node === undefined ? undefined : this.places.get(node);
    return index === undefined ? undefined : this.rows[index];
  }

  private clicked(event: MouseEvent): void {
    const row = this.rowAt(event);
    if (!row) return;
    if (row.rest || (onTwisty(event) && row.open !== null)) this.toggle(row);
    else this.choose(this.places.get(row.node) ?? 0);
  }

  private doubleClicked(event: MouseEvent): void {
    const row = this.rowAt(event);
    if (row && !row.rest && !onTwisty(event)) this.toggle(row);
  }
}

function onTwisty(event: MouseEvent): boolean {
  return event.target instanceof Element && event.target.classList.contains("mkg-twisty");
}
