// What data of the user allow and have said so far: what is offered, how far a computation is, what a function found.

import { isCount, isObject, isString, isValue } from "../shared/schema";

export interface Offers {
  readonly sensitivity: boolean;
  readonly recalibrate: boolean;
  readonly evaluate: boolean;
  readonly batches: number | null; // how many there are; null where nobody knows
}

/** How far the computation of the sensitivity has come. */
export interface Sensing {
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

export const NO_OFFERS: Offers = { sensitivity: false, recalibrate: false, evaluate: false, batches: null };
export const NO_TRIAL: Trial = { recalibrated: false, evaluations: [] };
const MOST_VALUES = 20;

export function readOffers(raw: unknown): Offers {
  if (!isObject(raw)) return NO_OFFERS;
  const { sensitivity, recalibrate, evaluate, batches } = raw;
  return {
    sensitivity: sensitivity === true,
    recalibrate: recalibrate === true,
    evaluate: evaluate === true,
    batches: isCount(batches) ? batches : null
  };
}

/** Null while nothing is computed. */
export function readSensing(raw: unknown): Sensing | null {
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
  const pairs = Array.isArray(raw.values) ? (raw.values as unknown[]).slice(0, MOST_VALUES) : [];
  const values = pairs.flatMap((pair): [string, number][] => {
    const [name, value] = Array.isArray(pair) ? (pair as unknown[]) : [];
    // what JSON has no number for travels as text
    return isString(name) && isValue(value) && value !== null ? [[name as string, Number(value)]] : [];
  });
  return [{ state: raw.state as string, values: new Map(values), error: isString(raw.error) ? String(raw.error) : "" }];
}
