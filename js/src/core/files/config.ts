// A config.json beside a model file, as transformers writes it: class, title and sizes as text.

import { FileProblem } from "../shared/file_problem";
import type { Fields } from "../shared/schema";
import { excess, plainOnes } from "./bounds";
import { parseObject } from "./json";
import type { FileContents, FileSource, Plain } from "./records";

const NAME = "config.json";
const LARGEST = 2 ** 20; // bytes
const MOST_SETTINGS = 200;
const LONGEST = 200; // characters of a text

/** The contents with what a config.json of the same folder adds; one that makes no sense is a warning. */
export async function withConfig(contents: FileContents, source: FileSource): Promise<FileContents> {
  try {
    const config = await configBeside(source);
    if (config === null) return contents;
    const metadata = { ...contents.metadata, ...settings(config), ...contents.metadata }; // what the file says itself comes first and counts
    return { ...contents, title: contents.title || title(config), metadata };
  } catch (error) {
    if (!(error instanceof FileProblem)) throw error;
    return { ...contents, warnings: [...contents.warnings, `${NAME} beside the file cannot be read`] };
  }
}

async function configBeside(source: FileSource): Promise<Fields | null> {
  let file: FileSource;
  try {
    file = await source.beside(NAME);
  } catch (error) {
    if (error instanceof FileProblem && error.reason === "missing") return null;
    throw error;
  }
  if (file.size > LARGEST) throw excess(`bytes of ${NAME}`);
  return parseObject(await file.read(0, file.size), NAME);
}

function settings(config: Fields): Record<string, Plain> {
  const short = Object.entries(plainOnes(config)).filter(
    ([, value]) => typeof value !== "string" || value.length <= LONGEST
  );
  return Object.fromEntries(short.slice(0, MOST_SETTINGS));
}

/** The class that the model was saved from; its type where none is named. */
function title(config: Fields): string {
  const names = config.architectures;
  const first: unknown = Array.isArray(names) && names.length > 0 ? names[0] : config._class_name || config.model_type;
  return typeof first === "string" ? first.slice(0, LONGEST) : "";
}
