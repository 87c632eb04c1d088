// The loss curve beside the ratio's slider: estimated loss against FLOPs left, its source, and the buttons that measure it.

import { button, Disposers, el, listen, setAttribute, svg, Part, setRole } from "../../shared/ui/dom";
import { shortNumber } from "../../shared/base/format";
import { curveOf, type Point, currentCost, lossIncreaseAt, toMeasure } from "../session/estimate";
import type { RatioControl } from "./toolbar";
import type { EditorContext } from "../session/editor_context";
import { batchesText, increaseText, shareText } from "../draft/number_texts";
import type { CellTooltip } from "../cell_drawing";
import * as words from "../../words/masks";

// The loss increase against the FLOPs left, to look along, and to click or to walk on with keys: dots that are measured
// with a line through them, and fainter the sum of what single indices cost.

const [WIDTH, HEIGHT] = [246, 108];
const [LEFT, RIGHT, TOP, BOTTOM] = [46, 6, 6, 28]; // around the line
const SPACE = 11; // between labels
const PAGE = 10; // steps
const TINY = 1e-6; // of ratios that are the same

interface CurveOwner {
  readonly ratio: number;
  /** Every change is a gesture of its own. */
  choose(ratio: number): void;
}

class LossCurve {
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
    private readonly tip: CellTooltip
  ) {
    const picture = svg("svg", {
      width: WIDTH,
      height: HEIGHT,
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      "aria-hidden": "true"
    });
    const [all, none, scale] = [label("start", LEFT), label("end", WIDTH - RIGHT), label("start", LEFT)];
    all.textContent = words.ALL_FLOPS;
    none.textContent = "0 %";
    scale.textContent = words.LOSS_SCALE;
    for (const text of [all, none]) text.setAttribute("y", String(HEIGHT - 15));
    scale.setAttribute("y", String(HEIGHT - 3));
    const labels = [this.least, this.middle, this.most, all, none, scale];
    picture.append(this.zero, this.line, this.through, this.spots, this.under, this.here, ...labels);
    const { element } = this;
    element.tabIndex = 0;
    setRole(element, "slider", words.LOSS_CURVE);
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
    const increases = [...points, ...dots].map(({ increase }) => increase);
    [this.low, this.high] = [Math.min(0, ...increases), Math.max(0, ...increases)];
    if (this.high === this.low) this.high = this.low + 1;
    setAttribute(this.line, "d", this.path(points));
    this.element.classList.toggle("mkg-is-measured", dots.length > 0);
    setAttribute(this.through, "d", dots.length ? this.path([{ ratio: 0, flopsLeft: 1, increase: 0 }, ...dots]) : "");
    this.spots.replaceChildren(
      ...dots.map(({ flopsLeft, increase }) => svg("circle", { cx: this.x(flopsLeft), cy: this.y(increase), r: 2.5 }))
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
      text.textContent = value ? increaseText(value) : "0";
      setAttribute(text, "y", this.y(value) + 4);
    }
    setAttribute(this.element, "aria-valuemax", points[points.length - 1]?.ratio ?? 0);
  }

  private path(points: readonly Point[]): string {
    return points
      .map(({ flopsLeft, increase }, at) => `${at ? "L" : "M"}${this.x(flopsLeft)} ${this.y(increase)}`)
      .join("");
  }

  /** Where the draft stands, which need not be on a line; `text` says what it costs. */
  mark({ flopsLeft, increase }: Omit<Point, "ratio">, text: string): void {
    setAttribute(this.here, "cx", this.x(flopsLeft));
    setAttribute(this.here, "cy", this.y(Math.min(this.high, Math.max(this.low, increase))));
    const { ratio } = this.owner;
    setAttribute(this.element, "aria-valuenow", ratio);
    setAttribute(this.element, "aria-valuetext", `${placeText(ratio, flopsLeft)}, ${text}`);
  }

  private x(flopsLeft: number): number {
    return round(LEFT + (1 - flopsLeft) * (WIDTH - LEFT - RIGHT));
  }

  private y(increase: number): number {
    const [high, low] = [root(this.high), root(this.low)];
    return round(TOP + ((high - root(increase)) / (high - low)) * (HEIGHT - TOP - BOTTOM));
  }

  /** The point whose FLOPs are nearest to the pointer. */
  private at(event: MouseEvent): Point | undefined {
    const { left } = this.element.getBoundingClientRect();
    const place = event.clientX - left;
    const distance = (point: Point) => Math.abs(this.x(point.flopsLeft) - place);
    return this.points.reduce<Point | undefined>(
      (best, point) => (best && distance(best) <= distance(point) ? best : point),
      undefined
    );
  }

  private hover(event: PointerEvent): void {
    const point = this.at(event);
    if (!point) return;
    this.under.style.display = "";
    setAttribute(this.under, "cx", this.x(point.flopsLeft));
    setAttribute(this.under, "cy", this.y(point.increase));
    this.tip.showBelow(this.element, this.sentence(point));
  }

  /** "ratio 0.3: 61.2 % of FLOPs left, measured loss +0.4 at ratio 0.3; sum of single channels +0.12" */
  private sentence({ ratio, flopsLeft, increase }: Point): string {
    const below = this.dots.filter(dot => dot.ratio <= ratio + TINY).slice(-1);
    const above = this.dots.filter(dot => dot.ratio >= ratio - TINY).slice(0, 1);
    const beside = [...new Set(ratio > TINY && above.length ? [...below, ...above] : [])];
    const found = beside.map(dot => words.atRatio(increaseText(dot.increase), shortNumber(dot.ratio))).join(", ");
    return `${placeText(ratio, flopsLeft)}, ${found && `${words.measuredLoss(found)}; `}${words.summed(increaseText(increase))}`;
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

function placeText(ratio: number, flopsLeft: number): string {
  return words.place(shortNumber(ratio), shareText(flopsLeft));
}

/** A scale on which the range where one cuts is not flat beside what costs most. */
const root = (value: number): number => Math.sign(value) * Math.sqrt(Math.abs(value));

function label(anchor: "start" | "end", x: number): SVGTextElement {
  return svg("text", { class: "mkg-mask-curve-label", "text-anchor": anchor, x });
}

const round = (value: number): number => Math.round(10 * value) / 10;

export class EstimateView extends Part {
  private readonly curve: LossCurve;
  private readonly figure = el("span", "mkg-mask-estimate-figure");
  private readonly source = el("span", "mkg-mask-estimate-source");
  private readonly compute = button("mkg-button mkg-mask-sense", "", words.SENSE_TITLE);
  private readonly cancel = button("mkg-button mkg-mask-sense-cancel", words.CANCEL);
  private readonly bar = el("progress", "mkg-mask-sense-progress");
  private drawn = ""; // what the line was drawn for
  private points: readonly Point[] = [];
  private dots: readonly Point[] = []; // that are measured
  private toMeasure: ReturnType<typeof toMeasure> | null = null; // in the present ranking
  private ranked = ""; // what that was made for

  constructor(
    host: HTMLElement,
    private readonly scene: EditorContext,
    private readonly ratio: RatioControl
  ) {
    super(host);
    host.classList.add("mkg-mask-estimate");
    setRole(host, "group", words.LOSS);
    this.curve = new LossCurve(
      {
        get ratio() {
          return ratio.value;
        },
        choose: to => ratio.set(to)
      },
      scene.tip
    );
    const { session, store, data } = scene;
    if (session.offers.sensitivity || data.increases) this.fill();
    else {
      host.append(el("span", "mkg-mask-estimate-source", words.WHAT_TO_PASS));
      host.classList.add("mkg-mask-to-pass"); // nothing can be passed to a file
    }
    const later = () => scene.frames.add(this.draw);
    this.disposers.add(
      session.events.on(["increases", "scores", "costs"], later),
      store.on(["scope", "locked", "connected", "importance", "stage"], later),
      data.draft.onChange(later),
      listen(this.compute, "click", () => this.ask()),
      listen(this.cancel, "click", () => session.sense(false))
    );
    this.draw();
  }

  override dispose(): void {
    this.curve.dispose();
    super.dispose();
  }

  private fill(): void {
    this.compute.dataset.mkgNeedsKernel = this.cancel.dataset.mkgNeedsKernel = "";
    this.bar.setAttribute("aria-label", words.SENSE_PROGRESS);
    const [text, work] = [el("div", "mkg-mask-estimate-text"), el("div", "mkg-mask-group")];
    work.append(this.source, this.bar, this.cancel, this.compute);
    text.append(this.figure, work);
    this.host.append(this.ratio.element, this.curve.element, text);
  }

  private readonly draw = (): void => {
    const { session, data, store } = this.scene;
    const { sensing, offers } = session;
    const connected = store.get("connected");
    const isRunning = sensing !== null && connected;
    const hadFocus = this.compute.matches(":focus") || this.cancel.matches(":focus");
    this.bar.hidden = this.cancel.hidden = !isRunning;
    this.compute.hidden = isRunning || !offers.sensitivity;
    this.compute.disabled = this.cancel.disabled = !connected;
    if (hadFocus) (isRunning ? this.cancel : this.compute).focus();
    if (sensing?.total) [this.bar.max, this.bar.value] = [sensing.total, sensing.done];
    else this.bar.removeAttribute("value");
    this.curve.element.hidden = !data.increases || !data.scores;
    const [figure, source] = data.increases ? this.known() : [[], words.NOT_COMPUTED];
    this.compute.textContent = !data.increases ? words.COMPUTE : this.isToMeasure ? words.MEASURE : words.UPDATE;
    this.compute.title = this.isToMeasure ? words.MEASURE_TITLE : words.SENSE_AND_MEASURE_TITLE;
    if (session.wantsCurve && this.toMeasure && connected && !isRunning) this.measure();
    const lines = isRunning ? [words.sensed(sensing.done, sensing.total)] : figure;
    if (this.figure.textContent !== lines.join(" "))
      this.figure.replaceChildren(...lines.flatMap((line, at) => [at ? " " : "", el("span", "", line)]));
    const from = isRunning && !data.increases ? "" : source;
    if (this.source.textContent === from) return;
    this.source.textContent = from;
  };

  /** Whether what single indices cost is known, and what they cost together at ratios is not. */
  private get isToMeasure(): boolean {
    const { data, session, store } = this.scene;
    return data.increases !== null && this.toMeasure !== null && !this.dots.length && this.canMeasure(session, store);
  }

  private canMeasure({ offers }: EditorContext["session"], store: EditorContext["store"]): boolean {
    return offers.sensitivity && store.get("stage") !== "masked";
  }

  private ask(): void {
    if (this.isToMeasure) this.measure();
    else this.scene.session.sense(true);
  }

  private measure(): void {
    const { toMeasure: wanted } = this;
    if (wanted) this.scene.session.measure(wanted.key, wanted.points);
  }

  /** The lines anew where they have become others, and the words for where the draft stands. */
  private known(): [figure: readonly string[], source: string] {
    const { session, data, store } = this.scene;
    const here = currentCost(data);
    this.drawCurve();
    const { measured, measuredLoss: loss, offers } = session;
    const at = words.atShare(shareText(here.flopsLeft));
    const on = batchesText(offers.batches);
    const { removed } = data.blocks;
    if (measured && loss !== null) {
      const increase = loss - measured.base;
      this.curve.mark({ flopsLeft: here.flopsLeft, increase }, words.measuredLoss(increaseText(increase)));
      return [
        [words.lossMeasured(shortNumber(measured.base), shortNumber(loss)), `(${increaseText(increase)}) ${at}`],
        words.measuredOn(on, this.dots.length > 0)
      ];
    }
    if (measured && store.get("connected") && this.canMeasure(session, store) && !removed.length) {
      const along = lossIncreaseAt(this.dots, here.flopsLeft);
      this.curve.mark({ flopsLeft: here.flopsLeft, increase: along ?? here.increase }, words.NOT_MEASURED);
      return [[words.lossMeasured(shortNumber(measured.base), "…"), at], words.measuredOn(on, this.dots.length > 0)];
    }
    this.curve.mark(here, words.summed(increaseText(here.increase)));
    const text = measured
      ? `${shortNumber(measured.base)} → ${shortNumber(measured.base + here.increase)} (${increaseText(here.increase)})`
      : increaseText(here.increase);
    const isMasked = store.get("stage") === "masked";
    const why = isMasked ? words.NOT_WHILE_MASKED : removed.length ? words.NOT_WITH_BLOCKS : "";
    return [[words.lossSummed(text), at], words.summedOn(on, why)];
  }

  private drawCurve(): void {
    const { session, data, store } = this.scene;
    if (!data.scores) {
      this.toMeasure = null;
      return;
    }
    const axes = session.ratioAxes();
    const scope = store.get("scope");
    const others = data.axes.size.map((_, axis) => (axes.includes(axis) ? -1 : data.draft.dropped(axis)));
    const importance = store.get("importance");
    const ranking = [scope, importance, numberOf(data.scores), data.blocks.removed, axes, "", others].join();
    if (ranking !== this.ranked || !this.toMeasure)
      this.toMeasure = toMeasure(data, data.scores, axes, scope, importance);
    this.ranked = ranking;
    const { measured } = session;
    const isMeasured = measured?.key === this.toMeasure.key;
    const key = [ranking, numberOf(data.increases), isMeasured ? numberOf(measured) : 0].join();
    if (key === this.drawn) return;
    this.drawn = key;
    this.points = curveOf(data, data.scores, axes, scope);
    this.dots = isMeasured ? measured.points.flatMap(point => this.dot(point, measured.base)) : [];
    this.curve.draw(this.points, this.dots);
  }

  private dot([ratio, loss]: readonly [number, number], base: number): Point[] {
    const point = this.points.find(own => Math.abs(own.ratio - ratio) < 1e-6);
    return point ? [{ ratio, flopsLeft: point.flopsLeft, increase: loss - base }] : [];
  }
}

const numbers = new WeakMap<object, number>();
let made = 0;

/** Tells objects apart. */
function numberOf(value: object | null): number {
  if (!value) return 0;
  const found = numbers.get(value) ?? (made += 1);
  numbers.set(value, found);
  return found;
}
