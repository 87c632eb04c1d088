// The readers of model files: which of them a file is given to, and what becomes of its failures.

import { FileProblem } from "../shared/file_problem";
import { malformed } from "./bounds";
import type { FileContents, FileSource, Reader } from "./records";
import { readSafetensors } from "./safetensors";

interface Format {
  readonly extensions: readonly string[];
  /** Whether a file of this extension begins so, or, whatever its name, a file that begins so is of this format. */
  readonly begins: ((start: Uint8Array) => boolean) | null;
  readonly read: Reader;
}

const FORMATS: readonly Format[] = [{ extensions: [".safetensors"], begins: null, read: readSafetensors }];

const LONGEST_MAGIC = 16;

/** What the names of model files end with. */
export const EXTENSIONS: readonly string[] = FORMATS.flatMap(format => format.extensions);

/** What a model file holds; rejects with a `FileProblem`, whatever the bytes. */
export async function readModelFile(source: FileSource): Promise<FileContents> {
  if (source.size === 0) throw new FileProblem("empty");
  const read = formatOf(source.name, await source.read(0, Math.min(LONGEST_MAGIC, source.size))).read;
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
  const found =
    named.find(format => format.begins === null || format.begins(start)) ??
    FORMATS.find(format => format.begins?.(start) === true);
  if (found !== undefined) return found;
  throw named.length > 0 ? malformed("it begins as no file of this name does") : new FileProblem("format");
}
