// The legend of colors: scale, ends, how containers got their value, which have none.

import { MISSING_COLOR, NOT_FINITE_COLOR, sample, Scale, scaleOf } from "../../shared/stage/color";
import { Disposers, el, svg } from "../../shared/ui/dom";
import { counted, exactNumber, shortColumn } from "../../shared/base/format";
import type { Hierarchy } from "../../shared/model/hierarchy";
import type { GraphStore } from "../../shared/model/graph_store";

const STEPS = 48;

export class Legend {
  private readonly disposers = new Disposers();

  constructor(
    private readonly host: HTMLElement,
    private readonly h: Hierarchy,
    private readonly store: GraphStore
  ) {
    host.classList.add("mkg-legend");
    host.setAttribute("role", "group");
    host.setAttribute("aria-label", "Color legend");
    this.disposers.add(
      store.on("colorBy", () => this.render()),
      store.on("overlay", () => this.render()),
      store.on("pruned", () => this.render())
    );
    this.render();
  }

  dispose(): void {
    this.disposers.dispose();
    this.host.replaceChildren();
  }

  private render(): void {
    const scale = scaleOf(this.h, this.store);
    this.host.hidden = scale === null;
    this.host.replaceChildren(...(scale ? parts(scale) : []));
  }
}

function parts(scale: Scale): HTMLElement[] {
  const title = el("div", "mkg-legend-title", scale.label);
  if (scale.logarithmic) title.append(el("span", "mkg-legend-note", " logarithmic"));
  const found = [title, ...(Number.isNaN(scale.min) ? [] : rampWithEnds(scale))];
  if (scale.aggregation) found.push(el("div", "mkg-legend-note", `containers: ${scale.aggregation}`));
  if (scale.column === "pruned") found.push(el("div", "mkg-legend-note", "not colored: nothing pruned"));
  if (scale.missing) found.push(key(MISSING_COLOR, `no value: ${counted(scale.missing, "module")}`));
  if (scale.notFinite) found.push(key(NOT_FINITE_COLOR, `NaN or infinite: ${counted(scale.notFinite, "module")}`));
  return found;
}

function rampWithEnds(scale: Scale): HTMLElement[] {
  const picture = el("div", "mkg-legend-ramp");
  const flat = scale.min === scale.max;
  picture.append(ramp(scale, flat));
  if (flat) return [picture, end(scale, scale.min)];
  picture.title = `in the middle: ${shortColumn(scale.column, scale.at(0.5))}`;
  return [end(scale, scale.min), picture, end(scale, scale.max)];
}

function ramp(scale: Scale, flat: boolean): SVGElement {
  const picture = svg("svg", { viewBox: `0 0 ${STEPS} 1`, preserveAspectRatio: "none", "aria-hidden": "true" });
  for (let step = 0; step < STEPS; step += 1) {
    const fill = sample(flat ? scale.position(scale.min) : step / (STEPS - 1));
    // each reaches to the end, under the next ones, or hairlines show between them
    picture.append(svg("rect", { x: step, y: 0, width: STEPS - step, height: 1, fill }));
  }
  return picture;
}

function end(scale: Scale, value: number): HTMLElement {
  const mark = el("span", "mkg-legend-end", shortColumn(scale.column, value));
  mark.title = exactNumber(value);
  return mark;
}

function key(color: string, text: string): HTMLElement {
  const line = el("div", "mkg-legend-key");
  const swatch = el("span", "mkg-swatch");
  swatch.style.backgroundColor = color;
  line.append(swatch, el("span", "", text));
  return line;
}
