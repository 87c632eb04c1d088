import { describe, expect, it } from "vitest";
import { EdgeGrid, EdgeValues, itemSize } from "./edge_hover";
import type { Point } from "../shared/stage/viewport";
import { golden, resnet } from "../../testing/payloads";
import { measurer } from "../shared/base/canvas";
import { type Dataflow, dataflowOf } from "../shared/model/dataflow";
import { buildFlowScene } from "./flow/flow_scene";
import { Hierarchy } from "../shared/model/hierarchy";
import { buildScene } from "./scene/hierarchy_scene";
import type { Scene } from "./scene/scene";
import { GraphStore } from "../shared/model/graph_store";

const lines: Point[][] = [
  [[0, 0], [1000, 0], [1000, 700]], // prettier-ignore
  [
    [-300, -300],
    [900, 500]
  ],
  [
    [50, 40],
    [50, 40]
  ]
];

/** As slow and as simple as can be. */
function nearest(all: readonly (readonly Point[])[], [x, y]: Point): { line: number; distance: number } {
  let best = { line: -1, distance: Infinity };
  all.forEach((points, line) => {
    for (let i = 1; i < points.length; i++) {
      const [[x0, y0], [x1, y1]] = [points[i - 1], points[i]];
      for (let step = 0; step <= 4000; step++) {
        const [px, py] = [x0 + ((x1 - x0) * step) / 4000, y0 + ((y1 - y0) * step) / 4000];
        const distance = Math.hypot(px - x, py - y);
        if (distance < best.distance) best = { line, distance };
      }
    }
  });
  return best;
}

describe("EdgeGrid", () => {
  const grid = new EdgeGrid(lines);

  it("finds the line beside a point, and none that is farther away", () => {
    expect(grid.nearest([500, 4], 5)).toBe(0);
    expect(grid.nearest([500, 6], 5)).toBeNull();
    expect(grid.nearest([1003, 650], 5)).toBe(0);
    expect(grid.nearest([50, 44], 5)).toBe(2);
    expect(grid.nearest([2000, 2000], 400)).toBeNull();
  });

  it("finds the same as a look at all of them", () => {
    let [seed, found] = [7, 0];
    const random = () => (seed = (seed * 16807) % 2147483647) / 2147483647;
    for (let i = 0; i < 60; i++) {
      const at: Point = [random() * 1400 - 350, random() * 1100 - 350];
      const best = nearest(lines, at);
      const reach = 120;
      if (Math.abs(best.distance - reach) < 1) continue;
      expect(grid.nearest(at, reach)).toBe(best.distance <= reach ? best.line : null);
      found += best.distance <= reach ? 1 : 0;
    }
    expect(found).toBeGreaterThan(10);
  });

  it("answers for 2,000 long lines in far less than a millisecond", () => {
    const many = Array.from({ length: 2000 }, (_, i): Point[] => {
      const [x, y] = [(i % 50) * 240, Math.floor(i / 50) * 300];
      return [[x, y], [x, y + 120], [x + 1500, y + 120], [x + 1500, y + 900]]; // prettier-ignore
    });
    const large = new EdgeGrid(many);
    large.nearest([0, 0], 5);
    const begin = performance.now();
    const asked = 2000;
    for (let i = 0; i < asked; i++) large.nearest([(i * 37) % 12000, (i * 91) % 12000], 12);
    expect((performance.now() - begin) / asked).toBeLessThan(1);
  });
});

it.each([
  ["float32", 4],
  ["bfloat16", 2],
  ["float8_e4m3fn", 1],
  ["float4_e2m1fn_x2", 1],
  ["complex64", 8],
  ["int64", 8],
  ["uint8", 1],
  ["quint8", 1],
  ["bool", 1],
  ["", null],
  ["of another sort", null]
])("an element of %s has %s bytes", (dtype, bytes) => {
  expect(itemSize(dtype)).toBe(bytes);
});

describe("what an edge carries", () => {
  const h = new Hierarchy(golden("traced"));
  const carriedIn = (scene: Scene, of = new Hierarchy(golden("traced"))) => {
    const values = new EdgeValues(of);
    return scene.edges.map(edge => values.of(edge, scene.nodes));
  };

  it("is the values of the forward pass, with shape, type and bytes", () => {
    const scene = buildFlowScene(h, dataflowOf(h) as Dataflow, new GraphStore(), measurer(), {
      level: "dataflow",
      pages: new Map()
    }) as Scene;
    const all = carriedIn(scene, h);
    expect(all.length).toBeGreaterThan(5);
    for (const [at, carried] of all.entries()) {
      expect(carried.length).toBe(scene.edges[at].values?.length);
      for (const { shape, dtype, bytes } of carried) {
        const elements = shape === "scalar" ? 1 : shape.split("×").reduce((product, size) => product * Number(size), 1);
        expect(bytes).toBe(elements * (itemSize(dtype) ?? NaN));
      }
    }
  });

  it("is told of the edges of the hierarchy, too: what the edge is labelled with, and of what type it is", () => {
    const scene = buildScene(h, new GraphStore(), measurer());
    const data = scene.edges.filter(({ kind }) => kind === "data");
    expect(data.length).toBeGreaterThan(2);
    const values = new EdgeValues(h);
    for (const edge of data) {
      const carried = values.of(edge, scene.nodes);
      expect(carried.length).toBeGreaterThan(0);
      expect(carried.map(({ shape }) => shape)).toContain(edge.label.replace(/ \+\d+$/, ""));
      expect(carried.every(({ dtype, bytes }) => dtype !== "" && bytes !== null)).toBe(true);
    }
  });

  it("is found at once for thousands of edges", () => {
    const scene = buildScene(h, new GraphStore(), measurer());
    const many = new Hierarchy({
      ...golden("traced"),
      edges: Array.from({ length: 20_000 }, () => h.payload.edges[1])
    });
    const begin = performance.now();
    const values = new EdgeValues(many);
    for (let i = 0; i < 2000; i++) scene.edges.forEach(edge => values.of(edge, scene.nodes));
    expect(performance.now() - begin).toBeLessThan(500);
  });

  it("has one key wherever it goes", () => {
    const scene = buildScene(h, new GraphStore(), measurer());
    const values = new EdgeValues(h);
    const keys = scene.edges.map(edge => values.of(edge, scene.nodes).map(({ key }) => key));
    const fromInput = scene.edges.flatMap(({ source }, at) => (scene.nodes[source].title === "input" ? [at] : []));
    const shared = keys.filter((own, at) =>
      keys.some((other, to) => to !== at && own.some(key => other.includes(key)))
    );
    expect(fromInput.length).toBeGreaterThan(0);
    expect(shared.length).toBeGreaterThan(0);
  });

  it("is nothing for edges that tell the order alone", () => {
    const plain = new Hierarchy(resnet());
    const scene = buildScene(plain, new GraphStore(), measurer());
    expect(carriedIn(scene, plain).every(carried => carried.length === 0)).toBe(true);
  });
});
