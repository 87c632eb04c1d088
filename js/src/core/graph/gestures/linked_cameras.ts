// Two pictures side by side, of which one moves as the other does: at the same zoom, with what corresponds at the same
// height. Their layouts differ, so the way from one picture to the other is read off the cards that both have.

import type { Camera } from "../../shared/stage/camera";
import {
  type Box,
  boundsOf,
  fitBounds,
  fitsLegibly,
  initialPose,
  OVERVIEW_ZOOM,
  type Point
} from "../../shared/stage/viewport";
import type { PaintItem } from "../paint/paint_items";

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
