import "../testing/media";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

vi.mock("@jupyter-widgets/base", () => import("../testing/mask_model"));

import { DOMWidgetModel } from "../testing/mask_model";
import { click, slide } from "../testing/mask_view";
import { dropped, known, maskPayload, scoresOf, THREE } from "../testing/masks";
import { FakeKernel } from "../testing/widget_base";
import { MaskEditorModel, MaskEditorView } from "./mask_editor";

type Model = DOMWidgetModel & Pick<MaskEditorModel, "session" | "link">;
type View = MaskEditorView & { el: HTMLElement };

const after = (ms: number) => new Promise(resolve => setTimeout(resolve, ms));
let views: View[];

function createModel(traits: Record<string, unknown> = {}, kernel: FakeKernel | null = new FakeKernel(), live = true) {
  const Class = MaskEditorModel as unknown as new (state: object, kernel: FakeKernel | null) => Model;
  const defaults = new Class({}, null).defaults();
  const own = { payload: maskPayload(), draft: known(0, {}), scores: scoresOf(THREE), importance: "l1" };
  const model = new Class({ ...defaults, ...own, ...traits }, kernel);
  model.comm_live = live;
  model.initialize();
  return model;
}

async function show(model: Model): Promise<View> {
  const view = new MaskEditorView({ model } as never) as View;
  views.push(view);
  document.body.append(view.el);
  view.render();
  await after(0);
  return view;
}

const strip = (view: View, axis: number) =>
  view.el.querySelector(`.mkg-mask-row[data-mkg-axis="${axis}"] .mkg-mask-strip`) as HTMLElement;
const find = (view: View, selector: string) => view.el.querySelector(selector) as HTMLInputElement;

beforeEach(() => {
  views = [];
});

afterEach(() => {
  views.forEach(view => view.remove());
  document.body.replaceChildren();
});

describe("MaskEditorModel", () => {
  it("has a default for every trait", () => {
    expect(createModel().defaults()).toMatchObject({
      _model_name: "MaskEditorModel",
      _view_name: "MaskEditorView",
      _model_module: "modulekg-widgets",
      _view_module: "modulekg-widgets",
      payload: {},
      importance: "",
      scope: "local",
      locked: [],
      axis: null,
      selected: null,
      stage: "",
      operations: 0,
      report: {},
      draft: {},
      path: "plan.modulekg.json",
      graphs: []
    });
  });

  it("sends nothing on its own", async () => {
    const model = createModel();
    await show(model);
    await after(150);
    expect([model.messages, model.sent]).toEqual([[], []]);
  });

  it("takes messages before any view is there, after the state that came before them", async () => {
    const model = createModel();
    let arrived = () => {};
    model.state_change = new Promise<void>(resolve => {
      arrived = resolve;
    });
    model.deliver({ type: "done", action: "load", text: "Loaded" });
    const payload = maskPayload([THREE[0]], { terms: [], tensors: [], flops: [] });
    model.receive({ payload, draft: known(1, { 0: [1] }), scores: scoresOf([THREE[0]]) });
    expect(model.session.notice).toBe("");
    arrived();
    await after(0);
    expect([dropped(model.session), model.session.notice]).toEqual([[[0]], "Loaded"]);
  });

  it("shows what Python drops, and sends what is drawn on top of it", async () => {
    const model = createModel();
    model.session.begin();
    model.session.paint(0, [1], true);
    model.receive({ draft: known(3, { 1: [4, 0] }) });
    await after(0);
    expect([dropped(model.session), model.sent]).toEqual([[[1], [2], []], []]);
    model.session.commit();
    expect(model.sent).toMatchObject([{ draft: { base: 3, axes: [0, 1] } }]);
    model.receive({ draft: known(4, { 1: [4, 0] }) }); // it did not take ours
    await after(0);
    expect(model.sent).toMatchObject([{ draft: { base: 3 } }, { draft: { base: 4, axes: [0, 1] } }]);
  });

  it("saves the draft as it stands, and sends none of it", () => {
    const model = createModel({}, new FakeKernel(), false);
    model.session.begin();
    model.session.paint(0, [1], true);
    model.session.commit();
    const saved = (model as unknown as MaskEditorModel).get_state() as unknown as { draft: ReturnType<typeof known> };
    expect([saved.draft.axes, saved.draft.bits.getUint8(0), model.sent]).toEqual([[0], 2, []]);
    const again = createModel({ draft: saved.draft });
    expect([dropped(again.session)[0], again.session.data?.draft.isKnown]).toEqual([[1], true]);
  });

  it("shows a notebook that an earlier version has saved", () => {
    const bits = new DataView(Uint8Array.of(2, 0, 1, 0).buffer);
    const model = createModel({ draft: {}, dropped: bits, revision: 4 });
    expect(dropped(model.session)).toEqual([[1], [8], []]);
    expect(dropped(createModel({ draft: undefined, dropped: "x" }).session)).toEqual([[], [], []]);
  });

  it("copies bytes that are saved", () => {
    const { scores } = MaskEditorModel.serializers as unknown as Record<string, { serialize(v: unknown): DataView }>;
    const bytes = Uint8Array.of(1, 2, 3);
    const copy = scores.serialize(new DataView(bytes.buffer, 1));
    bytes.fill(9);
    expect([copy.byteLength, copy.getUint8(0)]).toEqual([2, 2]);
  });

  it("colors linked explorers in the page alone", async () => {
    const graph = new DOMWidgetModel({}, null);
    const model = createModel({ graphs: [graph] });
    await after(150);
    expect(graph.get("pruned")).toBeUndefined();
    model.session.begin();
    model.session.paint(0, [0, 1], true);
    model.session.commit();
    await after(150);
    expect(graph.get("pruned")).toEqual({ conv1: 0.5, "block.conv2": 0.5, block: 0.5, "": 0.5 });
    model.session.step("undo");
    await after(150);
    expect([graph.get("pruned"), graph.sent]).toEqual([{}, []]);
  });
});

