// The payload of a knowledge graph: its types and its checks.

import { OTHER_VERSION, type Scalar, type Value } from "../shared/payload";
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
  PayloadError,
  tuple
} from "../shared/payload_checks";

export const SCHEMA_VERSION = 1;
export const LEVELS = ["model", "stage", "block", "op"] as const;
export type Level = (typeof LEVELS)[number];

export interface TypeTable {
  level: number;
  name: string[];
  of: number[]; // type of each structure; -1: none
  differs: number[]; // of each structure, in texts
  texts: string[];
}

export interface JobTable {
  name: string[];
  user: (string | null)[];
  dataset: (string | null)[];
  model: (string | null)[];
  accuracy: Value[];
  convergence: Value[];
  started: Value[];
  ended: Value[];
  metrics: [string, number][][];
}

export interface NamedTable {
  name: string[];
  properties: [string, string][][];
}

export interface KnowledgePayload {
  schema_version: typeof SCHEMA_VERSION;
  kind: "knowledge";
  title: string;
  entities: {
    class: number[];
    name: string[];
    digest: string[];
    params: Value[];
    bytes: Value[];
    hyper: number[][]; // positions in values; -1: the structure lacks the field
    children: number[][]; // structure and count, one after the other
    community: number[];
    importance: Record<string, Value[]>;
  };
  classes: { name: string[]; qualified: string[]; fields: string[][] };
  values: Scalar[];
  models: {
    name: string[];
    root: number[];
    params: Value[];
    bytes: Value[];
    flops: Value[];
    family: number[];
    members: number[][]; // structure, level and count, one after the other
    module_flops: Value[][]; // structure and sum, one after the other
  };
  families: string[];
  communities: { modularity: Value; count: number };
  types: TypeTable[];
  overlap: number[]; // upper triangle, row by row, without the diagonal
  fit: {
    alpha: Value;
    xmin: Value;
    verdict: string;
    comparisons: [string, Value, Value][]; // other law, log-likelihood ratio, p
    lines: [string, Value[]][]; // law; count and expected rank, one after the other
  };
  jobs: JobTable;
  datasets: NamedTable;
  users: NamedTable;
}

const isText: Check = value => value === null || isString(value);
const orNone =
  (check: Check): Check =>
  value =>
    value === -1 || check(value);

/** Flat records of `size` figures. */
const records =
  (size: number, ...checks: Check[]): Check =>
  value =>
    Array.isArray(value) && value.length % size === 0 && value.every((figure, i) => checks[i % size](figure));

function checkEntities(raw: Fields): number {
  const { entities, classes, values, communities } = raw;
  need(isObject(classes) && Array.isArray(classes.name), "classes");
  const known = classes.name.length;
  column(classes, "name", known, isString);
  column(classes, "qualified", known, isString);
  column(classes, "fields", known, isStrings);
  need(
    isArrayOf(values, value => value !== null && isScalar(value)),
    "values"
  );
  need(isObject(communities) && isCount(communities.count) && isValue(communities.modularity), "communities");
  need(isObject(entities) && Array.isArray(entities.name), "entities");
  const size = entities.name.length;
  need((communities.count as number) <= size, "communities");
  column(entities, "name", size, isString);
  column(entities, "class", size, below(known));
  column(entities, "digest", size, isString);
  column(entities, "params", size, isValue);
  column(entities, "bytes", size, isValue);
  const isField = orNone(below(values.length));
  column(entities, "hyper", size, row => isArrayOf(row, isField));
  column(entities, "children", size, records(2, below(size), isCount));
  column(entities, "community", size, orNone(below(communities.count as number)));
  const { importance } = entities;
  need(isObject(importance), "importance");
  const isColumn: Check = values => isArrayOf(values, isValue) && values.length === size;
  need(Object.values(importance).every(isColumn), "importance");
  return size;
}

function checkModels(raw: Fields, entities: number): number {
  const { models, families } = raw;
  need(isArrayOf(families, isString), "families");
  need(isObject(models) && Array.isArray(models.name), "models");
  const size = models.name.length;
  column(models, "name", size, isString);
  column(models, "root", size, below(entities));
  for (const name of ["params", "bytes", "flops"]) column(models, name, size, isValue);
  column(models, "family", size, below(families.length));
  column(models, "members", size, records(3, below(entities), below(LEVELS.length), isCount));
  column(models, "module_flops", size, records(2, below(entities), isValue));
  need(
    isArrayOf(raw.overlap, value => typeof value === "number"),
    "overlap"
  );
  need(raw.overlap.length === (size * (size - 1)) / 2, "overlap");
  return size;
}

function checkTypes(types: unknown, entities: number): void {
  const isTable: Check = table => {
    if (!isObject(table) || !isStrings(table.name) || !isStrings(table.texts) || !isInteger(table.level)) return false;
    column(table, "of", entities, orNone(below((table.name as string[]).length)));
    column(table, "differs", entities, below((table.texts as string[]).length));
    return true;
  };
  need(isArrayOf(types, isTable), "types");
}

function checkRest(raw: Fields): void {
  const { jobs, fit } = raw;
  need(isObject(jobs) && Array.isArray(jobs.name), "jobs");
  const size = jobs.name.length;
  column(jobs, "name", size, isString);
  for (const name of ["user", "dataset", "model"]) column(jobs, name, size, isText);
  for (const name of ["accuracy", "convergence", "started", "ended"]) column(jobs, name, size, isValue);
  column(jobs, "metrics", size, row => isArrayOf(row, tuple(isString, isCount)));
  for (const name of ["datasets", "users"]) {
    const table = raw[name];
    need(isObject(table) && isStrings(table.name), name);
    column(table, "properties", (table.name as string[]).length, row => isArrayOf(row, tuple(isString, isString)));
  }
  const isFit = isObject(fit) && isValue(fit.alpha) && isValue(fit.xmin) && isString(fit.verdict);
  need(isFit && isArrayOf(fit.comparisons, tuple(isString, isValue, isValue)), "fit");
  need(isArrayOf(fit.lines, tuple(isString, records(2, isValue, isValue))), "fit");
}

/** The payload, once its version, lengths and index ranges are known to be right. */
export function readKnowledge(raw: unknown): KnowledgePayload {
  if (!isObject(raw) || raw.schema_version !== SCHEMA_VERSION || raw.kind !== "knowledge") {
    throw new PayloadError(OTHER_VERSION);
  }
  need(isString(raw.title), "title");
  const entities = checkEntities(raw);
  checkModels(raw, entities);
  checkTypes(raw.types, entities);
  checkRest(raw);
  return raw as unknown as KnowledgePayload;
}
