// The grammar of searches: terms set apart by white space, phrases in quotes, `name>number`.

type Comparison = (value: number, bound: number) => boolean;

export const COMPARISONS: ReadonlyMap<string, Comparison> = new Map<string, Comparison>([
  [">", (value, bound) => value > bound],
  [">=", (value, bound) => value >= bound],
  ["<", (value, bound) => value < bound],
  ["<=", (value, bound) => value <= bound],
  ["=", (value, bound) => value === bound],
  ["==", (value, bound) => value === bound],
  ["!=", (value, bound) => value !== bound]
]);
const FACTORS = new Map([
  ["", 1],
  ["k", 1e3],
  ["m", 1e6],
  ["g", 1e9],
  ["t", 1e12]
]);
const NUMBER = /^([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)([kmgt]?)$/i;
export const CONDITION = /^([a-z_][\w.@-]*?)(>=|<=|!=|==|=|>|<)(.*)$/is;

const TERM = /"([^"]+)"(?=\s|$)|((?:type|class):)"([^"]*)"(?=\s|$)|(\S+)/gi;

export interface Term {
  text: string;
  phrase: boolean;
}

/** Terms are set apart by white space; "double quotes" keep a phrase together, and what is after `type:`. */
export function split(query: string): Term[] {
  const terms: Term[] = [];
  for (const [, phrase, prefix, quoted, plain] of query.matchAll(TERM)) {
    if (phrase !== undefined) terms.push({ text: phrase, phrase: true });
    else terms.push({ text: prefix === undefined ? plain : prefix + quoted, phrase: false });
  }
  return terms;
}

export function readNumber(text: string): number | null {
  const found = NUMBER.exec(text);
  if (!found) return null;
  return Number(found[1]) * (FACTORS.get(found[2].toLowerCase()) ?? Number.NaN);
}

export function shortened(text: string): string {
  return text.length > 24 ? `${text.slice(0, 24)}…` : text;
}
