// The readers of model files: which of them a file is given to, and what becomes of its failures.

import { FileProblem } from "../shared/file_problem";
import { malformed } from "./bounds";
import { withConfig } from "./config";
import { readGguf } from "./gguf";
import { readOnnx } from "./onnx";
import type { FileContents, FileSource, Reader } from "./records";
import { readSafetensors } from "./safetensors";
import { readCheckpointIndex, readIndex } from "./sharded";
import { PICKLE, readTorch, ZIP } from "./torch_file";

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
  { extensions: [".pt2", ".bin", ".ptl"], magic: [ZIP, PICKLE], read: readTorch },
  { extensions: [".pt", ".pth", ".ckpt", ".pkl", ".pickle"], magic: [], read: readTorch } // old pickles have no magic
];

const LONGEST_MAGIC = 16;

/** What the names of model files end with. */
export const EXTENSIONS: readonly string[] = FORMATS.flatMap(format => format.extensions);

/** What a model file holds, and a config.json beside it says; rejects with a `FileProblem`, whatever the bytes. */
export async function readModelFile(source: FileSource): Promise<FileContents> {
  return withConfig(await readAlone(source), source);
}

/** What a model file holds. */
export async function readAlone(source: FileSource): Promise<FileContents> {
  if (source.size === 0) throw new FileProblem("empty");
  const { read } = formatOf(source.name, await source.read(0, Math.min(LONGEST_MAGIC, source.size)));
  try {
    return await read(source);
  } catch (error) {
    // a length that no array can have, or a number beyond the bytes that a view has
    if (error instanceof RangeError) throw malformed("a part lies beyond its end");
    throw error;
  }
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
