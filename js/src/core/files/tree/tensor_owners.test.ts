import { describe, expect, it } from "vitest";
import { ownersOf } from "./tensor_owners";
import type { FileContents, TensorRecord } from "../bytes/records";

function tensor(name: string, role: TensorRecord["role"] = null): TensorRecord {
  return { name, shape: [2, 3], dtype: "float32", nbytes: 24, offset: null, file: "", strides: null, role };
}

/** `reads`: modules, and the tensors that operators read in them, in turn. */
function owned(tensors: TensorRecord[], reads: [string, string][] = [], modules: string[] = []): string[] {
  const operators = reads.map(([module, names], at) => {
    return { name: `op ${at}`, op: "Add", module, inputs: names.split(" "), outputs: [], attributes: {}, source: "" };
  });
  const contents: FileContents = {
    format: "test",
    title: "",
    metadata: {},
    tensors,
    modules: modules.map(path => ({ path, className: "", settings: {} })),
    graph: { operators, inputs: [], outputs: [], values: new Map() },
    classes: [],
    warnings: []
  };
  return ownersOf(contents).map(({ path, name }) => `${path} | ${name}`);
}

// as tests/files/test_owners.py has them
describe("the module of a tensor", () => {
  it("is the only one that reads it, where its name has no path", () => {
    const names = ["onnx::Conv_1", "both", "unread", "roots", "b.weight"];
    const reads: [string, string][] = [
      ["a.c", "onnx::Conv_1 both"],
      ["b", "both b.weight"],
      ["", "roots"],
      ["a.c", "onnx::Conv_1 roots"]
    ];
    const found = owned(
      names.map(name => tensor(name)),
      reads
    );
    expect(found).toEqual(["a.c | onnx::Conv_1", " | both", " | unread", " | roots", "b | weight"]);
  });

  it("is that of its path, wherever it is read", () => {
    expect(owned([tensor("a.weight"), tensor(".odd")], [["b", "a.weight"]])).toEqual(["a | weight", " | .odd"]);
  });

  it.each([
    ["parameter", ""],
    ["buffer", ""],
    ["constant", "inner"],
    [null, "inner"]
  ] as const)("is the root where that is told: %s", (role, path) => {
    expect(owned([tensor("scale", role)], [["inner", "scale"]])).toEqual([`${path} | scale`]);
  });

  it("is that of a constant's path, if there is one", () => {
    const constants = ["a.in", "a.b.in", "/x.0/out", "q.alone", "w.one", "d.e.in", "ab.in"];
    const tensors = [...constants.map(name => tensor(name, "constant")), tensor("a.b.c.weight")];
    const reads: [string, string][] = [
      ["m", "/x.0/out a.in"],
      ["d.e.still", ""]
    ];
    expect(owned(tensors, reads, ["w", "a-", "abc"])).toEqual([
      "a.b.c | weight",
      "a | in",
      "a.b | in",
      "m | /x.0/out",
      " | q.alone",
      "w | one",
      "d.e | in",
      " | ab.in"
    ]);
  });

  it("has no other tensor of the name", () => {
    const tensors = [tensor("weight"), tensor("a.weight")];
    expect(owned(tensors, [["a", "weight a.weight"]])).toEqual([" | weight", "a | weight"]);
  });
});
