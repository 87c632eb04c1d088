// The payload of ModelGraph for a model file, made of the records of a reader.

import { type FileAbout, type ModelPayload, SCHEMA_VERSION, type FlowPayload } from "../../shared/payload/payload";
import { elementsOf, foldsOf, roleOf, type Structures, structuresOf, operatorName } from "./structures";
import type { FileContents, Plain, OperatorGraph, OperatorRecord, ValueRecord } from "../bytes/records";
import { duplicateBytes, type FileTree, type TiedPlace, tiesOf, treeOf } from "./tree";
import { OF_FILE } from "../../shared/model/dataflow";

const COLUMN_INFO = {
  params: { label: "parameters", aggregate: "sum" },
  own_params: { label: "own parameters", aggregate: "own" },
  bytes: { label: "bytes", aggregate: "sum" }
} as const;

/** `name`: of the file, for one that neither has a title nor tells the class of its root. */
export function filePayload(contents: FileContents, name: string): ModelPayload {
  const root = contents.modules.find(({ path }) => path === "")?.className ?? "";
  const title = contents.title || root.slice(root.lastIndexOf(".") + 1) || name;
  const tree = treeOf(contents);
  const structures = structuresOf(tree, title);
  const flow = flowOf(contents, tree);
  const ties = tiesOf(tree);
  const fields = fieldsOf(structures);
  return {
    schema_version: SCHEMA_VERSION,
    kind: "model",
    title,
    nodes: { name: [...tree.names], parent: [...tree.parents], entity: [...structures.of] },
    columns: columnsOf(tree, ties),
    column_info: COLUMN_INFO,
    entities: {
      class: structures.list.map(({ classPlace }) => classPlace),
      name: structures.list.map(({ classPlace, digest }) => displayName(structures.classes[classPlace].name, digest)),
      digest: structures.list.map(({ digest }) => digest),
      hyper: structures.list.map(({ classPlace, settings }) => aligned(fields[classPlace], settings)),
      tensors: structures.list.map(({ tensors }) => tensors.map(([own, role, shape]) => [own, role, [...shape]]))
    },
    classes: {
      name: structures.classes.map(each => each.name),
      qualified: structures.classes.map(each => each.qualified),
      source: structures.classes.map(() => null),
      fields: fields.map(places => [...places.keys()])
    },
    folds: foldsOf(tree, structures, new Set(ties.flat().map(({ node }) => node))),
    links: [],
    tied: ties.flatMap(([first, ...others]) =>
      others.map(({ node, name: own }): [number, string, number, string] => [first.node, first.name, node, own])
    ),
    marks: {},
    blocks: {},
    edges: [],
    traced: flow !== null,
    error: null,
    flow,
    axes: null,
    compare: null,
    value_names: flow && valueNamesOf(contents, flow),
    file: aboutOf(contents, tree, name, flow !== null)
  };
}

/** Numbers and bytes of a module and of all inside; a tensor under several names counts once. */
function columnsOf(tree: FileTree, ties: readonly (readonly TiedPlace[])[]): Record<string, number[]> {
  const empty = () => new Array<number>(tree.names.length).fill(0);
  const [params, ownParams, bytes] = [empty(), empty(), empty()];
  duplicateBytes(tree, ties, (around, { node, name, tensor }) => {
    const count = roleOf(name, tensor) === "parameter" ? elementsOf(tensor) : 0;
    // its own numbers, where both names are of one module
    (around === node ? ownParams : params)[around] -= count;
    bytes[around] -= tensor.nbytes;
  });
  for (let node = tree.names.length - 1; node >= 0; node--) {
    for (const [name, tensor] of tree.tensors[node]) {
      if (roleOf(name, tensor) === "parameter") ownParams[node] += elementsOf(tensor);
      bytes[node] += tensor.nbytes;
    }
    params[node] += ownParams[node];
    if (node === 0) continue;
    params[tree.parents[node]] += params[node];
    bytes[tree.parents[node]] += bytes[node];
  }
  return { params, own_params: ownParams, bytes };
}

/** Of each class the settings that any of its modules has. */
function fieldsOf({ classes, list }: Structures): Map<string, number>[] {
  const fields = classes.map(() => new Map<string, number>());
  for (const { classPlace, settings } of list) {
    const places = fields[classPlace];
    for (const [name] of settings) if (!places.has(name)) places.set(name, places.size);
  }
  return fields;
}

/** In the order of the class; null where this module has no such setting. */
function aligned(fields: ReadonlyMap<string, number>, settings: readonly (readonly [string, Plain])[]): Plain[] {
  const row = new Array<Plain>(fields.size).fill(null);
  for (const [name, value] of settings) row[fields.get(name) ?? 0] = value ?? "None";
  return row;
}

/** As Python names structures: the class, and digits that tell it from others. */
function displayName(className: string, digest: string): string {
  return className + String(Number.parseInt(digest.slice(-8), 16) % 1000).padStart(3, "0");
}

