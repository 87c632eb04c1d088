import { describe, expect, it } from "vitest";
import { Dataflow } from "../../shared/model/dataflow";
import { Hierarchy } from "../../shared/model/hierarchy";
import { type ModelPayload, readPayload } from "../../shared/payload/payload";
import { matches } from "../../shared/search/search";
import { digestOf, operatorName } from "./structures";
import { filePayload } from "./payload";
import type { FileContents, ModulePart, OperatorRecord, TensorRecord } from "../bytes/records";

function tensor(name: string, shape: readonly number[] = [1], more: Partial<TensorRecord> = {}): TensorRecord {
  const nbytes = shape.reduce((product, size) => product * size, 4);
  return { name, shape, dtype: "float32", nbytes, offset: null, file: "", strides: null, role: null, ...more };
}

function contents(tensors: readonly TensorRecord[], more: Partial<FileContents> = {}): FileContents {
  return {
    format: "test",
    title: "",
    metadata: {},
    tensors,
    modules: [],
    graph: null,
    classes: [],
    warnings: [],
    ...more
  };
}

/** The payload, read as the page reads any. */
function shown(tensors: readonly TensorRecord[], more: Partial<FileContents> = {}): ModelPayload {
  return readPayload(JSON.parse(JSON.stringify(filePayload(contents(tensors, more), "model.test"))));
}

const paths = (h: Hierarchy) => Array.from({ length: h.size }, (_, node) => h.path(node));

function kindOf(...tensors: TensorRecord[]): string {
  const h = new Hierarchy(shown(tensors));
  return h.className(h.find("m") ?? 0);
}

describe("the tree of a file", () => {
  it("has the modules of the names of tensors, numbered ones in the order of their numbers", () => {
    const names = ["layers.10.w", "layers.2.w", "layers.1.w", "head", "b.10.w", "b.x.w", "b.2.w"];
    const h = new Hierarchy(shown(names.map(name => tensor(name))));
    expect(paths(h)).toEqual(["", "layers", "layers.1", "layers.2", "layers.10", "b", "b.10", "b.x", "b.2"]);
    expect(h.tensors(0).map(([name]) => name)).toEqual(["head"]);
  });

  it("has the order of the modules that the file lists, and the classes that it tells", () => {
    const modules: ModulePart[] = [
      { path: "", className: "net.Net", settings: {} },
      { path: "last", className: "torch.nn.modules.linear.Linear", settings: { in_features: 2, bias: null } },
      { path: "first", className: "", settings: {} }
    ];
    const h = new Hierarchy(shown([tensor("first.weight", [2, 2]), tensor("last.weight", [2, 2])], { modules }));
    expect(paths(h)).toEqual(["", "last", "first"]);
    expect([h.className(1), h.qualifiedName(1)]).toEqual(["Linear", "torch.nn.modules.linear.Linear"]);
    expect(h.hyper(1)).toEqual([
      ["in_features", 2],
      ["bias", "None"]
    ]);
    expect(h.className(2)).toBe("matrix");
    expect([h.className(0), h.qualifiedName(0)]).toEqual(["Net", "net.Net"]);
  });

  it("is called by its title, and else by the file's name", () => {
    expect(shown([], { title: "GPT2" }).title).toBe("GPT2");
    expect(new Hierarchy(shown([])).className(0)).toBe("model.test");
  });

  it("says in plain words what a module is whose class is not told", () => {
    for (const [dims, kind] of ["tensors", "norm", "matrix", "convolution 1d", "convolution 2d"].entries()) {
      expect(kindOf(tensor("m.weight", new Array<number>(dims).fill(2)))).toBe(kind);
    }
    expect(kindOf(tensor("m.weight", [1, 2, 3, 4, 5]))).toBe("convolution 3d");
    expect(kindOf(tensor("m.weight"), tensor("m.running_mean"))).toBe("batch norm");
    expect(kindOf(tensor("m.weight_ih_l0", [1, 1]))).toBe("recurrent");
    expect(kindOf(tensor("m.in_proj_weight", [1, 1]))).toBe("attention");
    expect(kindOf(tensor("m.bias"))).toBe("tensors");
    expect(kindOf(tensor("m.inside.weight"))).toBe("module");
  });

  it("calls a module that nothing else tells of by what runs in it, and folds none that do something else", () => {
    const ops = ["onnx::Relu", "Sigmoid", "Tanh", "aten.erf.default", "Add", "Mul"];
    const places = ["a.0", "a.1", "a.2", "a.3", "a.3", "a.3"];
    const operators = ops.map((op, at): OperatorRecord => ({
      name: `op${at}`,
      op,
      module: places[at],
      inputs: [`v${at}`],
      outputs: [`v${at + 1}`],
      attributes: {},
      source: ""
    }));
    const graph = { operators, inputs: ["v0"], outputs: ["v6"], values: new Map() };
    const h = new Hierarchy(shown([], { graph }));
    expect(["a", "a.0", "a.1", "a.2", "a.3"].map(path => h.className(h.find(path) ?? 0))).toEqual([
      "module",
      "Relu",
      "Sigmoid",
      "Tanh",
      "erf, Add, +1"
    ]);
    expect(h.payload.folds).toEqual([]);
  });

  it("counts parameters and bytes, of buffers the bytes alone", () => {
    const h = new Hierarchy(
      shown([
        tensor("a.weight", [2, 3]),
        tensor("a.running_mean", [5]),
        tensor("a.b.ids", [7], { dtype: "int64", nbytes: 56 }),
        tensor("a.b.fixed", [3], { role: "constant" }),
        tensor("a.b.mask", [4], { dtype: "bool", nbytes: 4, role: "parameter" }),
        tensor("none", [0, 1e200, 1e200], { nbytes: 0 })
      ])
    );
    expect(h.column("params")).toEqual([10, 10, 4]);
    expect(h.column("own_params")).toEqual([0, 6, 4]);
    expect(h.column("bytes")).toEqual([24 + 20 + 56 + 12 + 4, 24 + 20 + 56 + 12 + 4, 56 + 12 + 4]);
    expect(h.tensors(2).map(([name, role]) => `${name} ${role}`)).toEqual([
      "ids buffer",
      "mask parameter",
      "fixed buffer"
    ]);
  });

  it("keeps the type, the bytes and the name in the file of every tensor, and what the file says of itself", () => {
    const { file } = shown([tensor("b.x", [2], { dtype: "Q4_K", nbytes: 9 }), tensor("a", [3])], {
      metadata: { license: "mit", n: 3 },
      classes: ["os.system"],
      warnings: ["runs code"]
    });
    expect(file?.tensors).toEqual({ node: [0, 1], name: ["a", "b.x"], dtype: [0, 1], bytes: [12, 9] });
    expect(file?.dtypes).toEqual(["float32", "Q4_K"]);
    expect(file?.metadata).toEqual([
      ["license", "mit"],
      ["n", 3]
    ]);
    expect([file?.classes, file?.warnings, file?.format]).toEqual([["os.system"], ["runs code"], "test"]);
  });
});

