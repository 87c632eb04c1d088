// Archives of `torch.export.save`: their JSON and the places of their weights; no pickle in them is opened.

import type { Fields } from "../../shared/base/schema";
import { limitExceeded, ensure, product, excerpt } from "../bytes/limits";
import { Allowance, NO_MODULE, Occurrences, Scope, shortText, sourceOf, withoutDots } from "../bytes/graph_building";
import { parseJson } from "../bytes/json";
import {
  bytesOf,
  dtypeOf,
  fixedShape,
  integer,
  listed,
  mapping,
  modulePath,
  namesOf,
  required,
  settingOf,
  shortJson,
  text,
  valueOf
} from "./pt2_schema";
import type {
  FileContents,
  ModulePart,
  OperatorGraph,
  OperatorRecord,
  Plain,
  TensorRecord,
  ValueRecord
} from "../bytes/records";
import type { Archive } from "../bytes/zip";

// The operators of an exported program, from the JSON of its graph, with those of branches and loops.
// The operators of a subgraph, as a branch of `cond`, come before the operator that has it, which takes what they give.

const MAX_DEPTH = 30; // graphs within graphs
const PREFIX = "torch.ops.";
const MAX_MODULES = 100; // modules within modules

/** What an operator is called with: values, settings, and graphs, with how many values came before the last. */
interface Arguments {
  readonly values: string[];
  readonly settings: Map<string, Plain>;
  readonly graphs: Fields[];
  beforeOperands: number;
}

/** Where operators are read: what names mean there, and the module around them. */
interface Place {
  readonly scope: Scope;
  readonly module: string;
  readonly depth: number;
}

/** Reads the graph of an exported program; `names` are the state-dict names of the values that are tensors. */
class ProgramReader {
  private readonly allowance = new Allowance();
  private readonly tensors: ReadonlySet<string>;
  private readonly given: Occurrences;
  private readonly operatorNames = new Occurrences();
  private readonly top = new Scope();
  private readonly operators: OperatorRecord[] = [];
  private readonly values = new Map<string, ValueRecord>();
  private readonly classes = new Map<string, string>();
  private readonly stacks = new Map<string, string>();

  constructor(names: ReadonlyMap<string, string>) {
    this.tensors = new Set(names.values());
    this.given = new Occurrences(this.tensors);
    for (const [value, name] of names) this.top.set(value, name);
  }

  /** The graph; `inputs` are the names of what the user passes, `outputs` arguments that he gets. */
  graph(graph: Fields, inputs: readonly string[], outputs: readonly unknown[]): OperatorGraph {
    const taken = inputs.map(name => this.define(name, this.top));
    this.run(graph, { scope: this.top, module: "", depth: 0 });
    const given = outputs.flatMap(argument => namesOf(argument)).map(name => this.top.get(name));
    return { operators: this.operators, inputs: taken, outputs: given, values: this.values };
  }

  /** The modules that the program lists as called, and those that its operators come from, with their classes. */
  modules(calls: unknown): ModulePart[] {
    for (const call of listed(calls)) this.addClass(modulePath(text(required(mapping(call), "fqn"))), "");
    return [...this.classes].map(([path, className]) => ({ path, className, settings: {} }));
  }

  /** Adds the operators of a graph; what it gives. */
  private run(graph: Fields, place: Place): string[] {
    for (const node of listed(graph.nodes)) this.node(mapping(node), place);
    for (const [name, meta] of Object.entries(mapping(graph.tensor_values))) {
      const unique = place.scope.get(name);
      if (!this.tensors.has(unique) && !this.values.has(unique)) this.values.set(unique, valueOf(mapping(meta)));
    }
    return listed(graph.outputs)
      .flatMap(argument => namesOf(argument))
      .map(name => place.scope.get(name));
  }

  private node(node: Fields, place: Place): void {
    this.allowance.operator();
    const metadata = mapping(node.metadata);
    const told = text(required(node, "target"));
    const target = told.startsWith(PREFIX) ? told.slice(PREFIX.length) : told;
    const module = this.moduleOf(text(metadata.nn_module_stack ?? "")) || place.module;
    const called = this.arguments(node, place.scope);
    for (const graph of called.graphs) called.values.push(...this.subgraph(graph, called, { ...place, module }));
    const outputs = listed(node.outputs)
      .flatMap(part => namesOf(part))
      .map(name => this.define(name, place.scope));
    this.operators.push({
      name: this.operatorNames.once(text(node.name || (outputs[0] ?? target))),
      op: target,
      module,
      inputs: called.graphs.length > 0 ? [...new Set(called.values)] : called.values,
      outputs,
      attributes: Object.fromEntries(called.settings),
      source: sourceOf(text(metadata.stack_trace ?? ""))
    });
  }

