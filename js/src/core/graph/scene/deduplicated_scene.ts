// The deduplicated view: every distinct structure once, with how often it occurs and what it contains.

import { cardSize, cardText, idOf, pillCard } from "./cards";
import type { Hierarchy } from "../../shared/model/hierarchy";
import { type Measure, oneLine } from "../../shared/base/canvas";
import { hardLimit } from "../../shared/model/expansion";
import { addToGroups } from "./scene_edges";
import type { Scene, SceneEdge, SceneNode } from "./scene_types";

export const ALL_STRUCTURES = "\u0000structures"; // the pill that has the rest of them drawn

interface Structure {
  entity: number;
  first: number; // its first module in tree order
  count: number;
}

/** `limit`: how many are drawn. */
export function buildDedupScene(h: Hierarchy, measure: Measure, limit = Infinity): Scene {
  const all = structures(h);
  const kept = mostUsed(all, Math.min(limit, hardLimit()));
  const places = new Map(kept.map((structure, place) => [structure.entity, place]));
  const nodes = kept.map(structure => card(h, structure, measure));
  const edges = containment(h, places, nodes);
  const left = all.length - kept.length;
  if (left > 0 && limit < hardLimit()) {
    nodes.push(pillCard(measure, ALL_STRUCTURES, `⋯ ${left} used less`, -1));
  }
  const groups = [{ node: -1, items: nodes.map((_, place) => place), nets: [] }];
  addToGroups(nodes, edges, groups, measure);
  return { nodes, edges, groups, count: nodes.length, capped: left > 0 && limit >= hardLimit() };
}

function structures(h: Hierarchy): Structure[] {
  const found = new Map<number, Structure>();
  for (let node = 0; node < h.size; node++) {
    const entity = h.entity(node);
    const known = found.get(entity);
    if (known) {
      known.count++;
    } else {
      found.set(entity, { entity, first: node, count: 1 });
    }
  }
  return [...found.values()];
}

/** The root and the most used ones, in tree order. */
function mostUsed(all: readonly Structure[], limit: number): Structure[] {
  const [root, ...others] = all;
  const kept = [...others].sort((a, b) => b.count - a.count || a.first - b.first).slice(0, limit - 1);
  return [root, ...kept.sort((a, b) => a.first - b.first)];
}

function card(h: Hierarchy, { first, count }: Structure, measure: Measure): SceneNode {
  const text = {
    ...cardText(h, first),
    name: "", // it has many
    title: oneLine(h.className(first)),
    subtitle: h.entityName(first).slice(0, 120)
  };
  const badge = count > 1 ? `×${count}` : "";
  return {
    id: idOf(h, first),
    index: first,
    path: h.path(first),
    parent: -1,
    kind: count > 1 ? "fold" : "module",
    ...text,
    badge,
    size: cardSize(text, badge, false, measure)
  };
}

/** One edge for each pair of a structure and the next drawn one around it, labelled with how often the pair occurs. */
function containment(h: Hierarchy, places: ReadonlyMap<number, number>, nodes: readonly SceneNode[]): SceneEdge[] {
  const pairs = new Map<number, { source: number; target: number; count: number }>();
  for (let node = 1; node < h.size; node++) {
    const source = visibleAncestor(h, places, node);
    const target = places.get(h.entity(node));
    if (source !== undefined && target !== undefined && source !== target) {
      const key = source * nodes.length + target;
      const pair = pairs.get(key) ?? { source, target, count: 0 };
      pair.count++;
      pairs.set(key, pair);
    }
  }
  return [...pairs.values()].map(({ source, target, count }) => ({
    id: `\u0000edge:${nodes[source].id}\u0000${nodes[target].id}`,
    source,
    target,
    kind: "data",
    label: count > 1 ? `×${count}` : ""
  }));
}

function visibleAncestor(h: Hierarchy, places: ReadonlyMap<number, number>, node: number): number | undefined {
  for (let at = h.parent(node); at >= 0; at = h.parent(at)) {
    const place = places.get(h.entity(at));
    if (place !== undefined) return place;
  }
  return undefined;
}
