import { describe, expect, it } from "vitest";
import { resnet } from "../../testing/payloads";
import { CANVAS, faultsOf, randomSketch, requestOf, seeded, type Sketch } from "../../testing/layouts";
import { measurer } from "../shared/base/canvas";
import { buildDedupScene, buildScene } from "../graph/scene/hierarchy_scene";
import { Hierarchy } from "../shared/model/hierarchy";
import { backward } from "./layers";
import { Layouter, NESTED } from "./layouter";
import { openNodes } from "../shared/model/expansion";
import { LEGIBLE_ZOOM, MIN_WHOLE_ZOOM } from "../shared/stage/viewport";
import { GraphStore } from "../shared/model/graph_store";
import type { LayoutRequest, LayoutResult, Size } from "./types";
import type { Scene } from "../graph/scene/scene";

const request = ({ nodes, groups }: Scene): LayoutRequest => {
  return { sizes: nodes.map(node => node.size), groups, room: CANVAS };
};

/** What the lot draws is sound, or the seeds say where it is not. */
function expectSound(wanted: LayoutRequest): LayoutResult {
  const result = new Layouter().run(wanted);
  expect(faultsOf(wanted, result)).toEqual([]);
  return result;
}

const cards = (count: number): Pick<Sketch, "parent" | "sizes"> => ({
  parent: Array.from({ length: count }, () => -1),
  sizes: Array.from({ length: count }, (): Size => [160, 60])
});
const chain = (count: number): Sketch => ({
  ...cards(count),
  links: Array.from({ length: count - 1 }, (_, at) => [at, at + 1, ""])
});

