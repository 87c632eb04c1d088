// Patterns of operators under their usual names, with what has to hold of them: a wrong name is worse than none.

import { type Dataflow, operatorWord } from "./dataflow";
import * as words from "../../words/graph";

/** How much an operator tells of what is computed, the most telling first. */
export const enum Rank {
  Pattern, // several operators under their usual name
  Mix, // one value from many: products, sums over a dimension, sorting
  Map, // each value by itself
  Sign, // arithmetic, comparisons
  Move // values are made, joined, picked or stand otherwise
}

type Holds = (way: Way) => boolean;

export interface Pattern {
  readonly name: string;
  readonly path: readonly ReadonlySet<string>[]; // of each part the names that it may have
  readonly rank: Rank;
  readonly holds: Holds;
  readonly repeats: boolean; // its last part may come again and again
  readonly begins: Holds; // of its first part alone, before others are looked for
}

/** The name of an operator without the sign of what writes in place. */
export const plainName = (flow: Dataflow, step: number): string => operatorWord(flow.fullName(step)).replace(/_$/, "");

const REGROUPED = /^(?:to|clone|contiguous|copy|detach|alias|expand)$/; // beside looks: the same numbers
const GATHERED = /^(?:slice|select|split|split_with_sizes|chunk|unbind|narrow)$/; // a part of the numbers
const SHARED = /^(?:mul|div|add|sub|neg)$/; // with a number, or with what the model keeps

/** The operators that a path leads through, with those that it passes between its parts. */
export interface Way {
  readonly flow: Dataflow;
  readonly steps: readonly number[];
  readonly places: readonly number[]; // of the parts of the path among them
}

/** The step of a part of the path; from the end where it is negative. */
function partOf(way: Way, at: number): number {
  return way.steps[way.places.at(at) ?? 0];
}

function inputsOf(way: Way, step: number): readonly number[] {
  return way.flow.payload.steps.inputs[step];
}

function sizesOf(way: Way, value: number): readonly (number | string)[] {
  const { shapes, values } = way.flow.payload;
  return shapes[values.shape[value]];
}

function givenOf(way: Way, step: number): number {
  return way.flow.values(step)[0];
}

function isSquare(way: Way, step: number): boolean {
  return way.flow.payload.steps.square?.includes(step) ?? false;
}

/** Whether nothing but looks and copies lies between two parts. */
function isDirect(way: Way, from: number, to: number): boolean {
  const [first, last] = [way.places.at(from) ?? 0, way.places.at(to) ?? 0];
  return way.steps.slice(first + 1, last).every(step => isSame(way, step));
}

/** A value, and what it was before it was looked at otherwise, copied, or, if asked, picked out of a larger one. */
function beforeOf(way: Way, value: number, withParts = false): number[] {
  const found = [value];
  for (let step = makerOf(way, value); step >= 0; step = makerOf(way, found[found.length - 1])) {
    if (!isSame(way, step) && !(withParts && GATHERED.test(nameOf(way, step)))) break;
    if (inputsOf(way, step).length !== 1) break;
    found.push(inputsOf(way, step)[0]);
  }
  return found;
}

function isOne(way: Way, a: number, b: number, withParts = false): boolean {
  const others = beforeOf(way, b, withParts);
  return beforeOf(way, a, withParts).some(value => others.includes(value));
}

/** Where a value comes from that was scaled or shifted by numbers, and by what the model keeps. */
function unscaled(way: Way, value: number): number {
  let [at] = beforeOf(way, value).slice(-1);
  for (let step = makerOf(way, at); SHARED.test(nameOf(way, step)) && !isSquare(way, step); step = makerOf(way, at)) {
    const read = inputsOf(way, step).filter(each => isFlowing(way, each));
    if (read.length !== 1) break;
    [at] = beforeOf(way, read[0]).slice(-1);
  }
  return at;
}

/** What a part reads beside what the way leads to it. */
function otherOf(way: Way, part = -1): number | undefined {
  const at = way.places.at(part) ?? 0;
  const led = way.flow.values(way.steps[at - 1]);
  const others = inputsOf(way, way.steps[at]).filter(value => !led.includes(value));
  return others.length === 1 ? others[0] : undefined;
}

/** Whether what the way has passed reads nothing that flows beside it. */
function isPlain(way: Way): boolean {
  return way.steps.every((step, at) => {
    return way.places.includes(at) || inputsOf(way, step).filter(value => isFlowing(way, value)).length < 2;
  });
}

/** Whether a value depends on what the model was given. */
function isFlowing(way: Way, value: number): boolean {
  let known = flowing.get(way.flow);
  if (!known) flowing.set(way.flow, (known = flowingValues(way.flow)));
  return known[value] === 1;
}

