// How the cards look at the moment: values as colours, selection, search hits, marks of a comparison.

import type { Core } from "cytoscape";
import { colourOf } from "./colour";
import type { Paints, Placed } from "./elements";
import type { PaintItem } from "./graph_paint";
import { familyColour, mix, STATUS_STYLE, type Theme } from "./graph_style";
import type { Hierarchy } from "./hierarchy";
import type { MinimapItem } from "./minimap";
import type { Status } from "./payload";
import type { SceneNode } from "./scene";
import { matches } from "./search";
import type { Store, ViewName } from "./store";

interface Options {
  view?: ViewName;
  status?: readonly Status[];
}

export class GraphDecor implements Paints {
  private painted: PaintItem[] = [];
  private depths: number[] = [];
  private places = new Map<string, number>();
  private theme?: Theme;
  private hits: Set<number> | null = null; // places; null without a query
  private selected = -1;

  constructor(
    private readonly h: Hierarchy,
    private readonly store: Store,
    private readonly options: Options
  ) {}

  items(): readonly PaintItem[] {
    return this.painted;
  }

  itemOf(id: string): PaintItem | undefined {
    return this.painted[this.places.get(id) ?? -1];
  }

  idOfSelected(): string | null {
    return this.painted[this.selected]?.node.id ?? null;
  }

  update({ scene, boxes }: Placed, theme: Theme): void {
    const colour = colourOf(this.h, this.store);
    this.theme = theme;
    this.places = new Map(scene.nodes.map(({ id }, place) => [id, place]));
    this.depths = depths(scene.nodes);
    this.hits = this.findHits(scene.nodes);
    this.selected = this.findSelected(scene.nodes);
    this.painted = scene.nodes.map((node, place) => {
      const { index } = node;
      return {
        node,
        box: boxes[place],
        container: index >= 0 && this.options.view !== "deduplicated" && this.h.isContainer(index),
        family: index < 0 ? "" : familyColour(node.title, this.h.isContainer(index)),
        fill: index < 0 ? null : colour(index),
        status: index < 0 ? null : (this.options.status?.[index] ?? null),
        flag: this.flag(index),
        dim: this.hits !== null && node.kind !== "group" && !this.hits.has(place)
      };
    });
  }

  fill(place: number): string {
    const { node, fill } = this.painted[place];
    const theme = this.themeNow();
    if (node.kind === "group") {
      return theme.frame(this.depths[place]);
    }
    return node.kind === "pseudo" ? theme.canvas : (fill ?? theme.surface);
  }

  stroke(place: number): string {
    const { node, fill, status } = this.painted[place];
    const theme = this.themeNow();
    if (status && status !== "same") {
      return STATUS_STYLE[status].colour;
    }
    return fill && node.kind !== "group" ? mix(fill, theme.text, 0.3) : theme.border;
  }

  /** Classes for what the style sheet shows by itself. */
  mark(cy: Core): void {
    cy.batch(() => {
      this.painted.forEach(({ node, dim }, place) => {
        const element = cy.getElementById(node.id);
        element.toggleClass("mkg-selected", place === this.selected);
        element.toggleClass("mkg-hit", this.hits?.has(place) ?? false);
        element.toggleClass("mkg-dim", dim);
      });
    });
  }

  minimapItems(): MinimapItem[] {
    const theme = this.themeNow();
    return this.painted.map((item, place) => {
      const frame = item.node.kind === "group";
      const own = item.fill ?? (item.family ? mix(item.family, theme.surface, 0.25) : theme.border);
      const fill = place === this.selected && !frame ? theme.accent : frame ? theme.frame(this.depths[place]) : own;
      return { box: item.box, fill, frame };
    });
  }

  private themeNow(): Theme {
    if (!this.theme) {
      throw new Error("update comes first");
    }
    return this.theme;
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
          hits.add(place);
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
