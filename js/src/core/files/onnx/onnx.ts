// ONNX: weights, operators, modules and metadata of a file, whose numbers are left where they are.

import { limitExceeded, ensure, excerpt } from "../bytes/limits";
import { Window } from "../bytes/buffered";
import {
  Allowance,
  Float,
  Occurrences,
  Scope,
  short,
  shortList,
  shortText,
  withoutDots
} from "../bytes/graph_building";
import {
  type AttributeMessage,
  type FunctionMessage,
  type GraphMessage,
  Messages,
  type NodeMessage,
  type ValueMessage
} from "./onnx_messages";
import { type Field, Wire } from "./protobuf";
import type {
  FileContents,
  FileSource,
  OperatorGraph,
  OperatorRecord,
  Plain,
  TensorRecord,
  ValueRecord
} from "../bytes/records";
import { Modules, type NameSource, withTheirWeights } from "./onnx_modules";
import {
  dtypeOf,
  elementsText,
  isSmall,
  isWeightDtype,
  QUANTIZED,
  QuantizedOperands,
  recordOf,
  sparseRecord
} from "./onnx_tensors";

// The operators of an ONNX file, in the order in which they run, with those of bodies and of local functions.
// Bodies of `If`, `Loop` and `Scan` come before the operator that has them: it takes what they give as further inputs, and
// what they take is what it takes. A call of a local function is a module of its class, with the function's operators; it
// is one operator where functions call themselves, or would give more operators than `MOST_INLINED`.

const MAX_INLINED = 20_000; // operators of local functions
const MAX_CALL_DEPTH = 16;
const MAX_LISTED = 100; // elements of a list that are looked at
const HOLDERS: readonly number[] = [0, 4, 5, 9, 10]; // types of attributes that hold tensors or graphs, or are not told
const [FLOAT, INT, STRING, TENSOR, FLOATS, INTS, STRINGS] = [1, 2, 3, 4, 6, 7, 8]; // AttributeProto.AttributeType

type Settings = ReadonlyMap<string, Plain>;

/** Where nodes are read: what names mean there, the module around them, and what a function was called with. */
interface Place {
  readonly scope: Scope;
  readonly module: string;
  readonly given: Settings;
  readonly wanted: Map<string, string>; // names that the values of a function get
  readonly depth: number;
  readonly calls: readonly string[];
}

/** A graph with its tensors noted. */
interface Body {
  readonly graph: GraphMessage;
  readonly tensors: ReadonlySet<string>;
  readonly inputs: readonly string[]; // that are not tensors
}

/** Reads the graph of one file; `tensors` and `modules` are what it found beside operators. */
class GraphReader {
  readonly modules = new Modules();
  tensors: TensorRecord[] = [];
  private readonly allowance = new Allowance();
  private readonly tensorNames = new Set<string>();
  private readonly operators: OperatorRecord[] = [];
  private readonly standings: NameSource[] = []; // of the operators
  private readonly quantized = new QuantizedOperands();
  private readonly values = new Map<string, ValueRecord>();
  private readonly valueNames = new Occurrences();
  private readonly operatorNames = new Occurrences();
  private readonly callPaths = new Occurrences();
  private readonly functions = new Map<string, FunctionMessage>();
  private inlined = 0;

  graph(graph: GraphMessage, functions: readonly FunctionMessage[]): OperatorGraph {
    for (const each of functions) {
      const key = keyOf(each.domain, each.name, each.overload);
      if (!this.functions.has(key)) this.functions.set(key, each);
    }
    const place = {
      scope: new Scope(),
      module: "",
      given: new Map<string, Plain>(),
      wanted: new Map(),
      depth: 0,
      calls: []
    };
    const body = this.body(graph, place);
    for (const name of body.inputs) this.valueNames.once(name);
    this.run(body, place);
    const outputs = namesOf(graph, "output").map(name => place.scope.get(name));
    this.tensors = this.quantized.withRoles(this.tensors, this.operators);
    const operators = withTheirWeights(this.operators, this.standings, this.tensors, outputs);
    return { operators, inputs: body.inputs, outputs, values: this.values };
  }

  private body(graph: GraphMessage, place: Place): Body {
    const tensors = new Set<string>();
    for (const message of graph.tensors) {
      const record = "values" in message ? sparseRecord(message) : recordOf(message.name, message);
      const isNew = place.depth > 0 || !this.tensorNames.has(record.name);
      ensure(isNew, () => `two tensors named ${excerpt(record.name)}`);
      tensors.add(record.name);
      this.keepTensor(place, record);
    }
    if (place.depth === 0) this.modules.hold(this.tensors.map(({ name }) => name));
    return { graph, tensors, inputs: namesOf(graph, "input").filter(name => !tensors.has(name)) };
  }

