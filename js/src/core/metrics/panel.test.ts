import "../../testing/media";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { message, numbers, panelPayload, type Parts, series, until } from "../../testing/metrics";
import { OTHER_VERSION } from "../shared/schema";
import { Feed } from "./feed";
import { MetricData, MOST_SERIES } from "./metric_data";
import { ColorBook } from "./palette";
import { createMetricPanel, type MetricPanel } from "./panel";
import { type PanelState, PanelStore } from "./state";

const MODULES = Array.from({ length: 12 }, (_, i) => `layer${i}`);
const XSS = "<img src=x onerror=window.__xss=1>";
const host = () => document.querySelector<HTMLElement>(".mkg-metric-panel") ?? document.body;
const find = <T extends HTMLElement = HTMLElement>(selector: string) => {
  const element = host().querySelector<T>(selector);
  if (!element) throw new Error(`there is no ${selector}`);
  return element;
};
const all = (selector: string) => [...host().querySelectorAll<HTMLElement>(selector)];
const texts = (selector: string) => all(selector).map(element => element.textContent);
const ticked = () =>
  all("[data-mkg-path]")
    .filter(row => row.querySelector("input")?.checked)
    .map(row => row.dataset.mkgPath);

let panel: MetricPanel | undefined;
let feed: Feed;
let store: PanelStore;
let seq = 0;

function open(state: Partial<PanelState> = {}, payload: unknown = panelPayload(["base"])): void {
  const element = document.createElement("div");
  document.body.append(element);
  store = new PanelStore(state);
  panel = createMetricPanel(element, payload, feed.data, new ColorBook(), store);
}

function receive(parts: Parts): void {
  const { content, buffers } = message((seq += 1), parts);
  feed.receive(content, buffers);
}

const textOf = (blob: Blob) =>
  new Promise(resolve => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.readAsText(blob);
  });

const frames = () => new Promise(resolve => setTimeout(resolve, 120));

async function drawn(state: Partial<PanelState> = {}, parts: Parts = twelve(), runs = ["base"]): Promise<void> {
  receive(parts);
  open(state, panelPayload(runs));
  await until(() => expect(host().dataset.mkgReady).toBe("true"));
}

const twelve = (): Parts => ({
  entries: [
    ...numbers("WeightNorm", MODULES),
    ...numbers("Loss", [""]),
    [0, "layer1", "Histogram", 0, "train", "histogram"]
  ],
  points: MODULES.map((_, i) => [i, series(10, step => step + i)]),
  histograms: [
    [13, 4, [-1, 1, 10, 5], [4, 6]],
    [13, 8, [-1, 1, 10, 5], [5, 5]]
  ]
});

function choose(selector: string, value: string): void {
  const element = find<HTMLSelectElement>(selector);
  element.value = value;
  element.dispatchEvent(new Event("change", { bubbles: true }));
}

beforeEach(() => {
  seq = 0;
  feed = new Feed(new MetricData(2000), { isLive: true, send: () => {} });
});

afterEach(() => {
  panel?.dispose();
  panel = undefined;
  document.body.replaceChildren();
});

