// The items of an open call of a module: calls of others, groups of its own operators, modules never called.

import type { Dataflow } from "../../shared/model/dataflow";
import type { Fold, Hierarchy, Link } from "../../shared/model/hierarchy";
import { push } from "../../shared/base/multimap";
import { visibleRows } from "../../shared/model/expansion";
import { MAX_LINKS } from "../scene/scene";
import type { GraphStore } from "../../shared/model/graph_store";
import type { FlowLevel, Unit, Units } from "../../shared/model/flow_units";
import { type OperatorGroup, operatorGroups } from "../../shared/model/operator_groups";

export type Item =
  | { kind: "unit"; unit: number }
  | { kind: "step"; step: number }
  | { kind: "stretch"; stretch: OperatorGroup }
  | { kind: "module"; node: number } // never called
  | { kind: "link"; link: Link };

const MAX_EQUAL_MODULES = 12; // modules of one sort that are drawn side by side
const MAX_LINKED_MODULES = 32; // the same, where some of them give to others: how they do is what is to be seen
const MAX_SINGLE_OPERATORS = 4; // operators of one stretch that are drawn one by one there

export class FlowItems {
  readonly folded = new Set<number>(); // units that stand for a run, or are stood for
  readonly hidden = new Map<number, Fold>(); // units of members that are not drawn, with their runs
  private readonly twins = new Map<number, number>(); // step of a stretch that is not drawn -> step of the one that is
  private readonly dropped = new Map<number, Fold>(); // steps of such stretches
  private readonly known = new Map<number, Item[]>();
  private readonly standIns = new Map<number, Steps>(); // unit that is drawn for the first of its run -> steps of that one

  constructor(
    private readonly h: Hierarchy,
    private readonly flow: Dataflow,
    private readonly units: Units,
    private readonly store: GraphStore,
    private readonly level: FlowLevel
  ) {}

  /** In the order of time. */
  of(place: number): readonly Item[] {
    let items = this.known.get(place);
    if (!items) {
      items = this.find(place);
      this.known.set(place, items);
    }
    return items;
  }

  /** Whether the members of the run that a unit stands for give to each other. */
  isRun(place: number): boolean {
    const { node, parent } = this.units.list[place];
    const members = this.foldOf(node)?.members ?? [];
    const called = this.units.list[parent]?.children.filter(child => members.includes(this.units.list[child].node));
    return called !== undefined && called.length > 1 && this.units.isRun(called);
  }

  /** The step that is drawn for one between members of a run. */
  twinOf(step: number): number | undefined {
    return this.twins.get(step);
  }

  /** Of the first member of a run, which gets what leads into it: the step of the one that is drawn for it. */
  drawnStep(step: number): number | undefined {
    for (const { start, end, shift } of this.standIns.values()) if (step >= start && step < end) return step + shift;
    return undefined;
  }

  standsForFirst(place: number): boolean {
    return this.standIns.has(place);
  }

  /** The run of which a step is a part that is not drawn. */
  runOf(step: number): Fold | undefined {
    const own = this.dropped.get(step);
    for (let unit = this.units.ofStep(step); own === undefined && unit >= 0; unit = this.units.list[unit].parent) {
      const run = this.hidden.get(unit);
      if (run) return run;
    }
    return own;
  }

  /** Whether there are modules to open in a unit: in the hierarchy also such as were never called. */
  isContainer({ isLeaf, node }: Unit): boolean {
    return !isLeaf || (this.level === "hierarchy" && this.h.isContainer(node));
  }

  /** Steps of a unit's own code that an operator view draws. */
  ownSteps(unit: Unit): readonly number[] {
    let steps = drawnSteps.get(unit);
    if (!steps) {
      steps = unit.steps.filter(step => this.flow.fullName(step) !== "" && !this.flow.isAside(step));
      drawnSteps.set(unit, steps);
    }
    return steps;
  }

  private find(place: number): Item[] {
    const unit = this.units.list[place];
    const children = this.childrenOf(unit);
    const timed = children.map(child => ({ item: { kind: "unit", unit: child } as Item, at: this.startOf(child) }));
    for (const item of this.codeOf(place, unit)) {
      timed.push({ item, at: item.kind === "stretch" ? item.stretch.steps[0] : (item as { step: number }).step });
    }
    timed.sort((a, b) => a.at - b.at);
    return [...timed.map(({ item }) => item), ...this.uncalled(unit)];
  }

