// Searches over all models and structures: the terms of the model graph's search, and the answers by rank.

import { toNumber } from "../../shared/payload/payload";
import {
  COMPARISONS,
  CONDITION,
  readNumber,
  shortened,
  some,
  split,
  suggestions,
  type Term,
  whyNone,
  wordsOf
} from "../../shared/search/search";
import type { Knowledge, Entity } from "./knowledge";
import { bestByModel, quantities, type Quantity, wordOf } from "./quantities";
import { button, el } from "../../shared/ui/dom";
import type { ExplorerStore } from "./state";
import * as words from "../../words/knowledge";

interface Answer {
  readonly things: readonly Entity[]; // best first: models, then structures
  readonly modules: ReadonlySet<number>;
  readonly models: ReadonlySet<number>;
  readonly needles: readonly string[];
  readonly notice: string; // what was not understood; "" when all was
  readonly why: string; // nothing was found; "" where something was
}

type Test = (entity: number) => boolean;

interface Tests {
  module: Test[];
  model: Test[];
  needles: string[];
  notice: string;
}

const NOTHING: Answer = { things: [], modules: new Set(), models: new Set(), needles: [], notice: "", why: "" };
const COLUMNS = ["params", "bytes", "uses", "models"];
const latestAnswer = new WeakMap<Knowledge, { query: string; answer: Answer }>();

/** The latest answer is remembered. */
export function search(data: Knowledge, query: string): Answer {
  const known = latestAnswer.get(data);
  if (known && known.query === query) return known.answer;
  const answer = query.trim() ? run(data, query) : NOTHING;
  latestAnswer.set(data, { query, answer });
  return answer;
}

function run(data: Knowledge, query: string): Answer {
  const tests: Tests = { module: [], model: [], needles: [], notice: "" };
  const terms = split(query);
  for (const term of terms) addTerm(data, term, tests);
  const { needles, notice } = tests;
  if (notice) return { ...NOTHING, needles, notice, why: notice };
  const modules = matching(data.size, tests.module);
  const models = matching(data.modelCount, tests.model);
  const rank = ranker(data, needles);
  const byRank = (a: Entity, b: Entity) => rank(b) - rank(a);
  const things = [
    ...models.map(index => ({ kind: "model", index, level: 0 }) as Entity).sort(byRank),
    ...modules.map(index => ({ kind: "module", index, level: 0 }) as Entity).sort(byRank)
  ];
  const isFound = (term: number) => some(data.size, tests.module[term]) || some(data.modelCount, tests.model[term]);
  const why = things.length > 0 ? "" : whyNone(terms, isFound, [words.noMatch, words.notTogether]);
  return { things, modules: new Set(modules), models: new Set(models), needles, notice, why };
}

function matching(size: number, tests: readonly Test[]): number[] {
  const found: number[] = [];
  for (let i = 0; i < size; i += 1) if (tests.every(test => test(i))) found.push(i);
  return found;
}

function addTerm(data: Knowledge, term: Term, tests: Tests): void {
  if (!term.phrase && (addGroup(data, term.text, tests) || addNumber(data, term.text, tests))) return;
  const needle = term.text.toLowerCase();
  tests.needles.push(needle);
  const texts = textsOf(data);
  tests.module.push(entity => texts.modules[entity].includes(needle));
  tests.model.push(model => texts.models[model].includes(needle));
}

const NEVER: Test = () => false;

/** `class:Conv2d`, `model:resnet18`, `family:resnet`, `community:3`: names in full, whatever their case. */
function addGroup(data: Knowledge, text: string, tests: Tests): boolean {
  const found = /^(type|class|model|family|community):(.*)$/is.exec(text);
  if (!found) return false;
  const [kind, wanted] = [found[1].toLowerCase(), found[2].toLowerCase()];
  if (!wanted) tests.notice ||= words.nameMissing(kind);
  else if (kind === "model") addModel(data, tests, name => name === wanted);
  else if (kind === "family") addFamily(data, tests, wanted);
  else if (kind === "community") {
    tests.module.push(entity => data.payload.entities.community[entity] === Number(wanted));
    tests.model.push(NEVER);
  } else addClass(data, tests, wanted);
  return true;
}

