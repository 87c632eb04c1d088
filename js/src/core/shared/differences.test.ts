import { describe, expect, it } from "vitest";
import { compared, golden, resnet } from "../../testing/payloads";
import type { ModelPayload } from "./payload";
import { Hierarchy } from "./hierarchy";
import { findDifferences, summary } from "./differences";

function listed(payload: ModelPayload): { lines: string[]; summary: string } {
  const { compare } = payload;
  if (!compare) throw new Error("one model");
  const [h, right] = [new Hierarchy(payload), new Hierarchy(compare.model)];
  const found = findDifferences(
    { h, status: compare.left, partners: new Map(compare.pairs) },
    { h: right, status: compare.right, partners: new Map(compare.pairs.map(([a, b]) => [b, a])) }
  );
  const lines = found.map(({ side, node, status }) => `${status} ${(side === 0 ? h : right).path(node)}`);
  return { lines, summary: summary(found) };
}

describe("the differences of two models", () => {
  it("are the places that differ themselves, in the order of the tree", () => {
    expect(listed(compared(resnet([1, 2, 1, 2]), resnet([1, 3, 1, 1])))).toEqual({
      lines: ["added layer2.2", "removed layer4.1"],
      summary: "2 differences: 1 removed, 1 added"
    });
  });

  it("are what Python says of the golden pair", () => {
    expect(listed(golden("compare"))).toEqual({
      lines: ["added 1.5", "changed 3"],
      summary: "2 differences: 1 changed, 1 added"
    });
  });

  it("are none between equal models", () => {
    expect(listed(compared(resnet(), resnet())).summary).toBe("no differences");
  });
});
