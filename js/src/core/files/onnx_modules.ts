// The modules that an ONNX file tells of: by metadata that `torch.onnx` writes on nodes, or by the names of nodes, which
// the older exporter makes of the calls, as "/layer1/layer1.0/conv1/Conv". Files of others tell of none.

import { NO_MODULE } from "./graph_parts";
import type { ModulePart } from "./records";

const LONGEST_LIST = 20_000; // characters of a list in the metadata
const DEEPEST = 64; // calls within calls
const REPEATED = /_\d{1,6}$/;

/** The modules of one file, as its nodes come to tell of them. */
export class Modules {
  private readonly classes = new Map<string, string>();
  private readonly withTensors = new Set<string>();
  private readonly called = new Map<string, string>();
  private readonly paths = new Set<string>(); // of what was called

  parts(): ModulePart[] {
    return [...this.classes].map(([path, className]) => ({ path, className, settings: {} }));
  }

  /** Notes modules that surely are there, by the names of their tensors. */
  hold(tensors: Iterable<string>): void {
    for (const tensor of tensors) {
      let path = outerOf(tensor);
      while (path !== "" && !this.withTensors.has(path)) {
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
    const [paths, names] = [listed(scopes), listed(classes)];
    if (paths.length !== names.length || paths.length < 2) return null; // what comes last is the operator itself
    if (paths[paths.length - 2] === NO_MODULE) return null;
    paths.slice(0, -1).forEach((path, at) => this.add(path, names[at]));
    return paths[paths.length - 2];
  }

  /** The path of the module that a node runs in, by a name as "/layer1/layer1.0/conv1/Conv". */
  ofName(name: string): string | null {
    if (!name.startsWith("/") || name.length > LONGEST_LIST) return null;
    const calls = name.slice(1).split("/").slice(0, -1);
    const path = calls.length <= DEEPEST ? this.pathOf(calls) : "";
    return path === "" ? null : this.add(path);
  }

  private pathOf(calls: readonly string[]): string {
    const key = calls.join("/");
    const known = calls.length === 0 ? "" : this.called.get(key);
    if (known !== undefined) return known;
    const path = this.firstCall(this.pathOf(calls.slice(0, -1)), ownName(calls));
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

const outerOf = (path: string) => path.slice(0, Math.max(path.lastIndexOf("."), 0));

/** The name that a module has in the one that calls it; a child of a container has the container's before it. */
function ownName(calls: readonly string[]): string {
  const last = calls[calls.length - 1];
  const caller = calls[calls.length - 2];
  if (caller === undefined) return last;
  const outer = [caller, caller.replace(REPEATED, "")].find(each => last.startsWith(`${each}.`));
  return outer === undefined ? last : last.slice(outer.length + 1);
}

/** The texts of a list as Python writes it. */
function listed(text: string): string[] {
  const found = text.slice(0, LONGEST_LIST).matchAll(/'([^'\\]*)'|"([^"\\]*)"/g);
  return Array.from(found, match => match[1] || match[2] || "");
}
