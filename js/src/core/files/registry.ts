// Registry of the model file readers: detects the format and reports errors.

import { FileProblem } from "../shared/payload/file_problem";
import { malformed, excerpt, limitExceeded, isPlain } from "./bytes/limits";
import { readGguf } from "./gguf";
import { anyText, floatText } from "./bytes/numbers";
import { readOnnx } from "./onnx/onnx";
import type { FileContents, FileSource, Reader, Plain } from "./bytes/records";
import { readSafetensors, readCheckpointIndex, readIndex } from "./safetensors";
import { PICKLE, readTorch, ZIP } from "./pickle/torch_file";
import { type Fields, isObject } from "../shared/base/schema";
import { type Element, elementText, Float, MAX_ELEMENTS, short, shortList } from "./bytes/graph_building";
import { parseObject } from "./bytes/json";

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

// A config.json beside a model file, as transformers, diffusers and timm write it: title and sizes.
// As modulekg_widgets/engine/files/config_json.py reads it.

const NAME = "config.json";
const [ADAPTER, OF_ADAPTER] = ["adapter_config.json", "adapter_model."]; // and what the files begin with that it is of
const TITLES: readonly string[] = ["_class_name", "architecture", "model_type", "peft_type"];
const MAX_FILE_SIZE = 2 ** 20; // bytes
const MAX_SETTINGS = 200;
const MAX_NESTED = 100; // settings of one object within the config; what has more is a table, such as one of labels
const MAX_TEXT_LENGTH = 200; // characters of a text

/**
 * The contents with what a config.json of the same folder adds; one that makes no sense is a warning. An adapter, as peft
 * saves it, has one of its own, and says which model it is for.
 */
export async function withConfig(contents: FileContents, source: FileSource): Promise<FileContents> {
  if (source.name.startsWith(OF_ADAPTER)) {
    const found = await withNamed(contents, source, ADAPTER);
    if (found !== null) return found;
  }
  return (await withNamed(contents, source, NAME)) ?? contents;
}

/** Null where there is no file of this name. */
async function withNamed(contents: FileContents, source: FileSource, name: string): Promise<FileContents | null> {
  try {
    const config = await configBeside(source, name);
    if (config === null) return null;
    const metadata = { ...contents.metadata, ...settings(config), ...contents.metadata }; // what the file says itself comes first and counts
    const warnings = name === ADAPTER ? [ofAdapter(config), ...contents.warnings] : contents.warnings;
    return { ...contents, title: contents.title || title(config), metadata, warnings };
  } catch (error) {
    if (!(error instanceof FileProblem)) throw error;
    return { ...contents, warnings: [...contents.warnings, `${name} next to the file cannot be read`] };
  }
}

function ofAdapter(config: Fields): string {
  const base = config.base_model_name_or_path;
  const named = typeof base === "string" && base !== "" ? excerpt(base, MAX_TEXT_LENGTH) : "another model";
  return `this is an adapter of ${named}, whose own weights are not in this file: open that model for them`;
}

async function configBeside(source: FileSource, name: string): Promise<Fields | null> {
  let file: FileSource;
  try {
    file = await source.beside(name);
  } catch (error) {
    if (error instanceof FileProblem && error.reason === "missing") return null;
    throw error;
  }
  if (file.size > MAX_FILE_SIZE) throw limitExceeded(`bytes of ${name}`);
  return parseObject(await file.read(0, file.size), name);
}

/** Its own settings, and then those of the objects in it under dotted names. */
function settings(config: Fields): Record<string, Plain> {
  const found = new Map(ownSettings(config));
  for (const [key, value] of Object.entries(config)) {
    const nested = isObject(value) && !isNumber(key) ? ownSettings(value) : [];
    if (nested.length > MAX_NESTED) continue;
    for (const [name, setting] of nested) if (!found.has(`${key}.${name}`)) found.set(`${key}.${name}`, setting);
  }
  const named = [...found].filter(([key]) => isShort(key));
  return Object.fromEntries(named.slice(0, MAX_SETTINGS));
}

/** What is plain, and short lists as texts; under numbers stand entries of a list, as labels do. */
function ownSettings(config: Fields): [string, Plain][] {
  return Object.entries(config).flatMap(([key, value]): [string, Plain][] => {
    if (isNumber(key)) return [];
    if (Array.isArray(value)) return isShortList(value) ? [[key, shortList(value.map(listed))]] : [];
    if (!isPlain(value) || (typeof value === "string" && !isShort(value))) return [];
    return [[key, short(typeof value === "number" ? new Float(value) : value)]];
  });
}

const isShortList = (value: readonly unknown[]): value is Plain[] =>
  value.length <= MAX_ELEMENTS && value.every(isPlain);

const isNumber = (key: string) => /^[0-9]+$/.test(key);

const isShort = (text: string) => text.length <= MAX_TEXT_LENGTH || [...text].length <= MAX_TEXT_LENGTH;

/** A number as Python writes it, without a fraction where it is whole: a 2.0 is a 2 here. */
function listed(value: Plain): Element {
  if (typeof value !== "number") return elementText(value);
  return Number.isInteger(value) && Math.abs(value) <= 2 ** 53 ? String(value) : floatText(value);
}

/** The class that the model was saved from; its architecture or its type where none is named. */
function title(config: Fields): string {
  const names = config.architectures;
  const others = TITLES.map(key => config[key]).find(value => Boolean(value));
  const first: unknown = Array.isArray(names) && names.length > 0 ? names[0] : others;
  return typeof first === "string" ? first.slice(0, MAX_TEXT_LENGTH) : "";
}
