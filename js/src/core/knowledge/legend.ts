// What colors and shapes mean.

import { sample } from "../shared/color";
import { Disposers, el, svg } from "../shared/dom";
import type { Knowledge } from "./data";
import { inksOf } from "./ink";
import type { ExplorerStore } from "./state";

const STEPS = 48;
const SHAPES: readonly [string, string][] = [
  ["circle", "community"],
  ["square", "family, model"],
  ["stack", "type"],
  ["ring", "container"],
  ["dot", "module"]
];

export class ExplorerLegend {
  private readonly disposers = new Disposers();
  private dark = false;
  private hasShapes = true;

  constructor(
    private readonly host: HTMLElement,
    private readonly data: Knowledge,
    private readonly store: ExplorerStore
  ) {
    host.classList.add("mkg-legend", "mkg-kg-legend");
    host.setAttribute("role", "group");
    host.setAttribute("aria-label", "Legend");
    this.disposers.add(store.on("colorBy", () => this.draw(this.dark)));
  }

  dispose(): void {
    this.disposers.dispose();
    this.host.replaceChildren();
  }

  /** `hasShapes`: also what shapes mean. */
  draw(dark: boolean, hasShapes = this.hasShapes): void {
    [this.dark, this.hasShapes] = [dark, hasShapes];
    const { title, entries, ramp } = inksOf(this.data, this.store, dark);
    const shapes = el("div", "mkg-kg-shapes");
    for (const [shape, text] of SHAPES) shapes.append(key(text, `mkg-kg-shape mkg-is-${shape}`));
    const parts: HTMLElement[] = [];
    if (title) parts.push(el("div", "mkg-legend-title", title));
    for (const { color, text } of entries) parts.push(key(text, "mkg-kg-swatch", color));
    if (ramp) {
      const picture = el("div", "mkg-legend-ramp");
      picture.append(rampPicture());
      const note = el("span", "mkg-legend-note", "logarithmic; a group has that of its highest member");
      parts.push(el("span", "mkg-legend-end", ramp.low), picture, el("span", "mkg-legend-end", ramp.high), note);
    }
    this.host.replaceChildren(...parts, ...(hasShapes ? [shapes] : []));
  }
}

function key(text: string, className: string, color = ""): HTMLElement {
  const line = el("div", "mkg-legend-key");
  const mark = el("span", className);
  mark.setAttribute("aria-hidden", "true");
  if (color) mark.style.backgroundColor = color;
  line.append(mark, el("bdi", "", text));
  return line;
}

function rampPicture(): SVGElement {
  const picture = svg("svg", { viewBox: `0 0 ${STEPS} 1`, preserveAspectRatio: "none", "aria-hidden": "true" });
  for (let step = 0; step < STEPS; step += 1) {
    // each reaches to the end, under the next ones, or hairlines show between them
    picture.append(svg("rect", { x: step, y: 0, width: STEPS - step, height: 1, fill: sample(step / (STEPS - 1)) }));
  }
  return picture;
}
