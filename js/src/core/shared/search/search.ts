// The search language: free text, phrases in quotes, `class:Conv2d`, `params > 1M`; several terms must all hold.

import * as words from "../../words/tree";
import { isBytes } from "../base/format";
import { type Hierarchy, KINDS } from "../model/hierarchy";

type Comparison = (value: number, bound: number) => boolean;

export const COMPARISONS: ReadonlyMap<string, Comparison> = new Map<string, Comparison>([
  [">", (value, bound) => value > bound],
  [">=", (value, bound) => value >= bound],
  ["<", (value, bound) => value < bound],
  ["<=", (value, bound) => value <= bound],
  ["=", (value, bound) => value === bound],
  ["==", (value, bound) => value === bound],
  ["!=", (value, bound) => value !== bound],
  ["≥", (value, bound) => value >= bound],
  ["≤", (value, bound) => value <= bound],
  ["≠", (value, bound) => value !== bound]
]);
const PREFIXES = ["", "k", "m", "g", "t", "p"];
const DIGITS = String.raw`\d{1,3}(?:,\d{3})+(?:\.\d*)?|\d+(?:_\d+)*\.?\d*|\.\d+`; // also "1,000,000" and "1_000"
const NUMBER = new RegExp(String.raw`^([+-]?(?:${DIGITS})(?:e[+-]?\d+)?)\s*([kmgtp]?)(i?)(b?|flops?)$`, "i");
export const CONDITION = /^([a-z_][\w.@-]*?)\s*(>=|<=|!=|==|=|>|<|≥|≤|≠)\s*(.*)$/is;

export interface Term {
  text: string;
  phrase: boolean;
}

/** A number with its unit, or a word. */
const BOUND = String.raw`(?:[+-]?[\d.]\S*\s+(?:[kmgtp]i?b?|b|[kmgtp]?flops?)(?=\s|$)|\S*)`;
const END = String.raw`(?:"(?=\s|$)|$)`; // of a phrase; one that is still being typed has no closing quote
const CLASS = String.raw`(?:type|class)\s*(?::|==?)\s*`; // also "class: Conv2d" and "class = Conv2d"
const TERM = new RegExp(
  String.raw`"([^"]+)${END}|${CLASS}(?:"([^"]*)${END}|([^\s"]\S*)|$)|((?:model|family|community):)\s+(\S+)|([a-z_][\w.@-]*\s*(?:[<>!=]=|[<>=\u2265\u2264\u2260])\s*${BOUND}|\S+)`,
  "gi"
);

/** Terms are set apart by white space, which may stand in `params > 1 M`; "double quotes" keep a phrase together. */
export function split(query: string): Term[] {
  return [...query.matchAll(TERM)].map(([whole, phrase, quoted, name, kind, wanted, plain]) => {
    if (phrase !== undefined) return { text: phrase, phrase: true };
    if (plain !== undefined) return { text: plain.trim(), phrase: false };
    if (kind !== undefined) return { text: kind + wanted, phrase: false };
    return { text: `${/^\w+/.exec(whole)?.[0] ?? ""}:${quoted ?? name ?? ""}`, phrase: false };
  });
}

/** "1.5M", "2 KiB", "10 MFLOPs"; "7B" is that many bytes where these are counted, and billions of all else. */
export function readNumber(text: string, column: string): number | null {
  const found = NUMBER.exec(text);
  if (!found) return null;
  const [prefix, binary, byte] = found.slice(2).map(part => part.toLowerCase());
  const isOfFlops = byte.startsWith("flop");
  if ((binary !== "" && (prefix === "" || isOfFlops)) || (isOfFlops && !column.includes("flop"))) return null;
  const power = prefix === "" && byte === "b" && !isBytes(column) ? 3 : PREFIXES.indexOf(prefix);
  return Number(found[1].replace(/[,_]/g, "")) * (binary === "" ? 1000 : 1024) ** power;
}

