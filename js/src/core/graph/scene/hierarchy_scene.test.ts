import { describe, expect, it } from "vitest";
import { container, leaf, payloadOf, resnet, sequence } from "../../../testing/payloads";
import { deepNet, wideNet } from "../../../testing/sample";
import { measurer } from "../../shared/base/canvas";
import { Hierarchy } from "../../shared/model/hierarchy";
import type { EdgeRecord, ModelPayload } from "../../shared/payload/payload";
import { nodeLimit, WINDOW } from "../../shared/model/expansion";
import { buildScene } from "./hierarchy_scene";
import { type GraphState, GraphStore } from "../../shared/model/graph_store";
import { AFTER, BEFORE, INPUT, OUTPUT, type Scene } from "./scene";

const draw = (h: Hierarchy, state: Partial<GraphState> = {}, pages?: ReadonlyMap<number, number>) =>
  buildScene(h, new GraphStore(state), measurer(), pages);
const ids = (scene: Scene) => scene.nodes.map(node => node.id);
const OUTSIDE = "\u0000outside";
const links = (scene: Scene, kind?: "order" | "data") =>
  scene.edges
    .filter(edge => !kind || edge.kind === kind)
    .map(edge => [scene.nodes[edge.source].id, scene.nodes[edge.target].id]);

describe("a model that was not traced", () => {
  const h = new Hierarchy(resnet());

  it("is a chain from input to output", () => {
    const scene = draw(h);
    expect(ids(scene)).toEqual([
      INPUT,
      "conv1",
      "bn1",
      "relu",
      "maxpool",
      "layer1",
      "layer2",
      "layer3",
      "layer4",
      "avgpool",
      "fc",
      OUTPUT
    ]);
    expect(links(scene, "order")).toEqual(
      ids(scene)
        .slice(1)
        .map((id, i) => [ids(scene)[i], id])
    );
    expect(scene.count).toBe(10);
  });

  it("opens in place, one card a fold", () => {
    const scene = draw(h, { expanded: ["layer3", "layer3.1"] });
    const byId = new Map(scene.nodes.map(node => [node.id, node]));
    expect(byId.get("layer3")?.kind).toBe("group");
    expect(byId.get("layer3.1")).toMatchObject({ kind: "group", badge: "×35" });
    expect(scene.nodes[byId.get("layer3.1.conv2")?.parent ?? -1].id).toBe("layer3.1");
    expect(byId.has("layer3.2")).toBe(false);
    expect(links(scene)).toContainEqual(["layer3.0", "layer3.1"]);
    expect(scene.groups.map(({ node }) => scene.nodes[node]?.id)).toEqual(["layer3.1", "layer3", undefined]);
  });

  it("draws the instance that is shown, or all of them", () => {
    const [first, other] = ["layer3.1", "layer3.17"].map(path => h.find(path) ?? -1);
    expect(ids(draw(h, { expanded: ["layer3"], shown: new Map([[first, other]]) }))).toContain("layer3.17");
    const all = draw(h, { expanded: ["layer3"], unfolded: new Set([first]) });
    expect(ids(all).filter(id => id.startsWith("layer3."))).toHaveLength(36);
    expect(all.nodes.every(node => !node.id.startsWith("layer3.") || node.kind === "module")).toBe(true);
  });

  it("draws only the inside of the focus", () => {
    const scene = draw(h, { focus: h.find("layer1") });
    expect(ids(scene)).toEqual([INPUT, "layer1.0", "layer1.1", OUTPUT]);
  });

  it("draws a model of one module", () => {
    const one = draw(new Hierarchy(payloadOf(leaf("Linear", 6))));
    expect(one.nodes.map(node => node.title)).toEqual(["input", "Linear", "output"]);
    expect(one.nodes[1].id).not.toBe("");
  });

  it("tells apart what has the same path", () => {
    const odd = new Hierarchy(
      payloadOf(
        container("Net", [
          ["", leaf("A")],
          ["a.b", leaf("B")],
          ["a", container("Box", [["b", leaf("C")]])]
        ])
      )
    );
    const scene = draw(odd, { expanded: ["a"] });
    expect(new Set(ids(scene)).size).toBe(scene.nodes.length);
    expect(scene.nodes.map(node => node.path)).toEqual([null, "", "a.b", "a", null, "a.b"]);
  });

  it("draws slots whose module is elsewhere", () => {
    const payload = payloadOf(
      container("Net", [
        ["a", leaf("Linear")],
        ["b", leaf("ReLU")]
      ])
    );
    payload.links = [[0, "again", 1, "shared"]];
    const scene = draw(new Hierarchy(payload));
    expect(scene.nodes[3]).toMatchObject({
      index: -1,
      target: 1,
      title: "again",
      subtitle: "Linear",
      detail: "shared with a"
    });
  });

  it("shortens a name of 10,000 characters", () => {
    const scene = draw(new Hierarchy(payloadOf(container("Net", [["x".repeat(10000), leaf("\n".repeat(10000))]]))));
    const card = scene.nodes[1];
    expect(card.subtitle.length).toBeLessThan(200);
    expect(card.title).not.toContain("\n");
    expect(card.size[0]).toBeLessThan(400);
  });
});

