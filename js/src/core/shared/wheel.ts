// The wheel over a canvas: zooms where the user is at work or asks for it, else scrolls the page as everywhere.

import { Debounced, Disposers, el, widgetRoot } from "./dom";

const HINT = "Click the graph, or hold Ctrl, to zoom";
const SHOWN = 1400; // ms
const REST = 250; // ms after which the wheel scrolls the page no more

export class WheelGuard {
  private readonly hint = el("div", "mkg-wheel-hint", HINT);
  private readonly disposers = new Disposers();
  private scrolled = -Infinity; // when the page last was
  private readonly fade = new Debounced(() => this.hint.classList.remove("mkg-is-shown"), SHOWN);

  /** `wrap` is around the canvas, so that it sees the wheel before the stage does. */
  constructor(private readonly wrap: HTMLElement) {
    this.hint.setAttribute("aria-hidden", "true"); // whoever does not see it has no use for it
    wrap.append(this.hint);
    const options = { capture: true, passive: true };
    const handler = (event: WheelEvent) => this.handle(event);
    wrap.addEventListener("wheel", handler, options);
    const scroll = ({ target }: Event) => {
      if (target instanceof Node && target.contains(wrap)) this.scrolled = performance.now();
    };
    window.addEventListener("scroll", scroll, options);
    this.disposers.add(() => {
      wrap.removeEventListener("wheel", handler, options);
      window.removeEventListener("scroll", scroll, options);
    });
  }

  dispose(): void {
    this.fade.cancel();
    this.disposers.dispose();
    this.hint.remove();
  }

  private handle(event: WheelEvent): void {
    const isAsked = event.ctrlKey || event.metaKey;
    const zooms = isAsked || this.isAtWork();
    // a page that is being scrolled goes on where the canvas comes under the pointer
    const isPassing = !isAsked && performance.now() - this.scrolled < REST;
    if (!zooms || isPassing) event.stopPropagation(); // what the stage does not hear of scrolls the page
    if (zooms) this.fade.cancel();
    else this.fade.call();
    this.hint.classList.toggle("mkg-is-shown", !zooms);
  }

  /** The focus is in the widget, or the widget is the whole page. */
  private isAtWork(): boolean {
    return this.wrap.closest(".mkg-standalone") !== null || widgetRoot(this.wrap).contains(document.activeElement);
  }
}
