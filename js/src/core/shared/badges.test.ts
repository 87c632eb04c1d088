import { expect, it } from "vitest";
import { smallNet } from "../../testing/sample";
import { foldBadge, meanings } from "./badges";

it("says of each sign what it means", () => {
  const h = smallNet({
    marks: { "1": ["not called in this forward pass"] },
    blocks: { "1": "residual branch: it may go as a whole" },
    tied: [[1, "weight", 16, "weight"]]
  });
  expect(meanings(h, 1)).toEqual([
    "! not called in this forward pass",
    "tied weight is weight of fc",
    "− residual branch: it may go as a whole"
  ]);
  expect(meanings(h, 4, h.fold(4))).toEqual(["×4 stands for 4 modules of identical structure"]);
  expect(meanings(h, 2)).toEqual([]);
});

it("tells what is alike from what is equal", () => {
  const h = smallNet({ folds: [[4, 4, "family", "width 1…4"]] });
  const fold = h.fold(4);
  expect(fold && foldBadge(fold)).toBe("≈ ×4");
  expect(meanings(h, 4, fold)).toEqual(["≈ ×4 stands for 4 modules of similar structure: width 1…4"]);
});
