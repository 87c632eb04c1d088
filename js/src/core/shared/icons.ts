// Line icons of the buttons, 16 by 16, in the color of the text beside them.

import { svg } from "./dom";

const PATHS = {
  "expand-all": "M4 6l4-4 4 4M4 10l4 4 4-4",
  "collapse-all": "M4 2l4 4 4-4M4 14l4-4 4 4",
  fit: "M1.5 3h13v10h-13zM3.8 8h8.4M6 5.8L3.8 8L6 10.2M10 5.8L12.2 8L10 10.2", // all between the window's edges
  "zoom-selection": "M7 2.5a4.5 4.5 0 1 0 0 9a4.5 4.5 0 1 0 0-9M10.5 10.5L14 14M5.3 5.3h3.4v3.4h-3.4z",
  "full-screen": "M2 6V2h4M10 2h4v4M14 10v4h-4M6 14H2v-4",
  "leave-full-screen": "M6 2v4H2M14 6h-4V2M10 14v-4h4M2 10h4v4",
  "open-tab": "M6.5 3H2.5v10.5H13V9.5M9.5 2.5h4v4M13.5 2.5L7.5 8.5",
  copy: "M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3",
  close: "M4 4l8 8M12 4l-8 8",
  download: "M8 2v8M4.5 7L8 10.5 11.5 7M2.5 13.5h11",
  refresh: "M13.5 8a5.5 5.5 0 1 1-1.6-3.9M13.5 1.5v3h-3",
  search: "M7 2.5a4.5 4.5 0 1 0 0 9a4.5 4.5 0 1 0 0-9M10.5 10.5L14 14"
} as const;

export type IconName = keyof typeof PATHS;

export function icon(name: IconName): SVGSVGElement {
  const picture = svg("svg", { viewBox: "0 0 16 16", width: 14, height: 14, class: "mkg-icon", "aria-hidden": "true" });
  const line = {
    fill: "none",
    stroke: "currentColor",
    "stroke-width": 1.5,
    "stroke-linecap": "round",
    "stroke-linejoin": "round"
  };
  picture.append(svg("path", { d: PATHS[name], ...line }));
  return picture;
}
