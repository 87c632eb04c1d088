// Why a saved file is not shown, as one sentence.

import type { Words } from "./words";

export const LARGEST_FILE = 64 * 2 ** 20; // characters
export const DEEPEST = 64; // lists and objects within each other
export const MOST_PARTS = 2_000_000; // lists and objects, each of which takes many times its text in memory

type Reason = "empty" | "large" | "nested" | "parts" | "cut" | "json" | "unknown" | "version" | "damaged";

/** Why a file is not shown. */
export class FileProblem extends Error {
  override name = "FileProblem";

  constructor(
    readonly reason: Reason,
    readonly part = ""
  ) {
    super(reason);
  }
}

/** One sentence for whoever opened the file. */
export function sentence({ reason, part }: FileProblem, words: Words): string {
  switch (reason) {
    case "empty":
      return words.__("This file is empty.");
    case "large":
      return words.__("This file is not opened: it is larger than %1 MB.", LARGEST_FILE / 2 ** 20);
    case "nested":
      return words.__("This file is not opened: its lists are nested deeper than any that this package writes.");
    case "parts":
      return words.__("This file is not opened: it has more than %1 million lists and objects.", MOST_PARTS / 1e6);
    case "cut":
      return words.__("This file ends in the middle: it was not saved or copied to its end.");
    case "json":
      return words.__("This file is no JSON: save the graph or the plan again.");
    case "unknown":
      return words.__("This file is neither a graph nor a plan: save one with graph.export(path) or plan.save(path).");
    case "version":
      return words.__("This file was saved by another version of modulekg-widgets: save it again with this one.");
    default:
      return words.__("This file is damaged (%1): save the graph or the plan again.", part || "?");
  }
}
