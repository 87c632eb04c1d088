// A config.json beside a model file, as transformers, diffusers and timm write it: title and sizes.
// As modulekg_widgets/engine/files/config_json.py reads it.

import { FileProblem } from "../shared/payload/file_problem";
import { type Fields, isObject } from "../shared/base/schema";
import { excess, isPlain, excerpt } from "./bytes/bounds";
import { type Element, elementText, Float, MAX_ELEMENTS, short, shortList } from "./bytes/graph_parts";
import { parseObject } from "./bytes/json";
import { floatText } from "./bytes/numbers";
import type { FileContents, FileSource, Plain } from "./bytes/records";

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
    return { ...contents, warnings: [...contents.warnings, `${name} beside the file cannot be read`] };
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
  if (file.size > MAX_FILE_SIZE) throw excess(`bytes of ${name}`);
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
