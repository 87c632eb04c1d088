// The readers of model files: which of them a file is given to, and what becomes of its failures.

import { FileProblem } from "../shared/payload/file_problem";
import { malformed, excerpt } from "./bytes/bounds";
import { withConfig } from "./config";
import { readGguf } from "./gguf";
import { anyText } from "./bytes/numbers";
import { readOnnx } from "./onnx/onnx";
import type { FileContents, FileSource, Reader } from "./bytes/records";
import { readSafetensors } from "./safetensors";
import { readCheckpointIndex, readIndex } from "./sharded";
import { PICKLE, readTorch, ZIP } from "./pickle/torch_file";

interface Format {
  readonly extensions: readonly string[];
  readonly magic: readonly string[]; // what such a file begins with, whatever its name; none: its name alone tells it
  readonly read: Reader;
}

const FORMATS: readonly Format[] = [
  { extensions: [".safetensors"], magic: [], read: readSafetensors },
  { extensions: [".safetensors.index.json"], magic: [], read: readIndex },
  { extensions: [".bin.index.json"], magic: [], read: readCheckpointIndex },
  { extensions: [".gguf"], magic: ["GGUF"], read: readGguf },
  { extensions: [".onnx"], magic: [], read: readOnnx },
  { extensions: [".pt2", ".bin", ".ptl", ".jit"], magic: [ZIP, PICKLE], read: readTorch },
  // old pickles have no magic
  { extensions: [".pt", ".pth", ".pth.tar", ".pt.tar", ".ckpt", ".pkl", ".pickle"], magic: [], read: readTorch },
  // what names the tensors of a shard lies beside it in a hidden file, which servers do not give
  { extensions: [".distcp"], magic: [], read: () => Promise.reject(new FileProblem("shards")) }
];

const FIRST = 64; // bytes that tell what a file is
const MAX_TEXT_SIZE = 4_096; // bytes of a text that stands in the place of a model
const [TAR, TAR_PLACE] = ["ustar", 257];
const TEXTS = ".json";
/** What stands in the place of a model after a download that went wrong, by what it begins with, in small letters. */
const NO_MODELS: readonly (readonly [begin: string, reason: "pointer" | "page"])[] = [
  ["version https://git-lfs", "pointer"],
  ["<!doctype", "page"],
  ["<html", "page"],
  ["<head", "page"],
  ["<body", "page"]
];
/** As tests of bytes: what begins so is packed, and has no reader. */
const PACKED: readonly string[] = ["\x1f\x8b\x08", "BZh", "\xfd7zXZ\0", "\x28\xb5\x2f\xfd"];

/** What a model file holds, and a config.json beside it says; rejects with a `FileProblem`, whatever the bytes. */
export async function readModelFile(source: FileSource): Promise<FileContents> {
  return withConfig(await readAlone(source), source);
}

/** What a model file holds. */
async function readAlone(source: FileSource): Promise<FileContents> {
  if (source.size === 0) throw new FileProblem("empty");
  const start = await source.read(0, Math.min(FIRST, source.size));
  const begin = String.fromCharCode(...start)
    .replace(/^\xef\xbb\xbf/, "")
    .trimStart()
    .toLowerCase();
  const told = NO_MODELS.find(([text]) => begin.startsWith(text));
  if (told !== undefined) throw new FileProblem(told[1]);
  try {
    return await formatOf(source.name, start).read(source);
  } catch (error) {
    const isOurs = error instanceof FileProblem && error.reason !== "unreadable";
    const instead = isOurs || error instanceof RangeError ? await insteadOfAModel(source, start) : null;
    if (instead !== null) throw instead;
    // a length that no array can have, or a number beyond the bytes that a view has
    if (error instanceof RangeError) throw malformed("a part lies beyond its end");
    throw error;
  }
}

/** What a file is that cannot be read; null where that is not told. */
async function insteadOfAModel(source: FileSource, start: Uint8Array): Promise<FileProblem | null> {
  if (source.name.toLowerCase().endsWith(TEXTS)) return null;
  const isTar = source.size > TAR_PLACE + TAR.length && beginsWith(await source.read(TAR_PLACE, TAR.length), TAR);
  if (isTar || PACKED.some(text => beginsWith(start, text))) return new FileProblem("packed");
  if (start.length === FIRST && start.every(byte => byte === 0)) return new FileProblem("unfinished");
  if (source.size > MAX_TEXT_SIZE) return null;
  const text = anyText(await source.read(0, source.size)).trim();
  const isText = !/[\p{Cc}\p{Cn}\ufffd]/u.test(text.replace(/[\r\n\t]/g, " "));
  return isText && /^[<{]| /.test(text) ? new FileProblem("text", excerpt(text)) : null;
}

function formatOf(name: string, start: Uint8Array): Format {
  const named = FORMATS.filter(format => format.extensions.some(ending => name.toLowerCase().endsWith(ending)));
  const begins = ({ magic }: Format) => magic.some(text => beginsWith(start, text));
  const found = named.find(format => format.magic.length === 0 || begins(format)) ?? FORMATS.find(begins);
  if (found !== undefined) return found;
  throw named.length > 0 ? malformed("it begins as no file of this name does") : new FileProblem("format");
}

/** `text` has a character for each byte. */
function beginsWith(start: Uint8Array, text: string): boolean {
  return text.length <= start.length && [...text].every((character, at) => character.charCodeAt(0) === start[at]);
}
