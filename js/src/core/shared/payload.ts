// The payload that the kernel sends: its types and its checks.

import {
  below,
  type Check,
  column,
  type Fields,
  isArrayOf,
  isCount,
  isInteger,
  isObject,
  isScalar,
  isString,
  isStrings,
  isValue,
  need,
  oneOf,
  PayloadError,
  tuple
} from "./payload_checks";
import { type AxesPayload, checkAxes, checkFlow, type FlowPayload } from "./payload_flow";

export { PayloadError } from "./payload_checks";

export type Scalar = string | number | boolean;
export type Value = number | string | null;
export type Tensor = [string, "parameter" | "buffer", number[] | null];
export type FoldRecord = [number, number, "exact" | "family", string];
export type LinkRecord = [number, string, number, "shared" | "cycle"];
export type TieRecord = [number, string, number, string];
export type EdgeRecord = [number, number, string]; // -1: the model's input or output
export type Aggregate = "sum" | "mean" | "own";
export type Status = "same" | "renamed" | "moved" | "changed" | "added" | "removed";

export interface Comparison {
  model: ModelPayload;
  left: Status[];
  right: Status[];
  pairs: [number, number][];
}

export interface ModelPayload {
  schema_version: 2;
  kind: "model";
  title: string;
  nodes: { name: string[]; parent: number[]; entity: number[] };
  columns: Record<string, Value[]>;
  column_info: Record<string, { label: string; aggregate: Aggregate }>;
  entities: {
    class: number[];
    name: string[];
    digest: string[];
    hyper: (Scalar | null)[][];
    tensors: Tensor[][];
  };
  classes: { name: string[]; qualified: string[]; source: (string | null)[]; fields: string[][] };
  folds: FoldRecord[];
  links: LinkRecord[];
  tied: TieRecord[];
  marks: Record<string, string[]>;
  edges: EdgeRecord[];
  traced: boolean;
  error: string | null; // why a forward pass could not be followed to its end
  flow: FlowPayload | null;
  axes: AxesPayload | null;
  compare: Comparison | null;
}

export const SCHEMA_VERSION = 2;
export const OTHER_VERSION =
  "This widget was made by another version of modulekg-widgets: restart the kernel and reload the page.";

const isTensor = tuple(isString, oneOf("parameter", "buffer"), shape => shape === null || isArrayOf(shape, isCount));

function checkNodes(nodes: unknown, entities: number): number {
  need(isObject(nodes) && Array.isArray(nodes.name) && nodes.name.length > 0, "nodes");
  const size = nodes.name.length;
  column(nodes, "name", size, isString);
  column(nodes, "parent", size, isInteger);
  column(nodes, "entity", size, below(entities));
  checkOrder(nodes.parent as number[]);
  return size;
}

/** Depth-first pre-order: a node's parent is the node before it or one of that node's ancestors. */
function checkOrder(parent: number[]): void {
  need(parent[0] === -1, "parent");
  for (let i = 1; i < parent.length; i++) {
    let open = i - 1;
    while (open >= 0 && open !== parent[i]) {
      open = parent[open];
    }
    need(open >= 0, "parent");
  }
}

function checkClasses(classes: unknown): string[][] {
  need(isObject(classes) && Array.isArray(classes.name), "classes");
  const size = classes.name.length;
  column(classes, "name", size, isString);
  column(classes, "qualified", size, isString);
  column(classes, "source", size, value => value === null || isString(value));
  column(classes, "fields", size, isStrings);
  return classes.fields as string[][];
}

function checkEntities(entities: unknown, fields: string[][]): number {
  need(isObject(entities) && Array.isArray(entities.class), "entities");
  const size = entities.class.length;
  column(entities, "class", size, below(fields.length));
  column(entities, "name", size, isString);
  column(entities, "digest", size, isString);
  column(entities, "hyper", size, row => isArrayOf(row, isScalar));
  column(entities, "tensors", size, row => isArrayOf(row, isTensor));
  const classOf = entities.class as number[];
  const hyper = entities.hyper as unknown[][];
  need(
    hyper.every((row, i) => row.length === fields[classOf[i]].length),
    "hyper"
  );
  return size;
}