/** Whether a part or what follows it has the sizes of a value but for ones in some dimensions. */
function isReduced(
  way: Way,
  part: number,
  value: number,
  isRight: (ones: readonly number[], dims: number) => boolean
): boolean {
  const sizes = sizesOf(way, value);
  return way.steps
    .slice(way.places.at(part))
    .flatMap(step => way.flow.values(step))
    .some(each => {
      const own = sizesOf(way, each);
      const ones = own.flatMap((size, dim) => (size === sizes[dim] ? [] : [dim]));
      return own.length === sizes.length && ones.every(dim => own[dim] === 1) && isRight(ones, sizes.length);
    });
}

/** Whether its last dimension was made of several. */
function isFlattened(way: Way, value: number): boolean {
  const [last, ...earlier] = beforeOf(way, value).map(each => Number(sizesOf(way, each).at(-1) ?? 1));
  return earlier.some(size => size < last);
}

function makerOf(way: Way, value: number): number {
  return way.flow.payload.values.step[value];
}

function nameOf(way: Way, step: number): string {
  return step < 0 ? "" : plainName(way.flow, step);
}

function isSame(way: Way, step: number): boolean {
  const [from, to] = [inputsOf(way, step)[0], givenOf(way, step)];
  const isLook = way.flow.isView(step) || REGROUPED.test(nameOf(way, step));
  if (!isLook || from === undefined || to === undefined) return false;
  return nameOf(way, step) === "expand" || countOf(way, from) === countOf(way, to);
}

