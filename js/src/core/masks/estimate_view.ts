// What a ratio costs, beside its slider: the curve by which it can be chosen, where the figures come from, and the way to
// have them computed; or what has to be passed for them.

import { button, Disposers, el, listen } from "../shared/dom";
import { exactNumber } from "../shared/format";
import { curveOf, present } from "./estimate";
import { LossCurve } from "./loss_curve";
import type { RatioControl } from "./ratio_control";
import type { Scene } from "./scene";
import { riseText, shareText } from "./words";

const WHAT_TO_PASS = "Pass MaskEditor batches= and loss= to see here, as an estimate, what each ratio costs.";
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

  constructor(
    private readonly host: HTMLElement,
    private readonly scene: Scene,
    private readonly ratio: RatioControl
  ) {
    host.classList.add("mkg-mask-estimate");
    host.setAttribute("role", "group");
    host.setAttribute("aria-label", "Estimated loss");
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
      store.on(["scope", "locked", "connected"], later),
      data.draft.onChange(later),
      listen(this.compute, "click", () => session.sense(true)),
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
    this.compute.textContent = data.increases ? "Renew" : "Compute";
    if (sensing?.total) [this.bar.max, this.bar.value] = [sensing.total, sensing.done];
    else this.bar.removeAttribute("value");
    this.curve.element.hidden = !data.increases || !data.scores;
    const [figure, source] = data.increases ? this.known() : [[], UNKNOWN];
    const lines = isRunning ? [progressText(sensing.done, sensing.total)] : figure;
    if (this.figure.textContent !== lines.join(" "))
      this.figure.replaceChildren(...lines.flatMap((line, at) => [at ? " " : "", el("span", "", line)]));
    const from = isRunning && !data.increases ? "" : source;
    if (this.source.textContent === from) return;
    this.source.textContent = from;
    this.source.title = from && `${from}: together they may cost more`;
  };

  /** The line anew where it has become another one, and the words for where the draft stands. */
  private known(): [figure: readonly string[], source: string] {
    const { session, data, store } = this.scene;
    const here = present(data);
    if (data.scores) {
      const axes = session.ratioAxes();
      const others = data.axes.size.map((_, axis) => (axes.includes(axis) ? -1 : data.draft.dropped(axis)));
      const key = [store.get("scope"), numberOf(data.scores), numberOf(data.increases), others].join();
      if (key !== this.drawn) {
        this.drawn = key;
        this.curve.draw(curveOf(data, data.scores, axes, store.get("scope")));
      }
      this.curve.mark(here);
    }
    const { batches } = session.offers;
    const on = batches === null ? "your batches" : batches === 1 ? "1 batch" : `${exactNumber(batches)} batches`;
    return [
      [`Estimate: loss ${riseText(here.rise)}`, `at ${shareText(here.left)} of the FLOPs`],
      `The sum of what each index costs alone (sensitivity, ${on})`
    ];
  }
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
