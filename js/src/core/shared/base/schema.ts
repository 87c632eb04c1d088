// The elements of payload schemas. A schema states its payload once: the types are inferred from it.

import * as v from "valibot";
import * as words from "../../words/shared";

export { OTHER_VERSION } from "../../words/shared";

/** A payload that cannot be shown; the message is one of a few fixed texts. */
export class PayloadError extends Error {
  override name = "PayloadError";

  /** `part`: which field of the data is wrong. */
  constructor(
    message: string,
    readonly part = ""
  ) {
    super(message);
  }
}

const VERSION_KEYS: readonly string[] = ["schema_version", "kind", "version"];

export function need(condition: boolean, part: string): asserts condition {
  if (!condition) throw damaged(part);
}

const damaged = (part: string) => new PayloadError(words.damaged(part), part);

/** What the schema makes of the data. Throws `PayloadError` with the name of the part, never with the data's own text. */
export function checked<S extends v.GenericSchema>(schema: S, raw: unknown): v.InferOutput<S> {
  // the message is always a name that a schema gives; valibot's own would quote the data
  const { success, output, issues } = v.safeParse(schema, raw, { abortEarly: true, message: "" });
  if (success) {
    return output;
  }
  const [{ message, path }] = issues;
  const part = message || String(path?.[0].key ?? "");
  if (part === "" || (path?.length === 1 && VERSION_KEYS.includes(part))) {
    throw new PayloadError(words.OTHER_VERSION);
  }
  throw damaged(part);
}

// Predicates of single values and of lists. A list may have a million entries: loops, for a schema costs each an object.

export type Fields = Record<string, unknown>;
type Guard<T> = (value: unknown) => value is T;
export type Guarded<G> = G extends Guard<infer T> ? T : never;

export const isObject = (value: unknown): value is Fields =>
  typeof value === "object" && value !== null && !Array.isArray(value);
export const isString = (value: unknown) => typeof value === "string";
export const isBoolean = (value: unknown) => typeof value === "boolean";
export const isInteger = (value: unknown): value is number => Number.isInteger(value);
export const isNumber = (value: unknown) => typeof value === "number";
export const isFiniteNumber = (value: unknown): value is number => Number.isFinite(value);
export const isCount = (value: unknown): value is number => Number.isInteger(value) && (value as number) >= 0;
export const isPlace = (value: unknown): value is number => Number.isInteger(value) && (value as number) >= -1; // -1: none
/** A number of Python: NaN, the infinities and whole numbers above 2^53 are text, null stands for none. */
export const isValue = (value: unknown) => value === null || typeof value === "number" || typeof value === "string";
export const isScalar = (value: unknown) => isValue(value) || typeof value === "boolean";
export const isStrings = (value: unknown): value is string[] => isArrayOf(value, isString);
export const isCounts = (value: unknown): value is number[] => isArrayOf(value, isCount);
/** A shape; text for a size that is not fixed. */
export const isSizes = (value: unknown) => isArrayOf(value, isSize);
const isSize = (value: unknown): value is number | string => typeof value === "string" || isCount(value);

export type Value = Guarded<typeof isValue>;
export type Scalar = Exclude<Guarded<typeof isScalar>, null>;

export function isArrayOf<T>(value: unknown, is: Guard<T>): value is T[] {
  if (!Array.isArray(value)) return false;
  for (let i = 0; i < value.length; i++) if (!is(value[i])) return false;
  return true;
}

export const arrayOf =
  <T>(is: Guard<T>): Guard<T[]> =>
  value =>
    isArrayOf(value, is);

export const orNull =
  <T>(is: Guard<T>) =>
  (value: unknown): value is T | null =>
    value === null || is(value);

export const oneOf =
  <T extends string>(...choices: T[]): Guard<T> =>
  (value): value is T =>
    choices.includes(value as T);

/** A record of fixed length. */
export function tuple<T extends unknown[]>(...are: { [K in keyof T]: Guard<T[K]> }): Guard<T> {
  return (value): value is T => {
    if (!Array.isArray(value) || value.length !== are.length) return false;
    for (let i = 0; i < are.length; i++) if (!are[i](value[i])) return false;
    return true;
  };
}

/** An object with these entries, among others perhaps. */
export function record<T extends Fields>(are: { [K in keyof T]: Guard<T[K]> }): Guard<T> {
  const entries = Object.entries<Guard<unknown>>(are);
  return (value): value is T => {
    if (!isObject(value)) return false;
    for (const [key, is] of entries) if (!is(value[key])) return false;
    return true;
  };
}

/** Whether every place is one of `end`; -1, too, where that is `first`. */
export function isWithin(places: readonly number[], end: number, first: 0 | -1 = 0): boolean {
  for (let i = 0; i < places.length; i++) if (places[i] < first || places[i] >= end) return false;
  return true;
}

/** The same for lists of places. */
export function areWithin(lists: readonly (readonly number[])[], end: number, first: 0 | -1 = 0): boolean {
  for (let i = 0; i < lists.length; i++) if (!isWithin(lists[i], end, first)) return false;
  return true;
}

/** Whether a list is of records, one after the other, with a place below each end; Infinity: no place at all. */
export function isFlat(flat: readonly unknown[], ...ends: number[]): boolean {
  const isRight = (entry: unknown, end: number) => end === Infinity || (isCount(entry) && entry < end);
  return flat.length % ends.length === 0 && flat.every((entry, i) => isRight(entry, ends[i % ends.length]));
}

// Building blocks of schemas.

export const is = <T>(guard: Guard<T>) => v.custom<T>(guard);
export const text = is(isString);
export const count = is(isCount);
export const value = is(isValue);
export const list = <T>(guard: Guard<T>) => v.custom<T[]>(arrayOf(guard));

/** Values by names that are not known in advance. */
export const dictionary = <T>(guard: Guard<T>) =>
  v.custom<Record<string, T>>(value => isObject(value) && Object.values(value).every(guard));

/** An object whose entries are named when they are wrong, each by its key; `v.object` leaves that to what it is in. */
export function parts<const E extends v.ObjectEntries>(entries: E) {
  const named = Object.entries(entries).map(([key, entry]) => [key, v.message(entry as v.GenericSchema, key)]);
  return v.pipe(v.custom<object>(isObject), v.object(Object.fromEntries(named) as E));
}

/** What has to hold between the parts, by the name of the part that is wrong where it does not. */
export function relations<T>(rules: Record<string, (value: T) => boolean>) {
  return v.rawCheck<T>(({ dataset, addIssue }) => {
    if (!dataset.typed) return;
    const broken = Object.keys(rules).find(part => !rules[part](dataset.value));
    if (broken !== undefined) addIssue({ message: broken });
  });
}

/** Columns of one length, and what else belongs to the table. */
export function table<const E extends v.ObjectEntries, const R extends v.ObjectEntries = Record<never, never>>(
  columns: E,
  rest?: R
) {
  const names = Object.keys(columns);
  type Lists = Record<string, readonly unknown[]>;
  const sameLength = (name: string) => [name, (lists: Lists) => lists[name].length === lists[names[0]].length] as const;
  const entries = parts({ ...columns, ...rest } as E & R);
  return v.pipe(
    entries,
    relations(Object.fromEntries(names.map(sameLength))) as unknown as v.RawCheckAction<Table<E & R>>
  );
}

type Table<E extends v.ObjectEntries> = v.InferOutput<v.ObjectSchema<E, undefined>>;