describe("MaskEditorView", () => {
  it("sends a click as one value", async () => {
    const model = createModel();
    const view = await show(model);
    click(strip(view, 0), 2);
    expect(model.sent).toMatchObject([{ draft: { generation: 1, base: 0, axes: [0] } }]);
    const { bits } = model.sent[0].draft as ReturnType<typeof known>;
    expect([bits.byteLength, bits.getUint8(0)]).toEqual([1, 4]);
    await after(60);
    expect([model.sent.slice(1), model.messages]).toEqual([[{ axis: "conv1.weight[0]" }], []]);
  });

  it("shows one draft in all views", async () => {
    const model = createModel();
    const [first, second] = [await show(model), await show(model)];
    click(strip(first, 0), 2);
    await after(40);
    expect(find(second, ".mkg-mask-row[data-mkg-axis='0'] .mkg-mask-count").textContent).toBe("3 / 4");
    find(second, ".mkg-mask-undo").click();
    expect(dropped(model.session)[0]).toEqual([]);
  });

  it("writes what the user chooses, and shows what the kernel sets", async () => {
    const model = createModel();
    const view = await show(model);
    const choose = (selector: string, value: string) => {
      find(view, selector).value = value;
      find(view, selector).dispatchEvent(new Event("change"));
    };
    choose(".mkg-mask-importance", "l2");
    choose(".mkg-mask-scope", "global");
    find(view, ".mkg-mask-row[data-mkg-axis='1'] .mkg-mask-lock").click();
    await after(100);
    expect(model.sent).toEqual([{ importance: "l2", scope: "global", locked: ["conv2.weight[0]"] }]);
    model.receive({ importance: "l1", locked: [], path: "x.json", axis: "conv1.weight[0]" });
    model.receive({ stage: "cut", operations: 1 });
    await after(100);
    expect(model.sent).toHaveLength(1);
    expect([find(view, ".mkg-mask-importance").value, find(view, ".mkg-mask-path").value]).toEqual(["l1", "x.json"]);
    expect(find(view, ".mkg-mask-undo-model").textContent).toBe("Undo cut");
    expect(find(view, "[aria-current]").dataset.mkgAxis).toBe("0");
    expect(model.session.isLocked(1)).toBe(false);
  });

  it("follows new scores", async () => {
    const model = createModel({ scores: new DataView(new ArrayBuffer(0)) });
    const view = await show(model);
    for (const slider of [".mkg-mask-ratio-slider", ".mkg-mask-slider"])
      expect(find(view, slider).disabled, slider).toBe(true);
    model.receive({ scores: scoresOf([{ name: "", scores: [4, 3, 2, 1, ...Array<number>(13).fill(1)] }]) });
    slide(find(view, ".mkg-mask-ratio-slider"), 0.5);
    expect(dropped(model.session)[0]).toEqual([2, 3]);
  });

  it("shows another model when its payload comes", async () => {
    const model = createModel();
    const view = await show(model);
    click(strip(view, 0), 2);
    model.receive({
      payload: maskPayload([THREE[1], THREE[0]]),
      draft: known(7, { 1: [1] }),
      scores: scoresOf([THREE[1], THREE[0]])
    });
    expect(view.el.querySelectorAll(".mkg-mask-row")).toHaveLength(2);
    expect([dropped(model.session), find(view, ".mkg-mask-undo").disabled]).toEqual([[[], [0]], true]);
  });

  it("goes on without the kernel, and sends when it answers", async () => {
    const model = createModel();
    const view = await show(model);
    model.setCommLive(false);
    expect(view.el.classList.contains("mkg-is-disconnected")).toBe(true);
    click(strip(view, 0), 2);
    expect([dropped(model.session)[0], model.sent]).toEqual([[2], []]);
    model.setCommLive(true);
    expect(model.sent).toMatchObject([{ draft: { axes: [0] } }]);
    expect(view.el.classList.contains("mkg-is-disconnected")).toBe(false);
  });

  it("is told when the kernel dies", async () => {
    const kernel = new FakeKernel();
    const view = await show(createModel({}, kernel));
    kernel.setStatus("dead");
    expect(find(view, ".mkg-mask-load").disabled).toBe(true);
  });

  it("leaves no listener behind", async () => {
    const kernel = new FakeKernel();
    const model = createModel({}, kernel);
    const before = model.listeners;
    const view = await show(model);
    view.remove();
    expect([model.listeners, kernel.listeners, document.querySelector(".mkg-mask-editor")]).toEqual([before, 0, null]);
  });
});