/** How many numbers it has, as text: sizes may be names. */
function countOf(way: Way, value: number): string {
  const sizes = sizesOf(way, value);
  return sizes.every(size => typeof size === "number")
    ? String(sizes.reduce<number>((all, size) => all * Number(size), 1))
    : sizes.join(" ");
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

const NLL = "nll_loss|nll_loss_nd|nll_loss2d|nll_loss_forward|nll_loss2d_forward";
const PRODUCT = "mm|bmm|matmul|baddbmm|einsum";

const always: Holds = () => true;

/** `path`: names of operators; "+" at its end: the last one may come again and again. */
function pattern(name: string, path: string, rank = Rank.Pattern, holds = always, begins = always): Pattern {
  const repeats = path.endsWith("+");
  const parts = path.replace(/\+$/, "").split(" > ");
  return { name, path: parts.map(one => new Set(one.split("|"))), rank, holds, repeats, begins };
}

const isLast = (ones: readonly number[], dims: number) => ones.length === 1 && ones[0] === dims - 1 && dims > 1;
const isOneDim = (ones: readonly number[]) => ones.length === 1;

/** Both products are of values that flow: no layer, no table of weights. The last sums over what the shares add up. */
const isAttention: Holds = way => {
  const [first, weights, last] = [partOf(way, 0), givenOf(way, partOf(way, 1)), partOf(way, 2)];
  const isProduct = [first, last].every(step => inputsOf(way, step).filter(value => isFlowing(way, value)).length > 1);
  const [read, other] = inputsOf(way, last);
  const isSummed = String(sizesOf(way, read).slice(-1)) === String(sizesOf(way, weights).slice(-1));
  const between = way.steps.slice((way.places.at(1) ?? 0) + 1, way.places.at(2));
  const isWhole = between.every(step => isSame(way, step) || nameOf(way, step) === "dropout");
  return isProduct && isSummed && isWhole && leadsTo(way, weights, read) && !isOne(way, other, weights);
};

/** Whether a value comes from another by looks and dropout alone. */
const leadsTo = (way: Way, from: number, to: number): boolean =>
  beforeOf(way, to).some(value => {
    const step = makerOf(way, value);
    return value === from || (nameOf(way, step) === "dropout" && leadsTo(way, from, inputsOf(way, step)[0]));
  });

/** Both are made of one value that is as large: its halves change places, one of them negative, and it is added. */
const isRotary: Holds = way => {
  const [neg, cat, mul] = [0, 1, 2].map(at => partOf(way, at));
  const halves = inputsOf(way, cat).filter(value => !isOne(way, value, givenOf(way, neg)));
  const other = otherOf(way);
  const product = other === undefined ? -1 : makerOf(way, other);
  if (halves.length !== 1 || nameOf(way, product) !== "mul" || nameOf(way, mul) !== "mul") return false;
  const rotated = beforeOf(way, halves[0], true).find(value => countOf(way, value) === countOf(way, givenOf(way, cat)));
  const isHalf = isOne(way, inputsOf(way, neg)[0], halves[0], true);
  return isHalf && rotated !== undefined && inputsOf(way, product).some(value => isOne(way, value, rotated));
};

/** By numbers that differ along two dimensions: positions and channels. */
const isTurned: Holds = way => {
  const by = otherOf(way, 1);
  if (by === undefined || beforeOf(way, by).some(value => nameOf(way, makerOf(way, value)) === "view_as_complex"))
    return false;
  return sizesOf(way, by).filter(size => size !== 1).length > 1;
};

/** (x − mean) / deviation, both over the last dimension. */
const isLayerNorm: Holds = way => {
  const above = numerator(way);
  if (above === undefined) return false;
  const centred = makerOf(way, unscaled(way, above));
  if (nameOf(way, centred) !== "sub" || inputsOf(way, centred).length !== 2) return false;
  const [x, mean] = inputsOf(way, centred);
  const by = makerOf(way, unscaled(way, mean));
  const spread = nameOf(way, partOf(way, 0)) === "sub" ? centred : partOf(way, 0);
  const isOfSame =
    spread === partOf(way, 0) && [x, givenOf(way, centred)].some(value => isOne(way, value, inputsOf(way, spread)[0]));
  const isSquared = nameOf(way, partOf(way, 0)) !== "sub" || isSquare(way, partOf(way, 1));
  const isMean = /^(?:mean|sum|var_mean)$/.test(nameOf(way, by)) && isOne(way, inputsOf(way, by)[0], x);
  const isOver = isReducedTo(way, mean, x) && isReduced(way, 0, x, isLast);
  return isOfSame && isSquared && isMean && isOver && isFlowing(way, x) && !isFlattened(way, x);
};

/** What the last step divides, or multiplies by the inverse that the way gave. */
const numerator = (way: Way): number | undefined => {
  const [first] = inputsOf(way, partOf(way, -1));
  const other = otherOf(way);
  const isDivided = nameOf(way, partOf(way, -1)) === "div";
  const isInverse = nameOf(way, partOf(way, -2)) === "rsqrt";
  return !isPlain(way) || isDivided === isInverse || (isDivided && first !== other) ? undefined : other;
};

/** Whether a value has one number for each last dimension of another. */
function isReducedTo(way: Way, value: number, of: number): boolean {
  const sizes = sizesOf(way, of);
  return beforeOf(way, value).some(each => String(sizesOf(way, each)) === String([...sizes.slice(0, -1), 1]));
}

/** x / √mean(x²) over the last dimension. */
const isRmsNorm: Holds = way => {
  const above = numerator(way);
  const [x] = inputsOf(way, partOf(way, 0));
  if (above === undefined || !isSquare(way, partOf(way, 0)) || !isDirect(way, 0, 1)) return false;
  return isOne(way, above, x) && isReduced(way, 1, x, isLast) && isFlowing(way, x) && !isFlattened(way, x);
};

/** Two values of one size, each of its own, and one number of their difference. */
const isLoss: Holds = way => {
  const compared = inputsOf(way, partOf(way, 0));
  const [one, other] = compared.map(value => String(sizesOf(way, value)));
  const isScalar = sizesOf(way, givenOf(way, partOf(way, -1))).length === 0;
  const areTwo = compared.length === 2 && one === other && !isMadeOf(way, compared[0], compared[1]);
  return (
    isScalar && areTwo && isDirect(way, 0, 1) && isDirect(way, 1, 2) && compared.some(value => isFlowing(way, value))
  );
};

/** Whether the model kept nothing that made one of both out of the other: its mean, or its neighbors. */
function isMadeOf(way: Way, one: number, other: number): boolean {
  const [a, b] = [one, other].map(value => originsOf(way, value));
  return b.has(one) || a.has(other) || isOne(way, one, other, true);
}

/** All values that one is made of by operators that read nothing that the model keeps. */
function originsOf(way: Way, value: number): Set<number> {
  const found = new Set([value]);
  for (const each of found) {
    const read = makerOf(way, each) < 0 ? [] : inputsOf(way, makerOf(way, each));
    if (read.every(input => isFlowing(way, input))) read.forEach(input => found.add(input));
  }
  return found;
}

const isSquaredLoss: Holds = way => isSquare(way, partOf(way, 1)) && isLoss(way);

/** What the first step read or gave, by what is made of all of one of its dimensions. */
const isShare =
  (isOfGiven: boolean): Holds =>
  way => {
    const above = numerator(way);
    const whole = isOfGiven ? givenOf(way, partOf(way, 0)) : inputsOf(way, partOf(way, 0))[0];
    return above !== undefined && isOne(way, above, whole) && isReduced(way, isOfGiven ? 1 : 0, whole, isOneDim);
  };

/** The last operator reads what the first one read, too: x · σ(x). */
const isGate: Holds = way => {
  const [x] = inputsOf(way, partOf(way, 0));
  return inputsOf(way, partOf(way, -1)).includes(x) && isDirect(way, 0, -1);
};

/** The same, but for numbers: ½ x · (1 + erf(x / √2)). */
const isScaledGate: Holds = way => {
  const other = otherOf(way);
  const [x] = inputsOf(way, partOf(way, 0));
  const isOne = other !== undefined && unscaled(way, other) === unscaled(way, x);
  return isOne && isPlain(way) && inputsOf(way, partOf(way, -2)).length === 1;
};
/** x + x³ within. */
const isCubicGate: Holds = way => {
  const [x] = inputsOf(way, partOf(way, 0));
  const added = otherOf(way, 1);
  return !isSquare(way, partOf(way, 0)) && added !== undefined && isOne(way, added, x) && isScaledGate(way);
};

/** The dimensions in which a value is multiplied by one weight for all of it; none where the other factor is no weight. */
function weighedOver(way: Way, step: number): readonly number[] {
  const read = inputsOf(way, step).filter(value => isFlowing(way, value));
  if (nameOf(way, step) !== "mul" || read.length !== 2) return [];
  const [sizes, others] = read.map(value => sizesOf(way, value));
  const apart = sizes.flatMap((size, dim) => (size === others[dim] ? [] : [dim]));
  const thin = read.find(value => apart.every(dim => sizesOf(way, value)[dim] === 1));
  return sizes.length === others.length && thin !== undefined && isWeight(way, thin) ? apart : [];
}

/** Whether a value was made by what weighs others, before the model's parameters changed it. */
const isWeight = (way: Way, value: number): boolean =>
  [...originsOf(way, value)].some(each => /^(?:softmax|sigmoid|topk|max)$/.test(nameOf(way, makerOf(way, each))));

/** By one number for each token, sample or place. */
const isWeighed = (way: Way, step: number): boolean =>
  step >= 0 && weighedOver(way, step).includes(sizesOf(way, givenOf(way, step)).length - 1);

/** Σ w · x, one after the other, from nothing on: as experts are mixed. */
const isMixed: Holds = way => {
  const made = way.places.slice(1).map((at, part) => {
    const others = inputsOf(way, way.steps[at]).filter(value => !way.flow.values(way.steps[at - 1]).includes(value));
    const [other = -1] = others.map(value => makerOf(way, beforeOf(way, value).slice(-1)[0]));
    const isNothing = part === 0 && /^(?:new_)?zeros(?:_like)?$/.test(nameOf(way, other));
    return isNothing ? undefined : others.length === 1 && isWeighed(way, other);
  });
  const isWhole = way.places.every((_, at) => at === 0 || isDirect(way, at - 1, at));
  return isWhole && isWeighed(way, partOf(way, 0)) && made.includes(true) && !made.includes(false);
};

/** The same, summed over a dimension in which the weights differ. */
const isMixedOver: Holds = way => {
  const apart = weighedOver(way, partOf(way, 0));
  const [before, after] = [0, 1].map(at => sizesOf(way, givenOf(way, partOf(way, at))));
  const isSummed = (over: number) =>
    [[], [1]].some(left => String([...before.slice(0, over), ...left, ...before.slice(over + 1)]) === String(after));
  return apart.length > 0 && isDirect(way, 0, 1) && before.some((_, over) => !apart.includes(over) && isSummed(over));
};

/** One random number for each number of the other value, whatever that is. */
const isDropout: Holds = way => {
  const other = otherOf(way);
  const [drawn, mask] = [inputsOf(way, partOf(way, 0)), givenOf(way, partOf(way, 0))];
  const isBlank = drawn.every(value =>
    /^(?:empty|ones|new_empty|new_ones)(?:_like)?$/.test(nameOf(way, makerOf(way, value)))
  );
  return isBlank && other !== undefined && String(sizesOf(way, other)) === String(sizesOf(way, mask));
};

/** In the order in which they are sought: the longer first. */
export const PATTERNS: readonly Pattern[] = [
  pattern("cross_entropy", `log_softmax > ${NLL}`, Rank.Pattern, way => isDirect(way, 0, 1)),
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
  pattern(words.WEIGHTED_SUM, "mul > add+", Rank.Pattern, isMixed, way => isWeighed(way, partOf(way, 0))),
  pattern(words.WEIGHTED_SUM, "mul > sum", Rank.Pattern, isMixedOver),
  pattern("softmax", "exp > sum > div", Rank.Mix, isShare(true)),
  pattern("normalize", "linalg_vector_norm|norm > div", Rank.Mix, isShare(false)),
  pattern("gelu", "pow > add > tanh > add > mul", Rank.Map, isCubicGate),
  pattern("gelu", "erf > add > mul", Rank.Map, isScaledGate),
  pattern("silu", "sigmoid > mul", Rank.Map, isGate),
  pattern("dropout", "bernoulli > div > mul", Rank.Map, isDropout),
  pattern("mask", "tril|triu > where|masked_fill", Rank.Sign),
  pattern("mask", "eq|ne|lt|le|gt|ge > masked_fill", Rank.Sign)
];