export function shortened(text: string): string {
  return text.length > 24 ? `${text.slice(0, 24)}…` : text;
}

interface SearchResult {
  readonly nodes: readonly number[]; // tree order
  readonly needles: readonly string[]; // lower-case free text, for highlighting
  readonly notice: string; // what was not understood; "" when all was
  readonly why: string; // nothing was found; "" where something was
}

type Test = (node: number) => boolean;
/** Nodes that match the query, in tree order. */
export function matches(h: Hierarchy, query: string): number[] {
  return [...search(h, query).nodes];
}

const latest = new WeakMap<Hierarchy, { query: string; result: SearchResult }>();

/** As `matches`, with what to highlight and what was wrong; the latest answer is remembered per hierarchy. */
export function search(h: Hierarchy, query: string): SearchResult {
  const known = latest.get(h);
  if (known && known.query === query) return known.result;
  const result = run(h, query);
  latest.set(h, { query, result });
  return result;
}

function run(h: Hierarchy, query: string): SearchResult {
  const tests: Test[] = [];
  const needles: string[] = [];
  let notice = "";
  for (const term of split(query)) {
    const test = term.phrase ? undefined : (classTest(h, term.text) ?? numberTest(h, term.text));
    if (typeof test === "string") notice ||= test;
    else if (test) tests.push(test);
    else {
      const needle = term.text.toLowerCase();
      needles.push(needle);
      tests.push(textTest(h, needle));
    }
  }
  const nodes: number[] = [];
  const terms = split(query);
  // a term that cannot be read must not widen the answer to "everything"
  if (tests.length && !notice) {
    for (let node = 0; node < h.size; node += 1) if (tests.every(test => test(node))) nodes.push(node);
  }
  const noMatch = (term: string) => misunderstood(h, term) ?? words.noMatch(term);
  const reason = () => whyNone(terms, at => some(h.size, tests[at]), [noMatch, words.notTogether]);
  return { nodes, needles, notice, why: notice || (nodes.length > 0 || !tests.length ? "" : reason()) };
}

export function some(size: number, test: Test): boolean {
  for (let at = 0; at < size; at += 1) if (test(at)) return true;
  return false;
}

/** The first term that nothing matches, or that nothing matches all of them. */
export function whyNone(
  terms: readonly Term[],
  matches: (term: number) => boolean,
  [noMatch, notTogether]: readonly [(term: string) => string, (count: number) => string]
): string {
  const at = terms.findIndex((_, term) => !matches(term));
  return at < 0 ? notTogether(terms.length) : noMatch(shortened(terms[at].text));
}

/** What a term that matches nothing was probably meant to be, and how that is written. */
function misunderstood(h: Hierarchy, term: string): string | undefined {
  const [, word] = /^([a-z_][\w-]*):/i.exec(term) ?? [];
  if (word !== undefined) return words.unknownWord(shortened(`${word}:`), knownWords(h));
  const [sign] = /^(?:[<>!]=?|=|[≥≤≠])/.exec(term) ?? [];
  if (sign !== undefined) return words.fieldMissing(sign, fieldsOf(h).join(", "));
  return columnNamed(h, term) && words.numberMissing(term, term.toLowerCase());
}

/** All that a search understands beside text. */
const knownWords = (h: Hierarchy): string =>
  [`class:${exampleClass(h)}`, ...fieldsOf(h).map(name => `${name} > 1M`)].join(", ");

/** The numbers that a search may compare. */
export function fieldsOf(h: Hierarchy): string[] {
  return [...Object.keys(h.payload.columns), "occurrences"];
}

