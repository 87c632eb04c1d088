import { describe, expect, it } from "vitest";
import { golden } from "../../../testing/payloads";
import { type Dataflow, dataflowOf } from "./dataflow";
import { OUTSIDE, unitsOf } from "./flow_units";
import { Hierarchy } from "./hierarchy";

const h = new Hierarchy(golden("traced"));
const flow = dataflowOf(h) as Dataflow;

describe("the span of a unit", () => {
  it.each(["hierarchy", "dataflow", "operators"] as const)("has all steps that ran in it: %s", level => {
    const units = unitsOf(flow, h, level);
    const callers = units.list.flatMap(({ calls }, place) => (calls.length > 0 ? [place] : []));
    for (const caller of callers) {
      const [start, end] = units.span(caller);
      const ran = Array.from({ length: flow.size }, (_, step) => step).filter(
        step => units.calleeOf(caller, units.ofStep(step)) !== OUTSIDE
      );
      expect(ran.filter(step => step < start || step >= end)).toEqual([]);
    }
    const lengths = callers.map(caller => units.span(caller)).map(([start, end]) => end - start);
    expect(lengths[0]).toBe(flow.size); // of the model
    expect(Math.min(...lengths)).toBeLessThan(flow.size / 4);
  });
});
