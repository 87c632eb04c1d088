// The painter of a scatter plot: axes, dots, the Pareto front and names where there is room; and the controls of its axes.

import { truncated, fontOf, type Measure, oneLine } from "../../shared/base/canvas";
import { mix } from "../../shared/stage/theme";
import type { Viewport } from "../../shared/stage/viewport";
import type { ChartTheme } from "../../metrics/base/chart_theme";
import { positionLabels, type Placement, type Rect, type LabelRequest } from "../map/map_labels";
import { button, Disposers, el, listen, option, setAttribute, field } from "../../shared/ui/dom";
import { firstPair, isWide, type Quantity } from "../data/quantities";
import type { ExplorerStore } from "../data/state";
import { logTicks, roundTicks } from "../../metrics/base/value_axis";
import * as words from "../../words/knowledge";

export interface Dot {
  readonly name: string;
  readonly x: number; // in the picture
  readonly y: number;
  readonly fill: string;
  readonly isDim: boolean;
  readonly isFront: boolean;
}

export interface ScatterScene {
  readonly dots: readonly Dot[];
  readonly front: readonly number[]; // places of dots, from left to right
  readonly across: Scale;
  readonly up: Scale;
  readonly labels: { readonly x: string; readonly y: string };
  readonly selected: readonly number[];
  readonly pointed: number | null;
  tick(value: number): string;
}

/** Room for the axes and at the other ends, in CSS pixels. */
export const GUTTER = { left: 66, right: 18, top: 14, bottom: 46 };
export const RADIUS = 3.6;
const FRONT_RADIUS = 5;
const FONT = 11;
const NAME = 11.5;
const LINE = 14;
const WIDEST = 170;
const DIM = 0.22;
const FEW = 60; // dots in sight that may all have their names

export class ScatterPainter {
  private before: Placement = new Map();
  /** What was written last: the place of the dot and where its name is, in CSS pixels. */
  drawn: readonly { readonly dot: number; readonly box: Rect }[] = [];

  constructor(private readonly measure: Measure) {}

  paint(context: CanvasRenderingContext2D, scene: ScatterScene, view: Viewport, theme: ChartTheme): void {
    context.setTransform(view.ratio, 0, 0, view.ratio, 0, 0);
    context.clearRect(0, 0, view.width, view.height);
    const plot: Rect = [GUTTER.left, GUTTER.top, view.width - GUTTER.right, view.height - GUTTER.bottom];
    if (plot[2] - plot[0] < 20 || plot[3] - plot[1] < 20) return;
    this.axes(context, scene, view, plot, theme);
    context.save();
    context.beginPath();
    context.rect(plot[0], plot[1], plot[2] - plot[0], plot[3] - plot[1]);
    context.clip();
    const places = scene.dots.map(({ x, y }) => [x * view.zoom + view.x, y * view.zoom + view.y] as const);
    this.line(context, scene, places, theme);
    this.dots(context, scene, places, plot, theme);
    context.restore();
    this.names(context, scene, places, plot, theme);
  }

  private axes(
    context: CanvasRenderingContext2D,
    { across, up, labels, tick }: ScatterScene,
    view: Viewport,
    [left, top, right, bottom]: Rect,
    theme: ChartTheme
  ): void {
    context.lineWidth = 1;
    context.font = fontOf(FONT, false);
    context.fillStyle = theme.muted;
    context.textAlign = "center";
    context.textBaseline = "top";
    context.strokeStyle = theme.grid;
    const back = (pixel: number, offset: number) => (pixel - offset) / view.zoom;
    context.beginPath();
    let free = -Infinity;
    for (const { value, place } of across.ticks(back(left, view.x), back(right, view.x), (right - left) / 80)) {
      const x = Math.round(place * view.zoom + view.x) + 0.5;
      context.moveTo(x, top);
      context.lineTo(x, bottom);
      const half = this.measure(tick(value), FONT, false) / 2;
      if (x - half < free) continue;
      free = x + half + 6;
      context.fillText(tick(value), x, bottom + 6);
    }
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (const { value, place } of up.ticks(back(top, view.y), back(bottom, view.y), (bottom - top) / 44)) {
      const y = Math.round(place * view.zoom + view.y) + 0.5;
      context.moveTo(left, y);
      context.lineTo(right, y);
      context.fillText(tick(value), left - 6, y);
    }
    context.stroke();
    context.strokeStyle = theme.axis;
    context.strokeRect(left + 0.5, top + 0.5, right - left - 1, bottom - top - 1);
    context.textAlign = "center";
    context.fillStyle = theme.text;
    context.fillText(truncated(labels.x, right - left, FONT, false, this.measure), (left + right) / 2, bottom + 32);
    context.save();
    context.translate(12, (top + bottom) / 2);
    context.rotate(-Math.PI / 2);
    context.fillText(truncated(labels.y, bottom - top, FONT, false, this.measure), 0, 0);
    context.restore();
  }

