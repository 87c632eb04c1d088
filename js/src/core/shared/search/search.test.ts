import { describe, expect, it } from "vitest";
import { deepNet, hierarchyOf, hostileNet, hostileTexts, smallNet, wideNet } from "../../../testing/sample";
import { fieldsOf, highlight, matches, modelSuggestions, readNumber, search, split } from "./search";

const found = (query: string) => matches(smallNet(), query).map(node => smallNet().path(node));

describe("search language", () => {
  it.each([
    ["", []],
    ["   ", []],
    ["CONV1", ["conv1"]],
    ["batchnorm", ["bn1"]],
    ["layer1.2", ["layer1.2", "layer1.2.conv", "layer1.2.relu"]],
    ["er1.2.c", ["layer1.2.conv"]],
    ["type:conv2d layer1.3", ["layer1.3.conv"]],
    ["type:pack.Linear", ["fc"]],
    ['type:"linear"', ["fc"]],
    ['type:"Linear" fc', ["fc"]],
    ['type:"lin"', []],
    ["type:conv", []],
    ["params>=1M", ["", "conv1", "fc"]],
    ["params>1m", [""]],
    ["params>0.1k params<200", ["bn1"]],
    ["params=0 relu 1.0", ["layer1.0.relu"]],
    ["params!=0 params<=128 type:BatchNorm2d", ["bn1"]],
    ["PARAMS==128", ["bn1"]],
    ["params > 1M", [""]],
    ["params >= 1M type:linear", ["fc"]],
    ["params = 0 1.0", ["layer1.0.relu"]],
    ["params == 128", ["bn1"]],
    ['"bn1" params > 100', ["bn1"]],
    ['params > 100 class:"BatchNorm2d"', ["bn1"]],
    ["params > 0.9MB", ["", "conv1", "fc"]],
    ["params > 0.9 MB", ["", "conv1", "fc"]],
    ["params > 0.9 M fc", ["fc"]],
    ["params > 1 MiB", [""]],
    ["params < 0.0000002 B bn1", ["bn1"]],
    ["class:conv2d layer1.3", ["layer1.3.conv"]],
    ["relu params< 1", ["layer1.0.relu", "layer1.1.relu", "layer1.2.relu", "layer1.3.relu"]],
    ["params > 1,000,000", [""]],
    ["params >= 1_000_000 type:linear", ["fc"]],
    ["params ≥ 1M", ["", "conv1", "fc"]],
    ["params≥1M class:linear", ["fc"]],
    ["params ≤ 128 bn1", ["bn1"]],
    ["params ≠ 0 class: BatchNorm2d", ["bn1"]],
    ["class: Linear", ["fc"]],
    ["class:  linear fc", ["fc"]],
    ["class = Linear", ["fc"]],
    ["class=Linear", ["fc"]],
    ["type == linear", ["fc"]],
    ['class = "Linear"', ["fc"]],
    ['class:"Linear', ["fc"]],
    ['"layer1.3.conv', ["layer1.3.conv"]],
    ['params > 100 "bn1', ["bn1"]],
    ["occurrences=4 layer1.1", ["layer1.1", "layer1.1.conv", "layer1.1.relu"]],
    ['"fc"', ["fc"]],
    ["nothing-like-it", []]
  ])("%s", (query, paths) => {
    expect(found(query)).toEqual(paths);
    expect(search(smallNet(), query).notice).toBe("");
  });

  it.each([
    ["type:", "class after"],
    ["class =", "class after"],
    ["params > 1,5", "number after"],
    ["params > 1__0", "number after"],
    ["params > 10 MFLOPs", "number after “params>”"],
    ["params>", "number after"],
    ["params >", "number after “params>”"],
    ["params = x", "number after"],
    ["params > 1i", "number after"],
    ["params>abc", "number after"],
    ["params>1X", "number after"],
    ["speed > 3", "No field “speed”. Fields: params"]
  ])("says what is wrong with %s", (query, notice) => {
    const result = search(smallNet(), query);
    expect(result.notice).toContain(notice);
    expect(result.nodes).toEqual([]);
  });

  it.each([
    ["conv1", ""],
    ["nothing-like-it", "No module matches “nothing-like-it”"],
    ["conv1 params > 1G", "No module matches “params > 1G”"],
    ["conv1 type:Linear", "No module matches all 2 terms"],
    ["kind:Conv2d", /^No search word “kind:”. Use text, class:Conv2d, params > 1M, .*occurrences > 1M.$/],
    ['conv1 "fc" >1M', /^Write a field before “>”: params, .*occurrences.$/],
    ["≥ 5", /^Write a field before “≥”: params/],
    ["params 1M", "Write a number after “params”, for example params > 1M."],
    ["", ""]
  ])("says why nothing was found by %j", (query, why) =>
    expect(search(smallNet(), query).why).toEqual(typeof why === "string" ? why : expect.stringMatching(why))
  );

  it("offers fields, their comparisons and classes as one types", () => {
    const offered = (query: string) => modelSuggestions(smallNet(), query);
    expect(offered("par")).toEqual(["params > 1M"]);
    expect(offered("conv1 params ")).toEqual(["conv1 params > 1M", "conv1 params < 1k", "conv1 params = 0"]);
    expect(offered("lin")).toEqual(["class:Linear"]);
    expect(offered("class:conv")).toEqual(["class:Conv2d"]);
    expect(offered("fc type:conv")).toEqual(["fc class:Conv2d"]);
    expect(offered("class:Conv2d")).toEqual([]);
    expect(offered("")).toContain("params > 1M");
  });

  it.each([
    ["10 MFLOPs", "flops", 1e7],
    ["10MFLOPs", "flops", 1e7],
    ["2 gflop", "flops", 2e9],
    ["5 FLOPs", "flops", 5],
    ["1 MiFLOPs", "flops", null],
    ["10 MFLOPs", "params", null],
    ["1,234,567.5", "params", 1234567.5],
    ["12,34", "params", null]
  ])("reads %s as a number of %s", (text, column, number) => expect(readNumber(text, column)).toBe(number));

  it("keeps a number and its unit together", () => {
    expect(split("flops > 10 MFLOPs conv").map(({ text }) => text)).toEqual(["flops > 10 MFLOPs", "conv"]);
  });

  it("offers the numbers that it can compare", () => {
    expect(fieldsOf(smallNet())).toEqual(expect.arrayContaining(["params", "occurrences"]));
  });

  it("reads comparisons only where they can be meant", () => {
    const h = hierarchyOf({ cls: "A", inside: [{ name: "x=y" }, { name: "a<b>c" }] });
    expect(matches(h, "x=y")).toEqual([1]);
    expect(matches(h, "a<b>c")).toEqual([2]);
  });

  it("keeps phrases together", () => {
    const h = hierarchyOf({ cls: "A", inside: [{ name: "my conv" }, { name: "conv my" }] });
    expect(matches(h, "my conv")).toEqual([1, 2]);
    expect(matches(h, '"my conv"')).toEqual([1]);
  });

  it("does not count missing or undefined numbers", () => {
    const h = hierarchyOf({
      cls: "A",
      inside: [
        { name: "a", params: null },
        { name: "b", params: "NaN" },
        { name: "c", params: "Infinity" }
      ]
    });
    expect(matches(h, "params>=0")).toEqual([0, 3]);
    expect(matches(h, "params!=0 type:Module")).toEqual([2, 3]);
  });

  it("finds hostile names by themselves", () => {
    const texts = hostileTexts();
    const h = hostileNet(texts);
    texts.forEach((text, i) => expect(matches(h, text), text).toContain(1 + 2 * i));
  });

  it("agrees with the full paths", () => {
    const h = smallNet();
    for (const needle of ["1", ".", "1.", "r1.0", "layer1.0.conv", "v"]) {
      const plain = Array.from({ length: h.size }, (_, i) => i).filter(
        i => h.path(i).includes(needle) || h.className(i).toLowerCase().includes(needle)
      );
      expect(matches(h, needle)).toEqual(plain);
    }
  });

  it("survives very wide and very deep models", () => {
    const wide = wideNet(100_000);
    wide.column("params");
    expect(matches(wide, "999 type:linear params>5k").length).toBeGreaterThan(100);
    expect(matches(deepNet(5_000), "inner.inner.inner").length).toBe(4_997);
  });
});

describe("highlight", () => {
  it.each<[string, string[], string[]]>([
    ["layer1", ["er"], ["lay", "er", "1"]],
    ["Conv2d", ["conv", "nv2"], ["", "Conv2", "d"]],
    ["aaa", ["a"], ["", "aaa", ""]],
    ["fc", ["x"], ["fc"]],
    ["fc", [], ["fc"]]
  ])("%s %j", (text, needles, parts) => {
    const cut = highlight(text, needles);
    expect(cut.join("")).toBe(text);
    expect(cut).toEqual(parts);
  });
});
