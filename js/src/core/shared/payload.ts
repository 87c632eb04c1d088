// The payload of a model: its schema and its types.

import * as v from "valibot";
import { FileSchema } from "./payload_file";
import { AxesSchema, FlowSchema } from "./payload_flow";
import {
  arrayOf,
  checked,
  dictionary,
  type Guarded,
  isCount,
  isCounts,
  isInteger,
  isObject,
  isPlace,
  isScalar,
  isString,
  isStrings,
  isValue,
  isWithin,
  list,
  need,
  oneOf,
  orNull,
  parts,
  record,
  relations,
  table,
  text,
  tuple,
  type Value
} from "./schema";

export const SCHEMA_VERSION = 2;

const isTensor = tuple(isString, oneOf("parameter", "buffer"), orNull(isCounts)); // name, role, shape
const isFold = tuple(isCount, isCount, oneOf("exact", "family"), isString); // first node, how many, kind, label
const isLink = tuple(isCount, isString, isCount, oneOf("shared", "cycle")); // from, name, to, kind
const isTiedTensor = tuple(isCount, isString, isCount, isString);
const isEdge = tuple(isPlace, isPlace, isString); // -1: the model's input or output

const NodesSchema = v.pipe(
  table({ name: list(isString), parent: list(isInteger), entity: list(isCount) }),
  relations({ nodes: ({ name }) => name.length > 0, parent: ({ parent }) => isDepthFirst(parent) })
);

const ClassesSchema = table({
  name: list(isString),
  qualified: list(isString),
  source: list(orNull(isString)),
  fields: list(isStrings)
});

const EntitiesSchema = table({
  class: list(isCount),
  name: list(isString),
  digest: list(isString),
  hyper: list(arrayOf(isScalar)), // as the class's fields; null: this one has no such field
  tensors: list(arrayOf(isTensor))
});

const isInfo = record({ label: isString, aggregate: oneOf("sum", "mean", "own") });

const OneModelSchema = v.pipe(
  parts({
    schema_version: v.literal(SCHEMA_VERSION),
    kind: v.literal("model"),
    title: text,
    nodes: NodesSchema,
    columns: dictionary(arrayOf(isValue)),
    column_info: dictionary(isInfo),
    entities: EntitiesSchema,
    classes: ClassesSchema,
    folds: list(isFold),
    links: list(isLink),
    tied: list(isTiedTensor),
    marks: dictionary(isStrings), // by node
    blocks: v.optional(dictionary(isString), {}), // by node; none in pages saved before there were any
    edges: list(isEdge),
    traced: v.boolean(),
    error: v.nullable(text), // why a forward pass could not be followed to its end
    flow: v.nullable(FlowSchema),
    axes: v.nullable(AxesSchema),
    file: v.optional(v.nullable(FileSchema)) // none of a model in memory
  }),
  relations({
    entity: ({ nodes, entities }) => isWithin(nodes.entity, entities.name.length),
    class: ({ entities, classes }) => isWithin(entities.class, classes.name.length),
    hyper: ({ entities, classes }) =>
      entities.hyper.every((row, i) => row.length === classes.fields[entities.class[i]].length),
    columns: ({ nodes, columns }) => Object.values(columns).every(values => values.length === nodes.name.length),
    folds: ({ nodes, folds }) => areDisjointRuns(folds, nodes.parent),
    links: ({ nodes, links }) => links.every(([from, , to]) => Math.max(from, to) < nodes.name.length),
    tied: ({ nodes, tied }) => tied.every(([one, , other]) => Math.max(one, other) < nodes.name.length),
    edges: ({ nodes, edges }) => edges.every(edge => Math.max(edge[0], edge[1]) < nodes.name.length),
    marks: ({ nodes, marks }) => Object.keys(marks).every(key => /^\d+$/.test(key) && Number(key) < nodes.name.length),
    blocks: ({ nodes, blocks }) =>
      Object.keys(blocks).every(key => /^\d+$/.test(key) && Number(key) < nodes.name.length),
    node: ({ nodes, flow }) =>
      flow === null || (isWithin(flow.calls.node, nodes.name.length) && isWithin(flow.tensors.node, nodes.name.length)),
    file: ({ nodes, file }) => !file || isWithin(file.tensors.node, nodes.name.length),
    dims: ({ flow, axes }) => axes === null || axes.dims.length === (flow?.tensors.node.length ?? 0)
  })
);

