// What the side panel says of a forward pass: what went in and out of a module, and what it cost.

import type { Dataflow } from "../shared/dataflow";
import { dataflowOf } from "../shared/dataflow";
import { el, nameSpan } from "../shared/dom";
import { counted } from "../shared/format";
import type { Hierarchy } from "../shared/hierarchy";
import { Facts, section, table } from "./parts";

const MOST_KINDS = 8; // of calls that differ in their shapes
const FLOPS_HELP = "Floating-point operations in this module and everything inside; a multiply-add counts as two";

/** FLOPs, and beside them what has no formula: never a silent zero. */
export function addFlops(h: Hierarchy, facts: Facts, node: number): void {
  const flow = dataflowOf(h);
  const values = h.column("flops");
  if (!flow || !values) return;
  const value = values[node];
  const uncounted = [...flow.uncounted(node)].map(([name, count]) => (count > 1 ? `${name} ×${count}` : name));
  if (value !== null) {
    facts.number(
      uncounted.length ? "FLOPs, known" : "FLOPs",
      value,
      "flops",
      "",
      h.payload.columns.flops[node],
      FLOPS_HELP
    );
  } else if (uncounted.length === 0) {
    facts.text("FLOPs", "none: not called in this forward pass");
  }
  if (uncounted.length > 0) {
    facts.text("FLOPs unknown", uncounted.slice(0, 12).join(", ") + (uncounted.length > 12 ? ", …" : ""));
  }
}

/** What a module was called with and what it gave; calls of the same shapes once. */
export function trafficSection(flow: Dataflow, node: number): HTMLElement[] {
  const kinds = new Map<string, number[]>();
  flow.callsOf(node).forEach((call, at) => {
    const key = JSON.stringify(traffic(flow, call));
    kinds.set(key, [...(kinds.get(key) ?? []), at]);
  });
  const shown = [...kinds.values()].slice(0, MOST_KINDS);
  const content = shown.flatMap(calls => [
    ...(kinds.size > 1 ? [el("p", "mkg-panel-note", callNumbers(calls))] : []),
    trafficTable(flow, flow.callsOf(node)[calls[0]])
  ]);
  if (kinds.size > MOST_KINDS)
    content.push(el("p", "mkg-panel-note", `and ${kinds.size - MOST_KINDS} other kinds of calls`));
  if (content.length === 0) return [];
  const count = flow.callsOf(node).length;
  return [section(count > 1 ? `Input and output of ${counted(count, "call")}` : "Input and output", ...content)];
}

/** "call 1", "calls 1, 2 and 5" */
function callNumbers(calls: readonly number[]): string {
  const numbers = calls.slice(0, 8).map(at => String(at + 1));
  const rest = calls.length > 8 ? ["…"] : [];
  return `${calls.length > 1 ? "calls" : "call"} ${[...numbers, ...rest].join(", ")}`;
}

function traffic(flow: Dataflow, call: number): string[][] {
  const { inputs, outputs } = flow.payload.calls;
  const rows = (values: readonly number[], name: string) =>
    values.map((value, at) => [values.length > 1 ? `${name} ${at + 1}` : name, flow.shape(value), flow.dtype(value)]);
  return [...rows(inputs[call], "input"), ...rows(outputs[call], "output")];
}

function trafficTable(flow: Dataflow, call: number): HTMLElement {
  return typedTable(traffic(flow, call));
}

function typedTable(rows: readonly string[][]): HTMLElement {
  const element = table(
    ["", "Shape and type"],
    rows.map(([name, shape, type]) => {
      const value = el("span");
      value.append(nameSpan("mkg-code mkg-shape", shape), " ", nameSpan("mkg-dim", type));
      return [el("span", "", name), value];
    })
  );
  element.classList.add("mkg-traffic");
  return element;
}

/** The operator that was clicked. */
export function operatorSection(flow: Dataflow, step: number, more: readonly HTMLElement[] = []): HTMLElement {
  const { inputs } = flow.payload.steps;
  const facts = new Facts();
  const source = flow.source(step);
  const tensors = flow.tensorNames(step);
  const flops = flow.flops(step);
  if (tensors.length > 0) facts.text("Reads", tensors.join(", "), "mkg-code");
  // nothing is counted in a graph that was read from a file
  if (flops === null && flow.isCounted) facts.text("FLOPs", "unknown: no formula for this operator");
  else if (flops !== null) facts.number("FLOPs", flops, "flops", "", flow.payload.steps.flops[step], FLOPS_HELP);
  if (source) facts.text("Called at", source, "mkg-code");
  const row = (name: string) => (value: number) => [name, flow.shape(value), flow.dtype(value)];
  const given = flow.values(step).filter((value, at) => at === 0 || flow.isRead(value));
  const values = [...inputs[step].map(row("input")), ...given.map(row("output"))];
  const element = section("Operator", nameSpan("mkg-operator-name mkg-code", flow.fullName(step)), facts.list);
  element.classList.add("mkg-operator");
  element.dataset.mkgOperator = flow.fullName(step);
  if (values.length > 0) element.append(typedTable(values));
  element.append(...more);
  return element;
}
