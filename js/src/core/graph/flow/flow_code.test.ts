// The code of a module between those that it calls in containers: `x = x + self.blocks[i](x)`.

import { describe, expect, it } from "vitest";
import { container, leaf, lineOf, payloadOf, sequence, type Spec } from "../../../testing/payloads";
import { measurer } from "../../shared/base/canvas";
import { type Dataflow, dataflowOf } from "../../shared/model/dataflow";
import { buildFlowScene } from "./flow_scene";
import type { FlowLevel } from "../../shared/model/flow_units";
import { Hierarchy } from "../../shared/model/hierarchy";
import { GraphStore } from "../../shared/model/graph_store";
import type { Scene } from "../scene/scene";

/** One step after the other: in a call of its own of the module with this path, or "+", "+mul" of the model's code; what it reads. */
type Step = [path: string, ...inputs: number[]];
const NUMBER = -1; // among what a step reads: a number in the code, as a tensor

function draw(
  spec: Spec,
  program: readonly Step[],
  expanded: string[],
  state: Partial<Parameters<typeof start>[0]> = {}
) {
  const tree = new Hierarchy(payloadOf(spec));
  const isCode = (path: string) => path.startsWith("+");
  const node = (path: string) => (isCode(path) ? 0 : (tree.find(path) ?? -1));
  const called = program.filter(([path]) => !isCode(path));
  const flow = lineOf(program.map(([path]) => node(path)));
  flow.names = program.map(([path]) => `aten::${(isCode(path) && path.slice(1)) || "add"}`);
  flow.steps.name = program.map((_, at) => at);
  flow.calls = {
    node: [0, ...called.map(([path]) => node(path))],
    parent: [-1, ...called.map(() => 0)],
    inputs: [[0], ...called.map(([, ...inputs]) => inputs)],
    outputs: [[program.length], ...called.map(one => [program.indexOf(one) + 1])]
  };
  flow.steps.call = program.map(one => called.indexOf(one) + 1);
  const ofCode = () =>
    [flow.values.step.push(-1), flow.values.shape.push(0), flow.values.dtype.push(0), flow.values.axes.push([])][0] - 1;
  flow.steps.inputs = program.map(([, ...inputs]) => inputs.map(value => (value === NUMBER ? ofCode() : value)));
  return start({ tree, flow, expanded, ...state });
}

function start({
  tree,
  flow,
  level = "hierarchy",
  ...state
}: {
  tree: Hierarchy;
  flow: ReturnType<typeof lineOf>;
  expanded: string[];
  shown?: Map<number, number>;
  level?: FlowLevel;
}): Scene {
  const h = new Hierarchy({ ...tree.payload, traced: true, flow });
  const options = { level, pages: new Map<number, number>() };
  return buildFlowScene(h, dataflowOf(h) as Dataflow, new GraphStore(state), measurer(), options) as Scene;
}

const nameOf = ({ nodes }: Scene, place: number) => nodes[place].path ?? nodes[place].title;
const links = (scene: Scene) =>
  scene.edges.map(({ source, target }) => `${nameOf(scene, source)} → ${nameOf(scene, target)}`);
const glyphs = ({ nodes }: Scene) => nodes.filter(node => node.isGlyph).map(({ title }) => title);
const run = (count: number, cls = "Block") =>
  sequence(
    "ModuleList",
    Array.from({ length: count }, () => leaf(cls))
  );

describe("numbers in the code", () => {
  it("are counted with what alone reads them: no card stands there that nothing leads to", () => {
    const spec = container("Net", [["first", leaf("First")], ["head", leaf("Head")]]); // prettier-ignore
    const scene = draw(spec, [["first", 0], ["+", NUMBER, NUMBER], ["+", 1, 2], ["head", 3]], []); // prettier-ignore
    expect(glyphs(scene)).toEqual(["+ ×2"]);
    expect(links(scene)).toEqual(["input x → first", "first → + ×2", "+ ×2 → head", "head → output"]);
  });

  it("are no part of what is read from inputs", () => {
    const spec = container("Net", [["first", leaf("First")], ["head", leaf("Head")]]); // prettier-ignore
    const scene = draw(spec, [["first", 0], ["+", 0, NUMBER], ["+", 1, 2], ["head", 3]], []); // prettier-ignore
    expect(links(scene)).toContain("input x → +");
  });
});

