// The cards of a scene: their text, their size, and the nodes that the hierarchy and a data flow both draw.

import { FONT, type Measure, oneLine } from "../../shared/base/canvas";
import { rangeText, shortNumber } from "../../shared/base/format";
import { hyperLine } from "../../shared/model/hyperparameters";
import { type Fold, foldBadge, type Hierarchy, type Link } from "../../shared/model/hierarchy";
import type { Size } from "../../layout/types";
import type { SceneNode } from "./scene_types";
import type { GraphStore } from "../../shared/model/graph_store";

export interface CardText {
  name?: string; // slot, where there is one: what a small card says
  title: string; // class; the slot where a file tells no class
  subtitle: string; // slot; then what kind of module it is
  detail: string; // a few hyper-parameters, or what is inside
}

export const CARD = { minWidth: 116, maxWidth: 236, padding: 14, short: 46, tall: 62, chevron: 18 };

/** `fold`: the run that the card stands for; of similar modules it says what they have from the least to the most. */
export function cardText(h: Hierarchy, node: number, fold?: Fold): CardText {
  const text = h.isKind(node) ? kindText(h, node) : classText(h, node);
  return fold?.kind === "family" ? { ...text, detail: oneLine(foldParams(h, fold)) } : text;
}

function classText(h: Hierarchy, node: number): CardText {
  const name = node === 0 ? "" : oneLine(h.name(node) || '""');
  return {
    name,
    title: oneLine(h.className(node)),
    subtitle: name,
    detail: oneLine(h.isContainer(node) ? inside(h, node) : hyperLine(h.hyper(node)))
  };
}

/** Where no class is told, the name says most. */
function kindText(h: Hierarchy, node: number): CardText {
  const own = h.tensors(node);
  const [, , shape] = own.find(([name]) => name === "weight") ?? (own.length === 1 ? own[0] : []);
  const name = oneLine(h.name(node) || '""');
  return {
    name,
    title: name,
    subtitle: oneLine(h.word(node)),
    detail: oneLine(h.isContainer(node) ? inside(h, node) : (shape?.join("×") ?? ""))
  };
}

/** "4 modules · 1.2 M" */
function inside(h: Hierarchy, node: number): string {
  const count = h.children(node).length;
  const params = paramsText(h, node);
  return `${count} module${count === 1 ? "" : "s"}${params ? ` · ${params}` : ""}`;
}

/** Parameters as short text; "" without the column or without parameters. */
function paramsText(h: Hierarchy, node: number): string {
  const params = h.column("params")?.[node] ?? 0;
  return params === 0 ? "" : shortNumber(params);
}

/** What each module of a run has: "each 1.2 M", or of similar ones "304 – 295 k parameters". */
export function foldParams(h: Hierarchy, fold: Fold): string {
  if (fold.kind === "exact") return paramsText(h, fold.first) && `each ${paramsText(h, fold.first)}`;
  let [least, most] = [Infinity, 0];
  for (const member of fold.members) {
    const params = h.column("params")?.[member] ?? 0;
    [least, most] = [Math.min(least, params), Math.max(most, params)];
  }
  return most === 0 ? "" : `${rangeText(least, most)} parameters`;
}

/** Width and height of a closed card. */
export function cardSize(text: CardText, badge: string, container: boolean, measure: Measure): [number, number] {
  const extra = (badge ? measure(badge, FONT.text, true) + 14 : 0) + (container ? CARD.chevron : 0);
  const widest = Math.max(
    measure(text.title, FONT.title, true) + extra,
    measure(text.subtitle, FONT.text, false),
    measure(text.detail, FONT.text, false)
  );
  const width = Math.min(CARD.maxWidth, Math.max(CARD.minWidth, Math.ceil(widest) + 2 * CARD.padding));
  return [width, text.detail && text.subtitle ? CARD.tall : CARD.short];
}

// The cards of a scene that both the hierarchy and a data flow draw: modules, slots, pills, and the headers of frames.

export const MAX_LINKS = 20; // slots drawn in one container whose modules are elsewhere
const PILL: Size = [76, 34];

/** The id of a node in the graph: its path, told apart where two modules have the same one. */
export function idOf(h: Hierarchy, node: number): string {
  const path = h.path(node);
  return path !== "" && h.find(path) === node ? path : `\u0000node:${node}:${path}`;
}

/** A closed module, or a folded run of modules. */
export function moduleCard(h: Hierarchy, store: GraphStore, measure: Measure, node: number, parent: number): SceneNode {
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