const ComparisonSchema = parts({
  model: v.custom<object>(model => isObject(model) && model.compare === null), // of two models, never of more
  left: list(oneOf("same", "renamed", "moved", "changed", "removed")),
  right: list(oneOf("same", "renamed", "moved", "changed", "added")),
  pairs: list(tuple(isCount, isCount)),
  tensors: v.optional(v.nullable(text)) // how many of them differ; none of live models
});

type OneModel = v.InferOutput<typeof OneModelSchema>;

export interface Comparison extends v.InferOutput<typeof ComparisonSchema> {
  model: ModelPayload;
}

export interface ModelPayload extends OneModel {
  compare: Comparison | null;
}

export type { FileAbout } from "./payload_file";
export type Tensor = Guarded<typeof isTensor>;
export type FoldRecord = Guarded<typeof isFold>;
export type EdgeRecord = Guarded<typeof isEdge>;
export type Aggregate = OneModel["column_info"][string]["aggregate"];
export type Status = Comparison["left"][number] | Comparison["right"][number];

/** The payload, once its version, lengths, index ranges and order are known to be right; with what an older one lacks. */
export function readPayload(raw: unknown): ModelPayload {
  const model = checked(OneModelSchema, raw);
  const { compare = null } = raw as { compare?: unknown };
  return { ...model, compare: compare === null ? null : readComparison(compare, model) };
}

function readComparison(raw: unknown, { nodes }: OneModel): Comparison {
  const { model, ...found } = checked(ComparisonSchema, raw);
  const other = checked(OneModelSchema, model);
  need(found.left.length === nodes.name.length, "left");
  need(found.right.length === other.nodes.name.length, "right");
  need(
    found.pairs.every(([one, two]) => one < nodes.name.length && two < other.nodes.name.length),
    "compare"
  );
  return { ...found, model: { ...other, compare: null } };
}

/** Pre-order: a node's parent is the node before it or one of that node's ancestors. */
function isDepthFirst(parent: readonly number[]): boolean {
  return parent.every((above, i) => {
    let open = i - 1;
    while (open >= 0 && open !== above) open = parent[open];
    return open === above && (open >= 0 || i === 0);
  });
}

/** Folds are disjoint runs of at least two siblings. */
function areDisjointRuns(folds: readonly FoldRecord[], parent: readonly number[]): boolean {
  if (
    !isWithin(
      folds.map(([first]) => first),
      parent.length
    )
  )
    return false;
  const position = new Int32Array(parent.length);
  const children = new Int32Array(parent.length);
  for (let i = 1; i < parent.length; i++) {
    position[i] = children[parent[i]]++;
  }
  const runs = folds
    .map(([first, count]) => ({ owner: parent[first], at: position[first], count }))
    .sort((a, b) => a.owner - b.owner || a.at - b.at);
  return runs.every(({ owner, at, count }, i) => {
    const before = runs[i - 1];
    const isFree = before?.owner !== owner || before.at + before.count <= at;
    return owner >= 0 && count >= 2 && at + count <= children[owner] && isFree;
  });
}

/** A value as a number: "NaN", "Infinity" and large decimal strings are decoded, other text is null. */
export function toNumber(value: Value): number | null {
  if (value === null || typeof value === "number") {
    return value;
  }
  const isNumeral = typeof value === "string" && /^(NaN|-?Infinity|-?\d+)$/.test(value); // an overlay may be anything
  return isNumeral ? Number(value) : null;
}
