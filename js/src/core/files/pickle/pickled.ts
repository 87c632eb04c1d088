// The contents of a pickled model: tensors by dotted names, modules with classes and settings, plain values.

import { limitExceeded } from "../bytes/limits";
import { ObjectRecord, Persistent, Tuple, type Dict, type Value } from "./pickle";
import { argsOf, classPath, costOf, keyText, plain } from "./pickled_plain";
import type { TensorInfo, Tensors } from "./pickled_tensors";
import type { ModulePart, Plain, TensorRecord } from "../bytes/records";

const MAX_TENSORS = 120_000;
const MAX_VISITED = 2_500_000; // values, each as often as it is reached
const NUMBERS = 4; // of a list that are looked at in the time of a value that is passed over
const COST = 8; // of going into a value, in values that are passed over
const MAX_METADATA = 200;
const MAX_DEPTH = 100; // of values in values
const MAX_METADATA_DEPTH = 3;
const MAX_NAME_LENGTH = 1_000;
const MAX_NAMES = 64 * 2 ** 20; // characters of all names
const [STATE, GROUPS] = ["state", "param_groups"]; // what an optimizer's state has, and nothing else of a model
const MAX_OPTIMIZER_ENTRIES = 16; // entries, of which one has what it remembers of parameters
export const SCRIPTED = "__torch__.";

/** What a TorchScript archive tells of a class: its name without marks, which tensors are what, and constants. */
export interface ScriptedClass {
  readonly name: string;
  readonly parameters: ReadonlySet<string>;
  readonly buffers: ReadonlySet<string>;
  readonly constants: ReadonlyMap<string, Plain>;
}

/** A class of which nothing but its name is told. */
export const onlyNamed = (name: string): ScriptedClass => ({
  name,
  parameters: new Set(),
  buffers: new Set(),
  constants: new Map()
});

type Role = TensorRecord["role"];
type Pair = readonly [Value, Value];

/**
 * Goes through what a pickle makes, and collects tensors, modules, metadata and warnings. Values that are reached on
 * several ways are listed by each of them, and no value is followed into itself.
 */
export class Inventory {
  readonly tensors: TensorRecord[] = [];
  readonly modules: ModulePart[] = [];
  readonly metadata = new Map<string, Plain>();
  warnings: readonly string[] = [];
  private left = MAX_VISITED;
  private letters = MAX_NAMES;
  private isInOptimizer = false;
  private readonly above = new Set<Value>(); // the values that the one at hand is in
  private readonly names = new Set<string>();
  private readonly told = new Map<Value, Plain>(); // what is reached often is told once
  private readonly keys = new Map<Value, string>();

  constructor(
    private readonly found: Tensors,
    private readonly scripted: (maker: Value) => ScriptedClass = maker => onlyNamed(classPath(maker))
  ) {}

  /** Lists what is in a value at a dotted path. */
  add(value: Value, path = "", role: Role = null): void {
    this.spend(COST);
    const found = this.found.of(value);
    if (found !== null) {
      this.addTensor(path, found, role);
    } else if (this.above.size >= MAX_DEPTH) {
      if (!this.above.has(value)) this.warnings = [`values nested more than ${MAX_DEPTH} deep are not listed`];
    } else if (!this.above.has(value)) {
      this.above.add(value);
      this.addInner(value, path);
      this.above.delete(value);
    }
  }

  private addTensor(path: string, found: TensorInfo, role: Role): void {
    const name = this.unused(path || "tensor"); // one that was saved alone has no name
    this.letters -= name.length;
    if (this.tensors.length >= MAX_TENSORS || this.letters < 0) throw limitExceeded("tensors, or letters of names");
    this.names.add(name);
    const told = this.isInOptimizer ? "buffer" : (role ?? found.role);
    this.tensors.push({ ...found, name, file: "", role: told });
  }

  private spend(values: number): void {
    this.left -= values;
    if (this.left < 0) throw limitExceeded("values that it refers to");
  }

