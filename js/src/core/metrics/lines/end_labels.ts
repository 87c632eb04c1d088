// The names of lines at their ends, in the order of their last values, none over another.

import type uPlot from "uplot";
import { canDraw, pixelRatio } from "../../shared/base/canvas";
import { shortened } from "../heat/heatmap";
import * as words from "../../words/metrics";
import type { ChartLine, ChartPicture } from "./chart_picture";

const LEAD = 14; // CSS pixels from the end of the line to its name
const DOT = 2.5; // radius of the dot before a name, in the color of its line
const MOVED = 3; // CSS pixels from which a name is led to the end of its line
const DASH = 2;
const GAP = 4; // after the name
const PLAIN = 12; // CSS pixels on the right of a chart without names
const SHARE = 0.38; // of the chart's width that names may take
const APART = 11; // CSS pixels between two names

/** CSS pixels that the names need. */
export function labelRoom(plot: uPlot, picture: ChartPicture | undefined, font: string): number {
  const names = endNames(picture?.lines ?? []).filter(({ name }) => name !== "");
  if (!names.length || !canDraw()) return PLAIN;
  plot.ctx.font = font;
  const widest = Math.max(...names.map(({ name, more }) => plot.ctx.measureText(name + more).width));
  return Math.ceil(Math.min(widest + LEAD + GAP, SHARE * plot.width));
}

/** Paths without the parts that all end with, and with one at most of those that all begin with. */
export function distinctParts(names: readonly string[]): string[] {
  const paths = [...new Set(names.filter(Boolean))].map(name => name.split("."));
  if (paths.length < 2) return [...names];
  const least = Math.min(...paths.map(path => path.length)) - 1;
  const common = (part: (path: string[], at: number) => string) => {
    let count = 0;
    while (count < least && paths.every(path => part(path, count) === part(paths[0], count))) count += 1;
    return count;
  };
  const from = Math.max(0, common((path, at) => path[at]) - 1);
  const behind = Math.min(
    common((path, at) => path[path.length - 1 - at]),
    least - from
  );
  return names.map(name => {
    const path = name.split(".");
    return name && [from ? "…" : "", path.slice(from, path.length - behind).join("."), behind ? "…" : ""].join("");
  });
}

interface EndName {
  readonly name: string;
  readonly more: string; // which is never cut off
}

function endNames(lines: readonly ChartLine[]): EndName[] {
  const names = distinctParts(lines.flatMap(({ ends }) => ends));
  return lines.map(({ ends }) => ({ name: names.splice(0, ends.length)[0], more: words.more(ends.length - 1) }));
}

interface Place extends EndName {
  readonly line: ChartLine;
  readonly end: number; // device pixels
  readonly reachesEdge: boolean; // the line does: its last value is finite, and at the last step
  y: number;
}

export function paintEndLabels(plot: uPlot, picture: ChartPicture, font: string): void {
  const { ctx, bbox } = plot;
  const ratio = pixelRatio();
  const places = spread(lastPlaces(plot, picture), bbox.top, bbox.top + bbox.height, APART * ratio);
  const right = bbox.left + bbox.width;
  const room = plot.width * ratio - right - LEAD * ratio;
  ctx.save();
  ctx.font = scaled(font, ratio);
  ctx.textBaseline = "middle";
  ctx.textAlign = "left";
  ctx.lineWidth = ratio;
  ctx.strokeStyle = picture.theme.axis;
  ctx.setLineDash([DASH * ratio, DASH * ratio]);
  const dot = right + (LEAD - 2 - 2 * DOT) * ratio;
  for (const { line, name, more, end, reachesEdge, y } of places) {
    // in the color of the line it would look like values after the last one
    if (reachesEdge && Math.abs(y - end) > MOVED * ratio) {
      ctx.beginPath();
      ctx.moveTo(right + ratio, end);
      ctx.lineTo(dot - DOT * ratio, y);
      ctx.stroke();
    }
    ctx.fillStyle = line.color;
    ctx.beginPath();
    ctx.arc(dot, y, DOT * ratio, 0, 2 * Math.PI);
    ctx.fill();
    ctx.fillStyle = picture.theme.text;
    const fitting = shortened(ctx, name, room - ctx.measureText(more).width);
    ctx.fillText(fitting + more, right + LEAD * ratio, y);
  }
  ctx.restore();
}

/** A font with its size in device pixels. */
export const scaled = (font: string, ratio: number): string =>
  font.replace(/^[\d.]+/, size => String(Number(size) * ratio));

function lastPlaces(plot: uPlot, { lines, axis, span }: ChartPicture): Place[] {
  const named = new Set<string>();
  const names = endNames(lines);
  return lines.flatMap((line, i) => {
    const { data, range } = line;
    const { name, more } = names[i];
    if (name === "" || named.has(name + more)) return [];
    named.add(name + more);
    for (let at = range.end - 1; at >= range.start; at -= 1) {
      const place = axis.plot(data.values[at]);
      if (!Number.isFinite(place)) continue;
      const end = plot.valToPos(place, "y", true);
      const reachesEdge = data.steps[at] >= span[1];
      return [{ line, name, more, end, reachesEdge, y: end }];
    }
    return [];
  });
}

/** Moves places apart, between two heights, and leaves their order. */
export function spread<T extends { y: number }>(places: T[], top: number, bottom: number, apart: number): T[] {
  places.sort((a, b) => a.y - b.y);
  let before = -Infinity;
  for (const place of places) before = place.y = Math.max(place.y, before + apart, top);
  let after = Infinity;
  for (const place of [...places].reverse()) after = place.y = Math.min(place.y, after - apart, bottom);
  return places;
}
