import { describe, expect, it } from "vitest";
import { container, golden, leaf, lineOf, payloadOf, sequence } from "../../../testing/payloads";
import { measurer } from "../../shared/base/canvas";
import { type Dataflow, dataflowOf } from "../../shared/model/dataflow";
import { buildFlowScene } from "./flow_scene";
import { AFTER, INPUT, OUTPUT, positionScene, type Scene, type SceneNode } from "../scene/scene";
import { type FlowLevel, MAX_CALLS } from "../../shared/model/flow_units";
import { Hierarchy } from "../../shared/model/hierarchy";
import { Layouter } from "../../layout/layouter";
import type { FlowPayload } from "../../shared/payload/payload";
import type { Box } from "../../shared/stage/viewport";
import { type GraphState, GraphStore } from "../../shared/model/graph_store";

const traced = new Hierarchy(golden("traced"));

function draw(h: Hierarchy, level: FlowLevel, state: Partial<GraphState> = {}): Scene {
  const scene = buildFlowScene(h, dataflowOf(h) as Dataflow, new GraphStore(state), measurer(), {
    level,
    pages: new Map()
  });
  if (!scene) {
    throw new Error("no scene");
  }
  return scene;
}

const DATAFLOW = { level: "dataflow", pages: new Map<number, number>() } as const;
const withFlow = (payload: ReturnType<typeof payloadOf>, flow: FlowPayload) =>
  new Hierarchy({ ...payload, traced: true, flow });
const shownAs = ({ title, subtitle }: SceneNode) => title + (/ · call.*/.exec(subtitle)?.[0] ?? "");
const names = ({ nodes }: Scene) => nodes.map(shownAs);
const links = ({ nodes, edges }: Scene) =>
  edges.map(({ source, target, label }) => [shownAs(nodes[source]), shownAs(nodes[target]), label]);
const byId = ({ nodes }: Scene, id: string) => nodes.find(node => node.id === id);

