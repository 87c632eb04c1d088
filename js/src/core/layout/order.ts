// The order within each layer that has few crossings: barycenters, swept forth and back.

import type { Layers } from "./layers";

const SWEEPS = 8;
const MOST_WORK = 400_000; // segments times sweeps; beyond it fewer sweeps have to do

export function orderLayers(layers: Layers): void {
  const order = new Order(layers);
  const sweeps = Math.max(2, Math.min(SWEEPS, Math.floor(MOST_WORK / (layers.segments.length + 1))));
  order.arrange(true);
  let best = { crossings: order.crossings(), layers: copy(layers.layers) };
  for (let sweep = 0; sweep < sweeps && best.crossings > 0; sweep++) {
    order.arrange(sweep % 2 === 1);
    const crossings = order.crossings();
    if (crossings < best.crossings) best = { crossings, layers: copy(layers.layers) };
  }
  best.layers.forEach((layer, rank) => (layers.layers[rank] = layer));
}

const copy = (layers: readonly number[][]): number[][] => layers.map(layer => [...layer]);

class Order {
  private readonly at: Float64Array; // place of each vertex in its layer

  constructor(private readonly layers: Layers) {
    this.at = new Float64Array(layers.item.length);
    layers.layers.forEach(layer => this.number(layer));
  }

  /** One sweep: every layer by what it is linked to in the layer before, or behind it. */
  arrange(forward: boolean): void {
    const { layers } = this.layers;
    const last = layers.length - 1;
    for (let i = 1; i <= last; i++) {
      const rank = forward ? i : last - i;
      const wanted = new Map(layers[rank].map(vertex => [vertex, this.wanted(vertex, forward)]));
      layers[rank] = this.sorted(layers[rank], wanted);
      this.number(layers[rank]);
    }
  }

  crossings(): number {
    return this.layers.layers.slice(1).reduce((sum, layer) => sum + this.crossingsInto(layer), 0);
  }

  /** The mean place of its neighbours; undefined without any. */
  private wanted(vertex: number, forward: boolean): number | undefined {
    const { into, outOf, segments, height } = this.layers;
    const links = (forward ? into : outOf)[vertex];
    if (links.length === 0) return undefined;
    let sum = 0;
    for (const link of links) {
      const { from, to, fromY, toY } = segments[link];
      const [other, y] = forward ? [from, fromY] : [to, toY];
      sum += this.at[other] + share(y, height[other]);
    }
    return sum / links.length;
  }

  /** Those that want nothing stay where they are, the others are sorted around them. */
  private sorted(layer: readonly number[], wanted: ReadonlyMap<number, number | undefined>): number[] {
    const moving = layer.filter(vertex => wanted.get(vertex) !== undefined);
    moving.sort((a, b) => (wanted.get(a) ?? 0) - (wanted.get(b) ?? 0) || this.at[a] - this.at[b]);
    let next = 0;
    return layer.map(vertex => (wanted.get(vertex) === undefined ? vertex : moving[next++]));
  }

  private number(layer: readonly number[]): void {
    layer.forEach((vertex, place) => (this.at[vertex] = place));
  }

  private crossingsInto(layer: readonly number[]): number {
    const { into, segments, height } = this.layers;
    const starts: number[] = [];
    for (const vertex of layer) {
      const here = into[vertex].map(link => {
        const { from, fromY, toY } = segments[link];
        return { start: this.at[from] + share(fromY, height[from]), y: Number.isNaN(toY) ? 0 : toY };
      });
      here.sort((a, b) => a.y - b.y || a.start - b.start);
      here.forEach(({ start }) => starts.push(start));
    }
    return inversions(starts);
  }
}

/** How far down the side of a vertex, from -0.4 to 0.4. */
function share(y: number, height: number): number {
  return height > 0 && !Number.isNaN(y) ? 0.8 * (y / height - 0.5) : 0;
}

/** Pairs in the wrong order (merge sort). */
function inversions(values: number[]): number {
  if (values.length < 2) return 0;
  const middle = values.length >> 1;
  const [left, right] = [values.slice(0, middle), values.slice(middle)];
  let count = inversions(left) + inversions(right);
  let [i, j] = [0, 0];
  for (let k = 0; k < values.length; k++) {
    if (j >= right.length || (i < left.length && left[i] <= right[j])) {
      values[k] = left[i++];
    } else {
      values[k] = right[j++];
      count += left.length - i;
    }
  }
  return count;
}