describe("code between modules in a container that is not called", () => {
  const blocks = container("Net", [["blocks", run(3)], ["head", leaf("Head")]]); // prettier-ignore
  const residual: Step[] = [["blocks.0", 0], ["+", 0, 1], ["blocks.1", 2], ["+", 2, 3], ["blocks.2", 4], ["+", 4, 5], ["head", 6]]; // prettier-ignore

  it("is one card for all members of a folded run, which nothing leads back to", () => {
    const scene = draw(blocks, residual, ["blocks"]);
    expect(glyphs(scene)).toEqual(["+"]);
    expect(links(scene).sort()).toEqual(
      ["input x → blocks.0", "input x → +", "blocks.0 → +", "+ → head", "head → output"].sort()
    );
  });

  it("stands in each member where that is a container itself", () => {
    const pair = () => sequence("ModuleList", [leaf("Attention"), leaf("Mlp")]);
    const spec = container("Net", [["layers", sequence("ModuleList", [pair(), pair(), pair()])], ["head", leaf("Head")]]); // prettier-ignore
    const program = [0, 1, 2].flatMap((layer): Step[] => {
      const x = 4 * layer;
      return [
        [`layers.${layer}.0`, x],
        ["+", x, x + 1],
        [`layers.${layer}.1`, x + 2],
        ["+", x + 2, x + 3]
      ];
    });
    const scene = draw(spec, [...program, ["head", 12]], ["layers", "layers.0"]);
    const frame = scene.nodes.findIndex(({ path }) => path === "layers.0");
    expect(glyphs(scene)).toEqual(["+", "+"]);
    expect(scene.nodes.filter(node => node.isGlyph).every(({ parent }) => parent === frame)).toBe(true);
    expect(links(scene)).toContain("+ → head");
  });

  it("stands in each member that alone it reads, where the next one reads it", () => {
    const fork = () => container("ModuleDict", [["left", leaf("Left")], ["right", leaf("Right")]]); // prettier-ignore
    const spec = container("Net", [["forks", sequence("ModuleList", [fork(), fork(), fork()])], ["head", leaf("Head")]]); // prettier-ignore
    const program = [0, 1, 2].flatMap((at): Step[] => {
      const x = 3 * at;
      return [[`forks.${at}.left`, x], [`forks.${at}.right`, x], ["+", x + 1, x + 2]]; // prettier-ignore
    });
    const scene = draw(spec, [...program, ["head", 9]], ["forks", "forks.0"]);
    const frame = scene.nodes.findIndex(({ path }) => path === "forks.0");
    expect(scene.nodes.filter(node => node.isGlyph).map(({ parent }) => parent)).toEqual([frame]);
    expect(links(scene).sort()).toEqual(
      [
        "input x → forks.0.left",
        "input x → forks.0.right",
        "forks.0.left → +",
        "forks.0.right → +",
        "+ → head",
        "head → output"
      ].sort()
    );
  });

  it("is folded with two runs that take turns, and what one gives to the other is seen", () => {
    const spec = container("Net", [["attn", run(3, "Attention")], ["mlp", run(3, "Mlp")], ["head", leaf("Head")]]); // prettier-ignore
    const program = [0, 1, 2].flatMap((layer): Step[] => {
      const x = 4 * layer;
      return [
        [`attn.${layer}`, x],
        ["+", x, x + 1],
        [`mlp.${layer}`, x + 2],
        ["+", x + 2, x + 3]
      ];
    });
    for (const open of [[], ["attn", "mlp"]]) {
      const scene = draw(spec, [...program, ["head", 12]], open);
      const [attn, mlp] = open.length > 0 ? ["attn.0", "mlp.0"] : ["attn", "mlp"];
      expect(glyphs(scene)).toEqual(["+", "+"]);
      expect(links(scene)).toEqual(expect.arrayContaining([`${attn} → +`, `+ → ${mlp}`, `${mlp} → +`, "+ → head"]));
    }
  });
});

describe("code beside a folded run and members that are drawn one by one", () => {
  // for up, dec: x = dec(cat([up(x), skip])), where each skip is of a run that is folded
  const steps = (["down", "up", "dec"] as const).map(name => [name, run(3, name)] as const);
  const net = container("Net", [...steps.map(([name, of]): [string, Spec] => [name, of]), ["head", leaf("Head")]]); // prettier-ignore
  const program: Step[] = [
    ["down.0", 0], ["down.1", 1], ["down.2", 2],
    ...[0, 1, 2].flatMap((k): Step[] => [[`up.${k}`, 3 * k + 3], ["+cat", 3 * k + 4, 3 - k], [`dec.${k}`, 3 * k + 5]]),
    ["head", 12]
  ]; // prettier-ignore

  it("is a card for each of these members", () => {
    const scene = draw(net, program, ["down", "up", "dec"]);
    const joined = links(scene).filter(text => text.includes("cat"));
    expect(glyphs(scene)).toEqual(["cat", "cat", "cat"]);
    for (const k of [0, 1, 2]) expect(joined).toContain(`up.${k} → cat`);
    for (const k of [0, 1, 2]) expect(joined).toContain(`cat → dec.${k}`);
  });
});

