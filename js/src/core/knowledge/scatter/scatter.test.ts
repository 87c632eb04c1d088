import "../../../testing/media";
import { afterEach, describe, expect, it } from "vitest";
import { largeKnowledge, rawKnowledge } from "../../../testing/knowledge";
import { Knowledge } from "../data/knowledge";
import { createKnowledgeExplorer, type KnowledgeExplorer } from "../explorer";
import { type KnowledgePayload, readKnowledge } from "../data/payload";
import { firstPair, paretoFront, quantities, type ScatterPoint, scatterPoints } from "../data/quantities";
import { scaleOf } from "./scatter_painter";
import { ExplorerStore } from "../data/state";

type Result = KnowledgePayload["results"][number];

const result = (other: Partial<Result>): Result => ({
  target: "acc@1",
  unit: "%",
  dataset: "digits",
  device: null,
  cost: false,
  model: [],
  value: [],
  size: [],
  job: [],
  ...other
});

/** Five models with accuracies at two image sizes, and a latency. */
function measured(): KnowledgePayload {
  const payload = structuredClone(largeKnowledge(5, 4));
  payload.results = [
    result({
      model: [0, 1, 1, 2, 3],
      value: [70, 80, 85, 60, 90],
      size: [224, 224, 384, 224, 224],
      job: [0, 0, 0, 0, 0]
    }),
    result({
      target: "latency",
      unit: "ms",
      dataset: null,
      device: "CPU",
      cost: true,
      model: [0, 1, 1, 2, 4],
      value: [1, 2, 6, 3, 1],
      size: [224, 224, 384, 224, 224],
      job: [0, 0, 0, 0, 0]
    })
  ];
  const one = <T>(value: T): T[] => [value];
  Object.assign(payload.jobs, {
    name: one("run"),
    user: one(null),
    dataset: one("digits"),
    model: one("net0"),
    accuracy: one(0.7),
    convergence: one(null),
    started: one(0),
    ended: one(null),
    metrics: one([]),
    training: one("a1_in1k")
  });
  return readKnowledge(payload);
}

const byLabel = (data: Knowledge, label: string) => {
  const found = quantities(data).find(quantity => quantity.label.startsWith(label));
  if (!found) throw new Error(label);
  return found;
};

let mounted: KnowledgeExplorer | undefined;
afterEach(() => {
  mounted?.dispose();
  mounted = undefined;
  document.body.replaceChildren();
});

function mount(payload: unknown, store: ExplorerStore) {
  const host = document.createElement("div");
  document.body.append(host);
  mounted = createKnowledgeExplorer(host, payload, store);
  return host;
}

describe("the numbers of models", () => {
  const data = new Knowledge(measured());

  it("are what jobs reached, then sizes; accuracy against a cost comes first", () => {
    const labels = quantities(data).map(({ label }) => label);
    expect(labels).toEqual(["acc@1, digits", "latency, CPU", "parameters", "memory", "modules", "structures"]);
    const { x, y } = firstPair(quantities(data)) ?? {};
    expect([x?.label, y?.label]).toEqual(["latency, CPU", "acc@1, digits"]);
    const plain = new Knowledge(largeKnowledge(3, 4));
    expect(firstPair(quantities(plain))?.x.label).toBe("modules"); // all have the same parameters;
  });

  it("belong together by the size of the image where both know it", () => {
    const points = scatterPoints(byLabel(data, "latency"), byLabel(data, "acc@1"));
    expect(points.map(({ model, size, x, y }) => [model, size, x, y])).toEqual([
      [0, 224, 1, 70],
      [1, 224, 2, 80],
      [1, 384, 6, 85],
      [2, 224, 3, 60]
    ]);
    const best = scatterPoints(byLabel(data, "parameters"), byLabel(data, "acc@1"));
    expect(best.map(({ model, y }) => [model, y])).toEqual([
      [0, 70],
      [1, 85],
      [2, 60],
      [3, 90]
    ]);
  });

  it("have a front that agrees with comparing each with each", () => {
    let seed = 7;
    const random = () => (seed = (seed * 16807) % 2147483647) / 2147483647;
    for (const [xIsCost, yIsCost] of [
      [true, false],
      [true, true],
      [false, false],
      [false, true]
    ]) {
      const points = Array.from({ length: 80 }, (_, model): ScatterPoint => ({
        model,
        size: null,
        x: Math.floor(random() * 12),
        y: Math.floor(random() * 12),
        jobs: []
      }));
      const isNoWorse = (a: number, b: number, isCost: boolean) => (isCost ? a <= b : a >= b);
      const isBeaten = (one: ScatterPoint) =>
        points.some(
          other =>
            (other.x !== one.x || other.y !== one.y) &&
            isNoWorse(other.x, one.x, xIsCost) &&
            isNoWorse(other.y, one.y, yIsCost)
        );
      const expected = points.flatMap((point, at) => (isBeaten(point) ? [] : [at]));
      expect([...paretoFront(points, xIsCost, yIsCost)].sort((a, b) => a - b)).toEqual(expected);
    }
  });
});

describe("an axis", () => {
  it("has its values in order, by powers of ten where all are above 0", () => {
    const log = scaleOf([1, 10, 1000], true, 0, 300, false);
    expect(log.isLog).toBe(true);
    expect(log.at(10) - log.at(1)).toBeCloseTo(log.at(100) - log.at(10));
    const plain = scaleOf([-5, 5], true, 0, 100, true);
    expect(plain.isLog).toBe(false);
    expect(plain.at(5)).toBeLessThan(plain.at(-5));
    for (const { value, place } of plain.ticks(0, 100, 5)) expect(plain.at(value)).toBeCloseTo(place);
  });

  it.each([[[]], [[3]], [[0, 0]], [[1e300, 1e300]]])("has room for %j", values => {
    const scale = scaleOf(values, true, 0, 100, false);
    for (const value of values) expect(Number.isFinite(scale.at(value))).toBe(true);
    expect(scale.ticks(0, 100, 6).every(({ place }) => Number.isFinite(place))).toBe(true);
  });
});

