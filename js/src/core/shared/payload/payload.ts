// The payload of a model: its schema and its types, with those of a forward pass and of a model file.

import * as v from "valibot";
import {
  areWithin,
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
  isSizes,
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
} from "../base/schema";

// What is known of a model that was read from a file: its format, what it says of itself, and its tensors' types.

const FileSchema = v.pipe(
  parts({
    name: text,
    format: text,
    metadata: list(tuple(isString, isScalar)),
    classes: list(isString), // that whoever loads the file would import
    warnings: list(isString),
    dtypes: list(isString),
    operators: v.optional(list(tuple(isString, arrayOf(tuple(isString, isScalar))))), // of each step: name and settings
    // by module, each with its own in the order of its structure
    tensors: table({ node: list(isCount), name: list(isString), dtype: list(isCount), bytes: list(isValue) })
  }),
  relations({ dtype: ({ tensors, dtypes }) => isWithin(tensors.dtype, dtypes.length) })
);

export type FileAbout = v.InferOutput<typeof FileSchema>;

// What a forward pass adds to the payload of a model: calls, steps, the values between them, and axes.

/** Numbers are places in other lists, -1 stands for none. */
const FlowSchema = v.pipe(
  parts({
    on: text, // the tensors that were traced on: "meta", "fake" or "real"
    // depth first; values
    calls: table({ node: list(isCount), parent: list(isPlace), inputs: list(isCounts), outputs: list(isCounts) }),
    steps: table(
      {
        name: list(isPlace), // -1: a module in whose call no operator ran
        call: list(isCount),
        inputs: list(isCounts), // values
        tensors: list(isCounts), // parameters and buffers that were read
        source: list(isPlace),
        flops: list(isValue) // null: no formula is known
      },
      {
        view: list(isCount), // steps that only look at their input otherwise
        square: v.optional(list(isCount)) // steps that multiply their input by itself; none of files
      }
    ),
    values: table({ step: list(isPlace), shape: list(isCount), dtype: list(isCount), axes: list(isCounts) }),
    tensors: table(
      { node: list(isCount), name: list(isCount) },
      { attributes: list(isString), tied: list(tuple(isCount, isCount)) }
    ),
    names: list(isString),
    shapes: list(isSizes),
    dtypes: list(isString),
    sources: list(isString),
    inputs: list(tuple(isString, isCount)), // of the model: name, value
    outputs: list(isCount)
  }),
  relations({
    calls: ({ calls }) => calls.parent.every((parent, at) => parent < at && (parent >= 0 || at === 0)),
    name: ({ steps, names }) => isWithin(steps.name, names.length, -1),
    call: ({ steps, calls }) => isWithin(steps.call, calls.node.length),
    inputs: ({ calls, steps, inputs, values: { step } }) =>
      areWithin(calls.inputs, step.length) &&
      areWithin(steps.inputs, step.length) &&
      inputs.every(([, value]) => value < step.length),
    outputs: ({ calls, outputs, values: { step } }) =>
      areWithin(calls.outputs, step.length) && isWithin(outputs, step.length),
    tensors: ({ steps, tensors }) => areWithin(steps.tensors, tensors.node.length),
    source: ({ steps, sources }) => isWithin(steps.source, sources.length, -1),
    view: ({ steps }) => isWithin(steps.view, steps.call.length),
    step: ({ values, steps }) => isWithin(values.step, steps.call.length, -1),
    shape: ({ values, shapes }) => isWithin(values.shape, shapes.length),
    dtype: ({ values, dtypes }) => isWithin(values.dtype, dtypes.length),
    attributes: ({ tensors }) => isWithin(tensors.name, tensors.attributes.length),
    tied: ({ tensors }) => areWithin(tensors.tied, tensors.node.length)
  })
);

const AxesSchema = v.pipe(
  table(
    {
      name: list(isString),
      label: list(isString), // short, for expressions
      size: list(isCount),
      role: list(orNull(isString)),
      frozen: list(isPlace) // -1: free
    },
    {
      reasons: list(isString),
      dims: list(isCounts), // of each tensor: what each dimension is made of
      written: list(isString) // "({3} {4})": axes by number
    }
  ),
  relations({
    frozen: ({ frozen, reasons }) => isWithin(frozen, reasons.length, -1),
    dims: ({ dims, written }) => areWithin(dims, written.length)
  })
);

// What modules call their inputs and outputs: the parameters of forward, and the places in what it returned.
const ValueNamesSchema = v.pipe(
  parts({
    labels: list(isStrings),
    inputs: list(isCount), // of each call: its labels
    outputs: list(isCount),
    results: list(isString) // of the model's outputs; "" of one without a name
  }),
  relations({
    inputs: ({ inputs, labels }) => isWithin(inputs, labels.length),
    outputs: ({ outputs, labels }) => isWithin(outputs, labels.length)
  })
);

export type FlowPayload = v.InferOutput<typeof FlowSchema>;
export type ValueNames = v.InferOutput<typeof ValueNamesSchema>;
export type AxesPayload = v.InferOutput<typeof AxesSchema>;

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
    value_names: v.optional(v.nullable(ValueNamesSchema)), // none of files, nor in pages saved before there were any
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

export type Tensor = Guarded<typeof isTensor>;
export type FoldRecord = Guarded<typeof isFold>;
export type EdgeRecord = Guarded<typeof isEdge>;
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
