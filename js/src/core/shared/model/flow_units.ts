// Units of a data-flow view, a card each: a call of a module, told apart from its other calls.

import type { Dataflow } from "./dataflow";
import type { Hierarchy } from "./hierarchy";

export type FlowLevel = "hierarchy" | "dataflow" | "operators";

export const MAX_CALLS = 6; // of one module in one call of its container; with more they are one card

export const OUTSIDE = -1;

export interface Unit {
  node: number;
  parent: number; // place in the list; -1 for the model
  ordinal: number; // which of the calls of its module in one call of its container
  of: number; // how many of these there are
  calls: number[];
  children: number[];
  steps: number[]; // run by its own code
  isLeaf: boolean; // no other module ran in it
}

export class Units {
  readonly list: Unit[] = [];
  private readonly origins = new Map<number, ReadonlyMap<number, ReadonlySet<number>>>(); // by container
  private readonly ofCall: Int32Array;

  private readonly places = new Map<string, number>();

  /** `within`: with the containers of this tree that are not called themselves, around what is called in them. */
  constructor(
    private readonly flow: Dataflow,
    within?: Hierarchy
  ) {
    const { node, parent } = flow.payload.calls;
    this.ofCall = new Int32Array(node.length);
    const counts = repetitions(node, parent);
    for (let call = 0; call < node.length; call++) {
      const caller = call === 0 ? -1 : this.ofCall[parent[call]];
      const above = within && call > 0 ? this.within(within, caller, node[call]) : caller;
      const place = this.unit(above, node[call], counts[call]);
      this.list[place].calls.push(call);
      this.ofCall[call] = place;
    }
    flow.payload.steps.call.forEach((call, step) => this.list[this.ofCall[call]].steps.push(step));
  }

  private unit(parent: number, node: number, { ordinal, of }: Repetition): number {
    const key = `${parent} ${node} ${ordinal}`;
    let place = this.places.get(key);
    if (place === undefined) {
      place = this.list.length;
      this.places.set(key, place);
      this.list.push({ node, parent, ordinal, of, calls: [], children: [], steps: [], isLeaf: true });
      if (parent >= 0) {
        this.list[parent].children.push(place);
        this.list[parent].isLeaf = false;
      }
    }
    return place;
  }

  /** The unit in which a module stands that `caller` calls: one for each container between them. */
  private within(h: Hierarchy, caller: number, node: number): number {
    const above = h.ancestors(node);
    const from = above.indexOf(this.list[caller].node);
    const between = from < 0 ? [] : above.slice(from + 1);
    return between.reduce((place, container) => this.unit(place, container, { ordinal: 0, of: 1 }), caller);
  }

  /** The unit whose own code ran a step. */
  ofStep(step: number): number {
    return this.ofCall[this.flow.payload.steps.call[step]];
  }

  /** Between which steps all of its calls ran, and all that they called. */
  span(place: number): [start: number, end: number] {
    const { flow } = this;
    const { calls } = this.list[place];
    const start = Math.min(...calls.map(call => flow.firstStep(call)));
    const end = Math.max(...calls.map(call => flow.firstStep(flow.end(call))));
    return [start, end];
  }

  /** The units of a module. */
  ofNode(node: number): number[] {
    return [...new Set(this.flow.callsOf(node).map(call => this.ofCall[call]))];
  }

  /** Whether the units are a run in the flow: what each gives reaches the next, if only by the code between them. */
  isRun(units: readonly number[]): boolean {
    const { parent } = this.list[units[0]];
    const origins = this.originsIn(parent);
    return units.slice(1).every((unit, i) => origins.get(unit)?.has(units[i]) ?? false);
  }

  /** Whether none of the units gives anything to another. */
  areApart(units: readonly number[]): boolean {
    const origins = this.originsIn(this.list[units[0]].parent);
    return units.every(unit => units.every(other => other === unit || !origins.get(unit)?.has(other)));
  }