function addClass(data: Knowledge, tests: Tests, wanted: string): void {
  const { classes, entities } = data.payload;
  const accepted = classes.name.map(
    (name, i) => name.toLowerCase() === wanted || classes.qualified[i].toLowerCase() === wanted
  );
  tests.module.push(entity => accepted[entities.class[entity]]);
  tests.model.push(NEVER);
}

function addModel(data: Knowledge, tests: Tests, accepts: (name: string, model: number) => boolean): void {
  const models = data.payload.models.name.flatMap((name, i) => (accepts(name.toLowerCase(), i) ? [i] : []));
  tests.module.push(entity => models.some(model => data.memberSet(model).has(entity)));
  tests.model.push(model => models.includes(model));
}

function addFamily(data: Knowledge, tests: Tests, wanted: string): void {
  const { families, models } = data.payload;
  addModel(data, tests, (_, model) => families[models.family[model]].toLowerCase() === wanted);
}

/** `params>1M`; whether the term is a comparison of numbers, and no free text such as `a=b`. */
function addNumber(data: Knowledge, text: string, tests: Tests): boolean {
  const found = CONDITION.exec(text);
  if (!found) return false;
  const [, name, sign, bound] = found;
  const value = readNumber(bound, name.toLowerCase());
  const column = data.column(name.toLowerCase());
  const holds = COMPARISONS.get(sign);
  const quantities = quantitiesCalled(data, name.toLowerCase());
  if (!column && quantities.length === 0) {
    if (value === null || sign.startsWith("=")) return false;
    tests.notice ||= words.unknownNumber(shortened(name), fieldsOf(data).join(", "));
    return true;
  }
  if (value === null || !holds) {
    tests.notice ||= words.numberMissing(shortened(name + sign), name.toLowerCase());
    return true;
  }
  tests.module.push(entity => {
    const own = column?.[entity] ?? null;
    return own !== null && holds(own, value);
  });
  const best = quantities.map(bestByModel);
  const own = modelNumber(data, name.toLowerCase(), number => holds(number, value));
  const reaches = (number: number | undefined) => number !== undefined && holds(number, value);
  tests.model.push(best.length > 0 ? model => best.some(values => reaches(values.get(model))) : own);
  return true;
}

/** The numbers that a search may compare. */
const fieldsOf = (data: Knowledge): string[] => [
  ...new Set([...COLUMNS, ...data.measures, ...quantitiesOf(data).map(wordOf)])
];

const listed = new WeakMap<Knowledge, readonly string[]>();

/** What the query may become. */
export function suggest(data: Knowledge, query: string): string[] {
  const { classes, families, models } = data.payload;
  const found = listed.get(data) ?? [
    ...wordsOf("class", classes.name),
    ...wordsOf("model", models.name),
    ...wordsOf("family", families)
  ];
  listed.set(data, found);
  return suggestions(query, fieldsOf(data), found);
}

const numbersOf = new WeakMap<Knowledge, readonly Quantity[]>();

function quantitiesOf(data: Knowledge): readonly Quantity[] {
  const found = numbersOf.get(data) ?? quantities(data);
  numbersOf.set(data, found);
  return found;
}

/** What models have a number of by that name: of a target the values on every data set and device. */
const quantitiesCalled = (data: Knowledge, name: string): Quantity[] =>
  quantitiesOf(data).filter(quantity => wordOf(quantity) === name);

/** A model has parameters and bytes; it counts itself as one of one model. */
function modelNumber(data: Knowledge, name: string, accepts: (own: number) => boolean): Test {
  const columns: Record<string, Test> = {
    params: model => accepts(toNumber(data.payload.models.params[model]) ?? Number.NaN),
    bytes: model => accepts(toNumber(data.payload.models.bytes[model]) ?? Number.NaN)
  };
  return Object.prototype.hasOwnProperty.call(columns, name) ? columns[name] : NEVER;
}

/** The name as it was typed, then the beginning of a name, then what lies in a class or a setting; then the uses. */
function ranker(data: Knowledge, needles: readonly string[]): (thing: Entity) => number {
  const ranks = new Map<string, number>();
  return thing => {
    const key = `${thing.kind}${thing.index}`;
    let rank = ranks.get(key);
    if (rank === undefined) {
      rank = nearness(data, thing, needles) + Math.min(0.99, weight(data, thing));
      ranks.set(key, rank);
    }
    return rank;
  };
}

