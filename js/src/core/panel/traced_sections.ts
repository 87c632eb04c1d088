// Sections of the side panel for a traced model: inputs and outputs, cost, operators and axes.

import { type Dataflow, dataflowOf } from "../shared/model/dataflow";
import { button, el, nameSpan, setAttribute, iconButton } from "../shared/ui/dom";
import { exactNumber } from "../shared/base/format";
import type { Hierarchy } from "../shared/model/hierarchy";
import * as words from "../words/panel";
import { AxisRoles } from "./axis_roles";
import { breakable, Facts, folded, foldedWhenLong, section, shapeText, table } from "./parts";
import { type Axes, axesOf, type AxisTensor, type Part } from "../shared/model/axes";
import type { GraphStore } from "../shared/model/graph_store";

// Axes in the side panel: what the dimensions of a tensor are made of, and which axes run where.

const MAX_ROWS = 200; // lines of a list
const FEW = 5; // members that are shown at first; one more is no reason to hide any

/** The chosen axis with its members, all of them where `isWhole`; nothing when none is chosen. */
export function activeAxis(h: Hierarchy, store: GraphStore, isWhole: boolean): HTMLElement[] {
  const axes = axesOf(h);
  const axis = axes?.find(store.get("axis"));
  if (!axes || axis === undefined) return [];
  const head = el("div", "mkg-axis-head");
  const clear = iconButton("mkg-icon-button mkg-close", "close", words.CLEAR_GROUP);
  clear.dataset.mkgAxis = axes.name(axis); // a second click on an axis lets it go
  head.append(breakable("mkg-axis-name", axes.name(axis)), clear);
  const frozen = axes.frozen(axis);
  const line = el("div", "", words.sizeOf(exactNumber(axes.length(axis))));
  const role = axes.role(axis);
  if (role) line.append(" · ", nameSpan("", role));
  if (frozen === null) line.append(` · ${words.PRUNABLE}`);
  if (frozen === null) line.title = words.PRUNABLE_HELP;
  const reason = frozen === null ? [] : [nameSpan("mkg-axis-reason", words.fixed(frozen))];
  const flow = dataflowOf(h);
  const roles = flow && new AxisRoles(h, axes, flow, axis);
  const element = section(
    words.GROUP,
    head,
    line,
    ...reason,
    ...(roles?.legend() ?? []),
    memberList(h, axes, axis, isWhole, roles)
  );
  element.classList.add("mkg-active-axis");
  return [element];
}

function memberList(h: Hierarchy, axes: Axes, axis: number, isWhole: boolean, roles: AxisRoles | null): HTMLElement {
  const members = axes.members(axis);
  const isLong = members.length > FEW + 1;
  const list = el("ul", "mkg-members");
  list.classList.toggle("mkg-is-whole", isLong && isWhole);
  for (const member of members.slice(0, !isLong ? FEW + 1 : isWhole ? MAX_ROWS : FEW)) {
    const { node, tensor, dim } = member;
    const line = el("li");
    const role = words.ROLE_NAMES[roles?.roleOf(member) ?? "other"];
    const link = button("mkg-link", "", words.SELECT_MODULE);
    link.dataset.mkgTarget = String(node);
    link.append(breakable("", [h.path(node), tensor].filter(Boolean).join(".")));
    line.append(link, el("span", "mkg-dim", words.dimension(dim) + (role && ` · ${role}`)));
    list.append(line);
  }
  if (isWhole && members.length > MAX_ROWS)
    list.append(el("li", "mkg-dim", words.more(exactNumber(members.length - MAX_ROWS))));
  const element = el("div");
  element.append(el("div", "mkg-dim", words.tensors(members.length)), list);
  if (isLong) element.append(moreButton(members.length - FEW, axes.name(axis), isWhole));
  return element;
}

function moreButton(count: number, axis: string, isWhole: boolean): HTMLElement {
  const more = button("mkg-link mkg-members-more", isWhole ? words.FEWER : words.moreTensors(exactNumber(count)));
  more.dataset.mkgMembers = axis;
  more.setAttribute("aria-label", isWhole ? words.SHOW_FEWER : words.showMore(exactNumber(count)));
  more.setAttribute("aria-expanded", String(isWhole));
  return more;
}

