// What a data-flow view draws one card for: a call of a module, told apart from its other calls.

import type { Dataflow } from "../shared/dataflow";

export const MOST_CALLS = 6; // of one module in one call of its container; with more they are one card

const OUTSIDE = -1;

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

  constructor(private readonly flow: Dataflow) {
    const { node, parent } = flow.payload.calls;
    this.ofCall = new Int32Array(node.length);
    const counts = repetitions(node, parent);
    const places = new Map<string, number>();
    for (let call = 0; call < node.length; call++) {
      const above = call === 0 ? -1 : this.ofCall[parent[call]];
      const { ordinal, of } = counts[call];
      const key = `${above} ${node[call]} ${ordinal}`;
      let place = places.get(key);
      if (place === undefined) {
        place = this.list.length;
        places.set(key, place);
        this.list.push({
          node: node[call],
          parent: above,
          ordinal,
          of,
          calls: [],
          children: [],
          steps: [],
          isLeaf: true
        });
        if (above >= 0) {
          this.list[above].children.push(place);
          this.list[above].isLeaf = false;
        }
      }
      this.list[place].calls.push(call);
      this.ofCall[call] = place;
    }
    flow.payload.steps.call.forEach((call, step) => this.list[this.ofCall[call]].steps.push(step));
  }

  /** The unit whose own code ran a step. */
  ofStep(step: number): number {
    return this.ofCall[this.flow.payload.steps.call[step]];
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
    for (let step = 0; step < this.flow.size; step++) {
      const child = this.childOf(parent, this.ofStep(step));
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
  private childOf(parent: number, unit: number): number {
    let at = unit;
    while (at > parent && this.list[at].parent !== parent) {
      at = this.list[at].parent;
    }
    return at >= parent ? at : OUTSIDE;
  }

  /** How many operators ran in a unit and below, over all its calls. */
  operators(place: number): number {
    return this.list[place].calls.reduce((sum, call) => sum + this.flow.operators(call), 0);
  }
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
    return of > MOST_CALLS ? { ordinal: 0, of: 1 } : { ordinal, of };
  });
}
