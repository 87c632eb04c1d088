// What the canvas draws of a forward pass: calls of modules and, between or inside them, operators.

import { cardSize, cardText, type CardText } from "./cards";
import type { Dataflow } from "../shared/dataflow";
import { flowEdges, HIDDEN, OUTSIDE } from "./flow_links";
import { type Unit, Units } from "./flow_units";
import { counted } from "../shared/format";
import type { Fold, Hierarchy } from "../shared/hierarchy";
import { type Measure, oneLine } from "../shared/canvas";
import { hardLimit, openNodes } from "../shared/reveal";
import { foldBadge, headerWidth, idOf, PILL } from "./scene";
import { intoGroups } from "./scene_groups";
import type { Store } from "../shared/store";
import type { LayoutGroup } from "./layout_types";
import { INPUT, OUTPUT, type Scene, type SceneNode } from "./scene_types";

export type FlowLevel = "dataflow" | "operators";

export const REST = "\u0000rest:"; // what one frame has too much of
const MOST_ITEMS = 160; // in one frame; with more, the picture is a thread nobody follows
const MOST_ALIKE = 12; // modules of one sort that are drawn side by side
const MOST_INSIDE = 60; // operators of one leaf module that are drawn without being asked for

/** Null where the inside of the focus was never called. */
export function buildFlowScene(
  h: Hierarchy,
  flow: Dataflow,
  store: Store,
  measure: Measure,
  level: FlowLevel
): Scene | null {
  const units = unitsOf(flow);
  const roots = units.ofNode(store.get("focus"));
  return roots.length > 0 ? new FlowSceneBuilder(h, flow, units, store, measure, level).build(roots) : null;
}

const known = new WeakMap<Dataflow, Units>();

function unitsOf(flow: Dataflow): Units {
  let units = known.get(flow);
  if (!units) {
    units = new Units(flow);
    known.set(flow, units);
  }
  return units;
}

type Item = { unit: number } | { step: number };

class FlowSceneBuilder {
  private readonly nodes: SceneNode[] = [];
  private readonly groups: LayoutGroup[] = [];
  private readonly cards = new Map<number, number>(); // unit -> place
  private readonly placeOfStep: Int32Array; // place, or HIDDEN
  private readonly opened = new Set<number>(); // units drawn as frames
  private readonly carded = new Set<number>(); // nodes that have a card
  private readonly folded = new Set<number>(); // units that stand for a run, or are stood for
  private readonly standIns = new Map<number, number>(); // unit -> place, HIDDEN or OUTSIDE
  private readonly open: ReadonlySet<number>;
  private count = 0;
  private capped = false;

  constructor(
    private readonly h: Hierarchy,
    private readonly flow: Dataflow,
    private readonly units: Units,
    private readonly store: Store,
    private readonly measure: Measure,
    private readonly level: FlowLevel
  ) {
    this.open = openNodes(h, store.get("expanded"));
    this.placeOfStep = new Int32Array(flow.size).fill(HIDDEN);
  }

  build(roots: readonly number[]): Scene {
    const { flow } = this;
    const whole = this.store.get("focus") === 0;
    const inputs = whole
      ? flow.payload.inputs.map(([name], i) => this.pill(i ? `${INPUT}:${i}` : INPUT, `input ${name}`))
      : [];
    if (inputs.length === 0) {
      inputs.push(this.pill(INPUT, "input"));
    }
    const pending = this.addGroup(-1, roots, inputs);
    for (let at = 0; at < pending.length; at++) {
      pending.push(...this.openGroup(pending[at]));
    }
    const outputs = this.outputs(whole);
    const edges = flowEdges(flow, this.nodes, step => this.placeOf(step), { inputs, outputs, whole });
    intoGroups(this.nodes, edges, this.groups, this.measure);
    this.groups.reverse();
    return { nodes: this.nodes, edges, groups: this.groups, count: this.count, capped: this.capped };
  }

  private outputs(whole: boolean): number[] {
    const { outputs } = this.flow.payload;
    const canvas = this.groups[0];
    const count = whole && this.flow.payload.outputs.length > 0 ? outputs.length : 1;
    const many = count > 1 && count <= 8;
    const places = Array.from({ length: many ? count : 1 }, (_, i) =>
      this.pill(i ? `${OUTPUT}:${i}` : OUTPUT, many ? `output ${i + 1}` : "output")
    );
    canvas.items.push(...places);
    return places;
  }

