import { describe, expect, it } from "vitest";
import { againLine, isPlainName, isTabId, isTabKind, lineFor } from "./lines";

describe("names that may stand in a line", () => {
  it.each(["net", "_private", "Modell2", "größe", "模型"])("takes %s", name => {
    expect(isPlainName(name)).toBe(true);
  });

  it.each([
    "",
    "2net",
    "a.b",
    "a b",
    "a\n",
    "a;b",
    "a(b)",
    "a,b",
    'a"',
    "a#b",
    "lambda",
    "None",
    "𝐢𝐟",
    "a\u2028b",
    "x".repeat(101),
    3,
    null,
    undefined,
    ["net"],
    { toString: () => "net" }
  ])("refuses %j", name => {
    expect(isPlainName(name)).toBe(false);
  });
});

describe("lines", () => {
  it("names the object and the tab", () => {
    expect(lineFor("graph", "net", "mkg-1")).toBe(
      '__import__("modulekg_widgets.widgets.lab.tabs", fromlist=["tabs"]).show_graph(net, "mkg-1")'
    );
  });

  it("stands inputs in brackets of their own, so that a comment ends with its line", () => {
    expect(lineFor("masks", "net", "mkg-1", "x, # two\ny")).toMatch(/show_masks\(net, "mkg-1", \(\nx, # two\ny\n\)\)$/);
  });

  it.each([
    ["net); import os", "mkg-1"],
    ["net", 'mkg-1")'],
    ["net", ""]
  ])("is not made of %j and %j, and the error does not repeat them", (name, tab) => {
    expect(() => lineFor("graph", name, tab)).toThrow(/^not a name$/);
    expect(() => againLine(name, tab)).toThrow(/^not a name$/);
  });

  it("knows its kinds of tabs", () => {
    expect(["graph", "masks", "panel", "plan", "constructor", "", 1].filter(isTabKind)).toEqual([
      "graph",
      "masks",
      "panel",
      "plan"
    ]);
    expect([isTabId("mkg-0a_b"), isTabId("a b"), isTabId("x".repeat(81))]).toEqual([true, false, false]);
  });
});
