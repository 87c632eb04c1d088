// Scenes of the hierarchy, without positions: modules as they are opened, or every distinct structure once.

import * as words from "../../words/graph";
import {
  AFTER,
  BEFORE,
  INPUT,
  OUTPUT,
  type Scene,
  type SceneEdge,
  type SceneNode,
  headerWidth,
  linkCard,
  moduleCard,
  MAX_LINKS,
  pillCard,
  cardSize,
  cardText,
  idOf
} from "./scene";
import type { Hierarchy, Link } from "../../shared/model/hierarchy";
import { type Measure, oneLine } from "../../shared/base/canvas";
import { visibleRows, nodeLimit, MAX_NESTING, openNodes, WINDOW } from "../../shared/model/expansion";
import { EdgeLifter, addToGroups } from "./scene_edges";
import type { GraphStore } from "../../shared/model/graph_store";
import type { LayoutGroup } from "../../layout/types";

/** `pages`: the first row drawn of a container with more than `window` rows; `traced`: data edges instead of the order. */
export function buildScene(
  h: Hierarchy,
  store: GraphStore,
  measure: Measure,
  pages: ReadonlyMap<number, number> = new Map(),
  traced = h.payload.traced,
  window = WINDOW
): Scene {
  return new SceneBuilder(h, store, measure, pages, traced, window).build();
}

class SceneBuilder {
  private readonly nodes: SceneNode[] = [];
  private readonly edges: SceneEdge[] = [];
  private readonly groups: LayoutGroup[] = [];
  private readonly placeOf = new Map<number, number>(); // node of the hierarchy -> place
  private readonly open: ReadonlySet<number>;
  private readonly focus: number;
  private readonly isOrdered: boolean; // tensors of a file are in no order that means anything
  private count = 0;
  private capped = false;

  constructor(
    private readonly h: Hierarchy,
    private readonly store: GraphStore,
    private readonly measure: Measure,
    private readonly pages: ReadonlyMap<number, number>,
    private readonly traced: boolean,
    private readonly window: number
  ) {
    this.open = openNodes(h, store.get("expanded"));
    this.focus = store.get("focus");
    this.isOrdered = traced || !h.payload.file;
  }

  build(): Scene {
    const top = this.addGroup(-1, this.focus);
    const pending = [...top];
    // breadth first, so that the limit cuts off depth before it cuts off siblings
    for (let at = 0; at < pending.length; at++) {
      pending.push(...this.openGroup(pending[at]));
    }
    if (this.traced) {
      this.addDataEdges();
    }
    addToGroups(this.nodes, this.edges, this.groups, this.measure);
    this.groups.reverse();
    const { nodes, edges, groups, count, capped } = this;
    return { nodes, edges, groups, count, capped };
  }

  /** Draws the inside of an open card; the places of what was added. */
  private openGroup(place: number): number[] {
    const { index } = this.nodes[place];
    if (index < 0 || !this.open.has(index)) {
      return [];
    }
    const rows = Math.min(this.window, visibleRows(this.h, this.store, index).length);
    if (this.count + rows > nodeLimit() || this.h.depth(index) - this.h.depth(this.focus) >= MAX_NESTING) {
      this.capped = true;
      return [];
    }
    const node = this.nodes[place];
    node.kind = "group";
    node.size = [Math.max(node.size[0], headerWidth(node, this.measure)), 0];
    return this.addGroup(place, index);
  }

  /** The canvas (place -1) or a frame, with its children in a chain. */
  private addGroup(place: number, container: number): number[] {
    const all = this.h.isContainer(container) ? visibleRows(this.h, this.store, container) : [container];
    const start = Math.min(this.pages.get(container) ?? 0, Math.max(0, all.length - this.window));
    const rows = all.slice(start, start + this.window);
    const items: number[] = [];
    const isBetween = place < 0 && this.isOrdered;
    if (isBetween) {
      items.push(this.addPseudo(INPUT, words.INPUT, place));
    }
    if (start > 0) {
      items.push(this.addPseudo(BEFORE + this.h.path(container), words.before(start), place));
    }
    items.push(...rows.map(row => this.addCard(row, place)));
    if (start + rows.length < all.length) {
      const rest = all.length - start - rows.length;
      items.push(this.addPseudo(AFTER + this.h.path(container), words.more(rest), place));
    } else {
      const links = this.h.links(container).slice(0, MAX_LINKS);
      items.push(...links.map(link => this.addLink(container, link, place)));
    }
    if (isBetween) {
      items.push(this.addPseudo(OUTPUT, words.OUTPUT, place));
    }
    this.groups.push({ node: place, items, nets: [] });
    if (!this.traced && this.isOrdered) {
      items.slice(1).forEach((item, i) => this.addEdge(items[i], item, "order", ""));
    }
    return items;
  }

  private addEdge(source: number, target: number, kind: SceneEdge["kind"], label: string): void {
    const id = `\u0000edge:${this.nodes[source].id}\u0000${this.nodes[target].id}`;
    this.edges.push({ id, source, target, kind, label });
  }

  private addCard(node: number, parent: number): number {
    this.count++;
    this.placeOf.set(node, this.nodes.length);
    return this.add(moduleCard(this.h, this.store, this.measure, node, parent));
  }

  private addPseudo(id: string, title: string, parent: number): number {
    return this.add(pillCard(this.measure, id, title, parent));
  }

  private addLink(container: number, link: Link, parent: number): number {
    return this.add(linkCard(this.h, this.measure, container, link, parent));
  }

  private add(node: SceneNode): number {
    this.nodes.push(node);
    return this.nodes.length - 1;
  }

  /** Places of the input and output pills. */
  private ends(): { input: number; output: number } {
    const { items } = this.groups[0];
    return { input: items[0], output: items[items.length - 1] };
  }

  /** Every data edge between what is drawn. */
  private addDataEdges(): void {
    const lifter = new EdgeLifter(this.h, this.nodes, this.placeOf, this.focus, this.ends());
    lifter.edges().forEach(({ source, target, label }) => this.addEdge(source, target, "data", label));
  }
}

// The deduplicated view: every distinct structure once, with how often it occurs and what it contains.

export const ALL_STRUCTURES = "\u0000structures"; // the pill that has the rest of them drawn

interface Structure {
  entity: number;
  first: number; // its first module in tree order
  count: number;
}

/** `limit`: how many are drawn. */
export function buildDedupScene(h: Hierarchy, measure: Measure, limit = Infinity): Scene {
  const all = structures(h);
  const kept = mostUsed(all, Math.min(limit, nodeLimit()));
  const places = new Map(kept.map((structure, place) => [structure.entity, place]));
  const nodes = kept.map(structure => card(h, structure, measure));
  const edges = containment(h, places, nodes);
  const left = all.length - kept.length;
  if (left > 0 && limit < nodeLimit()) {
    nodes.push(pillCard(measure, ALL_STRUCTURES, words.lessUsed(left), -1));
  }
  const groups = [{ node: -1, items: nodes.map((_, place) => place), nets: [] }];
  addToGroups(nodes, edges, groups, measure);
  return { nodes, edges, groups, count: nodes.length, capped: left > 0 && limit >= nodeLimit() };
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
