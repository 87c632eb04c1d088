// A scheduler of drawings: at most one a frame, only while the page is visible, and never for most of the time.

import { isMotionReduced } from "../../shared/base/settings";

const FRAME = 16; // ms
const IDLE_RATIO = 1.5; // so many times as long as a drawing took, the page is left alone
const LONG_IDLE_RATIO = 5; // the same where a drawing takes longer than a frame
const MAX_IDLE = 1000; // ms
const CALM = 500; // ms between drawings where people want less motion

export class FrameScheduler {
  private frame = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private next = 0;
  private isDue = false;
  private isSeen = true;
  private readonly observer?: IntersectionObserver;

  constructor(
    host: Element,
    private readonly draw: () => void
  ) {
    if (typeof IntersectionObserver === "function") {
      this.observer = new IntersectionObserver(entries => this.see(entries[entries.length - 1].isIntersecting));
      this.observer.observe(host);
    }
  }

  /** New data: drawn as soon as the pace allows. */
  data(): void {
    this.isDue = true;
    if (!this.isSeen || this.frame || this.timer !== undefined) return;
    const wait = this.next - performance.now();
    if (wait > 0) {
      this.timer = setTimeout(() => {
        this.timer = undefined;
        this.ask();
      }, wait);
    } else this.ask();
  }

  /** Somebody did something: drawn with the next frame. */
  now(): void {
    this.isDue = true;
    if (this.isSeen) this.ask();
  }

  dispose(): void {
    this.observer?.disconnect();
    clearTimeout(this.timer);
    cancelAnimationFrame(this.frame);
    this.isDue = this.isSeen = false;
  }

  private ask(): void {
    if (!this.frame) this.frame = requestAnimationFrame(() => this.run());
  }

  private run(): void {
    this.frame = 0;
    if (!this.isDue || !this.isSeen) return;
    this.isDue = false;
    clearTimeout(this.timer);
    this.timer = undefined;
    const begin = performance.now();
    this.next = begin + MAX_IDLE; // until the end of this drawing is known
    // the browser paints after this function: the first message that comes through afterwards tells how long it took
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      this.idle(performance.now() - begin);
    };
    port2.postMessage(null);
    this.draw();
  }

  private idle(cost: number): void {
    const rest = Math.min(MAX_IDLE, cost * (cost > FRAME ? LONG_IDLE_RATIO : IDLE_RATIO));
    this.next = performance.now() + (isMotionReduced() ? Math.max(CALM, rest) : rest);
    // what came meanwhile waits for this time, not for the longest one
    if (this.timer !== undefined) {
      clearTimeout(this.timer);
      this.timer = undefined;
      this.data();
    }
  }

  private see(isSeen: boolean): void {
    this.isSeen = isSeen;
    if (isSeen && this.isDue) this.ask();
  }
}
