// Where a run stopped being finite: the loss that is NaN or infinite at its end, and what was not finite first.

import type { Entry, MetricData } from "./metric_data";
import { isLoss, loggedLosses } from "./logged_losses";
import { stepText } from "../base/value_axis";
import * as words from "../../words/metrics";

/** A loss whose latest values are not finite. */
interface BrokenLoss {
  readonly name: string;
  readonly kind: string; // "NaN", "infinite", or both in words
  readonly since: number; // step
}

/** The first value of a run that was not finite. */
interface Origin {
  readonly entry: Entry;
  readonly step: number;
  readonly wereOutputsFinite: boolean; // at that step, where any was measured
}

export interface NonFinite {
  readonly loss: BrokenLoss | null;
  readonly origin: Origin | null;
  /** Nothing that is not finite was followed by a finite value of the same number: the run did not recover. */
  readonly isLasting: boolean;
}

// what is computed first in a step comes first
const FORWARD = 0;
const LOGGED = 1;
const BACKWARD = 2;
const WEIGHTS = 3;
const ORIGIN_METRIC = "NonFiniteOrigin"; // is 1 where a module made NaN or infinity of finite inputs

/** What a metric of modules reads, by its name: gradients, weights, or else what flows forward. */
function stageOf(data: MetricData, { module, metric }: Entry): number {
  const isLogged = module === "" && [...(data.index("numbers", metric)?.modules ?? [])].every(path => path === "");
  if (isLogged) return LOGGED;
  if (/Grad/.test(metric)) return BACKWARD;
  return /^(?:Weight|Update)/.test(metric) ? WEIGHTS : FORWARD;
}

/** Null where all values of the run are finite. */
export function nonFiniteOf(data: MetricData, run: number): NonFinite | null {
  const loss = brokenLoss(data, run);
  const origin = originOf(data, run, loss);
  if (!loss && !origin) return null;
  const isLasting = loss !== null || (origin !== null && !hasLoss(data, run) && isBrokenAtEnd(data, origin));
  return { loss, origin, isLasting };
}

function seriesIn(data: MetricData, run: number, metric: string): number[] {
  return (data.index("numbers", metric)?.series ?? []).filter(series => data.entries[series]?.run === run);
}

const hasLoss = (data: MetricData, run: number) =>
  loggedLosses(data).some(metric => seriesIn(data, run, metric).some(series => data.line(series)?.length));

function isBrokenAtEnd(data: MetricData, { entry }: Origin): boolean {
  return data.entries.some((one, series) => one === entry && data.line(series)?.brokenSince !== Infinity);
}

function brokenLoss(data: MetricData, run: number): BrokenLoss | null {
  for (const name of loggedLosses(data))
    for (const series of seriesIn(data, run, name)) {
      const line = data.line(series);
      const since = line?.brokenSince ?? Infinity;
      if (!line || since === Infinity) continue;
      const tail = [...line.values.subarray(line.before(since))];
      return { name, since, kind: words.notFiniteKind(tail.some(Number.isNaN), !tail.every(Number.isNaN)) };
    }
  return null;
}

function originOf(data: MetricData, run: number, loss: BrokenLoss | null): Origin | null {
  const named = namedOrigin(data, run);
  let found: { entry: Entry; step: number; rank: readonly number[] } | null = null;
  data.entries.forEach((entry, at) => {
    const line = entry?.run === run ? data.line(at) : undefined;
    if (!entry || !line || line.brokenFrom === Infinity) return;
    const step = line.brokenFrom;
    // what never was finite may be unmeasurable; it counts where the loss never was finite, either
    if (step === line.steps[0] && !(loss && step === loss.since)) return;
    const stage = stageOf(data, entry);
    // gradients are made from the last module to the first
    const place = stage === LOGGED ? Number(!isLoss(entry.metric)) : stage === BACKWARD ? -at : at;
    const rank = [step, stage, place];
    if (!found || isBefore(rank, found.rank)) found = { entry, step, rank };
  });
  const first = found as { entry: Entry; step: number; rank: readonly number[] } | null; // assigned in a callback
  if (named && (!first || named.step <= first.step)) return { ...named, wereOutputsFinite: false };
  return first && { entry: first.entry, step: first.step, wereOutputsFinite: wereOutputsFinite(data, run, first.step) };
}

function isBefore(a: readonly number[], b: readonly number[]): boolean {
  const at = a.findIndex((one, i) => one !== b[i]);
  return at >= 0 && a[at] < b[at];
}

/** The module that a metric made for this has found. */
function namedOrigin(data: MetricData, run: number): { entry: Entry; step: number } | null {
  let found: { entry: Entry; step: number } | null = null;
  for (const series of seriesIn(data, run, ORIGIN_METRIC)) {
    const [entry, line] = [data.entries[series], data.line(series)];
    const at = line?.values.indexOf(1) ?? -1;
    if (entry && line && at >= 0 && !(found && found.step <= line.steps[at])) found = { entry, step: line.steps[at] };
  }
  return found;
}

/** Whether all that was measured of the forward pass at a step is finite, and something was. */
function wereOutputsFinite(data: MetricData, run: number, step: number): boolean {
  let count = 0;
  const areFinite = data.entries.every((entry, at) => {
    const line = entry?.run === run && stageOf(data, entry) === FORWARD ? data.line(at) : undefined;
    if (!line?.length || line.steps[line.nearest(step)] !== step) return true;
    count += 1;
    return line.brokenFrom > step || line.brokenFrom === line.steps[0];
  });
  return areFinite && count > 0;
}

/** What to say about it, in one line. */
export function nonFiniteText(data: MetricData, { loss, origin }: NonFinite): string {
  const sentences = [
    ...(loss ? [words.brokenSince(loss.name, loss.kind, stepText(loss.since))] : []),
    ...(origin ? [originText(data, origin, loss)] : [])
  ];
  const isLogged = origin && stageOf(data, origin.entry) === LOGGED;
  return [...sentences, ...(isLogged && origin.wereOutputsFinite ? [words.OUTPUTS_FINITE] : [])].join(" ");
}

/** The end of a state: "loss is NaN". */
export const brokenWord = ({ loss }: NonFinite): string =>
  loss ? words.isBroken(loss.name, loss.kind) : words.NOT_FINITE_VALUES;

function originText(data: MetricData, origin: Origin, loss: BrokenLoss | null): string {
  const { step, entry } = origin;
  const isLoss = loss?.name === entry.metric && loss.since === step && entry.module === "";
  return words.firstNotFinite(isLoss ? words.LOSS_ITSELF : nameOfOrigin(data, origin), stepText(step));
}

function nameOfOrigin(data: MetricData, { entry }: Origin): string {
  if (stageOf(data, entry) === LOGGED) return entry.metric;
  const module = entry.module === "" ? words.WHOLE_MODEL : entry.module;
  return entry.metric === ORIGIN_METRIC ? words.outputOf(module) : words.measuredOf(entry.metric, module);
}
