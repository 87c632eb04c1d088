// Payloads with one to three nasty values in the place of right ones, the same in every run.

export type Random = (end: number) => number;

/** Whole numbers below `end`, in an order that the seed decides. */
export function randomly(seed: number): Random {
  let state = seed;
  return end => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * end);
  };
}

const deep = (levels: number): unknown => {
  let value: unknown = 0;
  for (let level = 0; level < levels; level++) value = level % 2 ? [value] : { a: value };
  return value;
};

const NASTY: readonly (() => unknown)[] = [
  () => null,
  () => undefined,
  () => NaN,
  () => Infinity,
  () => -1,
  () => -0,
  () => 0,
  () => 1,
  () => 0.5,
  () => 2 ** 31,
  () => 2 ** 53,
  () => 1e308,
  () => "",
  () => "NaN",
  () => "-Infinity",
  () => "9".repeat(400),
  () => "__proto__",
  () => "constructor",
  () => "<img src=x onerror=alert(1)>",
  () => '"></script><script>alert(1)</script>',
  () => "\u202e\u0000\ud800",
  () => "x".repeat(100_000),
  () => true,
  () => [],
  () => [[]],
  () => Array.from({ length: 20_000 }, () => 0),
  () => Array(3),
  () => ({}),
  () => ({ length: 3 }),
  () => JSON.parse('{"__proto__": {"polluted": 1}, "constructor": [1], "toString": 3}') as unknown,
  () => deep(500),
  () => new DataView(new ArrayBuffer(3))
];

type Holder = Record<string | number, unknown>;

/** Every place in a value, those in large lists thinned. */
function places(value: unknown, found: [Holder, string | number][] = []): [Holder, string | number][] {
  if (typeof value !== "object" || value === null || ArrayBuffer.isView(value)) return found;
  const keys = Array.isArray(value) ? [...value.keys()].slice(0, 12) : Object.keys(value);
  for (const key of keys) {
    found.push([value as Holder, key]);
    places((value as Holder)[key], found);
  }
  return found;
}

export function mutant<T>(right: T, random: Random): T {
  const copy = structuredClone(right);
  for (let change = 0; change <= random(3); change++) {
    const all = places(copy);
    if (all.length === 0) break;
    const [holder, key] = all[random(all.length)];
    const own = holder[key];
    const way = random(10);
    if (way === 0) Reflect.deleteProperty(holder, key);
    else if (way === 1 && Array.isArray(holder)) (holder as unknown[]).push(own);
    else if (way === 2 && typeof own === "number") holder[key] = own + random(5) - 2;
    else holder[key] = NASTY[random(NASTY.length)]();
  }
  return copy;
}
