// What a layout is asked for, and what it answers: plain data that a worker takes and gives.

import type { Box, Point } from "../shared/viewport";

export type Size = [width: number, height: number];
export type Bends = Point[];

export interface LayoutGroup {
  node: number; // the group's own place in `sizes`; -1 for the canvas
  items: number[]; // its direct children, places in `sizes`
  edges: [from: number, to: number, edge: number][]; // places in `items`; the number of the edge, or NO_EDGE
  labels?: number[]; // of each edge: the width of what is written on it, or 0
  ports?: Ports; // where edges pass the frame, if the layout is to leave room for them
  ranks?: number[]; // of the items: laid out in columns, without dagre
}

/** Places in `items` that are reached from outside of the frame, and that lead out of it. */
export interface Ports {
  entries: number[];
  exits: number[];
}

export interface LayoutRequest {
  sizes: Size[]; // of open groups: the least size of the frame
  groups: LayoutGroup[]; // inner groups first, the canvas last
  aspect: number; // width / height that the canvas would like
  maxWidth: number; // of a row, where that can be chosen
}

export interface LayoutResult {
  boxes: Box[]; // absolute, by place in `sizes`
  bends: [edge: number, points: Bends][];
  labels: [edge: number, x: number, y: number][]; // middles of the labels that have room
  between: Between[]; // ways between groups that edges from or to their inside take
  passages: Passage[]; // ways between the border of a frame and its items
}

export interface Passage {
  frame: number; // places
  item: number;
  isEntry: boolean;
  points: Bends; // from the border to the item, or the other way round
}

export interface Between {
  from: number; // places
  to: number;
  bends: Bends;
  label?: Point; // where a label has room, if any has been asked for
}

/** One group's children relative to its content corner. */
export interface GroupLayout {
  corners: Point[];
  bends: Bends[]; // one entry an edge
  labels?: Point[]; // one entry an edge
  entries?: Bends[]; // as in the ports, from the border inwards
  exits?: Bends[]; // and outwards
  width: number;
  height: number;
}

export const NO_EDGE = -1; // places things, but is not drawn here