  /** Its first step, and what comes before: of a call without operators where it would be. */
  startOf(place: number): number {
    const { calls, children } = this.units.list[place];
    const own = calls.map(call => this.flow.firstStep(call) - 0.5);
    return Math.min(...own, ...(own.length > 0 ? [] : children.map(child => this.startOf(child))));
  }

  /** Its own code: at the level of operators step by step, else in stretches. */
  private codeOf(place: number, unit: Unit): Item[] {
    const one = (step: number): Item => ({ kind: "step", step });
    if (this.level === "operators" || (unit.isLeaf && unit.node === this.store.get("focus"))) {
      return this.ownSteps(unit).map(one);
    }
    if (!this.isContainer(unit)) return [];
    const drawn = this.codeIn(place);
    if (this.level === "hierarchy") {
      return drawn.filter(({ isVisible }) => isVisible).map(stretch => ({ kind: "stretch", stretch }));
    }
    return drawn.flatMap(stretch =>
      stretch.isConstant || stretch.steps.length > MAX_SINGLE_OPERATORS
        ? [{ kind: "stretch", stretch } as Item]
        : stretch.steps.map(one)
    );
  }

  private childrenOf(unit: Unit): number[] {
    const drawn = new Map<Fold, number>(); // the member that is drawn
    for (const [fold, members] of this.foldsIn(unit)) {
      const wanted = this.store.get("shown").get(fold.first) ?? fold.first;
      const called = new Set(members.map(member => this.units.list[member].node));
      drawn.set(fold, called.has(wanted) ? wanted : this.units.list[members[0]].node);
      this.standForFirst(members, members.find(member => this.units.list[member].node === wanted) ?? members[0]);
    }
    return unit.children.filter(child => {
      const { node } = this.units.list[child];
      const fold = this.foldOf(node);
      const member = fold && drawn.get(fold);
      if (!fold || member === undefined) return true;
      this.folded.add(child);
      if (member !== node) this.hidden.set(child, fold);
      return member === node;
    });
  }

  /** Where another member of a run is drawn than the first, and does the same. */
  private standForFirst([first]: readonly number[], drawn: number): void {
    const [from, to] = [this.stepsOf(first), this.stepsOf(drawn)];
    const isAlike = from.names.length === to.names.length && from.names.every((name, at) => name === to.names[at]);
    if (drawn === first || from.names.length === 0 || !isAlike) return;
    this.standIns.set(drawn, { start: from.start, end: from.start + from.names.length, shift: to.start - from.start });
  }

  /** The first step of the first call, and the operators from there on to its end. */
  private stepsOf(place: number): { start: number; names: readonly number[] } {
    const { call, name } = this.flow.payload.steps;
    const [of] = this.units.list[place].calls;
    const start = of === undefined ? 0 : this.flow.firstStep(of);
    let end = start;
    while (of !== undefined && end < this.flow.size && call[end] >= of && call[end] < this.flow.end(of)) end++;
    return { start, names: name.slice(start, end) };
  }

