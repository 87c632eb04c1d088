import { describe, expect, it, vi } from "vitest";
import {
  all,
  choose,
  rendered,
  find,
  host,
  MODULES,
  page,
  texts,
  ticked,
  twelve,
  useMetricPage
} from "../../testing/metric_page";
import { numbers, until, type Parts } from "../../testing/metrics";
import type { PanelState } from "./base/state";

useMetricPage();

describe("the picker", () => {
  it("offers the metrics by kind, and shows what fits", async () => {
    await rendered();
    const groups = all(".mkg-metric-select optgroup").map(group => [
      (group as HTMLOptGroupElement).label,
      ...[...group.children].map(entry => entry.textContent)
    ]);
    expect(groups).toEqual([
      ["Numbers", "WeightNorm", "Loss"],
      ["Histograms", "Histogram"]
    ]);
    choose(".mkg-metric-select", "Histogram");
    expect([page.store.get("metric"), page.store.get("view")]).toEqual(["Histogram", "histogram"]);
    await until(() => expect(ticked()).toEqual(["layer1"]));
    choose(".mkg-metric-select", "WeightNorm");
    expect(page.store.get("view")).toBe("lines");
  });

  // the layers' values lie side by side: the outer ones differ most, layer5 is in the middle
  const OUTER = [0, 1, 2, 3, 5, 9, 10, 11].map(i => `layer${i}`);
  const count = () => find(".mkg-metric-module-count").textContent;

  it("ticks and unticks modules, and counts what is drawn", async () => {
    await rendered();
    expect(ticked()).toEqual(OUTER);
    expect(count()).toBe("8 of 12 modules shown");
    find("[data-mkg-path=layer7] input").click();
    expect(page.store.get("modules")).toEqual(MODULES.filter(module => OUTER.includes(module) || module === "layer7"));
    // there are no more colors than eight that can be told apart
    await until(() => expect(count()).toBe("9 selected, 8 of 12 modules shown"));
    expect(find(".mkg-metric-remarks").textContent).toBe(
      "8 of 9 lines shown: the most unusual. The heat map shows all."
    );
    find("[data-mkg-path=layer0] input").click();
    await until(() => expect([host().dataset.mkgLast, count()]).toEqual(["10", "8 of 12 modules shown"]));
    expect(find(".mkg-metric-own").textContent).toBe("8 most unusual");
    find(".mkg-metric-own").click();
    await until(() => expect(ticked()).toEqual(OUTER));
    expect(find(".mkg-metric-all").textContent).toBe("All 12");
    find(".mkg-metric-all").click();
    await until(() => expect([ticked(), count()]).toEqual([MODULES, "12 selected, 8 of 12 modules shown"]));
  });

  it("has a tick for each row of a heat map", async () => {
    await rendered({ view: "heatmap" });
    expect([ticked(), count()]).toEqual([MODULES, "12 of 12 modules shown"]);
    find("[data-mkg-path=layer3] input").click();
    await until(() => expect(count()).toBe("11 of 12 modules shown"));
    expect(page.store.get("modules")).toEqual(MODULES.filter(module => module !== "layer3"));
    page.store.set("query", "layer1");
    await until(() => expect(count()).toBe("3 of 12 modules shown"));
    expect(ticked()).toEqual(["layer1", "layer10", "layer11"]);
    find(".mkg-metric-own").click();
    expect(page.store.get("modules")).toEqual([]);
  });

  it("counts what is ticked and has no values yet", async () => {
    const parts: Parts = { entries: numbers("WeightNorm", ["a", "b"]), points: [[0, [[0, 1]]]] };
    await rendered({ modules: ["a", "b"] }, parts);
    expect([ticked(), count()]).toEqual([["a", "b"], "2 selected, 1 of 2 modules shown"]);
    page.store.set("modules", []);
    await until(() => expect([ticked(), count()]).toEqual([["a"], "1 of 2 modules shown"]));
  });

  it("goes back from the selected module to its own choice", async () => {
    await rendered();
    all(".mkg-metric-legend-item")[1].click();
    await until(() => expect([ticked(), count()]).toEqual([["layer1"], "1 of 12 modules shown"]));
    find(".mkg-metric-own").click();
    await until(() => expect(ticked()).toEqual(OUTER));
    expect(page.store.get("selected")).toBeNull();
  });

  it("says beside each line why it is drawn", async () => {
    await rendered();
    expect(find(".mkg-metric-legend-head").textContent).toBe("8 most unusual of 12 modules (× median)");
    const reasons = texts(".mkg-metric-legend-reason");
    expect(reasons).toHaveLength(8);
    expect(reasons[4]).toBe("(typical)");
    page.store.set("modules", ["layer1", "layer2"]);
    await until(() => expect(texts(".mkg-metric-legend-reason")).toEqual([]));
    expect(find(".mkg-metric-legend-head").hidden).toBe(true);
  });

  it("searches, and keeps what is ticked but not found", async () => {
    await rendered({ modules: ["layer2"] });
    const search = find<HTMLInputElement>(".mkg-metric-search");
    search.value = "layer1";
    search.dispatchEvent(new Event("input"));
    await until(() =>
      expect(all("[data-mkg-path]").map(row => row.dataset.mkgPath)).toEqual(["layer1", "layer10", "layer11"])
    );
    find("[data-mkg-path=layer10] input").click();
    expect(page.store.get("modules")).toEqual(["layer2", "layer10"]);
    expect(find(".mkg-metric-all").textContent).toBe("Select the 3 found");
    find(".mkg-metric-all").click();
    expect(page.store.get("modules")).toEqual(["layer1", "layer2", "layer10", "layer11"]);
  });

  it("lists 500 modules as one stop of the Tab key", async () => {
    const modules = Array.from({ length: 500 }, (_, i) => `blocks.${i}`);
    await rendered({}, { entries: numbers("WeightNorm", modules), points: modules.map((_, i) => [i, [[0, i]]]) });
    const boxes = all(".mkg-metric-modules input") as HTMLInputElement[];
    expect(boxes.length).toBe(500);
    expect(boxes.filter(box => box.tabIndex === 0)).toEqual([boxes[0]]);
    const key = (name: string) =>
      document.activeElement?.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true }));
    boxes[0].focus();
    key("ArrowDown");
    key("ArrowDown");
    expect(document.activeElement).toBe(boxes[2]);
    key("End");
    expect(document.activeElement).toBe(boxes[499]);
    expect(boxes.filter(box => box.tabIndex === 0)).toEqual([boxes[499]]);
    key("Enter");
    expect(page.store.get("selected")).toBe("blocks.499");
  });

  it("marks the selected module and adds it", async () => {
    await rendered({ modules: ["layer2"], selected: "layer9" });
    expect(ticked()).toEqual(["layer2", "layer9"]);
    expect(all("[aria-current=true]").map(row => row.dataset.mkgPath)).toEqual(["layer9"]);
    expect(all(".mkg-metric-legend-item[aria-pressed=true]").map(item => item.textContent)).toEqual(["layer918"]);
    page.store.set("selected", "layer2");
    await until(() => expect(ticked()).toEqual(["layer2"]));
  });
});