describe("limits", () => {
  it("draws 100,000 siblings a page at a time", () => {
    const h = wideNet(100_000);
    const first = draw(h);
    expect(first.count).toBe(WINDOW);
    expect(ids(first).some(id => id.startsWith(AFTER))).toBe(true);
    const later = draw(h, {}, new Map([[0, 500]]));
    expect(ids(later).some(id => id.startsWith(BEFORE))).toBe(true);
    expect(ids(later)).toContain("500");
    expect(draw(h, {}, new Map([[0, 1e9]])).count).toBe(WINDOW);
  });

  it("draws no more than the hard limit, whatever is open", () => {
    const box = sequence(
      "Box",
      Array.from({ length: 40 }, (_, i) => leaf(`C${i}`))
    );
    const names = Array.from({ length: 40 }, (_, i) => [`b${i}`, { ...box, cls: `B${i}` }] as [string, typeof box]);
    const h = new Hierarchy(payloadOf(container("Net", names)));
    const scene = draw(h, { expanded: names.map(([name]) => name) });
    expect(scene.count).toBeLessThanOrEqual(nodeLimit());
    expect(scene.capped).toBe(true);
  });

  it("survives 5,000 open levels", () => {
    const h = deepNet(5000);
    const paths = Array.from({ length: 60 }, (_, i) => h.path(i + 1));
    const scene = draw(h, { expanded: paths });
    expect(scene.capped).toBe(true);
    expect(scene.count).toBeLessThan(30);
  });
});

describe("a traced model", () => {
  const traced = (edges: [string, string][], more: Partial<ModelPayload> = {}) => {
    const payload = { ...resnet([2, 1, 1, 1]), traced: true, ...more };
    const h = new Hierarchy(payload);
    const place = (path: string) => (path === OUTSIDE ? -1 : (h.find(path) ?? NaN));
    payload.edges = edges.map(([from, to]) => [place(from), place(to), "[1, 64]"] as EdgeRecord);
    return new Hierarchy(payload);
  };

  it("lifts edges to what is drawn and merges them", () => {
    const h = traced([
      ["maxpool", "layer1.0.conv1"],
      ["maxpool", "layer1.0.downsample.0"],
      ["layer1.0.relu", "layer1.1.conv1"],
      ["conv1", "bn1"]
    ]);
    const closed = links(draw(h), "data");
    expect(closed.filter(([from]) => from === "maxpool")).toEqual([["maxpool", "layer1"]]);
    expect(closed).toContainEqual(["conv1", "bn1"]);
    const open = links(draw(h, { expanded: ["layer1", "layer1.0"] }), "data");
    expect(open).toContainEqual(["maxpool", "layer1.0.conv1"]);
    expect(open).toContainEqual(["maxpool", "layer1.0.downsample"]);
    expect(open).toContainEqual(["layer1.0.relu", "layer1.1"]);
    expect(draw(h).edges.every(edge => edge.kind === "data")).toBe(true);
  });

  it("takes the model's input and output from the payload, and leaves loose ends loose", () => {
    const found = links(
      draw(
        traced([
          [OUTSIDE, "conv1"],
          ["conv1", "bn1"],
          ["fc", OUTSIDE]
        ])
      ),
      "data"
    );
    expect(found).toEqual([
      [INPUT, "conv1"],
      ["conv1", "bn1"],
      ["fc", OUTPUT]
    ]);
  });

  it("has the order instead where two models stand side by side", () => {
    const scene = buildScene(traced([["conv1", "bn1"]]), new GraphStore(), measurer(), new Map(), false);
    expect(scene.edges.every(edge => edge.kind === "order")).toBe(true);
    expect(scene.edges).toHaveLength(scene.nodes.length - 1);
  });

  it("makes room for what is written on edges", () => {
    const scene = draw(
      traced([
        [OUTSIDE, "conv1"],
        ["conv1", "bn1"]
      ])
    );
    const { items, nets } = scene.groups[0];
    const written = nets.filter(({ label }) => label > 0).map(({ start }) => scene.nodes[items[start[0]]].id);
    expect(written).toContain("conv1");
    expect(nets.find(({ start }) => scene.nodes[items[start[0]]].id === "fc")?.label ?? 0).toBe(0);
  });

  it("takes edges from outside the focus to the input", () => {
    const h = traced([
      ["maxpool", "layer1.0.conv1"],
      ["layer1.1.relu", "layer2.0.conv1"]
    ]);
    const found = links(draw(h, { focus: h.find("layer1") }), "data");
    expect(found).toContainEqual([INPUT, "layer1.0"]);
    expect(found).toContainEqual(["layer1.1", OUTPUT]);
  });

  it("has no edge between a frame and its own inside", () => {
    const found = links(draw(traced([["layer1", "layer1.0.conv1"]]), { expanded: ["layer1", "layer1.0"] }), "data");
    expect(found.filter(([from, to]) => from === "layer1" || to === "layer1")).toEqual([]);
  });
});