  /** Finds which modules are folded in the containers of a call that are not called, open or not: its code is between them. */
  private foldBelow(place: number): void {
    const unit = this.units.list[place];
    this.childrenOf(unit);
    unit.children.filter(child => this.units.list[child].calls.length === 0).forEach(child => this.foldBelow(child));
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
      const isRun = this.units.isRun(members) && this.isEven(unit, members);
      const most = this.units.areApart(members) ? MAX_EQUAL_MODULES : MAX_LINKED_MODULES;
      if (members.length <= most && !isRun) {
        found.delete(fold);
      }
    }
    return found;
  }

  /** Whether the same is called and computed between all members: two norms around a module are alike, but no run. */
  private isEven({ children }: Unit, members: readonly number[]): boolean {
    const places = members.map(member => children.indexOf(member));
    const code = this.codeBetween(members);
    const between = places.slice(1).map((place, i) => [
      ...children.slice(places[i] + 1, place).flatMap(child => {
        const { node, of } = this.units.list[child];
        return members.includes(child) ? [] : [this.h.fold(node)?.first ?? node, ...(of > 1 ? [] : [SINGLE])];
      }),
      ...code[i].flatMap(text => [text, SINGLE])
    ]);
    const kinds = new Set(between.map(kind => kind.join(" ")));
    return kinds.size === 1 && (members.length > 2 || !between[0].includes(SINGLE));
  }

  /** Of each member but the last the code that is drawn between it and the next one. */
  private codeBetween(members: readonly number[]): string[][] {
    const { parent } = this.units.list[members[0]];
    const at = new Map(members.map((member, i) => [member, i]));
    const found: string[][] = members.slice(1).map(() => []);
    const placesOf = (calls: ReadonlySet<number>) =>
      new Set([...calls].map(call => at.get(this.units.childOf(parent, call)) ?? -1));
    for (const { stretch, read, readers } of this.codeOfCaller(this.units.callerOf(parent))) {
      if (!stretch.isVisible) continue;
      const next = placesOf(readers);
      for (const place of placesOf(read)) {
        if (place >= 0 && next.has(place + 1)) found[place].push(signature(this.flow, stretch));
      }
    }
    return found;
  }

  /** The stretches that stand in a unit, without those that repeat with the members of a run, or with the calls of a card. */
  private codeIn(place: number): OperatorGroup[] {
    const caller = this.units.callerOf(place);
    this.foldBelow(caller);
    const code = this.codeOfCaller(caller);
    const around = this.withoutTwins(code.filter(({ home }) => home === place)).map(({ stretch }) => stretch);
    this.standFor(place, around, code);
    return around;
  }

  /** The code of the member that is drawn stands for that in the others of its run. */
  private standFor(place: number, drawn: readonly OperatorGroup[], code: readonly Code[]): void {
    const run = this.folded.has(place) ? this.foldOf(this.units.list[place].node) : undefined;
    const left = new Map<string, OperatorGroup[]>(); // of another member: what is drawn and stands for nothing in it yet
    for (const { stretch, home } of run ? code : []) {
      const isOther = this.hidden.get(home) === run && this.units.list[home].parent === this.units.list[place].parent;
      if (!run || !isOther) continue;
      const name = signature(this.flow, stretch);
      const key = `${home} ${name}`;
      const same = left.get(key) ?? drawn.filter(one => signature(this.flow, one) === name);
      const [twin, ...rest] = same;
      left.set(key, rest);
      if (twin) this.drop(stretch, twin, run);
    }
  }

  private drop({ steps }: OperatorGroup, twin: OperatorGroup, run?: Fold): void {
    steps.forEach((step, k) => {
      if (run) this.dropped.set(step, run);
      this.twins.set(step, twin.steps[k]);
    });
  }

  /** The code of a call, with where it stands: in a container that is not called, if it lies between what is called there. */
  private codeOfCaller(caller: number): Code[] {
    const { flow, units } = this;
    const known = codes.get(units) ?? new Map<number, Code[]>();
    codes.set(units, known);
    let code = known.get(caller);
    if (!code) {
      code = touching(flow, units, caller, operatorGroups(flow, units, caller));
      settle(code, units, flow, this.h);
      known.set(caller, code);
    }
    return code;
  }

  private withoutTwins(all: readonly Code[]): Code[] {
    const first = new Map<string, OperatorGroup>();
    return all.filter(({ stretch, read, readers }) => {
      const around = [...read, ...readers];
      const member = around.find(child => this.folded.has(child));
      const run = member === undefined ? undefined : this.foldOf(this.units.list[member].node);
      const isRepeated = around.some(child => this.units.list[child].calls.length > 1);
      if (!run && !isRepeated) return true;
      const named = [read, readers].map(some => [...some].filter(child => !run || this.isDrawnApart(child)).join(" "));
      const key = `${run?.first} ${named.join(" to ")} ${signature(this.flow, stretch)}`;
      const twin = first.get(key);
      if (!twin) {
        first.set(key, stretch);
        return true;
      }
      this.drop(stretch, twin, run);
      return false;
    });
  }

  /** Whether a unit has a run but is drawn by itself: code beside it is not that beside another member. */
  private isDrawnApart(child: number): boolean {
    return !this.folded.has(child) && this.h.fold(this.units.list[child].node) !== undefined;
  }

  /** Modules of the container that the forward pass did not call, and slots whose module has its place elsewhere. */
  private uncalled({ node, children }: Unit): Item[] {
    if (this.level !== "hierarchy" || !this.h.isContainer(node)) return [];
    const called = new Set(children.map(child => this.units.list[child].node));
    const isCalled = (row: number) =>
      called.has(row) || (this.foldOf(row)?.members.some(member => called.has(member)) ?? false);
    const rows = visibleRows(this.h, this.store, node).filter(row => !isCalled(row));
    const links = this.h.links(node).filter(({ target }) => !called.has(target));
    return [
      ...rows.map(row => ({ kind: "module", node: row }) as Item),
      ...links.slice(0, MAX_LINKS).map(link => ({ kind: "link", link }) as Item)
    ];
  }
}