  private define(name: string, scope: Scope): string {
    const unique = this.given.once(name);
    scope.set(name, unique);
    return unique;
  }

  private arguments(node: Fields, scope: Scope): Arguments {
    const found: Arguments = { values: [], settings: new Map(), graphs: [], beforeOperands: 0 };
    listed(node.inputs).forEach((part, at) => {
      const entry = mapping(part);
      const argument = mapping(required(entry, "arg"));
      if ("as_graph" in argument) {
        found.graphs.push(mapping(argument.as_graph));
        found.beforeOperands = found.values.length;
        return;
      }
      for (const name of namesOf(argument)) found.values.push(scope.get(name));
      const setting = settingOf(argument);
      if (setting !== null) found.settings.set(shortText(text(entry.name || "") || `argument ${at}`), setting);
    });
    return found;
  }

  private subgraph(argument: Fields, called: Arguments, { scope, module, depth }: Place): string[] {
    if (depth >= MAX_DEPTH) throw limitExceeded("graphs within graphs");
    const graph = mapping(required(argument, "graph"));
    const path = withoutDots(`${module}.${text(required(argument, "name"))}`);
    const inner = new Scope(scope);
    const operands = called.values.slice(called.beforeOperands);
    const names = listed(graph.inputs).flatMap(part => namesOf(part));
    names.forEach((name, at) => inner.set(name, operands[at] ?? scope.get(name)));
    this.addClass(path, "");
    return this.run(graph, { scope: inner, module: path, depth: depth + 1 });
  }

  /** The path of the innermost of the modules in a text as "L__self__,,pkg.Net;L__self__conv1,conv1,pkg.Conv". */
  private moduleOf(stack: string): string {
    const known = stack === "" ? "" : this.stacks.get(stack);
    if (known !== undefined) return known;
    let path = "";
    for (const entry of stack.split(";", MAX_MODULES)) {
      const parts = entry.split(",");
      if (parts.length !== 3 || parts[1] === NO_MODULE) continue;
      path = modulePath(parts[1]);
      this.addClass(path, parts[2]);
    }
    this.stacks.set(stack, path);
    return path;
  }

  private addClass(path: string, name: string): void {
    if (!this.classes.get(path)) this.classes.set(path, name);
  }
}

const MAX_LISTED = 10; // of what warnings name
const MAX_ENTRIES = 100; // of versions and ranges
const PROGRAM = "serialized_exported_program.json"; // of torch before 2.8
const FORMAT = "archive_format";

type Role = TensorRecord["role"];

/** Kinds of inputs by torch/_export/serde/schema.py's InputSpec: the key of the state-dict name, and the tensor's role. */
const STATE: ReadonlyMap<string, readonly [key: string, role: Role]> = new Map([
  ["parameter", ["parameter_name", "parameter"]],
  ["buffer", ["buffer_name", "buffer"]],
  ["tensor_constant", ["tensor_constant_name", "constant"]]
]);
const FOLDERS: readonly (readonly [folder: string, kind: string, role: Role])[] = [
  ["data/weights/", "weights", "buffer"],
  ["data/constants/", "constants", "constant"]
];

/** What the inputs of the graph are: tensors of the state by their names, with roles, and what the user passes. */
interface Signature {
  readonly states: Map<string, string>;
  readonly roles: Map<string, Role>;
  readonly inputs: string[];
  readonly outputs: unknown[];
}

/** Whether an archive is one of torch.export, by the names of what is in it. */
export const isPt2 = (archive: Archive) => archive.has(FORMAT) || archive.has(PROGRAM) || modelsOf(archive).length > 0;

