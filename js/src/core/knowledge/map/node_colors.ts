// Colors of the nodes, and the legend of colors and shapes.

import { PALETTE } from "../../../generated/palette";
import { MISSING_COLOR, sample } from "../../shared/stage/color";
import { oneLine } from "../../shared/base/canvas";
import { shortNumber } from "../../shared/base/format";
import { familyColor, mix } from "../../shared/stage/theme";
import { lineColor } from "../../metrics/base/chart_theme";
import type { Knowledge } from "../data/knowledge";
import type { MapItem } from "../data/map_items";
import type { ColorBy, ExplorerStore } from "../data/state";
import { el, svg, Part, setRole } from "../../shared/ui/dom";
import * as words from "../../words/knowledge";

interface LegendEntry {
  readonly color: string;
  readonly text: string;
}

interface Ramp {
  readonly label: string;
  readonly low: string;
  readonly high: string;
}

/** Either a few colors by name or a scale of numbers. */
export interface NodeColors {
  readonly title: string;
  readonly entries: readonly LegendEntry[];
  readonly ramp: Ramp | null;
  of(item: Pick<MapItem, "thing" | "members">): string;
}

const NAMED = 7; // groups with a color of their own; an eighth color is the rest's
const CLASSES = "Conv2d BatchNorm2d Linear Attention ReLU MaxPool2d Dropout".split(" "); // one of each entry of the legend

/** The measure that stands for importance: the first that the payload has. */
const mainMeasure = (data: Knowledge): string | undefined => data.measures[0];

export function nodeColors(data: Knowledge, store: ExplorerStore, dark: boolean): NodeColors {
  const colorBy = store.get("colorBy");
  if (colorBy === "family") return byFamily(data, dark);
  if (colorBy === "community") return byCommunity(data, dark);
  if (colorBy === "class") return byClass(data, dark);
  if (colorBy === "none") return { title: "", entries: [], ramp: null, of: () => neutral(dark) };
  return byNumber(data, colorBy);
}

const neutral = (dark: boolean): string => PALETTE.plain[dark ? "dark" : "light"];
const otherColor = (dark: boolean): string => PALETTE.rest[dark ? "dark" : "light"];
const lightened = (color: string, dark: boolean): string => mix(color, dark ? "#000000" : "#ffffff", dark ? 0.1 : 0.18);

/** Superfamilies, or of few models the families; a structure has the color of those of most models that it is in. */
function byFamily(data: Knowledge, dark: boolean): NodeColors {
  const { name } = data.payload.superfamilies;
  const sizes = name.map((_, index) => data.modelsFor({ kind: "superfamily", index, level: 0 })?.length ?? 0);
  const largest = sizes.map((_, i) => i).sort((a, b) => sizes[b] - sizes[a] || a - b);
  const colors = new Map(largest.slice(0, NAMED).map((index, slot) => [index, lightened(lineColor(slot, dark), dark)]));
  const entries = [...colors].map(([index, color]) => ({ color, text: oneLine(name[index]) }));
  if (name.length > NAMED) entries.push({ color: otherColor(dark), text: words.smaller(name.length - NAMED) });
  const most = memo((members: readonly number[]) => mainSuperfamily(data, members));
  return {
    title: words.FAMILY,
    entries,
    ramp: null,
    of: ({ thing, members }) => {
      const [model] = (thing && data.modelsFor(thing)) ?? [];
      const index = model === undefined ? most(members) : data.superfamilyOf(model);
      return colors.get(index) ?? otherColor(dark);
    }
  };
}

function mainSuperfamily(data: Knowledge, members: readonly number[]): number {
  const counts = new Map<number, number>();
  for (const entity of members) {
    for (const { index } of data.modelsOf[entity]) {
      const own = data.superfamilyOf(index);
      counts.set(own, (counts.get(own) ?? 0) + 1);
    }
  }
  return [...counts].reduce((best, next) => (next[1] > best[1] ? next : best), [-1, 0])[0];
}

/** The lists of a picture stay the same objects while nothing is opened. */
function memo<K extends object, T>(make: (key: K) => T): (key: K) => T {
  const known = new WeakMap<K, { readonly value: T }>();
  return key => {
    let found = known.get(key);
    if (!found) {
      found = { value: make(key) };
      known.set(key, found);
    }
    return found.value;
  };
}

