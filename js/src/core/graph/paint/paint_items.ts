// The cards, frames and edges as they are painted, and where one clicks on them.

import type { Mark } from "../../shared/model/differences";
import type { Status } from "../../shared/payload/payload";
import type { Box } from "../../shared/stage/viewport";
import type { Route, SceneNode } from "../scene/scene";

export interface PaintItem {
  node: SceneNode;
  box: Box;
  depth: number; // frames around it
  container: boolean;
  family: string; // hue of the mark at the left
  fill: string | null; // color of the value shown, if any
  status: Status | null; // as it differs from the other model, alone or with what is around it
  mark: Mark | null; // what is said of it in a comparison
  flag: string; // "!" something to know, "−" a block that can go; "" nothing
  dim: boolean;
  hit: boolean;
  onAxis: boolean; // the chosen axis runs along something in it
  selected: boolean;
}

export interface EdgePaint {
  route: Route;
  lit: boolean; // belongs to the selected card
  onAxis: boolean; // the chosen axis runs through what it carries
  depth: number; // of the frame that it runs in; 0 is the canvas
}

export const HEADER = 21; // middle line of a frame's header
export const TITLE = 16; // middle line of a card's title
export const CHEVRON = { open: 16, closed: 20 }; // its middle, from the left side: a card that opens has it under the pointer still

/** Where a click opens or closes: the chevron and a little around it. */
export function isOnChevron({ box, node, container }: PaintItem, x: number, y: number): boolean {
  const group = node.kind === "group";
  const centre = box[0] + (group ? CHEVRON.open : CHEVRON.closed);
  const middle = box[1] + (group ? HEADER : TITLE);
  return container && Math.abs(x - centre) <= 12 && Math.abs(y - middle) <= 14;
}
