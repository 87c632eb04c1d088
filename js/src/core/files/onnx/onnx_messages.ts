// The messages of an ONNX file, without the numbers of their tensors, which are skipped.
// The numbers of fields are those of https://github.com/onnx/onnx/blob/main/onnx/onnx.proto

import { limitExceeded, MAX_DIMENSIONS, MAX_TENSORS, ensure } from "../bytes/limits";
import { MAX_OPERATORS, sourceOf } from "../bytes/graph_building";
import type { Field, Wire } from "./protobuf";

const FEW_BYTES = 64; // of numbers that stay
const SMALL = 2 ** 14; // bytes of a message whose lists are read
const MAX_GRAPHS = 1_000; // of an attribute
const MAX_LISTED = 101; // elements of a list that are kept
const MAX_SETTING_LENGTH = 1_000; // bytes
const MAX_DEPTH = 30; // graphs within graphs
const [NAME_SCOPES, CLASSES, TRACE] = ["name_scopes", "class_hierarchy", "stack_trace"].map(
  key => `pkg.torch.onnx.${key}`
);

export interface TensorMessage {
  name: string;
  dims: number[];
  dataType: number;
  isExternal: boolean;
  external: Map<string, string>;
  nbytes: number;
  raw: number | null; // where its bytes stand, unless they are encoded
  packed: number | null; // where floats stand one behind the other in the list of their type
  few: Uint8Array | null; // the raw bytes, where they are few
  lists: Map<number, (number | bigint)[]>; // numbers by field, where they are few
}

export interface AttributeMessage {
  name: string;
  type: number;
  reference: string;
  float: number;
  whole: number | bigint;
  text: string;
  list: { type: number; values: (number | bigint | string)[] };
  tensor: TensorMessage | null; // of `t`
  held: TensorMessage | null; // the last of `t` and `tensors`
  graphs: GraphMessage[];
  isLong: boolean; // has a long list, which is left out
}

export interface NodeMessage {
  inputs: string[];
  outputs: string[];
  name: string;
  op: string;
  domain: string;
  overload: string;
  attributes: AttributeMessage[];
  scopes: string | null;
  classes: string | null;
  source: string;
  isSmall: boolean;
}

export interface ValueMessage {
  role: "input" | "output" | "value";
  name: string;
  dataType: number;
  shape: (number | string)[] | null;
}

export interface SparseMessage {
  values: TensorMessage;
  nbytes: number;
  dims: number[];
}

export interface GraphMessage {
  nodes: NodeMessage[];
  tensors: (TensorMessage | SparseMessage)[];
  values: ValueMessage[];
}

export interface FunctionMessage {
  name: string;
  domain: string;
  overload: string;
  inputs: string[];
  outputs: string[];
  nodes: NodeMessage[];
}

/** Reads messages. What is read again, as bytes were missing, is counted again. */
export class Messages {
  private nodes = 0;
  private tensors = 0;

  constructor(private readonly wire: Wire) {}

  emptyGraph(): GraphMessage {
    return { nodes: [], tensors: [], values: [] };
  }

  /** Adds a field of a graph to it. */
  addTo(graph: GraphMessage, field: Field, depth = 0): void {
    const { number, begin, end } = field;
    if (!field.hasLength) return;
    if (number === 1) graph.nodes.push(this.node(begin, end, depth));
    else if (number === 5) graph.tensors.push(this.tensor(begin, end));
    else if (number === 15) graph.tensors.push(this.sparse(begin, end));
    else if (number === 11) graph.values.push(this.value("input", begin, end));
    else if (number === 12) graph.values.push(this.value("output", begin, end));
    else if (number === 13) graph.values.push(this.value("value", begin, end));
  }

  function(begin: number, end: number): FunctionMessage {
    const found: FunctionMessage = { name: "", domain: "", overload: "", inputs: [], outputs: [], nodes: [] };
    this.wire.fields(begin, end, field => {
      if (!field.hasLength) return;
      if (field.number === 7) found.nodes.push(this.node(field.begin, field.end, 0));
      else if (field.number === 1) found.name = this.wire.text(field);
      else if (field.number === 4) found.inputs.push(this.wire.text(field));
      else if (field.number === 5) found.outputs.push(this.wire.text(field));
      else if (field.number === 10) found.domain = this.wire.text(field);
      else if (field.number === 13) found.overload = this.wire.text(field);
    });
    return found;
  }

  /** Key and value of an entry of metadata. */
  pair({ begin, end }: Field, longest = Infinity): [string, string] {
    const pair: [string, string] = ["", ""];
    this.wire.fields(begin, end, field => {
      if (field.hasLength && field.number <= 2) pair[field.number - 1] = this.wire.text(field, longest);
    });
    return pair;
  }

