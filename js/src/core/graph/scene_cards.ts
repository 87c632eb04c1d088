// The cards of a scene that both the hierarchy and a data flow draw: modules, slots, pills, and the headers of frames.

import { cardSize, cardText } from "./cards";
import { FONT, oneLine, type Measure } from "../shared/canvas";
import { foldBadge } from "../shared/badges";
import type { Hierarchy, Link } from "../shared/hierarchy";
import type { Size } from "../layout/types";
import type { SceneNode } from "./scene_types";
import type { Store } from "../shared/store";

export const MOST_LINKS = 20; // slots drawn in one container whose modules are elsewhere
const PILL: Size = [76, 34];

/** The id of a node in the graph: its path, told apart where two modules have the same one. */
export function idOf(h: Hierarchy, node: number): string {
  const path = h.path(node);
  return path !== "" && h.find(path) === node ? path : `\u0000node:${node}:${path}`;
}

/** A closed module, or a folded run of modules. */
export function moduleCard(h: Hierarchy, store: Store, measure: Measure, node: number, parent: number): SceneNode {
  const fold = h.fold(node);
  const folded = fold !== undefined && !store.get("unfolded").has(fold.first);
  const text = cardText(h, node, folded ? fold : undefined);
  const badge = folded ? foldBadge(fold) : "";
  return {
    id: idOf(h, node),
    index: node,
    path: h.path(node),
    parent,
    kind: folded ? "fold" : "module",
    ...text,
    badge,
    size: cardSize(text, badge, h.isContainer(node), measure)
  };
}

/** A slot whose module is drawn elsewhere. */
export function linkCard(h: Hierarchy, measure: Measure, container: number, link: Link, parent: number): SceneNode {
  const { slot, target, kind } = link;
  const where = h.path(target) || "the root";
  const name = oneLine(slot);
  const text = {
    name,
    title: oneLine(h.className(target)),
    subtitle: name,
    detail: oneLine(`${kind === "cycle" ? "back to" : "shared with"} ${where}`)
  };
  const size = cardSize(text, "", false, measure);
  const id = `\u0000link:${h.path(container)}\u0000${slot}`;
  return { id, index: -1, path: null, target, parent, kind: "pseudo", ...text, badge: "", size };
}

export function pillCard(measure: Measure, id: string, title: string, parent: number): SceneNode {
  const short = oneLine(title);
  const width = Math.max(PILL[0], Math.ceil(measure(short, FONT.title, false)) + 28);
  const text = { title: short, subtitle: "", detail: "", badge: "" };
  return { id, index: -1, path: null, parent, kind: "pseudo", ...text, size: [width, PILL[1]] };
}

/** The frame's header is one line: slot · class · what is inside. */
export function headerWidth(node: SceneNode, measure: Measure): number {
  const text = measure(`${node.subtitle}${node.title}`, 13, true) + measure(node.detail, 11, false);
  return Math.min(420, Math.ceil(text) + (node.badge ? 50 : 0) + 80);
}