  private unused(path: string): string {
    let name = path;
    while (this.names.has(name)) {
      this.spend(1);
      name = `${name}#${this.tensors.length}`;
    }
    return name;
  }

  private addInner(value: Value, path: string): void {
    if (!(value instanceof ObjectRecord)) {
      this.addMembers(value, path);
    } else if (classOf(value).startsWith(SCRIPTED) && value.state instanceof Map) {
      this.addScripted(value, value.state, path);
    } else {
      const state = moduleState(value);
      if (state !== null) this.addModule(classOf(value), state, path);
      else this.addMembers(value, path);
    }
  }

  private addMembers(value: Value, path: string): void {
    const members = this.members(value);
    const around = this.isInOptimizer;
    const isOptimizer = isOptimizerState(members.slice(0, MAX_OPTIMIZER_ENTRIES).map(([name]) => name));
    for (const [name, member] of members) {
      if (this.addPlain(name, member, path) || !isHolder(member)) continue;
      this.isInOptimizer = around || (isOptimizer && name === STATE);
      this.add(member, this.joined(path, name));
    }
    this.isInOptimizer = around;
  }

  /** Whether a member is told as text or number, once for all. */
  private addPlain(name: Value, member: Value, path: string): boolean {
    if (this.above.size > MAX_METADATA_DEPTH || this.metadata.size >= MAX_METADATA) return false;
    const told = this.plain(member);
    if (told === null && member !== null) return false;
    const key = this.joined(path, name);
    if (!this.metadata.has(key)) this.metadata.set(key, told);
    return true;
  }

  private plain(member: Value): Plain {
    let told = this.told.get(member);
    if (told === undefined) {
      this.spend(Math.floor(costOf(member) / NUMBERS));
      told = plain(member);
      if (typeof member === "object") this.told.set(member, told);
    }
    return told;
  }

  private joined(path: string, key: Value): string {
    const text = typeof key === "string" ? key : this.keyText(key);
    const name = path === "" ? text : `${path}.${text}`;
    if (name.length > MAX_NAME_LENGTH) throw limitExceeded("letters of a name");
    return name;
  }

  private keyText(key: Value): string {
    let text = this.keys.get(key);
    if (text === undefined) {
      this.spend(Math.floor(costOf(key) / NUMBERS));
      text = keyText(key);
      if (typeof key === "object") this.keys.set(key, text);
    }
    return text;
  }

  /** The names and values in a container, or the attributes of an object and what was put into it. */
  private members(value: Value | undefined): Pair[] {
    if (value instanceof ObjectRecord) this.spend(argumentsOf(value).length);
    const pairs = value instanceof ObjectRecord ? pairsOf(value) : plainPairs(value ?? null);
    this.spend(pairs.length);
    return pairs;
  }

  private addModule(className: string, state: Dict, path: string): void {
    const settings = this.settings(state);
    this.modules.push({ path, className, settings: Object.fromEntries(settings) });
    for (const [place, role] of MODULE_PARTS) {
      for (const [name, member] of this.members(state.get(place))) {
        if (isHolder(member)) this.add(member, this.joined(path, name), role);
      }
    }
    for (const [name, member] of this.members(state)) {
      // torch's own attributes, as _flat_weights of LSTM, repeat what is listed
      const isOwn = typeof name === "string" && (name.startsWith("_") || settings.has(name));
      if (isHolder(member) && !isOwn) this.add(member, this.joined(path, name));
    }
  }

  private addScripted(module: ObjectRecord, state: Dict, path: string): void {
    const known = this.scripted(module.maker);
    const settings = new Map([...known.constants, ...this.settings(state)]);
    this.modules.push({ path, className: known.name, settings: Object.fromEntries(settings) });
    for (const [name, member] of this.members(state)) {
      if (!isHolder(member) || (typeof name === "string" && settings.has(name))) continue;
      this.add(member, this.joined(path, name), roleOf(known, name));
    }
  }

