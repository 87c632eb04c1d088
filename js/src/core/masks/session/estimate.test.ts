import { describe, expect, it } from "vitest";
import { brush, openSession, scoresOf, THREE } from "../../../testing/masks";
import { axisCost, curveOf, currentCost, lossIncreaseAt, toMeasure } from "./estimate";
import type { PlanData } from "../draft/plan_data";

// conv1 of 4 and conv2 of 10 indices; FLOPs 2·c1²·c2 + 5·c1·(c2 + 2)
const RISES = [
  { name: "conv1.weight[0]", scores: [0.5, 0.25, -0.125, 0.125] },
  { name: "conv2.weight[0]", scores: [1, 1, 1, 1, 1, 1, 2, 1, 1, 1] },
  { name: "fc.weight[0]", scores: [NaN, NaN, NaN] }
];
const flops = (one: number, two: number) => 2 * one * one * two + 5 * one * (two + 2);

function opened() {
  const { session } = openSession();
  session.setIncreases(scoresOf(RISES, 8));
  return { session, data: session.data as PlanData };
}

describe("what is measured", () => {
  it("is what ratios take in the ranking, under a name for all that they depend on", () => {
    const { session, data } = opened();
    const of = (importance = "l1", axes = session.ratioAxes()) =>
      toMeasure(data, data.scores as NonNullable<PlanData["scores"]>, axes, "local", importance);
    const { key, points } = of();
    expect(points.map(([ratio]) => ratio)).toEqual([0.1, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8]);
    expect(points[4][1]).toEqual([
      [0, 2],
      [1, 5]
    ]);
    brush(session, 0, [0]); // an axis that a ratio takes from
    expect([of().key, key.length < 20]).toEqual([key, true]);
    expect(new Set([key, of("l2").key, of("l1", [1]).key]).size).toBe(3);
  });

  it("is a line between its points", () => {
    const dots = [
      { ratio: 0.2, flopsLeft: 0.8, increase: 0.2 },
      { ratio: 0.4, flopsLeft: 0.5, increase: 0.5 }
    ];
    expect([1, 0.9, 0.8, 0.65, 0.1].map(flopsLeft => lossIncreaseAt(dots, flopsLeft)?.toFixed(3))).toEqual([
      "0.000",
      "0.100",
      "0.200",
      "0.350",
      "0.500"
    ]);
    expect(lossIncreaseAt([], 0.5)).toBeNull();
  });
});

describe("the estimate", () => {
  it("is nothing without increases", () => {
    const { session } = openSession();
    expect(axisCost(session.data as PlanData, 0)).toBeNull();
    session.setIncreases(new DataView(new ArrayBuffer(3)));
    expect(session.data?.increases).toBeNull();
  });

  it("of an axis is the sum over what goes, and the mean over all", () => {
    const { session, data } = opened();
    expect(axisCost(data, 0)).toEqual({ removed: 0, increase: 0, mean: 0.1875 });
    brush(session, 0, [0, 2]);
    expect(axisCost(data, 0)).toEqual({ removed: 2, increase: 0.375, mean: 0.1875 });
    expect(axisCost(data, 2)).toBeNull(); // frozen
  });

  it("of the draft is that of all its axes, with the FLOPs left", () => {
    const { session, data } = opened();
    expect(currentCost(data)).toEqual({ flopsLeft: 1, increase: 0 });
    brush(session, 0, [0]);
    brush(session, 1, [6, 7]);
    expect(currentCost(data)).toEqual({ flopsLeft: flops(3, 8) / flops(4, 10), increase: 3.5 });
  });

  it("of a ratio is that of the indices which it takes by the importance", () => {
    const { session, data } = opened();
    if (!data.scores) throw new Error("no scores");
    const points = curveOf(data, data.scores, session.ratioAxes(), "local");
    expect(points).toHaveLength(91);
    expect(points[0]).toEqual({ ratio: 0, flopsLeft: 1, increase: 0 });
    // by [3, 1, 2, 1] the indices 1 and 3 go first
    expect(points[50]).toEqual({ ratio: 0.5, flopsLeft: flops(2, 5) / flops(4, 10), increase: 0.375 + 5 });
    session.begin();
    session.dropRatio(0.5, "local");
    session.commit();
    const { flopsLeft, increase } = points[50];
    expect(currentCost(data)).toEqual({ flopsLeft, increase });
  });

  it("of a ratio is on top of what goes from locked axes", () => {
    const { session, data } = opened();
    if (!data.scores) throw new Error("no scores");
    brush(session, 0, [0]);
    session.setLocked([THREE[0].name]);
    const points = curveOf(data, data.scores, session.ratioAxes(), "global");
    expect(points[0]).toEqual({ ratio: 0, flopsLeft: flops(3, 10) / flops(4, 10), increase: 0.5 });
  });

  it("ranks scores with one unit as they are", () => {
    const { session, data } = opened();
    session.setScores(scoresOf(RISES, 8), true);
    session.begin();
    session.dropRatio(4 / 14, "global");
    session.commit();
    // all of conv1 but one is cheaper than anything of conv2
    expect([0, 1].map(axis => data.draft.dropped(axis))).toEqual([3, 1]);
    session.setScores(scoresOf(RISES, 8));
    session.begin();
    session.dropRatio(4 / 14, "global");
    session.commit();
    expect([0, 1].map(axis => data.draft.dropped(axis))).not.toEqual([3, 1]);
  });
});
