import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { golden, resnet } from "../testing/payloads";

vi.mock("@jupyter-widgets/base", () => import("../testing/widget_base"));

import { FakeKernel, FakeModel } from "../testing/widget_base";
import { ModelGraphModel, ModelGraphView } from "./model_graph";

const after = (ms: number) => new Promise(resolve => setTimeout(resolve, ms));

function open(traits: Record<string, unknown> = {}, kernel: FakeKernel | null = new FakeKernel()) {
  const model = new FakeModel({ ...new ModelGraphModel().defaults(), payload: resnet(), ...traits }, kernel);
  const view = new ModelGraphView({ model } as never) as ModelGraphView & { el: HTMLElement };
  document.body.append(view.el);
  view.render();
  return { model, view, kernel, el: view.el };
}

let shown: ReturnType<typeof open> | undefined;

const show = async (...options: Parameters<typeof open>) => {
  shown = open(...options);
  await after(20);
  return shown;
};

const row = (el: HTMLElement, path: string) =>
  el.querySelector<HTMLElement>(`[role=treeitem][data-mkg-path="${path}"]`);

beforeEach(() => {
  shown = undefined;
});

afterEach(() => {
  shown?.view.remove();
  document.body.replaceChildren();
});

describe("ModelGraphModel", () => {
  it("has a default for every trait", () => {
    expect(new ModelGraphModel().defaults()).toMatchObject({
      _model_name: "ModelGraphModel",
      _view_name: "ModelGraphView",
      _model_module: "modulekg-widgets",
      _view_module: "modulekg-widgets",
      payload: {},
      selected: null,
      axis: null,
      expanded: [],
      color_by: "none",
      query: "",
      view: "hierarchy",
      overlay: {}
    });
  });
});