describe("an empty picture", () => {
  const code = () => find(".mkg-metric-waiting-code code").textContent;

  it.each<[string, Partial<PanelState>, Parts, string, RegExp]>([
    ["that nothing has come", {}, {}, "No values yet", /monitor\.track\(step\)/],
    [
      "what gives histograms",
      { view: "histogram" },
      { entries: numbers("Loss", [""]) },
      "histograms",
      /"\*": \[\s+\["WeightHistogram"/
    ],
    [
      "what gives rows",
      { view: "heatmap" },
      { entries: numbers("Loss", [""]) },
      "one row per layer",
      /OutputGradSndNorm/
    ],
    ["how to evaluate", { phase: "eval" }, twelve(), "the eval phase", /model\.train\(False\)/],
    ["what gives a metric", { metric: 'a"b' }, twelve(), "No values of this metric", /\["a\\"b"\]/]
  ])("says %s, as code to copy", async (_, state, parts, text, lines) => {
    await rendered(state, parts);
    expect(find(".mkg-metric-waiting").hidden).toBe(false);
    expect(find(".mkg-metric-waiting-text").textContent).toContain(text);
    expect(code()).toMatch(lines);
    const writeText = vi.fn(() => Promise.resolve());
    vi.stubGlobal("navigator", { clipboard: { writeText } });
    find(".mkg-metric-copy").click();
    await until(() => expect(page.store.get("notice")).toBe("Copied."));
    expect(writeText).toHaveBeenCalledWith(code());
    vi.unstubAllGlobals();
  });

  it("has no code where a search finds nothing", async () => {
    await rendered({ view: "heatmap", query: "attention" });
    expect(find(".mkg-metric-waiting-text").textContent).toBe(
      "No shown module matches the search. Change the search or select more modules."
    );
    expect(find(".mkg-metric-waiting-code").hidden).toBe(true);
  });
});
