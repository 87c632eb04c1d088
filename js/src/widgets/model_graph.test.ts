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

const openRows = (el: HTMLElement) =>
  [...el.querySelectorAll<HTMLElement>('[role=treeitem][aria-expanded="true"]')]
    .map(one => one.dataset.mkgPath ?? "")
    .filter(path => path !== "");

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
  it("opens what fits until somebody has chosen, and says what that is", async () => {
    const { model, el } = await show({ open_to_fit: true });
    const open = () => [...el.querySelectorAll('[role=treeitem][aria-expanded="true"]')].length;
    const fitting = open();
    expect(fitting).toBeGreaterThan(1); // the root, and stages
    await after(80);
    expect(model.get("expanded")).toEqual([]);
    const opened = openRows(el);
    expect(model.asked).toEqual([{ kind: "opened", paths: opened, known: [], fit: true }]);
    expect(model.sent).toEqual([]);
    model.receive({ open_to_fit: false }); // Python has set `expanded` to what it had
    await after(80);
    expect(open()).toBe(1);
  });

  it("leaves what another page has opened to that one", async () => {
    const { model, el } = await show({ open_to_fit: true });
    await after(80);
    const own = openRows(el);
    model.receive({ expanded: ["layer1"] });
    await after(80);
    expect(openRows(el)).toEqual(own);
  });

  it("shows what Python has opened, with what that stands in and the member of a fold that it is", async () => {
    const { model, el } = await show({ expanded: ["layer2.1"] });
    await after(80);
    expect(openRows(el)).toEqual(["layer2", "layer2.1"]);
    expect(model.asked).toEqual([{ kind: "opened", paths: ["layer2", "layer2.1"], known: ["layer2.1"], fit: false }]);
    model.receive({ expanded: ["layer2", "layer2.1"] }); // Python's answer
    model.receive({ expanded: ["layer1", "layer3", "layer3.17", "layer3.9"] });
    await after(80);
    expect(openRows(el)).toEqual(["layer1", "layer3", "layer3.17"]);
    expect(model.asked.slice(1)).toMatchObject([{ paths: ["layer1", "layer3", "layer3.17"] }]);
  });

  it("says what is seen after clicks: nothing that stands in something closed", async () => {
    const { model, el } = await show({ expanded: ["layer1", "layer1.0", "layer2"] });
    const twisty = (path: string) => row(el, path)?.querySelector<HTMLElement>(".mkg-twisty")?.click();
    twisty("layer1");
    await after(80);
    expect(model.get("expanded")).toEqual(["layer2"]);
    twisty("layer1"); // what was open in it is open again
    await after(80);
    expect(model.get("expanded")).toEqual(openRows(el));
    expect(openRows(el)).toEqual(["layer1", "layer1.0", "layer2"]);
  });

  it("says it also where a click takes back the one before", async () => {
    const { model, el } = await show({ open_to_fit: true });
    const before = openRows(el);
    const twisty = () => row(el, before[0])?.querySelector<HTMLElement>(".mkg-twisty")?.click();
    twisty();
    await after(80);
    model.receive({ open_to_fit: false });
    expect(model.get("expanded")).not.toContain(before[0]);
    twisty();
    await after(80);
    expect([...(model.get("expanded") as string[])].sort()).toEqual([...before].sort());
  });

  it("opens where what Python has selected stands, and says so", async () => {
    const { model, el } = await show({ expanded: ["layer1"] });
    model.receive({ selected: "layer3.17.conv2" });
    await after(150);
    expect(openRows(el)).toEqual(["layer1", "layer3", "layer3.17"]);
    expect(model.asked).toMatchObject([{ paths: ["layer1", "layer3", "layer3.17"], known: ["layer1"] }]);
  });

  it("says that its model has changed, and asks for it as it is", async () => {
    const { model, el, kernel } = await show();
    const notice = () => el.querySelector<HTMLElement>(":scope > .mkg-outdated");
    expect(notice()).toBeNull();
    model.receive({ outdated: "Outdated: <b>it</b> has changed." });
    expect([notice()?.getAttribute("role"), notice()?.querySelector("span")?.textContent]).toEqual([
      "status",
      "Outdated: <b>it</b> has changed."
    ]);
    expect(el.firstElementChild).toBe(notice());
    notice()?.querySelector("button")?.click();
    expect(model.asked.slice(-1)).toEqual([{ kind: "refresh" }]);
    model.receive({ payload: resnet([1, 1, 1, 1]) });
    model.receive({ outdated: "" });
    await after(20);
    expect(notice()).toBeNull();
    model.receive({ outdated: "Outdated: again." });
    model.receive({ payload: resnet() }); // built anew around it
    await after(20);
    expect(el.firstElementChild).toBe(notice());
    kernel?.setConnection("connecting");
    expect(notice()?.querySelector("button")?.disabled).toBe(true);
  });

  it("asks for no refresh in a file", async () => {
    const { model, el } = await show({ outdated: "Outdated: the model's layers have changed." }, null);
    expect(el.querySelector(".mkg-outdated")).not.toBeNull();
    model.setCommLive(false);
    expect(el.querySelector(".mkg-outdated")).toBeNull();
  });

  it("shows the progress of a refresh, and cancels it", async () => {
    const { model, el } = await show();
    const notice = () => el.querySelector<HTMLElement>(":scope > .mkg-outdated");
    const act = () => notice()?.querySelector("button");
    model.receive({ outdated: "Outdated." });
    act()?.click();
    model.receive({ progress: "Refresh: 10 operators traced, 1 s" });
    expect([notice()?.querySelector("span")?.textContent, act()?.textContent, act()?.disabled]).toEqual([
      "Refresh: 10 operators traced, 1 s",
      "Cancel",
      false
    ]);
    act()?.click();
    expect(model.asked.slice(-1)).toEqual([{ kind: "cancel_refresh" }]);
    model.receive({ progress: "Refresh: 20 operators traced, 1 s" });
    expect(act()?.disabled).toBe(true);
    model.receive({ progress: "" });
    expect([act()?.textContent, act()?.disabled]).toEqual(["Refresh", false]);
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
