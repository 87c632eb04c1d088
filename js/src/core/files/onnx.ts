// ONNX: weights, operators, modules and metadata of a file, whose numbers are left where they are.

import { excess, need, shown } from "./bounds";
import { Window } from "./buffered";
import { shortText } from "./graph_parts";
import { GraphReader } from "./onnx_graph";
import { type FunctionMessage, type GraphMessage, Messages } from "./onnx_messages";
import { type Field, Wire } from "./protobuf";
import type { FileContents, FileSource, Plain } from "./records";

const MOST_ENTRIES = 1_000; // of the metadata
const MOST_FUNCTIONS = 100_000;
const LONG = 1_000; // bytes: a text that has as many is longer than is shown, and is cut there
const MOST_SHORT = 2_100; // bytes of an entry with a key and a value that are as long
const LARGEST_HEAD = 2 ** 20; // bytes of what a model has beside graphs and functions

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
  need(model.graphs.length > 0 && model.opsets.length > 0, "no graph or no opset, so it is no ONNX model");
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
      if (!isPart) head += Math.min(field.end - at, MOST_SHORT);
      if (head > LARGEST_HEAD) throw excess("bytes beside its graph");
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
  if (model.functions.length > MOST_FUNCTIONS || model.graphs.length > MOST_ENTRIES)
    throw excess("graphs or functions");
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
  const opsets = model.opsets.slice(0, MOST_ENTRIES).map(([domain, version]) => `${domain || "ai.onnx"} ${version}`);
  const told: [string, Plain][] = [
    ["producer", shortText(`${model.producer} ${model.producerVersion}`.trim())],
    ["opset", shortText(opsets.join(", "))],
    ["ir_version", model.irVersion],
    ["domain", shortText(model.domain)],
    ["model_version", model.version],
    ["description", shortText(model.description)]
  ];
  const entries = model.entries.slice(0, MOST_ENTRIES).map(pair => pair.map(shortText) as [string, string]);
  const metadata = new Map(told.filter(([, value]) => value !== "" && value !== 0));
  for (const [key, value] of entries) if (!metadata.has(key)) metadata.set(key, value);
  return Object.fromEntries(metadata);
}

function warningsOf({ tensors }: GraphReader): string[] {
  const files = [...new Set(tensors.map(({ file }) => file))].filter(file => file !== "").sort();
  return files.slice(0, 10).map(file => `weights lie in ${shown(file)}, which has to be in the same folder`);
}