describe("ModelGraphView", () => {
  it("opens what fits until somebody has chosen, and tells nobody", async () => {
    const { model, el } = await show({ open_to_fit: true });
    const open = () => [...el.querySelectorAll('[role=treeitem][aria-expanded="true"]')].length;
    const fitting = open();
    expect(fitting).toBeGreaterThan(1); // the root, and stages
    await after(80);
    expect(model.get("expanded")).toEqual([]);
    model.receive({ open_to_fit: false }); // Python has set `expanded` to what it had
    await after(80);
    expect(open()).toBe(1);
  });

  it("keeps what the user has opened", async () => {
    const { model, el } = await show({ open_to_fit: true });
    row(el, "layer1")?.querySelector<HTMLElement>(".mkg-twisty")?.click();
    await after(80);
    const chosen = model.get("expanded");
    expect(chosen).not.toEqual([]);
    model.receive({ open_to_fit: false });
    expect(model.get("expanded")).toEqual(chosen);
  });

  it("sends nothing before the user acts", async () => {
    const { model } = await show({ selected: "layer3.17.conv2" });
    await after(150);
    expect(model.sent).toEqual([]);
  });

  it("sends what the user does, collected", async () => {
    const { model, el } = await show();
    row(el, "layer1")?.click();
    row(el, "layer2")?.click();
    await after(100);
    expect(model.sent).toEqual([{ selected: "layer2" }]);
  });

  it("shows what the kernel sets, and sends none of it back", async () => {
    const { model, el } = await show();
    model.receive({ selected: "layer3.17.conv2" });
    await after(150);
    expect(el.querySelector<HTMLElement>(".mkg-side-panel")?.dataset.mkgPath).toBe("layer3.17.conv2");
    expect(row(el, "layer3.17.conv2")).not.toBeNull();
    model.receive({ color_by: "params", query: "conv", view: "deduplicated" });
    await after(150);
    expect(el.querySelector<HTMLSelectElement>(".mkg-color-by select")?.value).toBe("params");
    expect(el.querySelector<HTMLSelectElement>(".mkg-view select")?.value).toBe("deduplicated");
    expect(model.sent).toEqual([]);
  });

  it("has the axis that is lit from both sides", async () => {
    const { model, el } = await show({ payload: golden("traced"), selected: "left" });
    el.querySelector<HTMLElement>('[data-mkg-axis="left.out"]')?.click();
    await after(100);
    expect(model.sent).toEqual([{ axis: "left.out" }]);
    model.receive({ axis: "left.in" });
    await after(50);
    expect(el.querySelector(".mkg-active-axis")?.textContent).toContain("left.in");
    expect(Array.from(el.querySelectorAll<HTMLElement>(".mkg-is-on-axis"), found => found.dataset.mkgPath)).toEqual([
      "left"
    ]);
    model.receive({ payload: resnet() }); // has no axes
    await after(50);
    expect(el.querySelector(".mkg-active-axis")).toBeNull();
    expect(model.sent).toEqual([{ axis: "left.out" }]);
  });

  it.each(["dataflow", "operators"])("shows the view of the %s, and the hierarchy where there is none", async view => {
    const { model, el } = await show({ payload: golden("traced"), view });
    expect(el.querySelector<HTMLSelectElement>(".mkg-view select")?.value).toBe(view);
    expect(el.dataset.mkgReady).toBe("true");
    model.receive({ payload: resnet() });
    await after(50);
    expect(el.dataset.mkgReady).toBe("true");
    expect(model.sent).toEqual([]);
  });

  it("ignores values of the wrong kind", async () => {
    const { model, el } = await show({ selected: 3, expanded: "no", view: "upside-down", color_by: null });
    model.receive({ selected: {}, expanded: [1, "layer1"] });
    await after(50);
    expect(row(el, "layer1")?.getAttribute("aria-expanded")).toBe("true");
  });

  it("rebuilds for another payload and keeps what still exists", async () => {
    const { model, el } = await show({ selected: "layer1", expanded: ["layer1", "layer2"] });
    model.receive({ payload: { ...resnet([3, 8, 12, 3]), title: "Other" } });
    await after(50);
    expect(el.dataset.mkgReady).toBe("true");
    expect(el.textContent).toContain("Other");
    expect(el.querySelector<HTMLElement>(".mkg-side-panel")?.dataset.mkgPath).toBe("layer1");
    expect(row(el, "layer2")?.getAttribute("aria-expanded")).toBe("true");
    expect(model.sent).toEqual([]);
  });

  it.each(["restarting", "autorestarting", "dead", "terminating"])(
    "is disconnected for good after %j",
    async status => {
      const { el, kernel } = await show();
      const lost = () => el.classList.contains("mkg-is-disconnected");
      expect(lost()).toBe(false);
      kernel?.setStatus("busy");
      expect(lost()).toBe(false);
      kernel?.setStatus(status);
      expect(lost()).toBe(true);
      kernel?.setStatus("idle");
      expect(lost()).toBe(true);
    }
  );

  it("is disconnected while the connection is down", async () => {
    const { el, kernel } = await show();
    kernel?.setConnection("connecting");
    expect(el.classList.contains("mkg-is-disconnected")).toBe(true);
    kernel?.setConnection("connected");
    expect(el.classList.contains("mkg-is-disconnected")).toBe(false);
    kernel?.dispose();
    expect(el.classList.contains("mkg-is-disconnected")).toBe(true);
  });

  it("is disconnected without a comm, and then sends nothing", async () => {
    shown = open();
    shown.model.setCommLive(false);
    await after(20);
    const { el, model } = shown;
    expect(el.classList.contains("mkg-is-disconnected")).toBe(true);
    row(el, "layer1")?.click();
    await after(100);
    expect(row(el, "layer1")?.getAttribute("aria-selected")).toBe("true");
    expect(model.sent).toEqual([]);
  });

  it("leaves no listener behind", async () => {
    const { model, view, kernel } = await show();
    view.remove();
    shown = undefined;
    expect(kernel?.listeners).toBe(0);
    expect(model.listeners).toBe(0);
  });

  it("may go before it was shown", async () => {
    const { view, el } = open();
    view.remove();
    await after(20);
    expect(el.childElementCount).toBe(0);
  });
});
