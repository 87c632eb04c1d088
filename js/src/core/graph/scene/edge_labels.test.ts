import { describe, expect, it } from "vitest";
import type { Box, Point } from "../../shared/stage/viewport";
import { addLabels } from "./edge_labels";
import type { Route, SceneNode } from "./scene";

const WIDTH = 56; // in the largest letters

/** Lines as points, each the start of a net of its own; boxes of cards, or of frames. */
function routed(
  lines: Point[][],
  boxes: Box[] = [],
  kind: SceneNode["kind"] = "module",
  known: Pick<Route, "label">[] = []
): Route[] {
  const routes = lines.map((points, at): Route => {
    return {
      ...known[at],
      points,
      edge: { id: "", source: 100 + at, target: 0, kind: "data", label: "2×3", labelRoom: WIDTH, way: [[-1, at, 0]] }
    };
  });
  const nodes = boxes.map(() => ({ kind }) as SceneNode);
  addLabels(routes, nodes, boxes);
  return routes;
}

const placed = (...args: Parameters<typeof routed>) => routed(...args).map(({ label }) => label);

describe("labels that the layout had no room for", () => {
  it("stand in the middle of the longest level stretch", () => {
    expect(placed([[[0, 0], [70, 0], [70, 50], [370, 50]]])).toEqual([[220, 50]]); // prettier-ignore
  });

  it("go aside where a card or another line is in the way, and are left out where all is taken", () => {
    const line: Point[] = [[0, 0], [300, 0]]; // prettier-ignore
    expect(placed([line], [[140, -10, 20, 20]])).toEqual([[75, 0]]);
    expect(placed([line, [[75, -50], [75, 50]]], [[140, -10, 20, 20]])[0]).toEqual([225, 0]); // prettier-ignore
    expect(placed([line], [[0, -10, 300, 20]])).toEqual([undefined]);
  });

  it("are left out on short stretches, and on what goes up or down", () => {
    expect(placed([[[0, 0], [WIDTH, 0], [WIDTH, 300]]])).toEqual([undefined]); // prettier-ignore
  });

  it("lie within frames, but not on their names or borders", () => {
    const inside: Point[] = [[0, 100], [300, 100]]; // prettier-ignore
    expect(placed([inside], [[-50, 0, 400, 200]], "group")).toEqual([[150, 100]]);
    expect(placed([inside], [[-50, 90, 400, 200]], "group")).toEqual([undefined]);
    expect(placed([inside], [[150, 0, 400, 200]], "group")).toEqual([[75, 100]]);
  });
});

describe("labels in larger letters", () => {
  const line: Point[] = [[0, 0], [80, 0]]; // prettier-ignore
  const between = (room: number) => routed([line], [[-20, -10, 60 - room / 2, 20], [40 + room / 2, -10, 50, 20]])[0]; // prettier-ignore

  it("have as much room as the layout left for them", () => {
    expect(routed([line])[0]).toMatchObject({ label: [40, 0], large: { size: 15, at: [40, 0] } });
  });

  it("are smaller, or left out, between cards", () => {
    expect(between(57).large?.size).toBe(15);
    expect(between(52).large?.size).toBe(13);
    expect(between(42)).toMatchObject({ label: [40, 0] });
    expect(between(42).large).toBeUndefined();
    expect(between(38).label).toBeUndefined();
  });

  it("go aside where the layout placed them beside a card", () => {
    const placed = { label: [40, 0] as Point };
    expect(routed([line], [[-20, -10, 32, 20]], "module", [placed])[0].large).toEqual({ size: 15, at: [40, 0] });
    expect(routed([line], [[-20, -10, 38, 20]], "module", [placed])[0].large).toEqual({ size: 13, at: [43.2, 0] });
  });
});

describe("lines of one net that carry different shapes", () => {
  const trunk: Point[] = [[0, 0], [200, 0]]; // prettier-ignore
  const line = (label: string, down: number, across: number): Route => {
    const points: Point[] = [...trunk, [200, down], [200 + across, down]];
    return { points, edge: { id: "", source: 0, target: 1, kind: "data", label, labelRoom: WIDTH, way: [[-1, 0, 0]] } };
  };

  it("have each its own where it runs alone, and none where they run together", () => {
    const routes = [line("2×3", 100, 120), line("4×5", 200, 140), line("4×5", 300, 160)];
    addLabels(routes, [], []);
    expect(routes.map(({ label }) => label)).toEqual([[260, 100], [270, 200], undefined]); // prettier-ignore
  });

  it("have none where none of them runs alone for long enough", () => {
    const routes = [line("2×3", 100, 30), line("4×5", 200, 30)];
    addLabels(routes, [], []);
    expect(routes.map(({ label }) => label)).toEqual([undefined, undefined]);
  });
});
