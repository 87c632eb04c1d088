import { describe, expect, it } from "vitest";
import {
  all,
  choose,
  find,
  host,
  page,
  receive,
  rendered,
  texts,
  ticked,
  useMetricPage
} from "../../../testing/metric_page";
import { type EntryRow, numbers, type Parts, series, until } from "../../../testing/metrics";
import type { PanelState } from "../base/state";
import { distinctParts, spread } from "../lines/end_labels";

useMetricPage();

const MODULES = ["a", "b", "c"];
/** Norms of three modules, and what is logged: the loss comes last. */
const training = (): Parts => ({
  entries: [
    ...numbers("Norm", MODULES),
    ...numbers("lr", [""]),
    ...numbers("LossSpike", [""]),
    ...numbers("val_loss", [""]),
    ...numbers("loss", [""])
  ],
  points: [...Array(7).keys()].map(i => [i, series(10, step => (step + 1) * 10 ** i)])
});

const grid = (state: Partial<PanelState> = {}, parts: Parts = training(), runs?: readonly string[]) =>
  rendered({ view: "grid", ...state }, parts, runs);
const cards = () => texts(".mkg-metric-card-title");
const card = (metric: string) => find(`[data-mkg-metric=${metric}]`);
const state = () => [find(".mkg-metric-state").textContent, find(".mkg-metric-state").dataset.mkgState];

describe("the charts of all metrics", () => {
  it("begin with the loss, then what else is logged, then the metrics of modules", async () => {
    await grid();
    expect(cards()).toEqual(["loss", "val_loss", "lr", "LossSpike", "Norm"]);
    expect(all(".mkg-is-first").map(one => one.dataset.mkgMetric)).toEqual(["loss"]);
    expect(find(".mkg-metric-title").textContent).toBe("All metrics");
    expect(texts(".mkg-metric-select option")).toEqual(["All metrics", "loss", "val_loss", "lr", "LossSpike", "Norm"]);
  });

  it.each([
    [
      "whatever its name is",
      ["objective", "Norm"],
      { entries: [...numbers("Norm", ["a"]), ...numbers("objective", [""])] }
    ],
    ["which not every root is", ["Norm"], { entries: [...numbers("Norm", ["", "a"])] }]
  ])("begin with what is logged, %s", async (_, expected, { entries }) => {
    await grid({}, { entries, points: entries.map((_, i) => [i, series(3, step => step)]) });
    expect(cards()).toEqual(expected);
  });

  it("say how many modules and calls each has, and its latest values", async () => {
    const calls = [0, 1].map((call): EntryRow => [0, "a", "Calls", call, "train", "number"]);
    const { entries = [], points = [] } = training();
    const own = [7, 8].map((i): [number, [number, number][]] => [i, series(10, step => step + i)]);
    await grid({}, { entries: [...entries, ...calls], points: [...points, ...own] });
    const said = (metric: string) =>
      [".mkg-metric-card-value", ".mkg-metric-card-note"].map(part => card(metric).querySelector(part)?.textContent);
    expect(said("loss")).toEqual(["1e7", ""]);
    expect(said("Norm")).toEqual(["10 – 1,000", "3 modules · Log scale"]);
    expect(said("Calls")).toEqual(["16 – 17", "1 module · 2 calls"]);
    expect(card("Norm").querySelector("[role=group]")?.getAttribute("aria-label")).toMatch(
      /^Line chart of Norm, 3 lines\./
    );
  });

  it("are eight lines each, the most unusual ones", async () => {
    const modules = Array.from({ length: 30 }, (_, i) => `m${i}`);
    await grid({}, { entries: numbers("Norm", modules), points: modules.map((_, i) => [i, series(5, () => i)]) });
    expect(card("Norm").querySelector(".mkg-metric-card-note")?.textContent).toBe("8 most unusual of 30 modules");
    expect(find(".mkg-metric-module-count").textContent).toBe("8 of 30 modules shown");
    expect(ticked()).toHaveLength(8);
    page.store.set("modules", modules.slice(0, 9));
    await until(() => expect(find(".mkg-metric-module-count").textContent).toBe("9 selected, 8 of 30 modules shown"));
  });

  it("open one by one, and back; what is chosen stays", async () => {
    const chosen = { window: 5, zoom: [2, 6] as const, logScale: true, paused: true, modules: ["a"], selected: "b" };
    await grid({ ...chosen, phase: "both" });
    const before = page.store.snapshot();
    const opened = { ...before, metric: "Norm", view: "lines" };
    card("Norm").querySelector("button")?.focus();
    card("Norm").querySelector("button")?.click();
    await until(() => expect(find(".mkg-metric-title").textContent).toBe("Norm"));
    expect(page.store.snapshot()).toEqual(opened);
    expect(document.activeElement).toBe(find(".mkg-metric-picture"));
    for (const view of ["heatmap", "histogram", "lines", "grid"]) {
      choose(".mkg-metric-view", view);
      await until(() => expect(page.store.snapshot()).toEqual({ ...opened, view }));
    }
    choose(".mkg-metric-view", "lines");
    await until(() => expect(find(".mkg-metric-back").hidden).toBe(false));
    find(".mkg-metric-back").click();
    await until(() => expect(document.activeElement).toBe(card("Norm").querySelector("button")));
    expect(page.store.snapshot()).toEqual({ ...opened, view: "grid" });
    expect(card("Norm").getAttribute("aria-current")).toBe("true");
  });

  it("are chosen in the list of metrics, and one of them with the keyboard", async () => {
    await grid();
    const chart = card("lr").querySelector("[role=group]");
    chart?.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
    expect([page.store.get("metric"), page.store.get("view")]).toEqual(["lr", "lines"]);
    choose(".mkg-metric-select", "");
    expect(page.store.get("view")).toBe("grid");
    choose(".mkg-metric-select", "Norm");
    expect([page.store.get("metric"), page.store.get("view")]).toEqual(["Norm", "lines"]);
  });

  it("follow what comes: values, metrics and modules", async () => {
    await grid();
    expect([host().dataset.mkgPoints, host().dataset.mkgLast]).toEqual(["70", String(10 ** 7)]);
    const entries = [...numbers("Late", ["a"])];
    receive({
      from: 7,
      entries,
      points: [
        [6, [[10, 5]]],
        [7, [[10, 6]]]
      ]
    });
    await until(() => expect(cards()).toEqual(["loss", "val_loss", "lr", "LossSpike", "Norm", "Late"]));
    expect([host().dataset.mkgPoints, host().dataset.mkgLast]).toEqual(["72", "5"]);
  });

  it("tell runs apart below, and name them once", async () => {
    const entries = [...numbers("loss", [""], 0), ...numbers("loss", [""], 1)];
    await grid({}, { entries, points: entries.map((_, i) => [i, series(5, step => step * (i + 1))]) }, ["base", "big"]);
    expect(texts(".mkg-legend-key")).toEqual(["base", "big"]);
    expect(card("loss").querySelector(".mkg-metric-card-value")?.textContent).toBe("4 – 8");
  });

  it("show all modules that have any metric, and only these are ticked", async () => {
    await grid();
    expect(ticked()).toEqual(MODULES);
    page.store.set("selected", "b");
    await until(() => expect(ticked()).toEqual(["b"]));
    expect(card("Norm").querySelector(".mkg-metric-card-note")?.textContent).toContain("1 of 3 modules shown");
  });
});

