import { describe, expect, it, vi } from "vitest";
import {
  all,
  choose,
  rendered,
  find,
  host,
  MODULES,
  open,
  page,
  receive,
  texts,
  twelve,
  useMetricPage
} from "../../testing/metric_page";
import { type EntryRow, numbers, panelPayload, series, until, type Parts } from "../../testing/metrics";
import { OTHER_VERSION } from "../shared/base/schema";
import { MAX_SERIES } from "./data/metric_data";

const XSS = "<img src=x onerror=window.__xss=1>";

const textOf = (blob: Blob) =>
  new Promise(resolve => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.readAsText(blob);
  });

const frames = () => new Promise(resolve => setTimeout(resolve, 120));

useMetricPage();

describe("the frame", () => {
  it("says what it waits for, and draws when values come", async () => {
    await rendered({}, {});
    expect(find(".mkg-metric-waiting").textContent).toMatch(/^No values yet/);
    expect(host().dataset.mkgId).toBeTruthy();
    receive(twelve());
    await until(() => expect(host().dataset.mkgPoints).toBe("80"));
    expect(host().dataset.mkgLast).toBe("9");
    expect(find(".mkg-metric-waiting").hidden).toBe(true);
    expect(find(".mkg-metric-title").textContent).toBe("WeightNorm");
  });

  it("has the controls that can be relied on", async () => {
    await rendered();
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
    await rendered();
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
    ["nothing", {}, "Nothing to show yet. Run the cell."],
    ["another version", { ...panelPayload(), schema_version: 2 }, OTHER_VERSION],
    ["another widget", { ...panelPayload(), kind: "model" }, OTHER_VERSION],
    ["damaged data", { ...panelPayload(), runs: [1] }, "Widget data is damaged (runs). Run the cell again."]
  ])("explains %s", (_, payload, text) => {
    open({}, payload);
    expect(find("[role=alert]").textContent).toBe(text);
    page.panel?.dispose();
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
    await rendered({ selected: XSS }, parts, [XSS, "b"]);
    expect(host().querySelector("img")).toBeNull();
    expect(texts(".mkg-metric-alerts li")[0]).toContain(XSS);
    expect(texts(".mkg-metric-legend-item")[0]).toContain(`${XSS} · ${XSS}`);
    expect(find("[data-mkg-path]").textContent).toBe(XSS);
  });

  it("is disconnected without a kernel, and looking still works", async () => {
    await rendered();
    page.store.set("connected", false);
    expect(host().classList.contains("mkg-is-disconnected")).toBe(true);
    expect(find(".mkg-status-text").textContent).toContain("disconnected");
    choose(".mkg-metric-select", "Loss");
    await until(() => expect(find(".mkg-metric-title").textContent).toBe("Loss"));
    page.store.set("connected", true);
    expect(host().classList.contains("mkg-is-disconnected")).toBe(false);
  });

  it("says when the runs have ended, and how far they came", async () => {
    await rendered({}, { ...twelve(), ended: [0] });
    expect(find(".mkg-metric-state").textContent).toBe("Ended");
    expect(find(".mkg-metric-counts").textContent).toBe("step 9 · 3 metrics");
  });

  it("leaves nothing behind", async () => {
    await rendered();
    const element = host();
    page.panel?.dispose();
    receive({ points: [[0, [[50, 1]]]] });
    await frames();
    expect(element.childElementCount).toBe(0);
    expect(element.dataset.mkgReady).toBeUndefined();
  });
});