function byCommunity(data: Knowledge, dark: boolean): NodeColors {
  const { count } = data.payload.communities;
  const size = (index: number) => data.members({ kind: "community", index, level: 0 }).length;
  const largest = Array.from({ length: count }, (_, i) => i).sort((a, b) => size(b) - size(a) || a - b);
  const colors = new Map(largest.slice(0, NAMED).map((index, slot) => [index, lightened(lineColor(slot, dark), dark)]));
  const entries = [...colors].map(([index, color]) => ({ color, text: oneLine(data.communityName(index)) }));
  if (count > NAMED) entries.push({ color: otherColor(dark), text: words.smaller(count - NAMED) });
  return {
    title: words.KINDS.community,
    entries,
    ramp: null,
    of: ({ thing, members }) => {
      const index = thing?.kind === "community" ? thing.index : data.mainCommunity(members);
      return colors.get(index) ?? otherColor(dark);
    }
  };
}

function byClass(data: Knowledge, dark: boolean): NodeColors {
  const ink = (className: string, container: boolean) => lightened(familyColor(className, container), dark);
  const entries = CLASSES.map((className, at) => ({ color: ink(className, false), text: words.CLASSES[at] }));
  entries.push({ color: ink("", true), text: words.CONTAINERS }, { color: ink("", false), text: words.OTHERS });
  return {
    title: words.CLASS_TYPE,
    entries,
    ramp: null,
    of: ({ members }) => {
      const counts = new Map<string, number>();
      for (const entity of members) {
        const color = ink(data.className(entity), data.isContainer(entity));
        counts.set(color, (counts.get(color) ?? 0) + 1);
      }
      return [...counts].reduce((best, next) => (next[1] > best[1] ? next : best), [MISSING_COLOR, 0] as [
        string,
        number
      ])[0];
    }
  };
}

/** Groups have the value of the member that has most. */
function byNumber(data: Knowledge, colorBy: Exclude<ColorBy, "family" | "community" | "class" | "none">): NodeColors {
  const measure = colorBy === "uses" ? "uses" : mainMeasure(data);
  const column = (measure && data.column(measure)) || [];
  let [low, high] = [Infinity, -Infinity];
  for (const value of column) {
    if (value === null || !(value > 0)) continue;
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  const span = Math.log(high / low) || 1;
  const label = colorBy === "uses" ? words.USES_ROW : words.importance((measure ?? words.UNKNOWN).replace(/_/g, " "));
  return {
    title: label,
    entries: [],
    ramp: low <= high ? { label, low: shortNumber(low), high: shortNumber(high) } : null,
    of: ({ members }) => {
      const most = Math.max(...members.map(entity => column[entity] ?? 0));
      return most > 0 ? sample(Math.log(most / low) / span) : MISSING_COLOR;
    }
  };
}

// What colors and shapes mean.

const STEPS = 48;

export class ExplorerLegend extends Part {
  private dark = false;
  private hasShapes = true;

  constructor(
    host: HTMLElement,
    private readonly data: Knowledge,
    private readonly store: ExplorerStore
  ) {
    super(host);
    host.classList.add("mkg-legend", "mkg-kg-legend");
    setRole(host, "group", words.LEGEND);
    this.disposers.add(store.on("colorBy", () => this.draw(this.dark)));
  }

  /** `hasShapes`: also what shapes mean. */
  draw(dark: boolean, hasShapes = this.hasShapes): void {
    [this.dark, this.hasShapes] = [dark, hasShapes];
    const { title, entries, ramp } = nodeColors(this.data, this.store, dark);
    const shapes = el("div", "mkg-kg-shapes");
    for (const [shape, text] of Object.entries(words.SHAPES)) shapes.append(key(text, `mkg-kg-shape mkg-is-${shape}`));
    const parts: HTMLElement[] = [];
    if (title) parts.push(el("div", "mkg-legend-title", title));
    for (const { color, text } of entries) parts.push(key(text, "mkg-kg-swatch", color));
    if (ramp) {
      const picture = el("div", "mkg-legend-ramp");
      picture.append(rampPicture());
      const note = el("span", "mkg-legend-note", words.LOG_NOTE);
      parts.push(el("span", "mkg-legend-end", ramp.low), picture, el("span", "mkg-legend-end", ramp.high), note);
    }
    this.host.replaceChildren(...parts, ...(hasShapes ? [shapes] : []));
  }
}

function key(text: string, className: string, color = ""): HTMLElement {
  const line = el("div", "mkg-legend-key");
  const mark = el("span", className);
  mark.setAttribute("aria-hidden", "true");
  if (color) mark.style.backgroundColor = color;
  line.append(mark, el("bdi", "", text));
  return line;
}

function rampPicture(): SVGElement {
  const picture = svg("svg", { viewBox: `0 0 ${STEPS} 1`, preserveAspectRatio: "none", "aria-hidden": "true" });
  for (let step = 0; step < STEPS; step += 1) {
    // each reaches to the end, under the next ones, or hairlines show between them
    picture.append(svg("rect", { x: step, y: 0, width: STEPS - step, height: 1, fill: sample(step / (STEPS - 1)) }));
  }
  return picture;
}
