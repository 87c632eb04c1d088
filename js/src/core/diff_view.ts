// Two models side by side, marked by what became of each module.

import { button, Disposers, el, listen } from "./dom";
import { STATUS_STYLE } from "./graph_style";
import { GraphView } from "./graph_view";
import { Hierarchy } from "./hierarchy";
import type { Comparison, Status } from "./payload";
import { reveal } from "./reveal";
import { Store } from "./store";

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
    frame.append(el("h4", "mkg-diff-title", h.payload.title), canvas);
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
      mark.style.backgroundColor = STATUS_STYLE[status].colour;
      const entry = el("span", "mkg-diff-entry");
      entry.dataset.mkgStatus = status;
      entry.append(mark, el("span", "", `${STATUS_STYLE[status].label} ${count}`));
      line.append(entry);
    }
    const next = button("mkg-button mkg-next-difference", "Next difference");
    this.disposers.add(listen(next, "click", () => this.nextDifference()));
    line.append(next, this.message);
    return line;
  }

  private step = -1;

  /** Left to right, in tree order: first what changed on the left, then what only the right has. */
  private nextDifference(): void {
    const [left, right] = this.sides;
    const differs = (side: Side, keep: (status: Status) => boolean) =>
      side.status.flatMap((status, node) => (node > 0 && keep(status) && isInnermost(side, node) ? [{ side, node }] : []));
    const all = [...differs(left, status => status !== "same"), ...differs(right, status => status === "added")];
    if (all.length === 0) {
      this.message.textContent = "no differences";
      return;
    }
    this.step = (this.step + 1) % all.length;
    const { side, node } = all[this.step];
    this.message.textContent = `${this.step + 1} of ${all.length}`;
    this.current = side;
    reveal(side.h, side.store, side.h.path(node));
    side.store.set("selected", side.h.path(node));
  }
}

/** A container that only changed because something inside it did is not itself a difference. */
function isInnermost({ h, status }: Side, node: number): boolean {
  return status[node] !== "changed" || !h.children(node).some(child => status[child] !== "same");
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
