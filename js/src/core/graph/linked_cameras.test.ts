import { describe, expect, it } from "vitest";
import { Camera } from "../shared/stage/camera";
import type { Box } from "../shared/stage/viewport";
import { LinkedCameras } from "./diff_view";
import type { PaintItem } from "./paint/text_lines";

const [WIDTH, HEIGHT] = [400, 500];

/** Cards under each other, each at a height; the same number is the same module. */
function picture(heights: readonly (readonly [index: number, y: number])[]) {
  const camera = new Camera({ least: 0.04, most: 4, isOverview: false }, () => {});
  camera.resize({ width: WIDTH, height: HEIGHT });
  const items = heights.map(([index, y]) => ({ node: { index, id: `n${index}` }, box: [0, y, 120, 50] as Box }));
  const at = (index: number) => {
    const { y, zoom } = camera.pose;
    return (items.find(({ node }) => node.index === index)?.box[1] ?? NaN) * zoom + y;
  };
  return { camera, at, items: () => items as unknown as PaintItem[] };
}

function linked(left: ReturnType<typeof picture>, right: ReturnType<typeof picture>) {
  return new LinkedCameras([left, right], node => node);
}

const chain = (count: number, gapAfter = Infinity, gap = 0) =>
  Array.from({ length: count }, (_, i): [number, number] => [i, i * 90 + (i > gapAfter ? gap : 0)]);

describe("LinkedCameras", () => {
  it("shows all of both, from the same beginning and at the same zoom, where that is legible", () => {
    const [left, right] = [picture(chain(4)), picture(chain(5))];
    linked(left, right).lineUp(0, undefined);
    expect(right.camera.pose).toEqual(left.camera.pose);
    for (const side of [left, right]) {
      expect(side.at(0)).toBeGreaterThanOrEqual(0);
      expect(side.at(side.items().length - 1) + 50 * side.camera.pose.zoom).toBeLessThanOrEqual(HEIGHT);
    }
  });

  it("opens larger models at what is sought, with its partner beside it", () => {
    const [left, right] = [picture(chain(60)), picture(chain(60, 20, 700))];
    linked(left, right).lineUp(0, left.items()[40].box);
    expect(left.at(40)).toBeGreaterThan(0);
    expect(left.at(40)).toBeLessThan(HEIGHT);
    expect(right.camera.pose.zoom).toBe(left.camera.pose.zoom);
    expect(Math.abs(right.at(40) - left.at(40))).toBeLessThan(3);
  });

  it("keeps what corresponds side by side while one of them is moved and zoomed", () => {
    const [left, right] = [picture(chain(60)), picture(chain(60, 20, 700))];
    const cameras = linked(left, right);
    cameras.lineUp(0, left.items()[5].box);
    let before = right.at(30);
    for (const index of [6, 12, 30, 50]) {
      left.camera.centre([60, index * 90 + 25], 1);
      cameras.follow(0);
      expect(Math.abs(right.at(index) - left.at(index))).toBeLessThan(12);
      expect(right.at(30)).not.toBe(before);
      before = right.at(30);
    }
    right.camera.zoomBy(1.5, 200, 250);
    cameras.follow(1);
    expect(left.camera.pose.zoom).toBeCloseTo(right.camera.pose.zoom);
  });

  it("begins in both at the same height, to the pixel, however far apart later cards lie", () => {
    for (const gap of [90, 180, 700]) {
      const [left, right] = [picture(chain(60)), picture(chain(60, 1, gap))];
      linked(left, right).lineUp(0, undefined);
      expect(right.at(0)).toBeCloseTo(left.at(0), 5);
      expect(left.at(0)).toBeGreaterThan(0);
    }
  });

  it("waits until both have something to show", () => {
    const [left, right] = [picture(chain(4)), picture([])];
    const cameras = linked(left, right);
    expect(cameras.isReady).toBe(false);
    left.camera.panBy(10, 10);
    cameras.follow(0);
    expect(right.camera.pose).toEqual({ x: 0, y: 0, zoom: 1 });
  });
});
