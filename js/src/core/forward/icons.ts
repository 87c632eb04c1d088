// The icons of the player's buttons, 16 by 16, in the color of the text beside them.

import { svg } from "../shared/dom";

const PATHS = {
  first: "M3.5 3v10M13 3L6 8l7 5z",
  back: "M11.5 3l-7 5 7 5z",
  play: "M4.5 2.5l8 5.5-8 5.5z",
  pause: "M5 3v10M11 3v10",
  next: "M4.5 3l7 5-7 5z",
  last: "M12.5 3v10M3 3l7 5-7 5z"
} as const;

export type PlayerIcon = keyof typeof PATHS;

export function playerIcon(name: PlayerIcon): SVGElement {
  const picture = svg("svg", { viewBox: "0 0 16 16", width: 14, height: 14, class: "mkg-icon", "aria-hidden": "true" });
  const filled = name === "play";
  const width = name === "pause" ? 3 : 1.5;
  picture.append(
    svg("path", {
      d: PATHS[name],
      fill: filled ? "currentColor" : "none",
      stroke: "currentColor",
      "stroke-width": width,
      "stroke-linejoin": "round",
      "stroke-linecap": "round"
    })
  );
  return picture;
}
