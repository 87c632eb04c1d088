// The payload of a knowledge graph: its schema and its types.

import * as v from "valibot";
import {
  areWithin,
  arrayOf,
  checked,
  count,
  dictionary,
  is,
  isBoolean,
  isCount,
  isCounts,
  isFlat,
  isInteger,
  isFiniteNumber,
  isPlace,
  isScalar,
  isString,
  isStrings,
  isValue,
  isWithin,
  list,
  orNull,
  parts,
  relations,
  type Scalar,
  table,
  text,
  tuple,
  value
} from "../../shared/base/schema";

const SCHEMA_VERSION = 2;
export const LEVELS = ["model", "stage", "block", "op"] as const;
export type Level = (typeof LEVELS)[number];

const isProperties = arrayOf(tuple(isString, isString));
const NamedSchema = table({ name: list(isString), properties: list(isProperties) });

const TypeSchema = parts({
  level: is(isInteger),
  name: list(isString),
  of: list(isPlace), // type of each structure; -1: none
  differs: list(isCount), // of each structure, in texts
  texts: list(isString)
});

// Values of one target, measured on one data set and device; the lists are parallel.
const ResultSchema = table(
  {
    model: list(isCount),
    value: list(isValue),
    size: list(isValue), // of the image, in pixels
    job: list(isCount)
  },
  {
    target: text,
    unit: is(orNull(isString)),
    dataset: is(orNull(isString)),
    device: is(orNull(isString)),
    cost: is(isBoolean) // less of it is better
  }
);

const KnowledgeSchema = v.pipe(
  parts({
    schema_version: v.literal(SCHEMA_VERSION),
    kind: v.literal("knowledge"),
    title: text,
    analysis: v.picklist(["running", "done", "failed"]), // unless it is done, nothing is told of structures and jobs
    size: count, // structures
    entities: table(
      {
        name: list(isString),
        class: list(isCount),
        digest: list(isString),
        params: list(isValue),
        bytes: list(isValue),
        hyper: list(arrayOf(isPlace)), // positions in values; -1: the structure lacks the field
        children: list(isCounts), // structure and count, one after the other
        community: list(isPlace)
      },
      { importance: dictionary(arrayOf(isValue)) }
    ),
    classes: table({ name: list(isString), qualified: list(isString), fields: list(isStrings) }),
    values: list((entry): entry is Scalar => entry !== null && isScalar(entry)),
    models: table({
      name: list(isString),
      root: list(isPlace),
      params: list(isValue),
      bytes: list(isValue),
      flops: list(isValue),
      family: list(isCount),
      modules: list(isCount),
      structures: list(isCount),
      members: list(isCounts), // structure, level and count, one after the other
      module_flops: list(arrayOf(isValue)), // structure and sum, one after the other
      nearest: list(isCounts) // model and likeness in thousandths, one after the other, the likest first
    }),
    families: list(isString),
    superfamilies: v.object({
      name: list(isString),
      of: list(isCount), // of each family
      links: list(isFiniteNumber) // two that are alike and how much, from 0 to 1, one after the other
    }),
    results: v.array(ResultSchema),
    communities: v.object({ modularity: value, count, names: v.optional(list(isString)) }), // older ones have no names
    types: v.array(TypeSchema),
    fit: v.object({
      alpha: value,
      xmin: value,
      verdict: text,
      comparisons: list(tuple(isString, isValue, isValue)), // other law, log-likelihood ratio, p
      lines: list(tuple(isString, arrayOf(isValue))) // law; count and expected rank, one after the other
    }),
    jobs: table({
      name: list(isString),
      user: list(orNull(isString)),
      dataset: list(orNull(isString)),
      model: list(orNull(isString)),
      accuracy: list(isValue),
      convergence: list(isValue),
      started: list(isValue),
      ended: list(isValue),
      metrics: list(arrayOf(tuple(isString, isCount))),
      training: list(isString)
    }),
    datasets: NamedSchema,
    users: NamedSchema
  }),
  relations({
    class: ({ entities, classes }) => isWithin(entities.class, classes.name.length),
    hyper: ({ entities, values }) => areWithin(entities.hyper, values.length, -1),
    communities: ({ entities, communities: { count: all, names } }) =>
      all <= entities.name.length && (names === undefined || names.length === all),
    community: ({ entities, communities }) => isWithin(entities.community, communities.count, -1),
    children: ({ entities }) => entities.children.every(row => isFlat(row, entities.name.length, Infinity)),
    importance: ({ entities }) =>
      Object.values(entities.importance).every(column => column.length === entities.name.length),
    root: ({ models, entities }) => isWithin(models.root, entities.name.length, -1),
    analysis: ({ analysis, models }) => analysis !== "done" || models.root.every(root => root >= 0),
    family: ({ models, families }) => isWithin(models.family, families.length),
    members: ({ models, entities }) =>
      models.members.every(row => isFlat(row, entities.name.length, LEVELS.length, Infinity)),
    module_flops: ({ models, entities }) =>
      models.module_flops.every(row => isFlat(row, entities.name.length, Infinity)),
    nearest: ({ models }) => models.nearest.every(row => isFlat(row, models.name.length, Infinity)),
    superfamilies: ({ superfamilies, families }) =>
      superfamilies.of.length === families.length &&
      isWithin(superfamilies.of, superfamilies.name.length) &&
      areLinks(superfamilies.links, superfamilies.name.length),
    results: ({ results, models, analysis, jobs }) =>
      results.every(
        ({ model, job }) =>
          isWithin(model, models.name.length) && (analysis !== "done" || isWithin(job, jobs.name.length))
      ),
    of: ({ types, entities }) =>
      types.every(({ of, name }) => of.length === entities.name.length && isWithin(of, name.length, -1)),
    differs: ({ types, entities }) =>
      types.every(({ differs, texts }) => differs.length === entities.name.length && isWithin(differs, texts.length)),
    fit: ({ fit }) => fit.lines.every(([, points]) => points.length % 2 === 0)
  })
);

/** Two places and a weight, one after the other. */
function areLinks(flat: readonly number[], places: number): boolean {
  const isRight = (figure: number, at: number) =>
    at % 3 === 2 ? figure >= 0 && figure <= 1 : isCount(figure) && figure < places;
  return flat.length % 3 === 0 && flat.every(isRight);
}

export type KnowledgePayload = v.InferOutput<typeof KnowledgeSchema>;
export type ResultColumn = v.InferOutput<typeof ResultSchema>;
export type TypeTable = v.InferOutput<typeof TypeSchema>;

/** The payload, once its version, lengths and index ranges are known to be right. */
export function readKnowledge(raw: unknown): KnowledgePayload {
  checked(KnowledgeSchema, raw);
  return raw as KnowledgePayload;
}