  private settings(state: Dict): Map<string, Plain> {
    const settings = new Map<string, Plain>();
    for (const [name, member] of this.members(state)) {
      if (typeof name !== "string" || name.startsWith("_") || name === "training") continue;
      const told = this.plain(member);
      if (told !== null || member === null) settings.set(name.slice(0, MAX_NAME_LENGTH), told);
    }
    return settings;
  }
}

/** Whether a dict of such keys is the state of an optimizer, whose tensors are no parameters of the model. */
const isOptimizerState = (names: readonly Value[]) => names.includes(STATE) && names.includes(GROUPS);

const MODULE_PARTS: readonly (readonly [string, Role])[] = [
  ["_parameters", "parameter"],
  ["_buffers", "buffer"],
  ["_modules", null]
];

function roleOf({ parameters, buffers }: ScriptedClass, name: Value): Role {
  if (typeof name !== "string") return null;
  return parameters.has(name) ? "parameter" : buffers.has(name) ? "buffer" : null;
}

const isHolder = (value: Value) =>
  value instanceof ObjectRecord ||
  value instanceof Persistent ||
  value instanceof Map ||
  Array.isArray(value) ||
  value instanceof Tuple;

const MAKERS: readonly string[] = ["copyreg._reconstructor", "copyreg.__newobj__", "copyreg.__newobj_ex__"];
const DICTS: readonly string[] = [
  "collections.OrderedDict",
  "collections.defaultdict",
  "collections.Counter",
  "builtins.dict"
];

/** The path of the class of an object, which protocols 0 and 1 pass to a function. */
export function classOf(made: ObjectRecord): string {
  const path = classPath(made.maker);
  const args = argsOf(made);
  return MAKERS.includes(path) && args.length > 0 ? classPath(args[0]) : path;
}

/** The attributes of a module, which a traced one of torch.fx passes to a function; null for no module. */
function moduleState(made: ObjectRecord): Dict | null {
  for (const state of [made.state, argsOf(made)[0]]) {
    if (!(state instanceof Map) || !state.has("_parameters")) continue;
    const modules = state.get("_modules");
    if (modules instanceof Map || modules instanceof ObjectRecord) return state;
  }
  return null;
}

function plainPairs(value: Value): Pair[] {
  if (value instanceof Map) return [...value];
  if (Array.isArray(value)) return value.map((member, at): Pair => [at, member]);
  if (value instanceof Tuple) return value.items.map((member, at): Pair => [at, member]);
  return value instanceof ObjectRecord ? [["state", value]] : [];
}

function pairsOf(made: ObjectRecord): Pair[] {
  const path = classPath(made.maker);
  const args = argsOf(made);
  const inside = [...plainPairs(made.items), ...plainPairs(made.entries)];
  if (path.startsWith("torch.jit._pickle.") && args.length > 0) return [...plainPairs(args[0]), ...inside];
  if (DICTS.includes(path)) return [...recordPairs(made), ...inside];
  if (made.state === null) return [...plainPairs(made.args instanceof Tuple ? made.args : null), ...inside];
  return [...attributes(made.state).flatMap(plainPairs), ...inside];
}

/** Python 2 gives an ordered dict its pairs at once. */
function argumentsOf(made: ObjectRecord): readonly Value[] {
  const given = DICTS.includes(classPath(made.maker)) ? argsOf(made)[0] : null;
  return Array.isArray(given) ? given : [];
}

function recordPairs(made: ObjectRecord): Pair[] {
  const pairs = argumentsOf(made).map(pair => (pair instanceof Tuple ? pair.items : pair));
  return pairs.flatMap((pair): Pair[] => (Array.isArray(pair) && pair.length === 2 ? [[pair[0], pair[1]]] : []));
}

/** A state, or both of an object that has slots, too. */
function attributes(state: Value): readonly Value[] {
  if (!(state instanceof Tuple) || state.items.length !== 2) return [state];
  return state.items.every(part => part instanceof Map || part === null) ? state.items : [state];
}