function nearness(data: Knowledge, thing: Entity, needles: readonly string[]): number {
  const name = data.name(thing).toLowerCase();
  const className = thing.kind === "module" ? data.className(thing.index).toLowerCase() : name;
  return needles.reduce((sum, needle) => {
    if (name === needle || className === needle) return sum + 4;
    if (name.startsWith(needle)) return sum + 3;
    return sum + (name.includes(needle) ? 2 : 0);
  }, 0);
}

function weight(data: Knowledge, { kind, index }: Entity): number {
  const uses = kind === "module" ? data.uses[index] : data.payload.models.structures[index];
  return Math.log1p(uses) / 20;
}

interface Texts {
  readonly modules: readonly string[];
  readonly models: readonly string[];
}

const lowered = new WeakMap<Knowledge, Texts>();

/** All that free text is looked for in, in lower case. */
function textsOf(data: Knowledge): Texts {
  let texts = lowered.get(data);
  if (!texts) {
    const { entities, models, families } = data.payload;
    const modules = entities.name.map((name, entity) => {
      const settings = data.hyper(entity).map(([field, value]) => `${field}=${String(value)}`);
      return [name, data.qualifiedName(entity), entities.digest[entity], ...settings].join(" ").toLowerCase();
    });
    const names = models.name.map((name, model) => `${name} ${families[models.family[model]]}`.toLowerCase());
    texts = { modules, models: names };
    lowered.set(data, texts);
  }
  return texts;
}

// What a search comes to in every view: structures by their models, models by their structures, and what is said of it.

export interface SearchHits {
  readonly isActive: boolean; // there is a search, and it was understood
  readonly isEmpty: boolean; // and nothing is found
  readonly modules: ReadonlySet<number>;
  readonly models: ReadonlySet<number>;
  readonly byModels: boolean; // the structures are those of models, as none was found itself
  readonly byModules: boolean; // the models are those with structures, as none was found itself
  readonly sources: ReadonlySet<number>; // the models that the structures are of, if they are
  readonly source: string; // these in words: "resnet50", "the 3 models found"
}

const NONE: SearchHits = {
  isActive: false,
  isEmpty: false,
  modules: new Set(),
  models: new Set(),
  byModels: false,
  byModules: false,
  sources: new Set(),
  source: ""
};
const latestHits = new WeakMap<Knowledge, { readonly query: string; readonly found: SearchHits }>();

/** The latest answer is remembered. */
export function searchHits(data: Knowledge, query: string): SearchHits {
  const known = latestHits.get(data);
  if (known?.query === query) return known.found;
  const found = query.trim() === "" ? NONE : find(data, query);
  latestHits.set(data, { query, found });
  return found;
}

/** A model that is called exactly so stands for its structures, even where others have the text in their names. */
function find(data: Knowledge, query: string): SearchHits {
  const { modules, models, notice } = search(data, query);
  if (notice) return NONE;
  const exact = [...models].filter(
    model => data.payload.models.name[model].toLowerCase() === query.trim().toLowerCase()
  );
  const isEmpty = modules.size + models.size === 0;
  const base = { ...NONE, isActive: true, isEmpty, modules, models };
  if (exact.length > 0 || (modules.size === 0 && models.size > 0)) {
    const sources = exact.length > 0 ? exact : [...models];
    const every = new Set([...modules, ...sources.flatMap(model => [...data.memberSet(model)])]);
    const [first] = sources;
    const source =
      sources.length === 1 ? data.payload.models.name[first] : words.matching(words.models(sources.length));
    return { ...base, modules: every, byModels: true, sources: new Set(sources), source };
  }
  if (models.size === 0) return { ...base, models: new Set(data.modelsWith([...modules])), byModules: true };
  return base;
}

/** In the place of what a view would show: that there is nothing, why, and the way back. */
export function noResultsNote(store: ExplorerStore, isEmpty: boolean): HTMLElement {
  const note = el("div", "mkg-kg-nothing");
  note.setAttribute("role", "status");
  const clear = button("mkg-button mkg-kg-clear", words.CLEAR);
  clear.addEventListener("click", () => store.set("query", ""));
  const said = el("p");
  const [before, after] = isEmpty ? words.NO_RESULTS : words.ELSEWHERE;
  said.append(before, el("bdi", "", store.get("query").trim()), after);
  note.append(said, clear, el("p", "mkg-dim", words.CLEAR_BY_KEY));
  return note;
}
