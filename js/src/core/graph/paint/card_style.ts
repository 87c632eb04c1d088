// The style of the cards at the moment: values as colors, selection, search hits, marks of a comparison.

import * as words from "../../words/graph";
import { axesOf } from "../../shared/model/axes";
import { colorOf } from "../../shared/stage/color";
import { dataflowOf } from "../../shared/model/dataflow";
import type { Measure } from "../../shared/base/canvas";
import type { EdgePaint } from "./paint_edges";
import type { PaintItem } from "./text_lines";
import { labelsOn, textsOn } from "./painter";
import { familyColor, mix, type Theme } from "../../shared/stage/theme";
import type { Hierarchy } from "../../shared/model/hierarchy";
import type { MinimapItem } from "../../shared/stage/minimap";
import type { PlacedScene, Scene, SceneNode } from "../scene/scene";
import type { Mark } from "../../shared/model/differences";
import type { Status } from "../../shared/payload/payload";
import { matches } from "../../shared/search/search";
import type { StagePicture } from "../../shared/stage/stage";
import type { GraphStore, ViewName } from "../../shared/model/graph_store";
import type { Point } from "../../shared/stage/viewport";

interface Options {
  view?: ViewName;
  status?: readonly Status[];
  marks?: readonly (Mark | null)[];
}

export class CardStyle {
  private painted: PaintItem[] = [];
  private lines: EdgePaint[] = [];
  private places = new Map<string, number>();
  private theme?: Theme;
  private selected: readonly number[] = []; // places; several where a module is called several times

  constructor(
    private readonly h: Hierarchy,
    private readonly store: GraphStore,
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
    return this.painted[this.selected[0]]?.node.id ?? null;
  }

  update({ scene, boxes, routes }: PlacedScene, theme: Theme): void {
    const color = colorOf(this.h, this.store);
    const depth = depths(scene.nodes);
    const hits = this.findHits(scene.nodes);
    const members = this.findMembers(scene);
    const sought = hits ?? members;
    this.theme = theme;
    this.places = new Map(scene.nodes.map(({ id }, place) => [id, place]));
    this.selected = this.findSelected(scene.nodes);
    const selected = new Set(this.selected);
    this.painted = scene.nodes.map((node, place) => {
      const { index } = node;
      return {
        node,
        box: boxes[place],
        depth: depth[place],
        container: this.options.view !== "deduplicated" && (node.opens ?? (index >= 0 && this.h.isContainer(index))),
        family: this.familyOf(node),
        fill: index < 0 ? null : color(index),
        status: index < 0 ? null : (this.options.status?.[index] ?? null),
        mark: index < 0 ? null : (this.options.marks?.[index] ?? null),
        flag: this.flag(index),
        dim: sought !== null && node.kind !== "group" && !sought.has(place) && !selected.has(place),
        hit: hits?.has(place) ?? false,
        onAxis: members?.has(place) ?? false,
        selected: selected.has(place)
      };
    });
    const carries = this.carrying();
    this.lines = routes.map(route => {
      const { source, target, values } = route.edge;
      const lit = selected.has(source) || selected.has(target);
      return { route, lit, depth: Math.min(depth[source], depth[target]), onAxis: values?.some(carries) ?? false };
    });
  }

  /** The card or frame that lies on top there. */
  hit([x, y]: Point): string | null {
    for (let place = this.painted.length - 1; place >= 0; place--) {
      const { node, box } = this.painted[place];
      if (x >= box[0] && x <= box[0] + box[2] && y >= box[1] && y <= box[1] + box[3]) return node.id;
    }
    return null;
  }

