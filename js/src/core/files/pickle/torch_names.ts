// Names of torch in pickles: types of elements, storages, and all that its own loader holds to be safe.

import { FORMAT_TABLES } from "../../../generated/format_tables";
import { excerpt } from "../bytes/limits";

/** How many bits an element takes, by torch's word. */
export const BITS: ReadonlyMap<string, number> = new Map(
  Object.entries(FORMAT_TABLES.torch_bits).flatMap(([bits, words]) =>
    words.map((word): [string, number] => [word, Number(bits)])
  )
);

/** By the name of the class: what a storage has; an untyped one has bytes. */
export const STORAGES: ReadonlyMap<string, string> = new Map(Object.entries(FORMAT_TABLES.torch_storages));

const SAFE: ReadonlySet<string> = new Set([
  ...[...BITS.keys()].map(name => `torch.${name}`),
  ...[...STORAGES.keys()].filter(name => name !== "UntypedStorage").map(name => `torch.${name}`),
  ...Object.entries(FORMAT_TABLES.safe_globals).flatMap(([prefix, names]) => names.map(name => prefix + name))
]);
/** What torch writes into the pickles of TorchScript, whose own loader takes it for types of values. */
const SCRIPT_TYPES: ReadonlySet<string> = new Set(FORMAT_TABLES.script_types.map(name => `torch.jit._pickle.${name}`));

// what reaches beyond the model, to be named first: all of some modules, and some of others
const DANGEROUS_MODULES: ReadonlySet<string> = new Set(FORMAT_TABLES.dangerous_modules);
const DANGEROUS_NAMES: ReadonlySet<string> = new Set(FORMAT_TABLES.dangerous_names);
const MAX_NAMED = 8;

/** Whether something that a file would have imported reaches beyond the model: files, processes, other code. */
const isDangerous = (path: string) =>
  DANGEROUS_MODULES.has(path.split(".", 1)[0]) || DANGEROUS_NAMES.has(path.split("[", 1)[0]);

/** What to say of a file that names more than torch's own loader takes to be safe, the most dangerous first. */
export function codeWarnings(classes: readonly string[], loader: string, isScript: boolean): string[] {
  const isSafe = (path: string) => SAFE.has(path) || (isScript && SCRIPT_TYPES.has(path));
  const unsafe = classes.filter(path => !isSafe(path)).sort();
  const beyond = [...unsafe.filter(isDangerous), ...unsafe.filter(path => !isDangerous(path))];
  if (beyond.length === 0) return [];
  const listed = beyond.slice(0, MAX_NAMED).map(path => excerpt(path));
  const named = listed.join(", ") + (beyond.length > MAX_NAMED ? ", …" : "");
  const text = `${loader} would import and run code that this file names, beyond what torch holds to be safe: ${named}`;
  return [
    isDangerous(beyond[0])
      ? `${text}. That may do anything on your computer: do not load it`
      : `${text}. Load it only if you trust where it comes from`
  ];
}
