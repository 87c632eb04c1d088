import { describe, expect, it } from "vitest";
import { contrast, inkOn, MISSING_COLOR, NOT_FINITE_COLOR, sample } from "../shared/color";
import { badgeColors, inksOn } from "./paint";
import { AXIS, mix, readTheme, STATUS_STYLE, type Theme } from "../shared/theme";

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
    const marks = Object.values(STATUS_STYLE).map(({ color }): [string, string] => [color, inkOn(color)]);
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
        return Object.values(inksOn(ground, share, isFilled, theme)).map(ink => [ground, ink]);
      });
    expect(least(cards(values, true))).toBeGreaterThanOrEqual(READABLE);
    expect(least(cards(groundsOf(theme), false))).toBeGreaterThanOrEqual(READABLE);
  });
});