describe("the data flow between modules", () => {
  const scene = draw(traced, "dataflow");

  it("goes from every input to every output, by way of the calls and the code between them", () => {
    expect(names(scene)).toEqual([
      "input x",
      "input y",
      "left",
      "act · call 1 of 2",
      "right",
      "act · call 2 of 2",
      "cat",
      "drop",
      "view",
      "blocks",
      "view",
      "head",
      "output score",
      "output both"
    ]);
    expect(links(scene)).toEqual(
      expect.arrayContaining([
        ["input x", "left", "2×3"],
        ["left", "act · call 1 of 2", "2×4"],
        ["act · call 1 of 2", "cat", "2×4"],
        ["act · call 2 of 2", "cat", "2×4"],
        ["cat", "drop", "2×8"],
        ["head", "output score", "2×2"]
      ])
    );
  });

  it("draws what only looks at its input where the shape changes, with the shape that arrives", () => {
    expect(links(scene)).toContainEqual(["drop", "view", "2×8"]);
    expect(links(scene)).toContainEqual(["view", "blocks", "2×1×2×4"]);
    expect(links(scene)).toContainEqual(["view", "head", "2×8"]);
    expect(scene.nodes.filter(node => node.title === "view").every(node => node.isGlyph)).toBe(true);
  });

  it("has the dotted path as id of a module's first call", () => {
    expect(byId(scene, "act")).toMatchObject({ title: "act", subtitle: "ReLU · call 1 of 2" });
    expect(scene.nodes.filter(node => node.path === "act")).toHaveLength(2);
    expect(scene.nodes[0].id).toBe(INPUT);
    expect(scene.nodes[scene.nodes.length - 2].id).toBe(OUTPUT);
    expect(byId(scene, "spare")).toBeUndefined();
  });

  it("folds a run of alike modules, and opens one of them", () => {
    const open = draw(traced, "dataflow", { expanded: ["blocks", "blocks.0"] });
    expect(byId(open, "blocks.0")).toMatchObject({ kind: "group", badge: "×3" });
    expect(byId(open, "blocks.1")).toBeUndefined();
    expect(links(open)).toEqual(
      expect.arrayContaining([
        ["conv", "act", "2×1×2×4"],
        ["act", "add", "2×1×2×4"],
        ["view", "conv", "2×1×2×4"],
        ["view", "add", "2×1×2×4"] // the skip inside the block begins outside of it
      ])
    );
    const other = draw(traced, "dataflow", { expanded: ["blocks"], shown: new Map([[6, 9]]) });
    expect(byId(other, "blocks.1")).toMatchObject({ kind: "fold" });
    const all = draw(traced, "dataflow", { expanded: ["blocks"], unfolded: new Set([6]) });
    expect(links(all)).toContainEqual(["0", "1", "2×1×2×4"]);
  });

  it("names a module with the list around it where that has no frame", () => {
    const net = payloadOf(
      container("Net", [
        ["stem", leaf("Linear")],
        ["experts", sequence("ModuleList", [leaf("ReLU"), leaf("GELU")])]
      ])
    );
    const scene = draw(withFlow(net, lineOf([1, 3, 4])), "dataflow"); // what has a frame: "0", above
    expect(names(scene)).toEqual(["input x", "stem", "experts.0", "experts.1", "output"]);
  });

  it("folds no modules that stand beside each other in the flow", () => {
    const net = payloadOf(
      sequence(
        "Net",
        Array.from({ length: 3 }, () => leaf("ReLU"))
      )
    );
    const chain = withFlow(net, lineOf([1, 2, 3]));
    expect(names(draw(chain, "dataflow"))).toEqual(["input x", "0", "output"]);
    const beside = lineOf([1, 2, 3]);
    beside.steps.inputs = [[0], [0], [0]];
    expect(names(draw(withFlow(net, beside), "dataflow"))).toEqual(["input x", "0", "1", "2", "output"]);
    const store = new GraphStore({ selected: "1" });
    expect(buildFlowScene(chain, dataflowOf(chain) as Dataflow, store, measurer(), DATAFLOW)?.nodes[1].badge).toBe(
      "×3"
    );
  });

  /** Modules in a row, and an operator of the model's own code between each and the next. */
  const withCode = (...names: string[]) => {
    const count = names.length + 1;
    const net = payloadOf(
      sequence(
        "Net",
        Array.from({ length: count }, () => leaf("Linear"))
      )
    );
    const every = Array.from({ length: count + names.length }, (_, i) => i);
    const line = lineOf(every.map(i => i / 2 + 1));
    line.calls = {
      ...lineOf(every.slice(0, count).map(i => i + 1)).calls,
      outputs: every.slice(0, count + 1).map(() => [])
    };
    line.names = ["aten::addmm", ...names.map(name => `aten::${name}`)];
    line.steps.name = every.map(i => (i % 2 ? (i + 1) / 2 : 0));
    line.steps.call = every.map(i => (i % 2 ? 0 : i / 2 + 1));
    return withFlow(net, line);
  };

  it("folds modules that follow each other by way of the code between them", () => {
    for (const level of ["hierarchy", "dataflow"] as const) {
      for (const code of [["relu", "relu"], ["clone"]]) {
        const scene = draw(withCode(...code), level);
        expect(scene.nodes.filter(node => node.kind === "fold")).toHaveLength(1);
      }
    }
  });

  it("folds no two modules with a function between them, and none with unlike functions", () => {
    for (const level of ["hierarchy", "dataflow"] as const) {
      expect(names(draw(withCode("gelu"), level))).toEqual(["input x", "0", "gelu", "1", "output"]);
      const unlike = draw(withCode("relu", "tanh"), level);
      expect(names(unlike)).toEqual(["input x", "0", "relu", "1", "tanh", "2", "output"]);
    }
  });

  it("shows the inside of the focus between one input and one output", () => {
    const inside = draw(traced, "dataflow", { focus: traced.find("blocks.1") });
    expect(names(inside)).toEqual(["input", "conv", "act", "add", "output"]);
    expect(links(inside)).toContainEqual(["input", "conv", "2×1×2×4"]);
    expect(links(inside)).toContainEqual(["add", "output", "2×1×2×4"]);
    expect(
      buildFlowScene(traced, dataflowOf(traced) as Dataflow, new GraphStore({ focus: 16 }), measurer(), DATAFLOW)
    ).toBeNull();
  });

  it("shows the operators of a model that is one module", () => {
    const one = withFlow(payloadOf(leaf("ReLU")), {
      ...lineOf([]),
      steps: { name: [0], call: [0], inputs: [[0]], tensors: [[]], source: [-1], flops: [1], view: [] },
      values: { step: [-1, 0], shape: [0, 0], dtype: [0, 0], axes: [[], []] },
      outputs: [1]
    });
    expect(names(draw(one, "dataflow"))).toEqual(["input x", "relu", "output"]);
  });

  it("has a pill for each of a few outputs, and counts many; long names are cut with a mark", () => {
    const giving = (count: number, input = "x") => {
      const line = lineOf(new Array(count).fill(1));
      line.outputs = Array.from({ length: count }, (_, i) => i + 1);
      line.inputs = [[input, 0]];
      return names(draw(withFlow(payloadOf(container("Net", [["act", leaf("ReLU")]])), line), "dataflow"));
    };
    expect(giving(2).slice(-2)).toEqual(["output 1", "output 2"]);
    expect(giving(9).slice(-1)).toEqual(["9 outputs"]);
    expect(giving(1, "x".repeat(60))[0]).toBe(`input ${"x".repeat(33)}…`);
  });

  it("has one card for a module that is called very often", () => {
    const net = payloadOf(container("Net", [["act", leaf("ReLU")]]));
    const often = draw(withFlow(net, lineOf(new Array(MAX_CALLS + 1).fill(1))), "dataflow");
    expect(byId(often, "act")?.badge).toBe(`${MAX_CALLS + 1} calls`);
    expect(links(often)).toEqual([
      ["input x", "act", "2×3"],
      ["act", "output", "2×3"]
    ]);
    expect(names(draw(withFlow(net, lineOf([1, 1])), "dataflow"))).toContain("act · call 2 of 2");
  });

  it("pools what one frame has too much of", () => {
    const net = payloadOf(
      container(
        "Net",
        Array.from({ length: 400 }, (_, i) => [`m${i}`, leaf(`C${i}`)])
      )
    );
    const many = draw(withFlow(net, lineOf(Array.from({ length: 400 }, (_, i) => i + 1))), "dataflow");
    expect(many.nodes.length).toBeLessThan(200);
    const rest = many.nodes.findIndex(node => node.id.startsWith(AFTER));
    expect(many.edges.some(edge => edge.target === rest) && many.edges.some(edge => edge.source === rest)).toBe(true);
  });
});

