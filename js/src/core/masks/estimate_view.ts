// What a ratio costs, beside its slider: the curve by which it can be chosen, where the figures come from, and the way to
// have them computed and measured; or what has to be passed for them.

import { button, Disposers, el, listen } from "../shared/dom";
import { exactNumber, shortNumber } from "../shared/format";
import { curveOf, type Point, present, riseAlong, toMeasure } from "./estimate";
import { LossCurve, SUM } from "./loss_curve";
import type { RatioControl } from "./ratio_control";
import type { Scene } from "./scene";
import { batchesText, riseText, shareText } from "./words";

const WHAT_TO_PASS = "Pass MaskEditor batches= and loss= to see here what each ratio costs.";
const MORE = "together they usually cost more";
const UNKNOWN = "What a ratio costs is not computed for this model as it is.";

export class EstimateView {
  private readonly disposers = new Disposers();
  private readonly curve: LossCurve;
  private readonly figure = el("span", "mkg-mask-estimate-figure");
  private readonly source = el("span", "mkg-mask-estimate-source");
  private readonly compute = button("mkg-button mkg-mask-sense", "", "Remove each index in turn and see what it costs");
  private readonly cancel = button("mkg-button mkg-mask-sense-cancel", "Cancel");
  private readonly bar = el("progress", "mkg-mask-sense-progress");
  private drawn = ""; // what the line was drawn for
  private points: readonly Point[] = [];
  private dots: readonly Point[] = []; // that are measured
  private toMeasure: ReturnType<typeof toMeasure> | null = null; // in the present ranking
  private ranked = ""; // what that was made for

  constructor(
    private readonly host: HTMLElement,
    private readonly scene: Scene,
    private readonly ratio: RatioControl
  ) {
    host.classList.add("mkg-mask-estimate");
    host.setAttribute("role", "group");
    host.setAttribute("aria-label", "Loss without what goes");
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
    else host.append(el("span", "mkg-mask-estimate-source", WHAT_TO_PASS));
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

  dispose(): void {
    this.curve.dispose();
    this.disposers.dispose();
    this.host.replaceChildren();
  }

  private fill(): void {
    this.compute.dataset.mkgNeedsKernel = this.cancel.dataset.mkgNeedsKernel = "";
    this.bar.setAttribute("aria-label", "Sensitivity: indices that are done");
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
    const [figure, source] = data.increases ? this.known() : [[], UNKNOWN];
    this.compute.textContent = !data.increases ? "Compute" : this.isToMeasure ? "Measure" : "Renew";
    this.compute.title = this.isToMeasure
      ? "Measure the loss at some ratios of the present ranking"
      : "Remove each index in turn and see what it costs, then measure some ratios";
    if (session.wantsCurve && this.toMeasure && connected && !isRunning) this.measure();
    const lines = isRunning ? [progressText(sensing.done, sensing.total)] : figure;
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

  private canMeasure({ offers }: Scene["session"], store: Scene["store"]): boolean {
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
    const here = present(data);
    this.drawCurve();
    const { measured, measuredLoss: loss, offers } = session;
    const at = `at ${shareText(here.left)} of FLOPs`;
    const on = batchesText(offers.batches);
    const { removed } = data.blocks;
    if (measured && loss !== null) {
      const rise = loss - measured.base;
      this.curve.mark({ left: here.left, rise }, `measured loss ${riseText(rise)}`);
      return [
        [`Measured: loss ${shortNumber(measured.base)} → ${shortNumber(loss)}`, `(${riseText(rise)}) ${at}`],
        told(on, this.dots.length > 0)
      ];
    }
    if (measured && store.get("connected") && this.canMeasure(session, store) && !removed.length) {
      const along = riseAlong(this.dots, here.left);
      this.curve.mark({ left: here.left, rise: along ?? here.rise }, "loss not measured yet");
      return [[`Measured: loss ${shortNumber(measured.base)} → …`, at], told(on, this.dots.length > 0)];
    }
    this.curve.mark(here, `${SUM} ${riseText(here.rise)}`);
    const text = measured
      ? `${shortNumber(measured.base)} → ${shortNumber(measured.base + here.rise)} (${riseText(here.rise)})`
      : riseText(here.rise);
    const isMasked = store.get("stage") === "masked";
    const why = isMasked
      ? " Not measured while the model is masked."
      : removed.length
        ? " Not measured where blocks go."
        : "";
    return [[`Sum: loss ${text}`, at], `The sum of what each index costs alone, on ${on}: ${MORE}.${why}`];
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
    return point ? [{ ratio, left: point.left, rise: loss - base }] : [];
  }
}

function told(on: string, isFaint: boolean): string {
  return `On ${on}, with zeros for a cut. ${isFaint ? "Faint" : "The line"}: the sum over single indices; ${MORE}.`;
}

function progressText(done: number, total: number | null): string {
  return total
    ? `Sensitivity: ${exactNumber(done)} of ${exactNumber(total)}`
    : `Sensitivity: ${exactNumber(done)} done`;
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
