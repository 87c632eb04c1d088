// The share of all indices that goes: a slider with a number field, and a gesture while either is moved.

import { Disposers, el, listen } from "../../shared/ui/dom";
import type { EditorContext } from "../session/editor_context";

const GREATEST = 0.99;
const MAX_RATIOS = 200; // that are remembered: a slider passes by many

export class RatioControl {
  readonly element = el("div", "mkg-mask-field mkg-mask-ratio");
  private readonly disposers = new Disposers();
  private readonly slider = el("input", "mkg-mask-ratio-slider");
  private readonly field = el("input", "mkg-mask-ratio-field");
  private isOurs = false; // the draft is what the control last said
  private shown = ""; // in the field; a page tells of a change again when the field is left

  constructor(private readonly scene: EditorContext) {
    const { slider, field, element } = this;
    slider.type = "range";
    slider.max = String(GREATEST);
    slider.step = "0.01";
    field.type = "number";
    field.max = "0.999";
    field.step = "0.01";
    slider.min = field.min = "0";
    slider.title = "How many of the indices go, the least important first";
    slider.setAttribute("aria-label", "Ratio of the indices that go");
    field.setAttribute("aria-label", "Ratio as a number");
    element.append(el("span", "mkg-label", "Ratio"), slider, field);
    this.disposers.add(
      listen(slider, "input", () => this.preview(Number(slider.value))),
      listen(slider, "change", () => scene.session.commit()),
      listen(field, "change", () => this.typed()),
      scene.data.draft.onChange(() => this.scene.frames.add(this.follow)),
      scene.session.events.on("scores", () => this.enable()),
      scene.store.on("locked", () => this.enable())
    );
    this.enable();
    this.follow();
  }

  dispose(): void {
    this.disposers.dispose();
    this.element.remove();
  }

  get value(): number {
    return Number(this.slider.value);
  }

  get isPossible(): boolean {
    return !this.slider.disabled;
  }

  /** As one gesture. */
  set(ratio: number): void {
    if (!this.isPossible) return;
    this.preview(ratio);
    this.scene.session.commit();
  }

  /** Within a gesture; the field follows the slider. */
  private preview(ratio: number): void {
    const { session, store } = this.scene;
    session.begin();
    session.dropRatio(ratio, store.get("scope"));
    const { ratios } = session;
    ratios.delete(this.counts);
    ratios.set(this.counts, Number(ratio.toFixed(3)));
    for (const [first] of ratios) if (ratios.size > MAX_RATIOS) ratios.delete(first);
    this.show(ratio);
    this.isOurs = true;
  }

  private typed(): void {
    if (this.field.value === this.shown) return;
    const ratio = Number(this.field.value);
    const isWrong = this.field.value.trim() === "" || !(ratio >= 0 && ratio < 1);
    this.field.setAttribute("aria-invalid", String(isWrong));
    if (isWrong) return;
    this.set(ratio);
  }

  private enable(): void {
    const isPossible = this.scene.data.scores !== null && this.scene.session.ratioAxes().length > 0;
    this.slider.disabled = this.field.disabled = !isPossible;
  }

  /** How many indices of which sizes go, as text: the same ratio takes them again. */
  private get counts(): string {
    const { draft, axes } = this.scene.data;
    return this.scene.session
      .ratioAxes()
      .map(axis => `${draft.dropped(axis)}/${axes.size[axis]}`)
      .join();
  }

  /** After anybody else's change: the ratio that was chosen for what goes now, or else the share of it. */
  private readonly follow = (): void => {
    if (this.isOurs) {
      this.isOurs = false;
      return;
    }
    const chosen = this.scene.session.ratios.get(this.counts);
    if (chosen !== undefined) return this.show(chosen);
    const { draft, axes } = this.scene.data;
    const own = this.scene.session.ratioAxes();
    const total = own.reduce((sum, axis) => sum + axes.size[axis], 0);
    const gone = own.reduce((sum, axis) => sum + draft.dropped(axis), 0);
    this.show(total ? gone / total : 0);
  };

  private show(ratio: number): void {
    const text = String(Math.round(ratio * 1000) / 1000);
    this.slider.value = text;
    this.slider.setAttribute("aria-valuetext", `${Math.round(ratio * 1000) / 10} %`);
    if (this.field.value === "" || Number(this.field.value) !== Number(text)) this.field.value = text;
    this.shown = this.field.value;
    this.field.setAttribute("aria-invalid", "false");
  }
}