describe("the hierarchy of a traced model", () => {
  it("draws calls, and small cards where values are joined or change their shape", () => {
    const scene = draw(traced, "hierarchy");
    expect(names(scene)).toEqual(expect.arrayContaining(["act · call 1 of 2", "act · call 2 of 2", "cat", "view"]));
    const cat = scene.nodes.find(node => node.title === "cat");
    expect(cat).toMatchObject({ kind: "operator", isGlyph: true, index: -1 });
    expect(traced.path(cat?.owner ?? -1)).toBe("");
    expect(links(scene)).toContainEqual(["act · call 1 of 2", "cat", "2×4"]);
    expect(scene.nodes.find(node => node.title === "view")?.detail).toContain("→");
    expect(names(scene)).not.toContain("add"); // inside what is closed
  });

  it("draws modules that the forward pass did not call, without lines", () => {
    const scene = draw(traced, "hierarchy");
    const spare = scene.nodes.findIndex(node => node.id === "spare");
    expect(spare).toBeGreaterThan(0);
    expect(scene.edges.some(({ source, target }) => source === spare || target === spare)).toBe(false);
  });

  it("opens a module whose own modules were never called: what its code did, and those", () => {
    const attention = container("Attention", [["out", leaf("Linear")]]);
    const net = payloadOf(
      container("Net", [
        ["attention", attention],
        ["last", leaf("ReLU")]
      ])
    );
    const line = lineOf([1, 3]);
    line.shapes.push([2, 5]);
    line.values.shape = [0, 1, 1]; // a change, which is drawn
    const h = withFlow(net, line);
    const closed = draw(h, "hierarchy");
    expect(byId(closed, "attention")).toMatchObject({ kind: "module", opens: true });
    expect(links(closed)).toContainEqual(["attention", "last", "2×5"]);
    const open = draw(h, "hierarchy", { expanded: ["attention"] });
    expect(byId(open, "attention")).toMatchObject({ kind: "group" });
    expect(open.nodes[byId(open, "attention.out")?.parent ?? -1].id).toBe("attention");
    expect(links(open)).toEqual([
      ["input x", "relu", "2×3"],
      ["relu", "last", "2×5"],
      ["last", "output", "2×5"]
    ]);
    expect(byId(draw(h, "dataflow", { expanded: ["attention"] }), "attention")).toMatchObject({ opens: false });
  });

  it("opens a folded run at the member that is drawn", () => {
    const scene = draw(traced, "hierarchy", { expanded: ["blocks", "blocks.0"] });
    expect(byId(scene, "blocks.0")).toMatchObject({ kind: "group", badge: "×3" });
    expect(byId(scene, "blocks.1")).toBeUndefined();
    const add = scene.nodes.find(node => node.title === "+");
    expect(scene.nodes[add?.parent ?? -1].id).toBe("blocks.0");
  });

  it("shows a part of what one frame has too much of, and pills for the rest", () => {
    const count = 30;
    const net = payloadOf(
      container(
        "Net",
        Array.from({ length: count }, (_, i) => [`m${i}`, leaf(`C${i}`)])
      )
    );
    const h = withFlow(net, lineOf(Array.from({ length: count }, (_, i) => i + 1)));
    const pages = new Map([[0, 10]]);
    const options = { level: "hierarchy", pages, window: 12 } as const;
    const scene = buildFlowScene(h, dataflowOf(h) as Dataflow, new GraphStore(), measurer(), options) as Scene;
    expect(names(scene)).toEqual(expect.arrayContaining(["⋯ 10 before", "m10", "m21", "⋯ 8 more"]));
    expect(names(scene)).not.toContain("m22");
    expect(links(scene)).toContainEqual(["⋯ 10 before", "m10", "2×3"]);
    expect(links(scene)).toContainEqual(["m21", "⋯ 8 more", "2×3"]);
  });
});

