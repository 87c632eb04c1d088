// The comparison of two models side by side, marked by what became of each module, under cameras that move together.

import * as words from "../words/graph";
import { measurer } from "../shared/base/canvas";
import {
  type Compared,
  countsOf,
  type Difference,
  findDifferences,
  type Mark,
  marksOf,
  STATUSES,
  summary
} from "../shared/model/differences";
import { button, Disposers, el, listen, nameSpan } from "../shared/ui/dom";
import { counted, shortColumn } from "../shared/base/format";
import type { Status } from "../shared/payload/payload";
import { INSIDE_GLYPH, STATUS_STYLE } from "../shared/stage/theme";
import {
  type Box,
  boundsOf,
  fitBounds,
  fitsLegibly,
  initialPose,
  OVERVIEW_ZOOM,
  type Point
} from "../shared/stage/viewport";
import { comparedExpansion, expandedCounterparts, counterpartsOf } from "./fitted_expansion";
import { GraphView } from "./graph_view";
import type { Hierarchy } from "../shared/model/hierarchy";
import { reveal } from "../shared/model/expansion";
import { GraphStore } from "../shared/model/graph_store";
import type { Camera } from "../shared/stage/camera";
import type { PaintItem } from "./paint/text_lines";

/** One model of the two, and its picture. */
interface Side extends Compared {
  readonly store: GraphStore;
  readonly graph: GraphView;
  expanded: readonly string[]; // as the other side has followed
}

export class DiffView {
  private readonly disposers = new Disposers();
  private readonly sides: [Side, Side];
  private readonly message = el("span", "mkg-diff-place");
  private readonly next = button("mkg-button mkg-next-difference", words.NEXT_DIFFERENCE);
  private readonly differences: readonly Difference[];
  private readonly marks: readonly [readonly (Mark | null)[], readonly (Mark | null)[]];
  private readonly room: HTMLElement; // that each side has
  private cameras?: LinkedCameras; // once both have a canvas
  private current: 0 | 1 = 0; // where the user is
  private linking = false;
  private isLiningUp = false;

