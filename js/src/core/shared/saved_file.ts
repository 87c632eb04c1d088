// A saved graph or plan: read as data, and checked before anything is believed.

import { DEEPEST, FileProblem, LARGEST_FILE, MOST_PARTS } from "./file_problem";
import { type ModelPayload, readPayload } from "./payload";
import { isObject, OTHER_VERSION, PayloadError } from "./schema";
import { isPlan, readPlan, type SavedPlan } from "./plan_file";

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
  if (text.length > LARGEST_FILE) {
    throw new FileProblem("large");
  }
  const { depth, deepest, parts, isInText } = shapeOf(text);
  if (deepest > DEEPEST) {
    throw new FileProblem("nested");
  }
  if (parts > MOST_PARTS) {
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
  for (let at = 0; at < text.length && deepest <= DEEPEST && parts <= MOST_PARTS; at++) {
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