describe("FLOPs", () => {
  it("stand on the cards of modules where that is asked for", () => {
    const card = (withFlops: boolean) => byId(draw(traced, "hierarchy", { withFlops }), "left");
    expect(card(false)?.detail).not.toContain("FLOPs");
    expect(card(true)?.detail).toMatch(/· \d+ FLOPs$/);
  });
});

describe("stretches of operators", () => {
  /** A model's own code: some operators between two modules. */
  const between = (count: number, ...operators: string[]) => {
    const line = lineOf([1, ...new Array<number>(count).fill(0), 2]);
    line.names = ["aten::relu", ...operators.map(name => `aten::${name}`)];
    operators.forEach((_, at) => (line.steps.name[at + 1] = at + 1));
    const last = count + 1;
    line.calls = { node: [0, 1, 2], parent: [-1, 0, 0], inputs: [[0], [0], [last]], outputs: [[last + 1], [1], [last + 1]] }; // prettier-ignore
    line.steps.call = line.steps.call.map((_, step) => (step === 0 ? 1 : step === last ? 2 : 0));
    return withFlow(payloadOf(container("Net", [["a", leaf("A")], ["b", leaf("B")]])), line); // prettier-ignore
  };

  it("of few are drawn one by one", () => {
    expect(names(draw(between(4), "dataflow"))).toEqual([
      "input x",
      "a",
      "relu",
      "relu",
      "relu",
      "relu",
      "b",
      "output"
    ]);
  });

  it("of more than four are one card, which opens", () => {
    const h = between(5);
    const closed = draw(h, "dataflow");
    const card = closed.nodes.find(node => node.kind === "operator");
    expect(names(closed)).toEqual(["input x", "a", "relu ×5", "b", "output"]);
    expect(card).toMatchObject({ opens: true, isGlyph: true, steps: [1, 2, 3, 4, 5] });
    expect(links(closed)).toContainEqual(["a", "relu ×5", "2×3"]);
    expect(links(closed)).toContainEqual(["relu ×5", "b", "2×3"]);
    const open = draw(h, "dataflow", { stretches: new Set(["1:5"]) });
    const frame = open.nodes.findIndex(node => node.id === card?.id);
    expect(open.nodes[frame]).toMatchObject({ kind: "group", isGlyph: false });
    expect(open.nodes.filter(node => node.parent === frame)).toHaveLength(5);
    expect(new Set(open.nodes.map(({ id }) => id)).size).toBe(open.nodes.length);
    expect(open.nodes[frame].id).toBe(card?.id);
    expect(open.edges.some(({ source, target }) => source === frame || target === frame)).toBe(false);
  });

  it("that change nothing are not drawn in the hierarchy", () => {
    const copies = ["clone", "_to_copy", "contiguous", "clone"];
    expect(names(draw(between(4, ...copies), "hierarchy"))).toEqual(["input x", "a", "b", "output"]);
    const looks = between(2, "view", "expand");
    looks.payload.flow?.steps.view.push(1, 2);
    expect(names(draw(looks, "hierarchy"))).toEqual(["input x", "a", "b", "output"]);
  });

  it("that compute or turn values are drawn there, though the shape stays", () => {
    for (const name of ["relu", "gelu", "_softmax", "flip", "mul"]) {
      expect(names(draw(between(1, name), "hierarchy"))).toHaveLength(5);
    }
    const turned = between(2, "view", "transpose"); // of a square
    turned.payload.flow?.steps.view.push(1, 2);
    expect(names(draw(turned, "hierarchy"))).toEqual(["input x", "a", "view, transpose", "b", "output"]);
  });

  it("name the functions among many operators, and count the others", () => {
    const title = (...operators: string[]) => names(draw(between(operators.length, ...operators), "hierarchy"))[2];
    expect(title("relu", "max_pool2d_with_indices", "clone")).toBe("relu, max_pool2d, +1");
    expect(title("_log_softmax", "clone", "nll_loss_forward")).toBe("cross_entropy");
    expect(title("mul", "add", "clone")).toBe("mul, add, +1");
    expect(title("_log_softmax", "relu")).toBe("log_softmax, relu");
    expect(title("empty_like", "bernoulli_", "div_", "mul")).not.toBe("dropout"); // of nothing else
    expect(title("relu", "_log_softmax", "nll_loss_forward", "add", "tanh")).toBe("relu, cross_entropy, +1");
  });
});

