// What stays where it is on the screen when everything else gets another place.

import type { Camera } from "../shared/camera";
import type { Placed } from "./routes";
import type { Box } from "../shared/viewport";

/** The card nearest to the middle of the view, of those that are there still. */
export function centralCard(
  { scene, boxes }: Placed,
  camera: Camera,
  survives: (id: string) => boolean
): string | null {
  let best: { id: string | null; distance: number } = { id: null, distance: Infinity };
  scene.nodes.forEach(({ id, kind }, place) => {
    const distance = camera.distanceTo(boxes[place]);
    if (kind !== "group" && distance < best.distance && survives(id)) best = { id, distance };
  });
  return best.id;
}

export function boxIn({ scene, boxes }: Placed, id: string): Box | undefined {
  return boxes[scene.nodes.findIndex(node => node.id === id)];
}

/** The one path that was opened or closed, if it is one. */
export function toggledPath(before: readonly string[], now: readonly string[]): string | undefined {
  const toggled = [...difference(before, now), ...difference(now, before)];
  return toggled.length === 1 ? toggled[0] : undefined;
}

function difference(these: readonly string[], those: readonly string[]): string[] {
  const known = new Set(those);
  return these.filter(path => !known.has(path));
}