  /** The canvas (place -1) or a frame; places of the units in it that might be opened. */
  private addGroup(place: number, roots: readonly number[], before: readonly number[] = []): number[] {
    const all = roots.flatMap(root => this.itemsOf(root));
    const drawn = all.slice(0, MOST_ITEMS);
    const items = [...before];
    const inside: number[] = [];
    for (const item of drawn) {
      const at = "unit" in item ? this.addUnit(item.unit, place) : this.addStep(item.step, place);
      items.push(at);
      if ("unit" in item) {
        inside.push(at);
      }
    }
    if (all.length > drawn.length) {
      items.push(this.addRest(all.slice(MOST_ITEMS), place));
      this.capped = true;
    }
    roots.forEach(root => this.opened.add(root));
    this.groups.push({ node: place, items, edges: [] });
    return inside;
  }

  private addRest(rest: readonly Item[], parent: number): number {
    const place = this.pill(`${REST}${parent}`, `⋯ ${rest.length} more`, parent);
    for (const item of rest) {
      if ("step" in item) {
        this.placeOfStep[item.step] = place;
      } else {
        this.cards.set(item.unit, place);
      }
    }
    return place;
  }

  private openGroup(place: number): number[] {
    const unit = this.unitAt(place);
    const rows = Math.min(this.itemsOf(unit).length, MOST_ITEMS);
    if (!this.opens(unit)) {
      return [];
    }
    if (this.count + rows > hardLimit()) {
      this.capped = true;
      return [];
    }
    const node = this.nodes[place];
    node.kind = "group";
    node.size = [Math.max(node.size[0], headerWidth(node, this.measure)), 0];
    return this.addGroup(place, [unit]);
  }

  private unitAt(place: number): number {
    return this.nodes[place].unit ?? -1;
  }

  private opens(place: number): boolean {
    const unit = this.units.list[place];
    if (!unit.isLeaf) {
      return this.open.has(unit.node) || !this.h.isContainer(unit.node); // modules that stand elsewhere ran in it
    }
    const count = this.level === "operators" ? this.ownSteps(unit).length : 0;
    if (count > MOST_INSIDE) {
      this.capped = true;
    }
    return count > 1 && count <= MOST_INSIDE;
  }

  /** What stands in an open unit, in the order of time. */
  private itemsOf(place: number): Item[] {
    const unit = this.units.list[place];
    const children = this.childrenOf(unit).map(child => ({ unit: child, at: this.startOf(child) }));
    const steps = this.ownSteps(unit).map(step => ({ step, at: step }));
    return [...children, ...steps].sort((a, b) => a.at - b.at);
  }

  private startOf(place: number): number {
    return Math.min(...this.units.list[place].calls.map(call => this.flow.firstStep(call))) - 0.5;
  }

  /** Steps of its own code that are drawn: at module level those that make something of what they get. */
  private ownSteps(unit: Unit): number[] {
    const { flow } = this;
    const operators = unit.steps.filter(step => flow.fullName(step) !== "" && !flow.isAside(step));
    if (this.level === "operators") {
      return operators;
    }
    const { inputs } = flow.payload.steps;
    return unit.isLeaf && unit.node !== this.store.get("focus")
      ? []
      : operators.filter(step => inputs[step].length > 0 && !flow.isView(step));
  }

  /** Of a folded run the calls of one member. */
  private childrenOf(unit: Unit): number[] {
    const { store } = this;
    const drawn = new Map<Fold, number>(); // the member that is drawn
    for (const [fold, members] of this.foldsIn(unit)) {
      const wanted = store.get("shown").get(fold.first) ?? fold.first;
      const called = new Set(members.map(member => this.units.list[member].node));
      drawn.set(fold, called.has(wanted) ? wanted : this.units.list[members[0]].node);
    }
    return unit.children.filter(child => {
      const { node } = this.units.list[child];
      const member = drawn.get(this.foldOf(node) as Fold);
      if (member !== undefined) {
        this.folded.add(child);
      }
      return member === undefined || member === node;
    });
  }

