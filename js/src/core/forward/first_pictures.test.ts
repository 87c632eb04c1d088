import { describe, expect, it } from "vitest";
import { golden, picturesOf } from "../../testing/forward";
import { readFirstPictures } from "./maps_feed";

const sample = golden("residual");
const keys = ["1,0,0,0", "1,3,0,0", "1,1,0,0", "1,2,0,0"];

describe("readFirstPictures", () => {
  it("reads what Python wrote, each with its own pixels", () => {
    const found = readFirstPictures(picturesOf(sample));
    expect([...found.keys()]).toEqual(keys);
    expect(found.get("1,3,0,0")).toBe(found.get("1,0,0,0"));
    const [first, , second] = keys.map(key => found.get(key));
    expect(first).toMatchObject({ isWhole: true, page: { form: "channels", width: 2, height: 2, total: 2, item: 0 } });
    expect(Array.from(first?.page.pixels ?? [])).toEqual(sample.pictures.pixels.slice(0, 8));
    expect(Array.from(second?.page.pixels ?? [])).toEqual(sample.pictures.pixels.slice(8, 16));
  });

  it.each<[string, unknown]>([
    ["nothing, as notebooks of before", {}],
    ["no object", "pictures"],
    ["another version", picturesOf(sample, { schema_version: 9 })],
    ["too few bytes", picturesOf(sample, { pixels: new ArrayBuffer(3) })],
    ["no bytes", picturesOf(sample, { pixels: null })],
    ["a picture of no step", picturesOf(sample, { each: [{ steps: [-1], whole: true, maps: {} }] })],
    ["a hostile text", picturesOf(sample, { each: "<img src=x>" })]
  ])("takes %s as no pictures", (_, raw) => {
    expect(readFirstPictures(raw).size).toBe(0);
  });
});