interface Steps {
  start: number;
  end: number;
  shift: number; // from one of them to that of the member that is drawn
}

const drawnSteps = new WeakMap<Unit, readonly number[]>();
const codes = new WeakMap<Units, Map<number, Code[]>>(); // by caller

/** A stretch, where it stands, and what is called around it. */
interface Code {
  stretch: OperatorGroup;
  read: Set<number>; // calls whose values it reads
  readers: Set<number>; // calls that read its values
  home: number; // unit
}

function touching(flow: Dataflow, units: Units, caller: number, all: readonly OperatorGroup[]): Code[] {
  const code = all.map(stretch => ({
    stretch,
    read: new Set<number>(),
    readers: new Set<number>(),
    home: caller
  }));
  const owner = new Map<number, number>(); // step -> stretch
  all.forEach(({ steps }, at) => steps.forEach(step => owner.set(step, at)));
  const [start, end] = units.span(caller);
  for (let step = start; step < end; step++) {
    for (const value of flow.payload.steps.inputs[step]) {
      const maker = flow.payload.values.step[value];
      const [from, to] = [owner.get(maker), owner.get(step)];
      if (maker < 0 || from === to) continue;
      if (to !== undefined && from === undefined) {
        const callee = units.calleeOf(caller, units.ofStep(maker));
        if (callee > caller) code[to].read.add(callee);
      }
      if (from !== undefined && to === undefined) {
        const callee = units.calleeOf(caller, units.ofStep(step));
        if (callee > caller) code[from].readers.add(callee);
      }
    }
  }
  return code;
}

/**
 * Code between calls in one container stands there; and so does what does the same around others of these calls, and what
 * does the same with what each of several alike containers gave.
 */
function settle(code: Code[], units: Units, flow: Dataflow, h: Hierarchy): void {
  const parents = (calls: ReadonlySet<number>) => new Set([...calls].map(call => units.list[call].parent));
  const settled = new Map<string, Set<number>>(); // signature -> where such code stands
  for (const one of code) {
    const [read, readers] = [parents(one.read), parents(one.readers)];
    const home = [...read].find(parent => readers.has(parent) && parent !== one.home);
    if (home !== undefined) {
      one.home = home;
      const key = signature(flow, one.stretch);
      settled.set(key, (settled.get(key) ?? new Set()).add(home));
    }
  }
  for (const one of code) {
    const homes = settled.get(signature(flow, one.stretch));
    const home = [...parents(one.read), ...parents(one.readers)].find(parent => homes?.has(parent));
    if (home !== undefined) one.home = home;
  }
  const alike = new Map<string, [Code, number][]>(); // run and signature -> code that reads nothing but of one member
  for (const one of code) {
    const member = units.around([...one.read]);
    const run = member > one.home ? h.fold(units.list[member].node) : undefined;
    if (run) push(alike, `${run.first} ${signature(flow, one.stretch)}`, [one, member]);
  }
  for (const found of alike.values()) {
    if (found.length > 1) found.forEach(([one, member]) => (one.home = member));
  }
}

const signature = (flow: Dataflow, { steps }: OperatorGroup): string =>
  steps.map(step => flow.fullName(step)).join(" ");
const SINGLE = -1; // among what is between others: that it is called once
