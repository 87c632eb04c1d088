// What is on the canvas as plain data, for the exporters.

import type { Scene as PlainScene } from "../export/scene";
import type { Placed } from "./routes";

export function plainScene({ scene, boxes }: Placed, color: (node: number) => string | null): PlainScene {
  const nodes = scene.nodes.map((node, place) => {
    const [x, y, width, height] = boxes[place];
    const parts = [node.subtitle, node.detail, node.badge].filter(text => text !== "");
    return {
      id: node.id,
      label: node.title,
      sublabel: parts.join(" · "),
      x: x + width / 2,
      y: y + height / 2,
      width,
      height,
      color: node.index < 0 ? null : color(node.index),
      kind: node.kind
    };
  });
  const edges = scene.edges.map(({ source, target, kind, label }) => {
    return { source: scene.nodes[source].id, target: scene.nodes[target].id, kind, label };
  });
  return { nodes, edges };
}