  private line(
    context: CanvasRenderingContext2D,
    { front }: ScatterScene,
    places: readonly (readonly [number, number])[],
    theme: ChartTheme
  ): void {
    context.beginPath();
    front.forEach((dot, i) => {
      const [x, y] = places[dot];
      if (i === 0) context.moveTo(x, y);
      else context.lineTo(x, y);
    });
    context.strokeStyle = mix(theme.ground, theme.text, 0.55);
    context.lineWidth = 1.5;
    context.stroke();
  }

  private dots(
    context: CanvasRenderingContext2D,
    scene: ScatterScene,
    places: readonly (readonly [number, number])[],
    [left, top, right, bottom]: Rect,
    theme: ChartTheme
  ): void {
    const circle = (at: number, r: number) => {
      context.beginPath();
      context.arc(...places[at], r, 0, 2 * Math.PI);
    };
    const isSeen = ([x, y]: readonly [number, number]) =>
      x > left - 9 && x < right + 9 && y > top - 9 && y < bottom + 9;
    const draw = (at: number) => {
      const { fill, isDim, isFront } = scene.dots[at];
      if (!isSeen(places[at])) return;
      context.globalAlpha = isDim ? DIM : 0.85;
      context.fillStyle = fill;
      circle(at, isFront ? FRONT_RADIUS : RADIUS);
      context.fill();
      if (!isFront) return;
      context.globalAlpha = isDim ? DIM : 1;
      context.strokeStyle = theme.text;
      context.lineWidth = 1.2;
      context.stroke();
    };
    scene.dots.forEach(({ isFront }, at) => !isFront && draw(at));
    scene.front.forEach(draw);
    context.globalAlpha = 1;
    const ring = (at: number, color: string) => {
      context.strokeStyle = color;
      context.lineWidth = 2.5;
      circle(at, FRONT_RADIUS + 3);
      context.stroke();
    };
    for (const at of scene.selected) ring(at, theme.accent);
    if (scene.pointed !== null) ring(scene.pointed, theme.text);
  }

  /** What is selected first, then the front, as far as they keep clear of each other. */
  private names(
    context: CanvasRenderingContext2D,
    scene: ScatterScene,
    places: readonly (readonly [number, number])[],
    plot: Rect,
    theme: ChartTheme
  ): void {
    const rank = new Map<number, number>();
    const seen = scene.dots.flatMap(({ isDim }, at) => (!isDim && isInside(places[at], plot) ? [at] : []));
    if (seen.length <= FEW) for (const at of seen) rank.set(at, 0.5);
    scene.front.forEach(at => !scene.dots[at].isDim && rank.set(at, 1));
    for (const at of scene.selected.slice(0, 1)) rank.set(at, 2);
    if (scene.pointed !== null) rank.set(scene.pointed, 3);
    const dots = [...rank.keys()].filter(at => isInside(places[at], plot));
    const texts = new Map(dots.map(at => [at, truncated(scene.dots[at].name, WIDEST, NAME, false, this.measure)]));
    const wishes = dots.map((at): LabelRequest => {
      const width = this.measure(texts.get(at) ?? "", NAME, false) + 6;
      return { key: String(at), rank: rank.get(at) ?? 0, places: around(places[at], width) };
    });
    const rings = dots.map(at => places[at]);
    const isBlocked = (place: Rect) =>
      place[0] < plot[0] ||
      place[1] < plot[1] ||
      place[2] > plot[2] ||
      place[3] > plot[3] ||
      rings.some(([x, y]) => x > place[0] - 4 && x < place[2] + 4 && y > place[1] - 4 && y < place[3] + 4);
    const slots = positionLabels(wishes, isBlocked, this.before);
    this.before = slots;
    context.font = fontOf(NAME, false);
    context.textAlign = "center";
    context.textBaseline = "middle";
    this.drawn = dots.flatMap((at, i) => {
      const slot = slots.get(String(at));
      if (slot === undefined) return [];
      const box = wishes[i].places[slot];
      const [x, y] = [(box[0] + box[2]) / 2, (box[1] + box[3]) / 2];
      context.lineWidth = 3;
      context.strokeStyle = theme.ground;
      context.lineJoin = "round";
      context.strokeText(texts.get(at) ?? "", x, y);
      context.fillStyle = theme.text;
      context.fillText(texts.get(at) ?? "", x, y);
      return [{ dot: at, box }];
    });
  }
}

const isInside = ([x, y]: readonly [number, number], [left, top, right, bottom]: Rect): boolean =>
  x >= left && x <= right && y >= top && y <= bottom;

/** Places of a name near its dot, the best first. */
function around([x, y]: readonly [number, number], width: number): Rect[] {
  const [aside, above, half] = [FRONT_RADIUS + 4, LINE / 2 + FRONT_RADIUS + 3, width / 2];
  const middles: (readonly [number, number])[] = [
    [aside + half, 0],
    [-aside - half, 0],
    [0, -above],
    [0, above],
    [half, -above],
    [-half, -above],
    [half, above],
    [-half, above],
    [aside + half, -2 * above],
    [-aside - half, -2 * above],
    [aside + half, 2 * above],
    [-aside - half, 2 * above]
  ];
  return middles.map(([dx, dy]) => [x + dx - half, y + dy - LINE / 2, x + dx + half, y + dy + LINE / 2]);
}

