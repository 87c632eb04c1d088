import { describe, expect, it } from "vitest";
import { seeded } from "../../testing/layouts";
import { assignTracks, type Bundle } from "./channels";

const bundle = (left: number | number[], right: number | number[]): Bundle => {
  return { left: [left].flat(), right: [right].flat(), track: 7 };
};

/** Pieces of lines at one height between two tracks, and at one track between two heights. */
function pieces({ left, right, track, detour }: Bundle, count: number) {
  const [start, end] = [-1, count];
  const across = (y: number, from: number, to: number) => ({ at: y, from, to, isAcross: true });
  const along = (x: number, ys: number[]) => ({ at: x, from: Math.min(...ys), to: Math.max(...ys), isAcross: false });
  if (track < 0) return left.map(y => across(y, start, end));
  const second = detour?.track ?? track;
  const middle = detour ? [across(detour.y, Math.min(track, second), Math.max(track, second))] : [];
  return [
    ...left.map(y => across(y, start, track)),
    ...right.map(y => across(y, second, end)),
    ...middle,
    along(track, detour ? [...left, detour.y] : [...left, ...right]),
    ...(detour ? [along(second, [detour.y, ...right])] : [])
  ];
}

/** Bundles of which a part of one lies on a part of another. */
function clashes(bundles: readonly Bundle[], count: number): string[] {
  const drawn = bundles.map(one => pieces(one, count));
  return drawn.flatMap((some, a) =>
    drawn.slice(a + 1).flatMap((others, b) =>
      some.flatMap(one =>
        others.flatMap(other => {
          const isNear = one.isAcross === other.isAcross && Math.abs(one.at - other.at) < (one.isAcross ? 1 : 0.5);
          const isShared = Math.min(one.to, other.to) - Math.max(one.from, other.from) > 0.01;
          return isNear && isShared ? [`${a} and ${a + b + 1}`] : [];
        })
      )
    )
  );
}

describe("assignTracks", () => {
  it("leaves alone what goes straight on", () => {
    const bundles = [bundle(10, 10), bundle(40, 40.2)];
    expect(assignTracks(bundles)).toBe(0);
    expect(bundles.map(({ track }) => track)).toEqual([-1, -1]);
    expect(assignTracks([])).toBe(0);
  });

  it("gives one track to lines that never meet, and two to lines that do", () => {
    expect(assignTracks([bundle(0, 20), bundle(100, 130)])).toBe(1);
    expect(assignTracks([bundle(0, 60), bundle(40, 130)])).toBe(2);
  });

  it("crosses nothing that need not cross", () => {
    const bundles = [bundle(0, 50), bundle(20, 80)]; // both go down: the lower one turns first
    assignTracks(bundles);
    expect(bundles[1].track).toBeLessThan(bundles[0].track);
  });

  it("leads two lines that change places past each other", () => {
    const bundles = [bundle(0, 100), bundle(100, 0)];
    const count = assignTracks(bundles);
    expect(bundles.filter(({ detour }) => detour)).toHaveLength(1);
    expect(clashes(bundles, count)).toEqual([]);
  });

  it("leads a ring of lines past each other", () => {
    const bundles = [bundle(0, 60), bundle(60, 120), bundle(120, 0)];
    const count = assignTracks(bundles);
    expect(bundles.filter(({ detour }) => detour)).toHaveLength(1);
    expect(clashes(bundles, count)).toEqual([]);
  });

  it("forgets an earlier answer", () => {
    const bundles = [bundle(0, 100), bundle(100, 0)];
    const first = [assignTracks(bundles), structuredClone(bundles)];
    expect([assignTracks(bundles), bundles]).toEqual(first);
    expect(assignTracks([{ ...bundles[1], right: [100] }])).toBe(0);
  });

  it.each([12, 150])("never lays two lines on each other (%i of them)", most => {
    for (let seed = 0; seed < 40; seed++) {
      const next = seeded(seed);
      const count = 2 + Math.floor(next() * most);
      const heights = () =>
        Array.from({ length: count * 2 }, (_, at) => ({ at: at * 14, by: next() }))
          .sort((a, b) => a.by - b.by)
          .map(({ at }) => at);
      const [left, right] = [heights(), heights()]; // each height once on each side
      const bundles = Array.from({ length: count }, () => {
        const several = next() < 0.2 ? 2 : 1;
        return bundle(left.splice(0, several), right.splice(0, next() < 0.2 ? 2 : 1));
      }).filter(one => one.left.length > 0 && one.right.length > 0);
      expect(clashes(bundles, assignTracks(bundles))).toEqual([]);
    }
  });
});
