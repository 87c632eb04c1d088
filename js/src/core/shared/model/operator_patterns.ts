// Patterns of operators under their usual names, with what has to hold of them: a wrong name is worse than none.

import { type Dataflow, operatorWord } from "./dataflow";
import * as words from "../../words/graph";

/** How much an operator tells of what is computed, the most telling first. */
export enum Rank {
  Pattern, // several operators under their usual name
  Mix, // one value from many: products, sums over a dimension, sorting
  Map, // each value by itself
  Sign, // arithmetic, comparisons
  Move // values are made, joined, picked or stand otherwise
}

type Holds = (way: Way) => boolean;

export interface Pattern {
  readonly name: string;
  readonly path: readonly RegExp[];
  readonly rank: Rank;
  readonly holds: Holds;
}

/** The name of an operator without the sign of what writes in place. */
export const plainName = (flow: Dataflow, step: number): string => operatorWord(flow.fullName(step)).replace(/_$/, "");

const REGROUPED = /^(?:to|clone|contiguous|copy|detach|alias|expand)$/; // beside looks: the same numbers
const GATHERED = /^(?:slice|select|split|split_with_sizes|chunk|unbind|narrow)$/; // a part of the numbers
const SHARED = /^(?:mul|div|add|sub|neg)$/; // with a number, or with what the model keeps

/** The operators that a path leads through, each with those that it has passed before. */
export class Way {
  constructor(
    private readonly flow: Dataflow,
    private readonly steps: readonly number[],
    private readonly places: readonly number[] // of the parts of the path among them
  ) {}

  /** The step of a part of the path; from the end where it is negative. */
  part(at: number): number {
    return this.steps[this.places.at(at) ?? 0];
  }

  inputs(step: number): readonly number[] {
    return this.flow.payload.steps.inputs[step];
  }

  sizes(value: number): readonly (number | string)[] {
    const { shapes, values } = this.flow.payload;
    return shapes[values.shape[value]];
  }

  given(step: number): number {
    return this.flow.values(step)[0];
  }

  isSquare(step: number): boolean {
    return this.flow.payload.steps.square?.includes(step) ?? false;
  }

  /** Whether nothing but looks and copies lies between two parts. */
  isDirect(from: number, to: number): boolean {
    const [first, last] = [this.places.at(from) ?? 0, this.places.at(to) ?? 0];
    return this.steps.slice(first + 1, last).every(step => this.isSame(step));
  }

  /** A value, and what it was before it was looked at otherwise, copied, or, if asked, picked out of a larger one. */
  before(value: number, withParts = false): number[] {
    const found = [value];
    for (let step = this.maker(value); step >= 0; step = this.maker(found[found.length - 1])) {
      if (!this.isSame(step) && !(withParts && GATHERED.test(plainName(this.flow, step)))) break;
      if (this.inputs(step).length !== 1) break;
      found.push(this.inputs(step)[0]);
    }
    return found;
  }

  isOne(a: number, b: number, withParts = false): boolean {
    const others = this.before(b, withParts);
    return this.before(a, withParts).some(value => others.includes(value));
  }

  /** Where a value comes from that was scaled or shifted by numbers, and by what the model keeps. */
  unscaled(value: number): number {
    const [at] = this.before(value).slice(-1);
    const step = this.maker(at);
    if (step < 0 || !SHARED.test(plainName(this.flow, step)) || this.isSquare(step)) return at;
    const flowing = this.inputs(step).filter(each => this.isFlowing(each));
    return flowing.length === 1 ? this.unscaled(flowing[0]) : at;
  }

  /** What a part reads beside what the way leads to it. */
  other(part = -1): number | undefined {
    const at = this.places.at(part) ?? 0;
    const led = this.flow.values(this.steps[at - 1]);
    const others = this.inputs(this.steps[at]).filter(value => !led.includes(value));
    return others.length === 1 ? others[0] : undefined;
  }

  /** Whether what the way has passed reads nothing that flows beside it. */
  isPlain(): boolean {
    return this.steps.every((step, at) => {
      return this.places.includes(at) || this.inputs(step).filter(value => this.isFlowing(value)).length < 2;
    });
  }

  /** Whether a value depends on what the model was given. */
  isFlowing(value: number): boolean {
    let known = flowing.get(this.flow);
    if (!known) flowing.set(this.flow, (known = flowingValues(this.flow)));
    return known[value] === 1;
  }

  /** Whether a part or what follows it has the sizes of a value but for ones in some dimensions. */
  isReduced(part: number, value: number, isRight: (ones: readonly number[], dims: number) => boolean): boolean {
    const sizes = this.sizes(value);
    return this.steps
      .slice(this.places.at(part))
      .flatMap(step => this.flow.values(step))
      .some(each => {
        const own = this.sizes(each);
        const ones = own.flatMap((size, dim) => (size === sizes[dim] ? [] : [dim]));
        return own.length === sizes.length && ones.every(dim => own[dim] === 1) && isRight(ones, sizes.length);
      });
  }