  private run({ graph, tensors }: Body, place: Place): void {
    for (const node of graph.nodes) this.node(node, place);
    for (const message of graph.values) {
      const value = valueOf(message);
      const name = place.scope.get(message.name);
      if (value !== null && !tensors.has(message.name) && !this.values.has(name)) this.values.set(name, value);
    }
  }

  /** Tensors of bodies get another name where theirs is taken. */
  private keepTensor(place: Place, record: TensorRecord): void {
    const unique = this.valueNames.once(record.name);
    if (place.depth > 0 || unique !== record.name) place.scope.set(record.name, unique);
    this.tensorNames.add(unique);
    this.tensors.push(unique === record.name ? record : { ...record, name: unique });
  }

  /** Adds a node's operator, with the operators that it holds. */
  private node(node: NodeMessage, place: Place): void {
    const holds = !node.isSmall || node.attributes.some(({ type }) => HOLDERS.includes(type));
    if (holds && this.isTensor(node, place)) return;
    const told = this.modules.ofMetadata(node.scopes, node.classes) ?? this.modules.ofName(node.name);
    const module = told ?? place.module;
    const called = this.functions.get(keyOf(node.domain, node.op, node.overload));
    if (called !== undefined && this.canBeInlined(called, place)) {
      this.call(node, called, module, place);
      return;
    }
    this.allowance.operator();
    const inputs = node.inputs.filter(name => name !== "").map(name => place.scope.get(name));
    const given = holds ? this.bodies(node, module, place) : [];
    const op = isOther(node.domain) ? `${node.domain}.${node.op}` : node.op;
    if (QUANTIZED.has(op))
      this.quantized.add(
        op,
        node.inputs.map(name => (name === "" ? "" : place.scope.get(name)))
      );
    this.standings.push(told !== null ? "told" : place.depth === 0 ? "free" : "fixed");
    this.operators.push({
      name: this.operatorNames.once(node.name || node.op),
      op,
      module,
      inputs: [...inputs, ...given],
      outputs: node.outputs.filter(name => name !== "").map(name => this.define(name, place)),
      attributes: Object.fromEntries(settingsOf(node, place.given, true)),
      source: node.source
    });
  }

  private define(name: string, place: Place): string {
    const unique = place.wanted.get(name) || this.valueNames.once(name);
    place.wanted.delete(name);
    if (place.depth > 0 || unique !== name) place.scope.set(name, unique);
    return unique;
  }

  /** Whether a node is a tensor of more than few numbers, which then is one of the file's. */
  private isTensor({ op, domain, outputs, attributes }: NodeMessage, place: Place): boolean {
    const tensor = attributes[0]?.held ?? null;
    if (op !== "Constant" || isOther(domain) || outputs.length !== 1 || tensor === null || isSmall(tensor))
      return false;
    const role = isWeightDtype(tensor.dataType) ? null : "constant"; // where weights are kept says nothing of them
    this.keepTensor(place, recordOf(outputs[0], tensor, role));
    return true;
  }

  /** What the bodies of a node give, once their operators are there. */
  private bodies(node: NodeMessage, module: string, place: Place): string[] {
    const given: string[] = [];
    for (const attribute of node.attributes.filter(({ graphs }) => graphs.length > 0)) {
      const path = this.modules.add(withoutDots(`${module}.${attribute.name}`));
      for (const graph of attribute.graphs) given.push(...this.bodyOf(node, graph, path, place));
    }
    return given;
  }

  private bodyOf(node: NodeMessage, graph: GraphMessage, module: string, place: Place): string[] {
    const inner: Place = {
      ...place,
      scope: new Scope(place.scope),
      module,
      wanted: new Map(),
      depth: place.depth + 1
    };
    const body = this.body(graph, inner);
    body.inputs.forEach((name, at) => {
      const outer = node.inputs[at] ?? "";
      inner.scope.set(name, outer === "" ? this.valueNames.once(name) : place.scope.get(outer));
    });
    this.run(body, inner);
    return namesOf(graph, "output").map(name => inner.scope.get(name));
  }

  private canBeInlined({ name, nodes }: FunctionMessage, place: Place): boolean {
    const count = nodes.length;
    const isBounded = this.inlined + count <= MAX_INLINED && this.allowance.fits(count);
    return isBounded && place.calls.length < MAX_CALL_DEPTH && !place.calls.includes(name);
  }