function aboutOf(contents: FileContents, tree: FileTree, name: string, isDrawn: boolean): FileAbout {
  const [node, dtype, bytes, names]: [number[], number[], number[], string[]] = [[], [], [], []];
  const dtypes = new Map<string, number>();
  tree.tensors.forEach((own, module) => {
    for (const tensor of own.values()) {
      let place = dtypes.get(tensor.dtype);
      if (place === undefined) dtypes.set(tensor.dtype, (place = dtypes.size));
      node.push(module);
      dtype.push(place);
      bytes.push(tensor.nbytes);
      names.push(tensor.name);
    }
  });
  const count = contents.graph?.operators.length ?? 0;
  const large = `Its graph is not drawn: it has ${count} operators, and at most ${MAX_FLOW_OPERATORS} are drawn.`;
  return {
    name,
    format: contents.format,
    metadata: Object.entries(contents.metadata).map(([key, value]) => [key, value]),
    classes: [...contents.classes],
    warnings: [...contents.warnings, ...(count > 0 && !isDrawn ? [large] : [])],
    dtypes: [...dtypes.keys()],
    ...(isDrawn && { operators: contents.graph?.operators.map(each => [each.name, Object.entries(each.attributes)]) }),
    tensors: { node, name: names, dtype, bytes }
  };
}

// The graph of a file as the data flow that the views draw: calls of modules, the operators in them, values between them.

export const MAX_FLOW_OPERATORS = 50_000; // operators; with more, the page would stand still
const MAX_CALL_DEPTH = 64; // operators of deeper modules are drawn in the one around them at this depth
const OUTSIDE = -1;
const VIEWS: ReadonlySet<string> = new Set(
  (
    "reshape view transpose permute t expand flatten squeeze unsqueeze identity alias detach slice select split chunk " +
    "unbind _unsafe_view numpy_t movedim"
  ).split(" ")
);

/** Null where there is no graph, or one that is too large to be drawn. */
export function flowOf(contents: FileContents, tree: FileTree): FlowPayload | null {
  const { graph } = contents;
  if (!graph || graph.operators.length === 0 || graph.operators.length > MAX_FLOW_OPERATORS) return null;
  return new FlowTables(tree, graph).payload();
}

/** Names of the model's outputs, as in the file; not those of operators nor numbers, which nobody has given. */
function valueNamesOf({ graph }: FileContents, { calls }: FlowPayload): ModelPayload["value_names"] {
  const operators = new Set(graph?.operators.map(({ name }) => name));
  const unnamed = calls.node.map(() => 0);
  const results = graph?.outputs.map(name => (operators.has(name) || /^\d+$/.test(name) ? "" : name)) ?? [];
  return { labels: [[]], inputs: unnamed, outputs: unnamed, results };
}

class Distinct<T> {
  readonly keys: T[] = [];
  private readonly places = new Map<string, number>();

  place(key: T, text: string): number {
    let place = this.places.get(text);
    if (place === undefined) {
      this.places.set(text, (place = this.keys.length));
      this.keys.push(key);
    }
    return place;
  }
}

type Calls = FlowPayload["calls"];

class FlowTables {
  private readonly names = new Distinct<string>();
  private readonly shapes = new Distinct<(number | string)[]>();
  private readonly dtypes = new Distinct<string>();
  private readonly sources = new Distinct<string>();
  private readonly attributes = new Distinct<string>();
  private readonly calls: Calls = { node: [0], parent: [-1], inputs: [[]], outputs: [[]] };
  private readonly steps: FlowPayload["steps"] = {
    name: [],
    call: [],
    inputs: [],
    tensors: [],
    source: [],
    flops: [],
    view: [],
    square: []
  };
  private readonly values: FlowPayload["values"] = { step: [], shape: [], dtype: [], axes: [] };
  private readonly tensors: FlowPayload["tensors"] = { node: [], name: [], attributes: [], tied: [] };
  private readonly tensorPlaces = new Map<string, number>(); // by the whole name
  private readonly present = new Map<string, number>(); // the value that has a name now
  private readonly chains = new Map<string, readonly number[]>(); // by the path of a module, which many operators have
  private readonly open: number[] = [0]; // calls, the outermost first

  constructor(
    private readonly tree: FileTree,
    private readonly graph: OperatorGraph
  ) {
    this.listTensors();
  }

  payload(): FlowPayload {
    const given = this.graph.inputs.filter(name => !this.tensorPlaces.has(name));
    const inputs = given.map((name): [string, number] => [name, this.value(name)]);
    for (const operator of this.graph.operators) this.run(operator);
    const outputs = this.graph.outputs.map(name => this.value(name));
    this.findTraffic(outputs);
    return {
      on: OF_FILE,
      calls: this.calls,
      steps: this.steps,
      values: this.values,
      tensors: { ...this.tensors, attributes: this.attributes.keys },
      names: this.names.keys,
      shapes: this.shapes.keys,
      dtypes: this.dtypes.keys,
      sources: this.sources.keys,
      inputs,
      outputs
    };
  }