describe("a folded run", () => {
  const spec = container("Net", [["a", leaf("A")], ["b", leaf("B")], ["blocks", sequence("ModuleList", Array.from({ length: 3 }, () => container("Block", [["inner", leaf("Inner")]])))]]); // prettier-ignore
  const program: Step[] = [["a", 0], ["b", 0], ["blocks.0.inner", 1], ["blocks.1.inner", 3, 2], ["blocks.2.inner", 4]]; // prettier-ignore

  it("gets what only members that are not drawn read, at the frame of the one that is", () => {
    expect(links(draw(spec, program, ["blocks", "blocks.0"]))).toContain("b → blocks.0");
    const tree = new Hierarchy(payloadOf(spec));
    const [first, third] = [tree.find("blocks.0"), tree.find("blocks.2")] as [number, number];
    const other = draw(spec, program, ["blocks", "blocks.2"], { shown: new Map([[first, third]]) });
    expect(links(other)).toEqual(expect.arrayContaining(["a → blocks.2", "b → blocks.2"]));
  });

  it("gets what its first member reads where that goes in the one that is drawn", () => {
    const block = () => container("Block", [["norm", leaf("Norm")]]); // prettier-ignore
    const spec = container("Net", [["a", leaf("A")], ["blocks", sequence("ModuleList", [block(), block(), block()])]]); // prettier-ignore
    const tree = new Hierarchy(payloadOf(spec));
    const at = (path: string) => tree.find(path) ?? -1;
    const members = [0, 1, 2];
    const flow = lineOf([at("a"), ...members.flatMap(k => [at(`blocks.${k}.norm`), at(`blocks.${k}`)])], "aten::add");
    flow.calls = {
      node: [0, at("a"), ...members.flatMap(k => [at(`blocks.${k}`), at(`blocks.${k}.norm`)])],
      parent: [-1, 0, ...members.flatMap(k => [0, 2 * k + 2])],
      inputs: [[0], [0], ...members.flatMap(k => [[2 * k + 1], [2 * k + 1]])],
      outputs: [[7], [1], ...members.flatMap(k => [[2 * k + 3], [2 * k + 2]])]
    };
    flow.steps.call = [1, ...members.flatMap(k => [2 * k + 3, 2 * k + 2])]; // the norm, then x + norm(x)
    flow.steps.inputs = [[0], ...members.flatMap(k => [[2 * k + 1], [2 * k + 1, 2 * k + 2]])];
    const edges = (last: number) => {
      const shown = new Map([[at("blocks.0"), at(`blocks.${last}`)]]);
      const scene = start({ tree, flow, expanded: ["blocks", `blocks.${last}`], shown });
      return links(scene).map(text => text.replaceAll(`blocks.${last}`, "block"));
    };
    const seen = ["input x → a", "a → block.norm", "a → +", "block.norm → +"];
    expect(edges(0).sort()).toEqual([...seen, "block → output"].sort());
    expect(edges(1).sort()).toEqual(edges(0).sort());
    expect(edges(2).sort()).toEqual([...seen, "+ → output"].sort());
  });

  it("is none where members give to each other in other ways, up to many", () => {
    const cells = (count: number) => {
      const net = container("Net", [["cells", run(count)]]);
      const steps = Array.from({ length: count }, (_, i): Step => [`cells.${i}`, i === 1 ? 0 : Math.max(0, i - 1)]);
      return draw(net, steps, ["cells"]).nodes.filter(({ kind }) => kind === "fold").length;
    };
    expect([cells(16), cells(40)]).toEqual([0, 1]);
  });

  it("is none where one module stands between two", () => {
    const layer = container("Net", [["attn", leaf("Attention")], ["mlp", leaf("Mlp")], ["norm1", leaf("Norm")], ["norm2", leaf("Norm")]]); // prettier-ignore
    const steps: Step[] = [["attn", 0], ["+", 0, 1], ["norm1", 2], ["mlp", 3], ["+", 3, 4], ["norm2", 5]]; // prettier-ignore
    const scene = draw(layer, steps, []);
    expect(scene.nodes.filter(({ kind }) => kind === "fold")).toEqual([]);
    expect(links(scene)).toEqual(expect.arrayContaining(["+ → norm1", "norm1 → mlp", "mlp → +", "+ → norm2"]));
    expect(glyphs(scene)).toEqual(["+", "+"]);
  });

  it("leads to the card of its code from which others read what it made", () => {
    const net = container("Net", [["b", leaf("B")], ["cells", run(3)], ["other", leaf("Other")]]); // prettier-ignore
    const steps: Step[] = [["b", 0], ["+", 0, 1], ["cells.0", 2], ["+", 1, 3], ["cells.1", 4], ["+", 1, 5], ["cells.2", 6], ["other", 6]]; // prettier-ignore
    expect(links(draw(net, steps, ["cells"]))).toEqual(
      expect.arrayContaining(["+ → cells.0", "+ → other", "cells.0 → +"])
    );
  });

  it("has no card of its code that leads nowhere", () => {
    const net = container("Net", [
      ["up", leaf("Up")],
      ["cells", run(3)]
    ]);
    const steps: Step[] = [["cells.0", 0], ["up", 1], ["+", 1, 2], ["cells.1", 3], ["up", 4], ["+", 4, 5], ["cells.2", 6]]; // prettier-ignore
    const scene = draw(net, steps, ["cells"]);
    const starts = new Set(scene.edges.map(({ source }) => source));
    expect(glyphs(scene)).toEqual(["+"]);
    expect(scene.nodes.every(({ isGlyph }, place) => !isGlyph || starts.has(place))).toBe(true);
  });
});