/** The module's own tensors: shape, and every dimension by its axes. */
export function axisTensors(h: Hierarchy, axes: Axes, node: number, active: string | null): HTMLElement[] {
  const shapes = new Map(h.tensors(node).map(([name, role, shape]) => [name, { role, shape }]));
  const tensors = new Map(axes.tensors(node).map(tensor => [tensor.name, tensor]));
  const lines = [...shapes].map(([name, { role, shape }]) => {
    const line = el("div", "mkg-axis-tensor");
    const title = el("div", "mkg-axis-tensor-head");
    title.append(breakable("mkg-code", name), nameSpan("mkg-dim", shapeText(shape)));
    if (role === "buffer") title.append(el("span", "mkg-dim", words.BUFFER));
    line.append(title);
    const tensor = tensors.get(name);
    if (tensor && tensor.dims.length > 0) line.append(expression(axes, tensor, active));
    return line;
  });
  if (lines.length === 0) return [];
  const list = el("div");
  list.append(...lines);
  return [section(words.PARAMETERS, foldedWhenLong(lines.length, "tensor", list))];
}

/** "out=64 in=3 kernel=7 kernel_2=7" */
function expression(axes: Axes, tensor: AxisTensor, active: string | null): HTMLElement {
  const line = el("div", "mkg-expression mkg-code");
  for (const dim of tensor.dims) {
    const group = el("span", "mkg-expression-dim");
    group.append(...dim.map(part => partElement(axes, part, active)));
    line.append(group);
  }
  return line;
}

function partElement(axes: Axes, { text, axis }: Part, active: string | null): HTMLElement {
  if (axis === null) return el("span", "mkg-dim", text);
  const chip = axisButton("mkg-axis-chip", axes, axis, active);
  const end = text.lastIndexOf("="); // what the name may turn around is the name alone
  chip.append(nameSpan("", text.slice(0, end)), text.slice(end));
  return chip;
}

function axisButton(className: string, axes: Axes, axis: number, active: string | null): HTMLButtonElement {
  const name = axes.name(axis);
  const frozen = axes.frozen(axis);
  const element = button(className, "", words.groupTitle(name, axes.members(axis).length, frozen));
  element.dataset.mkgAxis = name;
  element.classList.toggle("mkg-is-frozen", frozen !== null);
  setAttribute(element, "aria-pressed", String(name === active));
  return element;
}

/** The axes that run in a module and below, free ones before frozen ones. */
export function axisList(axes: Axes, node: number, active: string | null): HTMLElement[] {
  const inside = axes.inside(node);
  if (inside.length === 0) return [];
  const free = inside.filter(axis => axes.frozen(axis) === null);
  const frozen = inside.filter(axis => axes.frozen(axis) !== null);
  const parts: HTMLElement[] = node === 0 ? [el("p", "mkg-panel-note", words.GROUPS_HELP)] : [];
  const fold = (summary: string, shown: readonly number[]) => {
    const isOpen = shown.some(axis => axes.name(axis) === active); // it was chosen there
    parts.push(folded(summary, () => list(axes, shown, active), isOpen));
  };
  if (free.length > 12) fold(words.prunableCount(exactNumber(free.length)), free);
  else if (free.length > 0) parts.push(list(axes, free, active));
  if (frozen.length > 0) fold(words.fixedCount(exactNumber(frozen.length)), frozen);
  return [section(node === 0 ? words.GROUPS : words.GROUPS_HERE, ...parts)];
}

function list(axes: Axes, shown: readonly number[], active: string | null): HTMLElement {
  const element = el("ul", "mkg-axes");
  for (const axis of shown.slice(0, MAX_ROWS)) {
    const line = el("li");
    const choose = axisButton("mkg-axis-line", axes, axis, active);
    choose.append(breakable("mkg-axis-name", axes.name(axis)), el("span", "mkg-dim", exactNumber(axes.length(axis))));
    line.append(choose, el("span", "mkg-dim", words.tensors(axes.members(axis).length)));
    const frozen = axes.frozen(axis);
    if (frozen) line.append(nameSpan("mkg-axis-reason", frozen));
    element.append(line);
  }
  if (shown.length > MAX_ROWS) element.append(el("li", "mkg-dim", words.more(exactNumber(shown.length - MAX_ROWS))));
  return element;
}

const MAX_KINDS = 8; // of calls that differ in their shapes