/** What is in an archive of torch.export: weights and constants, the graph, modules and metadata. */
export async function readPt2(archive: Archive): Promise<FileContents> {
  const models = modelsOf(archive);
  const member = models[0] ?? PROGRAM;
  ensure(archive.has(member), "no program of torch.export");
  const program = mapping(parseJson(await archive.read(member), "the program"));
  const module = mapping(required(program, "graph_module"));
  const graph = mapping(required(module, "graph"));
  const signature = signatureOf(mapping(required(module, "signature")));
  const model = models.length > 0 ? member.slice(member.lastIndexOf("/") + 1, -".json".length) : "";
  const payloads = new Payloads(archive, signature);
  const tensors = await payloads.tensors(model, mapping(graph.tensor_values));
  const reader = new ProgramReader(signature.states);
  const operators = reader.graph(graph, signature.inputs, signature.outputs);
  const others = models.length > 1 ? [`${namesText(models.slice(1))} of the same archive are not shown`] : [];
  return {
    format: "pt2",
    title: "",
    metadata: metadataOf(program),
    tensors,
    modules: reader.modules(module.module_call_graph),
    graph: operators,
    classes: [],
    warnings: [...others, ...payloads.warnings, ...picklesOf(archive)]
  };
}

/** The programs in an archive; one named "model" is what `torch.export.save` writes, and comes first. */
function modelsOf(archive: Archive): string[] {
  const found = archive.names.filter(name => name.startsWith("models/") && name.endsWith(".json"));
  const isFirst = (name: string) => name === "models/model.json";
  return [...found.filter(isFirst), ...found.filter(name => !isFirst(name)).sort()];
}

function signatureOf(signature: Fields): Signature {
  const found: Signature = { states: new Map(), roles: new Map(), inputs: [], outputs: [] };
  for (const [kind, spec] of listed(signature.input_specs).flatMap(entry => Object.entries(mapping(entry)))) {
    const [key, role] = STATE.get(kind) ?? ["", null];
    if (key !== "") {
      const name = text(required(mapping(spec), key));
      found.states.set(text(required(mapping(required(mapping(spec), "arg")), "name")), name);
      found.roles.set(name, role);
    } else if (kind === "user_input") {
      for (const name of namesOf(required(mapping(spec), "arg"))) found.inputs.push(name);
    }
  }
  for (const [kind, spec] of listed(signature.output_specs).flatMap(entry => Object.entries(mapping(entry)))) {
    const isOutput = kind === "user_output" || kind === "loss_output";
    if (isOutput) found.outputs.push(required(mapping(spec), "arg"));
  }
  return found;
}

/** A tensor that the archive lists, and the member that has its elements. */
interface Payload {
  readonly name: string;
  readonly meta: Fields;
  readonly member: string | null;
  readonly role: Role;
}

/** The tensors of an archive; `warnings` tell of those that are pickles. */
class Payloads {
  readonly warnings: string[] = [];

  constructor(
    private readonly archive: Archive,
    private readonly signature: Signature
  ) {}

  /** The tensors that the archive lists, and those that the program alone tells of. */
  async tensors(model: string, values: Fields): Promise<TensorRecord[]> {
    const found = new Map<string, Payload>();
    for (const [folder, kind, role] of FOLDERS) {
      const config = `${folder}${model}_${kind}_config.json`;
      const entries = this.archive.has(config) ? await this.entriesOf(config) : {};
      for (const [name, entry] of Object.entries(entries)) {
        if (!found.has(name)) this.add(found, name, mapping(entry), folder, role);
      }
    }
    for (const [value, name] of this.signature.states) {
      const isNew = !found.has(name) && Object.prototype.hasOwnProperty.call(values, value);
      const role = this.signature.roles.get(name) ?? null;
      if (isNew) found.set(name, { name, meta: mapping(values[value]), member: null, role });
    }
    const payloads = [...found.values()];
    const members = new Set(payloads.flatMap(({ member }) => member ?? []));
    const places = await this.archive.offsets([...members]);
    return payloads.map(payload => this.record(payload, places));
  }

  private async entriesOf(config: string): Promise<Fields> {
    const content = mapping(parseJson(await this.archive.read(config), "the list of weights"));
    return mapping(required(content, "config"));
  }

