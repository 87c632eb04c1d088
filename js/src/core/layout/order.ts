// The order within each layer that has few crossings: barycenters, swept forth and back.

import type { Layers } from "./layers";

const SWEEPS = 8;
const MOST_WORK = 400_000; // segments times sweeps; beyond it fewer sweeps have to do

export function orderLayers(layers: Layers): void {
  const order = new Order(layers);
  const sweeps = Math.max(2, Math.min(SWEEPS, Math.floor(MOST_WORK / (layers.segments.length + 1))));
  order.arrange(true);
  let best = { crossings: order.crossings(Infinity), layers: copy(layers.layers) };
  for (let sweep = 0; sweep < sweeps && best.crossings > 0; sweep++) {
    order.arrange(sweep % 2 === 1);
    const crossings = order.crossings(best.crossings);
    if (crossings < best.crossings) best = { crossings, layers: copy(layers.layers) };
  }
  best.layers.forEach((layer, rank) => (layers.layers[rank] = layer));
}

const copy = (layers: readonly number[][]): number[][] => layers.map(layer => [...layer]);

class Order {
  private readonly at: Float64Array; // place of each vertex in its layer
  private readonly place: Float64Array; // that it wants, or NaN
  private readonly from: Float64Array; // of each segment: the share of its vertex's height
  private readonly to: Float64Array;
  private readonly toY: Float64Array;

  constructor(private readonly layers: Layers) {
    const { item, segments, height } = layers;
    this.at = new Float64Array(item.length);
    this.place = new Float64Array(item.length);
    this.from = Float64Array.from(segments, ({ from, fromY }) => share(fromY, height[from]));
    this.to = Float64Array.from(segments, ({ to, toY }) => share(toY, height[to]));
    this.toY = Float64Array.from(segments, ({ toY }) => (Number.isNaN(toY) ? 0 : toY));
    layers.layers.forEach(layer => this.number(layer));
  }

  /** One sweep: every layer by what it is linked to in the layer before, or behind it. */
  arrange(forward: boolean): void {
    const { layers } = this.layers;
    const last = layers.length - 1;
    for (let i = 1; i <= last; i++) {
      const layer = layers[forward ? i : last - i];
      for (const vertex of layer) this.place[vertex] = this.wanted(vertex, forward);
      this.sort(layer);
      this.number(layer);
    }
  }

  /** Counted no further than `most`. */
  crossings(most: number): number {
    let sum = 0;
    for (const layer of this.layers.layers.slice(1)) {
      sum += this.crossingsInto(layer);
      if (sum >= most) break;
    }
    return sum;
  }

  /** The mean place of its neighbours; NaN without any. */
  private wanted(vertex: number, forward: boolean): number {
    const { into, outOf, segments } = this.layers;
    const links = (forward ? into : outOf)[vertex];
    let sum = 0;
    for (const link of links) {
      sum += forward ? this.at[segments[link].from] + this.from[link] : this.at[segments[link].to] + this.to[link];
    }
    return sum / links.length;
  }

  /** Those that want nothing stay where they are, the others are sorted around them. */
  private sort(layer: number[]): void {
    const { place, at } = this;
    const moving = layer.filter(vertex => !Number.isNaN(place[vertex]));
    moving.sort((a, b) => place[a] - place[b] || at[a] - at[b]);
    let next = 0;
    layer.forEach((vertex, k) => {
      if (!Number.isNaN(place[vertex])) layer[k] = moving[next++];
    });
  }

  private number(layer: readonly number[]): void {
    layer.forEach((vertex, place) => (this.at[vertex] = place));
  }

  private crossingsInto(layer: readonly number[]): number {
    const { into, segments } = this.layers;
    const starts: number[] = [];
    const startOf = (link: number) => this.at[segments[link].from] + this.from[link];
    for (const vertex of layer) {
      const links = into[vertex];
      if (links.length === 1) {
        starts.push(startOf(links[0]));
      } else {
        const here = links.map(link => ({ start: startOf(link), y: this.toY[link] }));
        here.sort((a, b) => a.y - b.y || a.start - b.start);
        here.forEach(({ start }) => starts.push(start));
      }
    }
    return inversions(Float64Array.from(starts), new Float64Array(starts.length), 0, starts.length);
  }
}

/** How far down the side of a vertex, from -0.4 to 0.4. */
function share(y: number, height: number): number {
  return height > 0 && !Number.isNaN(y) ? 0.8 * (y / height - 0.5) : 0;
}

/** Pairs in the wrong order (merge sort of `values` from `start` to `end`). */
function inversions(values: Float64Array, spare: Float64Array, start: number, end: number): number {
  if (end - start < 2) return 0;
  const middle = (start + end) >> 1;
  let count = inversions(values, spare, start, middle) + inversions(values, spare, middle, end);
  if (values[middle - 1] <= values[middle]) return count;
  let [i, j] = [start, middle];
  for (let k = start; k < end; k++) {
    if (j >= end || (i < middle && values[i] <= values[j])) {
      spare[k] = values[i++];
    } else {
      spare[k] = values[j++];
      count += middle - i;
    }
  }
  values.set(spare.subarray(start, end), start);
  return count;
}