  /** The operators of a function, in a module named after the call. */
  private call(node: NodeMessage, called: FunctionMessage, module: string, place: Place): void {
    this.inlined += called.nodes.length;
    const label = node.name.slice(node.name.lastIndexOf("/") + 1).replaceAll(".", "_") || called.name;
    const path = this.callPaths.once(withoutDots(`${module}.${label}`));
    this.modules.add(path, [called.domain, called.name].filter(part => part !== "").join("."));
    const inner: Place = {
      scope: new Scope(),
      module: path,
      given: settingsOf(node, place.given, false),
      wanted: new Map(),
      depth: place.depth + 1,
      calls: [...place.calls, called.name]
    };
    for (const [name, outer] of pairs(called.inputs, node.inputs)) inner.scope.set(name, place.scope.get(outer));
    for (const [name, outer] of pairs(called.outputs, node.outputs)) inner.wanted.set(name, this.define(outer, place));
    for (const each of called.nodes) this.node(each, inner);
    for (const [name, outer] of pairs(called.outputs, node.outputs)) {
      if (inner.wanted.has(name)) place.scope.set(outer, inner.scope.get(name)); // it gives what it was given
    }
  }
}

const keyOf = (...parts: readonly string[]) => JSON.stringify(parts);

const isOther = (domain: string) => domain !== "" && domain !== "ai.onnx";

const namesOf = ({ values }: GraphMessage, role: ValueMessage["role"]) =>
  values.filter(value => value.role === role).map(({ name }) => name);

/** The names within a function with those outside, where there are both. */
const pairs = (inner: readonly string[], outer: readonly string[]) =>
  inner.slice(0, outer.length).flatMap((name, at): [string, string][] => (outer[at] === "" ? [] : [[name, outer[at]]]));

function valueOf({ shape, dataType }: ValueMessage): ValueRecord | null {
  const dtype = dtypeOf(dataType);
  if (shape === null) return dtype === "" ? null : { shape, dtype };
  return { shape: shape.map(sizeOf), dtype };
}

/** A size; one that no value has, as the -1 that some exporters write, stands for one that is not fixed. */
function sizeOf(size: number | string): number | string {
  if (typeof size === "string") return shortText(size) || "?";
  return Number.isSafeInteger(size) && size >= 0 ? size : "?";
}

function settingsOf(node: NodeMessage, given: Settings, tellsLong: boolean): Settings {
  const settings = new Map<string, Plain>();
  for (const attribute of node.attributes) {
    const value = settingOf(attribute, given, tellsLong);
    if (value !== undefined) settings.set(shortText(attribute.name), value);
  }
  return settings;
}

function settingOf(attribute: AttributeMessage, given: Settings, tellsLong: boolean): Plain | undefined {
  const { type, reference, list, tensor } = attribute;
  if (attribute.isLong) return tellsLong ? "…" : undefined;
  if (reference !== "") return given.get(reference) ?? null;
  if (type === FLOAT) return short(new Float(attribute.float));
  if (type === INT) return short(attribute.whole);
  if (type === STRING) return shortText(attribute.text);
  if (type === FLOATS || type === INTS || type === STRINGS) return shortList(elementsOf(type, list));
  return (type === TENSOR || type === 0) && tensor !== null ? elementsText(tensor) : undefined;
}

function elementsOf(type: number, list: AttributeMessage["list"]): (Float | number | bigint | string)[] {
  const values = list.type === type ? list.values.slice(0, MAX_LISTED) : [];
  return type === FLOATS ? values.map(value => new Float(Number(value))) : values;
}

const MAX_ENTRIES = 1_000; // of the metadata
const MAX_FUNCTIONS = 100_000;
const LONG = 1_000; // bytes: a text that has as many is longer than is shown, and is cut there
const MAX_SHORT_ENTRY = 2_100; // bytes of an entry with a key and a value that are as long
const MAX_HEAD_SIZE = 2 ** 20; // bytes of what a model has beside graphs and functions

interface Model {
  irVersion: number;
  producer: string;
  producerVersion: string;
  domain: string;
  version: number;
  description: string;
  opsets: [string, number][];
  entries: [string, string][];
  graphs: Field[];
  functions: Field[];
}