/** FLOPs, and beside them what has no formula: never a silent zero. */
export function addFlops(h: Hierarchy, facts: Facts, node: number): void {
  const flow = dataflowOf(h);
  const values = h.column("flops");
  if (!flow || !values) return;
  const value = values[node];
  const uncounted = [...flow.uncounted(node)].map(([name, count]) => (count > 1 ? `${name} ×${count}` : name));
  if (value !== null) {
    facts.number(
      uncounted.length ? words.FLOPS_KNOWN : words.FLOPS,
      value,
      "flops",
      "",
      h.payload.columns.flops[node],
      words.FLOPS_HELP
    );
  } else if (uncounted.length === 0) {
    const inside = flopsInside(h, node);
    if (inside === null) facts.text(words.FLOPS, words.NOT_CALLED);
    else facts.number(words.FLOPS, inside, "flops", words.SUM_OF_CHILDREN, inside, words.CHILDREN_CALLED);
  }
  if (uncounted.length > 0) {
    facts.text(words.FLOPS_UNKNOWN, uncounted.slice(0, 12).join(", ") + (uncounted.length > 12 ? ", …" : ""));
  }
}

/** What ran in the children of a list of modules, which are called one by one; null where none was called. */
function flopsInside(h: Hierarchy, node: number): number | null {
  const flops = h.column("flops");
  let sum: number | null = null;
  for (const child of h.children(node)) {
    const own = flops?.[child] ?? flopsInside(h, child);
    if (own !== null) sum = (sum ?? 0) + own;
  }
  return sum;
}

/** What a module was called with and what it gave; calls of the same shapes once. */
export function trafficSection(flow: Dataflow, node: number): HTMLElement[] {
  const kinds = new Map<string, number[]>();
  flow.callsOf(node).forEach((call, at) => {
    const key = JSON.stringify(traffic(flow, call));
    kinds.set(key, [...(kinds.get(key) ?? []), at]);
  });
  const shown = [...kinds.values()].slice(0, MAX_KINDS);
  const content = shown.flatMap(calls => [
    ...(kinds.size > 1 ? [el("p", "mkg-panel-note", callNumbers(calls))] : []),
    trafficTable(flow, flow.callsOf(node)[calls[0]])
  ]);
  if (kinds.size > MAX_KINDS) content.push(el("p", "mkg-panel-note", words.otherCalls(kinds.size - MAX_KINDS)));
  if (content.length === 0) return [];
  const count = flow.callsOf(node).length;
  return [section(words.trafficOf(count), ...content)];
}

/** "call 1", "calls 1, 2 and 5" */
function callNumbers(calls: readonly number[]): string {
  const numbers = calls.slice(0, 8).map(at => String(at + 1));
  const rest = calls.length > 8 ? ["…"] : [];
  return words.calls([...numbers, ...rest], calls.length === 1);
}

function traffic(flow: Dataflow, call: number): string[][] {
  const rows = (kind: "inputs" | "outputs", named: (name: string, number: number) => string) => {
    const values = flow.payload.calls[kind][call];
    const names = flow.namesOf(call, kind);
    return values.map((value, at) => {
      return [named(names[at], values.length > 1 ? at + 1 : 0), flow.shape(value), flow.dtype(value)];
    });
  };
  return [...rows("inputs", words.inputName), ...rows("outputs", words.outputName)];
}

function trafficTable(flow: Dataflow, call: number): HTMLElement {
  return typedTable(traffic(flow, call));
}

function typedTable(rows: readonly string[][]): HTMLElement {
  const element = table(
    ["", words.SHAPE_AND_TYPE],
    rows.map(([name, shape, type]) => {
      const value = el("span");
      value.append(nameSpan("mkg-code mkg-shape", shape), " ", nameSpan("mkg-dim", type));
      return [breakable("", name), value];
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
  if (tensors.length > 0) facts.text(words.READS, tensors.join(", "), "mkg-code");
  // nothing is counted in a graph that was read from a file
  if (flops === null && flow.isCounted) facts.text(words.FLOPS, words.NO_FORMULA);
  else if (flops !== null)
    facts.number(words.FLOPS, flops, "flops", "", flow.payload.steps.flops[step], words.FLOPS_HELP);
  if (source) facts.text(words.CALLED_AT, source, "mkg-code");
  const row = (name: string) => (value: number) => [name, flow.shape(value), flow.dtype(value)];
  const given = flow.values(step).filter((value, at) => at === 0 || flow.isRead(value));
  const values = [...inputs[step].map(row("input")), ...given.map(row("output"))];
  const element = section(words.OPERATOR, nameSpan("mkg-operator-name mkg-code", flow.fullName(step)), facts.list);
  element.classList.add("mkg-operator");
  element.dataset.mkgOperator = flow.fullName(step);
  if (values.length > 0) element.append(typedTable(values));
  element.append(...more);
  return element;
}
