// The operators of an exported program, from the JSON of its graph, with those of branches and loops.
// The operators of a subgraph, as a branch of `cond`, come before the operator that has it, which takes what they give.

import type { Fields } from "../shared/schema";
import { excess } from "./bounds";
import { Allowance, NO_MODULE, Occurrences, Scope, shortText, sourceOf, withoutDots } from "./graph_parts";
import { namesOf, settingOf } from "./pt2_arguments";
import { listed, mapping, modulePath, required, text, valueOf } from "./pt2_schema";
import type { ModulePart, OperatorGraph, OperatorRecord, Plain, ValueRecord } from "./records";

const DEEPEST = 30; // graphs within graphs
const PREFIX = "torch.ops.";
const MOST_MODULES = 100; // modules within modules

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
export class ProgramReader {
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
    if (depth >= DEEPEST) throw excess("graphs within graphs");
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
    for (const entry of stack.split(";", MOST_MODULES)) {
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
