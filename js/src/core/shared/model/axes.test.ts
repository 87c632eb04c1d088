import { describe, expect, it } from "vitest";
import { golden } from "../../../testing/payloads";
import { type Axes, axesOf } from "./axes";
import { Hierarchy } from "./hierarchy";

const h = new Hierarchy(golden("traced"));
const axes = axesOf(h) as Axes;
const node = (path: string) => h.find(path) ?? -1;
const axis = (name: string) => axes.find(name) ?? -1;

describe("axes", () => {
  it("are not there without a forward pass that came to its end", () => {
    expect(axesOf(new Hierarchy(golden("folded")))).toBeNull();
    expect(axesOf(new Hierarchy(golden("stopped")))).toBeNull();
  });

  it("are found by name", () => {
    expect(axes.name(axis("left.out"))).toBe("left.out");
    expect(axes.find("left.nowhere")).toBeUndefined();
    expect(axes.find(null)).toBeUndefined();
  });

  it("know their members, and the modules of these in tree order", () => {
    const found = axes.members(axis("left.out")).map(({ node: at, tensor, dim }) => [h.path(at), tensor, dim]);
    expect(found).toEqual([
      ["left", "weight", 0],
      ["left", "bias", 0],
      ["right", "weight", 0],
      ["right", "bias", 0],
      ["head", "weight", 1]
    ]);
    expect(axes.nodes(axis("left.out"))).toEqual([node("left"), node("right"), node("head")]);
  });

  it("say why they are frozen", () => {
    expect(axes.frozen(axis("left.in"))).toBe("model input x");
    expect(axes.frozen(axis("left.out"))).toContain("convolution");
  });

  it("write a dimension in parts that can be clicked", () => {
    const [weight] = axes.tensors(node("head"));
    expect(weight.dims.map(parts => parts.map(part => part.text).join(""))).toEqual(["head.out=2", "(2 left.out=4)"]);
    expect(weight.dims[1].map(part => part.axis)).toEqual([null, axis("left.out"), null]);
  });

  it("have their full names where two would read the same", () => {
    const alike = axesOf(new Hierarchy(golden("traced", ({ axes: raw }) => void raw?.label.fill("out"))));
    const written = alike?.tensors(node("left"))[0].dims.map(parts => parts.map(part => part.text).join(""));
    expect(written).toEqual(["left.out=4", "left.in=3"]);
  });

  it("count a tensor with two names once, and light up both modules", () => {
    const tied = new Hierarchy(
      golden("traced", ({ flow, axes: raw }) => {
        const [left, right] = [flow?.tensors.node.indexOf(1) ?? 0, flow?.tensors.node.indexOf(2) ?? 0];
        flow?.tensors.tied.push([right, left]);
        raw?.dims.splice(right, 1, raw.dims[left]);
      })
    );
    const found = axesOf(tied);
    expect(found?.members(axis("left.in")).map(member => member.node)).toEqual([1]);
    expect(found?.nodes(axis("left.in"))).toEqual([1, 2]);
  });

  it("lists those inside a module, free ones first", () => {
    expect(axes.inside(node("left"))).toEqual([axis("left.out"), axis("left.in")]);
    expect(axes.inside(node("act"))).toEqual([]);
    expect(axes.inside(0)).toHaveLength(axes.size);
    const freed = axesOf(new Hierarchy(golden("traced", ({ axes: raw }) => void raw?.frozen.fill(-1, 9, 10))));
    expect(freed?.inside(0)[0]).toBe(9);
  });
});
