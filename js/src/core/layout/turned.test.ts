import { describe, expect, it } from "vitest";
import { CANVAS, faultsOf, randomSketch, requestOf, type Sketch } from "../../testing/layouts";
import { Layouter } from "./layouter";
import { Turned } from "./turned";
import { BORDER, type LayoutResult, type Line, type Size } from "./types";

const CARD: Size = [130, 61];
const LABEL = "1×64×56×56";
/** A residual block: input, five cards, sum, card, output. */
const BLOCK: Sketch["links"] = [[0, 1, LABEL], [1, 2, LABEL], [2, 3, LABEL], [3, 4, LABEL], [4, 5, LABEL], [5, 6, LABEL], [0, 6, LABEL], [6, 7, LABEL], [7, 8, LABEL]]; // prettier-ignore

function sound(sketch: Sketch): LayoutResult {
  const request = requestOf(sketch);
  const result = new Layouter().run(request);
  expect(faultsOf(request, result)).toEqual([]);
  return result;
}

const HEIGHTS = [37, 70, 70, 52, 70, 70, 30, 52, 37]; // as the page has them
const block = (room: Size): Sketch => {
  return { parent: HEIGHTS.map(() => -1), sizes: HEIGHTS.map(height => [CARD[0], height]), links: BLOCK, room };
};

const middles = ({ boxes }: LayoutResult) => boxes.map(([x, , width]) => x + width / 2);
const isLeftward = (line: Line) => line.slice(1).some(([x], at) => x < line[at][0] - 1);

describe("a residual block", () => {
  it.each([[[838, 756]], [[586, 516]]] as [Size][])("is one column with one arc on a canvas of %j", room => {
    const result = sound(block(room));
    expect(result.groups[0].isTurned).toBe(true);
    const tops = result.boxes.map(([, y]) => y);
    expect(tops).toEqual([...tops].sort((a, b) => a - b));
    expect(Math.max(...middles(result)) - Math.min(...middles(result))).toBeLessThan(CARD[0] / 2);
    const [, arc] = result.groups[0].lines[0];
    expect(arc.length).toBeLessThanOrEqual(6); // down, aside, down past the cards, back, down
    const straight = result.groups[0].lines.flat().filter(line => line.length === 2);
    expect(straight.length).toBeGreaterThanOrEqual(6);
  });

  it("is one row where that is as wide as the canvas can show", () => {
    const { groups } = sound(block([1900, 400]));
    expect(groups[0].isTurned).toBe(false);
    expect(groups[0].lines.flat().some(isLeftward)).toBe(false);
  });

  it("is not broken in a frame either", () => {
    const parent = [-1, -1, 1, 1, 1, 1, 1, 1, 1, -1]; // input, frame with the block, output
    const inside = BLOCK.slice(1, -1).map(([from, to, label]): Sketch["links"][number] => [
      from === 0 ? 0 : from + 1,
      to + 1,
      label
    ]);
    const sizes = parent.map((_, at): Size => (at === 1 ? [200, 0] : CARD));
    const links: Sketch["links"] = [[0, 2, LABEL], ...inside, [8, 9, LABEL]];
    const [frame] = sound({ parent, sizes, links, room: [838, 756] }).groups;
    expect(frame.rows.length).toBeLessThan(2);
  });
});

describe("a drawing from top to bottom", () => {
  it("lets lines that lie in one place enter and leave at heights of their own", () => {
    const inside = { item: 0, y: NaN };
    const border = { item: BORDER, y: NaN };
    const nets = [0, 1].flatMap(() => [
      { start: border, ends: [inside], label: 0 },
      { start: inside, ends: [border], label: 0 }
    ]);
    const room = { width: 1, height: 1, isFixed: false, most: 1000, holds: CANVAS };
    const turned = new Turned({ items: [CARD], nets, room });
    const { starts, exits } = turned.back({
      ...{
        corners: [[0, 0]],
        lines: nets.map(() => [[]]),
        labels: nets.map(() => null),
        below: [],
        width: 0,
        height: 0
      },
      ...{ starts: [30, NaN, 30, NaN], exits: [NaN, 30, NaN, 30] }
    });
    for (const [one, other] of [
      [starts[0], starts[2]],
      [exits[1], exits[3]]
    ])
      expect(Math.abs(one - other)).toBeGreaterThan(6);
  });

  it("has shapes on its lines, centred below the cards", () => {
    const { groups, boxes } = sound(block([838, 756]));
    const labels = groups[0].labels.filter(label => label !== null);
    expect(labels).toHaveLength(groups[0].labels.length);
    const [[x, y]] = labels;
    const [left, top, width, height] = boxes[0];
    expect(x).toBeCloseTo(left + width / 2);
    expect(y).toBeGreaterThan(top + height);
  });

  it("is drawn from left to right where its frames would stand aside of each other", () => {
    const inside = [0, 1, 2, 3];
    const parent = inside.flatMap(frame => [-1, ...[0, 0, 0, 0].map(() => 5 * frame)]);
    const links = inside.flatMap(frame => {
      const first = 5 * frame + 1;
      const chain = [0, 1, 2].map((at): Sketch["links"][number] => [first + at, first + at + 1, LABEL]);
      return frame < 3 ? [...chain, [first + 3, first + 5, LABEL] as Sketch["links"][number]] : chain;
    });
    const sizes = parent.map((above, at): Size => (above < 0 && at % 5 === 0 ? [200, 0] : CARD));
    const { groups, bounds } = sound({ parent, sizes, links });
    const canvas = groups[groups.length - 1];
    if (canvas.isTurned) expect(bounds[2]).toBeLessThan(bounds[3]);
  });

  it("is sound on canvases of any shape", () => {
    const rooms: Size[] = [[586, 516], [838, 756], [400, 900], [1300, 400], CANVAS]; // prettier-ignore
    let turned = 0;
    for (let seed = 1000; seed < 1060; seed++) {
      turned += sound({ ...randomSketch(seed), room: rooms[seed % rooms.length] }).groups.filter(
        group => group.isTurned
      ).length;
    }
    expect(turned).toBeGreaterThan(20);
  }, 60_000);
});
