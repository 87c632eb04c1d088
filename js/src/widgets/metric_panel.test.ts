import "../testing/media";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

vi.mock("@jupyter-widgets/base", () => import("../testing/metric_model"));

import type { DOMWidgetModel } from "../testing/metric_model";
import { message, numbers, panelPayload, type Parts, series, until } from "../testing/metrics";
import { FakeKernel } from "../testing/widget_base";
import { MetricPanelModel, MetricPanelView } from "./metric_panel";

type Model = DOMWidgetModel & Pick<MetricPanelModel, "feed">;
type View = MetricPanelView & { el: HTMLElement };

const after = (ms: number) => new Promise(resolve => setTimeout(resolve, ms));
const RESYNC = { kind: "resync" };
const FIRST: Parts = {
  entries: numbers("WeightNorm", ["a", "b"]),
  points: [
    [0, series(4, step => step)],
    [1, series(4, step => 10 * step)]
  ]
};
let views: View[];

function createModel(
  traits: Record<string, unknown> = {},
  kernel: FakeKernel | null = new FakeKernel(),
  live = true
): Model {
  const Class = MetricPanelModel as unknown as new (state: object, kernel: FakeKernel | null) => Model;
  const defaults = new Class({}, null).defaults();
  const model = new Class({ ...defaults, payload: panelPayload(["base"]), ...traits }, kernel);
  model.comm_live = live;
  model.initialize();
  return model;
}

async function show(model: Model): Promise<View> {
  const view = new MetricPanelView({ model } as never) as View;
  views.push(view);
  document.body.append(view.el);
  view.render();
  await until(() => expect(view.el.dataset.mkgReady).toBe("true"));
  return view;
}

beforeEach(() => {
  views = [];
});

afterEach(() => {
  views.forEach(view => view.remove());
  document.body.replaceChildren();
});

describe("MetricPanelModel", () => {
  it("has a default for every trait", () => {
    expect(createModel().defaults()).toMatchObject({
      _model_name: "MetricPanelModel",
      _view_name: "MetricPanelView",
      _model_module: "modulekg-widgets",
      _view_module: "modulekg-widgets",
      payload: {},
      selected: null,
      metric: "",
      modules: [],
      view: "lines",
      window: null,
      log_scale: false,
      paused: false,
      phase: "train"
    });
  });

  it("takes values before any view is there, and confirms them", () => {
    const model = createModel();
    model.deliver(message(1, FIRST));
    expect(model.messages).toEqual([{ kind: "ack", seq: 1 }]);
    expect(model.feed.data.line(1)?.lastValue).toBe(30);
  });

  it("sends nothing on its own, nor where the kernel does not answer", async () => {
    expect(createModel().messages).toEqual([]);
    const model = createModel({}, null, false);
    await show(model);
    expect([model.messages, model.sent]).toEqual([[], []]);
  });

  it("holds as many points as the payload says", () => {
    const model = createModel({ payload: panelPayload(["base"], 50) });
    model.deliver(message(1, { ...FIRST, points: [[0, series(400, step => step)]] }));
    expect(model.feed.data.line(0)?.length).toBeLessThanOrEqual(50);
  });
});

