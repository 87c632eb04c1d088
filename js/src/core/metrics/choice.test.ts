import { describe, expect, it } from "vitest";
import { type EntryRow, message, numbers } from "../../testing/metrics";
import { chosenModules, heatRows, isFound, metricOf, modulesOf, OWN_CHOICE, shownSeries } from "./choice";
import { decodeUpdate } from "./decode";
import { MetricData } from "./metric_data";
import { type PanelState, PanelStore } from "./state";

const MODULES = Array.from({ length: 12 }, (_, i) => `layer${i}`);

function dataOf(entries: EntryRow[]): MetricData {
  const data = new MetricData(100);
  const update = decodeUpdate(message(1, { entries }).content, []);
  if (update) data.apply(update);
  return data;
}

const twelve = () =>
  dataOf([
    ...numbers("Loss", [""]),
    ...numbers("WeightNorm", MODULES),
    [0, "layer3", "Histogram", 0, "train", "histogram"]
  ]);
const storeOf = (state: Partial<PanelState>) => new PanelStore(state);

describe("metricOf", () => {
  const data = twelve();

  it.each<[Partial<PanelState>, string]>([
    [{}, "Loss"],
    [{ metric: "WeightNorm" }, "WeightNorm"],
    [{ metric: "WeightNorm", view: "heatmap" }, "WeightNorm"],
    [{ metric: "WeightNorm", view: "histogram" }, "Histogram"],
    [{ metric: "Histogram" }, "Loss"],
    [{ metric: "Histogram", view: "histogram" }, "Histogram"],
    [{ metric: "Later" }, "Later"]
  ])("of %j is %s", (state, metric) => {
    expect(metricOf(data, storeOf(state))).toBe(metric);
  });

  it("is none while nothing has come", () => {
    expect(metricOf(dataOf([]), storeOf({}))).toBe("");
    expect(modulesOf(dataOf([]), storeOf({ metric: "Later" }))).toEqual([]);
  });
});

describe("chosenModules", () => {
  const data = twelve();
  const chosen = (state: Partial<PanelState>) => chosenModules(data, storeOf({ metric: "WeightNorm", ...state }));

  it("are the first few when nothing is ticked", () => {
    expect(chosen({})).toEqual({ modules: MODULES.slice(0, OWN_CHOICE), isOwn: true });
  });

  it("are the selected one alone when nothing is ticked and it has the metric", () => {
    expect(chosen({ selected: "layer9" })).toEqual({ modules: ["layer9"], isOwn: true });
    expect(chosen({ selected: "elsewhere" }).modules).toHaveLength(OWN_CHOICE);
  });

  it("are those that are ticked, in the order of the model, with the selected one", () => {
    expect(chosen({ modules: ["layer5", "layer2"], selected: "layer3" })).toEqual({
      modules: ["layer2", "layer3", "layer5"],
      isOwn: false
    });
    expect(chosen({ modules: ["layer5"], selected: "layer5" }).modules).toEqual(["layer5"]);
    expect(chosen({ modules: ["layer5", "gone"], selected: "gone" }).modules).toEqual(["layer5"]);
  });

  it("are the panel's own where no ticked one has the metric", () => {
    expect(chosen({ modules: ["gone"] }).isOwn).toBe(true);
  });
});

describe("shownSeries", () => {
  const entries: EntryRow[] = [
    ...numbers("Loss", [""], 0),
    ...numbers("Loss", [""], 0, "eval"),
    ...numbers("Loss", [""], 1),
    [0, "relu", "Norm", 0, "train", "number"],
    [0, "relu", "Norm", 1, "train", "number"],
    [0, "conv", "Norm", 0, "train", "vector"]
  ];
  const data = dataOf(entries);
  const labels = (state: Partial<PanelState>, runs: string[]) =>
    shownSeries(data, storeOf(state), runs).map(({ label }) => label);

  it("names as much as tells the series apart, and no more", () => {
    expect(labels({ metric: "Loss" }, ["base"])).toEqual(["whole model", "whole model"]);
    expect(labels({ metric: "Loss" }, ["base", "big"])).toEqual(["whole model · base", "whole model · big"]);
    expect(labels({ metric: "Loss", phase: "eval" }, ["base", "big"])).toEqual(["whole model · base"]);
    expect(labels({ metric: "Loss", phase: "both" }, ["base"])).toEqual([
      "whole model · train",
      "whole model · eval",
      "whole model · train"
    ]);
    expect(labels({ metric: "Norm" }, ["base"])).toEqual(["relu · call 1", "relu · call 2", "conv"]);
  });

  it("has the rows of a heat map run by run, as far as the search finds them", () => {
    const rows = heatRows(dataOf([...numbers("N", ["a", "b"], 1), ...numbers("N", ["a", "b"], 0)]), storeOf({}), [
      "x",
      "y"
    ]);
    expect(rows.map(({ entry, label }) => [entry.run, label])).toEqual([
      [0, "a"],
      [0, "b"],
      [1, "a"],
      [1, "b"]
    ]);
    expect(
      heatRows(twelve(), storeOf({ metric: "WeightNorm", query: "layer1" }), ["x"]).map(({ label }) => label)
    ).toEqual(["layer1", "layer10", "layer11"]);
  });
});

describe("isFound", () => {
  it.each([
    ["layer1.0.conv1", "", true],
    ["layer1.0.conv1", "CONV", true],
    ["layer1.0.conv1", "layer1 conv", true],
    ["layer1.0.conv1", "layer2 conv", false],
    ["", "whole", true]
  ])("%j with %j", (module, query, expected) => {
    expect(isFound(module, query)).toBe(expected);
  });
});
