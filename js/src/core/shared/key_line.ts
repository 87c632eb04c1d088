// A line's key in a legend: its short stroke, and its name.

import { nameSpan, svg } from "./dom";

const WIDTH = 22;

export function keyLine(color: string, dash: readonly number[], isThick = false): SVGSVGElement {
  const picture = svg("svg", {
    viewBox: `0 0 ${WIDTH} 10`,
    width: WIDTH,
    height: 10,
    class: "mkg-metric-key",
    "aria-hidden": "true"
  });
  const stroke = { stroke: color, "stroke-width": isThick ? 3.5 : 2.5, "stroke-dasharray": dash.join(" ") || "none" };
  picture.append(svg("line", { x1: 0, y1: 5, x2: WIDTH, y2: 5, ...stroke }));
  return picture;
}

/** A name in two parts: where room is short, the first is cut and the end stays. */
export function nameParts({ label, suffix }: { readonly label: string; readonly suffix: string }): HTMLElement[] {
  const name = nameSpan("mkg-metric-name", label.slice(0, label.length - suffix.length));
  return suffix ? [name, nameSpan("mkg-metric-suffix", suffix)] : [name];
}
