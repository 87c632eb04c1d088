// Two models side by side, marked by what became of each module.

import { button, Disposers, el, listen, nameSpan } from "../shared/dom";
import { counted, shortColumn } from "../shared/format";
import { STATUS_STYLE } from "../shared/theme";
import { GraphView } from "./graph_view";
import { Hierarchy } from "../shared/hierarchy";
import type { Comparison, Status } from "../shared/payload";
import { reveal } from "../shared/reveal";
import { Store } from "../shared/store";

const ORDER: Status[] = ["same", "renamed", "moved", "changed", "removed", "added"];

/** One model of the two. */
interface Side {
  h: Hierarchy;
  store: Store;
  graph: GraphView;
  status: readonly Status[];
  partners: Map<number, number>; // node -> node of the other model
}

export class DiffView {
  private readonly disposers = new Disposers();
  private readonly sides: [Side, Side];
  private readonly message = el("span", "mkg-diff-place");
  private readonly next = button("mkg-button mkg-next-difference", "Next difference");
  private readonly differences: readonly Place[];
  private current: Side;
  private linking = false;

  constructor(
    private readonly host: HTMLElement,
    h: Hierarchy,
    store: Store,
    compare: Comparison,
    private readonly onReady: () => void
  ) {
    host.classList.add("mkg-diff");
    const right = new Hierarchy(compare.model);
    const panes = [this.pane(h), this.pane(right)];
    host.append(this.legend(compare), el("div", "mkg-diff-panes"));
    host.lastElementChild?.append(...panes.map(({ frame }) => frame));
    const leftToRight = new Map(compare.pairs);
    const rightToLeft = new Map(compare.pairs.map(([a, b]) => [b, a]));
    const rightStore = new Store({ ...mirrored(h, right, store, leftToRight), selected: null });
    this.sides = [
      this.side(panes[0].canvas, h, store, compare.left, leftToRight),
      this.side(panes[1].canvas, right, rightStore, compare.right, rightToLeft)
    ];
    this.current = this.sides[0];
    this.link(this.sides[0], this.sides[1]);
    this.link(this.sides[1], this.sides[0]);
    this.followShared(store, rightStore);
    this.carry(this.sides[0], this.sides[1]);
    this.differences = this.findDifferences();
    this.next.disabled = this.differences.length === 0;
    this.message.textContent = counted(this.differences.length, "difference").replace(/^0/, "no");
  }

  /** The graph that keys and exports act on: where the user is. */
  get active(): GraphView {
    return this.current.graph;
  }

  dispose(): void {
    this.disposers.dispose();
    this.sides.forEach(({ graph }) => graph.dispose());
    this.host.replaceChildren();
  }

  private pane(h: Hierarchy): { frame: HTMLElement; canvas: HTMLElement } {
    const frame = el("section", "mkg-diff-pane");
    const canvas = el("div");
    const title = el("h4", "mkg-diff-title");
    const params = h.column("params")?.[0];
    const size = params == null ? "" : ` · ${shortColumn("params", params)} parameters`;
    // two versions of one class have the same title
    title.append(nameSpan("", h.payload.title), el("span", "mkg-dim", ` ${counted(h.size, "module")}${size}`));
    frame.append(title, canvas);
    return { frame, canvas };
  }

  private side(
    canvas: HTMLElement,
    h: Hierarchy,
    store: Store,
    status: readonly Status[],
    partners: Map<number, number>
  ): Side {
    const graph = new GraphView(canvas, h, store, { status, onReady: () => this.ready() });
    const side: Side = { h, store, graph, status, partners };
    this.disposers.add(
      listen(canvas, "pointerdown", () => (this.current = side)),
      listen(canvas, "focusin", () => (this.current = side))
    );
    return side;
  }

  private waiting = 2;

  private ready(): void {
    if (--this.waiting === 0) {
      this.onReady();
    }
  }

  private link(from: Side, to: Side): void {
    this.disposers.add(from.store.on("selected", () => this.carry(from, to)));
  }

