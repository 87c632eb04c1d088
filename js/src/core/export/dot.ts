// The picture as a Graphviz graph; containers become clusters.

import { PALETTE } from "../../generated/palette";
import { textColorOn } from "../shared/stage/color";
import { hoverText, printable, Scene, SceneNode } from "./scene";

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

const { page } = PALETTE;

interface Box {
  readonly node: SceneNode;
  readonly name: string;
  parent: Box | undefined;
}

export function sceneToDot(scene: Scene, title: string): string {
  const boxes = nested(scene.nodes);
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
  for (const edge of scene.edges) {
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
function nested(nodes: readonly SceneNode[]): Box[] {
  const boxes: Box[] = nodes.map((node, index) => ({ node, name: `n${index}`, parent: undefined }));
  const groups = boxes
    .filter(box => box.node.kind === "group")
    .sort((a, b) => a.node.width * a.node.height - b.node.width * b.node.height);
  for (const box of boxes) box.parent = groups.find(group => group !== box && surrounds(group.node, box.node));
  return boxes;
}

function surrounds(group: SceneNode, node: SceneNode): boolean {
  return (
    group.width * group.height > node.width * node.height &&
    Math.abs(node.x - group.x) * 2 <= group.width &&
    Math.abs(node.y - group.y) * 2 <= group.height
  );
}