  /** Whether its last dimension was made of several. */
  isFlattened(value: number): boolean {
    const [last, ...earlier] = this.before(value).map(each => Number(this.sizes(each).at(-1) ?? 1));
    return earlier.some(size => size < last);
  }

  maker(value: number): number {
    return this.flow.payload.values.step[value];
  }

  name(step: number): string {
    return step < 0 ? "" : plainName(this.flow, step);
  }

  private isSame(step: number): boolean {
    const [from, to] = [this.inputs(step)[0], this.given(step)];
    const isLook = this.flow.isView(step) || REGROUPED.test(plainName(this.flow, step));
    return (
      isLook && from !== undefined && to !== undefined && (this.isExpanded(step) || this.count(from) === this.count(to))
    );
  }

  private isExpanded(step: number): boolean {
    return plainName(this.flow, step) === "expand";
  }

  /** How many numbers it has, as text: sizes may be names. */
  count(value: number): string {
    const sizes = this.sizes(value);
    return sizes.every(size => typeof size === "number")
      ? String(sizes.reduce<number>((all, size) => all * Number(size), 1))
      : sizes.join(" ");
  }
}

const flowing = new WeakMap<Dataflow, Uint8Array>();

function flowingValues(flow: Dataflow): Uint8Array {
  const { inputs, steps, values } = flow.payload;
  const found = new Uint8Array(values.step.length);
  inputs.forEach(([, value]) => (found[value] = 1));
  for (let step = 0; step < flow.size; step++)
    if (steps.inputs[step].some(value => found[value])) flow.values(step).forEach(value => (found[value] = 1));
  return found;
}

const PRODUCT = "b?mm|matmul|baddbmm|einsum";

function pattern(name: string, path: string, rank = Rank.Pattern, holds: Holds = () => true): Pattern {
  return { name, path: path.split(" > ").map(one => new RegExp(`^(?:${one})$`)), rank, holds };
}

const isLast = (ones: readonly number[], dims: number) => ones.length === 1 && ones[0] === dims - 1 && dims > 1;
const isOneDim = (ones: readonly number[]) => ones.length === 1;

/** Both products are of values that flow: neither is a layer, nor a table of weights. */
const isAttention: Holds = way => {
  const [first, weights, last] = [way.part(0), way.given(way.part(1)), way.part(2)];
  const isProduct = [first, last].every(step => way.inputs(step).filter(value => way.isFlowing(value)).length > 1);
  return isProduct && way.inputs(last).filter(value => way.isOne(value, weights)).length < 2;
};

/** Both are made of one value that is as large: its halves change places, one of them negative, and it is added. */
const isRotary: Holds = way => {
  const [neg, cat, mul] = [0, 1, 2].map(at => way.part(at));
  const halves = way.inputs(cat).filter(value => !way.isOne(value, way.given(neg)));
  const other = way.other();
  const product = other === undefined ? -1 : way.maker(other);
  if (halves.length !== 1 || way.name(product) !== "mul" || way.name(mul) !== "mul") return false;
  const rotated = way.before(halves[0], true).find(value => way.count(value) === way.count(way.given(cat)));
  const isHalf = way.isOne(way.inputs(neg)[0], halves[0], true);
  return isHalf && rotated !== undefined && way.inputs(product).some(value => way.isOne(value, rotated));
};

/** By numbers that differ along two dimensions: positions and channels. */
const isTurned: Holds = way => {
  const by = way.other(1);
  if (by === undefined || way.before(by).some(value => way.name(way.maker(value)) === "view_as_complex")) return false;
  return way.sizes(by).filter(size => size !== 1).length > 1;
};

/** (x − mean) / deviation, both over the last dimension. */
const isLayerNorm: Holds = way => {
  const above = numerator(way);
  if (above === undefined) return false;
  const centred = way.maker(way.unscaled(above));
  if (way.name(centred) !== "sub" || way.inputs(centred).length !== 2) return false;
  const [x, mean] = way.inputs(centred);
  const by = way.maker(way.unscaled(mean));
  const spread = way.name(way.part(0)) === "sub" ? centred : way.part(0);
  const isOfSame =
    spread === way.part(0) && [x, way.given(centred)].some(value => way.isOne(value, way.inputs(spread)[0]));
  const isSquared = way.name(way.part(0)) !== "sub" || way.isSquare(way.part(1));
  const isMean = /^(?:mean|sum|var_mean)$/.test(way.name(by)) && way.isOne(way.inputs(by)[0], x);
  const isOver = isReducedTo(way, mean, x) && way.isReduced(0, x, isLast);
  return isOfSame && isSquared && isMean && isOver && way.isFlowing(x) && !way.isFlattened(x);
};

/** What the last step divides, or multiplies by what the way gave. */
const numerator = (way: Way): number | undefined => {
  const [first] = way.inputs(way.part(-1));
  const other = way.other();
  return !way.isPlain() || (way.name(way.part(-1)) === "div" && first !== other) ? undefined : other;
};

