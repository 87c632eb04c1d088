// What is known of a model that was read from a file: its format, what it says of itself, and its tensors' types.

import * as v from "valibot";
import {
  arrayOf,
  isCount,
  isScalar,
  isString,
  isValue,
  isWithin,
  list,
  parts,
  relations,
  table,
  text,
  tuple
} from "./schema";

export const FileSchema = v.pipe(
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
