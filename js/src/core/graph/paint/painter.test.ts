import { describe, expect, it } from "vitest";
import { contrast, textColorOn, MISSING_COLOR, NOT_FINITE_COLOR, sample } from "../../shared/stage/color";
import { badgeColors, textColorsOn, labelsOn, textsOn } from "./painter";
import { AXIS, mix, readTheme, STATUS_STYLE, type Theme } from "../../shared/stage/theme";
import type { EdgePaint } from "./paint_edges";
import { HEADER, type PaintItem, TITLE } from "./text_lines";
import type { NodeKind, SceneNode } from "../scene/scene";

// what JupyterLab's own themes say, without their transparency
const THEMES = {
  light: { surface: "#ffffff", text: "#212121", muted: "#757575", border: "#e0e0e0", accent: "#1976d2" },
  dark: { surface: "#212121", text: "#e2e2e2", muted: "#999999", border: "#616161", accent: "#2196f3" }
};
const READABLE = 4.5;
const SHARES = [1, 0.6, 0.4]; // of a card: as it is, the same in both models, not searched for

function themeOf(colors: Record<string, string>): Theme {
  const element = document.createElement("div");
  for (const [name, color] of Object.entries(colors)) element.style.setProperty(`--mkg-${name}`, color);
  document.body.append(element);
  return readTheme(element);
}

/** Everything that text stands on, colored values aside. */
function groundsOf(theme: Theme): string[] {
  const frames = [0, 1, 2, 3, 4, 9].map(depth => theme.frame(depth));
  const marks = [AXIS, ...Object.values(STATUS_STYLE).map(({ color }) => color)];
  const tinted = [...frames, theme.surface].flatMap(ground => marks.map(mark => mix(ground, mark, 0.22)));
  return [theme.canvas, theme.ground, theme.surface, ...frames, ...tinted];
}

const values = [...Array.from({ length: 101 }, (_, percent) => sample(percent / 100)), MISSING_COLOR, NOT_FINITE_COLOR];

describe.each(Object.entries(THEMES))("texts of the canvas, %s", (_, colors) => {
  const theme = themeOf(colors);
  const least = (pairs: [string, string][]) => Math.min(...pairs.map(([ground, ink]) => contrast(ground, ink)));

  it("takes the page's colors", () => {
    expect([theme.surface, theme.text, theme.muted]).toEqual([colors.surface, colors.text, colors.muted]);
    expect(theme.quiet(theme.surface)).toBe(colors.muted);
  });

  it("can be read on every ground", () => {
    expect(least(groundsOf(theme).map(ground => [ground, theme.text]))).toBeGreaterThanOrEqual(READABLE);
    expect(least(groundsOf(theme).map(ground => [ground, theme.quiet(ground)]))).toBeGreaterThanOrEqual(READABLE);
    expect(least([[...badgeColors(theme)]])).toBeGreaterThanOrEqual(READABLE);
    const marks = Object.values(STATUS_STYLE).map(({ color }): [string, string] => [color, textColorOn(color)]);
    expect(least(marks)).toBeGreaterThanOrEqual(READABLE);
  });

  it("has lines that stand out from all they run over", () => {
    const grounds = [theme.ground, ...[0, 1, 2, 3, 4].map(theme.frame)];
    expect(least(grounds.map(ground => [ground, theme.edge]))).toBeGreaterThanOrEqual(3);
  });

  it.each(SHARES)("can be read on cards of which %d is seen", share => {
    const cards = (all: string[], isFilled: boolean) =>
      all.flatMap((own): [string, string][] => {
        const ground = mix(theme.canvas, own, share);
        return Object.values(textColorsOn(ground, share, isFilled, theme)).map(ink => [ground, ink]);
      });
    expect(least(cards(values, true))).toBeGreaterThanOrEqual(READABLE);
    expect(least(cards(groundsOf(theme), false))).toBeGreaterThanOrEqual(READABLE);
  });
});

const measure = (text: string, size: number): number => text.length * size;

function item(kind: NodeKind, texts: Partial<SceneNode> = {}): PaintItem {
  const node: SceneNode = {
    ...{ id: "a", index: 0, path: "a", parent: -1, kind, size: [200, 60] },
    ...{ title: "a", subtitle: "Conv2d", detail: "3 → 4", badge: "", ...texts }
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
  it("are where they are painted on a card, its name first", () => {
    const found = textsOn(item("module"), measure);
    expect(found.map(({ text, size, isTitle }) => [text, size, isTitle])).toEqual([
      ["a", 13, true],
      ["Conv2d", 11, false],
      ["3 → 4", 11, false]
    ]);
    const [left, top, width, height] = found[0].box;
    expect([left, width]).toEqual([118, 13]);
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