describe("a tensor under several names", () => {
  const at = (name: string, offset: number) => tensor(name, [4], { offset });

  it("counts once wherever all its names are, and stands apart", () => {
    const tied = [at("emb.weight", 64), at("x.0.w", 0), at("x.1.w", 16), at("x.1.again", 16), at("x.2.w", 32)];
    const h = new Hierarchy(shown([...tied, at("head.0.w", 64), at("head.1.w", 80)]));
    const of = (column: string, path: string) => h.column(column)?.[h.find(path) ?? -1];
    expect(["", "emb", "x", "x.1", "head", "head.0"].map(path => of("params", path))).toEqual([20, 4, 12, 4, 8, 4]);
    expect(["", "x.1"].map(path => of("own_params", path))).toEqual([0, 4]);
    expect(of("bytes", "")).toBe(5 * 16);
    expect(h.payload.tied.map(([a, one, b, other]) => [h.path(a), one, h.path(b), other])).toEqual([
      ["emb", "weight", "head.0", "w"],
      ["x.1", "w", "x.1", "again"]
    ]);
    expect(h.payload.folds).toEqual([]);
  });

  it("is none where the bytes are read otherwise, or are none", () => {
    const others = [
      at("a.w", 0),
      tensor("b.w", [2, 2], { offset: 0 }),
      tensor("c.w", [4], { offset: 0, file: "other" })
    ];
    const empty = [tensor("d.w", [0], { offset: 9 }), tensor("e.w", [0], { offset: 9 }), tensor("f.w"), tensor("g.w")];
    expect(shown([...others, ...empty]).tied).toEqual([]);
  });

  it("may be deep", () => {
    const path = new Array<string>(2000).fill("a").join(".");
    const ties = Array.from({ length: 100 }, (_, i) => [at(`${path}.w${i}`, i * 16), at(`b.w${i}`, i * 16)]).flat();
    const h = new Hierarchy(shown(ties));
    expect(h.column("bytes")?.[0]).toBe(1600);
    expect(h.column("bytes")?.[1]).toBe(1600);
  });
});

