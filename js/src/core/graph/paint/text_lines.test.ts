import { describe, expect, it } from "vitest";
import type { PaintItem } from "./text_lines";
import type { SceneNode } from "../scene/scene";
import { zoomedLines } from "./text_lines";

const MARK = 11; // where the colored mark of a card ends
const ZOOM = 0.6;
const measure = (text: string, size: number, isBold: boolean): number => text.length * size * (isBold ? 0.55 : 0.5);

function item(width: number, texts: Partial<SceneNode> = {}, height = 62): PaintItem {
  const node: SceneNode = {
    ...{ id: "a", index: 1, path: "a", parent: -1, kind: "module", size: [width, height] },
    ...{ name: "layer3", title: "layer3", subtitle: "Sequential", detail: "36 modules", badge: "", ...texts }
  };
  const rest = { depth: 0, container: false, family: "#000000", fill: null, status: null, mark: null, flag: "" };
  return { node, box: [0, 0, width, height], ...rest, dim: false, hit: false, onAxis: false, selected: false };
}

const texts = (one: PaintItem) => zoomedLines(one, ZOOM, measure).map(({ text }) => text);

describe("a small card", () => {
  it("says its name, with the class below it", () => {
    const lines = zoomedLines(item(120), ZOOM, measure);
    expect(lines.map(({ text, bold, strong }) => [text, bold, strong])).toEqual([
      ["layer3", true, true],
      ["Sequential", false, false]
    ]);
    const [name, kind] = lines;
    expect(kind.y - name.y).toBeGreaterThanOrEqual((name.size + kind.size) / 2);
    expect(name.y - name.size / 2).toBeGreaterThan(0);
    expect(kind.y + kind.size / 2).toBeLessThan(62);
  });

  it("leaves out a class that has no room, and keeps the name", () => {
    expect(texts(item(90))).toEqual(["layer3"]);
    expect(texts(item(120, {}, 34))).toEqual(["layer3"]);
  });

  it("never runs into the mark of its family or out of the card", () => {
    for (const name of ["fc", "layer3", "avgpool_and_a_long_rest"]) {
      for (const width of [60, 90, 120, 236]) {
        for (const { text, x, size, bold } of zoomedLines(item(width, { name }), ZOOM, measure)) {
          const half = measure(text, size, bold) / 2;
          expect([x - half > MARK, x + half < width]).toEqual([true, true]);
        }
      }
    }
  });

  it("is cut where names are alike", () => {
    const [one, other] = ["inception4a", "inception4b"].map(name => texts(item(90, { name }))[0]);
    expect(one).toMatch(/^in.*…on4a$/);
    expect(one).not.toBe(other);
  });

  it("keeps how many it stands for", () => {
    const named = (width: number) => texts(item(width, { name: "denselayer1", badge: "≈ ×48" }))[0];
    expect(named(236)).toBe("denselayer1 ≈ ×48");
    expect(named(150)).toMatch(/^d.*…yer1 ≈ ×48$/);
    expect(named(110)).toMatch(/^d.*…yer1$/); // the stack behind the card says that it is several
  });

  it("of a structure that has no name says the class", () => {
    expect(texts(item(120, { name: "", title: "Sequential", subtitle: "Sequential773" }))).toEqual(["Sequential"]);
  });
});

describe("a small frame", () => {
  it("says its name and how many it stands for", () => {
    const [line, ...rest] = zoomedLines(item(200, { kind: "group", badge: "×6" }, 200), ZOOM, measure);
    expect([line.text, rest]).toEqual(["layer3 ×6", []]);
  });
});

it("an end is written as it is elsewhere: in thin letters, which have room", () => {
  const [line] = zoomedLines(item(76, { kind: "pseudo", name: undefined, title: "output" }, 34), ZOOM, measure);
  expect([line.text, line.bold]).toEqual(["output", false]);
});