/** `class:Conv2d`, or `type:`: the class, exactly, whatever the case; of the kinds that a file's tensors tell, the beginning does. */
function classTest(h: Hierarchy, term: string): Test | string | undefined {
  const found = /^(?:type|class):(.*)$/is.exec(term);
  if (!found) return undefined;
  const wanted = found[1].toLowerCase();
  if (!wanted) return words.classMissing(exampleClass(h));
  const { classes } = h.payload;
  return byClass(
    h,
    classes.name.map((name, index) => {
      const isMeant = name.toLowerCase() === wanted || classes.qualified[index].toLowerCase() === wanted;
      return isMeant || (isKind(h, index) && name.startsWith(wanted));
    })
  );
}

/** Whether this class of the payload is a kind of modules whose classes the file does not tell. */
function isKind({ payload }: Hierarchy, index: number): boolean {
  const { name, qualified } = payload.classes;
  return Boolean(payload.file) && KINDS.has(name[index]) && name[index] === qualified[index];
}

const MAX_SUGGESTIONS = 12;

/** What a query may become: one of the fields with a comparison, or one of the words, such as "class:Conv2d". */
export function suggestions(query: string, fields: readonly string[], listed: readonly string[]): string[] {
  const [, before, last] = /^(.*?)(\S*)$/s.exec(query) ?? ["", "", ""];
  const wanted = last.toLowerCase().replace(/^type:/, "class:");
  const field = /(?:^|\s)([a-z_][\w.@-]*)\s+$/i.exec(before)?.[1].toLowerCase() ?? "";
  if (last === "" && fields.includes(field)) return ["> 1M", "< 1k", "= 0"].map(end => before + end);
  const matching = [...fields.map(name => `${name} > 1M`), ...listed].filter(one => {
    const word = one.toLowerCase();
    return word.startsWith(wanted) || (wanted !== "" && word.slice(word.indexOf(":") + 1).startsWith(wanted));
  });
  if (matching.length === 1 && matching[0].toLowerCase() === wanted) return [];
  return matching.slice(0, MAX_SUGGESTIONS).map(one => before + one);
}

