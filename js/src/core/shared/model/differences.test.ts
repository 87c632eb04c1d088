import { describe, expect, it } from "vitest";
import { compared, golden, resnet } from "../../../testing/payloads";
import type { ModelPayload } from "../payload/payload";
import { Hierarchy } from "./hierarchy";
import { comparedOf, findDifferences, marksOf, STATUSES, summary } from "./differences";

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

  it("are those of what a prefix stands around, and the prefix itself", () => {
    expect(listed(golden("compare_wrapped"))).toEqual({
      lines: [
        ...["0", "1.0", "1.1", "1.2", "1.3", "1.4"].map(path => `renamed ${path}`),
        "added module.1.5",
        "renamed 2",
        "renamed 4",
        "added ",
        "added average"
      ],
      summary: "11 differences: 8 renamed, 3 added"
    });
  });

  it("are marked where they are counted, and what is around them otherwise", () => {
    const h = new Hierarchy(compared(resnet([1, 2, 1, 2]), resnet([1, 3, 1, 1])));
    const models = comparedOf(h);
    if (!models) throw new Error("one model");
    const said = marksOf(...models).map((marks, at) =>
      marks.flatMap((mark, node) => (mark ? [`${mark} ${models[at as 0 | 1].h.path(node)}`] : []))
    );
    // nothing of what is inside of an added or removed block
    expect(said).toEqual([
      ["changed inside ", "changed inside layer2", "changed inside layer4", "removed layer4.1"],
      ["changed inside ", "changed inside layer2", "added layer2.2", "changed inside layer4"]
    ]);
  });

  it.each([compared(resnet([1, 2, 1, 2]), resnet([1, 3, 1, 1])), golden("compare"), golden("compare_wrapped")])(
    "are as many as the marks",
    both => {
      const models = comparedOf(new Hierarchy(both));
      if (!models) throw new Error("one model");
      const [left, right] = marksOf(...models);
      const found = findDifferences(...models);
      for (const status of STATUSES) {
        const marks = status === "added" ? right : left;
        expect(marks.filter(mark => mark === status)).toHaveLength(found.filter(one => one.status === status).length);
      }
    }
  );

  it("are none between equal models", () => {
    expect(listed(compared(resnet(), resnet())).summary).toBe("no differences");
  });
});