  private listTensors(): void {
    this.tree.tensors.forEach((own, node) => {
      for (const [attribute, { name }] of own) {
        this.tensorPlaces.set(name, this.tensors.node.length);
        this.tensors.node.push(node);
        this.tensors.name.push(this.attributes.place(attribute, attribute));
      }
    });
  }

  private run(operator: OperatorRecord): void {
    const { steps } = this;
    const step = steps.call.length;
    const name = operatorName(operator.op);
    const read = [...new Set(operator.inputs)].filter(input => input !== ""); // "": an input that is left out
    const flowing = read.filter(input => !this.tensorPlaces.has(input));
    steps.name.push(this.names.place(name, name));
    steps.call.push(this.callIn(this.around(operator.module)));
    steps.inputs.push(flowing.map(input => this.value(input)));
    steps.tensors.push(read.flatMap(input => this.tensorPlaces.get(input) ?? []));
    steps.source.push(operator.source === "" ? OUTSIDE : this.sources.place(operator.source, operator.source));
    steps.flops.push(null);
    if (isView(name)) steps.view.push(step);
    for (const output of operator.outputs) if (output !== "") this.make(output, step);
  }

  /** The call in which an operator of a module runs, from the modules around it: calls that are open stay so. */
  private callIn(wanted: readonly number[]): number {
    const { calls, open } = this;
    let same = 1;
    while (same < open.length && same < wanted.length && calls.node[open[same]] === wanted[same]) same++;
    open.length = same;
    for (const inner of wanted.slice(same)) {
      calls.parent.push(open[open.length - 1]);
      open.push(calls.node.length);
      calls.node.push(inner);
      calls.inputs.push([]);
      calls.outputs.push([]);
    }
    return open[open.length - 1];
  }

  /** The module of a path and those around it, from the root. */
  private around(path: string): readonly number[] {
    let chain = this.chains.get(path);
    if (chain === undefined) this.chains.set(path, (chain = this.chain(this.tree.find(path) ?? 0)));
    return chain;
  }

  private chain(node: number): number[] {
    const found: number[] = [];
    for (let at = node; at >= 0; at = this.tree.parents[at]) found.push(at);
    return found.reverse().slice(0, MAX_CALL_DEPTH);
  }

  private value(name: string): number {
    return this.present.get(name) ?? this.make(name, OUTSIDE);
  }

  private make(name: string, step: number): number {
    const { values } = this;
    const place = values.step.length;
    const about = this.graph.values.get(name) ?? this.recordOf(name);
    const [shape, dtype] = [about?.shape ?? ["?"], about?.dtype ?? ""];
    this.present.set(name, place);
    values.step.push(step);
    values.shape.push(this.shapes.place([...shape], shape.join("×")));
    values.dtype.push(this.dtypes.place(dtype, dtype));
    values.axes.push([]);
    return place;
  }

  /** Of an output that is a tensor of the file. */
  private recordOf(name: string): ValueRecord | undefined {
    const place = this.tensorPlaces.get(name);
    if (place === undefined) return undefined;
    return this.tree.tensors[this.tensors.node[place]].get(this.attributes.keys[this.tensors.name[place]]);
  }

  /** What goes into each call and what comes out of it: values that are made on one side and read on the other. */
  private findTraffic(outputs: readonly number[]): void {
    const { calls, steps, values } = this;
    const ends = calls.node.map((_, call) => call + 1);
    for (let call = ends.length - 1; call > 0; call--) {
      ends[calls.parent[call]] = Math.max(ends[calls.parent[call]], ends[call]);
    }
    const isIn = (inner: number, outer: number) => outer <= inner && inner < ends[outer];
    const [into, outOf] = [new Map<number, Set<number>>(), new Map<number, Set<number>>()];
    const pass = (value: number, reader: number) => {
      const maker = values.step[value] < 0 ? OUTSIDE : steps.call[values.step[value]];
      for (let at = reader; at >= 0 && !isIn(maker, at); at = calls.parent[at]) note(into, at, value);
      for (let at = maker; at >= 0 && !isIn(reader, at); at = calls.parent[at]) note(outOf, at, value);
    };
    steps.inputs.forEach((read, step) => read.forEach(value => pass(value, steps.call[step])));
    outputs.forEach(value => pass(value, OUTSIDE));
    for (const [call, found] of into) calls.inputs[call] = [...found];
    for (const [call, found] of outOf) calls.outputs[call] = [...found];
  }
}

function note(notes: Map<number, Set<number>>, call: number, value: number): void {
  const known = notes.get(call);
  if (known) known.add(value);
  else notes.set(call, new Set([value]));
}

function isView(name: string): boolean {
  return VIEWS.has(name.slice(name.lastIndexOf(":") + 1).toLowerCase());
}