describe("folding", () => {
  const layer = (i: number, size = 8, dtype = "float32") => [
    tensor(`layers.${i}.attn.q.weight`, [size, size], { dtype }),
    tensor(`layers.${i}.attn.k.weight`, [size, size], { dtype }),
    tensor(`layers.${i}.norm.weight`, [size], { dtype })
  ];
  const layers = (...all: TensorRecord[][]) => new Hierarchy(shown(all.flat()));
  const folds = (h: Hierarchy) =>
    h.payload.folds.map(([first, count, kind, label]) => [h.path(first), count, kind, label]);

  it("makes one of layers that are the same", () => {
    const h = layers(...Array.from({ length: 80 }, (_, i) => layer(i)));
    expect(folds(h)).toEqual([["layers.0", 80, "exact", "identical structure, separate weights"]]);
    expect(h.digest(h.find("layers.0") ?? 0)).toBe(h.digest(h.find("layers.79") ?? 0));
  });

  it("makes a family of those that differ in sizes, and says in which", () => {
    const h = layers(layer(0, 8), layer(1, 16), layer(2, 16));
    expect(folds(h)).toEqual([["layers.0", 3, "family", "weight 8, 16"]]);
    const other = layers(layer(0), layer(1, 8, "float16"));
    expect(folds(other)).toEqual([["layers.0", 2, "family", "weight float32, float16"]]);
  });

  it("names the setting that differs, one that comes in first", () => {
    const made = (path: string, width: number) => ({
      path,
      className: "nn.Linear",
      settings: { out_features: width, in_features: width * 2 }
    });
    const modules = [made("x.a", 1), made("x.b", 2), made("x.c", 4)];
    expect(folds(new Hierarchy(shown([], { modules })))).toEqual([["x.a", 3, "family", "in_features 2…8"]]);
  });

  it("leaves a few stages of the root apart, but not many", () => {
    const stages = (count: number) => Array.from({ length: count }, (_, i) => tensor(`layer${i}.weight`, [i + 1, 2]));
    expect(shown(stages(8)).folds).toEqual([]);
    expect(shown(stages(9)).folds).toHaveLength(1);
  });

  it("keeps apart what only names tell apart, and what a name or a tensor more tells apart", () => {
    expect(shown([tensor("a.q.weight", [2, 2]), tensor("a.k.weight", [2, 2])]).folds).toEqual([]);
    expect(shown([tensor("a.0.w"), tensor("a.1.v")]).folds.map(fold => fold[2])).toEqual(["family"]);
    expect(shown([tensor("a.0.x.w"), tensor("a.1.y.w")]).folds.map(fold => fold[2])).toEqual(["family"]);
  });

  it("tells structures of the same text alone as the same", () => {
    expect(digestOf("a")).toBe(digestOf("a"));
    expect(digestOf("a")).toMatch(/^[\da-f]{32}$/);
    const some = Array.from({ length: 20_000 }, (_, i) => digestOf(`{"${i}":[${i * 7}]}`));
    for (const half of [0, 16]) expect(new Set(some.map(digest => digest.slice(half, half + 16))).size).toBe(20_000);
  });
});

describe("the graph of a file", () => {
  const op = (name: string, module: string, inputs: string[], outputs: string[]): OperatorRecord => ({
    name,
    op: name,
    module,
    inputs,
    outputs,
    attributes: {},
    source: name === "Conv" ? "net.py:3" : ""
  });
  const graph = {
    operators: [
      op("Conv", "body.0", ["x", "body.0.weight", ""], ["y"]),
      op("Relu", "body.0", ["y"], ["z"]),
      op("Relu", "body.1", ["z"], ["u"]),
      op("Add", "", ["u", "x"], ["v", ""]),
      op("Relu", "body.1", ["v"], ["w"])
    ],
    inputs: ["x", "body.0.weight"], // as old files have it
    outputs: ["w"],
    values: new Map([["x", { shape: ["N", 3], dtype: "float32" }]])
  };
  const payload = shown([tensor("body.0.weight", [2, 2, 1, 1])], { graph });
  const h = new Hierarchy(payload);
  const flow = new Dataflow(payload.flow ?? neverFlow());

  it("has one call of a module for what runs in it without a break, within those around it", () => {
    const { calls } = flow.payload;
    expect(calls.node.map(node => h.path(node))).toEqual(["", "body", "body.0", "body.1", "body", "body.1"]);
    expect(calls.parent).toEqual([-1, 0, 1, 1, 0, 4]);
    expect(flow.payload.steps.call).toEqual([2, 2, 3, 0, 5]);
  });

  it("has what goes into a call and comes out of it", () => {
    const { calls } = flow.payload;
    const [x, y, z, u, v, w] = [0, 1, 2, 3, 4, 5];
    expect(calls.inputs).toEqual([[], [x], [x], [z], [v], [v]].map((list, call) => (call === 0 ? [x] : list)));
    expect(calls.outputs).toEqual([[w], [u], [z], [u], [w], [w]]);
    expect(flow.payload.values.step).toEqual([-1, 0, 1, 2, 3, 4]);
    expect(y).toBe(1);
  });

  it("reads tensors as such, and shows sizes that are not fixed or not known", () => {
    expect(flow.tensorNames(0)).toEqual(["weight"]);
    expect(flow.payload.inputs).toEqual([["x", 0]]);
    expect(flow.shape(0)).toBe("N×3");
    expect(flow.shape(1)).toBe("?");
    expect([flow.source(0), flow.source(1)]).toEqual(["net.py:3", null]);
  });

  it("draws what a hostile graph reads before it is made, or makes twice, as it stands there", () => {
    const operators = [op("A", "a", ["b", "b"], ["a"]), op("B", "a.b", ["a"], ["b", "b"]), op("C", "", ["w"], ["w"])];
    const odd = shown([tensor("w")], {
      graph: { operators, inputs: ["i", "i"], outputs: ["?", "w"], values: new Map() }
    });
    expect(odd.flow?.steps.inputs).toEqual([[1], [2], []]);
    expect(odd.traced).toBe(true);
  });

  it("is left out, with a word on it, where it has more operators than can be drawn", () => {
    const operators = Array.from({ length: 50_001 }, () => op("A", "", [], []));
    const large = shown([], { graph: { ...graph, operators } });
    expect(large.flow).toBeNull();
    expect(large.file?.warnings).toEqual([expect.stringContaining("50001 operators")]);
  });

  it("names operators as torch does", () => {
    expect(operatorName("torch.ops.aten.conv2d.default")).toBe("aten::conv2d");
    expect(operatorName("aten.add_.Tensor")).toBe("aten::add_");
    expect(operatorName("com.microsoft.FusedConv")).toBe("com.microsoft.FusedConv");
    expect(operatorName("Conv")).toBe("Conv");
  });
});