  private node(begin: number, end: number, depth: number): NodeMessage {
    if (++this.nodes > 2 * MAX_OPERATORS) throw limitExceeded("operators");
    const node: NodeMessage = {
      inputs: [],
      outputs: [],
      name: "",
      op: "",
      domain: "",
      overload: "",
      attributes: [],
      scopes: null,
      classes: null,
      source: "",
      isSmall: end - begin <= SMALL
    };
    this.wire.fields(begin, end, field => {
      if (field.hasLength) this.addToNode(node, field, depth);
    });
    return node;
  }

  private addToNode(node: NodeMessage, field: Field, depth: number): void {
    const { number } = field;
    if (number === 1) node.inputs.push(this.wire.text(field));
    else if (number === 2) node.outputs.push(this.wire.text(field));
    else if (number === 3) node.name = this.wire.text(field);
    else if (number === 4) node.op = this.wire.text(field);
    else if (number === 5) node.attributes.push(this.attribute(field.begin, field.end, depth));
    else if (number === 7) node.domain = this.wire.text(field);
    else if (number === 8) node.overload = this.wire.text(field);
    else if (number === 9) this.addProperty(node, field);
  }

  private addProperty(node: NodeMessage, field: Field): void {
    const [key, value] = this.pair(field);
    if (key === NAME_SCOPES) node.scopes = value;
    else if (key === CLASSES) node.classes = value;
    else if (key === TRACE) node.source = sourceOf(value);
    if (key === TRACE) this.wire.keep(-value.length); // only its last line is kept
  }

  private attribute(begin: number, end: number, depth: number): AttributeMessage {
    const attribute: AttributeMessage = {
      name: "",
      type: 0,
      reference: "",
      float: 0,
      whole: 0,
      text: "",
      list: { type: 0, values: [] },
      tensor: null,
      held: null,
      graphs: [],
      isLong: false
    };
    const visit = (field: Field) => {
      if (field.number >= 7 && field.number <= 9 && end - begin > SMALL) attribute.isLong = true;
      else if (field.hasLength) this.addContent(attribute, field, depth);
      else this.addNumber(attribute, field);
    };
    // decision trees have millions, each a field: the rest is not looked at
    this.wire.fields(begin, end, visit, () => !attribute.isLong);
    return attribute;
  }

  private addContent(attribute: AttributeMessage, field: Field, depth: number): void {
    const { number, begin, end } = field;
    if (number === 1) attribute.name = this.wire.text(field);
    else if (number === 4) attribute.text = this.wire.text(field, MAX_SETTING_LENGTH);
    else if (number === 5) attribute.held = attribute.tensor = this.tensor(begin, end);
    else if (number === 10) attribute.held = this.tensor(begin, end);
    else if (number === 6 || number === 11) attribute.graphs.push(this.body(attribute, field, depth + 1));
    else if (number === 7) this.addElements(attribute, 6, this.wire.floats(field));
    else if (number === 8) this.addElements(attribute, 7, this.wire.wholes(field));
    else if (number === 9) this.addElements(attribute, 8, [this.wire.text(field)]);
    else if (number === 21) attribute.reference = this.wire.text(field);
  }

  private addNumber(attribute: AttributeMessage, field: Field): void {
    const { number, kind } = field;
    if (number === 2 && kind === 5) attribute.float = this.wire.float(field);
    else if (number === 3 && kind === 0) attribute.whole = this.wire.whole(field);
    else if (number === 7 && kind === 5) this.addElements(attribute, 6, this.wire.floats(field));
    else if (number === 8 && kind === 0) this.addElements(attribute, 7, this.wire.wholes(field));
    else if (number === 20 && kind === 0) attribute.type = this.wire.number(field);
  }

  private addElements({ list }: AttributeMessage, type: number, values: readonly (number | bigint | string)[]): void {
    if (list.type !== type) [list.type, list.values] = [type, []];
    list.values.push(...values.slice(0, MAX_LISTED - list.values.length));
  }

  private body(attribute: AttributeMessage, { begin, end }: Field, depth: number): GraphMessage {
    if (depth > MAX_DEPTH || attribute.graphs.length >= MAX_GRAPHS) throw limitExceeded("graphs within graphs");
    const graph = this.emptyGraph();
    this.wire.fields(begin, end, field => this.addTo(graph, field, depth));
    return graph;
  }

