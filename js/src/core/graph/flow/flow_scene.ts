// The scene of a forward pass: calls of modules and, between or inside them, operators.

import {
  cardSize,
  headerWidth,
  idOf,
  linkCard,
  moduleCard,
  pillCard,
  withFlops,
  AFTER,
  BEFORE,
  INPUT,
  OUTPUT,
  type CardText,
  type Scene,
  type SceneEdge,
  type SceneNode
} from "../scene/scene";
import type { Dataflow } from "../../shared/model/dataflow";
import { glyphSize, stepText, operatorGroupText, moduleOperators, unitText, widthFor } from "./flow_cards";
import { flowEdges, HIDDEN, OUTSIDE } from "./flow_edges";
import { FlowItems, type Item } from "./flow_items";
import { type FlowLevel, type Units, unitsOf } from "../../shared/model/flow_units";
import { type Fold, foldBadge, type Hierarchy } from "../../shared/model/hierarchy";
import { counted } from "../../shared/base/format";
import type { Measure } from "../../shared/base/canvas";
import { nodeLimit, openNodes, WINDOW } from "../../shared/model/expansion";
import { addToGroups } from "../scene/scene_edges";
import type { GraphStore } from "../../shared/model/graph_store";
import type { LayoutGroup } from "../../layout/types";
import type { OperatorGroup } from "../../shared/model/operator_groups";
import * as words from "../../words/graph";
import { visibleSteps, groupKey, partsOf } from "../../shared/model/operator_parts";

const CLOSED = 2; // operators of a group that its card names, so that there is nothing to open
const MAX_OUTPUTS = 8; // with a pill each
const MAX_TITLE = 40; // letters of a pill
const MAX_LEAF_OPERATORS = 60; // operators of one leaf module that are drawn without being asked for

interface FlowOptions {
  level: FlowLevel;
  pages: ReadonlyMap<number, number>;
  window?: number; // cards of one frame that are drawn at once
  most?: number; // cards: a scene with more has no edges, nobody looks at it
}

/** Null where the inside of the focus was never called. */
export function buildFlowScene(
  h: Hierarchy,
  flow: Dataflow,
  store: GraphStore,
  measure: Measure,
  options: FlowOptions
): Scene | null {
  const units = unitsOf(flow, h, options.level);
  const roots = units.ofNode(store.get("focus"));
  return roots.length > 0 ? new FlowSceneBuilder(h, flow, units, store, measure, options).build(roots) : null;
}

class FlowSceneBuilder {
  private readonly nodes: SceneNode[] = [];
  private readonly groups: LayoutGroup[] = [];
  private readonly ids = new Set<string>();
  private readonly cards = new Map<number, number>(); // unit -> place
  private readonly placeOfStep: Int32Array; // place, or HIDDEN
  private readonly opened = new Set<number>(); // units drawn as frames
  private readonly carded = new Set<number>(); // nodes that have a card
  private readonly standIns = new Map<number, number>(); // unit -> place, HIDDEN or OUTSIDE
  private readonly stretches = new Map<number, OperatorGroup>(); // place -> what it may open
  private readonly repeats = new Map<number, number>(); // step of a later run of a line -> step of the first
  private readonly items: FlowItems;
  private readonly open: ReadonlySet<number>;
  private readonly level: FlowLevel;
  private count = 0;
  private capped = false;

  constructor(
    private readonly h: Hierarchy,
    private readonly flow: Dataflow,
    private readonly units: Units,
    private readonly store: GraphStore,
    private readonly measure: Measure,
    private readonly options: FlowOptions
  ) {
    this.level = options.level;
    this.open = openNodes(h, store.get("expanded"));
    this.items = new FlowItems(h, flow, units, store, options.level);
    this.placeOfStep = new Int32Array(flow.size).fill(HIDDEN);
  }

  build(roots: readonly number[]): Scene {
    const { flow } = this;
    const whole = this.store.get("focus") === 0;
    const inputs = whole
      ? flow.payload.inputs.map((_, i) => this.pill(i ? `${INPUT}:${i}` : INPUT, words.inputOf(flow.inputName(i))))
      : [];
    if (inputs.length === 0) {
      inputs.push(this.pill(INPUT, words.INPUT));
    }
    const pending = this.addGroup(-1, roots, inputs);
    const { most = Infinity } = this.options;
    for (let at = 0; at < pending.length && this.nodes.length <= most; at++) {
      pending.push(...this.openGroup(pending[at]));
    }
    if (this.nodes.length > most) return this.scene([]);
    const outputs = this.outputs(whole);
    const ends = { inputs, outputs, whole };
    const isLoop = (source: number, step: number) => this.isLoop(source, step);
    const leadsBack = (source: number, target: number) => this.leadsBack(source, target);
    const places = Int32Array.from(this.placeOfStep, (_, step) => this.placeOf(step));
    const edges = flowEdges(flow, this.nodes, places, ends, isLoop, leadsBack);
    addToGroups(this.nodes, edges, this.groups, this.measure);
    this.groups.reverse();
    return this.scene(edges);
  }