describe("the scatter", () => {
  it("lists the best, selects them, and turns round which way is better", () => {
    const store = new ExplorerStore({ view: "scatter" });
    const host = mount(measured(), store);
    const best = () => Array.from(host.querySelectorAll(".mkg-kg-front .mkg-kg-row-name"), row => row.textContent);
    expect(best()).toEqual(["net0", "net1", "net1"]);
    expect(host.querySelector(".mkg-kg-note")?.textContent).toBe(
      "4 points of 3 models, 2 on the front · 2 without both values"
    );
    host.querySelector<HTMLElement>(".mkg-kg-front button")?.click();
    expect(store.get("selected")).toBe("Model:net0");
    const panel = host.querySelector(".mkg-side-panel")?.textContent ?? "";
    expect(panel).toContain("acc@1, digits 70 % a1_in1k");
    expect(panel).toContain("latency, CPU 1 ms");
    host.querySelector<HTMLElement>('[data-mkg-toggle="y-less"]')?.click();
    expect(best()).toEqual(["net0", "net2"]);
    const across = host.querySelector<HTMLSelectElement>(".mkg-kg-scatter-x");
    if (across) across.value = "params";
    across?.dispatchEvent(new Event("change"));
    expect(store.get("scatter").x).toBe("params");
  });

  it("has the best of what a search found, which may ask for any of the numbers", () => {
    const store = new ExplorerStore({ view: "scatter", query: "latency<3 acc@1>=80" });
    const host = mount(measured(), store);
    const best = () => Array.from(host.querySelectorAll(".mkg-kg-front .mkg-kg-row-name"), row => row.textContent);
    expect(best()).toEqual(["net1", "net1"]);
    store.set("query", "structures>100");
    expect(host.querySelector(".mkg-kg-nothing")?.textContent).toContain("structures>100");
    store.set("query", "speed>1");
    expect(host.querySelector(".mkg-search")?.textContent).toContain("Known: params, bytes");
  });

  it("walks from model to model by keys", () => {
    const store = new ExplorerStore({ view: "scatter" });
    const host = mount(measured(), store);
    const canvas = host.querySelector(".mkg-graph-canvas");
    const press = (key: string) => canvas?.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
    press("ArrowRight");
    press("ArrowRight");
    press("Enter");
    expect(store.get("selected")).toBe("Model:net1");
  });

  it("says what is missing where models have no two numbers", () => {
    const payload = rawKnowledge("empty");
    expect(mount(payload, new ExplorerStore({ view: "scatter" })).textContent).toContain("The graph has no models yet");
  });
});

describe("a graph that is still being analysed", () => {
  const whole = () => measured();
  const models = (): KnowledgePayload => {
    const { models: every, ...rest } = whole();
    const none = (column: readonly unknown[]) => column.map(() => [] as number[]);
    const empty = rawKnowledge("empty");
    return readKnowledge({
      ...rest,
      analysis: "running",
      entities: empty.entities,
      classes: empty.classes,
      values: [],
      types: [],
      communities: { modularity: 0, count: 0, names: [] },
      jobs: empty.jobs,
      models: {
        ...every,
        root: every.name.map(() => -1),
        members: none(every.name),
        module_flops: none(every.name),
        nearest: none(every.name)
      }
    });
  };

  it("has its models, their results and the scatter at once, and says what follows", () => {
    const store = new ExplorerStore({ selected: "Model:net1" });
    const host = mount(models(), store);
    expect(host.dataset.mkgAnalysis).toBe("running");
    expect(host.querySelector(".mkg-kg-counts")?.textContent).toContain("20 structures, analysis running");
    expect(host.querySelector(".mkg-side-panel")?.textContent).toContain("acc@1, digits 85 %");
    store.set("view", "scatter");
    expect(host.querySelectorAll(".mkg-kg-front li")).toHaveLength(3);
    for (const view of ["ranking", "communities", "types", "overlap", "frequency", "jobs"] as const) {
      store.set("view", view);
      expect(host.textContent, view).toContain("Analyzing 20 structures…");
    }
    store.set("query", "net3");
    store.set("selected", "Family:a");
    store.set("view", "graph");
    expect(host.querySelector(".mkg-kg-result")?.textContent).toContain("net3");
  });

  it("keeps what is open, what is typed and where the camera is when the rest comes", () => {
    const store = new ExplorerStore({ expanded: ["f0"] });
    const host = mount(models(), store);
    const input = host.querySelector<HTMLInputElement>(".mkg-search input");
    if (!input) throw new Error("no search");
    input.value = "ne";
    input.focus();
    input.setSelectionRange(1, 1);
    const kept = mounted?.keep(whole());
    expect(kept).toBeDefined();
    mounted?.dispose();
    mounted = createKnowledgeExplorer(host, whole(), store, kept);
    expect(host.dataset.mkgAnalysis).toBe("done");
    expect(store.get("expanded")).toEqual(["f0"]);
    expect(document.activeElement).toBe(host.querySelector(".mkg-search input"));
    expect(mounted.keep({ models: { name: ["another"] } })).toBeUndefined();
    expect(mounted.keep(null)).toBeUndefined();
  });
});
