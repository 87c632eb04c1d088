// Saved graphs and plans: read as data, and checked before anything is believed.

import { MAX_DEPTH, FileProblem, MAX_FILE_SIZE, MAX_PARTS } from "./file_problem";
import { type ModelPayload, readPayload } from "./payload";
import {
  arrayOf,
  checked,
  dictionary,
  type Guarded,
  is,
  isArrayOf,
  isFiniteNumber,
  isInteger,
  isNumber,
  isObject,
  list,
  OTHER_VERSION,
  parts,
  PayloadError,
  record,
  relations,
  tuple
} from "../base/schema";
import * as v from "valibot";

// What plan.save writes, as far as a reader of it is shown: see modulekg_widgets/engine/pruning/plan/saved/plan_file.py.

const FORMAT = "modulekg-plan";
const VERSION = 1;
const MAX_TEXT_LENGTH = 10_000;
const MAX_SIZE = 2 ** 40;

type Sizes = number | number[];

const isText = (value: unknown): value is string => typeof value === "string" && value.length <= MAX_TEXT_LENGTH;
const isSize = (value: unknown): value is number => isInteger(value) && Math.abs(value) <= MAX_SIZE;
const isAmount = (value: unknown): value is number => isFiniteNumber(value) && value >= 0;
const isSizes = (value: unknown): value is Sizes =>
  isSize(value) || (isArrayOf(value, isSize) && value.length <= MAX_TEXT_LENGTH);
/** A size, several, or a tuple of them, as Python has it. */
const isSetting = (value: unknown): value is Sizes | { tuple: Sizes } =>
  isObject(value) ? isSizes(value.tuple) : isSizes(value);

const beforeAndAfter = is(tuple(isAmount, isAmount));

// guards, as a hostile file may have a million of each
const isAxis = record({
  name: isText,
  size: isSize,
  dropped: arrayOf(isNumber),
  members: arrayOf(isText) // "conv1.weight[0]"
});
const isChange = record({ kind: isText, what: isText, source: isText });

const PlanSchema = v.pipe(
  parts({
    version: v.literal(VERSION),
    params: beforeAndAfter,
    flops: beforeAndAfter,
    macs: beforeAndAfter,
    axes: list(isAxis),
    changes: list(isChange),
    attributes: v.pipe(
      dictionary(tuple(isSetting, isSetting)),
      v.check(settings => Object.keys(settings).every(isText)),
      v.transform(settings =>
        Object.entries(settings).map(([name, [before, after]]) => ({
          name,
          before: settingText(before),
          after: settingText(after)
        }))
      )
    ),
    tensors: v.pipe(
      v.custom<unknown[]>(Array.isArray),
      v.transform(tensors => tensors.length) // how many are cut
    )
  }),
  relations({ dropped: ({ axes }) => axes.every(({ dropped, size }) => isAscending(dropped, size)) })
);

export type SavedPlan = v.InferOutput<typeof PlanSchema>;
export type SavedAxis = Guarded<typeof isAxis>;
export type Pair = SavedPlan["params"];

function isPlan(raw: unknown): boolean {
  return isObject(raw) && raw.format === FORMAT;
}

/** The plan, once all that is shown of it is known to be right; throws `PayloadError`. */
export const readPlan = (raw: unknown): SavedPlan => checked(PlanSchema, raw);

/** Places in the axis, none twice, and not all of them. */
function isAscending(places: readonly number[], size: number): boolean {
  return (
    places.length < size &&
    places.every((place, i) => isInteger(place) && place > (i ? places[i - 1] : -1) && place < size)
  );
}

/** As Python writes it. */
function settingText(setting: Sizes | { tuple: Sizes }): string {
  if (Array.isArray(setting)) return `[${setting.join(", ")}]`;
  return typeof setting === "number" ? String(setting) : `(${[setting.tuple].flat().join(", ")})`;
}

export type SavedFile = { kind: "graph"; payload: ModelPayload } | { kind: "plan"; plan: SavedPlan };

/** What a file holds; throws `FileProblem`. */
export function readSavedFile(text: string): SavedFile {
  measure(text);
  const raw = parsed(text);
  try {
    if (isPlan(raw)) {
      return { kind: "plan", plan: readPlan(raw) };
    }
    if (isObject(raw) && raw.kind === "model") {
      return { kind: "graph", payload: readPayload(raw) };
    }
  } catch (error) {
    if (error instanceof PayloadError && error.message === OTHER_VERSION) {
      throw new FileProblem("version");
    }
    throw new FileProblem("damaged", error instanceof PayloadError ? error.part : "");
  }
  throw new FileProblem("unknown");
}

/** Refuses, before anything is built of it, what a hostile file could stop the page with. */
function measure(text: string): void {
  if (text.trim() === "") {
    throw new FileProblem("empty");
  }
  if (text.length > MAX_FILE_SIZE) {
    throw new FileProblem("large");
  }
  const { depth, deepest, parts, isInText } = shapeOf(text);
  if (deepest > MAX_DEPTH) {
    throw new FileProblem("nested");
  }
  if (parts > MAX_PARTS) {
    throw new FileProblem("parts");
  }
  if (depth > 0 || isInText) {
    throw new FileProblem("cut");
  }
}

const [QUOTE, BACKSLASH, LIST, LIST_END, OBJECT, OBJECT_END] = ['"', "\\", "[", "]", "{", "}"].map(c =>
  c.charCodeAt(0)
);

function shapeOf(text: string): { depth: number; deepest: number; parts: number; isInText: boolean } {
  let [depth, deepest, parts, isInText] = [0, 0, 0, false];
  for (let at = 0; at < text.length && deepest <= MAX_DEPTH && parts <= MAX_PARTS; at++) {
    const code = text.charCodeAt(at);
    if (isInText) {
      at += code === BACKSLASH ? 1 : 0;
      isInText = code !== QUOTE;
    } else if (code === QUOTE) {
      isInText = true;
    } else if (code === LIST || code === OBJECT) {
      parts += 1;
      depth += 1;
      deepest = Math.max(deepest, depth);
    } else if (code === LIST_END || code === OBJECT_END) {
      depth -= 1;
    }
  }
  return { depth, deepest, parts, isInText };
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text.charCodeAt(0) === 0xfeff ? text.slice(1) : text);
  } catch {
    throw new FileProblem("json"); // never the parser's text: it quotes the file
  }
}