describe("the frame", () => {
  it("says what it waits for, and draws when values come", async () => {
    await drawn({}, {});
    expect(find(".mkg-metric-waiting").textContent).toMatch(/^Waiting for values/);
    expect(host().dataset.mkgId).toBeTruthy();
    receive(twelve());
    await until(() => expect(host().dataset.mkgPoints).toBe("80"));
    expect(host().dataset.mkgLast).toBe("9");
    expect(find(".mkg-metric-waiting").hidden).toBe(true);
    expect(find(".mkg-metric-title").textContent).toBe("WeightNorm");
  });

  it("has the controls that can be relied on", async () => {
    await drawn();
    for (const name of [
      "select",
      "modules",
      "chart canvas",
      "pause",
      "log",
      "window",
      "view",
      "phase",
      "csv",
      "png",
      "legend",
      "alerts"
    ]) {
      expect(host().querySelector(`.mkg-metric-${name}`), name).not.toBeNull();
    }
    expect(find<HTMLSelectElement>(".mkg-metric-view").value).toBe("lines");
    choose(".mkg-metric-view", "heatmap");
    await until(() => expect(host().querySelector(".mkg-metric-heatmap canvas")).not.toBeNull());
    choose(".mkg-metric-view", "histogram");
    await until(() => expect(host().querySelector(".mkg-metric-histogram canvas")).not.toBeNull());
    expect(host().querySelector(".mkg-metric-heatmap")).toBeNull();
  });

  it("has a name for every control", async () => {
    await drawn();
    const nameless = all("button, select, input").filter(
      element =>
        !(
          element.getAttribute("aria-label") ||
          element.closest("label")?.textContent?.trim() ||
          element.textContent?.trim()
        )
    );
    expect(nameless).toEqual([]);
  });

  it.each([
    ["nothing", {}, "There is nothing to show yet: run the cell."],
    ["another version", { ...panelPayload(), schema_version: 2 }, OTHER_VERSION],
    ["another widget", { ...panelPayload(), kind: "model" }, OTHER_VERSION],
    ["damaged data", { ...panelPayload(), runs: [1] }, "This widget's data is damaged (runs): run the cell again."]
  ])("explains %s", (_, payload, text) => {
    open({}, payload);
    expect(find("[role=alert]").textContent).toBe(text);
    panel?.dispose();
    expect(host().childElementCount).toBe(0);
  });

  it("shows names as text", async () => {
    const parts: Parts = {
      entries: [
        [0, XSS, XSS, 0, "train", "number"],
        [1, XSS, XSS, 0, "train", "number"]
      ],
      points: [
        [0, series(3, step => step)],
        [1, series(3, step => step)]
      ],
      alerts: [[0, XSS, XSS, 1, XSS]]
    };
    await drawn({ selected: XSS }, parts, [XSS, "b"]);
    expect(host().querySelector("img")).toBeNull();
    expect(texts(".mkg-metric-alerts li")[0]).toContain(XSS);
    expect(texts(".mkg-metric-legend-item")[0]).toContain(`${XSS} · ${XSS}`);
    expect(find("[data-mkg-path]").textContent).toBe(XSS);
  });

  it("is disconnected without a kernel, and looking still works", async () => {
    await drawn();
    store.set("connected", false);
    expect(host().classList.contains("mkg-is-disconnected")).toBe(true);
    expect(find(".mkg-status-text").textContent).toContain("disconnected");
    choose(".mkg-metric-select", "Loss");
    await until(() => expect(find(".mkg-metric-title").textContent).toBe("Loss"));
    store.set("connected", true);
    expect(host().classList.contains("mkg-is-disconnected")).toBe(false);
  });

  it("says when the runs have ended, and how far they came", async () => {
    await drawn({}, { ...twelve(), ended: [0] });
    expect(find(".mkg-status-text").textContent).toBe("The run has ended.");
    expect(find(".mkg-metric-counts").textContent).toBe("step 9 · 3 metrics");
  });

  it("leaves nothing behind", async () => {
    await drawn();
    const element = host();
    panel?.dispose();
    receive({ points: [[0, [[50, 1]]]] });
    await frames();
    expect(element.childElementCount).toBe(0);
    expect(element.dataset.mkgReady).toBeUndefined();
  });
});