  private foldOf(node: number): Fold | undefined {
    const fold = this.h.fold(node);
    return fold && !this.store.get("unfolded").has(fold.first) ? fold : undefined;
  }

  /** Alike modules are one card where they follow each other in the flow too, or where there are very many. */
  private foldsIn(unit: Unit): Map<Fold, number[]> {
    const found = new Map<Fold, number[]>();
    for (const child of unit.children) {
      const fold = this.foldOf(this.units.list[child].node);
      if (fold) {
        const members = found.get(fold) ?? [];
        members.push(child);
        found.set(fold, members);
      }
    }
    for (const [fold, members] of found) {
      if (members.length <= MOST_ALIKE && !this.units.isRun(members)) {
        found.delete(fold);
      }
    }
    return found;
  }

  private addUnit(place: number, parent: number): number {
    const { h } = this;
    const unit = this.units.list[place];
    const { node } = unit;
    const fold = this.folded.has(place) ? h.fold(node) : undefined;
    const only = this.onlyStep(unit);
    const text =
      only === undefined ? this.unitText(unit, place) : { ...this.stepText(only), subtitle: this.slot(unit) };
    const badge = fold ? foldBadge(fold) : unit.calls.length > 1 ? `${unit.calls.length} calls` : "";
    const id = unit.ordinal > 0 || this.carded.has(node) ? `\u0000call:${place}:${h.path(node)}` : idOf(h, node);
    const opens = !unit.isLeaf && h.isContainer(node);
    this.carded.add(node);
    this.count++;
    this.cards.set(place, this.nodes.length);
    this.nodes.push({
      id,
      index: node,
      path: h.path(node),
      unit: place,
      step: only,
      opens,
      parent,
      kind: only !== undefined ? "operator" : fold ? "fold" : "module",
      ...text,
      badge,
      size: cardSize(text, badge, opens, this.measure)
    });
    return this.nodes.length - 1;
  }

  /** The one operator of a leaf module, which is then its card. */
  private onlyStep(unit: Unit): number | undefined {
    const steps = this.level === "operators" && unit.isLeaf && unit.calls.length === 1 ? this.ownSteps(unit) : [];
    return steps.length === 1 ? steps[0] : undefined;
  }

  private slot({ node, ordinal, of }: Unit): string {
    const name = cardText(this.h, node).subtitle;
    return of > 1 ? `${name} · call ${ordinal + 1} of ${of}` : name;
  }

  private unitText(unit: Unit, place: number): CardText {
    const text = { ...cardText(this.h, unit.node), subtitle: this.slot(unit) };
    if (this.level === "operators" && (!unit.isLeaf || this.ownSteps(unit).length > 1)) {
      text.detail = counted(this.units.operators(place), "operator");
    }
    return text;
  }

  private stepText(step: number): CardText {
    const detail = this.flow.tensorNames(step).join(", ");
    return { title: oneLine(this.flow.name(step)), subtitle: "", detail: oneLine(detail) };
  }

  private addStep(step: number, parent: number): number {
    const text = this.stepText(step);
    const owner = this.units.list[this.units.ofStep(step)].node;
    this.count++;
    this.placeOfStep[step] = this.nodes.length;
    this.nodes.push({
      id: `\u0000op:${step}`,
      index: -1,
      path: null,
      owner,
      step,
      parent,
      kind: "operator",
      ...text,
      badge: "",
      size: cardSize(text, "", false, this.measure)
    });
    return this.nodes.length - 1;
  }

  /** Where a step is drawn: on its own, or as part of a card; HIDDEN inside an open frame, or OUTSIDE. */
  private placeOf(step: number): number {
    const own = this.placeOfStep[step];
    return own === HIDDEN ? this.placeOfUnit(this.units.ofStep(step)) : own;
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
    const short = oneLine(title).slice(0, 40);
    const width = Math.max(PILL[0], Math.ceil(this.measure(short, 12, false)) + 28);
    const text = { title: short, subtitle: "", detail: "", badge: "" };
    this.nodes.push({ id, index: -1, path: null, parent, kind: "pseudo", ...text, size: [width, PILL[1]] });
    return this.nodes.length - 1;
  }
}
