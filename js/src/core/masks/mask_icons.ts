// Line icons of the editor's buttons, 16 by 16, in the color of the text beside them.

import { svg } from "../shared/dom";

const PATHS = {
  lock: "M4 7.5h8v6H4zM5.5 7.5V5a2.5 2.5 0 0 1 5 0v2.5",
  undo: "M6 3L3 6l3 3M3 6h6.5a3.5 3.5 0 0 1 0 7H6",
  redo: "M10 3l3 3-3 3M13 6H6.5a3.5 3.5 0 0 0 0 7H10"
} as const;

export function maskIcon(name: keyof typeof PATHS): SVGSVGElement {
  const picture = svg("svg", { viewBox: "0 0 16 16", width: 14, height: 14, class: "mkg-icon", "aria-hidden": "true" });
  const line = { fill: "none", stroke: "currentColor", "stroke-width": 1.5, "stroke-linecap": "round" };
  picture.append(svg("path", { d: PATHS[name], "stroke-linejoin": "round", ...line }));
  return picture;
}