export async function readOnnx(source: FileSource): Promise<FileContents> {
  const window = new Window(source);
  const wire = new Wire(window);
  const messages = new Messages(wire);
  const model = await modelOf(window, wire, messages, source.size);
  ensure(model.graphs.length > 0 && model.opsets.length > 0, "no graph or no opset: it is not an ONNX model");
  const functions: FunctionMessage[] = [];
  for (const { begin, end } of model.functions) {
    functions.push(await window.run(() => messages.function(begin, end)));
  }
  const reader = new GraphReader();
  const graph = reader.graph(await graphOf(window, wire, messages, model.graphs), functions);
  return {
    format: "onnx",
    title: "",
    metadata: metadataOf(model),
    tensors: reader.tensors,
    modules: reader.modules.parts(reader.tensors, graph.operators),
    graph,
    classes: [],
    warnings: warningsOf(reader)
  };
}

/** The model's message; graphs and functions are passed over. */
async function modelOf(window: Window, wire: Wire, messages: Messages, size: number): Promise<Model> {
  const model: Model = {
    irVersion: 0,
    producer: "",
    producerVersion: "",
    domain: "",
    version: 0,
    description: "",
    opsets: [],
    entries: [],
    graphs: [],
    functions: []
  };
  let [at, head] = [0, 0];
  await window.run(() => {
    while (at < size) {
      const field = wire.field(at, size);
      const isPart = field.hasLength && [7, 20, 25].includes(field.number); // a graph, trainings, a function
      if (!isPart) head += Math.min(field.end - at, MAX_SHORT_ENTRY);
      if (head > MAX_HEAD_SIZE) throw limitExceeded("bytes outside its graph");
      if (field.hasLength) addTo(model, field, wire, messages);
      else if (field.number === 1) model.irVersion = wire.number(field);
      else if (field.number === 5) model.version = wire.number(field);
      at = field.end;
    }
  });
  return model;
}

function addTo(model: Model, field: Field, wire: Wire, messages: Messages): void {
  const { number } = field;
  if (number === 2) model.producer = wire.text(field, LONG);
  else if (number === 3) model.producerVersion = wire.text(field, LONG);
  else if (number === 4) model.domain = wire.text(field, LONG);
  else if (number === 6) model.description = wire.text(field, LONG);
  else if (number === 7) model.graphs.push(field);
  else if (number === 8) model.opsets.push(opsetOf(field, wire));
  else if (number === 14) model.entries.push(messages.pair(field, LONG));
  else if (number === 25) model.functions.push(field);
  if (model.functions.length > MAX_FUNCTIONS || model.graphs.length > MAX_ENTRIES)
    throw limitExceeded("graphs or functions");
}

function opsetOf({ begin, end }: Field, wire: Wire): [string, number] {
  const opset: [string, number] = ["", 0];
  wire.fields(begin, end, field => {
    if (field.number === 1 && field.hasLength) opset[0] = wire.text(field);
    else if (field.number === 2 && !field.hasLength) opset[1] = wire.number(field);
  });
  return opset;
}

/** The graph that lies in these parts of the file. */
async function graphOf(window: Window, wire: Wire, messages: Messages, parts: readonly Field[]): Promise<GraphMessage> {
  const graph = messages.emptyGraph();
  for (const { begin, end } of parts) {
    let at = begin;
    await window.run(() => {
      while (at < end) {
        const field = wire.field(at, end);
        messages.addTo(graph, field);
        at = field.end;
        window.passed(at);
      }
    });
  }
  return graph;
}

function metadataOf(model: Model): Record<string, Plain> {
  const opsets = model.opsets.slice(0, MAX_ENTRIES).map(([domain, version]) => `${domain || "ai.onnx"} ${version}`);
  const told: [string, Plain][] = [
    ["producer", shortText(`${model.producer} ${model.producerVersion}`.trim())],
    ["opset", shortText(opsets.join(", "))],
    ["ir_version", model.irVersion],
    ["domain", shortText(model.domain)],
    ["model_version", model.version],
    ["description", shortText(model.description)]
  ];
  const entries = model.entries.slice(0, MAX_ENTRIES).map(pair => pair.map(shortText) as [string, string]);
  const metadata = new Map(told.filter(([, value]) => value !== "" && value !== 0));
  for (const [key, value] of entries) if (!metadata.has(key)) metadata.set(key, value);
  return Object.fromEntries(metadata);
}

function warningsOf({ tensors }: GraphReader): string[] {
  const files = [...new Set(tensors.map(({ file }) => file))].filter(file => file !== "").sort();
  return files.slice(0, 10).map(file => `weights lie in ${excerpt(file)}, which has to be in the same folder`);
}
