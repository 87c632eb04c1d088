import { describe, expect, it } from "vitest";
import {
  restoreLine,
  isPlainName,
  isTabId,
  isTabKind,
  lineFor,
  OTHER_VERSION,
  readKernelList,
  SCHEMA_VERSION
} from "./kernel_objects";

const read = (raw: unknown) => readKernelList(raw, isPlainName);
const listOf = (...objects: unknown[]) => ({ schema_version: SCHEMA_VERSION, objects, left_out: 0 });
const NET = { name: "net", kind: "model", class: "Sequential", size: [12] };

describe("the list of a kernel", () => {
  it("is read", () => {
    expect(read({ ...listOf(NET), left_out: 3 })).toEqual({
      objects: [{ name: "net", kind: "model", className: "Sequential", size: [12] }],
      leftOut: 3
    });
  });

  it("takes large sizes as text, and none", () => {
    const list = read(listOf({ ...NET, size: ["90071992547409920"] }, { ...NET, size: null }));
    expect(list).toMatchObject({ objects: [{ size: [90071992547409920] }, { size: null }] });
  });

  it("takes sizes that are none for none", () => {
    const list = read(listOf({ ...NET, size: [{ toString: 3, valueOf: 3 }] }, { ...NET, size: {} }));
    expect(list).toMatchObject({ objects: [{ size: null }, { size: null }] });
  });

  it.each([
    { ...NET, name: "net()" },
    { ...NET, name: 'a"); import os #' },
    { ...NET, kind: "constructor" },
    { ...NET, kind: undefined },
    null,
    "net",
    [NET]
  ])("leaves out %j", entry => {
    expect(read(listOf(entry, NET))).toMatchObject({ objects: [{ name: "net" }] });
  });

  it("bounds texts and numbers of entries", () => {
    const long = read(listOf(...Array.from({ length: 3000 }, () => ({ ...NET, class: "x".repeat(5000) }))));
    expect(long).toMatchObject({ objects: { length: 1000 } });
    expect(long !== null && long !== OTHER_VERSION && long.objects[0].className.length).toBe(200);
  });

  it("of another version is told apart from no list", () => {
    expect(read({ ...listOf(), schema_version: 2 })).toBe(OTHER_VERSION);
    expect([read(null), read([]), read({ schema_version: 1 }), read({ ...listOf(), objects: {} })]).toEqual([
      null,
      null,
      null,
      null
    ]);
  });
});

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
    expect(() => restoreLine(name, tab)).toThrow(/^not a name$/);
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
