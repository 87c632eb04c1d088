// What a group of operators is called: by patterns that are known, then by the operators that tell most.

import type { Dataflow } from "./dataflow";
import { push } from "../base/multimap";
import { type Pattern, PATTERNS, plainName, Rank } from "./operator_patterns";

const listed = (text: string): ReadonlySet<string> => new Set(text.split("|"));

const SIGNS = listed(
  "add|sub|mul|div|rsub|neg|pow|square|sqrt|rsqrt|reciprocal|abs|sign|floor|ceil|round|trunc|remainder|fmod|minimum|" +
    "maximum|clamp|clamp_min|clamp_max|addcmul|addcdiv|lerp|eq|ne|lt|le|gt|ge|isnan|isinf|isfinite|where|masked_fill|" +
    "logical_and|logical_or|logical_not|logical_xor|bitwise_and|bitwise_or|bitwise_not|bitwise_xor|floor_divide"
);
const MOVES = listed(
  "view|reshape|transpose|permute|t|movedim|swapaxes|expand|squeeze|unsqueeze|slice|select|narrow|split|split_with_sizes|" +
    "chunk|unbind|unfold|clone|copy|to|contiguous|cat|stack|pad|repeat|roll|flip|index|index_select|index_put|gather|" +
    "take|masked_select|nonzero|item|fill|zero|zeros|ones|full|empty|arange|linspace|eye|scalar_tensor|tensor|tril|triu|" +
    "zeros_like|ones_like|full_like|empty_like|rand_like|randn_like|new_zeros|new_ones|new_full|new_empty|lift_fresh|" +
    "detach|alias|view_as|view_as_real|view_as_complex|as_strided|rand|randn|randint|bernoulli|meshgrid|diagonal"
);
const MAPS = listed(
  "relu|relu6|leaky_relu|prelu|elu|selu|celu|gelu|silu|mish|hardtanh|hardswish|hardsigmoid|sigmoid|tanh|softplus|" +
    "exp|expm1|log|log1p|log2|log10|erf|sin|cos|tan|atan|atan2|dropout|threshold|logsigmoid|logit|polar"
);
const PICKS = listed("softmax|sigmoid|topk|argmax|argmin|max|min|sort|argsort|multinomial|one_hot|cumsum|nms");
const PASSED = listed("dropout|to"); // also lie within a pattern
/** Names that people use, of operators that torch calls otherwise. */
const USUAL: readonly (readonly [RegExp, string])[] = [
  [/^(?:b?mm|baddbmm)$/, "matmul"],
  [/^addmm$/, "linear"],
  [/^upsample_.*/, "interpolate"],
  [/^(nll_loss.*)_forward$/, "$1"],
  [/^linalg_vector_norm$/, "norm"],
  [/^unique2$/, "unique"]
];

/** Whether an operator weighs values against each other, or picks some of them. */
export const isPick = (name: string): boolean => PICKS.has(name);

function rankOf(flow: Dataflow, step: number): Rank {
  const name = plainName(flow, step);
  if (SIGNS.has(name)) return Rank.Sign;
  if (MOVES.has(name) || !flow.computes(step)) return Rank.Move;
  return MAPS.has(name) ? Rank.Map : Rank.Mix;
}

/** "matmul", "to(float16)" */
function usualName(flow: Dataflow, step: number): string {
  const name = flow.name(step).replace(/^_+|_+$/g, "");
  const found = USUAL.find(([pattern]) => pattern.test(name));
  return found ? name.replace(...found) : name;
}

// Patterns: operators of which each reads what the one before gave, with moves and arithmetic between them.

const MAX_WAY = 24; // operators of one pattern
const MAX_REPEATED = 200; // the same, of one that goes on and on

/** Operators that belong together, under one name. */
export interface Named {
  readonly name: string;
  readonly rank: Rank;
  readonly steps: readonly number[]; // in the order of time
}