describe("the picture", () => {
  it("of a heat map is not the stripe of a whole run", async () => {
    const parts = twelve();
    await rendered({ metric: "Loss" }, { ...parts, points: [...(parts.points ?? []), [12, series(10, step => step)]] });
    choose(".mkg-metric-view", "heatmap");
    await until(() => expect(find(".mkg-metric-title").textContent).toBe("WeightNorm"));
    expect(page.store.get("metric")).toBe("Loss"); // which the other views show still
    choose(".mkg-metric-select", "Loss");
    await until(() => expect(host().querySelector(".mkg-metric-heatmap")).toBeNull());
    expect([page.store.get("metric"), page.store.get("view")]).toEqual(["Loss", "lines"]);
  });

  it("has the scale that the values need, until one is chosen", async () => {
    const points = MODULES.map((_, i): [number, [number, number][]] => [i, series(10, () => 10 ** -i)]);
    await rendered({ view: "heatmap" }, { ...twelve(), points });
    const log = find<HTMLInputElement>(".mkg-metric-log");
    expect([log.checked, page.store.get("logScale")]).toEqual([true, null]);
    expect(find(".mkg-metric-legend-words").textContent).toBe("Log color scale");
    log.click();
    await until(() => expect(find(".mkg-metric-legend-words").textContent).toMatch(/^Linear color scale/));
    expect([log.checked, page.store.get("logScale")]).toEqual([false, false]);
    choose(".mkg-metric-colors", "row");
    await until(() => expect(find(".mkg-metric-legend-words").textContent).toContain("do not compare rows"));
  });

  it("stops while paused, while values keep coming, and then shows all", async () => {
    await rendered();
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
    await rendered();
    const field = find<HTMLInputElement>(".mkg-metric-window");
    field.value = "-3";
    field.dispatchEvent(new Event("change"));
    expect(page.store.get("window")).toBeNull();
    field.value = "3";
    field.dispatchEvent(new Event("input"));
    field.dispatchEvent(new Event("change"));
    expect(page.store.get("window")).toBe(3);
    field.value = "";
    field.dispatchEvent(new Event("input"));
    field.dispatchEvent(new Event("change"));
    expect(page.store.get("window")).toBeNull();
  });

  it("says what a logarithmic scale leaves out and what is not finite", async () => {
    const points = series(10, step => (step < 2 ? -step : step === 5 ? NaN : step));
    await rendered({ logScale: true }, { entries: numbers("Loss", [""]), points: [[0, points]] });
    expect(find(".mkg-metric-remarks").textContent).toBe(
      "2 values ≤ 0 cannot be shown on the log scale and are left out. 1 value is NaN or infinite: × NaN, ∧ infinite, ∨ negative infinite."
    );
    find<HTMLInputElement>(".mkg-metric-log").click();
    await until(() => expect(find(".mkg-metric-remarks").textContent).not.toContain("log scale"));
  });

  it("says when there are more series than it holds", async () => {
    const modules = Array.from({ length: MAX_SERIES }, (_, i) => `m${i}`);
    await rendered({}, { entries: numbers("WeightNorm", modules), points: [[0, [[0, 1]]]] });
    expect(find(".mkg-metric-remarks").textContent).toContain("The panel holds 4,000 series.");
  });

  const strokes = (name: string) =>
    all(".mkg-metric-legend-item").map(item => item.querySelector("line")?.getAttribute(name));

  it("compares runs by their dash, with one color for a module", async () => {
    const entries = [...numbers("Norm", ["a", "b"], 0), ...numbers("Norm", ["a", "b"], 1)];
    const points = entries.map((_, i): [number, [number, number][]] => [i, series(3, step => step + i)]);
    await rendered({}, { entries, points }, ["base", "big"]);
    const [a, b] = strokes("stroke");
    expect(a).not.toBe(b);
    expect(strokes("stroke")).toEqual([a, b, a, b]);
    expect(strokes("stroke-dasharray")).toEqual(["none", "none", "7 4", "7 4"]);
    expect(texts(".mkg-metric-name")).toEqual(["a", "b", "a", "b"]);
    expect(texts(".mkg-metric-suffix")).toEqual([" · base", " · base", " · big", " · big"]);
  });

  it("gives the runs of one number colors of their own", async () => {
    const entries = [...numbers("Loss", [""], 0), ...numbers("Loss", [""], 1)];
    const points = entries.map((_, i): [number, [number, number][]] => [i, series(3, step => step + i)]);
    await rendered({}, { entries, points }, ["base", "big"]);
    expect(new Set(strokes("stroke")).size).toBe(2);
    expect(strokes("stroke-dasharray")).toEqual(["none", "7 4"]);
    expect(texts(".mkg-metric-suffix")).toEqual([" · base", " · big"]);
  });

  it("joins series of the same values to one line, which has the names of all", async () => {
    const entries = numbers("Norm", ["a", "b", "c", "d", "e"]);
    const value = (i: number) => series(5, step => (i < 2 ? step : i < 4 ? step + 1 : step / 2));
    await rendered({}, { entries, points: entries.map((_, i) => [i, value(i)]) });
    expect(texts(".mkg-metric-legend-item")).toEqual(["a +14", "c +15", "e2"]);
    expect(new Set(strokes("stroke")).size).toBe(3);
    expect(find(".mkg-metric-module-count").textContent).toBe("5 of 5 modules shown");
    page.store.set("selected", "d");
    page.store.set("modules", ["a", "b", "c", "d", "e"]);
    await until(() => expect(texts("[aria-pressed=true]")).toContain("c +15"));
    receive({ points: [[1, [[5, 9]]]] }); // they are no longer the same
    await until(() => expect(texts(".mkg-metric-legend-item")).toEqual(["a4", "b9", "c +15", "e2"]));
  });

  it("has no color twice, and counts calls and modules apart", async () => {
    const modules = Array.from({ length: 12 }, (_, i) => `m${i}`);
    const entries = modules.flatMap(module =>
      [0, 1, 2].map((call): EntryRow => [0, module, "Norm", call, "train", "number"])
    );
    await rendered({}, { entries, points: entries.map((_, i) => [i, series(4, step => step + i)]) });
    expect(strokes("stroke").length).toBe(6);
    expect(new Set(strokes("stroke")).size).toBe(6);
    expect(find(".mkg-metric-legend-head").textContent).toBe("2 most unusual of 12 modules · 6 calls (× median)");
    expect(find(".mkg-metric-module-count").textContent).toBe("2 of 12 modules shown · 6 calls");
  });

  it("chooses the phase", async () => {
    const entries = [...numbers("Loss", [""]), ...numbers("Loss", [""], 0, "eval")];
    await rendered(
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
    await rendered({ metric: "Loss" }, { ...twelve(), alerts });
    expect(texts(".mkg-metric-alerts li")).toEqual(["step 5loss rose.", "step 3WeightNorm of layer9 is 12, above 10."]);
    expect(find(".mkg-metric-alerts-heading").textContent).toBe("2 alerts");
    all(".mkg-metric-alert")[1].click();
    expect([page.store.get("metric"), page.store.get("selected")]).toEqual(["WeightNorm", "layer9"]);
  });

  it("saves what is shown as CSV", async () => {
    const blobs: Blob[] = [];
    vi.stubGlobal(
      "URL",
      Object.assign(URL, { createObjectURL: (blob: Blob) => (blobs.push(blob), "blob:x"), revokeObjectURL: () => {} })
    );
    const click = vi.spyOn(HTMLAnchorElement.prototype, "click").mockImplementation(() => {});
    await rendered({ modules: ["layer2"], window: 2 });
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
