// Requests to a layout and its results: plain data that a worker takes and returns.

import type { Box, Point } from "../shared/stage/viewport";

export type Size = [width: number, height: number];
export type Line = Point[];

export const BORDER = -1; // as an item: the border of the frame
export const ITSELF = -1; // as a net: the card ends here, no net inside of it

/** Where a net begins or ends: an item of the group and, where that is an open frame, the net in it that goes on. */
export type Terminal = [item: number, net: number];

/** All edges of one source within one group: one line that branches. */
export interface Net {
  start: Terminal; // of the border: it comes from outside
  ends: Terminal[];
  label: number; // the width of what is written at its start, or 0
}

export interface LayoutGroup {
  node: number; // the group's own place in `sizes`; -1 for the canvas
  items: number[]; // its direct children, places in `sizes`, in the order of time
  nets: Net[]; // their items are places in `items`
  rows?: number[]; // places in `sizes` of what began its rows in the drawing before, which are kept where that does little harm
}

export interface LayoutRequest {
  sizes: Size[]; // of open groups: the least size of the frame
  groups: LayoutGroup[]; // inner groups first, the canvas last
  room: Size; // of the canvas
  zoom?: number; // at which all of it is to be read, where that is not the smallest legible one
}

/** One group, relative to the corner of its content. */
export interface GroupLayout {
  corners: Point[];
  lines: Line[][]; // of each net and each of its ends: from the start to that end, border to border
  labels: (Point | null)[]; // of each net: the middle of what is written on it
  starts: number[]; // of each net: the height at which it comes through the border, or NaN
  exits: number[]; // of each net: the height at which it leaves through the border, or NaN
  below: number[]; // and where it could do so at the bottom, from the left; of a drawing from left to right nothing
  width: number;
  height: number;
}

/** With the item that begins each of its rows; of what has no rows nothing. */
export interface RowedLayout extends GroupLayout {
  rows: number[];
  isTurned: boolean; // from top to bottom
  brokenSkips: number; // lines around cards that a row ends in
}

export interface PlacedGroup {
  lines: Line[][];
  labels: (Point | null)[];
  rows: number[]; // places in `sizes` of what begins its rows
  isTurned: boolean; // from top to bottom
}

export interface LayoutResult {
  boxes: Box[]; // absolute, by place in `sizes`
  groups: PlacedGroup[]; // beside those of the request
  bounds: Box; // of boxes and lines
}

/** One group as a layout sees it. */
export interface Drawing {
  items: Size[];
  nets: RoutedNet[];
  room: Room;
  rows?: number[]; // items that began rows before
  isTurned?: boolean; // both axes are exchanged: from top to bottom
  insets?: number[]; // of each item: how far from both ends of its sides lines end
}

/** What a drawing should fill. */
export interface Room {
  width: number;
  height: number;
  isFixed: boolean; // the canvas: to fit matters; else the shape alone
  most: number; // beyond this width it can no longer be read from top to bottom
  holds: Size; // what a canvas can show so that it can be read
}

export interface RoutedNet {
  start: Pin;
  ends: Pin[];
  label: number;
}

export interface Pin {
  item: number; // or BORDER
  y: number; // from the top of the item; NaN: wherever there is room on its side
  below?: number; // where a line from there may leave at the bottom instead, from the left
}
