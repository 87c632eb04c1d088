import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

vi.mock("@jupyter-widgets/base", () => import("../testing/metric_model"));

import { buffersOf, golden } from "../testing/forward";
import type { DOMWidgetModel } from "../testing/metric_model";
import { FakeKernel } from "../testing/widget_base";
import { ForwardPlayerModel, ForwardPlayerView } from "./forward_player";

type Model = DOMWidgetModel & Pick<ForwardPlayerModel, "feed" | "shownBy">;
type View = ForwardPlayerView & { el: HTMLElement };

const after = (ms: number) => new Promise(resolve => setTimeout(resolve, ms));
let views: View[];

function createModel(
  traits: Record<string, unknown> = {},
  kernel: FakeKernel | null = new FakeKernel(),
  live = true
): Model {
  const Class = ForwardPlayerModel as unknown as new (state: object, kernel: FakeKernel | null) => Model;
  const defaults = new Class({}, null).defaults();
  const model = new Class({ ...defaults, payload: golden("residual").payload, ...traits }, kernel);
  model.comm_live = live;
  model.initialize();
  return model;
}

async function show(model: Model): Promise<View> {
  const view = new ForwardPlayerView({ model } as never) as View;
  views.push(view);
  document.body.append(view.el);
  view.render();
  await after(0);
  return view;
}

const click = (view: View, selector: string) => view.el.querySelector<HTMLElement>(selector)?.click();

beforeEach(() => {
  views = [];
});

afterEach(() => {
  views.forEach(view => view.remove());
  document.body.replaceChildren();
});

describe("ForwardPlayerView", () => {
  it("is drawn from the traits, and says where", async () => {
    const { el } = await show(createModel({ step: 2, selected: "relu" }));
    expect([el.dataset.mkgId, el.dataset.mkgReady, el.dataset.mkgStep]).toEqual(["model-1", "true", "2"]);
    expect(el.classList.contains("mkg-forward-player")).toBe(true);
  });

  it("sends a step with all that goes with it in one message", async () => {
    const model = createModel({ page: 2 });
    const view = await show(model);
    click(view, '[data-mkg-step="1"]');
    await after(120);
    expect(model.sent).toEqual([{ step: 1, selected: "conv", page: 0 }]);
  });

  it("sends nothing back of what the kernel sets", async () => {
    const model = createModel({ page: 2 });
    const { el } = await show(model);
    model.receive({ step: 3 });
    model.receive({ selected: "relu" });
    model.receive({ page: 0 });
    model.receive({ speed: 7, hide_shapes: true, sample: 1, quiz: { asked: 4, right: 3 } });
    await after(120);
    expect(el.dataset.mkgStep).toBe("3");
    expect(el.querySelector(".mkg-forward-score")?.textContent).toBe("3 of 4 correct");
    expect(model.sent).toEqual([]);
  });

  it("tells the kernel of the step when another widget of the page has selected", async () => {
    const model = createModel({ step: 1, selected: "conv" });
    const { el } = await show(model);
    model.receive({ selected: "relu" });
    await after(120);
    expect(el.dataset.mkgStep).toBe("2");
    expect(model.sent).toEqual([{ step: 2 }]);
  });

  it("ignores values of the wrong kind", async () => {
    const model = createModel({ step: -1, speed: "fast", quiz: null, selected: 3 });
    const { el } = await show(model);
    model.receive({ step: "2", quiz: { asked: "1" } });
    expect(el.dataset.mkgStep).toBe("0");
  });

  it("shows another run with the traits that come with it", async () => {
    const model = createModel({ step: 3, selected: "relu" });
    const { el } = await show(model);
    model.receive({ step: 2, selected: "0", payload: { ...golden("stops").payload, run: 2 } });
    await after(120);
    expect([el.dataset.mkgStep, el.querySelectorAll("[role=option]").length]).toEqual(["2", 3]);
    expect(model.get("selected")).toBe("0");
    expect(model.sent).toEqual([]);
  });

  it("plays in one of two views, and hands it on", async () => {
    const model = createModel({ speed: 50 });
    const [first, second] = [await show(model), await show(model)];
    model.receive({ playing: true });
    const atEnd = () => expect([first.el.dataset.mkgStep, second.el.dataset.mkgStep]).toEqual(["3", "3"]);
    await vi.waitFor(atEnd, { timeout: 4000 });
    expect(model.get("playing")).toBe(false);
    first.remove();
    expect(model.shownBy).toEqual([second]);
  });
});

describe("pictures", () => {
  it("are shared by the views of a model", async () => {
    const model = createModel({ step: 1, sample: 1 });
    const first = await show(model);
    model.deliver({ content: golden("residual").reply, buffers: buffersOf(golden("residual")) });
    const second = await show(model);
    for (const { el } of [first, second]) expect(el.querySelector("[data-mkg-maps='1,1,1,0']")).not.toBeNull();
    expect(model.messages).toEqual([{ kind: "maps", run: 1, step: 1, sample: 1, page: 0 }]);
  });

  it("are not asked for where no kernel answers, nor does it play there", async () => {
    const model = createModel({ step: 1, playing: true, speed: 50 }, null, false);
    const { el } = await show(model);
    await after(150);
    expect([model.messages, model.sent, el.dataset.mkgStep]).toEqual([[], [], "1"]);
    expect(el.classList.contains("mkg-is-disconnected")).toBe(true);
    model.setCommLive(true);
    expect(model.messages.length).toBe(1);
    expect(el.classList.contains("mkg-is-disconnected")).toBe(false);
  });

  it("cannot come from a kernel that restarts", async () => {
    const kernel = new FakeKernel();
    const view = await show(createModel({}, kernel));
    kernel.setStatus("restarting");
    expect(view.el.classList.contains("mkg-is-disconnected")).toBe(true);
    view.remove();
    expect(kernel.listeners).toBe(0);
  });
});
