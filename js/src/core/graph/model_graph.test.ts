import { ALL_STRUCTURES } from "./scene/hierarchy_scene";
import { afterEach, describe, expect, it, vi } from "vitest";
import { compared, container, leaf, lineOf, payloadOf, resnet, sequence, type Spec } from "../../testing/payloads";
import { graphsOfBefore } from "../../testing/saved";
import { hostileNet, hostileTexts, wideNet } from "../../testing/sample";
import type { GraphView } from "./graph_view";
import { createModelGraph, type ModelGraph } from "./model_graph";
import { OTHER_VERSION } from "../shared/base/schema";
import { Stage, type StageElement } from "../shared/stage/stage";
import { type GraphState, GraphStore } from "../shared/model/graph_store";

let mounted: ModelGraph | undefined;

function mount(payload: unknown, state: Partial<GraphState> = {}) {
  const host = document.createElement("div");
  document.body.append(host);
  const store = new GraphStore(state);
  mounted = createModelGraph(host, payload, store);
  return { host, store, graph: mounted };
}

const settled = () => new Promise(resolve => setTimeout(resolve, 30));
const drawn = (graph: ModelGraph) => graph.graph?.scene().nodes.map(node => node.id) ?? [];
const press = (target: Element, key: string) =>
  target.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));

afterEach(() => {
  mounted?.dispose();
  mounted = undefined;
  document.body.replaceChildren();
});

