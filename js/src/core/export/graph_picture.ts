// The picture of a graph as plain data, written as SVG or as a Graphviz graph. Every text is escaped, nothing is fetched.

import { PALETTE } from "../../generated/palette";
import { textColorOn } from "../shared/stage/color";

export interface PictureNode {
  readonly id: string;
  readonly label: string;
  readonly sublabel: string;
  readonly x: number; // centre
  readonly y: number;
  readonly width: number;
  readonly height: number;
  readonly color: string | null;
  readonly kind: "module" | "group" | "fold" | "pseudo" | "operator";
}

interface PictureEdge {
  readonly source: string;
  readonly target: string;
  readonly kind: "order" | "data";
  readonly label: string;
}

export interface GraphPicture {
  readonly nodes: readonly PictureNode[];
  readonly edges: readonly PictureEdge[];
}

/** What a node is called in full: its path, or its label where it is no module (such ids begin with U+0000). */
function hoverText(node: PictureNode): string {
  return node.id.startsWith("\u0000") ? node.label : node.id;
}

/** Control characters, lone surrogates and non-characters, which no XML can carry, become U+FFFD. */
export function printable(text: string, keepNewlines = false): string {
  const forbidden = /(?![\t\n\r])\p{Cc}|\p{Cs}|[\ufffe\uffff]/gu;
  const clean = text.replace(forbidden, "\ufffd");
  return keepNewlines ? clean : clean.replace(/[\t\n\r]/g, "\ufffd");
}

/** A file name that every system takes, from a title. */
export function fileName(title: string, extension: string): string {
  const stem = title
    .normalize("NFKD")
    .replace(/[^\w.-]+/g, "_")
    .replace(/^[._-]+|[._-]+$/g, "")
    .slice(0, 80);
  return `${stem || "model"}.${extension}`;
}

// The picture as SVG, by a writer of our own.

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