describe("MetricPanelView", () => {
  it("asks for the values when there are none, once for all views", async () => {
    const model = createModel();
    await show(model);
    await show(model);
    expect(model.messages).toEqual([RESYNC]);
    expect(model.sent).toEqual([]);
  });

  it("asks as soon as the kernel answers", async () => {
    const model = createModel({}, new FakeKernel(), false);
    await show(model);
    expect(model.messages).toEqual([]);
    model.setCommLive(true);
    expect(model.messages).toEqual([RESYNC]);
  });

  it("shows in a later view what an earlier one shows", async () => {
    const model = createModel();
    model.deliver(message(1, FIRST));
    const first = await show(model);
    const second = await show(model);
    expect([first, second].map(({ el }) => [el.dataset.mkgPoints, el.dataset.mkgLast])).toEqual([
      ["8", "3"],
      ["8", "3"]
    ]);
    expect(model.messages).toEqual([{ kind: "ack", seq: 1 }]);
    model.deliver(message(2, { points: [[0, [[4, 44]]]] }));
    await until(() => expect([first, second].map(({ el }) => el.dataset.mkgLast)).toEqual(["44", "44"]));
  });

  it("sends what the user does, and both views follow", async () => {
    const model = createModel();
    model.deliver(message(1, FIRST));
    const [first, second] = [await show(model), await show(model)];
    first.el.querySelector<HTMLElement>(".mkg-metric-pause")?.click();
    first.el.querySelector<HTMLElement>("[data-mkg-path=a] input")?.click();
    await until(() => expect(model.sent).toEqual([{ paused: true, modules: ["b"] }]));
    expect(second.el.querySelector(".mkg-metric-pause")?.textContent).toBe("Resume");
  });

  it("shows what the kernel sets, and sends none of it back", async () => {
    const model = createModel();
    model.deliver(message(1, FIRST));
    const { el } = await show(model);
    model.receive({ selected: "b", view: "heatmap", log_scale: true, window: 3, phase: "both", metric: "WeightNorm" });
    await until(() => expect(el.querySelector(".mkg-metric-heatmap")).not.toBeNull());
    await after(150);
    expect(el.querySelector<HTMLInputElement>(".mkg-metric-log")?.checked).toBe(true);
    expect(el.querySelector<HTMLInputElement>(".mkg-metric-window")?.value).toBe("3");
    expect(el.querySelector<HTMLElement>("[aria-current=true]")?.dataset.mkgPath).toBe("b");
    expect(model.sent).toEqual([]);
  });

  it("ignores values of the wrong kind", async () => {
    const model = createModel({
      selected: 3,
      metric: null,
      modules: [1],
      view: "upside-down",
      window: -1,
      log_scale: "yes",
      phase: 7
    });
    model.deliver(message(1, FIRST));
    const { el } = await show(model);
    model.receive({ view: {}, window: 1.5, modules: "ab" });
    await after(30);
    expect(el.dataset.mkgPoints).toBe("8");
    expect(el.querySelector<HTMLSelectElement>(".mkg-metric-view")?.value).toBe("lines");
  });

  it("follows another payload", async () => {
    const model = createModel();
    model.deliver(message(1, FIRST));
    const { el } = await show(model);
    model.receive({ payload: { ...panelPayload(), schema_version: 9 } });
    expect(el.textContent).toContain("Restart the kernel and reload the page");
    model.receive({ payload: panelPayload(["other"]) });
    await until(() => expect(el.dataset.mkgReady).toBe("true"));
    expect(el.dataset.mkgId).toBe(model.model_id);
  });

  it("is disconnected after the kernel died, and keeps showing what it has", async () => {
    const kernel = new FakeKernel();
    const model = createModel({}, kernel);
    model.deliver(message(1, FIRST));
    const { el } = await show(model);
    kernel.setStatus("dead");
    expect(el.classList.contains("mkg-is-disconnected")).toBe(true);
    el.querySelector<HTMLElement>("[data-mkg-path=a] input")?.click();
    await until(() => expect(el.dataset.mkgPoints).toBe("4"));
    await after(100);
    expect(model.sent).toEqual([]);
  });

  it("leaves no listener behind", async () => {
    const kernel = new FakeKernel();
    const model = createModel({}, kernel);
    const before = model.listeners;
    const view = await show(model);
    views = [];
    view.remove();
    expect(kernel.listeners).toBe(0);
    expect(model.listeners).toBe(before);
    model.deliver(message(1, FIRST));
    await after(50);
    expect(view.el.childElementCount).toBe(0);
  });

  it("may go before it was shown", async () => {
    const model = createModel();
    const view = new MetricPanelView({ model } as never) as View;
    view.render();
    view.remove();
    await after(20);
    expect(view.el.childElementCount).toBe(0);
  });
});