describe("Layouter", () => {
  const h = new Hierarchy(resnet());

  it.each([[[]], [["layer1"]], [["layer1", "layer1.0", "layer1.0.downsample", "layer3", "layer3.1"]]])(
    "places %j without overlaps, children in their frames",
    expanded => {
      expectSound(request(buildScene(h, new GraphStore({ expanded }), measurer())));
    }
  );

  it("places the deduplicated view", () => {
    expectSound(request(buildDedupScene(h, measurer())));
  });

  it.each(Array.from({ length: 8 }, (_, block) => block))("places 20 random graphs soundly (block %i)", block => {
    const faults = Array.from({ length: 20 }, (_, k) => 20 * block + k).flatMap(seed => {
      const wanted = requestOf(randomSketch(seed));
      return faultsOf(wanted, new Layouter().run(wanted)).map(fault => `seed ${seed}: ${fault}`);
    });
    expect(faults).toEqual([]);
  });

  it("leads lines that end at a frame beside those that go on inside of it", () => {
    for (const toFrame of [1, 2, 3]) {
      const sources = 4;
      const sizes = Array.from({ length: sources }, (): Size => [100, 60]);
      const wanted = requestOf({
        parent: [...sizes.map(() => -1), -1, sources],
        sizes: [...sizes, [140, 0], [76, 40]],
        links: sizes.map((_, at) => [at, at < toFrame ? sources : sources + 1, ""])
      });
      const { lines } = expectSound(wanted).groups[wanted.groups.length - 1];
      const heights = lines.map(([line]) => line[line.length - 1][1]).sort((a, b) => a - b);
      const apart = heights.slice(1).map((height, at) => height - heights[at]);
      expect(heights.length).toBe(sources);
      expect(Math.min(...apart)).toBeGreaterThan(4);
    }
  });

  it("gives equal answers to equal questions, and changes no question", () => {
    for (const seed of [3, 6, 9, 12]) {
      const wanted = requestOf(randomSketch(seed));
      const before = JSON.stringify(wanted);
      const layouter = new Layouter();
      const first = layouter.run(wanted);
      expect(new Layouter().run(requestOf(randomSketch(seed)))).toEqual(first);
      expect(layouter.run(wanted)).toEqual(first);
      expect(JSON.stringify(wanted)).toBe(before);
    }
  });

  it("places nothing, one card, an empty frame, and cards without lines", () => {
    expect(new Layouter().run({ sizes: [], groups: [{ node: -1, items: [], nets: [] }], room: CANVAS }).boxes).toEqual(
      []
    );
    expect(expectSound(requestOf({ ...cards(1), links: [] })).boxes).toEqual([[0, 0, 160, 60]]);
    const empty = requestOf({ ...cards(1), links: [] });
    expectSound({ ...empty, groups: [{ node: 0, items: [], nets: [] }, ...empty.groups] });
    expectSound(requestOf({ ...cards(30), links: [] }));
  });

  it("leads a line that returns to its own card around it", () => {
    const sketch: Sketch = { ...cards(2), links: [[0, 0, "8×3"], [0, 1, ""], [1, 1, ""]] }; // prettier-ignore
    const { groups } = expectSound(requestOf(sketch));
    expect(groups[0].lines.flat().filter(line => line.length > 4)).toHaveLength(2);
  });

  it("leads lines of a cycle back below the cards", () => {
    const { boxes, groups } = expectSound(requestOf({ ...chain(4), links: [...chain(4).links, [3, 1, ""]] }));
    const [back] = groups[0].lines[3];
    expect(Math.max(...back.map(([, y]) => y))).toBeGreaterThan(
      Math.max(...boxes.map(([, y, , height]) => y + height))
    );
  });

  it("lets very many lines come together before the card that they end at", () => {
    const links = Array.from({ length: 20 }, (_, at): Sketch["links"][number] => [at, 20, ""]);
    const { boxes, groups } = expectSound(requestOf({ ...cards(21), links }));
    const [x, y, , height] = boxes[20];
    const heights = groups[0].lines.map(([line]) => line[line.length - 1]);
    expect(heights.every(point => Math.abs(point[0] - x) < 1 && Math.abs(point[1] - y - height / 2) < 1)).toBe(true);
  });

  it("has no limit to how many lines pass each other", () => {
    const far = Array.from({ length: 360 }, (_, at): Sketch["links"][number] => [at, at + 360, ""]);
    const { bounds } = new Layouter().run(requestOf({ ...cards(721), links: [...chain(721).links, ...far] }));
    expect(bounds.every(Number.isFinite)).toBe(true);
  }, 60_000);

  it("makes no sliver of a chain of ten", () => {
    const { bounds } = expectSound(requestOf(chain(10)));
    expect(bounds[2] / bounds[3]).toBeGreaterThan(0.8);
    expect(bounds[2] / bounds[3]).toBeLessThan(6);
    expect(bounds[2] * 0.7).toBeLessThanOrEqual(CANVAS[0]);
  });

  it("gives up what is written on lines before what can be read", () => {
    const written = (count: number) => {
      const links = chain(count).links.map(([from, to]): Sketch["links"][number] => [from, to, "1×64×56×56×128"]);
      const result = expectSound(requestOf({ ...cards(count), links }));
      return { labels: result.groups[0].labels.flat(), fits: result.bounds[3] * LEGIBLE_ZOOM <= CANVAS[1] };
    };
    expect(written(10).labels.filter(label => label === null)).toHaveLength(0);
    const counts = Array.from({ length: 12 }, (_, at) => 20 + 4 * at);
    const bare = counts.map(written).filter(({ labels }) => labels.every(label => label === null));
    expect(bare.length).toBeGreaterThan(0);
    expect(bare.every(({ fits }) => fits)).toBe(true);
  });

  it("keeps the rows of the drawing before when a card grows, and says which they are", () => {
    const place = (sketch: Sketch, rows?: number[]) => {
      const wanted = requestOf(sketch);
      const canvas = wanted.groups.length - 1;
      const result = expectSound(structuredClone({ ...wanted, groups: [{ ...wanted.groups[canvas], rows }] }));
      return { result, rows: result.groups[canvas].rows, left: result.boxes.map(([x]) => x) };
    };
    const before = place(chain(20));
    expect(before.rows[0]).toBe(0);
    expect(before.rows.length).toBeGreaterThan(1);
    const grown = { ...chain(20), sizes: chain(20).sizes.map((size, at): Size => (at === 4 ? [420, 160] : size)) };
    expect(place(grown).rows).not.toEqual(before.rows);
    const after = place(grown, before.rows);
    expect(after.rows).toEqual(before.rows);
    expect(after.left.slice(0, 5)).toEqual(before.left.slice(0, 5));
    expect(place(chain(20), after.rows).result).toEqual(before.result); // and back again
  });

  it("gives up rows with which not all can be read at once, if it can with others", () => {
    for (let seed = 0; seed < 60; seed++) {
      const wanted = requestOf(randomSketch(seed));
      const seen = seeded(seed);
      const known = {
        ...wanted,
        groups: wanted.groups.map(group => ({ ...group, rows: group.items.filter(() => seen() < 0.3) }))
      };
      const isLegible = ({ bounds: [, , width, height] }: LayoutResult) =>
        width * LEGIBLE_ZOOM <= CANVAS[0] && height * LEGIBLE_ZOOM <= CANVAS[1];
      const [fresh, kept] = [wanted, known].map(one => new Layouter().run(one));
      expect(faultsOf(known, kept)).toEqual([]);
      if (isLegible(fresh)) expect(isLegible(kept)).toBe(true);
    }
  });

  it("says whether a drawing would fit, but for a tenth, with less work than the drawing takes", () => {
    let [asked, drawn] = [0, 0];
    for (let seed = 0; seed < 40; seed++) {
      const wanted = requestOf(randomSketch(seed));
      const [asking, drawing] = [new Layouter(), new Layouter()];
      const [, , width, height] = drawing.run(wanted).bounds;
      for (const zoom of [LEGIBLE_ZOOM, MIN_WHOLE_ZOOM]) {
        const used = Math.max((width * zoom) / CANVAS[0], (height * zoom) / CANVAS[1]);
        const canFit = asking.canFit(wanted, zoom);
        if (canFit || used < 0.9) expect(canFit).toBe(used <= 1);
      }
      asked += asking.misses;
      drawn += drawing.misses;
    }
    expect(asked).toBeLessThan(drawn);
  });

  it("leaves off a drawing once what is inside has come out too large, and draws nothing where a plan tells", () => {
    const zooms = [0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.3];
    const nested = Array.from({ length: 120 }, (_, seed) => requestOf(randomSketch(seed))).filter(
      ({ groups, sizes }) => groups.length > 1 && sizes.length < 30
    );
    let leftOff = 0;
    for (const wanted of nested) {
      for (const zoom of zooms) {
        const [asking, planning] = [new Layouter(), new Layouter()];
        const isFitting = asking.canFit(wanted, zoom, true);
        const isPlanned = planning.mayFit(wanted, zoom / 1.05);
        if (!isFitting && asking.misses > 0 && asking.misses < wanted.groups.length) leftOff++;
        expect(planning.misses).toBe(0);
        if (!isPlanned) expect([isFitting, asking.misses]).toEqual([false, 0]);
      }
    }
    expect(leftOff).toBeGreaterThan(0);
  });

  it("lays out anew only the group that opens and what is around it", () => {
    const layouter = new Layouter();
    const store = new GraphStore({ expanded: ["layer1", "layer2", "layer3", "layer4"] });
    const huge: Size = [20_000, 20_000]; // all fits with what is written on lines
    const run = () => layouter.run({ ...request(buildScene(h, store, measurer())), room: huge });
    run();
    const before = layouter.misses;
    store.set("expanded", [...store.get("expanded"), "layer3.1"]);
    run();
    expect(openNodes(h, store.get("expanded")).size).toBe(5);
    const shapes = NESTED.length + 1; // that frames are tried in, alike and one with flat ones inside
    expect(layouter.misses - before).toBeLessThanOrEqual(3 * shapes); // layer3.1, layer3 and the canvas
    const after = layouter.misses;
    run();
    expect(layouter.misses).toBe(after);
  });
});

describe("lines that lead back", () => {
  it("are as few as an order allows: code between two containers that take turns leads to the right", () => {
    const [up, first, dec, second, third] = [0, 1, 2, 3, 4]; // in the order of time
    const arcs = [first, second, third].flatMap(cat => [
      { from: up, to: cat },
      { from: cat, to: dec }
    ]);
    const isBack = backward(5, [...arcs, { from: dec, to: up }]);
    expect(arcs.filter(({ from, to }) => isBack(from, to))).toEqual([]);
    expect(isBack(dec, up)).toBe(true);
  });

  it("keep the order of time where another has as many: two that take turns with a third", () => {
    const pairs = [[0, 2], [1, 2], [2, 0], [2, 1]] as const; // prettier-ignore
    const isBack = backward(3, pairs.map(([from, to]) => ({ from, to }))); // prettier-ignore
    expect(pairs.map(([from, to]) => isBack(from, to))).toEqual([false, false, true, true]);
  });
});