describe("the picker", () => {
  it("offers the metrics by kind, and shows what fits", async () => {
    await drawn();
    const groups = all(".mkg-metric-select optgroup").map(group => [
      (group as HTMLOptGroupElement).label,
      ...[...group.children].map(entry => entry.textContent)
    ]);
    expect(groups).toEqual([
      ["Numbers", "WeightNorm", "Loss"],
      ["Histograms", "Histogram"]
    ]);
    choose(".mkg-metric-select", "Histogram");
    expect([store.get("metric"), store.get("view")]).toEqual(["Histogram", "histogram"]);
    await until(() => expect(ticked()).toEqual(["layer1"]));
    choose(".mkg-metric-select", "WeightNorm");
    expect(store.get("view")).toBe("lines");
  });

  it("ticks and unticks modules", async () => {
    await drawn();
    expect(ticked()).toEqual(MODULES.slice(0, 8));
    find("[data-mkg-path=layer9] input").click();
    await until(() => expect(host().dataset.mkgPoints).toBe("90"));
    expect(store.get("modules")).toEqual([...MODULES.slice(0, 8), "layer9"]);
    find("[data-mkg-path=layer0] input").click();
    await until(() => expect(host().dataset.mkgLast).toBe("10"));
    find(".mkg-metric-own").click();
    await until(() => expect(ticked()).toEqual(MODULES.slice(0, 8)));
  });

  it("searches, and keeps what is ticked but not found", async () => {
    await drawn({ modules: ["layer2"] });
    const search = find<HTMLInputElement>(".mkg-metric-search");
    search.value = "layer1";
    search.dispatchEvent(new Event("input"));
    await until(() =>
      expect(all("[data-mkg-path]").map(row => row.dataset.mkgPath)).toEqual(["layer1", "layer10", "layer11"])
    );
    find("[data-mkg-path=layer10] input").click();
    expect(store.get("modules")).toEqual(["layer2", "layer10"]);
    expect(find(".mkg-metric-all").textContent).toBe("tick the 3 found");
    find(".mkg-metric-all").click();
    expect(store.get("modules")).toEqual(["layer1", "layer2", "layer10", "layer11"]);
  });

  it("lists 500 modules as one stop of the Tab key", async () => {
    const modules = Array.from({ length: 500 }, (_, i) => `blocks.${i}`);
    await drawn({}, { entries: numbers("WeightNorm", modules), points: modules.map((_, i) => [i, [[0, i]]]) });
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
    expect(store.get("selected")).toBe("blocks.499");
  });

  it("marks the selected module and adds it", async () => {
    await drawn({ modules: ["layer2"], selected: "layer9" });
    expect(ticked()).toEqual(["layer2", "layer9"]);
    expect(all("[aria-current=true]").map(row => row.dataset.mkgPath)).toEqual(["layer9"]);
    expect(all(".mkg-metric-legend-item[aria-pressed=true]").map(item => item.textContent)).toEqual(["layer918"]);
    store.set("selected", "layer2");
    await until(() => expect(ticked()).toEqual(["layer2"]));
  });
});

