// What the canvas draws of a hierarchy in its present state: cards, frames and edges, without positions.

import { AFTER, BEFORE, INPUT, OUTPUT, type Scene, type SceneEdge, type SceneNode } from "./scene_types";
import { cardSize, cardText } from "./cards";
import type { Fold, Hierarchy, Link } from "../shared/hierarchy";
import { oneLine, type Measure } from "../shared/canvas";
import { drawnRows, hardLimit, MAX_NESTING, openNodes, WINDOW } from "../shared/reveal";
import { EdgeLifter } from "./scene_edges";
import { intoGroups } from "./scene_groups";
import type { Store } from "../shared/store";
import type { LayoutGroup, Size } from "./layout_types";

const LINKS = 20; // slots drawn in one container whose modules are elsewhere
export const PILL: Size = [76, 34];

/** `pages`: the first row drawn of a container with more than WINDOW rows; `traced`: data edges instead of the order. */
export function buildScene(
  h: Hierarchy,
  store: Store,
  measure: Measure,
  pages: ReadonlyMap<number, number> = new Map(),
  traced = h.payload.traced
): Scene {
  return new SceneBuilder(h, store, measure, pages, traced).build();
}

/** The id of a node in the graph: its path, told apart where two modules have the same one. */
export function idOf(h: Hierarchy, node: number): string {
  const path = h.path(node);
  return path !== "" && h.find(path) === node ? path : `\u0000node:${node}:${path}`;
}

export function foldBadge(fold: Fold): string {
  return fold.kind === "exact" ? `×${fold.count}` : `≈ ×${fold.count}`;
}

class SceneBuilder {
  private readonly nodes: SceneNode[] = [];
  private readonly edges: SceneEdge[] = [];
  private readonly groups: LayoutGroup[] = [];
  private readonly placeOf = new Map<number, number>(); // node of the hierarchy -> place
  private readonly open: ReadonlySet<number>;
  private readonly focus: number;
  private count = 0;
  private capped = false;

  constructor(
    private readonly h: Hierarchy,
    private readonly store: Store,
    private readonly measure: Measure,
    private readonly pages: ReadonlyMap<number, number>,
    private readonly traced: boolean
  ) {
    this.open = openNodes(h, store.get("expanded"));
    this.focus = store.get("focus");
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
    const rows = Math.min(WINDOW, drawnRows(this.h, this.store, index).length);
    if (this.count + rows > hardLimit() || this.h.depth(index) - this.h.depth(this.focus) >= MAX_NESTING) {
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
    const all = this.h.isContainer(container) ? drawnRows(this.h, this.store, container) : [container];
    const start = Math.min(this.pages.get(container) ?? 0, Math.max(0, all.length - WINDOW));
    const rows = all.slice(start, start + WINDOW);
    const items: number[] = [];
    if (place < 0) {
      items.push(this.addPseudo(INPUT, "input", place));
    }
    if (start > 0) {
      items.push(this.addPseudo(BEFORE + this.h.path(container), `⋯ ${start} before`, place));
    }
    items.push(...rows.map(row => this.addCard(row, place)));
    if (start + rows.length < all.length) {
      const rest = all.length - start - rows.length;
      items.push(this.addPseudo(AFTER + this.h.path(container), `⋯ ${rest} more`, place));
    } else {
      const links = this.h.links(container).slice(0, LINKS);
      items.push(...links.map(link => this.addLink(container, link, place)));
    }
    if (place < 0) {
      items.push(this.addPseudo(OUTPUT, "output", place));
    }
    this.groups.push({ node: place, items, edges: this.traced ? [] : this.chain(items) });
    return items;
  }

  private chain(items: number[]): LayoutGroup["edges"] {
    return items
      .slice(1)
      .map((item, i) => [i, i + 1, this.addEdge(items[i], item, "order", "")] as LayoutGroup["edges"][number]);
  }

  private addEdge(source: number, target: number, kind: SceneEdge["kind"], label: string): number {
    const id = `\u0000edge:${this.nodes[source].id}\u0000${this.nodes[target].id}`;
    this.edges.push({ id, source, target, kind, label });
    return this.edges.length - 1;
  }

  private addCard(node: number, parent: number): number {
    const { h } = this;
    const fold = h.fold(node);
    const folded = fold !== undefined && !this.store.get("unfolded").has(fold.first);
    const text = cardText(h, node);
    const badge = folded ? foldBadge(fold) : "";
    this.count++;
    this.placeOf.set(node, this.nodes.length);
    this.nodes.push({
      id: idOf(h, node),
      index: node,
      path: h.path(node),
      parent,
      kind: folded ? "fold" : "module",
      ...text,
      badge,
      size: cardSize(text, badge, h.isContainer(node), this.measure)
    });
    return this.nodes.length - 1;
  }

  private addPseudo(id: string, title: string, parent: number): number {
    const width = Math.max(PILL[0], Math.ceil(this.measure(title, 12, false)) + 28);
    const size: Size = [width, PILL[1]];
    const text = { title, subtitle: "", detail: "", badge: "" };
    this.nodes.push({ id, index: -1, path: null, parent, kind: "pseudo", ...text, size });
    return this.nodes.length - 1;
  }

  /** A slot whose module is drawn elsewhere. */
  private addLink(container: number, { slot, target, kind }: Link, parent: number): number {
    const where = this.h.path(target) || "the root";
    const text = {
      title: oneLine(this.h.className(target)),
      subtitle: oneLine(slot),
      detail: oneLine(`${kind === "cycle" ? "back to" : "shared with"} ${where}`)
    };
    const size = cardSize(text, "", false, this.measure);
    const id = `\u0000link:${this.h.path(container)}\u0000${slot}`;
    this.nodes.push({ id, index: -1, path: null, target, parent, kind: "pseudo", ...text, badge: "", size });
    return this.nodes.length - 1;
  }

  /** Places of the input and output pills. */
  private ends(): { input: number; output: number } {
    const { items } = this.groups[0];
    return { input: items[0], output: items[items.length - 1] };
  }

  /** Every data edge between what is drawn, and in the layout of the group in which its ends part. */
  private addDataEdges(): void {
    const lifter = new EdgeLifter(this.h, this.nodes, this.placeOf, this.focus, this.ends());
    lifter.edges().forEach(({ source, target, label }) => this.addEdge(source, target, "data", label));
    intoGroups(this.nodes, this.edges, this.groups, this.measure);
  }
}

/** The frame's header is one line: slot · class · what is inside. */
export function headerWidth(node: SceneNode, measure: Measure): number {
  const text = measure(`${node.subtitle}${node.title}`, 13, true) + measure(node.detail, 11, false);
  return Math.min(420, Math.ceil(text) + (node.badge ? 50 : 0) + 80);
}