  /** Selects the partner on the other side; a module without one clears the selection there. */
  private carry(from: Side, to: Side): void {
    if (this.linking) {
      return;
    }
    const path = from.store.get("selected");
    const node = path === null ? undefined : from.h.find(path);
    const partner = node === undefined ? undefined : from.partners.get(node);
    this.linking = true;
    // the left store is the widget's own: a module that only the right model has must not clear it
    if (partner !== undefined) {
      reveal(to.h, to.store, to.h.path(partner));
      to.store.set("selected", to.h.path(partner));
    } else if (to === this.sides[1]) {
      to.store.set("selected", null);
    }
    this.linking = false;
  }

  private followShared(left: Store, right: Store): void {
    for (const key of ["colorBy", "query"] as const) {
      this.disposers.add(left.on(key, () => right.set(key, left.get(key))));
    }
    this.disposers.add(right.on("notice", () => left.set("notice", right.get("notice"))));
  }

  private legend(compare: Comparison): HTMLElement {
    const line = el("div", "mkg-diff-legend");
    for (const status of ORDER) {
      const side = status === "added" ? compare.right : compare.left;
      const count = side.filter(other => other === status).length;
      const mark = el("span", "mkg-diff-mark", STATUS_STYLE[status].glyph);
      mark.style.backgroundColor = STATUS_STYLE[status].color;
      const entry = el("span", "mkg-diff-entry");
      entry.dataset.mkgStatus = status;
      entry.classList.toggle("mkg-is-none", count === 0);
      entry.append(mark, el("span", "", `${STATUS_STYLE[status].label} ${count}`));
      line.append(entry);
    }
    this.disposers.add(listen(this.next, "click", () => this.nextDifference()));
    line.append(this.next, this.message);
    return line;
  }

  private step = -1;

  private nextDifference(): void {
    if (this.differences.length === 0) {
      return;
    }
    this.step = (this.step + 1) % this.differences.length;
    const { side, node } = this.differences[this.step];
    const path = side.h.path(node);
    const place = `${this.step + 1} of ${this.differences.length} · `;
    // the panel describes modules of the left model only, so the name of the place stands here
    this.message.replaceChildren(place, nameSpan("", path.slice(0, 120)), ` ${STATUS_STYLE[side.status[node]].label}`);
    this.current = side;
    reveal(side.h, side.store, path);
    side.store.set("selected", path);
  }

  /** Left to right, in tree order: first what changed on the left, then what only the right has. */
  private findDifferences(): Place[] {
    const [left, right] = this.sides;
    const places = (side: Side, other: Side, keep: (status: Status) => boolean) =>
      side.status.flatMap((status, node) =>
        node > 0 && keep(status) && isItself(side, other, node) ? [{ side, node }] : []
      );
    return [...places(left, right, status => status !== "same"), ...places(right, left, status => status === "added")];
  }
}

/** Where the models differ. */
interface Place {
  side: Side;
  node: number;
}

/** Not merely changed by something inside it, nor there or gone together with what is around it. */
function isItself(side: Side, other: Side, node: number): boolean {
  const { h, status, partners } = side;
  if (status[node] === "changed") {
    const partner = partners.get(node); // what was added inside stands on the other side only
    return !differsInside(side, node) && (partner === undefined || !differsInside(other, partner));
  }
  const isWhole = status[node] === "added" || status[node] === "removed";
  return !isWhole || status[h.parent(node)] !== status[node];
}

function differsInside({ h, status }: Side, node: number): boolean {
  return h.children(node).some(child => status[child] !== "same");
}

/** The right side opens what corresponds to what is open on the left. */
function mirrored(
  left: Hierarchy,
  right: Hierarchy,
  store: Store,
  partners: ReadonlyMap<number, number>
): Partial<ReturnType<typeof snapshot>> {
  const expanded = store.get("expanded").flatMap(path => {
    const node = left.find(path);
    const partner = node === undefined ? undefined : partners.get(node);
    return partner === undefined ? [] : [right.path(partner)];
  });
  return { ...snapshot(store), expanded };
}

function snapshot(store: Store) {
  return { colorBy: store.get("colorBy"), query: store.get("query"), expanded: store.get("expanded") };
}
