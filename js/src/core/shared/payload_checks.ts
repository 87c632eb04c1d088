// Checks of data that the kernel sent: small predicates, and an error with a fixed text.

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

export type Fields = Record<string, unknown>;
export type Check = (value: unknown) => boolean;

export function need(condition: boolean, part: string): asserts condition {
  if (!condition) {
    throw new PayloadError(`This widget's data is damaged (${part}): run the cell again.`, part);
  }
}

export const isObject = (value: unknown): value is Fields =>
  typeof value === "object" && value !== null && !Array.isArray(value);
export const isString: Check = value => typeof value === "string";
export const isInteger: Check = value => Number.isInteger(value);
export const isValue: Check = value => value === null || typeof value === "number" || typeof value === "string";
export const isScalar: Check = value => isValue(value) || typeof value === "boolean";
export const isStrings: Check = value => isArrayOf(value, isString);
export const isCount: Check = value => isInteger(value) && (value as number) >= 0;

export function isArrayOf(value: unknown, check: Check): value is unknown[] {
  return Array.isArray(value) && value.every(check);
}

export const below =
  (end: number): Check =>
  value =>
    isInteger(value) && (value as number) >= 0 && (value as number) < end;

export const oneOf =
  (...choices: string[]): Check =>
  value =>
    choices.includes(value as string);

/** A check of a fixed-length record. */
export const tuple =
  (...checks: Check[]): Check =>
  value =>
    Array.isArray(value) && value.length === checks.length && checks.every((check, i) => check(value[i]));

/** A column of a table: so many values of one kind. */
export function column(table: Fields, name: string, length: number, check: Check): void {
  const value = table[name];
  need(isArrayOf(value, check) && value.length === length, name);
}
