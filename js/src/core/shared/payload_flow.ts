// What a forward pass adds to the payload of a model: calls, steps, the values between them, and axes.

import * as v from "valibot";
import {
  areWithin,
  isCount,
  isCounts,
  isPlace,
  isSizes,
  isString,
  isValue,
  isWithin,
  list,
  orNull,
  parts,
  relations,
  table,
  text,
  tuple
} from "./schema";

/** Numbers are places in other lists, -1 stands for none. */
export const FlowSchema = v.pipe(
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
      { view: list(isCount) } // steps that only look at their input otherwise
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

export const AxesSchema = v.pipe(
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

export type FlowPayload = v.InferOutput<typeof FlowSchema>;
export type AxesPayload = v.InferOutput<typeof AxesSchema>;