  private add(found: Map<string, Payload>, name: string, entry: Fields, folder: string, role: Role): void {
    const isPickle = Boolean(entry.use_pickle);
    if (isPickle) this.warnings.push(`${excerpt(name)} is stored as a pickle, which loading it would run`);
    if (entry.tensor_meta === null || entry.tensor_meta === undefined) return;
    const own = this.signature.roles.get(name) ?? (entry.is_param ? "parameter" : role);
    const member = isPickle ? null : folder + text(required(entry, "path_name"));
    found.set(name, { name, meta: mapping(entry.tensor_meta), member, role: own });
  }

  private record({ name, meta, member, role }: Payload, places: ReadonlyMap<string, number | null>): TensorRecord {
    const [shape, size] = [fixedShape(meta), bytesOf(meta.dtype)];
    const told = fixedShape(meta, "strides");
    const isOwn = told.length === shape.length && told.some((stride, at) => stride !== contiguous(shape, told)[at]);
    const strides = isOwn ? told : null;
    const offset = member === null ? null : this.placeOf(name, member, meta, reach(shape, strides), places);
    const nbytes = product(shape, () => excerpt(name)) * size;
    return { name, shape, dtype: dtypeOf(meta.dtype), nbytes, offset, file: "", strides, role };
  }

  /** Where the first of a tensor's elements is, in a member that has to hold all of them. */
  private placeOf(
    name: string,
    member: string,
    meta: Fields,
    elements: number,
    places: ReadonlyMap<string, number | null>
  ): number | null {
    const size = bytesOf(meta.dtype);
    const first = integer(mapping(meta.storage_offset).as_int ?? 0);
    const fits = first >= 0 && (first + elements) * size <= this.archive.size(member);
    ensure(fits, () => `${excerpt(name)} ends after ${excerpt(member)}`);
    const start = places.get(member) ?? null;
    return start === null ? null : start + first * size;
  }
}

/** How many elements lie from the first of a tensor to its last. */
function reach(shape: readonly number[], strides: readonly number[] | null): number {
  const elements = product(shape, () => "a tensor");
  if (strides === null || elements === 0) return elements;
  return 1 + shape.reduce((total, size, at) => total + (size - 1) * strides[at], 0);
}

/** The strides that a contiguous tensor has; for dimensions that are never stepped along, those of `like`. */
function contiguous(shape: readonly number[], like: readonly number[]): number[] {
  const strides = [...like];
  let step = 1;
  for (let at = shape.length - 1; at >= 0; at--) {
    if (shape[at] > 1) strides[at] = step;
    step *= Math.max(shape[at], 1);
  }
  return strides;
}

function metadataOf(program: Fields): Record<string, Plain> {
  const version = mapping(program.schema_version);
  const opsets = firstOf(program, "opset_version").map(([name, number]) => `${name} ${String(shortJson(number, ""))}`);
  const ranges = firstOf(program, "range_constraints").map(([name, limits]) => rangeText(name, mapping(limits)));
  const hasVersion = Object.keys(version).length > 0;
  const told: Record<string, string> = {
    producer: `torch ${shortText(text(program.torch_version ?? ""))}`.trim(),
    schema: hasVersion ? shortText(`${wordOf(version.major)}.${wordOf(version.minor)}`) : "",
    opset: shortText(opsets.join(", ")),
    dynamic_sizes: shortText(ranges.join(", "))
  };
  return Object.fromEntries(Object.entries(told).filter(([, value]) => value !== ""));
}

const firstOf = (program: Fields, key: string) => Object.entries(mapping(program[key])).slice(0, MAX_ENTRIES);

const wordOf = (value: unknown) => (value === null || value === undefined ? "None" : String(shortJson(value, "")));

function rangeText(name: string, limits: Fields): string {
  const [low, high] = [shortJson(limits.min_val, ""), shortJson(limits.max_val, "")];
  return `${name} from ${String(low ?? 0)}${high === null ? "" : ` to ${String(high)}`}`;
}

/** What is in an archive that whoever loads it would unpickle. */
function picklesOf(archive: Archive): string[] {
  const found = archive.names.filter(name => name.endsWith(".pt"));
  return found.length > 0 ? [`loading it opens pickles in it: ${namesText(found)}`] : [];
}

function namesText(names: readonly string[]): string {
  const listed = names.slice(0, MAX_LISTED).map(name => excerpt(name));
  return listed.join(", ") + (names.length > MAX_LISTED ? ", …" : "");
}