export function pictureToSvg(picture: GraphPicture, title: string): string {
  const box = bounds(picture.nodes);
  const places = new Map(picture.nodes.map(node => [node.id, node]));
  const groups = picture.nodes.filter(node => node.kind === "group").sort((a, b) => area(b) - area(a));
  const cards = picture.nodes.filter(node => node.kind !== "group");
  const edges = picture.edges.map(edge => drawEdge(edge, places));
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

function bounds(nodes: readonly PictureNode[]): { x: number; y: number; width: number; height: number } {
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

function area(node: PictureNode): number {
  return node.width * node.height;
}

function drawGroup(node: PictureNode): string {
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

function groupLabel(x: number, y: number, { label, sublabel }: PictureNode): string {
  const after = sublabel ? `<tspan dx="8" font-size="10" fill="${page.muted}">${xml(sublabel)}</tspan>` : "";
  return (
    `<text x="${round(x)}" y="${round(y)}" font-size="12" fill="${page.text}" xml:space="preserve">` +
    `<tspan font-weight="600">${xml(label)}</tspan>${after}</text>`
  );
}

function drawCard(node: PictureNode): string {
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
function wrapped({ sublabel, width, height }: PictureNode): string[] {
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

function drawEdge(edge: PictureEdge, places: ReadonlyMap<string, PictureNode>): string {
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
function route(source: PictureNode, target: PictureNode): string {
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

function side(node: PictureNode, upright: boolean, direction: number): [number, number] {
  const sign = direction >= 0 ? 0.5 : -0.5;
  return upright ? [node.x, node.y + sign * node.height] : [node.x + sign * node.width, node.y];
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}

// The same as a Graphviz graph; containers become clusters.

/**
 * A quoted Graphviz string that shows exactly the text: Graphviz reads backslash escapes and
 * even HTML entities inside its labels.
 */
export function quoted(text: string): string {
  const escaped = printable(text, true)
    .replace(/&/g, "&amp;")
    .replace(/\\/g, "\\\\")
    .replace(/"/g, '\\"')
    .replace(/\r\n?|\n/g, "\\n");
  return `"${escaped}"`;
}

interface Box {
  readonly node: PictureNode;
  readonly name: string;
  parent: Box | undefined;
}

export function pictureToDot(picture: GraphPicture, title: string): string {
  const boxes = nested(picture.nodes);
  const byId = new Map(boxes.map(box => [box.node.id, box]));
  const inside = new Map<Box | undefined, Box[]>();
  for (const box of boxes) inside.set(box.parent, [...(inside.get(box.parent) ?? []), box]);
  const lines = [
    `digraph ${quoted(title)} {`,
    "  compound=true; rankdir=TB;",
    `  node [shape=box, style="rounded,filled", fillcolor="${page.surface}", color="${page.line}", fontname="sans-serif", fontsize=11];`,
    `  edge [color="${page.line}"];`,
    ...body(inside)
  ];
  for (const edge of picture.edges) {
    const source = byId.get(edge.source);
    const target = byId.get(edge.target);
    if (source && target)
      lines.push(`  ${source.name} -> ${target.name}${edgeAttributes(source, target, edge.kind, edge.label)};`);
  }
  return [...lines, "}", ""].join("\n");
}

/** Cards and clusters; a waiting string is the end of a cluster, so that deep nesting needs no recursion. */
function body(inside: ReadonlyMap<Box | undefined, readonly Box[]>): string[] {
  const lines: string[] = [];
  const waiting: (Box | string)[] = [...(inside.get(undefined) ?? [])].reverse();
  for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
    if (typeof next === "string") lines.push(next);
    else if (next.node.kind !== "group") lines.push(card(next));
    else {
      lines.push(
        `  subgraph "cluster_${next.name}" {`,
        `  label=${quoted([next.node.label, next.node.sublabel].filter(Boolean).join(" · "))}; style=rounded; color="${page.border}"; fontname="sans-serif"; fontsize=11;`,
        `  ${next.name} [shape=point, style=invis];` // edges of a cluster need a node to hold on to
      );
      waiting.push("  }", ...[...(inside.get(next) ?? [])].reverse());
    }
  }
  return lines;
}

function card({ node, name }: Box): string {
  const label = quoted(node.sublabel ? `${node.label}\n${node.sublabel}` : node.label);
  const fill = node.color ? `, fillcolor=${quoted(node.color)}, fontcolor=${quoted(textColorOn(node.color))}` : "";
  const double = node.kind === "fold" ? ", peripheries=2" : "";
  return `  ${name} [label=${label}, tooltip=${quoted(hoverText(node))}${fill}${double}];`;
}

function edgeAttributes(source: Box, target: Box, kind: "order" | "data", label: string): string {
  const attributes: string[] = [];
  if (source.node.kind === "group") attributes.push(`ltail="cluster_${source.name}"`);
  if (target.node.kind === "group") attributes.push(`lhead="cluster_${target.name}"`);
  if (kind === "order") attributes.push("style=dashed");
  if (label) attributes.push(`label=${quoted(label)}`);
  return attributes.length ? ` [${attributes.join(", ")}]` : "";
}

/** Every node with the smallest group around it; groups are found by where they lie. */
function nested(nodes: readonly PictureNode[]): Box[] {
  const boxes: Box[] = nodes.map((node, index) => ({ node, name: `n${index}`, parent: undefined }));
  const groups = boxes.filter(box => box.node.kind === "group").sort((a, b) => area(a.node) - area(b.node));
  for (const box of boxes) box.parent = groups.find(group => group !== box && surrounds(group.node, box.node));
  return boxes;
}

function surrounds(group: PictureNode, node: PictureNode): boolean {
  return (
    area(group) > area(node) &&
    Math.abs(node.x - group.x) * 2 <= group.width &&
    Math.abs(node.y - group.y) * 2 <= group.height
  );
}
