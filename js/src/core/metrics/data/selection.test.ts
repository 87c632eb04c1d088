import { describe, expect, it } from "vitest";
import { type EntryRow, message, numbers, type Parts, series } from "../../../testing/metrics";
import {
  chosenModules,
  heatRows,
  matchesQuery,
  isLogarithmic,
  metricOf,
  modulesOf,
  AUTO_COUNT,
  selectedSeries
} from "./selection";
import { decodeUpdate } from "./payload";
import { MetricData } from "./metric_data";
import { type PanelState, PanelStore } from "../base/state";

const MODULES = Array.from({ length: 12 }, (_, i) => `layer${i}`);

function dataOf(entries: EntryRow[], parts: Parts = {}): MetricData {
  const data = new MetricData(100);
  add(data, { entries, ...parts });
  return data;
}

function add(data: MetricData, parts: Parts): void {
  const { content, buffers } = message(1, parts);
  const update = decodeUpdate(content, buffers);
  if (update) data.apply(update);
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

  it("are a few when nothing is ticked, and all in a heat map", () => {
    expect(chosen({})).toMatchObject({ isOwn: true, modules: { length: AUTO_COUNT } });
    expect(chosen({ view: "heatmap" })).toMatchObject({ modules: MODULES, isOwn: true });
    expect(chosen({ view: "heatmap", selected: "layer9" }).modules).toEqual(MODULES);
    expect(chosen({ view: "heatmap", modules: ["layer9"] }).modules).toEqual(["layer9"]);
  });

  it("are the selected one alone when nothing is ticked and it has the metric", () => {
    expect(chosen({ selected: "layer9" })).toMatchObject({ modules: ["layer9"], isOwn: true });
    expect(chosen({ selected: "elsewhere" }).modules).toHaveLength(AUTO_COUNT);
  });

  it("are those that are ticked, in the order of the model, with the selected one", () => {
    expect(chosen({ modules: ["layer5", "layer2"], selected: "layer3" })).toMatchObject({
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
    selectedSeries(data, storeOf(state), runs).map(({ label }) => label);

  it("names as much as tells the series apart, and no more", () => {
    expect(labels({ metric: "Loss" }, ["base"])).toEqual(["Loss", "Loss"]);
    expect(labels({ metric: "Loss" }, ["base", "big"])).toEqual(["Loss · base", "Loss · big"]);
    expect(labels({ metric: "Loss", phase: "eval" }, ["base", "big"])).toEqual(["Loss · base"]);
    expect(labels({ metric: "Loss", phase: "both" }, ["base"])).toEqual([
      "Loss · train",
      "Loss · eval",
      "Loss · train"
    ]);
    expect(labels({ metric: "Norm" }, ["base"])).toEqual(["relu · call 1", "relu · call 2", "conv"]);
    const rooted = dataOf(numbers("Norm", ["", "conv"]));
    expect(selectedSeries(rooted, storeOf({}), ["base"]).map(({ label }) => label)).toEqual(["whole model", "conv"]);
  });

  it("falls back to the phase that has values, and says which", () => {
    const frozen = dataOf([...numbers("Norm", ["conv"], 0, "eval"), ...numbers("Weight", ["conv"], 0, "train")]);
    const shown = (state: Partial<PanelState>) =>
      selectedSeries(frozen, storeOf(state), ["base"]).map(({ label }) => label);
    expect(shown({ metric: "Norm" })).toEqual(["conv · eval"]);
    expect(shown({ metric: "Norm", phase: "eval" })).toEqual(["conv"]);
    expect(shown({ metric: "Weight", phase: "eval" })).toEqual(["conv · train"]);
    expect(shown({ metric: "Weight" })).toEqual(["conv"]);
    expect(shown({ metric: "Norm", view: "heatmap" })).toEqual(["conv · eval"]);
  });

  it("draws no values of train for who waits for the first of eval", () => {
    const trained = dataOf(numbers("Norm", ["conv"], 0, "train"));
    expect(selectedSeries(trained, storeOf({ metric: "Norm", phase: "eval" }), ["base"])).toEqual([]);
  });

  it("has the rows of a heat map run by run, as far as the search finds them", () => {
    const data = dataOf([...numbers("N", ["a", "b"], 1), ...numbers("N", ["a", "b"], 0)]);
    const rows = heatRows(data, storeOf({ view: "heatmap" }), ["x", "y"]);
    expect(rows.map(({ entry, label }) => [entry.run, label])).toEqual([
      [0, "a"],
      [0, "b"],
      [1, "a"],
      [1, "b"]
    ]);
    expect(
      heatRows(twelve(), storeOf({ metric: "WeightNorm", query: "layer1", view: "heatmap" }), ["x"]).map(
        ({ label }) => label
      )
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
    expect(matchesQuery(module, query)).toBe(expected);
  });
});

// sixty layers that differ a little, and one that is far away
const SIXTY = Array.from({ length: 61 }, (_, i) => `blocks.${i}`);
const BAD = "blocks.37";
const sixty = (value: (layer: number, step: number) => number, parts: Parts = {}) =>
  dataOf(numbers("Norm", SIXTY), {
    points: SIXTY.map((_, layer) => [layer, series(50, step => value(layer, step))]),
    ...parts
  });

describe("the lines that the panel chooses", () => {
  const alike = (layer: number) => 10 + (layer % 7) / 10;
  const bad = (layer: number, value: number) => (layer === 37 ? value : alike(layer));

  it("are those that differ most from the median, and one that does not", () => {
    const { modules, reasons, hasFactors, isOwn, isAuto } = chosenModules(
      sixty(layer => bad(layer, 500)),
      storeOf({})
    );
    expect([modules.length, isOwn, isAuto, hasFactors]).toEqual([AUTO_COUNT, true, true, true]);
    expect(modules).toEqual([...modules].sort((a, b) => SIXTY.indexOf(a) - SIXTY.indexOf(b)));
    expect(reasons.get(BAD)).toBe("49 ×");
    const near = modules.filter(module => reasons.get(module) === "typical");
    expect(near).toEqual([SIXTY[3]]); // 10.3 is the median
  });

  it.each<[string, (layer: number, step: number) => number, string]>([
    ["one value far away", (layer, step) => bad(layer, step === 41 ? 9e5 : 10.3), "87,000 ×"],
    ["one value that is none", (layer, step) => bad(layer, step === 41 ? NaN : 10.3), "NaN or infinite from step 41"],
    ["values below zero", (layer, step) => bad(layer, -5 - step / 1e3), "−15"],
    ["values a millionth as large", (layer, step) => bad(layer, 1e-5 + step / 1e12), "9.7e−7 ×"]
  ])("have one with %s", (_, value, reason) => {
    expect(chosenModules(sixty(value), storeOf({})).reasons.get(BAD)).toBe(reason);
  });

  it("have those with alerts first", () => {
    const alerts: Parts["alerts"] = [[0, "blocks.20", "Norm", 30, "too large"]];
    const { reasons, hasAlerts } = chosenModules(
      sixty(layer => bad(layer, 500), { alerts }),
      storeOf({})
    );
    expect([...reasons][0]).toEqual(["blocks.20", "alert at step 30"]);
    expect(reasons.has(BAD)).toBe(true);
    expect(hasAlerts).toBe(true);
  });

  it("stay while a few values come, and are chosen anew when there are many more", () => {
    const data = sixty(alike);
    const before = chosenModules(data, storeOf({}));
    const further = (from: number, to: number): Parts => ({
      points: [[37, series(to, step => 900 + step).slice(from)]]
    });
    add(data, further(50, 60));
    expect(chosenModules(data, storeOf({})).modules).toBe(before.modules);
    add(data, { points: SIXTY.map((_, layer) => [layer, series(80, () => bad(layer, 900)).slice(60)]) });
    expect(chosenModules(data, storeOf({ paused: true })).modules).toBe(before.modules);
    expect(chosenModules(data, storeOf({})).modules).toContain(BAD);
  });

  it("are all where these are few", () => {
    const few = chosenModules(dataOf(numbers("Norm", ["a", "b"])), storeOf({}));
    expect(few).toMatchObject({ modules: ["a", "b"], reasons: new Map() });
  });
});

describe("the metric of a heat map", () => {
  const layers = ["a", "b", "c", "d"];
  const data = (parts: Parts = {}) =>
    dataOf([...numbers("loss", [""]), ...numbers("Weight", layers), ...numbers("Gradient", layers)], {
      points: [
        [0, series(5, step => 10 ** -step)],
        ...layers.map((_, i): [number, [number, number][]] => [1 + i, series(5, () => 1 + i)]),
        ...layers.map((_, i): [number, [number, number][]] => [5 + i, series(5, () => 10 ** (-2 * i))])
      ],
      ...parts
    });

  it.each<[string, Partial<PanelState>, Parts, string]>([
    ["has layers, those furthest apart", {}, {}, "Gradient"],
    ["is the one of an alert", {}, { alerts: [[0, "a", "Weight", 3, "large"]] }, "Weight"],
    ["is not that of an alert on the loss", {}, { alerts: [[0, "", "loss", 3, "large"]] }, "Gradient"],
    ["is not the chosen one where that has no layers", { metric: "loss" }, {}, "Gradient"],
    ["is the chosen one that has layers", { metric: "Weight" }, {}, "Weight"]
  ])("%s", (_, state, parts, expected) => {
    expect(metricOf(data(parts), storeOf({ view: "heatmap", ...state }))).toBe(expected);
  });

  it("is none where only the whole run has been measured", () => {
    const loss = dataOf(numbers("loss", [""]));
    expect(metricOf(loss, storeOf({ view: "heatmap" }))).toBe("");
    expect(metricOf(loss, storeOf({ view: "heatmap", metric: "loss" }))).toBe("loss");
  });

  it("stays while values come", () => {
    const known = data();
    const store = storeOf({ view: "heatmap" });
    expect(metricOf(known, store)).toBe("Gradient");
    add(known, { points: layers.map((_, i) => [1 + i, series(500, () => 10 ** (9 * i))]) });
    expect(metricOf(known, store)).toBe("Gradient");
  });
});

describe("isLogarithmic", () => {
  const scale = (value: (layer: number, step: number) => number, state: Partial<PanelState> = {}) =>
    isLogarithmic(sixty(value), storeOf(state));

  it.each<[string, (layer: number) => number, boolean, boolean]>([
    ["values of one size", layer => 1 + layer, false, false],
    ["values that span decades", layer => 10 ** (layer / 10), true, true],
    ["the same with zeros", layer => (layer % 9 ? 10 ** (layer / 10) : 0), true, true],
    ["one layer far from all others", layer => (layer === 37 ? 1e5 : 1 + layer / 60), true, false],
    ["values of both signs", layer => (layer % 2 ? -1 : 1) * 10 ** (layer / 10), false, false]
  ])("of %s: lines %s, colors %s", (_, value, lines, colors) => {
    expect([scale(value), scale(value, { view: "heatmap" })]).toEqual([lines, colors]);
  });

  it("is what was chosen, and linear for one line alone that is no loss", () => {
    expect(scale(() => 1, { logScale: true })).toBe(true);
    expect(scale(layer => 10 ** layer, { logScale: false })).toBe(false);
    const rate = dataOf(numbers("lr", [""]), { points: [[0, series(9, step => 10 ** -step)]] });
    expect(isLogarithmic(rate, storeOf({}))).toBe(false);
  });

  it.each<[string, (step: number) => number, (step: number) => number, boolean]>([
    ["together span more than two decades", step => 10 ** -step, () => 1, true],
    ["span more than two decades between them", () => 1e-3, () => 1, true],
    ["span two decades", step => 10 ** (-step / 4), () => 1, false],
    ["reach zero", step => (step === 8 ? 0 : 10 ** -step), () => 1, false],
    ["become negative", step => 4 - step, () => 1e-3, false]
  ])("of losses that %s", (_, train, val, expected) => {
    const losses = dataOf([...numbers("loss", [""]), ...numbers("val_loss", [""])], {
      points: [
        [0, series(9, train)],
        [1, series(9, val)]
      ]
    });
    expect(isLogarithmic(losses, storeOf({}))).toBe(expected);
  });
});