  private scene(edges: SceneEdge[]): Scene {
    return { nodes: this.nodes, edges, groups: this.groups, count: this.count, capped: this.capped };
  }

  private outputs(whole: boolean): number[] {
    const { outputs } = this.flow.payload;
    const canvas = this.groups[0];
    const count = whole ? Math.max(1, outputs.length) : 1;
    const many = count > 1 && count <= MAX_OUTPUTS;
    const name = (i: number) => (whole && (many || outputs.length === 1) ? this.flow.resultName(i) : "");
    const title = (i: number) =>
      count > MAX_OUTPUTS ? words.outputs(count) : words.outputOf(name(i), many ? i + 1 : 0);
    const places = Array.from({ length: many ? count : 1 }, (_, i) =>
      this.pill(i ? `${OUTPUT}:${i}` : OUTPUT, title(i))
    );
    canvas.items.push(...places);
    return places;
  }

  /** The canvas (place -1) or a frame; places of what might be opened in it. */
  private addGroup(place: number, roots: readonly number[], before: readonly number[] = []): number[] {
    const all = roots.flatMap(root => this.items.of(root));
    const [start, end] = this.window(this.units.list[roots[0]].node, all.length);
    const items = [...before];
    if (start > 0) {
      items.push(this.addRest(all.slice(0, start), place, roots[0], BEFORE, words.before(start)));
    }
    const drawn = all.slice(start, end).map(item => this.addItem(item, place));
    items.push(...drawn);
    if (end < all.length) {
      items.push(this.addRest(all.slice(end), place, roots[0], AFTER, words.more(all.length - end)));
    }
    roots.forEach(root => this.opened.add(root));
    this.groups.push({ node: place, items, nets: [] });
    return drawn;
  }

  /** The part of a frame's items that is drawn. */
  private window(node: number, count: number): [start: number, end: number] {
    const { pages, window = WINDOW } = this.options;
    const start = Math.min(pages.get(node) ?? 0, Math.max(0, count - window));
    return [start, start + window];
  }

  private addRest(rest: readonly Item[], parent: number, root: number, mark: string, title: string): number {
    const path = this.h.path(this.units.list[root].node);
    const place = this.pill(mark + path, title, parent);
    for (const item of rest) {
      if (item.kind === "step") this.placeOfStep[item.step] = place;
      if (item.kind === "unit") this.cards.set(item.unit, place);
      if (item.kind === "stretch") item.stretch.steps.forEach(step => (this.placeOfStep[step] = place));
    }
    return place;
  }

  private addItem(item: Item, place: number): number {
    switch (item.kind) {
      case "unit":
        return this.addUnit(item.unit, place);
      case "step":
        return this.addStep(item.step, place);
      case "stretch":
        return this.addStretch(item.stretch, place);
      case "module":
        this.count++;
        return this.add(moduleCard(this.h, this.store, this.measure, item.node, place));
      case "link": {
        const container = place < 0 ? this.store.get("focus") : this.nodes[place].index;
        return this.add(linkCard(this.h, this.measure, container, item.link, place));
      }
    }
  }

  /** No two cards have one id: the first operator in an open stretch is not its frame. A page's pill is what it turns. */
  private add(node: SceneNode): number {
    if (this.ids.has(node.id) && node.kind !== "pseudo") node.id = `\u0000again:${this.nodes.length}:${node.id}`;
    this.ids.add(node.id);
    this.nodes.push(node);
    return this.nodes.length - 1;
  }

  /** Draws the inside of a card where that is to be open; places of what was added. */
  private openGroup(place: number): number[] {
    const stretch = this.stretches.get(place);
    const { unit } = this.nodes[place];
    const isOpen = stretch
      ? this.store.get("stretches").has(groupKey(stretch))
      : unit !== undefined && this.opens(unit);
    if (!isOpen) return [];
    const { window = WINDOW } = this.options;
    const parts = stretch ? partsOf(this.flow, stretch) : [];
    const rows = stretch ? parts.length : Math.min(this.items.of(unit ?? 0).length, window);
    if (this.count + rows > nodeLimit()) {
      this.capped = true;
      return [];
    }
    const node = this.nodes[place];
    node.kind = "group";
    node.isGlyph = false;
    node.size = [Math.max(node.size[0], headerWidth(node, this.measure)), 0];
    if (!stretch) return this.addGroup(place, [unit ?? 0]);
    const items = parts.map(part =>
      part.steps.length > 1 ? this.addStretch(part, place) : this.addStep(part.steps[0], place)
    );
    const first = visibleSteps(stretch);
    stretch.steps.slice(first.length).forEach((step, at) => this.repeats.set(step, first[at % first.length]));
    this.groups.push({ node: place, items, nets: [] });
    return items;
  }