/** The patterns in a group, none of them over another, and with what alone prepares and passes on their values. */
export function findPatterns(flow: Dataflow, steps: readonly number[]): Named[] {
  const search = new PatternSearch(flow, steps);
  return search.withMoves(PATTERNS.filter(one => search.hasAll(one)).flatMap(one => search.all(one)));
}

class PatternSearch {
  private readonly readers = new Map<number, number[]>(); // in the group
  private readonly owner = new Map<number, number>(); // step -> which of the patterns found
  private readonly names = new Map<number, string>();
  private readonly kinds: ReadonlySet<string>; // of names
  private found = 0;

  constructor(
    private readonly flow: Dataflow,
    private readonly steps: readonly number[]
  ) {
    const inside = new Set(steps);
    for (const step of steps) {
      this.names.set(step, plainName(flow, step));
      for (const value of flow.payload.steps.inputs[step]) {
        const maker = flow.payload.values.step[value];
        if (inside.has(maker)) push(this.readers, maker, step);
      }
    }
    this.kinds = new Set(this.names.values());
  }

  /** Whether there are operators for all parts of the path. */
  hasAll({ path }: Pattern): boolean {
    return path.every(part => [...part].some(name => this.kinds.has(name)));
  }

  /** Wherever it is found. */
  all(pattern: Pattern): Named[] {
    const begins = this.steps.filter(step => this.isOn(pattern.path[0], step));
    return begins.flatMap(step => this.take(pattern, step));
  }

  private take({ name, rank, ...pattern }: Pattern, step: number): Named[] {
    const way = this.way(pattern, step);
    if (!way) return [];
    way.forEach(one => this.owner.set(one, this.found));
    this.found += 1;
    return [{ name, rank, steps: way }];
  }

  /** The operators from a step on that the path leads through; null where it leads nowhere. */
  private way({ path, holds, repeats, begins }: Omit<Pattern, "name" | "rank">, first: number): number[] | null {
    const isFirst = !this.owner.has(first) && begins({ flow: this.flow, steps: [first], places: [0] });
    if (!isFirst) return null;
    const most = repeats ? MAX_REPEATED : MAX_WAY;
    const seen = new Set<string>();
    const waiting = [{ way: [first], places: [0] }]; // of the parts of the path in it
    let longest: number[] | null = null;
    for (let state = waiting.pop(); state; state = waiting.pop()) {
      const { way, places } = state;
      const at = Math.min(places.length, repeats ? path.length - 1 : path.length);
      const isWhole = places.length >= path.length && holds({ flow: this.flow, steps: way, places });
      if (isWhole && !repeats) return way;
      if (isWhole && way.length > (longest?.length ?? 0)) longest = way;
      if (at === path.length || way.length >= most) continue;
      for (const reader of this.readers.get(way[way.length - 1]) ?? []) {
        const isNext = this.isOn(path[at], reader);
        const key = `${reader} ${places.length} ${isNext}`;
        if (!(isNext || this.isPassed(reader)) || seen.has(key) || this.owner.has(reader)) continue;
        seen.add(key);
        waiting.push({ way: [...way, reader], places: isNext ? [...places, way.length] : places });
      }
    }
    return longest;
  }

  private isOn(part: ReadonlySet<string>, step: number): boolean {
    return part.has(this.names.get(step) ?? "");
  }

  private isPassed(step: number): boolean {
    return this.isSmall(step) || PASSED.has(this.names.get(step) ?? "");
  }

  private isSmall(step: number): boolean {
    return rankOf(this.flow, step) >= Rank.Sign;
  }