describe("the picture", () => {
  it("stops while paused, while values keep coming, and then shows all", async () => {
    await drawn();
    find(".mkg-metric-pause").click();
    expect(find(".mkg-metric-pause").textContent).toBe("Resume");
    receive({ points: [[0, [[10, 100]]]] });
    await until(() => expect(host().dataset.mkgPoints).toBe("81")); // held
    await frames();
    expect(host().dataset.mkgLast).toBe("9"); // drawn
    choose(".mkg-metric-select", "Loss");
    choose(".mkg-metric-select", "WeightNorm");
    await frames();
    expect(host().dataset.mkgLast).toBe("9");
    find(".mkg-metric-pause").click();
    await until(() => expect(host().dataset.mkgLast).toBe("100"));
  });

  it("shows the last steps of a window", async () => {
    await drawn();
    const field = find<HTMLInputElement>(".mkg-metric-window");
    field.value = "-3";
    field.dispatchEvent(new Event("change"));
    expect(store.get("window")).toBeNull();
    field.value = "3";
    field.dispatchEvent(new Event("input"));
    field.dispatchEvent(new Event("change"));
    expect(store.get("window")).toBe(3);
    field.value = "";
    field.dispatchEvent(new Event("input"));
    field.dispatchEvent(new Event("change"));
    expect(store.get("window")).toBeNull();
  });

  it("says what a logarithmic scale leaves out and what is not finite", async () => {
    const points = series(10, step => (step < 2 ? -step : step === 5 ? NaN : step));
    await drawn({ logScale: true }, { entries: numbers("Loss", [""]), points: [[0, points]] });
    expect(find(".mkg-metric-remarks").textContent).toBe(
      "2 values ≤ 0 have no place on the logarithmic scale and are left out. 1 value is NaN or infinite: a gap in the line, marked × (NaN), ∧ (∞) or ∨ (−∞) at the edge."
    );
    find<HTMLInputElement>(".mkg-metric-log").click();
    await until(() => expect(find(".mkg-metric-remarks").textContent).not.toContain("logarithmic"));
  });

  it("says when there are more series than it holds", async () => {
    const modules = Array.from({ length: MOST_SERIES }, (_, i) => `m${i}`);
    await drawn({}, { entries: numbers("WeightNorm", modules), points: [[0, [[0, 1]]]] });
    expect(find(".mkg-metric-remarks").textContent).toContain("at most 4,000 series");
  });

  it("compares runs by their dash, with one color for a module", async () => {
    const entries = [...numbers("Loss", [""], 0), ...numbers("Loss", [""], 1)];
    await drawn(
      {},
      {
        entries,
        points: [
          [0, series(3, step => step)],
          [1, series(3, step => step)]
        ]
      },
      ["base", "big"]
    );
    const strokes = all(".mkg-metric-legend-item").map(item => item.querySelector("line"));
    expect(strokes.map(line => line?.getAttribute("stroke"))).toEqual(
      Array(2).fill(strokes[0]?.getAttribute("stroke"))
    );
    expect(strokes.map(line => line?.getAttribute("stroke-dasharray"))).toEqual(["none", "7 4"]);
    expect(texts(".mkg-metric-name")).toEqual(["whole model", "whole model"]);
    expect(texts(".mkg-metric-suffix")).toEqual([" · base", " · big"]);
  });

  it("chooses the phase", async () => {
    const entries = [...numbers("Loss", [""]), ...numbers("Loss", [""], 0, "eval")];
    await drawn(
      {},
      {
        entries,
        points: [
          [0, series(3, step => step)],
          [1, [[2, 7]]]
        ]
      }
    );
    expect(host().dataset.mkgLast).toBe("2");
    choose(".mkg-metric-phase", "eval");
    await until(() => expect(host().dataset.mkgLast).toBe("7"));
    choose(".mkg-metric-phase", "both");
    await until(() => expect(texts(".mkg-metric-suffix")).toEqual([" · train", " · eval"]));
  });

  it("lists alerts, the latest first, and goes where they were", async () => {
    const alerts: Parts["alerts"] = [
      [0, "layer9", "WeightNorm", 3, "WeightNorm of layer9 is 12, above 10."],
      [0, "", "Loss", 5, "loss rose."]
    ];
    await drawn({ metric: "Loss" }, { ...twelve(), alerts });
    expect(texts(".mkg-metric-alerts li")).toEqual(["step 5loss rose.", "step 3WeightNorm of layer9 is 12, above 10."]);
    expect(find(".mkg-metric-alerts-heading").textContent).toBe("2 alerts");
    all(".mkg-metric-alert")[1].click();
    expect([store.get("metric"), store.get("selected")]).toEqual(["WeightNorm", "layer9"]);
  });

  it("saves what is shown as CSV", async () => {
    const blobs: Blob[] = [];
    vi.stubGlobal(
      "URL",
      Object.assign(URL, { createObjectURL: (blob: Blob) => (blobs.push(blob), "blob:x"), revokeObjectURL: () => {} })
    );
    const click = vi.spyOn(HTMLAnchorElement.prototype, "click").mockImplementation(() => {});
    await drawn({ modules: ["layer2"], window: 2 });
    find(".mkg-metric-csv").click();
    expect(await textOf(blobs[0])).toBe(
      "run,module,metric,call,phase,step,value\r\nbase,layer2,WeightNorm,0,train,8,10\r\nbase,layer2,WeightNorm,0,train,9,11\r\n"
    );
    choose(".mkg-metric-select", "Histogram");
    await until(() => expect(host().querySelector(".mkg-metric-histogram")).not.toBeNull());
    find(".mkg-metric-csv").click();
    expect(await textOf(blobs[1])).toContain("base,layer1,Histogram,0,train,8,-1,0,5,10,5\r\n");
    find(".mkg-metric-png").click();
    await until(() => expect(find(".mkg-status-text").textContent).toContain("not drawn yet")); // jsdom has no canvas
    click.mockRestore();
    vi.unstubAllGlobals();
  });
});
