import { describe, expect, it } from "vitest";
import { goldenKnowledge } from "../../../testing/knowledge";
import { compare, innermost, outermost } from "./compare_panel";
import { Knowledge } from "../data/knowledge";

const data = new Knowledge(goldenKnowledge());
const place = (name: string) => data.payload.models.name.indexOf(name);

describe("the comparison of two models", () => {
  it("counts structures, modules and parameters on both sides", () => {
    // small: two Blocks of 4, ReLU, Linear(4, 2); wide: Blocks of 4, 8, 8, 16 and Linear(16, 2)
    const { sides, both, first, second, overlap } = compare(data, place("small"), place("wide"));
    const classes = both.map(({ entity, uses }) => [data.className(entity), ...uses]);
    expect(classes).toEqual([
      ["ReLU", 3, 4],
      ["Block", 2, 1],
      ["Conv2d", 2, 1]
    ]);
    expect([both.length, first.length, second.length].map((count, i) => count + (i ? both.length : 0))).toEqual([
      3,
      data.memberSet(place("small")).size,
      data.memberSet(place("wide")).size
    ]);
    expect(overlap).toBe(data.overlap(place("small"), place("wide")));
    const block = data.params[both[1].entity] ?? 0;
    expect(block).toBeGreaterThan(0);
    expect(sides.map(({ params }) => params.shared)).toEqual([2 * block, block]); // not the Conv2d in it again
    expect(sides.map(({ modules }) => [modules.shared, modules.all])).toEqual([
      [7, data.payload.models.modules[place("small")]],
      [6, data.payload.models.modules[place("wide")]]
    ]);
  });

  it("comes to the outermost of what is shared and the innermost of what differs", () => {
    const { both, first, second } = compare(data, place("small"), place("wide"));
    const names = (found: readonly number[]) => found.map(entity => data.className(entity));
    expect(names(outermost(data, both))).toEqual(["Block"]); // its Conv2d and ReLU are in it
    expect(names(innermost(data, first))).toEqual(["Linear"]); // not the Sequential around it
    expect(names(innermost(data, second))).toEqual(["Conv2d", "Conv2d", "Linear"]);
  });

  it("of models that are built alike shares everything", () => {
    const { sides, first, second } = compare(data, place("small"), place("twin"));
    expect([first, second]).toEqual([[], []]);
    for (const { params, modules, structures } of sides)
      for (const { shared, all } of [params, modules, structures]) expect(shared).toBe(all);
  });
});