  /** With moves and arithmetic that nothing else reads, and with those of what they alone gave. */
  withMoves(found: readonly Named[]): Named[] {
    const { owner, flow } = this;
    const { inputs } = flow.payload.steps;
    const one = (owners: readonly (number | undefined)[]) =>
      owners.length > 0 && owners.every(each => each === owners[0]) ? owners[0] : undefined;
    for (const step of [...this.steps].reverse()) {
      const reads = (this.readers.get(step) ?? []).map(reader => owner.get(reader));
      const only = one(reads);
      if (!owner.has(step) && only !== undefined && this.isSmall(step) && !this.isGiven(step)) owner.set(step, only);
    }
    for (const step of this.steps) {
      const only = one(inputs[step].map(value => owner.get(flow.payload.values.step[value])));
      if (!owner.has(step) && only !== undefined && this.isSmall(step)) owner.set(step, only);
    }
    const all: number[][] = found.map(() => []);
    for (const step of this.steps) {
      const at = owner.get(step);
      if (at !== undefined) all[at].push(step);
    }
    return found.map((each, at) => ({ ...each, steps: all[at] }));
  }

  /** Whether something outside of the group reads what a step gave. */
  private isGiven(step: number): boolean {
    const readers = new Set(this.readers.get(step));
    const { inputs } = this.flow.payload.steps;
    return this.flow
      .values(step)
      .some(value => this.flow.isRead(value) && ![...readers].some(reader => inputs[reader].includes(value)));
  }
}

const MAX_NAMES = 2; // of operators on one card

/** "attention", "topk, softmax, +13", of few operators all of them. */
export function groupTitle(flow: Dataflow, steps: readonly number[], sign: (name: string) => string): string {
  const named = namedParts(flow, steps);
  const kinds = new Map<string, Named[]>();
  named.forEach(one => push(kinds, one.name, one));
  if (kinds.size <= MAX_NAMES) {
    if (kinds.size > 1) return inTime(flow, [...kinds.values()]).join(", ");
    return named.length > 1 ? `${sign(named[0].name)} ×${named.length}` : sign(named[0].name);
  }
  const best = inTime(flow, mostTelling([...kinds.values()]));
  const rest = named.filter(one => !best.includes(one.name)).reduce((sum, one) => sum + one.steps.length, 0);
  return [...best, ...(rest > 0 ? [`+${rest}`] : [])].join(", ");
}

/** Patterns, and the other operators each by itself, in the order of time. */
function namedParts(flow: Dataflow, steps: readonly number[]): Named[] {
  const patterns = findPatterns(flow, steps);
  const taken = new Set(patterns.flatMap(one => one.steps));
  const others = steps
    .filter(step => !taken.has(step))
    .map(step => ({ name: usualName(flow, step), rank: rankOf(flow, step), steps: [step] }));
  return [...patterns, ...others].sort((a, b) => a.steps[0] - b.steps[0]);
}

/** Those that tell most; moves and arithmetic only where there is nothing else. */
function mostTelling(kinds: readonly Kind[]): Kind[] {
  const telling = kinds.filter(([{ rank }]) => rank <= Rank.Map);
  const chosen = telling.length > 0 ? telling : kinds;
  const size = (kind: Kind) =>
    kind.reduce((sum, { rank, steps }) => sum + (rank === Rank.Pattern ? steps.length : 1), 0);
  const picks = ([{ name }]: Kind) => Number(isPick(name));
  const sorted = [...chosen].sort((a, b) => byRank(a, b) || picks(b) - picks(a) || size(b) - size(a));
  return sorted.slice(0, MAX_NAMES);
}

/** The names in the order in which they run, what only moves values last. */
function inTime(flow: Dataflow, kinds: readonly Kind[]): string[] {
  const isMove = ([{ rank, steps }]: Kind) => rank === Rank.Move && flow.payload.steps.inputs[steps[0]].length > 0;
  const first = ([{ steps }]: Kind) => steps[0];
  const sorted = [...kinds].sort((a, b) => Number(isMove(a)) - Number(isMove(b)) || first(a) - first(b));
  return sorted.map(([{ name }]) => name);
}

type Kind = readonly Named[]; // of one name, in the order of time

const byRank = ([a]: Kind, [b]: Kind): number => a.rank - b.rank;
