// Kernel messages of the editor, checked: available user data, progress and results of measurements, the dry run's report.

import { isArrayOf, isCount, isFiniteNumber, isObject, isString, isValue, tuple } from "../../shared/base/schema";

export interface Capabilities {
  readonly sensitivity: boolean;
  readonly recalibrate: boolean;
  readonly evaluate: boolean;
  readonly batches: number | null; // how many there are; null where nobody knows
  readonly hasStatistics: boolean; // running ones, that a recalibration could renew
  readonly onBatches: readonly string[]; // importances that are taken from the batches
  readonly inputs: readonly string[]; // the shapes that the FLOPs are of
}

/** How far the computation of the sensitivity has come. */
export interface SensitivityProgress {
  readonly done: number;
  readonly total: number | null;
}

export interface Evaluation {
  readonly state: string; // what had been done to the model
  readonly values: ReadonlyMap<string, number>;
  readonly error: string; // why there are none, or ""
}

export interface Trial {
  readonly recalibrated: boolean;
  readonly evaluations: readonly Evaluation[];
}

/** What the loss is without what goes. */
export interface Measured {
  readonly base: number; // of the model as it is
  readonly revision: number; // of the draft that `loss` is of; -1: of none
  readonly loss: number;
  readonly key: string; // of the ranking that the points are of
  readonly points: readonly (readonly [ratio: number, loss: number])[];
}

export const NO_CAPABILITIES: Capabilities = {
  sensitivity: false,
  recalibrate: false,
  evaluate: false,
  batches: null,
  hasStatistics: true,
  onBatches: [],
  inputs: []
};
export const NO_TRIAL: Trial = { recalibrated: false, evaluations: [] };
const MAX_VALUES = 20;

export function readCapabilities(raw: unknown): Capabilities {
  if (!isObject(raw)) return NO_CAPABILITIES;
  const { sensitivity, recalibrate, evaluate, batches, statistics } = raw;
  return {
    sensitivity: sensitivity === true,
    recalibrate: recalibrate === true,
    evaluate: evaluate === true,
    batches: isCount(batches) ? batches : null,
    hasStatistics: statistics !== false,
    onBatches: texts(raw.on_batches),
    inputs: texts(raw.inputs)
  };
}

const texts = (raw: unknown): string[] => (Array.isArray(raw) ? raw.filter(isString) : []);

/** Null where nothing is measured. */
export function readMeasured(raw: unknown): Measured | null {
  if (!isObject(raw) || !isFiniteNumber(raw.base)) return null;
  const isKnown = isCount(raw.revision) && isFiniteNumber(raw.loss);
  const points = Array.isArray(raw.points) ? (raw.points as unknown[]) : [];
  return {
    base: raw.base,
    revision: isKnown ? Number(raw.revision) : -1,
    loss: isKnown ? Number(raw.loss) : NaN,
    key: isString(raw.key) ? String(raw.key) : "",
    points: points.flatMap((point): [number, number][] => {
      const [ratio, loss] = Array.isArray(point) ? (point as unknown[]) : [];
      return isFiniteNumber(ratio) && isFiniteNumber(loss) ? [[ratio, loss]] : [];
    })
  };
}

/** Null while nothing is computed. */
export function readSensitivity(raw: unknown): SensitivityProgress | null {
  if (!isObject(raw) || !isCount(raw.done)) return null;
  return { done: raw.done, total: isCount(raw.total) ? raw.total : null };
}

export function readTrial(raw: unknown): Trial {
  if (!isObject(raw)) return NO_TRIAL;
  const entries = Array.isArray(raw.evaluations) ? (raw.evaluations as unknown[]) : [];
  return { recalibrated: raw.recalibrated === true, evaluations: entries.flatMap(readEvaluation) };
}

function readEvaluation(raw: unknown): Evaluation[] {
  if (!isObject(raw) || !isString(raw.state)) return [];
  const pairs = Array.isArray(raw.values) ? (raw.values as unknown[]).slice(0, MAX_VALUES) : [];
  const values = pairs.flatMap((pair): [string, number][] => {
    const [name, value] = Array.isArray(pair) ? (pair as unknown[]) : [];
    // what JSON has no number for travels as text
    return isString(name) && isValue(value) && value !== null ? [[name as string, Number(value)]] : [];
  });
  return [{ state: raw.state as string, values: new Map(values), error: isString(raw.error) ? String(raw.error) : "" }];
}

// What a dry run came to.

export interface Change {
  readonly kind: string;
  readonly text: string;
  readonly axes: readonly number[];
}

type Sizes = readonly [before: number, after: number];

export interface Report {
  readonly revision: number;
  readonly error: string | null;
  readonly params: Sizes | null;
  readonly flops: Sizes | null;
  readonly bytes: Sizes | null;
  readonly changes: readonly Change[];
  readonly kept: ReadonlyMap<number, readonly number[]>; // the draft drops them, and they have to stay
  readonly taken: ReadonlyMap<number, readonly number[]>; // the draft keeps them, and they have to go
}

/** Null for none, and for what cannot be read. */
export function readReport(raw: unknown): Report | null {
  if (!isObject(raw) || !Number.isInteger(raw.revision)) return null;
  const changes = Array.isArray(raw.changes) ? (raw.changes as unknown[]).flatMap(readChange) : [];
  return {
    revision: raw.revision as number,
    error: typeof raw.error === "string" ? raw.error : null,
    params: readSizes(raw.params),
    flops: readSizes(raw.flops),
    bytes: readSizes(raw.bytes),
    changes,
    kept: readIndices(raw.kept),
    taken: readIndices(raw.taken)
  };
}

function readChange(raw: unknown): Change[] {
  if (!isObject(raw) || !isString(raw.text)) return [];
  const axes = isArrayOf(raw.axes, isCount) ? (raw.axes as number[]) : [];
  return [{ kind: isString(raw.kind) ? (raw.kind as string) : "", text: raw.text as string, axes }];
}

/** Numbers above 2^53 travel as text. */
function readSizes(raw: unknown): Sizes | null {
  if (!isArrayOf(raw, isValue) || raw.length !== 2) return null;
  const [before, after] = raw.map(Number);
  return Number.isFinite(before) && Number.isFinite(after) ? [before, after] : null;
}

function readIndices(raw: unknown): Map<number, number[]> {
  const isEntry = tuple(isCount, value => isArrayOf(value, isCount));
  return new Map(isArrayOf(raw, isEntry) ? (raw as [number, number[]][]) : []);
}
