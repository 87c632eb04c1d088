// The line chart with the keyboard: arrows read values, + and − zoom, Escape shows all.

import { type Disposer, listen } from "../shared/dom";
import { type ChartPicture, stepBeside } from "./chart_picture";
import type { Span } from "./state";

export interface KeyTarget {
  picture(): ChartPicture | undefined;
  cursorStep(): number | null;
  moveTo(step: number | null): void;
  zoom(span: Span | null): void;
}

const ZOOM = 2;
const LEAST_SPAN = 4; // steps

export function bindChartKeys(host: HTMLElement, target: KeyTarget): Disposer {
  host.setAttribute("aria-keyshortcuts", "ArrowLeft ArrowRight Home End + - Escape");
  return listen(host, "keydown", event => {
    const picture = target.picture();
    if (!picture || event.target !== host || event.ctrlKey || event.metaKey || event.altKey) return;
    if (!handle(event.key, picture, target)) return;
    event.preventDefault();
    event.stopPropagation();
  });
}

function handle(key: string, picture: ChartPicture, target: KeyTarget): boolean {
  const [first, last] = picture.span;
  const at = target.cursorStep();
  switch (key) {
    case "ArrowRight":
    case "ArrowLeft": {
      const direction = key === "ArrowRight" ? 1 : -1;
      const from = at === null ? (direction > 0 ? first - 1 : last + 1) : Math.round(at);
      const step = stepBeside(picture.lines, from, direction);
      if (!Number.isNaN(step)) target.moveTo(step);
      return true;
    }
    case "Home":
    case "End":
      target.moveTo(key === "Home" ? first : last);
      return true;
    case "+":
    case "=":
      target.zoom(zoomed(picture, at, 1 / ZOOM));
      return true;
    case "-":
      target.zoom(zoomed(picture, at, ZOOM));
      return true;
    case "Escape":
      target.zoom(null);
      target.moveTo(null);
      return true;
    default:
      return false;
  }
}

/** The span around a step, so many times as wide, among the steps that there are; null is all of them. */
export function zoomed(
  { span, lines }: Pick<ChartPicture, "span" | "lines">,
  at: number | null,
  factor: number
): Span | null {
  const held = lines.filter(({ data }) => data.length > 0);
  const first = Math.min(span[0], ...held.map(({ data }) => data.steps[0]));
  const last = Math.max(span[1], ...held.map(({ data }) => data.lastStep));
  const width = Math.max(LEAST_SPAN, Math.ceil((span[1] - span[0]) * factor));
  if (width >= last - first) return null;
  const start = Math.floor((at ?? (span[0] + span[1]) / 2) - width / 2);
  const from = Math.min(Math.max(start, first), last - width);
  return [from, from + width];
}
