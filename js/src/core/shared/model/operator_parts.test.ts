import { describe, expect, it } from "vitest";
import { container, leaf, lineOf, payloadOf } from "../../../testing/payloads";
import { measurer } from "../base/canvas";
import { Dataflow, dataflowOf } from "./dataflow";
import { GraphStore } from "./graph_store";
import { Hierarchy } from "./hierarchy";
import { buildFlowScene } from "../../graph/flow/flow_scene";
import { describeGroup } from "./operator_groups";
import { visibleSteps, groupKey, partsOf } from "./operator_parts";

/** One step after the other, as "name line". */
function flowOf(program: readonly string[]) {
  const flow = lineOf(program.map(() => 0));
  const parts = program.map(one => one.split(" "));
  flow.names = parts.map(([name]) => `aten::${name}`);
  flow.steps.name = parts.map((_, at) => at);
  flow.sources = [...new Set(parts.map(([, line]) => `net.py:${line}`))];
  flow.steps.source = parts.map(([, line]) => flow.sources.indexOf(`net.py:${line}`));
  flow.calls = { node: [0], parent: [-1], inputs: [[0]], outputs: [[program.length]] };
  flow.steps.call = parts.map(() => 0);
  return flow;
}

const all = (count: number) => [...Array(count).keys()];
const LOOP = Array.from({ length: 5 }, () => ["relu 3", "mul 3", "roll 4"]).flat();
const PROGRAM = ["pad 1", "tanh 2", ...LOOP, "sigmoid 6", "cat 7"];

function partsIn(program: readonly string[]) {
  const flow = new Dataflow(flowOf(program));
  const steps = all(program.length);
  return partsOf(flow, { steps, ...describeGroup(flow, steps) });
}

describe("the parts of a group of operators", () => {
  it("are lines of code, each once, with how often it ran", () => {
    const lines = partsIn(PROGRAM).map(({ line, times, steps }) => [line, times, steps.length]);
    expect(lines).toEqual([
      ["net.py:1", 1, 1],
      ["net.py:2", 1, 1],
      ["net.py:3", 5, 10],
      ["net.py:4", 5, 5],
      ["net.py:6", 1, 1],
      ["net.py:7", 1, 1]
    ]);
  });

  it("are the operators of one run where a line always does the same", () => {
    const line = partsIn(PROGRAM)[2];
    expect(visibleSteps(line)).toEqual([2, 3]);
    expect(partsOf(new Dataflow(flowOf(PROGRAM)), line).map(({ steps }) => steps)).toEqual([[2], [3]]);
    const comprehension = partsIn(["tanh 1", ...Array.from({ length: 6 }, () => ["exp 2", "log 2"]).flat()]);
    expect(comprehension.map(({ times, period }) => [times, period])).toEqual([[1, undefined], [6, 2]]); // prettier-ignore
  });

  it("are patterns before lines", () => {
    const loss = ["log_softmax 1", "clone 2", "contiguous 3", "nll_loss_forward 4"];
    const many = Array.from({ length: 12 }, (_, at) => `tanh ${10 + at}`);
    const [first, ...rest] = partsIn([...loss, ...many]);
    expect(first).toMatchObject({ steps: [0, 1, 2, 3] });
    expect(rest).toHaveLength(12);
  });

  it("are few operators each by itself", () => {
    expect(partsIn(["relu 1", "tanh 1", "exp 1"]).map(({ steps }) => steps)).toEqual([[0], [1], [2]]);
  });
});

describe("an open group of operators", () => {
  const flow = flowOf([...PROGRAM, "addmm 8"]); // the last one in a module
  const last = PROGRAM.length;
  flow.calls = { node: [0, 1], parent: [-1, 0], inputs: [[0], [last]], outputs: [[last + 1], [last + 1]] };
  flow.steps.call[last] = 1;
  const h = new Hierarchy({ ...payloadOf(container("Net", [["a", leaf("A")]])), traced: true, flow });
  const key = groupKey({ steps: all(PROGRAM.length) });
  const draw = (...open: string[]) => {
    const store = new GraphStore({ stretches: new Set(open) });
    const options = { level: "hierarchy", pages: new Map<number, number>() } as const;
    const scene = buildFlowScene(h, dataflowOf(h) as Dataflow, store, measurer(), options);
    if (!scene) throw new Error("nothing was drawn");
    const title = (place: number) => scene.nodes[place].title;
    return { ...scene, links: scene.edges.map(({ source, target }) => `${title(source)} → ${title(target)}`) };
  };

  it("says when closed what it computes and how many others there are", () => {
    const card = draw().nodes.find(({ kind }) => kind === "operator");
    expect(card).toMatchObject({ title: "relu, sigmoid, +13", opens: true, detail: "net.py" });
  });

  it("has a graph of its lines, in which nothing leads back", () => {
    const scene = draw(key);
    const frame = scene.nodes.findIndex(({ kind }) => kind === "group");
    const inside = scene.nodes.filter(({ parent }) => parent === frame);
    expect(inside.map(({ title, detail }) => [title, detail])).toEqual([
      ["pad", ""],
      ["tanh", ""],
      ["relu, mul", "net.py:3 ×5"],
      ["roll ×5", "net.py:4 ×5"],
      ["sigmoid", ""],
      ["cat", ""]
    ]);
    expect(scene.links.slice(0, -1)).toEqual([
      "input x → pad",
      "pad → tanh",
      "tanh → relu, mul",
      "relu, mul → roll ×5",
      "roll ×5 → sigmoid",
      "sigmoid → cat",
      "cat → a"
    ]);
  });

  it("opens its lines in turn, of which the first run stands for all", () => {
    const scene = draw(key, "2:10");
    expect(scene.links).toEqual(expect.arrayContaining(["tanh → relu", "relu → mul", "mul → roll ×5"]));
    expect(scene.links).not.toContain("roll ×5 → relu");
  });
});
