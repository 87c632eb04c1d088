import type uPlot from "uplot";
import { describe, expect, it, vi } from "vitest";
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
import { ColorBook } from "../base/chart_theme";
import type { PanelState } from "../base/state";
import { chosenLines, linePicture, type Source } from "../pictures";
import { distinctParts, paintEndLabels, spread } from "../lines/end_labels";
import { LineChart } from "../lines/line_chart";

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

const broken = (): Parts => ({
  ...training(),
  points: [...(training().points ?? []), [6, [10, 11].map((step): [number, number] => [step, NaN])]]
});

const grid = (state: Partial<PanelState> = {}, parts: Parts = training(), runs?: readonly string[]) =>
  rendered({ view: "grid", ...state }, parts, runs);
const cards = () => texts(".mkg-metric-card-title");
const card = (metric: string) => find(`[data-mkg-metric=${metric}]`);
const state = () => [find(".mkg-metric-state").textContent, find(".mkg-metric-state").dataset.mkgState];

describe("the charts of all metrics", () => {
  it("begin with the losses in one chart, then what else is logged, then the metrics of modules", async () => {
    await grid();
    expect(cards()).toEqual(["Losses", "lr", "LossSpike", "Norm"]);
    expect(card("loss").querySelectorAll(".mkg-metric-card-key svg line")).toHaveLength(2);
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
    expect(said("loss")).toEqual(["loss 1e7 val_loss 1e6 ", ""]);
    expect(said("Norm")).toEqual(["10 – 1,000", "3 modules"]);
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

  it("count against the choice of all charts where a metric does not have all of these modules", async () => {
    const modules = Array.from({ length: 30 }, (_, i) => `m${i}`);
    const entries = [...numbers("Norm", modules), ...numbers("Grad", modules.slice(0, -1))];
    // the last module is the most unusual one
    await grid({}, { entries, points: entries.map((_, i) => [i, series(5, () => (i === 29 ? 99 : 10 + (i % 30)))]) });
    const notes = ["Norm", "Grad"].map(metric => card(metric).querySelector(".mkg-metric-card-note")?.textContent);
    expect(notes).toEqual(["8 most unusual of 30 modules", "7 of the 8 most unusual modules"]);
    expect(find(".mkg-metric-own").textContent).toBe("8 most unusual");
    expect(ticked()).toHaveLength(8);
  });

  it("draw the same modules, each in one color, which the list has", async () => {
    const modules = Array.from({ length: 30 }, (_, i) => `m${i}`);
    const metrics = ["Norm", "Mean", "Max"];
    const entries = metrics.flatMap(metric => numbers(metric, modules));
    // in each metric other modules lie apart
    const value = (i: number) =>
      10 + (i % 31) * 0.001 + ([2, 14, 25].includes(i % 30) ? i : 0) + (i % 11 === 3 ? i : 0);
    const colors = vi.spyOn(LineChart.prototype, "draw");
    await grid({}, { entries, points: entries.map((_, i) => [i, series(5, step => value(i) * (step + 1))]) });
    const lines = colors.mock.calls.slice(-metrics.length).flatMap(([picture]) => picture.lines);
    colors.mockRestore();
    const found = new Map<string, Set<string>>();
    for (const { module, color } of lines) found.set(module, new Set([...(found.get(module) ?? []), color]));
    expect(found.size).toBe(8);
    expect([...found.values()].map(own => own.size)).toEqual(Array.from({ length: 8 }, () => 1));
    expect(new Set([...found.values()].flatMap(own => [...own])).size).toBe(8);
    expect(ticked().sort()).toEqual([...found.keys()].sort());
    const dots = new Map(
      all("[data-mkg-path]").map(row => [
        row.dataset.mkgPath,
        row.querySelector<HTMLElement>("[data-mkg-color]")?.dataset.mkgColor
      ])
    );
    for (const [module, own] of found) expect(dots.get(module)).toBe([...own][0]);
  });

  it("have a color for each of eight runs; of more the rest is grey, and they say so", async () => {
    const runs = Array.from({ length: 10 }, (_, i) => `run${i}`);
    const entries = runs.flatMap((_, run) => numbers("loss", [""], run));
    const draw = vi.spyOn(LineChart.prototype, "draw");
    await grid({}, { entries, points: entries.map((_, i) => [i, series(5, step => step + i)]) }, runs);
    const colors = draw.mock.calls[draw.mock.calls.length - 1][0].lines.map(({ color }) => color);
    draw.mockRestore();
    expect(new Set(colors).size).toBe(8);
    expect(new Set(colors.slice(7)).size).toBe(1);
    expect(card("loss").querySelector(".mkg-metric-card-note")?.textContent).toBe(
      "3 lines in grey: more lines than colors."
    );
  });

  it("are made while they are in sight, and anew once they have changed", async () => {
    type Watch = (entries: readonly { target: Element; isIntersecting: boolean }[]) => void;
    const watched: Element[] = [];
    let tell: Watch = () => {};
    vi.stubGlobal(
      "IntersectionObserver",
      class {
        constructor(callback: Watch, options?: object) {
          if (options) tell = callback; // that of the panel has none
        }
        observe = (element: Element) => void watched.push(element);
        unobserve(): void {}
        disconnect(): void {}
      }
    );
    const draw = vi.spyOn(LineChart.prototype, "draw");
    const save = vi.spyOn(HTMLAnchorElement.prototype, "click").mockImplementation(() => {});
    const see = (metric: string, isIntersecting: boolean) => tell([{ target: card(metric), isIntersecting }]);
    const drawn = () => draw.mock.calls.length;
    const value = (metric: string) => card(metric).querySelector(".mkg-metric-card-value")?.textContent;
    try {
      await grid();
      expect(drawn()).toBe(0);
      expect(all(".mkg-metric-card").every(element => watched.includes(element))).toBe(true);
      expect([value("lr"), value("loss")]).toEqual(["10,000", "loss 1e7 val_loss 1e6 "]);
      see("loss", true);
      await until(() => expect(drawn()).toBe(1));
      receive({ points: [[3, [[10, 5]]]] }); // of lr, which nobody sees
      await until(() => expect(host().dataset.mkgPoints).toBe("71"));
      await new Promise(resolve => setTimeout(resolve, 50));
      expect([drawn(), value("lr")]).toEqual([1, "10,000"]);
      receive({ points: [[6, [[10, 6]]]] });
      await until(() => expect([drawn(), value("loss")]).toEqual([2, "loss 6 val_loss 1e6 "]));
      see("lr", true);
      await until(() => expect([drawn(), value("lr")]).toEqual([3, "5"]));
      see("loss", false);
      receive({ points: [[6, [[11, 7]]]] });
      await until(() => expect(host().dataset.mkgPoints).toBe("73"));
      find(".mkg-metric-csv").click(); // everything as it is
      await until(() => expect(value("loss")).toBe("loss 7 val_loss 1e6 "));
    } finally {
      draw.mockRestore();
      save.mockRestore();
      vi.unstubAllGlobals();
    }
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
    await until(() => expect(cards()).toEqual(["Losses", "lr", "LossSpike", "Norm", "Late"]));
    expect([host().dataset.mkgPoints, host().dataset.mkgLast]).toEqual(["72", "5"]);
  });

  it("tell runs apart below, and name them once", async () => {
    const entries = [...numbers("loss", [""], 0), ...numbers("loss", [""], 1)];
    await grid({}, { entries, points: entries.map((_, i) => [i, series(5, step => step * (i + 1))]) }, ["base", "big"]);
    expect(texts(".mkg-legend-key")).toEqual(["base", "big"]);
    expect(card("loss").querySelector(".mkg-metric-card-value")?.textContent).toBe("4 – 8");
  });

  it("count the whole model where a metric of modules has it", async () => {
    const entries = [...numbers("Norm", ["", "a"]), ...numbers("loss", [""])];
    await grid({}, { entries, points: entries.map((_, i) => [i, series(3, step => step + i)]) });
    expect(find(".mkg-metric-module-count").textContent).toBe("2 of 2 modules shown");
    expect(ticked()).toEqual(["", "a"]);
  });

  it("show all modules that have any metric, and only these are ticked", async () => {
    await grid();
    expect(ticked()).toEqual(MODULES);
    page.store.set("selected", "b");
    await until(() => expect(ticked()).toEqual(["b"]));
    expect(card("Norm").querySelector(".mkg-metric-card-note")?.textContent).toContain("1 of 3 modules shown");
  });
});

describe("a chart without a line", () => {
  const message = (metric: string) => card(metric).querySelector<HTMLElement>(".mkg-metric-message");

  it.each<[string, Parts["points"], string]>([
    ["one value", [[0, [[3, 0.52]]]], "1 value: 0.52"],
    [
      "two losses of one value",
      [
        [0, [[3, 0.52]]],
        [1, [[3, 0.6]]]
      ],
      "1 value each: 0.52, 0.6"
    ],
    ["NaN", [[0, series(5, () => NaN)]], "NaN only"],
    ["infinities", [[0, series(5, step => (step ? Infinity : NaN))]], "NaN or infinite only"]
  ])("says that it has %s, and invents no axis", async (_, points, text) => {
    await grid({}, { entries: [...numbers("loss", [""]), ...numbers("val_loss", [""])], points });
    expect([message("loss")?.textContent, message("loss")?.hidden]).toEqual([text, false]);
    receive({
      points: [
        [0, [[9, 1]]],
        [0, [[10, 2]]]
      ]
    });
    await until(() => expect(message("loss")?.hidden).toBe(true));
  });

  it("says of what is not finite when it began, on top", async () => {
    await grid({}, broken());
    const health = find(".mkg-metric-health");
    expect(health.textContent).toBe("Loss is NaN since step 10. First non-finite: the loss itself at step 10.");
    expect([health.hidden, health.classList.contains("mkg-is-warning")]).toEqual([false, true]);
    receive({ points: [[6, [[12, 1]]]] });
    await until(() => expect(health.textContent).toBe("First non-finite: loss at step 10."));
    expect([health.classList.contains("mkg-is-warning"), ...state()]).toEqual([false, "Running", "running"]);
  });
});

describe("the state of the runs", () => {
  it.each<[string, Parts, readonly string[], [string, string]]>([
    ["nothing has begun", {}, ["x"], ["Not started", "none"]],
    ["a run waits", { waiting: [0] }, ["x"], ["Waiting for the first step", "waiting"]],
    ["values come", training(), ["x"], ["Running", "running"]],
    ["all is over", { ...training(), ended: [0] }, ["x"], ["Ended", "ended"]],
    ["the loss is NaN", broken(), ["x"], ["Running: loss is NaN", "failing"]],
    ["the loss was NaN in the end", { ...broken(), ended: [0] }, ["x"], ["Ended: loss is NaN", "failed"]],
    ["a page was saved", { ...training(), saved: true }, ["x"], ["Saved while running (step 9)", "saved"]],
    ["one was saved in the end", { ...training(), saved: true, ended: [0] }, ["x"], ["Ended", "ended"]],
    ["one was saved too soon", { waiting: [0], saved: true }, ["x"], ["Saved before the first step", "saved"]],
    ["a run was over before its first value", { ended: [0] }, ["x"], ["Ended without values", "empty"]],
    ["one of two has values", { ...training(), ended: [0, 1] }, ["x", "y"], ["Ended (1 of 2 runs)", "ended"]],
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

describe("the state without a kernel", () => {
  it.each<[string, Parts, [string, string]]>([
    ["runs", training(), ["Kernel disconnected", "lost"]],
    ["waits", { waiting: [0] }, ["Kernel disconnected", "lost"]],
    ["has ended", { ...training(), ended: [0] }, ["Ended", "ended"]]
  ])("of a run that %s", async (_, parts, expected) => {
    await grid({}, parts);
    const before = state();
    page.store.set("connected", false);
    expect(state()).toEqual(expected);
    page.store.set("paused", true);
    expect(state()).toEqual(expected);
    page.store.set("paused", false);
    page.store.set("connected", true);
    expect(state()).toEqual(before);
  });

  it("of a run that was started again waits", async () => {
    await grid({}, { ended: [0] });
    receive({ waiting: [0] });
    await until(() => expect(state()[1]).toBe("waiting"));
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

  it("of a line of several modules are the first one and how many more, which a narrow chart keeps", () => {
    const modules = ["layer1.0", "layer1.1", "layer1.2", "layer2.0"];
    receive({
      entries: numbers("Norm", modules),
      points: modules.map((_, i) => [i, series(5, step => step + (i < 3 ? 0 : 9))])
    });
    page.store.set("metric", "Norm");
    const theme = { line: String, text: "#000", font: "sans" } as unknown as Source["theme"];
    const { data } = page.feed;
    const source = { data, store: page.store, runs: ["x"], colors: new ColorBook(), theme, until: () => Infinity };
    const { picture } = linePicture(source, chosenLines(source));
    expect(picture.lines.map(({ label, names }) => [label, names])).toEqual([
      ["layer1.0 +2", modules.slice(0, 3)],
      ["layer2.0", ["layer2.0"]]
    ]);
    const written: string[] = [];
    const nothing = () => {};
    const led: number[] = [];
    const ctx = {
      measureText: (text: string) => ({ width: 6 * text.length }),
      fillText: (text: string) => void written.push(text),
      ...{ save: nothing, restore: nothing, setLineDash: nothing, beginPath: nothing, moveTo: nothing },
      lineTo: (_x: number, y: number) => void led.push(y),
      ...{ stroke: nothing, arc: nothing, fill: nothing }
    };
    const plot = { ctx, width: 162, bbox: { left: 0, top: 0, width: 100, height: 100 }, valToPos: (y: number) => y };
    paintEndLabels(plot as unknown as uPlot, picture, "10px sans");
    expect(written).toEqual(["…r1.0 +2", "layer2.0"]);
    expect(led).toEqual([]); // both names stand where their lines end
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
