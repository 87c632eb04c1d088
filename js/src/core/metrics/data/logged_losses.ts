// Losses among the logged numbers: which names are losses, which belong to one chart, and which comes first.

import type { MetricData } from "./metric_data";

const VALIDATION = new Set(["val", "valid", "validation", "dev", "eval", "evaluation", "test", "testing", "heldout"]);
const TRAINING = new Set(["train", "training"]);
const AVERAGES = new Set(["step", "epoch", "batch", "avg", "average", "mean", "smoothed", "running", "total"]);
const LOSS = /^(?:nlls?|ce|bce|xent|crossentropy|.*loss(?:es)?)$/;
const JOINED = /^(train|val|valid|eval|test|dev)(?=loss)/; // "valloss" is two words
/** What follows the word "loss" where the number is none: a scale, a weight, a count. */
const OF_LOSSES =
  /^(?:scales?|scaler|scaling|weights?|weighting|spikes?|ratio|coef|coeff|coefficient|factor|counts?|threshold)$/;

/** The words of a name, in lower case: "trainLoss", "Loss/train" and "train_loss" have the same two. */
function wordsOf(name: string): string[] {
  return name
    .replace(/([a-z\d])([A-Z])/g, "$1 $2")
    .replace(/([A-Z]+)([A-Z][a-z])/g, "$1 $2")
    .toLowerCase()
    .replace(/cross[^a-z]*entropy/g, "crossentropy")
    .replace(/held[^a-z]*out/g, "heldout")
    .split(/[^a-z\d]+/)
    .flatMap(word => word.replace(JOINED, "$1 ").split(" "))
    .filter(Boolean);
}

/** Whether a logged number of this name is a loss: "train_loss" or "NLL", not "LossSpike" or "loss_scale". */
export function isLoss(name: string): boolean {
  const found = wordsOf(name);
  const at = found.findIndex(word => LOSS.test(word));
  return at >= 0 && !found.slice(at + 1).some(word => OF_LOSSES.test(word));
}

export const isValidation = (name: string): boolean => wordsOf(name).some(word => VALIDATION.has(word));

/** What a loss is of, without the data that it is measured on: the same for losses that belong to one chart. */
function subjectOf(name: string): string {
  const rest = wordsOf(name).filter(word => ![VALIDATION, TRAINING, AVERAGES].some(words => words.has(word)));
  return rest.sort().join(" ");
}

/** Losses in the order of a chart: of training before those of validation, short names first. */
export function compareLosses(a: string, b: string): number {
  return Number(isValidation(a)) - Number(isValidation(b)) || a.length - b.length;
}

/** The logged losses of a run, in order; numbers of layers are none, whatever their names are. */
export function loggedLosses(data: MetricData): string[] {
  const isLogged = (metric: string) =>
    [...(data.index("numbers", metric)?.modules ?? [])].every(module => module === "");
  return data
    .metrics("numbers")
    .filter(metric => isLoss(metric) && isLogged(metric))
    .sort(compareLosses);
}

/** The losses that one chart shows with `metric`, in order: of the same subject; just `metric` where it is alone. */
export function lossesWith(data: MetricData, metric: string): readonly string[] {
  if (!isLoss(metric)) return [metric];
  const subject = subjectOf(metric);
  const found = loggedLosses(data).filter(loss => subjectOf(loss) === subject && data.index("numbers", loss));
  return found.includes(metric) ? found : [metric];
}
