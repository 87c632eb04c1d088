// The room between two neighbouring columns: every bundle of lines that changes its height there gets a track.

export interface Bundle {
  left: number[]; // heights at which it comes from the left
  right: number[]; // heights at which it goes on
  track: number; // -1: it goes straight on
}

const NEAR = 5; // lines nearer than this would be taken for one
const MOST_COMPARED = 120; // bundles of one channel that are compared in pairs

/** Numbers the tracks from left to right; how many there are. */
export function assignTracks(bundles: readonly Bundle[]): number {
  const bent = bundles.filter(bundle => !isStraight(bundle));
  bundles.forEach(bundle => (bundle.track = -1));
  let count = 0;
  const placed: { bundle: Bundle; span: Span }[] = [];
  for (const bundle of bent.length > MOST_COMPARED ? bySpan(bent) : ordered(bent)) {
    const span = spanOf(bundle);
    bundle.track = placed.reduce(
      (track, other) => (meets(span, other.span) ? Math.max(track, other.bundle.track + 1) : track),
      0
    );
    placed.push({ bundle, span });
    count = Math.max(count, bundle.track + 1);
  }
  return count;
}

type Span = readonly [top: number, bottom: number];

function isStraight(bundle: Bundle): boolean {
  const [top, bottom] = spanOf(bundle);
  return bottom - top < 0.5;
}

function spanOf({ left, right }: Bundle): Span {
  const all = [...left, ...right];
  return [Math.min(...all), Math.max(...all)];
}

function meets([top, bottom]: Span, [otherTop, otherBottom]: Span): boolean {
  return top < otherBottom + NEAR && otherTop < bottom + NEAR;
}

function bySpan(bundles: readonly Bundle[]): Bundle[] {
  return [...bundles].sort((a, b) => spanOf(a)[0] - spanOf(b)[0]);
}

/** Left first what then crosses least: in turn the bundle that has most to gain from being left of the others. */
function ordered(bundles: readonly Bundle[]): Bundle[] {
  const gain = bundles.map(a => bundles.map(b => (a === b ? 0 : cost(b, a) - cost(a, b))));
  const sums = gain.map(row => row.reduce((sum, value) => sum + value, 0));
  const waiting = bundles.map((_, at) => at);
  const order: Bundle[] = [];
  while (waiting.length > 0) {
    const next = waiting.reduce((a, b) => (sums[b] > sums[a] ? b : a));
    waiting.splice(waiting.indexOf(next), 1);
    waiting.forEach(other => (sums[other] -= gain[other][next]));
    order.push(bundles[next]);
  }
  return order;
}

const SAME = 100; // two lines in one place are far worse than a crossing

/** What it costs to have `a` left of `b`. */
function cost(a: Bundle, b: Bundle): number {
  const [spanA, spanB] = [spanOf(a), spanOf(b)];
  if (!meets(spanA, spanB)) return 0;
  const within = (ys: readonly number[], [top, bottom]: Span) => ys.filter(y => y > top && y < bottom).length;
  const same = a.right.filter(y => b.left.some(other => Math.abs(y - other) < NEAR)).length;
  return within(a.right, spanB) + within(b.left, spanA) + SAME * same;
}
