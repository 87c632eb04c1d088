// The rise of the loss against the FLOPs left, to look along, and to click or to walk on with keys: dots that are measured
// with a line through them, and fainter the sum of what single indices cost.

import { Disposers, el, listen, setAttribute, svg } from "../shared/dom";
import { shortNumber } from "../shared/format";
import type { CellTip } from "./cell_tip";
import type { Point } from "./estimate";
import { riseText, shareText } from "./words";

const [WIDTH, HEIGHT] = [246, 108];
const [LEFT, RIGHT, TOP, BOTTOM] = [46, 6, 6, 28]; // around the line
const SPACE = 11; // between labels
const PAGE = 10; // steps
const TINY = 1e-6; // of ratios that are the same
export const SUM = "sum of single indices";

export interface CurveOwner {
  readonly ratio: number;
  /** Every change is a gesture of its own. */
  choose(ratio: number): void;
}

export class LossCurve {
  readonly element = el("div", "mkg-mask-curve");
  private readonly disposers = new Disposers();
  private readonly line = svg("path", { class: "mkg-mask-curve-line" });
  private readonly through = svg("path", { class: "mkg-mask-curve-measured" });
  private readonly spots = svg("g", { class: "mkg-mask-curve-dots" });
  private readonly zero = svg("line", { class: "mkg-mask-curve-zero" });
  private readonly here = svg("circle", { class: "mkg-mask-curve-here", r: 4 });
  private readonly under = svg("circle", { class: "mkg-mask-curve-under", r: 3 });
  private readonly least = label("end", LEFT - 7);
  private readonly middle = label("end", LEFT - 7);
  private readonly most = label("end", LEFT - 7);
  private points: readonly Point[] = [];
  private dots: readonly Point[] = [];
  private low = 0;
  private high = 1;

  constructor(
    private readonly owner: CurveOwner,
    private readonly tip: CellTip
  ) {
    const picture = svg("svg", {
      width: WIDTH,
      height: HEIGHT,
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      "aria-hidden": "true"
    });
    const [all, none, scale] = [label("start", LEFT), label("end", WIDTH - RIGHT), label("start", LEFT)];
    all.textContent = "100 % of the FLOPs left";
    none.textContent = "0 %";
    scale.textContent = "rise of the loss, square-root scale";
    for (const text of [all, none]) text.setAttribute("y", String(HEIGHT - 15));
    scale.setAttribute("y", String(HEIGHT - 3));
    const labels = [this.least, this.middle, this.most, all, none, scale];
    picture.append(this.zero, this.line, this.through, this.spots, this.under, this.here, ...labels);
    const { element } = this;
    element.tabIndex = 0;
    element.setAttribute("role", "slider");
    element.setAttribute("aria-label", "Ratio on the curve of the loss against the FLOPs left");
    element.setAttribute("aria-valuemin", "0");
    element.append(picture);
    this.under.style.display = "none";
    this.disposers.add(
      listen(element, "pointermove", event => this.hover(event)),
      listen(element, "pointerleave", () => this.leave()),
      listen(element, "click", event => this.click(event)),
      listen(element, "keydown", event => this.key(event))
    );
  }

  dispose(): void {
    this.leave();
    this.disposers.dispose();
    this.element.remove();
  }

  /** The line: a point for each ratio from 0 on, in equal steps; the dots are measured. */
  draw(points: readonly Point[], dots: readonly Point[] = []): void {
    [this.points, this.dots] = [points, dots];
    const rises = [...points, ...dots].map(({ rise }) => rise);
    [this.low, this.high] = [Math.min(0, ...rises), Math.max(0, ...rises)];
    if (this.high === this.low) this.high = this.low + 1;
    setAttribute(this.line, "d", this.path(points));
    this.element.classList.toggle("mkg-is-measured", dots.length > 0);
    setAttribute(this.through, "d", dots.length ? this.path([{ ratio: 0, left: 1, rise: 0 }, ...dots]) : "");
    this.spots.replaceChildren(
      ...dots.map(({ left, rise }) => svg("circle", { cx: this.x(left), cy: this.y(rise), r: 2.5 }))
    );
    for (const [name, value] of Object.entries({ x1: LEFT, x2: WIDTH - RIGHT, y1: this.y(0), y2: this.y(0) }))
      setAttribute(this.zero, name, value);
    const isRoom = this.y(0) - this.y(this.high) > 2 * SPACE;
    this.middle.style.display = isRoom ? "" : "none";
    for (const [text, value] of [
      [this.most, this.high],
      [this.middle, this.high / 4],
      [this.least, 0]
    ] as const) {
      text.textContent = value ? riseText(value) : "0";
      setAttribute(text, "y", this.y(value) + 4);
    }
    setAttribute(this.element, "aria-valuemax", points[points.length - 1]?.ratio ?? 0);
  }

