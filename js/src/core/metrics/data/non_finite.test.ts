import { describe, expect, it } from "vitest";
import { type EntryRow, message, numbers, series } from "../../../testing/metrics";
import { MetricData } from "./metric_data";
import { brokenWord, nonFiniteOf, nonFiniteText } from "./non_finite";
import { decodeUpdate } from "./payload";

type Values = (step: number) => number;

const from =
  (first: number, value = Number.NaN): Values =>
  step =>
    step >= first ? value : 1;
const at =
  (step: number, value = Number.NaN): Values =>
  other =>
    other === step ? value : 1;
const finite: Values = () => 1;

function dataOf(given: readonly [EntryRow, Values][]): MetricData {
  const data = new MetricData(100);
  const points = given.map(([, value], i): [number, [number, number][]] => [i, series(10, value)]);
  const { content, buffers } = message(1, { entries: given.map(([entry]) => entry), points });
  const update = decodeUpdate(content, buffers);
  if (update) data.apply(update);
  return data;
}

const logged = (name: string, value: Values): [EntryRow, Values] => [numbers(name, [""])[0], value];
const measured = (metric: string, module: string, value: Values): [EntryRow, Values] => [
  numbers(metric, [module])[0],
  value
];

const said = (...given: [EntryRow, Values][]) => {
  const data = dataOf(given);
  const found = nonFiniteOf(data, 0);
  return found && [nonFiniteText(data, found), found.isLasting];
};

describe("what is said of values that are not finite", () => {
  it("is nothing where all are finite", () => {
    expect(said(logged("loss", finite), measured("WeightNorm", "0", finite))).toBeNull();
  });

  it("is the loss, and that it was the first", () => {
    expect(
      said(
        measured("OutputSndNorm", "0", from(7)),
        measured("WeightGradNorm", "0", from(6)),
        logged("loss", from(6)),
        logged("lr", finite)
      )
    ).toEqual([
      "Loss is NaN since step 6. First non-finite: the loss itself at step 6. Outputs of modules were finite at that step.",
      true
    ]);
    expect(said(logged("train_loss", from(6, Infinity)))).toEqual([
      "train_loss is infinite since step 6. First non-finite: the loss itself at step 6.",
      true
    ]);
  });

  it.each<[string, [EntryRow, Values][], string]>([
    [
      "a gradient in an earlier step",
      [measured("WeightGradNorm", "0", from(6)), measured("WeightGradNorm", "2", from(5))],
      "weight gradient of 2 at step 5"
    ],
    [
      "of gradients in one step that of the last module, where they begin",
      [measured("WeightGradNorm", "0", from(5)), measured("WeightGradNorm", "2", from(5))],
      "weight gradient of 2 at step 5"
    ],
    [
      "of outputs in one step that of the first module, before the loss",
      [measured("OutputSndNorm", "0", from(6)), measured("OutputSndNorm", "2", from(6))],
      "output of 0 at step 6"
    ],
    [
      "a weight before the outputs of the next step",
      [measured("OutputSndNorm", "0", from(6)), measured("WeightNorm", "2", from(5))],
      "weight of 2 at step 5"
    ],
    [
      "the module that was found to be the origin",
      [measured("OutputSndNorm", "0", from(6)), measured("NonFiniteOrigin", "4", at(6, 1))],
      "output of 4 at step 6"
    ],
    ["another logged number", [[numbers("grad_norm", [""])[0], from(5)]], "grad_norm at step 5"],
    [
      "nothing that never was finite: it cannot be measured",
      [measured("WeightNorm", "0", from(0)), measured("OutputSndNorm", "2", from(5))],
      "output of 2 at step 5"
    ]
  ])("names %s", (_, others, origin) => {
    const zeroOrigin = others.map(([entry, value]): [EntryRow, Values] =>
      entry[2] === "NonFiniteOrigin" ? [entry, step => (step === 6 ? 1 : 0)] : [entry, value]
    );
    expect(said(...zeroOrigin, logged("loss", from(6)))).toEqual([
      `Loss is NaN since step 6. First non-finite: ${origin}.`,
      true
    ]);
  });

  it("counts what never was finite where the loss was not, either", () => {
    expect(said(measured("OutputSndNorm", "0", from(0)), logged("loss", from(0)))?.[0]).toBe(
      "Loss is NaN since step 0. First non-finite: output of 0 at step 0."
    );
  });

  it("is no warning where the loss is finite in the end", () => {
    expect(said(logged("loss", at(4)), measured("WeightGradNorm", "0", at(3, Infinity)))).toEqual([
      "First non-finite: weight gradient of 0 at step 3.",
      false
    ]);
  });

  it("is a warning without a loss, where the values stay as they are", () => {
    const data = dataOf([measured("OutputSndNorm", "0", from(4))]);
    const found = nonFiniteOf(data, 0);
    expect(found && [found.isLasting, brokenWord(found)]).toEqual([true, "NaN or infinite values"]);
    expect(said(measured("OutputSndNorm", "0", at(4)))?.[1]).toBe(false);
  });

  it("is of one run each", () => {
    const data = dataOf([
      [numbers("loss", [""], 0)[0], finite],
      [numbers("loss", [""], 1)[0], from(3)]
    ]);
    expect([nonFiniteOf(data, 0), nonFiniteOf(data, 1)?.loss?.since]).toEqual([null, 3]);
  });
});
