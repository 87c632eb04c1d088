import { describe, expect, it } from "vitest";
import type { PaintItem } from "./text_lines";
import type { SceneNode } from "../scene/scene";
import { linesOf, zoomedLines } from "./text_lines";
import { LEAST_TEXT } from "../../shared/stage/viewport";

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

describe("what is written", () => {
  const zooms = [0.33, 0.4, 0.5, 0.6, 0.68, 0.7, 0.75, 0.8, 0.85, 0.9, 1, 1.15];
  const kinds: [number, Partial<SceneNode>, number][] = [
    [120, {}, 62],
    [236, { subtitle: "LlamaDecoderLayer", badge: "×35" }, 62],
    [116, { detail: "3 → 64 · k 7×7 · s 2×2 · p 3" }, 62],
    [90, { isGlyph: true, title: "view", subtitle: "", detail: "1×512×1×1 → 1×512" }, 54],
    [300, { kind: "group", badge: "≈ ×4" }, 200],
    [80, { kind: "pseudo", title: "output", subtitle: "", detail: "" }, 34]
  ];
  const written = (one: PaintItem, zoom: number) =>
    zoom < 0.69 ? zoomedLines(one, zoom, measure) : linesOf(one, measure, zoom);

  it.each(zooms)("has at least ten pixels at a zoom of %f, and stays on its card", zoom => {
    for (const [width, texts, height] of kinds) {
      for (const { text, x, y, size, bold, centred } of written(item(width, texts, height), zoom)) {
        expect(size * zoom).toBeGreaterThanOrEqual(LEAST_TEXT);
        const across = measure(text, size, bold);
        expect(centred ? x - across / 2 : x).toBeGreaterThanOrEqual(0);
        expect(centred ? x + across / 2 : x + across).toBeLessThanOrEqual(width);
        expect([y - size / 2 >= 0, y + size / 2 <= height]).toEqual([true, true]);
      }
    }
  });

  it("says less where larger letters have no room: of a layer its first numbers, of what opens its size", () => {
    const last = (detail: string, container: boolean, zoom: number) =>
      linesOf({ ...item(140, { detail }), container }, measure, zoom).pop()?.text;
    const [layer, opening] = ["3 → 64 · k 7×7 · s 2", "6 modules · 3.67 M"];
    expect([last(layer, false, 1), last(opening, true, 1)]).toEqual([layer, opening]);
    expect([last(layer, false, 0.7), last(opening, true, 0.7)]).toEqual(["3 → 64 · k 7×7", "3.67 M"]);
  });

  it("is no part of a shape", () => {
    const glyph = item(90, { isGlyph: true, title: "view", subtitle: "", detail: "1×512×1×1 → 1×512" }, 54);
    const said = (zoom: number) => linesOf(glyph, measure, zoom).map(({ text }) => text);
    expect(said(1)).toEqual(["view", "1×512×1×1", "→ 1×512"]);
    expect(linesOf({ ...glyph, box: [0, 0, 64, 54] }, measure, 0.7).map(({ text }) => text)).toEqual(["view"]);
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
