// The modules that an ONNX file tells of: by metadata that `torch.onnx` writes on nodes, or by the names of nodes, which
// the older exporter makes of the calls, as "/layer1/layer1.0/conv1/Conv". Files of others tell of none.

import { limitExceeded } from "../bytes/limits";
import { NO_MODULE } from "../bytes/graph_building";
import { roleOf } from "../tree/structures";
import { pathIn, Paths } from "../tree/tensor_owners";
import type { ModulePart, OperatorRecord, TensorRecord } from "../bytes/records";
import { push } from "../../shared/base/multimap";

const MAX_LIST_LENGTH = 20_000; // characters of a list in the metadata
const MAX_DEPTH = 64; // calls within calls
const MAX_PATH_DEPTH = 200; // modules within modules
const MAX_PATH_LENGTH = 4_000; // characters
const MAX_PATH_CHARACTERS = 128 * 2 ** 20; // of all paths that are looked at
const MAX_LISTED = 4_000_000; // texts of all lists
const REPEATED = /_\d{1,6}$/;

/** What an operator's module is known by: the file tells it, nothing does, or the body or function that it is in. */
export type NameSource = "told" | "free" | "fixed";

/** The modules of one file, as its nodes come to tell of them. */
export class Modules {
  private readonly classes = new Map<string, string>();
  private readonly withTensors = new Set<string>();
  private readonly called = new Map<string, string>();
  private readonly paths = new Set<string>(); // of what was called
  private readonly told = new Map<string, Map<string, string | null>>(); // by scopes and classes: functions are read often
  private lettersLeft = MAX_PATH_CHARACTERS;
  private listedLeft = MAX_LISTED;

  /**
   * The modules that were told and have operators or tensors, themselves or inside: a body may be empty, and a module
   * whose operators were folded into another's weights has none left.
   */
  parts(tensors: readonly TensorRecord[], operators: readonly OperatorRecord[]): ModulePart[] {
    const known = new Paths([...operators.map(({ module }) => module), ...tensors.map(({ name }) => pathIn(name))]);
    const told = [...this.classes].filter(([path]) => path === "" || known.has(path));
    return told.map(([path, className]) => ({ path, className, settings: {} }));
  }

  /** Notes modules that surely are there, by the names of their tensors. */
  hold(tensors: Iterable<string>): void {
    for (const tensor of tensors) {
      if (!isPath(tensor)) continue;
      let path = outerOf(tensor);
      while (path !== "" && !this.withTensors.has(path)) {
        this.spend(path.length);
        this.withTensors.add(path);
        path = outerOf(path);
      }
    }
  }

  /** Notes a module, if it is not known. */
  add(path: string, className = ""): string {
    if (!this.classes.get(path)) this.classes.set(path, className);
    return path;
  }

  /** The path of the module that a node runs in, by what the exporter wrote on it; null where it did not. */
  ofMetadata(scopes: string | null, classes: string | null): string | null {
    if (scopes === null || classes === null) return null;
    let known = this.told.get(scopes);
    if (known === undefined) this.told.set(scopes, (known = new Map<string, string | null>()));
    let path = known.get(classes);
    if (path === undefined) known.set(classes, (path = this.ofLists(this.listed(scopes), this.listed(classes))));
    return path;
  }

  private ofLists(paths: readonly string[], names: readonly string[]): string | null {
    if (paths.length !== names.length || paths.length < 2) return null; // what comes last is the operator itself
    if (paths[paths.length - 2] === NO_MODULE) return null;
    paths.slice(0, -1).forEach((path, at) => this.add(path, names[at]));
    return paths[paths.length - 2];
  }

  /** The texts of a list as Python writes it. */
  private listed(text: string): string[] {
    const matches = text.slice(0, MAX_LIST_LENGTH).matchAll(/'([^'\\]*)'|"([^"\\]*)"/g);
    const found = Array.from(matches, match => match[1] || match[2] || "");
    this.listedLeft -= found.length;
    if (this.listedLeft < 0) throw limitExceeded("modules on its operators");
    return found;
  }

  private spend(letters: number): void {
    this.lettersLeft -= letters;
    if (this.lettersLeft < 0) throw limitExceeded("letters of paths");
  }

  /** The path of the module that a node runs in, by a name as "/layer1/layer1.0/conv1/Conv". */
  ofName(name: string): string | null {
    if (!name.startsWith("/") || !isPath(name)) return null;
    const calls = name.slice(1).split("/").slice(0, -1);
    const path = calls.length <= MAX_DEPTH ? this.pathOf(calls) : "";
    return path === "" ? null : this.add(path);
  }

  private pathOf(calls: readonly string[]): string {
    const key = calls.join("/");
    this.spend(key.length);
    const known = calls.length === 0 ? "" : this.called.get(key);
    if (known !== undefined) return known;
    const path = this.firstCall(this.pathOf(calls.slice(0, -1)), localName(calls));
    this.called.set(key, path);
    this.paths.add(path);
    return path;
  }

  /** The path of a module in another; later calls of a module have numbers behind its name, as "relu_1". */
  private firstCall(outer: string, own: string): string {
    const path = outer === "" ? own : `${outer}.${own}`;
    const first = path.replace(REPEATED, "");
    const isCall = !this.withTensors.has(path) && (this.paths.has(first) || this.withTensors.has(first));
    return isCall ? first : path;
  }
}