describe("the code behind a router", () => {
  const net = container("Net", [
    ["gate", leaf("Linear")],
    ["a", leaf("Linear")],
    ["b", leaf("Linear")]
  ]);
  const mixed: Step[] = [["a", 0], ["b", 0], ["+mul", 4, 2], ["+mul", 5, 3], ["+add", 6, 7], ["+clone", 8]]; // prettier-ignore

  it("stands by itself where it picks or weighs values", () => {
    const scene = draw(net, [["gate", 0], ["+softmax", 1], ["+topk", 2], ...mixed], []);
    expect(glyphs(scene)).toEqual(["softmax, topk", "mul, add, +1"]);
    expect(links(scene)).toEqual(
      expect.arrayContaining(["gate → softmax, topk", "softmax, topk → mul, add, +1", "a → mul, add, +1"])
    );
  });

  it("is one with the rest where it only changes values", () => {
    const scene = draw(net, [["gate", 0], ["+relu", 1], ["+tanh", 2], ...mixed], []);
    expect(glyphs(scene)).toEqual(["relu, tanh, +4"]);
  });

  it("is one with the rest of a group of very many operators", () => {
    const many: Step[] = Array.from({ length: 130 }, (_, at) => ["+add", at + 8]);
    const scene = draw(net, [["gate", 0], ["+softmax", 1], ["+topk", 2], ...mixed.slice(0, 5), ...many], []);
    expect(glyphs(scene)).toHaveLength(1);
  });
});

describe("code that reads nothing but numbers", () => {
  const net = container("Net", [
    ["a", leaf("Linear")],
    ["b", leaf("Linear")]
  ]);

  it("is one card, where other code is drawn operator by operator", () => {
    const program: Step[] = [["+arange"], ["+add", 1], ["b", 2], ["a", 0], ["+relu", 4], ["+add", 5, 3]]; // prettier-ignore
    const scene = draw(net, program, [], { level: "dataflow" });
    expect(glyphs(scene)).toEqual(["arange, add", "relu", "add"]);
  });
});

describe("the card of a module without modules", () => {
  const net = (cls: string) => container("Net", [["router", leaf(cls)]]);
  const details = (cls: string, ...names: string[]) => {
    const h = new Hierarchy(payloadOf(net(cls)));
    const flow = lineOf(names.map(() => 1));
    flow.calls = { node: [0, 1], parent: [-1, 0], inputs: [[0], [0]], outputs: [[names.length], [names.length]] };
    flow.steps.call = names.map(() => 1);
    flow.names = names.map(name => `aten::${name}`);
    flow.steps.name = names.map((_, at) => at);
    return start({ tree: h, flow, expanded: [], level: "dataflow" }).nodes.find(({ path }) => path === "router")
      ?.detail;
  };

  it("names what its code does", () => {
    expect(details("TopKRouter", "addmm", "softmax", "topk", "div")).toBe("softmax, topk, +2");
  });

  it("does not where its class says it, or where it is one operator", () => {
    expect(details("SoftmaxAdd", "softmax", "add")).toBe("");
    expect(details("MyNormalize", "linalg_vector_norm", "div")).toBe("norm, div");
    expect(details("NormDiv", "linalg_vector_norm", "div")).toBe("");
    expect(details("Act", "relu")).toBe("");
  });
});