function checkColumns(raw: Fields, size: number): void {
  const { columns, column_info: info } = raw;
  need(isObject(columns), "columns");
  need(
    Object.values(columns).every(values => isArrayOf(values, isValue) && values.length === size),
    "columns"
  );
  const isInfo: Check = entry =>
    isObject(entry) && isString(entry.label) && oneOf("sum", "mean", "own")(entry.aggregate);
  need(isObject(info) && Object.values(info).every(isInfo), "column_info");
}

/** Folds are disjoint runs of at least two siblings. */
function checkFolds(folds: unknown, parent: number[]): void {
  const size = parent.length;
  need(isArrayOf(folds, tuple(below(size), isCount, oneOf("exact", "family"), isString)), "folds");
  const position = new Int32Array(size);
  const children = new Int32Array(size);
  for (let i = 1; i < size; i++) {
    position[i] = children[parent[i]]++;
  }
  const runs = (folds as FoldRecord[]).map(([first, count]) => ({ owner: parent[first], at: position[first], count }));
  need(
    runs.every(run => run.owner >= 0 && run.count >= 2 && run.at + run.count <= children[run.owner]),
    "folds"
  );
  runs.sort((a, b) => a.owner - b.owner || a.at - b.at);
  need(
    runs.every((run, i) => i === 0 || runs[i - 1].owner !== run.owner || runs[i - 1].at + runs[i - 1].count <= run.at),
    "folds"
  );
}

function checkRelations(raw: Fields, size: number): void {
  const node = below(size);
  need(isArrayOf(raw.links, tuple(node, isString, node, oneOf("shared", "cycle"))), "links");
  need(isArrayOf(raw.tied, tuple(node, isString, node, isString)), "tied");
  const end: Check = value => value === -1 || node(value);
  need(isArrayOf(raw.edges, tuple(end, end, isString)), "edges");
  const { marks } = raw;
  need(isObject(marks), "marks");
  need(
    Object.entries(marks).every(([key, texts]) => /^\d+$/.test(key) && Number(key) < size && isStrings(texts)),
    "marks"
  );
}

function checkComparison(compare: unknown, size: number): void {
  if (compare === null) {
    return;
  }
  need(isObject(compare) && isObject(compare.model) && compare.model.compare === null, "compare");
  const other = checkModel(compare.model);
  column(compare, "left", size, oneOf("same", "renamed", "moved", "changed", "removed"));
  column(compare, "right", other, oneOf("same", "renamed", "moved", "changed", "added"));
  need(isArrayOf(compare.pairs, tuple(below(size), below(other))), "compare");
}

function checkModel(raw: Fields): number {
  if (raw.schema_version !== SCHEMA_VERSION || raw.kind !== "model") {
    throw new PayloadError(OTHER_VERSION);
  }
  need(typeof raw.title === "string" && typeof raw.traced === "boolean", "title");
  const fields = checkClasses(raw.classes);
  const entities = checkEntities(raw.entities, fields);
  const size = checkNodes(raw.nodes, entities);
  checkColumns(raw, size);
  checkFolds(raw.folds, (raw.nodes as ModelPayload["nodes"]).parent);
  checkRelations(raw, size);
  need(raw.error === null || isString(raw.error), "error");
  const tensors = checkFlow(raw.flow, size);
  checkAxes(raw.axes, tensors);
  checkComparison(raw.compare, size);
  return size;
}

/** The payload, once its version, lengths, index ranges and order are known to be right. */
export function readPayload(raw: unknown): ModelPayload {
  if (!isObject(raw)) {
    throw new PayloadError(OTHER_VERSION);
  }
  checkModel(raw);
  return raw as unknown as ModelPayload;
}

/** A value as a number: "NaN", "Infinity" and large decimal strings are decoded, other text is null. */
export function toNumber(value: Value): number | null {
  if (value === null || typeof value === "number") {
    return value;
  }
  if (value === "NaN" || value === "Infinity" || value === "-Infinity" || /^-?\d+$/.test(value)) {
    return Number(value);
  }
  return null;
}
