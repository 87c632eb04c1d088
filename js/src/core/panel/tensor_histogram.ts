// The histogram of one tensor's numbers, as a kernel has counted them.

import { el, nameSpan, svg } from "../shared/ui/dom";
import { exactNumber, shortNumber } from "../shared/base/format";
import { toNumber } from "../shared/payload/payload";
import { isArrayOf, isObject, isValue } from "../shared/base/schema";
import { Facts } from "./parts";

const MAX_BARS = 64;
const [WIDTH, HEIGHT, GAP] = [240, 64, 0.5];

export interface TensorHistogram {
  readonly counts: readonly number[];
  readonly edges: readonly number[]; // one more than there are counts
  readonly min: number | null; // these of the finite numbers; null where there is none
  readonly max: number | null;
  readonly mean: number | null;
  readonly zeros: number;
  readonly nan: number; // numbers that are not finite
  readonly elements: number;
  readonly sampled: number; // of them looked at
}

/** Why there is no histogram, for whoever asked. */
export class HistogramProblem extends Error {
  override name = "HistogramProblem";
}

/** What a kernel printed; throws `HistogramProblem`. */
export function readHistogram(printed: string): TensorHistogram {
  const problem = new HistogramProblem(
    "The kernel gave another answer than this page expects: use one version in both."
  );
  let raw: unknown;
  try {
    raw = JSON.parse(printed.trim().split("\n").pop() ?? "");
  } catch {
    throw problem;
  }
  if (!isObject(raw) || !isArrayOf(raw.counts, isValue) || !isArrayOf(raw.edges, isValue)) throw problem;
  const of = (key: string) => (isValue(raw[key]) ? toNumber(raw[key]) : null);
  const [counts, edges] = [raw.counts.map(toNumber), raw.edges.map(toNumber)];
  const isRight =
    counts.length <= MAX_BARS &&
    edges.length === (counts.length > 0 ? counts.length + 1 : 0) &&
    [...counts, ...edges].every(number => number !== null && Number.isFinite(number));
  if (!isRight) throw problem;
  const sampled = of("sampled") ?? 0;
  return {
    counts: counts as number[],
    edges: edges as number[],
    min: of("min"),
    max: of("max"),
    mean: of("mean"),
    zeros: of("zeros") ?? 0,
    nan: of("nan") ?? 0,
    elements: of("elements") ?? sampled,
    sampled
  };
}

/** Bars over the range of the numbers, and what there is to say of them. */
export function histogramView(histogram: TensorHistogram): HTMLElement {
  const element = el("div", "mkg-tensor-histogram");
  if (histogram.counts.length > 0) element.append(bars(histogram), range(histogram));
  const facts = new Facts();
  if (histogram.mean !== null) facts.text("Mean", shortNumber(histogram.mean));
  facts.text("Zeros", shareOf(histogram.zeros, histogram.sampled));
  if (histogram.nan > 0) facts.text("NaN or infinite", shareOf(histogram.nan, histogram.sampled));
  if (histogram.sampled < histogram.elements) {
    facts.text(
      "Counted",
      `${exactNumber(histogram.sampled)} of ${exactNumber(histogram.elements)} numbers, evenly spaced`
    );
  }
  element.append(facts.list);
  return element;
}

function bars({ counts, edges }: TensorHistogram): SVGElement {
  const highest = Math.max(1, ...counts);
  const width = WIDTH / counts.length;
  const label = `Histogram from ${shortNumber(edges[0])} to ${shortNumber(edges[edges.length - 1])}`;
  const picture = svg("svg", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    preserveAspectRatio: "none",
    role: "img",
    "aria-label": label
  });
  counts.forEach((count, at) => {
    const height = count > 0 ? Math.max(1, (count / highest) * HEIGHT) : 0; // what is there is seen
    const bar = svg("rect", { x: at * width + GAP / 2, y: HEIGHT - height, width: Math.max(0.5, width - GAP), height });
    const title = svg("title");
    title.textContent = `${shortNumber(edges[at])} … ${shortNumber(edges[at + 1])}: ${exactNumber(count)}`;
    bar.append(title);
    picture.append(bar);
  });
  return picture;
}

function range({ edges }: TensorHistogram): HTMLElement {
  const line = el("div", "mkg-tensor-range");
  line.append(nameSpan("", shortNumber(edges[0])), nameSpan("", shortNumber(edges[edges.length - 1])));
  return line;
}

function shareOf(count: number, all: number): string {
  return count === 0 || all === 0 ? "none" : `${exactNumber(count)} (${shortNumber((100 * count) / all)} %)`;
}
