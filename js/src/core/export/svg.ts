// The picture as SVG: our own writer, every text escaped, nothing fetched from anywhere.

import { PALETTE } from "../../generated/palette";
import { textColorOn } from "../shared/stage/color";
import { hoverText, printable, Scene, SceneEdge, SceneNode } from "./scene";

const MARGIN = 24;
const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";
const LETTER = 5.4; // width of a letter of the small text, roughly
const LINE = 14;
const SEPARATOR = " · ";
const { page } = PALETTE;

const ENTITIES = new Map([
  ["&", "&amp;"],
  ["<", "&lt;"],
  [">", "&gt;"],
  ['"', "&quot;"],
  ["'", "&#39;"]
]);

/** Text for an element or an attribute of an XML document. */
export function xml(text: string): string {
  return printable(text).replace(/[&<>"']/g, character => ENTITIES.get(character) ?? "");
}

export function sceneToSvg(scene: Scene, title: string): string {
  const box = bounds(scene.nodes);
  const places = new Map(scene.nodes.map(node => [node.id, node]));
  const groups = scene.nodes.filter(node => node.kind === "group").sort((a, b) => area(b) - area(a));
  const cards = scene.nodes.filter(node => node.kind !== "group");
  const edges = scene.edges.map(edge => drawEdge(edge, places));
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${box.width}" height="${box.height}" ` +
      `viewBox="${box.x} ${box.y} ${box.width} ${box.height}" font-family="${FONT}" role="img">`,
    `<title>${xml(title)}</title>`,
    '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse">' +
      `<path d="M0 0.5 L8 4 L0 7.5 z" fill="${page.line}"/></marker></defs>`,
    `<rect x="${box.x}" y="${box.y}" width="${box.width}" height="${box.height}" fill="${page.surface}"/>`,
    ...groups.map(drawGroup),
    ...edges,
    ...cards.map(drawCard),
    "</svg>",
    ""
  ].join("\n");
}

function bounds(nodes: readonly SceneNode[]): { x: number; y: number; width: number; height: number } {
  let [left, top, right, bottom] = nodes.length ? [Infinity, Infinity, -Infinity, -Infinity] : [0, 0, 0, 0];
  for (const node of nodes) {
    left = Math.min(left, node.x - node.width / 2);
    top = Math.min(top, node.y - node.height / 2);
    right = Math.max(right, node.x + node.width / 2);
    bottom = Math.max(bottom, node.y + node.height / 2);
  }
  return {
    x: Math.floor(left - MARGIN),
    y: Math.floor(top - MARGIN),
    width: Math.ceil(right - left) + 2 * MARGIN,
    height: Math.ceil(bottom - top) + 2 * MARGIN
  };
}

function area(node: SceneNode): number {
  return node.width * node.height;
}

function drawGroup(node: SceneNode): string {
  const x = round(node.x - node.width / 2);
  const y = round(node.y - node.height / 2);
  return (
    `<g><title>${xml(hoverText(node))}</title>` +
    `<rect x="${x}" y="${y}" width="${round(node.width)}" height="${round(node.height)}" rx="8" ` +
    `fill="${page.frame}" stroke="${node.color ?? page.border}"/>` +
    clipped(x, y, node.width, 24, [groupLabel(x + 10, y + 16, node)]) +
    "</g>"
  );
}

function groupLabel(x: number, y: number, { label, sublabel }: SceneNode): string {
  const after = sublabel ? `<tspan dx="8" font-size="10" fill="${page.muted}">${xml(sublabel)}</tspan>` : "";
  return (
    `<text x="${round(x)}" y="${round(y)}" font-size="12" fill="${page.text}" xml:space="preserve">` +
    `<tspan font-weight="600">${xml(label)}</tspan>${after}</text>`
  );
}

function drawCard(node: SceneNode): string {
  const x = round(node.x - node.width / 2);
  const y = round(node.y - node.height / 2);
  const fill = node.color ?? page.surface;
  const ink = node.color ? textColorOn(node.color) : page.text;
  const radius = node.kind === "pseudo" ? round(node.height / 2) : 6;
  const below = wrapped(node);
  const first = node.y + 4 - (below.length * LINE) / 2;
  const pill = node.kind === "pseudo";
  const at = pill ? node.x : x + 10;
  const lines = [text(at, first, node.label, 12, ink, pill ? "middle" : "start", "600")];
  below.forEach((line, i) => lines.push(text(at, first + (i + 1) * LINE, line, 10, ink, pill ? "middle" : "start")));
  const shadow =
    node.kind === "fold"
      ? `<rect x="${round(x + 4)}" y="${round(y + 4)}" width="${round(node.width)}" height="${round(node.height)}" rx="6" fill="${fill}" stroke="${page.line}"/>`
      : "";
  return (
    `<g><title>${xml(hoverText(node))}</title>${shadow}` +
    `<rect x="${x}" y="${y}" width="${round(node.width)}" height="${round(node.height)}" rx="${radius}" fill="${fill}" stroke="${page.line}"/>` +
    clipped(x, y, node.width, node.height, lines) +
    "</g>"
  );
}

/** The second text of a card, cut between its parts where one line is too short for it. */
function wrapped({ sublabel, width, height }: SceneNode): string[] {
  const room = Math.max(1, Math.floor(height / LINE) - 2);
  const lines: string[] = [];
  for (const part of sublabel ? sublabel.split(SEPARATOR) : []) {
    const joined = lines.length ? lines[lines.length - 1] + SEPARATOR + part : part;
    if (lines.length && (joined.length * LETTER <= width - 20 || lines.length === room))
      lines[lines.length - 1] = joined;
    else lines.push(part);
  }
  return lines;
}

/** A nested svg clips its content without the ids that a clipPath needs. */
function clipped(x: number, y: number, width: number, height: number, lines: readonly string[]): string {
  const [w, h] = [round(width), round(height)];
  return `<svg x="${x}" y="${y}" width="${w}" height="${h}" viewBox="${x} ${y} ${w} ${h}">${lines.join("")}</svg>`;
}

function text(
  x: number,
  y: number,
  content: string,
  size: number,
  ink: string,
  anchor: "start" | "middle",
  weight = "400"
): string {
  return (
    `<text x="${round(x)}" y="${round(y)}" font-size="${size}" font-weight="${weight}" fill="${ink}" ` +
    `text-anchor="${anchor}" xml:space="preserve">${xml(content)}</text>`
  );
}

function drawEdge(edge: SceneEdge, places: ReadonlyMap<string, SceneNode>): string {
  const source = places.get(edge.source);
  const target = places.get(edge.target);
  if (!source || !target) return "";
  const dashed = edge.kind === "order" ? ' stroke-dasharray="5 4"' : "";
  const line = `<path d="${route(source, target)}" fill="none" stroke="${page.line}" stroke-width="1.3"${dashed} marker-end="url(#arrow)"/>`;
  if (!edge.label) return line;
  const [x, y] = [(source.x + target.x) / 2 + 4, (source.y + target.y) / 2];
  return line + text(x, y, edge.label, 9, page.muted, "start");
}

/** A smooth line between the sides of two boxes that face each other. */
function route(source: SceneNode, target: SceneNode): string {
  const [dx, dy] = [target.x - source.x, target.y - source.y];
  // rows are read from left to right, and from one row to the next
  const upright = Math.abs(dy) > (source.height + target.height) / 2;
  const [sx, sy] = side(source, upright, upright ? dy : dx);
  const [tx, ty] = side(target, upright, upright ? -dy : -dx);
  const bend = upright ? (ty - sy) / 2 : (tx - sx) / 2;
  const [c1, c2] = upright
    ? [
        [sx, sy + bend],
        [tx, ty - bend]
      ]
    : [
        [sx + bend, sy],
        [tx - bend, ty]
      ];
  return `M${round(sx)} ${round(sy)} C${round(c1[0])} ${round(c1[1])} ${round(c2[0])} ${round(c2[1])} ${round(tx)} ${round(ty)}`;
}

function side(node: SceneNode, upright: boolean, direction: number): [number, number] {
  const sign = direction >= 0 ? 0.5 : -0.5;
  return upright ? [node.x, node.y + sign * node.height] : [node.x + sign * node.width, node.y];
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}
