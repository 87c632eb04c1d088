import { describe, expect, it } from "vitest";
import { faultsOf, requestOf, uSketch } from "../../testing/layouts";
import { Layouter } from "./layouter";
import { arcsOf, ranksOf } from "./layers";
import { BORDER, type Drawing } from "./types";
import { uLayout } from "./u_layout";

const pin = (item: number) => ({ item, y: NaN });

/** Alike cards with the links that are given. */
function drawingOf(count: number, links: [number, number][]): Drawing {
  const nets = Array.from({ length: count }, (_, from) => ({
    start: pin(from),
    ends: links.filter(([source]) => source === from).map(([, to]) => pin(to)),
    label: 0
  }));
  const items = Array.from({ length: count }, (): [number, number] => [100, 40]);
  return {
    items,
    nets: nets.filter(({ ends }) => ends.length > 0),
    room: { width: 1300, height: 750, isFixed: true, most: Infinity, holds: [1857, 1071] }
  };
}

function drawn(drawing: Drawing) {
  const arcs = arcsOf(drawing);
  return uLayout(drawing, ranksOf(drawing.items.length, arcs), arcs);
}

const CHAIN: [number, number][] = [0, 1, 2, 3, 4, 5].map(at => [at, at + 1]);
const SKIPS: [number, number][] = [[0, 6], [1, 5], [2, 4]]; // prettier-ignore

describe("uLayout", () => {
  it("goes down on the left and up on the right, level by level", () => {
    const corners = drawn(drawingOf(7, [...CHAIN, ...SKIPS]))?.corners ?? [];
    expect(corners).toHaveLength(7);
    const [xs, ys] = [corners.map(([x]) => x), corners.map(([, y]) => y)];
    for (const [from, to] of SKIPS) {
      expect(xs[to]).toBeGreaterThan(xs[from] + 100);
      expect(Math.abs(ys[to] - ys[from])).toBeLessThan(40); // beside each other
    }
    expect(ys[0] < ys[1] && ys[1] < ys[2] && ys[2] < ys[3]).toBe(true);
    expect(ys[4] > ys[5] && ys[5] > ys[6]).toBe(true);
  });

  it("draws skips as straight lines", () => {
    const drawing = drawingOf(7, [...CHAIN, ...SKIPS]);
    const laid = drawn(drawing);
    for (const [from, to] of SKIPS) {
      const net = drawing.nets.findIndex(({ start }) => start.item === from);
      const end = drawing.nets[net].ends.findIndex(({ item }) => item === to);
      expect(laid?.lines[net][end]).toHaveLength(2);
    }
  });

  it("is for nested skips over a chain alone", () => {
    expect(drawn(drawingOf(7, CHAIN))).toBeNull();
    expect(drawn(drawingOf(7, [...CHAIN, [0, 6]]))).toBeNull();
    expect(drawn(drawingOf(7, [...CHAIN, [0, 4], [1, 6]]))).toBeNull(); // they cross
    expect(drawn(drawingOf(7, [...CHAIN, [0, 2], [3, 5]]))).toBeNull(); // beside each other
    expect(drawn(drawingOf(7, [...CHAIN.slice(1), [0, 6], [1, 5]]))).toBeNull(); // a step is missing
    const open = drawingOf(7, [...CHAIN, ...SKIPS]);
    open.nets[3].ends.push(pin(BORDER));
    expect(drawn(open)).toBeNull(); // something leaves in the middle
  });

  it.each([0, 1, 2, 3])("places random U-Nets soundly, frames among them (block %i)", block => {
    const faults = Array.from({ length: 20 }, (_, k) => 20 * block + k).flatMap(seed => {
      const wanted = requestOf(uSketch(seed));
      return faultsOf(wanted, new Layouter().run(wanted)).map(fault => `seed ${seed}: ${fault}`);
    });
    expect(faults).toEqual([]);
  });
});