  /** For each unit in `parent` the other ones there whose values reach it, by the code of `parent` alone. */
  private originsIn(parent: number): ReadonlyMap<number, ReadonlySet<number>> {
    let found = this.origins.get(parent);
    if (!found) {
      found = this.findOrigins(parent);
      this.origins.set(parent, found);
    }
    return found;
  }

  private findOrigins(parent: number): Map<number, Set<number>> {
    const { steps } = this.flow.payload;
    const read = new Map<number, Set<number>>(); // unit -> units
    const carried = new Map<number, ReadonlySet<number>>(); // value -> units that it comes from
    const caller = this.callerOf(parent);
    const [start, end] = this.span(caller);
    for (let step = start; step < end; step++) {
      const unit = this.ofStep(step);
      const child = unit === caller ? parent : this.childOf(parent, unit);
      if (child === OUTSIDE) {
        continue;
      }
      const sources = new Set(steps.inputs[step].flatMap(value => [...(carried.get(value) ?? [])]));
      if (child !== parent) {
        const known = read.get(child) ?? new Set<number>();
        sources.forEach(source => known.add(source));
        read.set(child, known);
      }
      const gives = child === parent ? sources : new Set([child]);
      this.flow.values(step).forEach(value => carried.set(value, gives));
    }
    return read;
  }

  /** The unit directly in `parent` that `unit` is or ran in; `parent` itself, or OUTSIDE. */
  childOf(parent: number, unit: number): number {
    let at = unit;
    while (at > parent && this.list[at].parent !== parent) {
      at = this.list[at].parent;
    }
    return at >= parent ? at : OUTSIDE;
  }

  /** The innermost unit that all of these stand in, or OUTSIDE. */
  around(units: readonly number[]): number {
    const above = (unit: number) => {
      const found: number[] = [];
      for (let at = this.list[unit].parent; at >= 0; at = this.list[at].parent) found.push(at);
      return found;
    };
    const [first, ...rest] = units.map(above);
    return first?.find(at => rest.every(other => other.includes(at))) ?? OUTSIDE;
  }

  /** The unit whose code calls what stands in `place`: a container that is not called has none of its own. */
  callerOf(place: number): number {
    let at = place;
    while (this.list[at].calls.length === 0) {
      at = this.list[at].parent;
    }
    return at;
  }

  /** The call that `caller` made and in which `unit` ran, itself included; `caller` itself, or OUTSIDE. */
  calleeOf(caller: number, unit: number): number {
    let [at, callee] = [unit, unit];
    while (at > caller) {
      if (this.list[at].calls.length > 0) {
        callee = at;
      }
      at = this.list[at].parent;
    }
    return at === caller ? (unit === caller ? caller : callee) : OUTSIDE;
  }

  /** How many operators ran in a unit and below, over all its calls. */
  operators(place: number): number {
    return this.list[place].calls.reduce((sum, call) => sum + this.flow.operators(call), 0);
  }
}

const known = [new WeakMap<Dataflow, Units>(), new WeakMap<Dataflow, Units>()];

/** The units of a trace: in the hierarchy with the containers that are not called themselves. */
export function unitsOf(flow: Dataflow, h: Hierarchy, level: FlowLevel): Units {
  const within = level === "hierarchy";
  const cache = known[within ? 1 : 0];
  let units = cache.get(flow);
  if (!units) {
    units = new Units(flow, within ? h : undefined);
    cache.set(flow, units);
  }
  return units;
}

interface Repetition {
  ordinal: number;
  of: number;
}

function repetitions(node: readonly number[], parent: readonly number[]): Repetition[] {
  const seen = new Map<string, number>();
  const ordinals = node.map((module, call) => {
    const key = `${parent[call]} ${module}`;
    const ordinal = seen.get(key) ?? 0;
    seen.set(key, ordinal + 1);
    return { key, ordinal };
  });
  return ordinals.map(({ key, ordinal }) => {
    const of = seen.get(key) ?? 1;
    return of > MAX_CALLS ? { ordinal: 0, of: 1 } : { ordinal, of };
  });
}