/** Names that a search can be for without quotes, each once: "class:Conv2d". */
export function wordsOf(kind: string, names: readonly string[]): string[] {
  const found = new Set(names.filter(name => /^[^\s"]+$/.test(name)));
  return [...found].sort().map(name => `${kind}:${name}`);
}

/** The same, with the fields and classes of a model. */
export function modelSuggestions(h: Hierarchy, query: string): string[] {
  return suggestions(query, fieldsOf(h), wordsOf("class", h.payload.classes.name));
}

const EXAMPLE = "Conv2d"; // where no class of the model can be typed

/** The class that most modules with nothing inside have, or the first word of their kind: what a search may ask for. */
export function exampleClass(h: Hierarchy): string {
  const { nodes, entities, classes } = h.payload;
  const counts = new Array<number>(classes.name.length).fill(0);
  for (let node = 1; node < h.size; node += 1)
    if (!h.isContainer(node)) counts[entities.class[nodes.entity[node]]] += 1;
  const words = classes.name.map((name, index) => (isKind(h, index) ? name.split(" ")[0] : name));
  const best = words.reduce((most, word, index) => {
    return /^\w{1,24}$/.test(word) && counts[index] > (counts[most] ?? 0) ? index : most;
  }, -1);
  return words[best] ?? EXAMPLE;
}

function byClass(h: Hierarchy, accepted: readonly boolean[]): Test {
  const { nodes, entities } = h.payload;
  return node => accepted[entities.class[nodes.entity[node]]];
}

/** `params>1M`. Undefined when the term is no comparison of a number, such as the free text `a=b`. */
function numberTest(h: Hierarchy, term: string): Test | string | undefined {
  const found = CONDITION.exec(term);
  if (!found) return undefined;
  const [, name, sign, text] = found;
  const bound = readNumber(text, name.toLowerCase());
  const column = columnNamed(h, name);
  // `src=1` may well be text; `speed>3` is a question that has no answer here
  if (!column)
    return bound === null || sign.startsWith("=")
      ? undefined
      : words.unknownField(shortened(name), fieldsOf(h).join(", "));
  if (bound === null) return words.numberMissing(shortened(name + sign), name.toLowerCase());
  const holds = COMPARISONS.get(sign);
  return node => {
    const value = column[node];
    return value !== null && holds !== undefined && holds(value, bound);
  };
}

function columnNamed(h: Hierarchy, name: string): readonly (number | null)[] | undefined {
  const wanted = name.toLowerCase();
  for (const column of fieldsOf(h)) {
    if (column.toLowerCase() === wanted) return h.column(column);
  }
  return undefined;
}

/** The needle lies in the dotted path or in the class name; in a file also in the name of a tensor. */
function textTest(h: Hierarchy, needle: string): Test {
  const inClass = byClass(
    h,
    h.payload.classes.name.map(name => name.toLowerCase().includes(needle))
  );
  const inPath = pathsContaining(h, needle);
  markTensors(h, needle, inPath);
  return node => inPath[node] === 1 || inClass(node);
}

/**
 * Which dotted paths contain the needle, without building any path: it lies in the parent's path,
 * or it ends in this segment, so the tail of the parent's path is all that has to be looked at.
 */
function pathsContaining(h: Hierarchy, needle: string): Uint8Array {
  const { parent } = h.payload.nodes;
  const names = lowerNames(h);
  const found = new Uint8Array(h.size);
  const keep = needle.length - 1;
  const tails: string[] = [""];
  for (let node = 1; node < h.size; node += 1) {
    const above = parent[node];
    if (found[above]) {
      found[node] = 1; // every path below goes on containing it, so tails are no longer needed
      tails.push("");
      continue;
    }
    const end = above === 0 ? names[node] : `${tails[above]}.${names[node]}`;
    if (end.includes(needle)) found[node] = 1;
    tails.push(keep ? end.slice(-keep) : "");
  }
  return found;
}

/** In a file people look for tensors, too: a module is found by those that are its own. */
function markTensors(h: Hierarchy, needle: string, found: Uint8Array): void {
  const { file } = h.payload;
  if (!file) return;
  let names = loweredTensors.get(h);
  if (!names) loweredTensors.set(h, (names = file.tensors.name.map(name => name.toLowerCase())));
  names.forEach((name, at) => {
    if (name.includes(needle)) found[file.tensors.node[at]] = 1;
  });
}

const loweredTensors = new WeakMap<Hierarchy, readonly string[]>();

const lowered = new WeakMap<Hierarchy, string[]>();

function lowerNames(h: Hierarchy): string[] {
  let names = lowered.get(h);
  if (!names) {
    names = h.payload.nodes.name.map(name => name.toLowerCase());
    lowered.set(h, names);
  }
  return names;
}

/** Cut `text` where the needles lie: alternating parts, the odd ones are hits. */
export function highlight(text: string, needles: readonly string[]): string[] {
  const lower = text.toLowerCase();
  const parts: string[] = [];
  if (lower.length !== text.length) return [text]; // a letter grew in lower case: positions would not fit
  const hits = mergedHits(lower, needles);
  let at = 0;
  for (const [start, end] of hits) {
    parts.push(text.slice(at, start), text.slice(start, end));
    at = end;
  }
  parts.push(text.slice(at));
  return parts;
}

function mergedHits(text: string, needles: readonly string[]): [number, number][] {
  const hits: [number, number][] = [];
  for (const needle of needles) {
    for (let at = text.indexOf(needle); needle && at >= 0; at = text.indexOf(needle, at + needle.length)) {
      hits.push([at, at + needle.length]);
    }
  }
  hits.sort((a, b) => a[0] - b[0]);
  const merged: [number, number][] = [];
  for (const [start, end] of hits) {
    const last = merged[merged.length - 1];
    if (last && start <= last[1]) last[1] = Math.max(last[1], end);
    else merged.push([start, end]);
  }
  return merged;
}
