import { describe, expect, it } from "vitest";
import { dropped, openSession } from "../../../testing/masks";
import { argsort, removedCount, normalised, readScores, type Scope } from "./scores";

type Case = [axes: string, scope: Scope, ratio: number, indices: number[][]];

const AXES: Record<string, number[][]> = {
  ties: [
    [3, 1, 2, 1],
    [1, 1, 1, 1, 1, 1],
    [0, 0, 0]
  ],
  scales: [[0.5, 0.25, 4, 8], [100, 200, 300, 400, 500, 600, 700, 800, 900, 1000], [7]],
  signs: [
    [-1, 2, -3, 4],
    [0.1, 0.2, 0.3, 0.2, 0.1]
  ],
  narrow: [
    [1, 1, 1, 1, 1, 1, 1, 1],
    [8, 8, 8, 8, 8, 8, 8, 24]
  ]
};

// what mk.plan's counts_by_ratio and counts_by_rank choose
const CASES: Case[] = [
  ["ties", "local", 0.25, [[1], [0], []]],
  ["ties", "global", 0.25, [[1], [], [0, 1]]],
  ["ties", "local", 0.5, [[1, 3], [0, 1, 2], [0]]],
  [
    "ties",
    "global",
    0.5,
    [
      [1, 3],
      [0, 1],
      [0, 1]
    ]
  ],
  [
    "ties",
    "global",
    0.7,
    [
      [1, 3],
      [0, 1, 2, 3, 4],
      [0, 1]
    ]
  ],
  [
    "ties",
    "local",
    0.99,
    [
      [1, 2, 3],
      [0, 1, 2, 3, 4],
      [0, 1]
    ]
  ],
  ["scales", "local", 0.29, [[1], [0, 1], []]],
  ["scales", "global", 0.25, [[0, 1], [0], []]],
  ["scales", "global", 0.7, [[0, 1, 2], [0, 1, 2, 3, 4, 5, 6], []]],
  ["scales", "global", 0.99, [[0, 1, 2], [0, 1, 2, 3, 4, 5, 6, 7, 8], []]],
  [
    "signs",
    "local",
    0.7,
    [
      [0, 2],
      [0, 1, 4]
    ]
  ],
  ["signs", "global", 0.25, [[0, 2], []]],
  [
    "signs",
    "global",
    0.7,
    [
      [0, 1, 2],
      [0, 1, 4]
    ]
  ],
  ["signs", "global", 0, [[], []]],
  ["narrow", "global", 0.25, [[0], [0, 1, 2]]] // not four of the second
];

describe("a ratio", () => {
  it.each(CASES)("of axes with %s, %s, %f: as Python", (name, scope, ratio, indices) => {
    const axes = AXES[name].map((scores, at) => ({ name: `axis${at}`, scores }));
    const { session } = openSession(axes);
    session.begin();
    session.dropRatio(ratio, scope);
    expect(dropped(session)).toEqual(indices);
  });

  it("leaves frozen, locked and other axes alone, whatever their scores", () => {
    const axes = [
      { name: "free", scores: [1, 2, 3, 4] },
      { name: "frozen", scores: [NaN, NaN, NaN, NaN], frozen: "why" },
      { name: "locked", scores: [0, 0, 0, 0] },
      { name: "crossing", scores: [0, 0, 0, 0], byRatio: false }
    ];
    const { session } = openSession(axes);
    session.setLocked(["locked"]);
    session.begin();
    session.dropRatio(0.5, "global");
    expect(dropped(session)).toEqual([[0, 1], [], [], []]);
  });

  it("takes indices back when it falls", () => {
    const { session } = openSession();
    session.begin();
    session.dropRatio(0.9, "local");
    session.dropRatio(0.25, "local");
    expect(dropped(session)).toEqual([[1], [0, 1], []]);
  });
});

describe("gone", () => {
  it.each([
    [100, 0.29, 29],
    [10, 0.3, 3],
    [4, 0.999, 3],
    [1, 0.99, 0],
    [7, 0, 0]
  ])("of %i at %f is %i", (size, ratio, count) => expect(removedCount(size, ratio)).toBe(count));
});

describe("scores", () => {
  it("sorts equal ones as they stand, NaN last", () => {
    expect([...argsort(Float64Array.of(2, NaN, 1, 2, -0, 0, NaN))]).toEqual([4, 5, 2, 0, 3, 1, 6]);
  });

  it("sorts many as it sorts few", () => {
    const odd = [NaN, -0, 0, Infinity, -Infinity, 5e-324, -5e-324, 1e308, -1e308];
    const values = Float64Array.from({ length: 20_001 }, (_, at) =>
      at % 7 ? (((at * 7919) % 6001) - 3000) / 3 : odd[(at / 7) % odd.length]
    );
    const rank = (value: number) => (Number.isNaN(value) ? [1, 0] : [0, value]);
    const wanted = [...values.keys()].sort((a, b) => {
      const [[x, v], [y, w]] = [rank(values[a]), rank(values[b])];
      return x - y || (v < w ? -1 : v > w ? 1 : a - b);
    });
    expect([...argsort(values)]).toEqual(wanted);
  });

  it("divides by the mean of the sizes; zeros stay", () => {
    expect([...normalised(Float64Array.of(-1, 3))]).toEqual([-0.5, 1.5]);
    expect([...normalised(Float64Array.of(0, 0))]).toEqual([0, 0]);
  });

  it("sums as numpy does: one after the other would end in another last digit", () => {
    const values = Float64Array.from({ length: 1000 }, (_, i) => 1 / (i + 1));
    const mean = 0.007485470860550345; // np.abs(values).mean()
    expect(values.reduce((total, value) => total + value) / 1000).not.toBe(mean);
    expect(normalised(values)[0]).toBe(1 / mean);
  });

  it("reads four or eight bytes, and nothing of another length", () => {
    const bytes = new Uint8Array(Float64Array.of(0.1, 2).buffer);
    expect([...(readScores(new DataView(bytes.buffer), 2) ?? [])]).toEqual([0.1, 2]);
    expect(readScores(new Float32Array([0.5, 2]), 2)?.[0]).toBe(0.5);
    for (const [raw, count] of [
      [bytes, 3],
      [undefined, 2],
      [new Uint8Array(), 2]
    ] as const)
      expect(readScores(raw, count)).toBeNull();
  });
});