/** Whether a value has one number for each last dimension of another. */
function isReducedTo(way: Way, value: number, of: number): boolean {
  const sizes = way.sizes(of);
  return way.before(value).some(each => String(way.sizes(each)) === String([...sizes.slice(0, -1), 1]));
}

/** x / √mean(x²) over the last dimension. */
const isRmsNorm: Holds = way => {
  const above = numerator(way);
  const [x] = way.inputs(way.part(0));
  if (above === undefined || !way.isSquare(way.part(0)) || !way.isDirect(0, 1)) return false;
  return way.isOne(above, x) && way.isReduced(1, x, isLast) && way.isFlowing(x) && !way.isFlattened(x);
};

/** Two values of one size, each of its own, and one number of their difference. */
const isLoss: Holds = way => {
  const compared = way.inputs(way.part(0));
  const [one, other] = compared.map(value => String(way.sizes(value)));
  const isScalar = way.sizes(way.given(way.part(-1))).length === 0;
  const areTwo = compared.length === 2 && one === other && !way.isOne(compared[0], compared[1], true);
  return isScalar && areTwo && way.isDirect(0, 1) && way.isDirect(1, 2) && compared.some(value => way.isFlowing(value));
};
const isSquaredLoss: Holds = way => way.isSquare(way.part(1)) && isLoss(way);

/** What the first step read or gave, by what is made of all of one of its dimensions. */
const isShare =
  (isOfGiven: boolean): Holds =>
  way => {
    const above = numerator(way);
    const whole = isOfGiven ? way.given(way.part(0)) : way.inputs(way.part(0))[0];
    return above !== undefined && way.isOne(above, whole) && way.isReduced(isOfGiven ? 1 : 0, whole, isOneDim);
  };

/** The last operator reads what the first one read, too: x · σ(x). */
const isGate: Holds = way => {
  const [x] = way.inputs(way.part(0));
  return way.inputs(way.part(-1)).includes(x) && way.isDirect(0, -1);
};

/** The same, but for numbers: ½ x · (1 + erf(x / √2)). */
const isScaledGate: Holds = way => {
  const other = way.other();
  const [x] = way.inputs(way.part(0));
  const isOne = other !== undefined && way.unscaled(other) === way.unscaled(x);
  return isOne && way.isPlain() && way.inputs(way.part(-2)).length === 1;
};
/** x + x³ within. */
const isCubicGate: Holds = way => {
  const [x] = way.inputs(way.part(0));
  const added = way.other(1);
  return !way.isSquare(way.part(0)) && added !== undefined && way.isOne(added, x) && isScaledGate(way);
};

/** One random number for each number of the other value, whatever that is. */
const isDropout: Holds = way => {
  const other = way.other();
  const [drawn, mask] = [way.inputs(way.part(0)), way.given(way.part(0))];
  const isBlank = drawn.every(value =>
    /^(?:empty|ones|new_empty|new_ones)(?:_like)?$/.test(way.name(way.maker(value)))
  );
  return isBlank && other !== undefined && String(way.sizes(other)) === String(way.sizes(mask));
};

/** In the order in which they are sought: the longer first. */
export const PATTERNS: readonly Pattern[] = [
  pattern("cross_entropy", "log_softmax > nll_loss.*"),
  pattern(words.ROTARY_EMBEDDING, "neg > cat|stack > mul > add", Rank.Pattern, isRotary),
  pattern(words.ROTARY_EMBEDDING, "view_as_complex > mul > view_as_real", Rank.Pattern, isTurned),
  pattern("attention", "scaled_dot_product_attention"),
  pattern("attention", `${PRODUCT} > softmax > ${PRODUCT}`, Rank.Pattern, isAttention),
  pattern(words.LAYER_NORM, "sub > pow|square|mul > mean|sum > rsqrt|sqrt > mul|div", Rank.Pattern, isLayerNorm),
  pattern(words.LAYER_NORM, "var|var_mean > rsqrt|sqrt > mul|div", Rank.Pattern, isLayerNorm),
  pattern(words.LAYER_NORM, "std > div", Rank.Pattern, isLayerNorm),
  pattern(words.RMS_NORM, "pow|square|mul > mean > rsqrt|sqrt > mul|div", Rank.Pattern, isRmsNorm),
  pattern("mse_loss", "sub > pow|square|mul > mean|sum", Rank.Pattern, isSquaredLoss),
  pattern("l1_loss", "sub > abs > mean|sum", Rank.Pattern, isLoss),
  pattern("softmax", "exp > sum > div", Rank.Mix, isShare(true)),
  pattern("normalize", "linalg_vector_norm|norm > div", Rank.Mix, isShare(false)),
  pattern("gelu", "pow > add > tanh > add > mul", Rank.Map, isCubicGate),
  pattern("gelu", "erf > add > mul", Rank.Map, isScaledGate),
  pattern("silu", "sigmoid > mul", Rank.Map, isGate),
  pattern("dropout", "bernoulli > div > mul", Rank.Map, isDropout),
  pattern("mask", "tril|triu > where|masked_fill", Rank.Sign),
  pattern("mask", "eq|ne|lt|le|gt|ge > masked_fill", Rank.Sign)
];