describe("the state of the runs", () => {
  it.each<[string, Parts, readonly string[], [string, string]]>([
    ["nothing has begun", {}, ["x"], ["Not started", "none"]],
    ["a run waits", { waiting: [0] }, ["x"], ["Waiting for the first step", "waiting"]],
    ["values come", training(), ["x"], ["Running", "running"]],
    ["all is over", { ...training(), ended: [0] }, ["x"], ["Ended", "ended"]],
    ["one of two runs", training(), ["x", "y"], ["Running (1 of 2 runs)", "running"]],
    [
      "one is over, one waits",
      { ...training(), ended: [0], waiting: [1] },
      ["x", "y"],
      ["Waiting for the first step (1 of 2 runs)", "waiting"]
    ]
  ])("while %s", async (_, parts, runs, expected) => {
    await grid({}, parts, runs);
    expect(state()).toEqual(expected);
    expect(find(".mkg-metric-state").querySelector("svg")).not.toBeNull(); // a sign, not a color alone
  });

  it("goes with what comes, and with a pause", async () => {
    await grid({}, { waiting: [0] });
    receive({ ...training(), waiting: [] });
    await until(() => expect(state()).toEqual(["Running", "running"]));
    find(".mkg-metric-pause").click();
    expect(state()).toEqual(["Paused", "paused"]);
    find(".mkg-metric-pause").click();
    receive({ ended: [0] });
    await until(() => expect(state()).toEqual(["Ended", "ended"]));
  });
});

describe("the names at the ends of lines", () => {
  it.each([
    [
      ["fc", "layers.0.conv1", "layers.0.conv2"],
      ["fc", "layers.0.conv1", "layers.0.conv2"]
    ],
    [
      ["blocks.0.mlp.out", "blocks.12.mlp.out"],
      ["blocks.0…", "blocks.12…"]
    ],
    [
      ["net.blocks.0.mlp.out", "net.blocks.1.mlp.out", ""],
      ["…blocks.0…", "…blocks.1…", ""]
    ],
    [
      ["net.layers.0.a", "net.layers.0.b"],
      ["…0.a", "…0.b"]
    ],
    [
      ["a.b", "a.b.c"],
      ["a.b", "a.b.c"]
    ],
    [["net.only.one"], ["net.only.one"]]
  ])("of %j are %j", (names, parts) => {
    expect(distinctParts(names)).toEqual(parts);
  });

  it("are apart, in order, and between the edges", () => {
    const places = spread(
      [30, 10, 12, 95].map(y => ({ y })),
      0,
      100,
      11
    ).map(({ y }) => y);
    expect(places).toEqual([10, 21, 32, 95]);
    expect(
      spread(
        [99, 98].map(y => ({ y })),
        0,
        100,
        11
      ).map(({ y }) => y)
    ).toEqual([89, 100]);
  });
});