  picture(theme: Theme, measure: Measure, zoom: number): StagePicture {
    const id = (place: number): string => this.painted[place].node.id;
    const items = this.painted.map((item, place) => {
      const { node, box, depth, fill, selected, onAxis } = item;
      return {
        id: node.id,
        title: node.title,
        parent: node.parent < 0 ? null : id(node.parent),
        box,
        fill: node.kind === "group" ? theme.frame(depth) : (fill ?? theme.surface),
        isOpen: node.kind === "group",
        isSelected: selected && place === this.selected[0],
        onAxis,
        mark: item.mark,
        badge: node.badge,
        texts: textsOn(item, measure, zoom)
      };
    });
    const lines = this.lines.map(line => {
      const { edge, points } = line.route;
      const ends = { source: id(edge.source), target: id(edge.target) };
      return { ...ends, label: edge.label, points, labels: labelsOn(line, measure, zoom) };
    });
    return { items, lines };
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

  private familyOf({ index, kind, title, step }: SceneNode): string {
    if (index < 0) {
      return kind === "operator" ? familyColor(title, false) : "";
    }
    return familyColor(this.h.className(index), step === undefined && this.h.isContainer(index));
  }

  private flag(index: number): string {
    if (index < 0) {
      return "";
    }
    const { h } = this;
    if (h.marks(index).length > 0) return "!";
    return h.tied(index).length > 0 ? words.TIED : h.blocks(index).length > 0 ? "−" : "";
  }

  /** Drawn cards that match, or that hold a match out of sight. */
  private findHits(nodes: readonly SceneNode[]): Set<number> | null {
    const query = this.store.get("query");
    if (query.trim() === "") {
      return null;
    }
    return this.cardsOf(nodes, matches(this.h, query));
  }

  /** The cards that stand for modules: their own, or what hides them. An open frame stands for itself alone. */
  private cardsOf(nodes: readonly SceneNode[], wanted: Iterable<number>): Set<number> {
    const byIndex = new Map<number, number[]>();
    nodes.forEach(({ index }, place) => {
      const same = byIndex.get(index) ?? [];
      same.push(place);
      byIndex.set(index, same);
    });
    const found = new Set<number>();
    const seen = new Set<number>();
    for (const node of wanted) {
      for (let at = node; at >= 0 && !seen.has(at); at = this.h.parent(at)) {
        seen.add(at);
        const places = byIndex.get(at) ?? byIndex.get(this.standIn(at));
        if (places) {
          places.filter(place => at === node || nodes[place].kind !== "group").forEach(place => found.add(place));
          break;
        }
      }
    }
    return found;
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

  private findSelected(nodes: readonly SceneNode[]): number[] {
    const path = this.store.get("selected");
    const node = path === null ? undefined : this.h.find(path);
    if (node === undefined) {
      return [];
    }
    const steps = this.store.get("operators");
    const operators = nodes.findIndex(other => steps !== null && isOf(other, steps, node));
    if (operators >= 0) return [operators];
    const drawn = this.options.view === "deduplicated" ? this.standIn(node) : node;
    return nodes.flatMap(({ index }, place) => (index === drawn ? [place] : []));
  }

  /** Whether the chosen axis runs through a value. */
  private carrying(): (value: number) => boolean {
    const axis = axesOf(this.h)?.find(this.store.get("axis"));
    const flow = dataflowOf(this.h);
    return value => axis !== undefined && flow !== null && flow.axes(value).includes(axis);
  }

  /** Drawn cards that the chosen axis runs along or through, or that hold such a module out of sight. */
  private findMembers({ nodes, edges }: Scene): Set<number> | null {
    const axes = axesOf(this.h);
    const axis = axes?.find(this.store.get("axis"));
    if (!axes || axis === undefined) return null;
    const places = this.cardsOf(nodes, axes.nodes(axis));
    const flow = dataflowOf(this.h);
    if (!flow) return places;
    const path = flow.pathOf(axis);
    const tensors = axes.tensorsOn(axis);
    for (const place of this.cardsOf(nodes, path.modules)) {
      const { kind, unit } = nodes[place];
      if (kind !== "group" && (unit === undefined || path.hasCall(unit))) places.add(place);
    }
    nodes.forEach(({ kind, step, steps }, place) => {
      const isOn = (at: number) => path.steps.has(at) || flow.tensors(at).some(tensor => tensors.has(tensor));
      if (kind === "operator" && step !== undefined && (steps ?? [step]).some(isOn)) places.add(place);
    });
    const carries = this.carrying();
    for (const { source, target, values } of edges)
      if (values?.some(carries))
        [source, target].filter(at => nodes[at].kind === "pseudo").forEach(at => places.add(at));
    return places;
  }
}

/** Whether a card stands for these operators of a module. */
function isOf({ step, steps, owner, index }: SceneNode, chosen: readonly number[], node: number): boolean {
  const all = steps ?? (step === undefined ? [] : [step]);
  return all.length === chosen.length && all[0] === chosen[0] && (owner ?? index) === node;
}

function depths(nodes: readonly SceneNode[]): number[] {
  const found: number[] = [];
  nodes.forEach(({ parent }, place) => (found[place] = parent < 0 ? 0 : found[parent] + 1));
  return found;
}