// The axes of a scatter plot: scale and ticks of each, and the controls that choose what it shows.

// One axis of a scatter: from values to the picture and back, and its ticks. Pure arithmetic.

export interface Scale {
  readonly isLog: boolean;
  /** The place of a value in the picture. */
  at(value: number): number;
  /** Values of the axis between two places, with their places. */
  ticks(from: number, to: number, most: number): readonly { readonly value: number; readonly place: number }[];
}

const ROOM = 0.04; // at both ends, of the whole

/** The values over so much of the picture, from `start`; `isDown`: the largest comes first. */
export function scaleOf(
  values: readonly number[],
  wantsLog: boolean,
  start: number,
  length: number,
  isDown: boolean
): Scale {
  const isLog = wantsLog && values.length > 0 && values.every(value => value > 0);
  const raise = (value: number) => (isLog ? Math.log10(value) : value);
  let [least, most] = [Infinity, -Infinity];
  for (const value of values) [least, most] = [Math.min(least, raise(value)), Math.max(most, raise(value))];
  if (!(most > least)) {
    const half = isLog || most === 0 ? 0.5 : Math.abs(most) / 2;
    [least, most] = Number.isFinite(most) ? [most - half, most + half] : [0, 1];
  }
  const room = (most - least) * ROOM;
  const [low, span] = [least - room, most - least + 2 * room];
  const share = (raised: number) => (isDown ? 1 - (raised - low) / span : (raised - low) / span);
  const back = (place: number) => {
    const part = (place - start) / length;
    return low + span * (isDown ? 1 - part : part);
  };
  const at = (value: number) => start + length * share(raise(value));
  return {
    isLog,
    at,
    ticks: (from, to, count) => {
      const [a, b] = [back(from), back(to)].sort((one, other) => one - other);
      const found = isLog ? logTicks(a, b, count).map(power => 10 ** power) : roundTicks(a, b, count);
      return found.map(value => ({ value, place: at(value) })).filter(({ place }) => Number.isFinite(place));
    }
  };
}

export type Side = "x" | "y";
const SIDES: readonly (readonly [Side, string])[] = [
  ["y", words.Y_AXIS],
  ["x", words.X_AXIS]
];

export class ScatterAxes {
  private readonly disposers = new Disposers();
  private readonly followers: ((scales: Readonly<Record<Side, Scale>>) => void)[] = [];

  constructor(
    private readonly host: HTMLElement,
    private readonly every: readonly Quantity[],
    private readonly store: ExplorerStore
  ) {
    if (every.length >= 2) for (const [side, word] of SIDES) this.addChoice(side, word);
  }

  dispose(): void {
    this.disposers.dispose();
  }

  /** What an axis shows; undefined where models have no two numbers. */
  quantity(side: Side): Quantity | undefined {
    const chosen = this.every.find(({ key }) => key === this.store.get("scatter")[side]);
    return chosen ?? firstPair(this.every)?.[side];
  }

  /** Whether less of it is better. */
  isLess(quantity: Quantity): boolean {
    return this.store.get("less")[quantity.key] ?? quantity.isCost;
  }

  /** Whether its axis goes by powers of ten. */
  isLog(quantity: Quantity, values: readonly number[]): boolean {
    return this.store.get("powers")[quantity.key] ?? isWide(values);
  }

  /** The controls say what is shown. */
  follow(scales: Readonly<Record<Side, Scale>>): void {
    this.followers.forEach(follow => follow(scales));
  }

  private addChoice(side: Side, word: string): void {
    const { store } = this;
    const select = el("select", `mkg-kg-scatter-${side}`);
    select.append(...this.every.map(({ key, label }) => option(key, oneLine(label))));
    const around = field("mkg-view", word, select);
    const less = this.toggle(side, "less", words.DIRECTION_TITLE);
    const powers = this.toggle(side, "powers", words.LOG_TITLE);
    powers.textContent = words.LOG;
    this.followers.push(scales => {
      const quantity = this.quantity(side);
      if (!quantity) return;
      select.value = quantity.key;
      less.textContent = this.isLess(quantity) ? words.LOWER : words.HIGHER;
      setAttribute(powers, "aria-pressed", String(scales[side].isLog));
    });
    this.disposers.add(
      listen(select, "change", () => store.set("scatter", { ...store.get("scatter"), [side]: select.value }))
    );
    this.host.append(around, less, powers);
  }

  private toggle(side: Side, name: "less" | "powers", title: string): HTMLButtonElement {
    const { store } = this;
    const choice = button("mkg-button", "", title);
    choice.dataset.mkgToggle = `${side}-${name}`;
    const change = () => {
      const quantity = this.quantity(side);
      if (!quantity) return;
      const now = name === "less" ? this.isLess(quantity) : choice.getAttribute("aria-pressed") === "true";
      store.set(name, { ...store.get(name), [quantity.key]: !now });
    };
    this.disposers.add(listen(choice, "click", change));
    return choice;
  }
}