  private opens(place: number): boolean {
    const unit = this.units.list[place];
    if (this.items.isContainer(unit)) {
      return this.open.has(unit.node) || !this.h.isContainer(unit.node); // modules that stand elsewhere ran in it
    }
    const count = this.level === "operators" ? this.items.ownSteps(unit).length : 0;
    if (count > MAX_LEAF_OPERATORS) {
      this.capped = true;
    }
    return count > 1 && count <= MAX_LEAF_OPERATORS;
  }

  private addUnit(place: number, parent: number): number {
    const { h } = this;
    const unit = this.units.list[place];
    const { node } = unit;
    const fold = this.items.folded.has(place) ? h.fold(node) : undefined;
    const only = this.onlyStep(place);
    const name = this.nameIn(parent, node);
    const own = unitText(h, unit, name, fold, this.items.isRun(place));
    const code = unit.isLeaf ? moduleOperators(this.flow, this.items.ownSteps(unit), own) : "";
    const text = withFlops(h, this.store, node, code ? { ...own, detail: code } : own);
    if (this.level === "operators" && (!unit.isLeaf || this.items.ownSteps(unit).length > 1)) {
      text.detail = counted(this.units.operators(place), "operator");
    }
    const shown = only === undefined ? text : ofOperator(text, stepText(this.flow, only));
    const badge = fold ? foldBadge(fold) : unit.calls.length > 1 ? words.calls(unit.calls.length) : "";
    const id = unit.ordinal > 0 || this.carded.has(node) ? `\u0000call:${place}:${h.path(node)}` : idOf(h, node);
    const opens = this.items.isContainer(unit) && h.isContainer(node);
    this.carded.add(node);
    this.count++;
    this.cards.set(place, this.nodes.length);
    const [width, height] = cardSize(shown, badge, opens, this.measure);
    return this.add({
      id,
      index: node,
      path: h.path(node),
      unit: place,
      step: only,
      opens,
      parent,
      kind: only !== undefined ? "operator" : fold ? "fold" : "module",
      ...shown,
      badge,
      size: [code ? Math.max(width, widthFor(code, this.measure)) : width, height]
    });
  }

  /** "layers.0" where no frame is drawn for `layers`, which is called by nobody. */
  private nameIn(place: number, node: number): string {
    const frame = place < 0 ? this.store.get("focus") : this.nodes[place].index;
    const above = frame > 0 ? `${this.h.path(frame)}.` : "";
    const path = this.h.path(node);
    return frame >= 0 && path.startsWith(above) ? path.slice(above.length) : this.h.name(node);
  }

  /** The one operator of a leaf module, which is then its card. */
  private onlyStep(place: number): number | undefined {
    const unit = this.units.list[place];
    const steps = this.level === "operators" && unit.isLeaf && unit.calls.length === 1 ? this.items.ownSteps(unit) : [];
    return steps.length === 1 ? steps[0] : undefined;
  }

  private addStep(step: number, parent: number): number {
    this.count++;
    this.placeOfStep[step] = this.nodes.length;
    return this.add(this.operatorCard({ steps: [step] }, stepText(this.flow, step), parent, false));
  }

  private addStretch(stretch: OperatorGroup, parent: number): number {
    const opens = this.level !== "operators" && stretch.steps.length > CLOSED;
    if (opens) {
      this.count++;
      this.stretches.set(this.nodes.length, stretch);
    }
    stretch.steps.forEach(step => (this.placeOfStep[step] = this.nodes.length));
    return this.add(this.operatorCard(stretch, operatorGroupText(this.flow, stretch), parent, opens));
  }

  private operatorCard(
    { steps }: Pick<OperatorGroup, "steps">,
    text: ReturnType<typeof stepText>,
    parent: number,
    opens: boolean
  ): SceneNode {
    return {
      id: idOfSteps(steps),
      index: -1,
      path: null,
      owner: this.units.list[this.units.ofStep(steps[0])].node,
      step: steps[0],
      steps,
      opens,
      parent,
      kind: "operator",
      isGlyph: true,
      ...text,
      badge: "",
      size: glyphSize(text, opens, this.measure)
    };
  }