describe("createModelGraph", () => {
  it("shows the parts of the contract and says when it is ready", async () => {
    const { host } = mount(resnet());
    expect(host.matches("div.mkg-widget.mkg-model-graph[data-mkg-id][data-lm-suppress-shortcuts]")).toBe(true);
    for (const part of [
      ".mkg-graph-canvas",
      ".mkg-tree",
      ".mkg-side-panel",
      ".mkg-breadcrumb",
      ".mkg-strip",
      ".mkg-search input",
      ".mkg-color-by select",
      ".mkg-view select",
      ".mkg-legend",
      ".mkg-minimap",
      ".mkg-status",
      ".mkg-export"
    ]) {
      expect(host.querySelector(part), part).not.toBeNull();
    }
    await settled();
    expect(host.dataset.mkgReady).toBe("true");
  });

  it.each(graphsOfBefore())("draws %s, which an earlier version saved", async (_, saved) => {
    const { host, store } = mount(saved);
    for (const view of ["dataflow", "operators", "deduplicated", "hierarchy"] as const) {
      store.set("view", view);
      await settled();
      expect(host.textContent).not.toContain("cannot be drawn");
      expect(host.dataset.mkgReady).toBe("true");
    }
    store.set("selected", "0");
    await settled();
    expect(host.querySelector(".mkg-side-panel")?.textContent).toContain("0");
  });

  it("draws what is opened, from any side", async () => {
    const { store, graph } = mount(resnet());
    store.set("expanded", ["layer1"]);
    await settled();
    expect(drawn(graph)).toContain("layer1.0");
    store.set("selected", "layer3.17.conv2");
    await settled();
    expect(drawn(graph)).toContain("layer3.17.conv2");
    store.set("expanded", []);
    await settled();
    expect(drawn(graph)).toHaveLength(12);
  });

  it("draws all that changes before the next frame in one go", async () => {
    const { store } = mount(resnet());
    await settled();
    const draw = vi.spyOn(Stage.prototype, "draw");
    store.set("selected", "conv1");
    store.set("query", "bn");
    store.set("colorBy", "params");
    expect(draw).not.toHaveBeenCalled();
    await settled();
    expect(draw).toHaveBeenCalledTimes(1);
    draw.mockRestore();
  });

  it("obeys the keys, but not those of a text field", async () => {
    const { host, store, graph } = mount(resnet(), { selected: "layer1" });
    const canvas = host.querySelector(".mkg-graph-canvas") as Element;
    press(host.querySelector(".mkg-search input") as Element, "Enter");
    press(canvas, "ArrowRight");
    expect(store.get("selected")).toBe("layer2");
    press(canvas, "Enter");
    expect(store.get("expanded")).toEqual(["layer2"]);
    press(canvas, "ArrowRight");
    expect(store.get("selected")).toBe("layer2.0");
    press(canvas, "Escape");
    expect(store.get("selected")).toBe("layer2");
    press(canvas, "Escape");
    expect(store.get("selected")).toBe("");
    const before = store.get("selected");
    press(host.querySelector(".mkg-search input") as Element, "f");
    expect(store.get("selected")).toBe(before);
    await settled();
    expect(drawn(graph)).toContain("layer2.0");
  });

  it("shows the keys on a question mark, and says without inputs what the arrows are", () => {
    const { host } = mount(resnet());
    const note = host.querySelector(".mkg-order-note");
    expect(note?.textContent).toContain("Arrows show the order of registration");
    expect(note?.nextElementSibling?.textContent).toBe("mk.ModelGraph(model, x)");
    expect(host.querySelector<HTMLElement>(".mkg-breadcrumb .mkg-copy")?.dataset.mkgCopy).toBe(
      "mk.ModelGraph(model, x)"
    );
    expect(host.querySelector(".mkg-flops")).toBeNull();
    const isHelpShown = () => host.querySelector<HTMLElement>(".mkg-key-help")?.hidden === false;
    expect(isHelpShown()).toBe(false);
    press(host.querySelector(".mkg-graph-canvas") as Element, "?");
    expect(isHelpShown()).toBe(true);
    press(host.querySelector(".mkg-key-help") as Element, "?");
    expect(isHelpShown()).toBe(false);
  });

  it("moves the focus out with Escape", () => {
    const { host, store, graph } = mount(resnet(), { expanded: ["layer1"] });
    const node = (path: string) => graph.graph?.scene().nodes.findIndex(({ id }) => id === path) ?? -1;
    expect(node("layer1.0")).toBeGreaterThan(0);
    store.set("selected", "layer1.0");
    store.set("focus", 5);
    press(host.querySelector(".mkg-graph-canvas") as Element, "Escape");
    expect(store.get("focus")).toBe(0);
    expect(store.get("selected")).toBe("layer1");
  });

  it("changes the view and back", async () => {
    const { host, store, graph } = mount(resnet());
    store.set("view", "deduplicated");
    await settled();
    expect(drawn(graph)).toHaveLength(11); // as many as fit, and a pill for the other 40
    expect(drawn(graph)).toContain(ALL_STRUCTURES);
    store.set("view", "diff"); // nothing to compare with
    await settled();
    expect(drawn(graph)).toHaveLength(12);
    store.set("view", "hierarchy");
    await settled();
    expect(host.querySelectorAll(".mkg-graph-canvas")).toHaveLength(1);
  });

  it("explains what it cannot show", () => {
    expect(mount({}).host.querySelector("[role=alert]")?.textContent).toContain("Run the cell");
    expect(mount({ ...resnet(), schema_version: 3 }).host.textContent).toBe(OTHER_VERSION);
    expect(mount({ ...resnet(), folds: [[1, 99, "exact", "<b>"]] }).host.textContent).toContain("damaged");
  });

  it("drops a selection that the payload does not have", () => {
    const { store } = mount(resnet(), { selected: "gone", expanded: ["layer1", "gone"] });
    expect(store.get("selected")).toBeNull();
    expect(store.get("expanded")).toEqual(["layer1"]);
  });

  it("shows a lost kernel", () => {
    const { host, store } = mount(resnet());
    expect(host.classList.contains("mkg-is-disconnected")).toBe(false);
    store.set("connected", false);
    expect(host.classList.contains("mkg-is-disconnected")).toBe(true);
  });

  it("pages through 100,000 siblings to the one that is selected", async () => {
    const { store, graph } = mount(wideNet(100_000).payload);
    store.set("selected", "77777");
    await settled();
    expect(drawn(graph)).toContain("77777");
  });

  it.each(["hierarchy", "dataflow"] as const)(
    "turns the page of a forward pass to what is selected (%s)",
    async view => {
      const count = 300;
      const modules = Array.from({ length: count }, (_, i): [string, Spec] => [`m${i}`, leaf(`C${i}`)]);
      const flow = lineOf(modules.map((_, i) => count - i)); // called from the last to the first
      const { store, graph } = mount({ ...payloadOf(container("Net", modules)), traced: true, flow });
      store.set("view", view);
      store.set("selected", "m0");
      await settled();
      expect(drawn(graph)).toContain("m0");
    }
  );

  it("shows all of it by the key and by a double click alike, lines beside the cards included", async () => {
    const { graph } = mount(
      payloadOf(
        sequence(
          "Net",
          Array.from({ length: 40 }, (_, i) => leaf(`C${i}`))
        )
      )
    );
    await settled();
    const view = graph.graph as GraphView;
    const [fit, around] = [vi.spyOn(view.camera, "fit"), vi.spyOn(view.camera, "lookAround")];
    view.fit();
    view.navigator.toAll();
    expect(around.mock.calls[0][0]).toEqual(fit.mock.calls[0][0][0]);
  });

  it("puts no hostile text into markup", async () => {
    const texts = hostileTexts();
    const { host, store } = mount(hostileNet(texts).payload);
    store.set("query", texts[0]);
    store.set("selected", texts[0]);
    await settled();
    expect(
      host.querySelector("script, img, iframe, embed, form, [onerror], [onload], [data-commandlinker-command]")
    ).toBeNull();
  });

  it("leaves nothing behind", async () => {
    const { host, store, graph } = mount(resnet());
    const remove = vi.spyOn(host, "removeEventListener");
    await settled();
    graph.dispose();
    mounted = undefined;
    expect(host.childElementCount).toBe(0);
    expect(host.dataset.mkgReady).toBeUndefined();
    expect(remove).toHaveBeenCalled();
    store.set("selected", "layer1");
    store.set("expanded", ["layer1"]);
    store.set("view", "deduplicated");
    await settled();
    expect(host.childElementCount).toBe(0);
  });
});

