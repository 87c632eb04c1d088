import { describe, expect, it } from "vitest";
import { golden } from "../../../testing/payloads";
import { savedPlan } from "../../../testing/saved";
import { FileProblem, MAX_FILE_SIZE, problemMessage, UNTRANSLATED } from "./file_problem";
import { readPlan, readSavedFile } from "./saved_file";

const text = (value: unknown) => JSON.stringify(value);

/** The sentence for a file that is not shown. */
function problem(file: string): string {
  try {
    readSavedFile(file);
  } catch (error) {
    expect(error).toBeInstanceOf(FileProblem);
    return problemMessage(error as FileProblem, UNTRANSLATED);
  }
  return "";
}

describe("a saved file", () => {
  it("is a graph", () => {
    const file = readSavedFile(text(golden("wide")));
    expect(file.kind === "graph" && file.payload.kind).toBe("model");
  });

  it("is a plan", () => {
    const file = readSavedFile(text(savedPlan()));
    expect(file.kind === "plan" && file.plan.axes.map(axis => axis.name)).toEqual(["conv1.weight[0]", "fc.weight[0]"]);
  });

  it("may begin with a byte order mark", () => {
    expect(readSavedFile(`\ufeff${text(savedPlan())}`).kind).toBe("plan");
  });
});

describe("a file that is not shown", () => {
  it.each([
    ["", "This file is empty."],
    [" \n", "This file is empty."],
    [text(savedPlan()).slice(0, 100), "This file is incomplete. Save or copy it again."],
    ['{"a": "b', "This file is incomplete. Save or copy it again."],
    ["[1, 2,]", "This file is not JSON. Save the graph or the plan again."],
    ["<script>1</script>", "This file is not JSON. Save the graph or the plan again."],
    ["NaN", "This file is not JSON. Save the graph or the plan again."],
    ["3", "This file is neither a graph nor a plan. Save one with graph.export(path) or plan.save(path)."],
    ["null", "This file is neither a graph nor a plan. Save one with graph.export(path) or plan.save(path)."],
    ['{"cells": []}', "This file is neither a graph nor a plan. Save one with graph.export(path) or plan.save(path)."],
    [
      text({ ...savedPlan(), version: 2 }),
      "This file was saved by another version of modulekg-widgets. Save it again with this one."
    ],
    [
      text({ ...golden("wide"), schema_version: 1 }),
      "This file was saved by another version of modulekg-widgets. Save it again with this one."
    ],
    [text({ ...golden("wide"), nodes: {} }), "This file is damaged (nodes). Save the graph or the plan again."],
    [
      text({ ...golden("wide"), edges: [[0, 9e9, ""]] }),
      "This file is damaged (edges). Save the graph or the plan again."
    ],
    ["[".repeat(100_000), "This file is not opened: its lists are nested too deep."],
    [`{"a":${"[".repeat(65)}${"]".repeat(65)}}`, "This file is not opened: its lists are nested too deep."],
    [`[${"[],".repeat(2_000_000)}[]]`, "This file is not opened: it has more than 2 million lists and objects."]
  ])("says why (%#)", (file, expected) => {
    expect(problem(file)).toBe(expected);
  });

  it("is too large", () => {
    expect(problem(" ".repeat(MAX_FILE_SIZE) + "1")).toBe("This file is not opened: it is larger than 64 MB.");
  });

  it("does not count brackets in texts", () => {
    const plan = savedPlan();
    plan.axes[0].name = `${"[{".repeat(200)}\\"`;
    expect(problem(text(plan))).toBe("");
  });

  it("never has the file's own text in its sentence", () => {
    expect(problem('{"format": "modulekg-plan", "<img>": }')).not.toContain("<img>");
  });
});

describe("a plan with a million entries", () => {
  it("is looked through without an object made for each", () => {
    const plan = savedPlan();
    const { axes, changes } = readPlan(plan);
    expect([axes, changes]).toEqual([plan.axes, plan.changes]);
    expect(axes).toBe(plan.axes);
    expect(changes).toBe(plan.changes);
  });

  it("is not looked through where only their number is shown", () => {
    let reads = 0;
    const get = (list: number[], key: string | symbol) => {
      if (key !== "length") reads += 1;
      return Reflect.get(list, key) as unknown;
    };
    const tensors = new Proxy(Array<number>(1_000_000).fill(0), { get });
    expect(readPlan({ ...savedPlan(), tensors }).tensors).toBe(1_000_000);
    expect(reads).toBe(0);
  });
});

describe("a damaged plan", () => {
  const damaged = (change: (plan: ReturnType<typeof savedPlan>) => void) => {
    const plan = savedPlan();
    change(plan);
    return problem(text(plan));
  };

  it.each<[string, (plan: ReturnType<typeof savedPlan>) => void]>([
    ["dropped", plan => (plan.axes[0].dropped = [1, 1])],
    ["dropped", plan => (plan.axes[0].dropped = [2, 1])],
    ["dropped", plan => (plan.axes[0].dropped = [-1])],
    ["dropped", plan => (plan.axes[0].dropped = [99])],
    ["dropped", plan => (plan.axes[0].dropped = [0.5])],
    ["axes", plan => (plan.axes[0].size = -1 * 2 ** 50)],
    ["axes", plan => (plan.axes[0].name = "x".repeat(10_001))],
    ["axes", plan => Object.assign(plan, { axes: {} })],
    ["axes", plan => Object.assign(plan.axes[0], { members: "conv" })],
    ["params", plan => (plan.params = [1])],
    ["flops", plan => (plan.flops = [1, -1])],
    ["changes", plan => Object.assign(plan.changes[0], { what: 3 })],
    ["attributes", plan => Object.assign(plan, { attributes: { "conv1.groups": [1] } })],
    ["attributes", plan => Object.assign(plan, { attributes: { "conv1.groups": [1, "2"] } })],
    ["tensors", plan => Object.assign(plan, { tensors: 3 })]
  ])("names the part that is wrong: %s", (part, change) => {
    expect(damaged(change)).toBe(`This file is damaged (${part}). Save the graph or the plan again.`);
  });
});