  constructor(
    private readonly host: HTMLElement,
    private readonly store: GraphStore,
    private readonly models: readonly [Compared, Compared],
    private readonly onReady: () => void
  ) {
    host.classList.add("mkg-diff");
    const [left, right] = models;
    this.marks = marksOf(...models);
    const panes = [this.pane(left.h, this.marks[0][0]), this.pane(right.h, this.marks[1][0])];
    const panesBox = el("div", "mkg-diff-panes");
    panesBox.append(...panes.map(({ frame }) => frame));
    this.differences = findDifferences(...models);
    this.next.disabled = this.differences.length === 0;
    this.message.textContent = summary(this.differences); // what stands above takes its room before the canvases do
    host.append(this.legend(), panesBox);
    this.room = panes[0].canvas;
    this.openToFit();
    const rightStore = new GraphStore({ ...mirrored(models, store), selected: null });
    this.sides = [
      this.side(0, panes[0].canvas, models[0], store),
      this.side(1, panes[1].canvas, models[1], rightStore)
    ];
    this.cameras = new LinkedCameras([this.sides[0].graph, this.sides[1].graph], node => left.partners.get(node));
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

  /** `mark`: of the whole model, which has no card. */
  private pane(h: Hierarchy, mark: Mark | null): { frame: HTMLElement; canvas: HTMLElement } {
    const frame = el("section", "mkg-diff-pane");
    const canvas = el("div", "mkg-canvas-wrap"); // with its size at once
    const title = el("h4", "mkg-diff-title");
    const params = h.column("params")?.[0];
    const size = params == null ? "" : ` · ${shortColumn("params", params)} parameters`;
    // two versions of one class have the same title
    if (mark !== null && mark !== "changed inside") title.append(markOf(mark), ` `);
    title.append(nameSpan("", h.payload.title), el("span", "mkg-dim", ` ${counted(h.size, "module")}${size}`));
    frame.append(title, canvas);
    return { frame, canvas };
  }

  private side(at: 0 | 1, canvas: HTMLElement, model: Compared, store: GraphStore): Side {
    const graph = new GraphView(canvas, model.h, store, {
      status: model.status,
      marks: this.marks[at],
      onReady: () => this.ready(),
      onChanged: isLayout => this.changed(isLayout),
      lookFirst: () => {
        this.openToFit();
        this.lineUp();
      },
      beside: () => this.cameras?.beside(at) ?? []
    });
    const here = () => void (this.current = at);
    canvas.addEventListener("wheel", here, { capture: true, passive: true });
    this.disposers.add(listen(canvas, "pointerdown", here), listen(canvas, "focusin", here), () =>
      canvas.removeEventListener("wheel", here, { capture: true })
    );
    return { ...model, store, graph, expanded: store.get("expanded") };
  }

  /** As long as nobody has chosen what is open, where the models differ is, as far as both fit. */
  private openToFit(): void {
    const { store, models, room } = this;
    if (!store.get("openToFit") || store.get("selected") !== null) return;
    const extent = { width: room.clientWidth || 480, height: room.clientHeight || 500 };
    const opening = comparedExpansion(models, this.marks[0], extent, measurer());
    store.set("opening", opening);
    store.set("expanded", opening);
  }

  private changed(isLayout: boolean): void {
    if (isLayout && (this.isFirst || this.step >= 0) && this.isUnmoved) this.lineUp();
    else this.cameras?.follow(this.current);
  }

  /** Nobody has opened or sought anything yet. */
  private get isFirst(): boolean {
    return this.store.get("openToFit") && this.store.get("selected") === null && this.step < 0;
  }

  private get isUnmoved(): boolean {
    return !this.isLiningUp && (this.sides?.every(({ graph }) => !graph.camera.isTouched) ?? false);
  }

  /** Both at the same zoom, from their beginnings or at what is selected; once both have their places. */
  private lineUp(): void {
    if (!this.cameras?.isReady) return;
    const at = this.step < 0 ? 0 : this.current;
    const { h, store } = this.sides[at];
    const selected = h.find(store.get("selected") ?? "") ?? 0;
    this.isLiningUp = true;
    this.cameras.lineUp(at, this.boxOf(this.sides[at], selected));
    this.isLiningUp = false;
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
    const opened = now.filter(path => !before.delete(path));
    const closed = new Set(counterpartsOf(from, to, [...before]));
    const news = opened.length > 0 ? expandedCounterparts(from, to, opened) : [];
    this.linking = true;
    to.store.set(
      "expanded",
      [...new Set([...to.store.get("expanded"), ...news])].filter(path => !closed.has(path))
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

  private followShared(left: GraphStore, right: GraphStore): void {
    for (const key of ["colorBy", "query"] as const) {
      this.disposers.add(left.on(key, () => right.set(key, left.get(key))));
    }
    this.disposers.add(right.on("notice", () => left.set("notice", right.get("notice"))));
  }

  /** The places that the button goes through, by what became of them. */
  private legend(): HTMLElement {
    const line = el("div", "mkg-diff-legend");
    const counts = countsOf(this.differences);
    for (const status of STATUSES) {
      const count = counts.get(status) ?? 0;
      const entry = legendEntry(status, markOf(status), `${STATUS_STYLE[status].label} ${count}`);
      entry.classList.toggle("mkg-is-none", count === 0);
      line.append(entry);
    }
    if (this.marks.some(marks => marks.includes(words.CHANGED_INSIDE))) {
      line.append(legendEntry("inside", el("span", "mkg-diff-mark", INSIDE_GLYPH), words.CHANGED_INSIDE)); // not counted: its places are
    }
    this.disposers.add(listen(this.next, "click", () => this.nextDifference()));
    line.append(this.next, this.message);
    const tensors = this.models[0].h.payload.compare?.tensors;
    if (tensors) line.append(el("span", "mkg-diff-tensors", words.tensors(tensors))); // as `mk.diff` counts them
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

function legendEntry(kind: string, mark: HTMLElement, text: string): HTMLElement {
  const entry = el("span", "mkg-diff-entry");
  entry.dataset.mkgStatus = kind;
  entry.append(mark, el("span", "", text));
  return entry;
}

/** The sign of what became of a module, as it stands on cards. */
function markOf(status: Status): HTMLElement {
  const { glyph, color, label } = STATUS_STYLE[status];
  const mark = el("span", "mkg-diff-mark", glyph);
  mark.dataset.mkgStatus = status;
  mark.style.backgroundColor = color;
  mark.title = label;
  return mark;
}

/** The right side opens what corresponds to what is open on the left. */
function mirrored(
  [left, right]: readonly [Compared, Compared],
  store: GraphStore
): Partial<ReturnType<typeof snapshot>> {
  return { ...snapshot(store), expanded: expandedCounterparts(left, right, store.get("expanded")) };
}

function snapshot(store: GraphStore) {
  return { colorBy: store.get("colorBy"), query: store.get("query"), expanded: store.get("expanded") };
}

// Two pictures side by side, of which one moves as the other does: at the same zoom, with what corresponds at the same
// height. Their layouts differ, so the way from one picture to the other is read off the cards that both have.

interface LinkedPicture {
  readonly camera: Camera;
  items(): readonly PaintItem[];
}

/** A card of one picture and what it is in the other: their upper left corners. */
interface Anchor {
  readonly from: Point;
  readonly way: Point; // to the corner in the other picture
}

const CLOSE = 4; // how soon the middle of the view decides once not all is in view
const NEAR = 60; // units of the picture within which a card alone decides

export class LinkedCameras {
  private anchors: readonly [readonly Anchor[], readonly Anchor[]] = [[], []];
  private readonly known: (readonly PaintItem[] | undefined)[] = [undefined, undefined];
  private isFollowing = false;

  /** `partner`: the node of the right model that corresponds to one of the left. */
  constructor(
    private readonly pictures: readonly [LinkedPicture, LinkedPicture],
    private readonly partner: (node: number) => number | undefined
  ) {}

  /** Whether both have something to show. */
  get isReady(): boolean {
    return this.pictures.every(picture => picture.items().length > 0);
  }

  /** The other picture shows what `side` shows; what its camera does meanwhile is no news. */
  follow(side: 0 | 1): void {
    if (this.isFollowing || !this.isReady) return;
    this.isFollowing = true;
    const [own, other] = [this.pictures[side].camera, this.pictures[1 - side].camera];
    const [dx, dy] = this.wayAt(side);
    const { x, y, zoom } = own.pose;
    other.moveTo({ zoom, x: x - dx * zoom, y: y - dy * zoom });
    this.isFollowing = false;
  }

  /** Everything of both if its names can be read, else the beginning, else the card that is sought. */
  lineUp(side: 0 | 1, sought: Box | undefined): void {
    const { camera } = this.pictures[side];
    const bounds = boundsOf([...this.boxes(side), ...this.beside(side)]);
    const { width, height } = camera.extent;
    this.isFollowing = true;
    if (fitsLegibly(bounds, camera.extent, OVERVIEW_ZOOM)) camera.moveTo(fitBounds(bounds, width, height));
    else {
      camera.moveTo(initialPose(bounds, width, height, OVERVIEW_ZOOM));
      if (sought && !isWithin(sought, camera.view)) {
        const [left, , across] = camera.view;
        camera.centre([left + across / 2, sought[1] + sought[3] / 2]);
        camera.show(sought);
      }
    }
    this.isFollowing = false;
    this.follow(side);
  }

  /** The other picture's boxes, where they lie in this one when both begin at the same place. */
  beside(side: 0 | 1): Box[] {
    const [dx, dy] = this.firstWay(side);
    return this.boxes(side === 0 ? 1 : 0).map(([x, y, width, height]) => [x - dx, y - dy, width, height]);
  }

  /** How far the other is displaced: as the beginning while that or all is in view, else as the middle of the view. */
  private wayAt(side: 0 | 1): Point {
    const [left, top, width, height] = this.pictures[side].camera.view;
    const [x, y, across, down] = boundsOf(this.boxes(side));
    const size = Math.max(across / width, down / height) - 1;
    const gone = Math.max((left - x) / width, (top - y) / height);
    const closeness = Math.min(1, Math.max(0, CLOSE * Math.min(size, gone)));
    const first = this.firstWay(side);
    const middle = this.way(side, [left + width / 2, top + height / 2]);
    return [first[0] + (middle[0] - first[0]) * closeness, first[1] + (middle[1] - first[1]) * closeness];
  }

  /** Of the first card, to the pixel. */
  private firstWay(side: 0 | 1): Point {
    return this.anchorsOf(side)[0]?.way ?? [0, 0];
  }

  /** How far the other picture is displaced near a place: as its nearest cards are, the nearest most of all. */
  private way(side: 0 | 1, [x, y]: Point): Point {
    let [dx, dy, total] = [0, 0, 0];
    for (const { from, way } of this.anchorsOf(side)) {
      const weight = 1 / ((from[0] - x) ** 2 + (from[1] - y) ** 2 + NEAR ** 2) ** 2;
      dx += way[0] * weight;
      dy += way[1] * weight;
      total += weight;
    }
    return total > 0 ? [dx / total, dy / total] : [0, 0];
  }

  private boxes(side: 0 | 1): Box[] {
    return this.pictures[side].items().map(({ box }) => box);
  }

  private anchorsOf(side: 0 | 1): readonly Anchor[] {
    const now = this.pictures.map(picture => picture.items());
    if (now.some((items, at) => items !== this.known[at])) {
      now.forEach((items, at) => (this.known[at] = items));
      this.anchors = this.findAnchors(now[0], now[1]);
    }
    return this.anchors[side];
  }

  /** Input and output have no nodes: they are known by their ids. */
  private findAnchors(left: readonly PaintItem[], right: readonly PaintItem[]): [Anchor[], Anchor[]] {
    const places = new Map(right.map(({ node, box }) => [node.index < 0 ? node.id : node.index, box]));
    const found: [Anchor[], Anchor[]] = [[], []];
    for (const { node, box } of left) {
      const key = node.index < 0 ? node.id : this.partner(node.index);
      const other = key === undefined ? undefined : places.get(key);
      if (!other) continue;
      const way = [other[0] - box[0], other[1] - box[1]] as const;
      found[0].push({ from: [box[0], box[1]], way });
      found[1].push({ from: [other[0], other[1]], way: [-way[0], -way[1]] });
    }
    return found;
  }
}

function isWithin([x, y, width, height]: Box, [left, top, across, down]: Box): boolean {
  return x >= left && y >= top && x + width <= left + across && y + height <= top + down;
}
