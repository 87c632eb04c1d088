// What there is to draw, before and after it has places.

import type { LayoutGroup, Size } from "../layout/types";

export type NodeKind = "module" | "group" | "fold" | "pseudo" | "operator";

export interface SceneNode {
  id: string; // dotted path, or one that starts with "\u0000"
  index: number; // node of the hierarchy; -1 for pseudo nodes
  path: string | null; // dotted path, null for pseudo nodes
  target?: number; // of a slot whose module has its place elsewhere: that module
  unit?: number; // in a data-flow view: the call that is drawn
  step?: number; // the operator that is drawn, or the first of several
  steps?: readonly number[]; // all of them
  isGlyph?: boolean; // a small card, with its text in the middle
  owner?: number; // the module that called it
  opens?: boolean; // whether there is an inside to open, where the hierarchy does not tell
  parent: number; // place in `nodes` of the frame around it; -1 on the canvas
  kind: NodeKind;
  name?: string; // of the slot
  title: string;
  subtitle: string;
  detail: string;
  badge: string; // "×35", "≈ ×47"
  size: Size;
}

/** One line of a layout: the frame whose inside it lies in, the net and the end. */
export type Piece = readonly [frame: number, net: number, end: number];

export interface SceneEdge {
  id: string;
  source: number; // places in `nodes`
  target: number;
  kind: "order" | "data";
  values?: readonly number[]; // of the data flow
  label: string;
  way?: readonly Piece[]; // the lines of the layouts that it is made of
}

export interface Scene {
  nodes: SceneNode[];
  edges: SceneEdge[];
  groups: LayoutGroup[]; // inner groups first, the canvas last
  count: number; // modules drawn
  capped: boolean; // something open is drawn closed
}

export const INPUT = "\u0000input";
export const OUTPUT = "\u0000output";
export const BEFORE = "\u0000before:"; // pages of a container with very many children
export const AFTER = "\u0000after:";