  private tensor(begin: number, end: number): TensorMessage {
    if (++this.tensors > 2 * MAX_TENSORS) throw limitExceeded("tensors");
    const tensor: TensorMessage = {
      name: "",
      dims: [],
      dataType: 0,
      isExternal: false,
      external: new Map(),
      nbytes: 0,
      raw: null,
      packed: null,
      few: null,
      lists: new Map()
    };
    this.wire.fields(begin, end, field => this.addToTensor(tensor, field));
    return tensor;
  }

  private addToTensor(tensor: TensorMessage, field: Field): void {
    const { number, hasLength, kind } = field;
    if (number === 9 && hasLength) this.addRaw(tensor, field);
    else if ([4, 5, 6, 7, 10, 11].includes(number)) this.addTyped(tensor, field);
    else if (number === 1) tensor.dims.push(...this.dims(field, tensor.dims.length));
    else if (number === 2 && kind === 0) tensor.dataType = this.wire.number(field);
    else if (number === 8 && hasLength) tensor.name = this.wire.text(field);
    else if (number === 13 && hasLength) tensor.external.set(...this.pair(field, 2 ** 16));
    else if (number === 14 && kind === 0) tensor.isExternal = this.wire.number(field) === 1;
  }

  private dims(field: Field, known: number): number[] {
    const dims = this.wire.wholes(field).map(Number);
    ensure(known + dims.length <= MAX_DIMENSIONS && dims.every(Number.isSafeInteger), "sizes that no tensor has");
    return dims;
  }

  private addRaw(tensor: TensorMessage, field: Field): void {
    [tensor.raw, tensor.nbytes] = [field.begin, field.end - field.begin];
    tensor.few = tensor.nbytes <= FEW_BYTES ? this.wire.bytes(field).slice() : null;
  }

  private addTyped(tensor: TensorMessage, field: Field): void {
    const { number, kind } = field;
    const isPacked = field.hasLength && (number === 4 || number === 10) && tensor.nbytes === 0;
    tensor.packed = isPacked ? field.begin : null;
    tensor.nbytes += field.end - field.begin;
    if (tensor.nbytes > FEW_BYTES || number === 6) return;
    const isWhole = number === 5 || number === 7 || number === 11;
    const width = number === 10 ? "f64" : "f32";
    if (!field.hasLength && kind !== (isWhole ? 0 : number === 10 ? 1 : 5)) return;
    const values = isWhole ? this.wire.wholes(field) : this.wire.floats(field, width);
    tensor.lists.set(number, [...(tensor.lists.get(number) ?? []), ...values]);
  }

  private sparse(begin: number, end: number): SparseMessage {
    const parts: [TensorMessage, TensorMessage] = [this.tensor(begin, begin), this.tensor(begin, begin)];
    const dims: number[] = [];
    this.wire.fields(begin, end, field => {
      if (field.hasLength && field.number <= 2) parts[field.number - 1] = this.tensor(field.begin, field.end);
      else if (field.number === 3) dims.push(...this.dims(field, dims.length));
    });
    return { values: parts[0], nbytes: parts[0].nbytes + parts[1].nbytes, dims };
  }

  private value(role: ValueMessage["role"], begin: number, end: number): ValueMessage {
    const value: ValueMessage = { role, name: "", dataType: 0, shape: null };
    this.wire.keep(200);
    this.wire.fields(begin, end, field => {
      if (field.number === 1 && field.hasLength) value.name = this.wire.text(field);
      else if (field.number === 2 && field.hasLength) this.addType(value, field);
    });
    return value;
  }

  /** A dense tensor, or a sparse one; of others no shape is told. */
  private addType(value: ValueMessage, type: Field): void {
    this.wire.fields(type.begin, type.end, ({ number, hasLength, begin, end }) => {
      if (!hasLength || (number !== 1 && number !== 8)) return;
      [value.dataType, value.shape] = [0, null];
      this.wire.fields(begin, end, field => {
        if (field.number === 1 && field.kind === 0) value.dataType = this.wire.number(field);
        else if (field.number === 2 && field.hasLength) value.shape = this.shape(field);
      });
    });
  }

  private shape(shape: Field): (number | string)[] {
    const sizes: (number | string)[] = [];
    this.wire.fields(shape.begin, shape.end, dim => {
      if (dim.number !== 1 || !dim.hasLength) return;
      let size: number | string = "";
      this.wire.fields(dim.begin, dim.end, field => {
        if (field.number === 1 && field.kind === 0) size = this.wire.number(field);
        else if (field.number === 2 && field.hasLength) size = this.wire.text(field, MAX_SETTING_LENGTH);
      });
      sizes.push(size);
      ensure(sizes.length <= MAX_DIMENSIONS, "a value of too many dimensions");
    });
    return sizes;
  }
}
