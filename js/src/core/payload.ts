// The payload that the kernel sends: its types and its checks.

export type Scalar = string | number | boolean;
export type Value = number | string | null;
export type Tensor = [string, "parameter" | "buffer", number[] | null];
export type FoldRecord = [number, number, "exact" | "family", string];
export type LinkRecord = [number, string, number, "shared" | "cycle"];
export type TieRecord = [number, string, number, string];
export type EdgeRecord = [number, number, string];
export type Aggregate = "sum" | "mean" | "own";
export type Status = "same" | "renamed" | "moved" | "changed" | "added" | "removed";

export interface Comparison {
  model: ModelPayload;
  left: Status[];
  right: Status[];
  pairs: [number, number][];
}

export interface ModelPayload {
  schema_version: 1;
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
  compare: Comparison | null;
}

export const SCHEMA_VERSION = 1;
export const OTHER_VERSION =
  "This widget was made by another version of modulekg-widgets: restart the kernel and reload the page.";

/** A payload that cannot be shown; the message is one of a few fixed texts. */
export class PayloadError extends Error {
  override name = "PayloadError";
}

type Fields = Record<string, unknown>;
type Check = (value: unknown) => boolean;

function need(condition: boolean, part: string): asserts condition {
  if (!condition) {
    throw new PayloadError(`This widget's data is damaged (${part}): run the cell again.`);
  }
}

const isObject = (value: unknown): value is Fields =>
  typeof value === "object" && value !== null && !Array.isArray(value);
const isString: Check = value => typeof value === "string";
const isInteger: Check = value => Number.isInteger(value);
const isValue: Check = value => value === null || typeof value === "number" || typeof value === "string";
const isScalar: Check = value => isValue(value) || typeof value === "boolean";
const isStrings: Check = value => isArrayOf(value, isString);
const isCount: Check = value => isInteger(value) && (value as number) >= 0;

function isArrayOf(value: unknown, check: Check): value is unknown[] {
  return Array.isArray(value) && value.every(check);
}

const below =
  (end: number): Check =>
  value =>
    isInteger(value) && (value as number) >= 0 && (value as number) < end;

const oneOf =
  (...choices: string[]): Check =>
  value =>
    choices.includes(value as string);

/** A check of a fixed-length record. */
const tuple =
  (...checks: Check[]): Check =>
  value =>
    Array.isArray(value) && value.length === checks.length && checks.every((check, i) => check(value[i]));

const isTensor = tuple(isString, oneOf("parameter", "buffer"), shape => shape === null || isArrayOf(shape, isCount));

function column(table: Fields, name: string, length: number, check: Check): void {
  const value = table[name];
  need(isArrayOf(value, check) && value.length === length, name);
}

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
  need(isArrayOf(raw.edges, tuple(node, node, isString)), "edges");
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
