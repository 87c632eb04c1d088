// The classes of a TorchScript archive, from the text of its code: which tensors are parameters, and constants.

import { mapSome } from "./bounds";
import { Global, type Value } from "./pickle";
import { anyText } from "./numbers";
import { onlyNamed, SCRIPTED, type ScriptedClass } from "./pickled";
import type { Plain } from "./records";
import type { Archive } from "./zip";

const LARGEST_CODE = 4 * 2 ** 20; // bytes of one file
const MOST_CODE = 32 * 2 ** 20; // of all that are read
const AT_ONCE = 6; // requests

const CLASS = /^class (\w+)\(/gm;
const TENSORS = /^ {2}__(parameters|buffers)__ = \[(.*)\]$/gm;
const CONSTANT = /^ {2}(\w+) : Final\[\w+\] = (.{1,200})$/gm;
const TEXT = /"([^"\\]*)"/g;
const MARK = /___torch_mangle_\d+\./g; // tells apart classes of one name

/** Finds classes by what names them in a pickle, of which `globals` are all; each file of code is read once. */
export async function scriptedClasses(
  archive: Archive,
  globals: Iterable<Global>
): Promise<(maker: Value) => ScriptedClass> {
  const found = [...globals].filter(({ path }) => path.startsWith(SCRIPTED));
  const files = readable(archive, [...new Set(found.map(({ module }) => fileOf(module)))]);
  const codes = await mapSome(files, AT_ONCE, file => archive.read(file, LARGEST_CODE));
  const texts = new Map(files.map((file, at) => [file, bodies(anyText(codes[at]))]));
  const classes = new Map(
    found.map(({ module, path }) => [
      path,
      classIn(path, texts.get(fileOf(module))?.get(path.slice(module.length + 1)))
    ])
  );
  return maker =>
    maker instanceof Global ? (classes.get(maker.path) ?? onlyNamed(nameOf(maker.path))) : onlyNamed("");
}

const fileOf = (module: string) => `code/${module.replaceAll(".", "/")}.py`;

/** The files of code that there are, as long as they are not too many. */
function readable(archive: Archive, files: readonly string[]): string[] {
  let left = MOST_CODE;
  return files.filter(file => {
    const size = archive.has(file) ? archive.size(file) : 0;
    left -= size;
    return size > 0 && size <= LARGEST_CODE && left >= 0;
  });
}

const nameOf = (path: string) => (path.startsWith(SCRIPTED) ? path.slice(SCRIPTED.length) : path).replace(MARK, "");

/** The text of each class of a file of code, up to the next class. */
function bodies(code: string): Map<string, string> {
  const starts = [...code.matchAll(CLASS)];
  return new Map(starts.map((found, at) => [found[1], code.slice(found.index, starts[at + 1]?.index ?? code.length)]));
}

function classIn(path: string, text: string | undefined): ScriptedClass {
  const name = nameOf(path);
  if (text === undefined) return onlyNamed(name);
  const tensors = new Map(Array.from(text.matchAll(TENSORS), found => [found[1], namesIn(found[2])]));
  return {
    name,
    parameters: tensors.get("parameters") ?? new Set(),
    buffers: tensors.get("buffers") ?? new Set(),
    constants: new Map(Array.from(text.matchAll(CONSTANT), found => [found[1], constant(found[2])]))
  };
}

const namesIn = (list: string): ReadonlySet<string> => new Set(Array.from(list.matchAll(TEXT), found => found[1]));

function constant(text: string): Plain {
  if (text === "True" || text === "False") return text === "True";
  const isNumber = /^[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$/.test(text);
  return isNumber ? Number(text) : text.replace(/^"+|"+$/g, "");
}
