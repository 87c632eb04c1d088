// How the cards look at the moment: values as colours, selection, search hits, marks of a comparison.

import { colourOf } from "./colour";
import type { PaintItem } from "./graph_paint";
import { familyColour, mix, type Theme } from "./graph_style";
import type { Hierarchy } from "./hierarchy";
import type { MinimapItem } from "./minimap";
import type { EdgePaint } from "./paint_edges";
import type { Status } from "./payload";
import type { Placed } from "./routes";
import type { SceneNode } from "./scene";
import { matches } from "./search";
import type { Store, ViewName } from "./store";

interface Options {
  view?: ViewName;
  status?: readonly Status[];
}

export class GraphDecor {
  private painted: PaintItem[] = [];
  private lines: EdgePaint[] = [];
  private places = new Map<string, number>();
  private theme?: Theme;
  private selected = -1;

  constructor(
    private readonly h: Hierarchy,
    private readonly store: Store,
    private readonly options: Options
  ) {}

  items(): readonly PaintItem[] {
    return this.painted;
  }

  edges(): readonly EdgePaint[] {
    return this.lines;
  }

  itemOf(id: string): PaintItem | undefined {
    return this.painted[this.places.get(id) ?? -1];
  }

  idOfSelected(): string | null {
    return this.painted[this.selected]?.node.id ?? null;
  }

  /** The first card or frame that differs by itself, not for what is drawn inside it. */
  firstDifference(): PaintItem | undefined {
    const differs = this.painted.filter(({ status }) => status !== null && status !== "same");
    const around = new Set(differs.map(({ node }) => node.parent));
    return differs.find(({ node }) => !around.has(this.places.get(node.id) ?? -1));
  }

  update({ scene, boxes, routes }: Placed, theme: Theme): void {
    const colour = colourOf(this.h, this.store);
    const depth = depths(scene.nodes);
    const hits = this.findHits(scene.nodes);
    this.theme = theme;
    this.places = new Map(scene.nodes.map(({ id }, place) => [id, place]));
    this.selected = this.findSelected(scene.nodes);
    this.painted = scene.nodes.map((node, place) => {
      const { index } = node;
      return {
        node,
        box: boxes[place],
        depth: depth[place],
        container: index >= 0 && this.options.view !== "deduplicated" && this.h.isContainer(index),
        family: index < 0 ? "" : familyColour(node.title, this.h.isContainer(index)),
        fill: index < 0 ? null : colour(index),
        status: index < 0 ? null : (this.options.status?.[index] ?? null),
        flag: this.flag(index),
        dim: hits !== null && node.kind !== "group" && !hits.has(place),
        hit: hits?.has(place) ?? false,
        selected: place === this.selected
      };
    });
    this.lines = routes.map(route => {
      return { route, lit: route.edge.source === this.selected || route.edge.target === this.selected };
    });
  }

  /** The colour of a card's or frame's ground. */
  fill(place: number, theme: Theme): string {
    const { node, fill, depth } = this.painted[place];
    return node.kind === "group" ? theme.frame(depth) : (fill ?? theme.surface);
  }

  minimapItems(): MinimapItem[] {
    const { theme } = this;
    if (!theme) {
      return [];
    }
    return this.painted.map(({ node, box, depth, family, fill, selected }) => {
      const frame = node.kind === "group";
      const own = fill ?? (family ? mix(family, theme.surface, 0.25) : theme.border);
      return { box, fill: frame ? theme.frame(depth) : selected ? theme.accent : own, frame };
    });
  }

  private flag(index: number): string {
    if (index < 0) {
      return "";
    }
    return this.h.marks(index).length > 0 ? "!" : this.h.tied(index).length > 0 ? "tied" : "";
  }

  /** Drawn cards that match, or that hold a match out of sight. */
  private findHits(nodes: readonly SceneNode[]): Set<number> | null {
    const query = this.store.get("query");
    if (query.trim() === "") {
      return null;
    }
    const byIndex = new Map(nodes.map(({ index }, place) => [index, place]));
    const hits = new Set<number>();
    const seen = new Set<number>();
    for (const match of matches(this.h, query)) {
      for (let at = match; at >= 0 && !seen.has(at); at = this.h.parent(at)) {
        seen.add(at);
        const place = byIndex.get(this.standIn(at));
        if (place !== undefined) {
          if (at === match || nodes[place].kind !== "group") {
            hits.add(place); // an open frame does not shine for what lies in its other instances
          }
          break;
        }
      }
    }
    return hits;
  }

  /** The member that is drawn for a folded one, the first module for its structure. */
  private standIn(node: number): number {
    if (this.options.view === "deduplicated") {
      return this.firstOf(this.h.entity(node));
    }
    const fold = this.h.fold(node);
    if (!fold || this.store.get("unfolded").has(fold.first)) {
      return node;
    }
    return this.store.get("shown").get(fold.first) ?? fold.first;
  }

  private firsts?: Map<number, number>;

  private firstOf(entity: number): number {
    if (!this.firsts) {
      this.firsts = new Map();
      for (let node = this.h.size - 1; node >= 0; node--) {
        this.firsts.set(this.h.entity(node), node);
      }
    }
    return this.firsts.get(entity) ?? -1;
  }

  private findSelected(nodes: readonly SceneNode[]): number {
    const path = this.store.get("selected");
    const node = path === null ? undefined : this.h.find(path);
    if (node === undefined) {
      return -1;
    }
    const drawn = this.options.view === "deduplicated" ? this.standIn(node) : node;
    return nodes.findIndex(({ index }) => index === drawn);
  }
}

function depths(nodes: readonly SceneNode[]): number[] {
  const found: number[] = [];
  nodes.forEach(({ parent }, place) => (found[place] = parent < 0 ? 0 : found[parent] + 1));
  return found;
}
