import { describe, expect, it } from "vitest";
import { CANVAS, faultsOf, requestOf, type Sketch } from "../../testing/layouts";
import { Layouter } from "./layouter";
import type { LayoutRequest, LayoutResult, Size } from "./types";

/** Alike cards between one source and one sink; `ways`: what leads from each card on. */
function branches(count: number, ways: (branch: number) => [number, number][], extra = 0): Sketch {
  const all = count + 2 + extra;
  return {
    parent: Array.from({ length: all }, () => -1),
    sizes: Array.from({ length: all }, (): Size => [160, 60]),
    links: Array.from({ length: count }, (_, at) => [[0, at + 1] as [number, number], ...ways(at + 1)])
      .flat()
      .map(([from, to]) => [from, to, ""])
  };
}

const toSink = (count: number) => branches(count, branch => [[branch, count + 1]]);

function sound(request: LayoutRequest): LayoutResult {
  const result = new Layouter().run(request);
  expect(faultsOf(request, result)).toEqual([]);
  return result;
}

const columnsOf = ({ boxes }: LayoutResult, first: number, last: number): number[] =>
  [...new Set(boxes.slice(first, last + 1).map(([x, , width]) => Math.round(x + width / 2)))].sort((a, b) => a - b);

describe("very many cards beside each other", () => {
  it("stand in several columns, in order, as wide as can be read", () => {
    sound(requestOf(toSink(100)));
    const result = new Layouter().run(requestOf(toSink(400))); // too much to compare all lines with each other
    const columns = columnsOf(result, 1, 400);
    expect(columns.length).toBeGreaterThan(3);
    expect(result.bounds[2] * 0.7).toBeLessThan(CANVAS[0]);
    expect(result.bounds[3]).toBeLessThan(400 * 82 * 0.35);
    const places = result.boxes.slice(1, 401).map(([x, , width]) => columns.indexOf(Math.round(x + width / 2)));
    expect(places).toEqual([...places].sort((a, b) => a - b));
  });

  it("are passed by one line from the source and one to the sink", () => {
    const result = sound(requestOf(toSink(60)));
    const columns = columnsOf(result, 1, 60);
    expect(columns.length).toBeGreaterThan(1);
    const [last] = columns.slice(-1);
    const levels = new Set<number>();
    for (const line of result.groups[0].lines.flat()) {
      line.slice(1).forEach(([x, y], at) => {
        const [fromX, fromY] = line[at];
        if (fromY === y && fromX < last && x > last) levels.add(Math.round(y));
      });
    }
    expect(levels.size).toBe(1); // past the last column only what comes together before the sink
  });

  it("stay in one column where that fits, or where a line of each would have to pass", () => {
    expect(columnsOf(sound(requestOf(toSink(8))), 1, 8)).toHaveLength(1);
    const apart = branches(30, branch => [[branch, branch + 30]], 30); // each to a card of its own
    expect(columnsOf(sound(requestOf(apart)), 1, 30)).toHaveLength(1);
  });

  it("do so in a frame too", () => {
    const { sizes, links } = toSink(30);
    const frame: Sketch = {
      parent: [-1, ...sizes.map(() => 0), -1],
      sizes: [[200, 0], ...sizes, [160, 60]],
      links: [...links.map(([from, to]): Sketch["links"][number] => [from + 1, to + 1, ""]), [32, 33, ""]]
    };
    expect(columnsOf(sound(requestOf(frame)), 2, 31).length).toBeGreaterThan(1);
  });
});