  private path(points: readonly Point[]): string {
    return points.map(({ left, rise }, at) => `${at ? "L" : "M"}${this.x(left)} ${this.y(rise)}`).join("");
  }

  /** Where the draft stands, which need not be on a line; `text` says what it costs. */
  mark({ left, rise }: Omit<Point, "ratio">, text: string): void {
    setAttribute(this.here, "cx", this.x(left));
    setAttribute(this.here, "cy", this.y(Math.min(this.high, Math.max(this.low, rise))));
    const { ratio } = this.owner;
    setAttribute(this.element, "aria-valuenow", ratio);
    setAttribute(this.element, "aria-valuetext", `${placeText(ratio, left)}, ${text}`);
  }

  private x(left: number): number {
    return round(LEFT + (1 - left) * (WIDTH - LEFT - RIGHT));
  }

  private y(rise: number): number {
    const [high, low] = [root(this.high), root(this.low)];
    return round(TOP + ((high - root(rise)) / (high - low)) * (HEIGHT - TOP - BOTTOM));
  }

  /** The point whose FLOPs are nearest to the pointer. */
  private at(event: MouseEvent): Point | undefined {
    const { left } = this.element.getBoundingClientRect();
    const place = event.clientX - left;
    const distance = (point: Point) => Math.abs(this.x(point.left) - place);
    return this.points.reduce<Point | undefined>(
      (best, point) => (best && distance(best) <= distance(point) ? best : point),
      undefined
    );
  }

  private hover(event: PointerEvent): void {
    const point = this.at(event);
    if (!point) return;
    this.under.style.display = "";
    setAttribute(this.under, "cx", this.x(point.left));
    setAttribute(this.under, "cy", this.y(point.rise));
    this.tip.showBelow(this.element, this.sentence(point));
  }

  /** "ratio 0.3: 61.2 % of the FLOPs left, measured loss +0.4 at ratio 0.3; sum of single indices +0.12" */
  private sentence({ ratio, left, rise }: Point): string {
    const below = this.dots.filter(dot => dot.ratio <= ratio + TINY).slice(-1);
    const above = this.dots.filter(dot => dot.ratio >= ratio - TINY).slice(0, 1);
    const beside = [...new Set(ratio > TINY && above.length ? [...below, ...above] : [])];
    const found = beside.map(dot => `${riseText(dot.rise)} at ratio ${shortNumber(dot.ratio)}`).join(", ");
    return `${placeText(ratio, left)}, ${found && `measured loss ${found}; `}${SUM} ${riseText(rise)}`;
  }

  private leave(): void {
    this.under.style.display = "none";
    this.tip.hide();
  }

  private click(event: MouseEvent): void {
    const point = this.at(event);
    if (point) this.owner.choose(point.ratio);
  }

  private key(event: KeyboardEvent): void {
    const last = this.points.length - 1;
    const now = Math.round(this.owner.ratio * 100);
    const steps: Record<string, number> = {
      ArrowRight: now + 1,
      ArrowUp: now + 1,
      ArrowLeft: now - 1,
      ArrowDown: now - 1,
      PageUp: now + PAGE,
      PageDown: now - PAGE,
      Home: 0,
      End: last
    };
    const to = steps[event.key];
    if (event.key === " ") event.preventDefault(); // which would scroll the curve out of sight
    if (to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    const point = this.points[Math.max(0, Math.min(last, to))];
    if (point) this.owner.choose(point.ratio);
  }
}

function placeText(ratio: number, left: number): string {
  return `ratio ${shortNumber(ratio)}: ${shareText(left)} of the FLOPs left`;
}

/** A scale on which the range where one cuts is not flat beside what costs most. */
const root = (value: number): number => Math.sign(value) * Math.sqrt(Math.abs(value));

function label(anchor: "start" | "end", x: number): SVGTextElement {
  return svg("text", { class: "mkg-mask-curve-label", "text-anchor": anchor, x });
}

const round = (value: number): number => Math.round(10 * value) / 10;
