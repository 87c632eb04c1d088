import * as v from "valibot";
import { describe, expect, it } from "vitest";
import {
  checked,
  dictionary,
  isCount,
  isString,
  list,
  OTHER_VERSION,
  parts,
  record,
  relations,
  table,
  tuple
} from "./schema";

const Schema = v.pipe(
  parts({
    schema_version: v.literal(3),
    kind: v.literal("test"),
    points: table({ x: list(isCount), y: list(isCount) }, { unit: v.string() }),
    names: dictionary(isString),
    fit: v.object({ alpha: v.number() }),
    items: v.array(v.object({ at: v.message(list(isCount), "at") }))
  }),
  relations({ names: ({ names, points }) => Object.keys(names).length <= points.x.length })
);

const right = (): Record<string, unknown> => ({
  schema_version: 3,
  kind: "test",
  points: { x: [1, 2], y: [3, 4], unit: "m" },
  names: { a: "b" },
  fit: { alpha: 1 },
  items: [{ at: [1] }]
});

describe("checked", () => {
  it("gives what is right", () => expect(checked(Schema, right())).toEqual(right()));

  it.each<[string, Record<string, unknown>]>([
    ["points", { points: {} }],
    ["points", { points: [] }],
    ["y", { points: { x: [1], y: [1, 2], unit: "m" } }],
    ["x", { points: { x: [1, -1], y: [1, 2], unit: "m" } }],
    ["unit", { points: { x: [], y: [], unit: 3 } }],
    ["names", { names: { a: "b", c: "d", e: "f" } }],
    ["names", { names: JSON.parse('{"__proto__": 3}') as unknown }],
    ["fit", { fit: { alpha: "<img>" } }],
    ["at", { items: [{ at: ["<img>"] }] }],
    ["items", { items: [{}] }]
  ])("names %s where it is wrong", (part, change) => {
    const message = `Widget data is damaged (${part}). Run the cell again.`;
    expect(() => checked(Schema, { ...right(), ...change })).toThrow(expect.objectContaining({ message, part }));
  });

  it("names what is missing", () => {
    const rest = right();
    delete rest.fit;
    expect(() => checked(Schema, rest)).toThrow("damaged (fit)");
  });

  it.each([null, undefined, 3, "text", [], {}, { ...right(), kind: "other" }, { ...right(), schema_version: 4 }])(
    "says that %j is of another version",
    raw => expect(() => checked(Schema, raw)).toThrow(OTHER_VERSION)
  );
});

describe("guards", () => {
  it("know records of fixed length", () => {
    const isPair = tuple(isString, isCount);
    expect([["a", 1], ["a"], ["a", 1, 2], ["a", -1], "ab", null].map(isPair)).toEqual([
      true,
      false,
      false,
      false,
      false,
      false
    ]);
  });

  it("know objects by their entries", () => {
    const isNamed = record({ a: isCount });
    expect([{ a: 1 }, { a: 1, b: 2 }, { a: "1" }, {}, [], null].map(isNamed)).toEqual([
      true,
      true,
      false,
      false,
      false,
      false
    ]);
  });
});
