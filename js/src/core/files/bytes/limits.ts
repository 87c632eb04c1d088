// Limits of the file readers: maximum sizes, errors for malformed files, and excerpts of file text for messages.

import { FileProblem } from "../../shared/payload/file_problem";
import { isObject } from "../../shared/base/schema";
import type { Plain } from "./records";

export const MAX_TENSORS = 500_000;
export const MAX_DIMENSIONS = 64;
export const MAX_HEADER_SIZE = 64 * 2 ** 20; // bytes of what is read whole
const MAX_FOLDERS = 16; // within each other, below the folder of the file
const MAX_PATH_LENGTH = 1_000; // characters
const MAX_COUNT = Number.MAX_SAFE_INTEGER;

/** That a file is malformed; `what` says where, and may have texts of the file only as `shown` gives them. */
export const malformed = (what: string) => new FileProblem("malformed", what);

/** That a file has more than is read of any. */
export const limitExceeded = (what: string) => new FileProblem("excess", what);

/** Malformed unless so; `what` may be a function, for texts that take longer than what is checked. */
export function ensure(condition: boolean, what: string | (() => string)): asserts condition {
  if (!condition) throw malformed(typeof what === "string" ? what : what());
}

/** A text of a file as one printable line, at most `limit` characters. */
export function excerpt(text: string, limit = 80): string {
  const line = text.length <= limit ? text : `${text.slice(0, limit - 1)}…`;
  return line.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, each => `\\u{${(each.codePointAt(0) ?? 0).toString(16)}}`);
}

/** Whether a name stands for a file in the same folder, on every system. */
export function isPlainName(name: string): boolean {
  return name !== "" && name !== "." && name !== ".." && !/[/\\\0:]/.test(name);
}

/** Whether a name stands for a file in the same folder or in one below it, on every system; "./a" is "a". */
export function isPlainPath(path: string): boolean {
  const parts = path.replace(/^\.\//, "").split("/");
  return path.length <= MAX_PATH_LENGTH && parts.length <= MAX_FOLDERS && parts.every(isPlainName);
}

/** The product of sizes; malformed where no file is as large. */
export function product(sizes: readonly number[], what: () => string): number {
  const result = sizes.includes(0) ? 0 : sizes.reduce((total, size) => total * size, 1);
  ensure(result <= MAX_COUNT, () => `${what()} is larger than files can be`);
  return result;
}

/** A size or an offset of a JSON document. */
export const isSize = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;

/** What it makes of each, at most `most` at a time, in their order. */
export async function mapSome<T, R>(items: readonly T[], most: number, make: (item: T) => Promise<R>): Promise<R[]> {
  const results: R[] = [];
  let next = 0;
  const work = async () => {
    while (next < items.length) {
      const at = next++;
      results[at] = await make(items[at]);
    }
  };
  await Promise.all(Array.from({ length: Math.min(most, items.length) }, work));
  return results;
}

/** The texts, numbers, true, false and null that a JSON object has. */
export function plainValues(value: unknown): Record<string, Plain> {
  if (!isObject(value)) return {};
  return Object.fromEntries(Object.entries(value).filter((pair): pair is [string, Plain] => isPlain(pair[1])));
}

export const isPlain = (value: unknown): value is Plain =>
  value === null || ["string", "number", "boolean"].includes(typeof value);
