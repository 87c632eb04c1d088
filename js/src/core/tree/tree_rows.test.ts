import { describe, expect, it } from "vitest";
import { hierarchyOf, smallNet } from "../../testing/sample";
import type { Hierarchy } from "../shared/model/hierarchy";
import { rowLabel } from "./tree_rows";

function label(h: Hierarchy, node: number, needles: string[] = []): HTMLElement {
  return rowLabel(h, { node, level: 2, position: 1, siblings: 1, fold: h.fold(node), open: null }, needles);
}

const parts = (element: HTMLElement) => Array.from(element.children, ({ className }) => className);
const named = (name: string, needles: string[] = []) =>
  label(hierarchyOf({ inside: [{ name, cls: "Block" }] }), 1, needles);
const texts = (element: HTMLElement, selector: string) =>
  Array.from(element.querySelectorAll(selector), ({ textContent }) => textContent);

describe("the label of a row", () => {
  it("begins with the name and ends with the class: what stands last gives way first", () => {
    const h = smallNet({ blocks: { "4": "a block" }, marks: { "4": ["never called"] } });
    expect(parts(label(h, 4))).toEqual([
      "mkg-row-name",
      "mkg-row-count",
      "mkg-row-mark",
      "mkg-row-block",
      "mkg-row-class"
    ]);
    expect(label(h, 4).textContent).toBe("0×4!−Block");
  });

  it.each([
    ["inception4a", "incepti", "on4a"],
    ["denseblock3", "denseb", "ock3"],
    ["maxpool", "max", "pool"],
    ["🧱🧱🧱🧱🧱🧱🧱", "🧱🧱🧱", "🧱🧱🧱🧱"]
  ])("keeps the end of %s", (name, start, end) => {
    const row = named(name);
    expect(texts(row, ".mkg-row-start")).toEqual([
      start.length + end.length === name.length ? start : name.slice(0, -4)
    ]);
    expect(texts(row, ".mkg-row-end")).toEqual([end]);
    expect(texts(row, ".mkg-row-name")).toEqual([name]);
  });

  it("leaves a short name whole", () => {
    expect(parts(named("layer1").querySelector(".mkg-row-name") as HTMLElement)).toEqual(["mkg-row-start"]);
  });

  it("marks a match on both sides of the cut", () => {
    const row = named("inception4a", ["tion4"]);
    expect(texts(row, "mark")).toEqual(["ti", "on4"]);
    expect(row.querySelector(".mkg-row-name")?.textContent).toBe("inception4a");
  });
});