/** Whether a name may have the path of a module in it: no model has modules that are as deep. */
const isPath = (name: string) =>
  name.length <= MAX_PATH_LENGTH && name.split(".", MAX_PATH_DEPTH + 2).length <= MAX_PATH_DEPTH + 1;

const outerOf = (path: string) => path.slice(0, Math.max(path.lastIndexOf("."), 0));

/** The name that a module has in the one that calls it; a child of a container has the container's before it. */
function localName(calls: readonly string[]): string {
  const last = calls[calls.length - 1];
  const caller = calls[calls.length - 2];
  if (caller === undefined) return last;
  const outer = [caller, caller.replace(REPEATED, "")].find(each => last.startsWith(`${each}.`));
  return outer === undefined ? last : last.slice(outer.length + 1);
}

/**
 * The operators, each in the module whose weights it reads, whatever the exporter wrote on it. Who folds a normalisation
 * into the convolution before it leaves one operator in the module of the former, with the weights of the latter. A
 * weight in whose own module nothing reads weights draws those that read it there, but out of one other module at most:
 * weights that several share are of none of them. What no module is told of, and stands between operators that were
 * drawn into one, goes with them.
 */
export function withTheirWeights(
  operators: readonly OperatorRecord[],
  standings: readonly NameSource[],
  tensors: readonly TensorRecord[],
  outputs: readonly string[]
): OperatorRecord[] {
  const drawn = modulesByWeights(operators, standings, tensors);
  if (drawn.size === 0) return [...operators];
  const names = new Set(tensors.map(({ name }) => name));
  for (const [at, module] of between(operators, standings, drawn, new Set(outputs), names)) drawn.set(at, module);
  return operators.map((each, at) => ({ ...each, module: drawn.get(at) ?? each.module }));
}

/** The modules of operators that weights draw to them, by the operators' places. */
function modulesByWeights(
  operators: readonly OperatorRecord[],
  standings: readonly NameSource[],
  tensors: readonly TensorRecord[]
): Map<number, string> {
  const owned = new Map(tensors.filter(({ role }) => role !== "constant").map(each => [each.name, each]));
  const pathOf = (name: string) => (owned.has(name) ? pathIn(name) : "");
  const numbers = new Set(tensors.filter(each => roleOf("", each) === "parameter").map(({ name }) => name));
  const withWeights = operators.filter(({ inputs }) => inputs.some(name => numbers.has(name)));
  const called = new Paths(withWeights.map(({ module }) => module)); // with weights of their own
  const readers = new Map<string, number[]>();
  operators.forEach(({ inputs }, at) => {
    for (const name of new Set(inputs)) {
      if (pathOf(name) === "") continue;
      push(readers, name, at);
    }
  });
  const weights = new Map<number, Map<string, number>>(); // bytes by module, of each operator
  for (const [name, places] of readers) {
    const path = pathIn(name);
    const others = new Set(places.map(at => operators[at].module).filter(module => !isIn(path, module)));
    if (called.has(path) || others.size > 1 || places.some(at => standings[at] === "fixed")) continue;
    for (const at of places) {
      let found = weights.get(at);
      if (found === undefined) weights.set(at, (found = new Map<string, number>()));
      found.set(path, (found.get(path) ?? 0) + (owned.get(name)?.nbytes ?? 0));
    }
  }
  const keeps = ({ module, inputs }: OperatorRecord) => module !== "" && inputs.some(name => pathOf(name) === module);
  const moved = [...weights].filter(([at]) => !keeps(operators[at]));
  return new Map(moved.map(([at, found]) => [at, largest(found)]));
}

/** The key of the largest number, the first of several. */
function largest(numbers: ReadonlyMap<string, number>): string {
  let [most, size] = ["", -1];
  for (const [key, number] of numbers) if (number > size) [most, size] = [key, number];
  return most;
}

const isIn = (path: string, outer: string) => outer === "" || path === outer || path.startsWith(`${outer}.`);

/** Operators without a module of which all that they read and all that reads them was drawn into one module. */
function between(
  operators: readonly OperatorRecord[],
  standings: readonly NameSource[],
  drawn: ReadonlyMap<number, string>,
  outputs: ReadonlySet<string>,
  tensors: ReadonlySet<string>
): [number, string][] {
  const madeBy = new Map(
    operators.flatMap(({ outputs: names }, at) => names.map((name): [string, number] => [name, at]))
  );
  const reads = operators.map(({ inputs }) => inputs.filter(name => !tensors.has(name)).map(name => madeBy.get(name)));
  const readBy = operators.map((): (number | undefined)[] => []);
  reads.forEach((sources, at) => {
    for (const source of sources) if (source !== undefined) readBy[source].push(at);
  });
  for (const name of outputs) {
    const at = madeBy.get(name);
    if (at !== undefined) readBy[at].push(undefined);
  }
  const [before, after] = [new Map(drawn), new Map(drawn)];
  const spread = (found: Map<number, string>, beside: readonly (number | undefined)[], at: number) => {
    if (standings[at] !== "free" || drawn.has(at)) return;
    const modules = new Set(beside.map(other => (other === undefined ? "" : (found.get(other) ?? ""))));
    const [module] = modules;
    if (modules.size === 1) found.set(at, module);
  };
  for (let at = 0; at < reads.length; at++) spread(before, reads[at], at);
  for (let at = reads.length - 1; at >= 0; at--) spread(after, readBy[at], at);
  return [...before].filter(([at, module]) => module !== "" && module === after.get(at));
}