  /** Where a step is drawn: on its own, or as part of a card; HIDDEN inside an open frame, or OUTSIDE. */
  private placeOf(step: number): number {
    const first = this.repeats.get(step);
    if (first !== undefined) return this.placeOf(first);
    const drawn = this.items.drawnStep(step);
    if (drawn !== undefined) return this.placeOf(drawn);
    const own = this.placeOfStep[step];
    if (own !== HIDDEN) return own;
    const twin = this.items.twinOf(step);
    return twin === undefined ? this.placeOfUnit(this.units.ofStep(step)) : this.placeOfStep[twin];
  }

  /** Whether what a step reads there says no more than that the members of its run follow each other. */
  private isLoop(source: number, step: number): boolean {
    const run = this.items.runOf(step);
    return run !== undefined && this.isInRun(source, run);
  }

  /** Whether both lie in one open group of operators, or in one member of a run, and the source comes later. */
  private leadsBack(source: number, target: number): boolean {
    let [from, to] = [source, target];
    const above = (place: number) => (place < 0 ? place : this.nodes[place].parent);
    const chain = new Set<number>();
    for (let at = from; at >= 0; at = above(at)) chain.add(at);
    while (to >= 0 && !chain.has(above(to))) to = above(to);
    while (from >= 0 && above(from) !== above(to)) from = above(from);
    if (from < 0 || to < 0 || from === to) return false;
    return this.isCyclic(above(to)) && this.timeOf(from) > this.timeOf(to);
  }

  /** Whether what is drawn in a frame stands for others that ran before or after it. */
  private isCyclic(place: number): boolean {
    if (this.stretches.has(place)) return true;
    for (let at = place; at >= 0; at = this.nodes[at].parent) {
      const { unit } = this.nodes[at];
      if (unit !== undefined && this.items.standsForFirst(unit)) return true;
    }
    return false;
  }

  private timeOf(place: number): number {
    const { step, unit } = this.nodes[place];
    return unit === undefined ? (step ?? -1) : this.items.startOf(unit);
  }

  private isInRun(place: number, run: Fold): boolean {
    const { steps, index } = this.nodes[place];
    if (steps?.some(step => this.repeated().get(step) === run)) return true;
    for (let at = place; at >= 0; at = this.nodes[at].parent) {
      if (this.nodes[at].index >= 0 && run.members.includes(this.nodes[at].index)) return true;
    }
    return index >= 0 && run.members.includes(index);
  }

  private repeatedSteps?: Map<number, Fold>;

  /** Steps that stand for those between other members of a run. */
  private repeated(): ReadonlyMap<number, Fold> {
    if (!this.repeatedSteps) {
      this.repeatedSteps = new Map();
      for (let step = 0; step < this.flow.size; step++) {
        const twin = this.items.twinOf(step);
        const run = twin === undefined ? undefined : this.items.runOf(step);
        if (twin !== undefined && run) this.repeatedSteps.set(twin, run);
      }
    }
    return this.repeatedSteps;
  }

  private placeOfUnit(unit: number): number {
    let place = this.standIns.get(unit);
    if (place === undefined) {
      place = this.findPlace(unit);
      this.standIns.set(unit, place);
    }
    return place;
  }

  private findPlace(unit: number): number {
    if (this.opened.has(unit)) {
      return HIDDEN;
    }
    const card = this.cards.get(unit);
    if (card !== undefined) {
      return card;
    }
    const { node, parent, ordinal } = this.units.list[unit];
    if (parent < 0) {
      return OUTSIDE;
    }
    if (!this.opened.has(parent)) {
      return this.placeOfUnit(parent);
    }
    return this.drawnMember(this.h.fold(node)?.members ?? [], parent, ordinal);
  }

  /** Of a folded run the card of the member that is drawn. */
  private drawnMember(members: readonly number[], parent: number, ordinal: number): number {
    const siblings = this.units.list[parent].children.filter(child => this.cards.has(child));
    const drawn = siblings.filter(child => members.includes(this.units.list[child].node));
    const same = drawn.find(child => this.units.list[child].ordinal === ordinal) ?? drawn[0];
    return (same === undefined ? undefined : this.cards.get(same)) ?? HIDDEN;
  }

  private pill(id: string, title: string, parent = -1): number {
    const short = title.length > MAX_TITLE ? `${title.slice(0, MAX_TITLE - 1)}…` : title;
    return this.add(pillCard(this.measure, id, short, parent));
  }
}

/** A module that is one operator: its name, and that of the operator in place of the class. */
const ofOperator = (module: CardText, operator: CardText): CardText =>
  module.name ? { ...module, subtitle: operator.title, detail: operator.detail } : operator;

/** Of the card of some operators. */
export const idOfSteps = (steps: readonly number[]): string =>
  steps.length === 1 ? `\u0000op:${steps[0]}` : `\u0000ops:${groupKey({ steps })}`;