function neverFlow(): never {
  throw new Error("there is no flow");
}

describe("hostile names", () => {
  it("are data", () => {
    const names = ["__proto__", "constructor", "toString", "", "a b", "<img>", "é\u202e", "hasOwnProperty"];
    const tensors = names.flatMap(name => [tensor(`${name}.weight`, [2]), tensor(`m.${name}`, [3])]);
    const metadata = JSON.parse('{"__proto__": "x", "constructor": 1}') as Record<string, string>;
    const modules = [{ path: "__proto__", className: "__proto__", settings: metadata }];
    const h = new Hierarchy(shown(tensors, { metadata, modules }));
    const own = names.filter(name => name !== "").map(name => h.payload.nodes.name.indexOf(name, 1));
    expect(own.every(node => node > 0)).toBe(true);
    expect(h.tensors(0).map(([name]) => name)).toEqual([".weight"]); // no path: there is nothing before its dot
    expect(h.tensors(h.find("m") ?? 0).map(([name]) => name)).toEqual(names);
    expect(h.hyper(h.find("__proto__") ?? 0)).toEqual(Object.entries(metadata));
    expect(h.payload.file?.metadata).toEqual(Object.entries(metadata));
    expect(({} as Record<string, unknown>).x).toBeUndefined();
  });

  it("may have a hundred thousand parts", () => {
    const deep = new Array<string>(100_000).fill("a").join(".");
    const operators = [{ name: "A", op: "A", module: deep, inputs: [], outputs: ["o"], attributes: {}, source: "" }];
    const payload = filePayload(
      contents([tensor(`${deep}.w`), tensor(`${deep}.b.w`)], {
        graph: { operators, inputs: [], outputs: [], values: new Map() }
      }),
      "deep"
    );
    const h = new Hierarchy(readPayload(payload));
    expect(h.size).toBe(1 + 200 + 2); // the rest of each path is one name
    expect(h.column("params")?.[0]).toBe(2);
    expect(payload.flow?.calls.node.length).toBeLessThan(100);
    expect(matches(h, "zzz")).toEqual([]);
  });

  it("are refused where they are of more modules than any page shows", () => {
    const deep = new Array<string>(199).fill("a").join(".");
    const many = Array.from({ length: 3_000 }, (_, i) => tensor(`${i}.${deep}.w`));
    expect(() => filePayload(contents(many), "many")).toThrow(expect.objectContaining({ part: "modules" }));
  });

  it("may be as many as fifty thousand, at once", () => {
    const tensors = Array.from({ length: 50_000 }, (_, i) =>
      tensor(`model.layers.${i % 5000}.part${i % 10}.weight`, [4, 4])
    );
    const begin = performance.now();
    const payload = readPayload(filePayload(contents(tensors), "wide"));
    expect(performance.now() - begin).toBeLessThan(3000);
    expect(payload.folds.length).toBeGreaterThan(0);
  });
});
