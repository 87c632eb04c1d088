import { describe, expect, it } from "vitest";
import { resnet } from "../../testing/payloads";
import { measurer } from "../shared/canvas";
import { buildDedupScene } from "./dedup";
import { Hierarchy } from "../shared/hierarchy";
import { Layouter } from "./layout";
import { openNodes } from "../shared/reveal";
import { buildScene } from "./scene";
import { Store } from "../shared/store";
import type { Box } from "../shared/viewport";
import { type LayoutGroup, type LayoutRequest, type LayoutResult, NO_EDGE } from "./layout_types";
import type { Scene } from "./scene_types";

const request = ({ nodes, groups }: Scene): LayoutRequest => {
  return { sizes: nodes.map(node => node.size), groups, aspect: 1.5, maxWidth: 1300 };
};

function overlap(a: Box, b: Box): boolean {
  return a[0] < b[0] + b[2] && b[0] < a[0] + a[2] && a[1] < b[1] + b[3] && b[1] < a[1] + a[3];
}

function inside([x, y, w, h]: Box, outer: Box): boolean {
  return x >= outer[0] && y >= outer[1] && x + w <= outer[0] + outer[2] && y + h <= outer[1] + outer[3];
}

/** No two siblings overlap, every child lies in its frame, every number is finite. */
function expectSound({ groups }: LayoutRequest, { boxes, bends }: LayoutResult): void {
  for (const { node, items } of groups) {
    items.forEach((item, i) => {
      expect(boxes[item].every(Number.isFinite)).toBe(true);
      expect(node < 0 || inside(boxes[item], boxes[node])).toBe(true);
      expect(items.slice(i + 1).some(other => overlap(boxes[item], boxes[other]))).toBe(false);
    });
  }
  expect(bends.flatMap(([, points]) => points.flat()).every(Number.isFinite)).toBe(true);
}

/** A seeded stand-in for Math.random. */
function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

function randomRequest(seed: number): LayoutRequest {
  const next = random(seed);
  const count = 2 + Math.floor(next() * 30);
  const sizes = Array.from({ length: count }, () => [60 + next() * 200, 30 + next() * 60] as [number, number]);
  const inner = sizes.map((_, i) => i).filter(i => i > 0 && i <= count / 3);
  const outer = sizes.map((_, i) => i).filter(i => i === 0 || i > count / 3);
  const wire = (items: number[]): LayoutGroup["edges"] =>
    items.flatMap((_, i) =>
      items
        .slice(i + 1)
        .flatMap((__, j) => (next() < 0.15 ? [[i, i + 1 + j, NO_EDGE] as [number, number, number]] : []))
    );
  const groups: LayoutGroup[] = [
    { node: 0, items: inner, edges: wire(inner) },
    { node: -1, items: outer, edges: wire(outer) }
  ];
  return { sizes, groups: groups.filter(({ items }) => items.length > 0), aspect: 0.5 + next() * 2, maxWidth: 900 };
}

describe("Layouter", () => {
  const h = new Hierarchy(resnet());

  it.each([[[]], [["layer1"]], [["layer1", "layer1.0", "layer1.0.downsample", "layer3", "layer3.1"]]])(
    "places %j without overlaps, children in their frames",
    expanded => {
      const wanted = request(buildScene(h, new Store({ expanded }), measurer()));
      expectSound(wanted, new Layouter().run(wanted));
    }
  );

  it("places the deduplicated view", () => {
    const wanted = request(buildDedupScene(h, measurer()));
    expectSound(wanted, new Layouter().run(wanted));
  });

  it.each(Array.from({ length: 40 }, (_, seed) => seed))("places a random graph (%i)", seed => {
    const wanted = randomRequest(seed);
    expectSound(wanted, new Layouter().run(wanted));
  });

  it("places what is too much for dagre", () => {
    const count = 400;
    const edges = Array.from({ length: count * 3 }, (_, k) => {
      return [k % count, (k * 7 + 1) % count, NO_EDGE] as [number, number, number];
    });
    const items = Array.from({ length: count }, (_, i) => i);
    const wanted: LayoutRequest = {
      sizes: items.map(() => [120, 60]),
      groups: [{ node: -1, items, edges }],
      aspect: 1.5,
      maxWidth: 1300
    };
    const started = performance.now();
    expectSound(wanted, new Layouter().run(wanted));
    expect(performance.now() - started).toBeLessThan(5000);
  });

  it("makes no sliver of a chain of ten", () => {
    const items = Array.from({ length: 10 }, (_, i) => i);
    const edges = items.slice(1).map(i => [i - 1, i, i - 1] as [number, number, number]);
    const { boxes } = new Layouter().run({
      sizes: items.map(() => [160, 60]),
      groups: [{ node: -1, items, edges }],
      aspect: 1.5,
      maxWidth: 1300
    });
    const width = Math.max(...boxes.map(([x, , w]) => x + w));
    const height = Math.max(...boxes.map(([, y, , hh]) => y + hh));
    expect(width / height).toBeGreaterThan(0.8);
    expect(width / height).toBeLessThan(3);
  });

  it("lays out anew only the group that opens and what is around it", () => {
    const layouter = new Layouter();
    const store = new Store({ expanded: ["layer1", "layer2", "layer3", "layer4"] });
    layouter.run(request(buildScene(h, store, measurer())));
    const before = layouter.misses;
    store.set("expanded", [...store.get("expanded"), "layer3.1"]);
    layouter.run(request(buildScene(h, store, measurer())));
    expect(openNodes(h, store.get("expanded")).size).toBe(5);
    expect(layouter.misses - before).toBe(3); // layer3.1, layer3 and the canvas
    layouter.run(request(buildScene(h, store, measurer())));
    expect(layouter.misses - before).toBe(3);
  });
});