describe("side by side", () => {
  const payload = () => compared(resnet([1, 2, 1, 1]), resnet([1, 3, 1, 1]));

  it("links the selection and steps through the differences", async () => {
    const { host, store } = mount(compared(resnet([1, 2, 1, 2]), resnet([1, 3, 1, 1])), {
      view: "diff",
      expanded: ["layer2"]
    });
    await settled();
    expect(host.dataset.mkgReady).toBe("true");
    expect(host.querySelectorAll(".mkg-graph-canvas")).toHaveLength(2);
    const entry = (status: string) => host.querySelector(`[data-mkg-status=${status}].mkg-diff-entry`)?.textContent;
    // neither what is inside of an added block nor what is around it is a difference of its own
    expect(entry("added")).toMatch(/added 1$/);
    expect(entry("removed")).toMatch(/removed 1$/);
    expect(entry("changed")).toMatch(/changed 0$/);
    const next = host.querySelector<HTMLButtonElement>(".mkg-next-difference");
    expect(host.querySelector(".mkg-diff-place")?.textContent).toBe("2 differences: 1 removed, 1 added");
    next?.click();
    expect(host.querySelector(".mkg-diff-place")?.textContent).toBe("1 of 2 · layer2.2 added");
    next?.click();
    expect(store.get("selected")).toBe("layer4.1");
    expect(host.querySelector(".mkg-diff-place")?.textContent).toBe("2 of 2 · layer4.1 removed");
  });

  it("says so when nothing differs", async () => {
    const { host } = mount(compared(resnet(), resnet()), { view: "diff" });
    await settled();
    expect(host.querySelector(".mkg-diff-place")?.textContent).toBe("no differences");
    expect(host.querySelector<HTMLButtonElement>(".mkg-next-difference")?.disabled).toBe(true);
  });

  it("takes folds as each side has them", async () => {
    const [left, right] = [resnet([1, 4, 1, 1]), resnet([1, 4, 1, 1])];
    const both = compared(left, right);
    const fold = both.folds.findIndex(([, count]) => count === 3);
    const [first, , kind, label] = both.folds[fold];
    const last = both.nodes.parent.lastIndexOf(both.nodes.parent[first]); // split off, as the kernel does by status
    both.folds[fold] = [first, 2, kind, label];
    if (both.compare) both.compare.left[last] = "changed";
    const { host, store, graph } = mount(both, { view: "diff", expanded: ["layer2"] });
    await settled();
    expect(drawn(graph)).toContain("layer2.3");
    host.querySelector<HTMLButtonElement>(".mkg-next-difference")?.click();
    expect(store.get("selected")).toBe("layer2.3");
    await settled();
    const [, other] = host.querySelectorAll<StageElement>(".mkg-graph-canvas");
    expect(other.mkgStage?.picture.items.filter(({ id }) => id === "layer2.3")).toHaveLength(1);
  });

  it("is gone when the view changes", async () => {
    const { host, store } = mount(payload(), { view: "diff" });
    store.set("view", "hierarchy");
    await settled();
    expect(host.querySelector(".mkg-diff")).toBeNull();
    expect(host.querySelectorAll(".mkg-graph-canvas")).toHaveLength(1);
  });
});