describe("operators", () => {
  it("are cards, those of a module with one of them in place of it", () => {
    const scene = draw(traced, "operators", { expanded: ["blocks", "blocks.0"] });
    expect(byId(scene, "left")).toMatchObject({
      kind: "operator",
      title: "left",
      subtitle: "addmm",
      detail: "weight, bias"
    });
    expect(byId(scene, "blocks.0.conv")).toMatchObject({ kind: "operator", subtitle: "convolution", opens: false });
    expect(names(scene)).toEqual(expect.arrayContaining(["cat", "view", "add"]));
    expect(names(scene)).not.toContain("t");
    const add = scene.nodes.find(node => node.title === "add");
    expect(scene.nodes[add?.parent ?? -1].id).toBe("blocks.0");
    expect(traced.path(add?.owner ?? -1)).toBe("blocks.0");
  });

  it("stay inside closed containers", () => {
    const scene = draw(traced, "operators");
    expect(byId(scene, "blocks")).toMatchObject({ kind: "module", detail: "9 operators" });
    expect(names(scene)).not.toContain("add");
  });

  const longLeaf = (count: number) => {
    const line = lineOf(new Array(count).fill(1));
    line.calls = { node: [0, 1], parent: [-1, 0], inputs: [[0], [0]], outputs: [[count], [count]] };
    line.steps.call = line.steps.call.map(() => 1);
    return withFlow(payloadOf(container("Net", [["rnn", leaf("LSTM")]])), line);
  };

  it("stand in a frame where one module has several", () => {
    const scene = draw(longLeaf(3), "operators");
    expect(byId(scene, "rnn")).toMatchObject({ kind: "group", detail: "3 operators", opens: false });
    expect(scene.capped).toBe(false);
  });

  it("of one module are not drawn by the hundred, unless it is the focus", () => {
    const scene = draw(longLeaf(150), "operators");
    expect(byId(scene, "rnn")?.kind).toBe("module");
    expect(scene.capped).toBe(true);
    const asked = draw(longLeaf(150), "operators", { focus: 1 });
    expect(asked.nodes.length).toBe(103); // a page of them between input and output
    expect(asked.nodes.some(({ title }) => title === "⋯ 50 more")).toBe(true);
  });
});

