// Two models side by side, marked by what became of each module.

import { button, Disposers, el, listen, nameSpan } from "../shared/dom";
import { counted, shortColumn } from "../shared/format";
import { STATUS_STYLE } from "../shared/theme";
import type { Box } from "../shared/viewport";
import { type Compared, countsOf, type Difference, findDifferences, STATUSES, summary } from "./differences";
import { GraphView } from "./graph_view";
import { LinkedCameras } from "./linked_cameras";
import { Hierarchy } from "../shared/hierarchy";
import type { Comparison } from "../shared/payload";
import { reveal } from "../shared/reveal";
import { Store } from "../shared/store";

/** One model of the two, and its picture. */
interface Side extends Compared {
  readonly store: Store;
  readonly graph: GraphView;
  expanded: readonly string[]; // as the other side has followed
}

export class DiffView {
  private readonly disposers = new Disposers();
  private readonly sides: [Side, Side];
  private readonly message = el("span", "mkg-diff-place");
  private readonly next = button("mkg-button mkg-next-difference", "Next difference");
  private readonly differences: readonly Difference[];
  private cameras?: LinkedCameras; // once both have a canvas
  private current: 0 | 1 = 0; // where the user is
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
    const panesBox = el("div", "mkg-diff-panes");
    panesBox.append(...panes.map(({ frame }) => frame));
    const leftToRight = new Map(compare.pairs);
    const rightToLeft = new Map(compare.pairs.map(([a, b]) => [b, a]));
    const rightStore = new Store({ ...mirrored(h, right, store, leftToRight), selected: null });
    const models: readonly [Compared, Compared] = [
      { h, status: compare.left, partners: leftToRight },
      { h: right, status: compare.right, partners: rightToLeft }
    ];
    this.differences = findDifferences(...models);
    this.next.disabled = this.differences.length === 0;
    this.message.textContent = summary(this.differences); // what stands above takes its room before the canvases do
    host.append(this.legend(), panesBox);
    this.sides = [
      this.side(0, panes[0].canvas, models[0], store),
      this.side(1, panes[1].canvas, models[1], rightStore)
    ];
    this.cameras = new LinkedCameras([this.sides[0].graph, this.sides[1].graph], node => leftToRight.get(node));
    this.lineUp();
    this.link(this.sides[0], this.sides[1]);
    this.link(this.sides[1], this.sides[0]);
    this.followShared(store, rightStore);
    this.carry(this.sides[0], this.sides[1]);
  }

  /** The graph that keys and exports act on: where the user is. */
  get active(): GraphView {
    return this.sides[this.current].graph;
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

  private side(at: 0 | 1, canvas: HTMLElement, model: Compared, store: Store): Side {
    const graph = new GraphView(canvas, model.h, store, {
      status: model.status,
      onReady: () => this.ready(),
      onChanged: () => this.cameras?.follow(this.current),
      lookFirst: () => this.lineUp(),
      beside: () => this.cameras?.beside(at) ?? []
    });
    const here = () => void (this.current = at);
    canvas.addEventListener("wheel", here, { capture: true, passive: true });
    this.disposers.add(listen(canvas, "pointerdown", here), listen(canvas, "focusin", here), () =>
      canvas.removeEventListener("wheel", here, { capture: true })
    );
    return { ...model, store, graph, expanded: store.get("expanded") };
  }

  /** Both at the same zoom, at what is selected or at the first difference; once both have their places. */
  private lineUp(): void {
    if (!this.cameras?.isReady) return;
    const selected = this.sides[0].h.find(this.sides[0].store.get("selected") ?? "") ?? 0;
    const { side, node } =
      selected > 0 ? { side: 0 as const, node: selected } : (this.differences[0] ?? { side: 0, node: 0 });
    this.cameras.lineUp(side, this.boxOf(this.sides[side], node));
  }

  /** The card of a module, or what hides it. */
  private boxOf({ h, graph }: Side, node: number): Box | undefined {
    const boxes = new Map(graph.items().map(({ node: { index }, box }) => [index, box]));
    for (let at = node; at > 0; at = h.parent(at)) {
      const box = boxes.get(at);
      if (box) return box;
    }
    return undefined;
  }

  private waiting = 2;

  private ready(): void {
    if (--this.waiting === 0) {
      this.onReady();
    }
  }

  private link(from: Side, to: Side): void {
    this.disposers.add(
      from.store.on("selected", () => this.carry(from, to)),
      from.store.on("expanded", () => this.carryOpen(from, to))
    );
  }

  /** What opens or closes on one side does on the other. */
  private carryOpen(from: Side, to: Side): void {
    const [before, now] = [new Set(from.expanded), from.store.get("expanded")];
    from.expanded = now;
    if (this.linking) return;
    const partners = (paths: readonly string[]) =>
      paths.flatMap(path => {
        const node = from.h.find(path);
        const partner = node === undefined ? undefined : from.partners.get(node);
        return partner === undefined ? [] : [to.h.path(partner)];
      });
    const opened = partners(now.filter(path => !before.delete(path)));
    const closed = new Set(partners([...before]));
    this.linking = true;
    to.store.set(
      "expanded",
      [...new Set([...to.store.get("expanded"), ...opened])].filter(path => !closed.has(path))
    );
    this.linking = false;
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

  /** The places that the button goes through, by what became of them. */
  private legend(): HTMLElement {
    const line = el("div", "mkg-diff-legend");
    const counts = countsOf(this.differences);
    for (const status of ["same", ...STATUSES] as const) {
      const count = counts.get(status) ?? 0;
      const mark = el("span", "mkg-diff-mark", STATUS_STYLE[status].glyph);
      mark.style.backgroundColor = STATUS_STYLE[status].color;
      const entry = el("span", "mkg-diff-entry");
      entry.dataset.mkgStatus = status;
      entry.classList.toggle("mkg-is-none", status !== "same" && count === 0);
      const { label } = STATUS_STYLE[status];
      entry.append(mark, el("span", "", status === "same" ? label : `${label} ${count}`));
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
    const { side: at, node, status } = this.differences[this.step];
    const side = this.sides[at];
    const path = side.h.path(node);
    const place = `${this.step + 1} of ${this.differences.length} · `;
    // the panel describes modules of the left model only, so the name of the place stands here
    const name = path || side.h.payload.title;
    this.message.replaceChildren(place, nameSpan("", name.slice(0, 120)), ` ${STATUS_STYLE[status].label}`);
    this.current = at;
    reveal(side.h, side.store, path);
    side.store.set("selected", path);
  }
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
