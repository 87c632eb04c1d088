import { describe, expect, it } from "vitest";
import { goldenKnowledge, largeKnowledge } from "../../../testing/knowledge";
import { groupPositions, layoutCircles } from "./circle_layout";
import { Knowledge } from "../data/knowledge";
import {
  forceLabels,
  overlap,
  positionLabels,
  type Rect,
  type LabelRequest,
  type LabelledItem,
  type MapLabel,
  MapLabels
} from "./map_labels";
import { buildPicture, type MapOptions } from "./map_contents";

const measure = (text: string, size: number) => text.length * size * 0.56;
const ZOOMS = [0.15, 0.3, 0.45, 0.7, 1, 1.6, 3];
const CLOSED: MapOptions = { groups: "communities", expanded: [], query: "", selected: null };
const large = new Knowledge(withLongNames());

/** 50 models of 120 structures each; names as long as those of real models, in two parts. */
function withLongNames() {
  const payload = largeKnowledge(50, 120);
  payload.communities.names = payload.models.name.map((_, i) => `efficientnet_v${i} + regnet_y_${i * i}gf`);
  return payload;
}

function labelled(data: Knowledge, choice: Partial<MapOptions> = {}, selected = -1): LabelledItem[] {
  const closed = buildPicture(data, CLOSED);
  const { items, isSearched } = buildPicture(data, { ...CLOSED, ...choice });
  const circles = layoutCircles(items, groupPositions(closed.items, closed.links));
  return items.map((item, i) => ({
    item,
    circle: circles[i],
    isSelected: i === selected,
    isDim: isSearched && !item.isHit
  }));
}

function collisions(labels: readonly MapLabel[]): string[] {
  return labels.flatMap((one, i) =>
    labels.slice(0, i).flatMap(other => (overlap(one.box, other.box) ? [`${one.item} ${other.item}`] : []))
  );
}

describe("names in the map", () => {
  it.each([
    ["closed", {}],
    ["open", { expanded: ["c0", "c0/t1.0", "f1", "c7"] }],
    ["searched", { query: "net4", expanded: ["f4"] }]
  ])("never overlap while it is %s, at any zoom", (_, choice) => {
    const items = labelled(large, choice);
    const labels = new MapLabels(measure);
    const counts = ZOOMS.map(zoom => {
      const shown = labels.at(items, zoom);
      expect(collisions(shown)).toEqual([]);
      return shown.length;
    });
    expect(Math.max(...counts)).toBeGreaterThan(5);
  });

  it("cover no circle but their own, and stay within the picture", () => {
    const items = labelled(large);
    const [zoom, labels] = [0.6, new MapLabels(measure)];
    for (const { item: own, box } of labels.at(items, zoom)) {
      const covered = items.filter(({ circle: { x, y, r }, item }, at) => {
        const [dx, dy] = [x * zoom - clamp(x * zoom, box[0], box[2]), y * zoom - clamp(y * zoom, box[1], box[3])];
        return at !== own && item.kind === "community" && Math.hypot(dx, dy) < r * zoom - 0.01;
      });
      expect(covered).toEqual([]);
    }
  });

  it("are more the nearer one comes, and those of the largest circles are there first", () => {
    const items = labelled(large);
    const few = new MapLabels(measure).at(items, 0.3);
    const more = new MapLabels(measure).at(items, 1.2);
    expect(more.length).toBeGreaterThan(few.length);
    const sample = labelled(new Knowledge(goldenKnowledge()));
    expect(new MapLabels(measure).at(sample, 1)).toHaveLength(sample.length);
  });

  it("stay as they are while the picture is moved, and mostly while it is zoomed a little", () => {
    const items = labelled(large);
    const labels = new MapLabels(measure);
    const before = labels.at(items, 0.5);
    expect(labels.at(items, 0.5)).toBe(before);
    const alone = new Set(new MapLabels(measure).at(items, 0.52).map(({ item }) => item));
    const after = new Set(labels.at(items, 0.52).map(({ item }) => item));
    const kept = before.filter(({ item }) => after.has(item)).length;
    expect(kept).toBeGreaterThanOrEqual(before.filter(({ item }) => alone.has(item)).length);
    expect(kept / before.length).toBeGreaterThan(0.85);
  });

  it("give way to that of the selected and of the hovered circle", () => {
    const labels = new MapLabels(measure);
    const hidden = labelled(large).findIndex((_, i) => !labels.at(labelled(large), 0.3).some(({ item }) => item === i));
    const items = labelled(large, {}, hidden);
    labels.at(items, 0.3);
    const other = items.findIndex((_, i) => i > hidden && !labels.at(items, 0.3).some(({ item }) => item === i));
    const shown = labels.with(items[other].item.id);
    expect(shown.map(({ item }) => item)).toEqual(expect.arrayContaining([hidden, other]));
    expect(collisions(shown)).toEqual([]);
  });
});

describe("placing", () => {
  const box = (x: number): Rect => [x, 0, x + 10, 10];
  const wish = (key: string, rank: number, ...at: number[]): LabelRequest => ({ key, rank, places: at.map(box) });
  const nothing = () => false;

  it("serves the highest rank first, and another place rather than none", () => {
    const found = positionLabels([wish("low", 1, 0, 20), wish("high", 2, 5), wish("none", 0, 4)], nothing, new Map());
    expect([...found]).toEqual([
      ["high", 0],
      ["low", 1]
    ]);
  });

  it("keeps what was shown, where it was, until something clearly more important comes", () => {
    const wishes = (rank: number) => [wish("new", rank, 0), wish("old", 10, 30, 5)];
    const before = new Map([["old", 1]]);
    expect([...positionLabels(wishes(12), nothing, before)]).toEqual([["old", 1]]);
    expect([...positionLabels(wishes(14), nothing, before)]).toEqual([
      ["new", 0],
      ["old", 0]
    ]);
  });

  it("by force sends away as few as it can, and none of its own", () => {
    const shown = new Map([
      ["a", box(0)],
      ["b", box(12)],
      ["c", box(40)]
    ]);
    const { places, gone } = forceLabels([wish("x", 1, 5, 41), wish("y", 1, 42)], nothing, shown);
    expect([...places]).toEqual([["x", 1]]);
    expect([...gone]).toEqual(["c"]);
  });
});

const clamp = (value: number, low: number, high: number): number => Math.max(low, Math.min(high, value));