describe("the picture of a data flow", () => {
  const laid = (scene: Scene) =>
    positionScene(
      scene,
      new Layouter().run({ sizes: scene.nodes.map(node => node.size), groups: scene.groups, room: [1000, 700] })
    );

  it("leads edges that pass a frame's border around the cards inside", () => {
    const scene = draw(traced, "dataflow", { expanded: ["blocks", "blocks.0"] });
    const { boxes, routes } = laid(scene);
    const inside = scene.nodes.findIndex(node => node.id === "blocks.0");
    const [conv, act, add] = ["conv", "act", "add"].map(name =>
      scene.nodes.findIndex(node => shownAs(node) === name && node.parent === inside)
    );
    const view = scene.nodes.findIndex(node => node.title === "view");
    const skip = routes.find(({ edge }) => edge.source === view && edge.target === add);
    expect(skip).toBeDefined();
    expect([conv, act, add].every(place => place > inside)).toBe(true);
    for (const place of [conv, act]) {
      expect(skip?.points.slice(1).some((to, i) => crosses(skip.points[i], to, boxes[place]))).toBe(false);
    }
  });

  it("has room for shapes on edges between neighbours", () => {
    const scene = draw(traced, "dataflow");
    const { boxes, routes } = laid(scene);
    const labelled = routes.filter(route => route.label !== undefined);
    expect(labelled.length).toBeGreaterThan(8);
    for (const { label } of labelled) {
      expect(
        boxes.some(([x, y, w, h]) => label && label[0] > x && label[0] < x + w && label[1] > y && label[1] < y + h)
      ).toBe(false);
    }
  });
});

/** Whether a line passes through a box, seen at 200 points. */
function crosses([x0, y0]: readonly [number, number], [x1, y1]: readonly [number, number], [x, y, w, h]: Box): boolean {
  return Array.from({ length: 201 }, (_, i) => i / 200).some(share => {
    const [px, py] = [x0 + (x1 - x0) * share, y0 + (y1 - y0) * share];
    return px > x && px < x + w && py > y && py < y + h;
  });
}
