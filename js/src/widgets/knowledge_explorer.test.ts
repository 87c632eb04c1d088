import "../testing/media";
import { afterEach, describe, expect, it, vi } from "vitest";
import { StructureLink } from "./linked_models";
import { rawKnowledge } from "../testing/knowledge";
import { golden, resnet } from "../testing/payloads";

vi.mock("@jupyter-widgets/base", () => import("../testing/widget_base"));

import { FakeKernel, FakeModel } from "../testing/widget_base";
import { KnowledgeExplorerModel, KnowledgeExplorerView } from "./knowledge_explorer";

const after = (ms: number) => new Promise(resolve => setTimeout(resolve, ms));
const TRAITS = { payload: rawKnowledge(), selected: null, view: "graph", color_by: "community", query: "", graphs: [] };
const [DIGEST, SECOND] = rawKnowledge().entities.digest;

function open(traits: Record<string, unknown> = {}) {
  const kernel = new FakeKernel();
  const model = new FakeModel({ ...TRAITS, ...traits }, kernel);
  const view = new KnowledgeExplorerView({ model } as never) as KnowledgeExplorerView & { el: HTMLElement };
  document.body.append(view.el);
  view.render();
  return { model, view, kernel, el: view.el };
}

let shown: ReturnType<typeof open> | undefined;

const show = async (traits: Record<string, unknown> = {}) => {
  shown = open(traits);
  await after(20);
  return shown;
};

afterEach(() => {
  shown?.view.remove();
  shown = undefined;
  document.body.replaceChildren();
});

describe("KnowledgeExplorerView", () => {
  it("has a default for every trait", () => {
    const defaults = KnowledgeExplorerModel.prototype.defaults.call(Object.create(KnowledgeExplorerModel.prototype));
    expect(defaults).toMatchObject({
      ...TRAITS,
      payload: {},
      _model_name: "KnowledgeExplorerModel",
      _view_name: "KnowledgeExplorerView"
    });
  });

  it("sends nothing before the user acts, nor what the kernel has set", async () => {
    const { model, el } = await show({ selected: "Model:wide" });
    model.receive({ selected: DIGEST, view: "ranking", query: "conv" });
    await after(150);
    expect(model.sent).toEqual([]);
    expect(el.querySelector<HTMLElement>(".mkg-side-panel")?.dataset.mkgKey).toBe(DIGEST);
    expect(el.dataset.mkgView).toBe("ranking");
  });

  it("tells the kernel what is chosen", async () => {
    const { model, el } = await show();
    el.querySelector<HTMLElement>('[data-mkg-item="f0"]')?.click();
    el.querySelector<HTMLElement>('[data-mkg-view="types"]')?.click();
    await after(120);
    expect(Object.assign({}, ...model.sent)).toEqual({ selected: "Family:Sequential", view: "types" });
  });

  it("follows another payload", async () => {
    const { model, el } = await show();
    model.receive({ payload: rawKnowledge("empty") });
    await after(20);
    expect(el.dataset.mkgDrawn).toBe("0");
    expect(model.sent).toEqual([]);
  });

  it("looks on without a kernel", async () => {
    const { el, kernel } = await show();
    kernel.setStatus("dead");
    expect(el.classList.contains("mkg-is-disconnected")).toBe(true);
    el.querySelector<HTMLElement>('[data-mkg-item="f0"] .mkg-twisty')?.click();
    await after(20);
    expect(el.querySelectorAll('[role=treeitem][aria-level="2"]')).toHaveLength(4);
  });

  it("leaves no listener", async () => {
    const { model, view, kernel } = await show();
    view.remove();
    expect(kernel.listeners).toBe(0);
    expect(model.listeners).toBe(0);
  });
});

describe("a link to a graph", () => {
  const linked = (payload: unknown = graphPayload()) => {
    const explorer = new FakeModel({ ...TRAITS }, null);
    const graph = new FakeModel({ payload, selected: null }, null);
    const link = new StructureLink(explorer as never);
    link.follow([graph as never]);
    explorer.on("change:selected", () => link.toGraphs());
    return { explorer, graph, link };
  };

  /** A model graph whose modules are the first two structures, the second of them twice. */
  function graphPayload() {
    return golden("folded", payload => {
      payload.entities.digest = payload.entities.digest.map((own, i) => (i === 0 ? DIGEST : i === 1 ? SECOND : own));
    });
  }

  it("selects the first path that has the structure, and the other way round", () => {
    const { explorer, graph } = linked();
    explorer.set({ selected: SECOND });
    expect(graph.get("selected")).toBe("0");
    expect(graph.sent).toEqual([{ selected: "0" }]);
    graph.set({ selected: "" });
    expect(explorer.get("selected")).toBe(DIGEST);
    expect(explorer.sent).toEqual([{ selected: DIGEST }]);
  });

  it("leaves a selection that has the structure already, and what is not there", () => {
    const { explorer, graph } = linked();
    graph.set({ selected: "1" });
    expect(explorer.get("selected")).toBeNull();
    explorer.set({ selected: "Family:Sequential" });
    expect(graph.get("selected")).toBe("1");
    explorer.set({ selected: "Model:wide" });
    expect(graph.get("selected")).toBe("1");
  });

  it("ends", () => {
    const { explorer, graph, link } = linked();
    link.dispose();
    graph.set({ selected: "0" });
    expect([explorer.get("selected"), graph.listeners]).toEqual([null, 0]);
  });

  it("bears payloads that cannot be read", () => {
    const { explorer, graph } = linked({ ...resnet(), schema_version: 99 });
    explorer.set({ selected: DIGEST });
    graph.set({ selected: "layer1" });
    expect([explorer.get("selected"), graph.sent]).toEqual([DIGEST, []]);
  });
});
