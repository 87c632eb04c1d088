import { describe, expect, it } from "vitest";
import { type EdgePaint, HEADER, type PaintItem, TITLE } from "./paint_items";
import { labelsOn, textsOn } from "./painted_texts";
import type { NodeKind, SceneNode } from "./scene_types";

const measure = (text: string, size: number): number => text.length * size;

function item(kind: NodeKind, texts: Partial<SceneNode> = {}): PaintItem {
  const node: SceneNode = {
    ...{ id: "a", index: 0, path: "a", parent: -1, kind, size: [200, 60] },
    ...{ title: "Conv2d", subtitle: "a", detail: "3 → 4", badge: "", ...texts }
  };
  const rest = { depth: 0, container: false, family: "#000000", fill: null, status: null, mark: null, flag: "" };
  return { node, box: [100, 50, 200, 60], ...rest, dim: false, hit: false, onAxis: false, selected: false };
}

function edge(label: string, lit: boolean, place?: [number, number]): EdgePaint {
  const points: [number, number][] = [
    [0, 0],
    [0, 40],
    [80, 40],
    [80, 60]
  ];
  const route = { edge: { id: "e", source: 0, target: 1, kind: "data" as const, label }, points, label: place };
  return { route, lit, depth: 0, onAxis: false };
}

describe("texts of a picture", () => {
  it("are where they are painted on a card, its class first", () => {
    const found = textsOn(item("module"), measure);
    expect(found.map(({ text, size, isTitle }) => [text, size, isTitle])).toEqual([
      ["Conv2d", 13, true],
      ["a", 11, false],
      ["3 → 4", 11, false]
    ]);
    const [left, top, width, height] = found[0].box;
    expect([left, width]).toEqual([118, 78]);
    expect(top + height / 2).toBe(50 + TITLE);
  });

  it("stand beside each other in the header of a frame", () => {
    const [name, kind] = textsOn(item("group"), measure);
    expect([name.text, name.isTitle, kind.text, kind.isTitle]).toEqual(["a", true, "Conv2d", false]);
    expect(name.box[0]).toBe(130);
    expect(kind.box[0]).toBe(130 + 13 + 8);
    expect(name.box[1] + name.box[3] / 2).toBe(50 + HEADER);
  });

  it("stand in the middle of an input", () => {
    const [{ box }] = textsOn(item("pseudo", { title: "input", subtitle: "" }), measure);
    expect(box[0] + box[2] / 2).toBe(200);
    expect(box[1] + box[3] / 2).toBe(80.5);
  });

  it("that were cut are told as they are read", () => {
    const [{ text, box }] = textsOn(item("module", { title: "AVeryLongNameOfAClass" }), measure);
    expect(text).toMatch(/^AVery.*…$/);
    expect(box[0] + box[2]).toBeLessThanOrEqual(300);
  });

  it("on edges have their place", () => {
    const [{ box }] = labelsOn(edge("1×64", false, [30, 20]), measure);
    expect(box).toEqual([30 - 23, 13, 46, 14]);
    expect(labelsOn(edge("", false, [30, 20]), measure)).toEqual([]);
  });

  it("on edges too short for them are not written, for cards would cover them", () => {
    expect(labelsOn(edge("1×1024×14×14", true), measure)).toEqual([]);
  });

  it("on edges without a place are written in the middle of the line while a card is selected", () => {
    expect(labelsOn(edge("1×64", false), measure)).toEqual([]);
    expect(labelsOn(edge("1×64", true), measure)[0].box).toEqual([40 - 23, 33, 46, 14]);
  });
});
