// Camera moves that the user asks for: into a card and out again, and the card that stays in place meanwhile.

import type { Hierarchy } from "../../shared/model/hierarchy";
import type { Stage } from "../../shared/stage/stage";
import type { GraphStore } from "../../shared/model/graph_store";
import type { Box } from "../../shared/stage/viewport";
import type { CardStyle } from "../paint/card_style";
import type { PaintItem } from "../paint/paint_items";
import type { Camera } from "../../shared/stage/camera";
import type { PlacedScene } from "../scene/scene_types";

// What stays where it is on the screen when everything else gets another place.

/** The card nearest to the middle of the view, of those that are there still. */
export function centralCard(
  { scene, boxes }: PlacedScene,
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

export function boxOf({ scene, boxes }: PlacedScene, id: string): Box | undefined {
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

const CLOSER = 0.98; // a look that is hardly wider is no step out

export class Navigator {
  private sought: { readonly id: string; readonly index: number } | null = null; // opened, and to be looked into

  constructor(
    private readonly stage: Stage,
    private readonly decor: CardStyle,
    private readonly h: Hierarchy,
    private readonly store: GraphStore,
    private readonly bounds: () => Box // of all that is drawn, lines included
  ) {}

  /** Zooms to what is drawn; what is closed is opened first. */
  enter(item: PaintItem, open: (item: PaintItem) => void): void {
    const { id, index, kind, steps } = item.node;
    if (kind === "group" || !item.container || (index < 0 && !steps)) {
      this.approach(item.box);
      return;
    }
    this.sought = { id, index };
    open(item);
    const isRefused = index >= 0 && !this.store.get("expanded").includes(this.h.path(index));
    if (isRefused) this.sought = null; // too much to be shown
  }

  /** What was opened has its place now. */
  arrived(): void {
    const { sought, decor } = this;
    if (!sought) return;
    const own = decor.itemOf(sought.id);
    const isIt = (item?: PaintItem) => item?.node.kind === "group" && item.node.index === sought.index;
    const opened = isIt(own) ? own : decor.items().find(isIt);
    this.sought = null;
    if (opened) this.approach(opened.box);
  }

  /** False where nothing is selected. */
  toSelection(): boolean {
    const item = this.decor.itemOf(this.decor.idOfSelected() ?? "");
    if (item) this.approach(item.box);
    return item !== undefined;
  }

  toAll(): void {
    const { camera, flight } = this.stage;
    flight.to(camera.lookAround(this.bounds()));
  }

  /** Where all was in view, it still is in a canvas that may have another size now. */
  keepAll(fit: () => void): void {
    const { stage } = this;
    const wasAll = this.isAll(stage.camera.view);
    stage.measure();
    if (wasAll && !this.isAll(stage.camera.view)) fit();
  }

  /** The container around what is in view, up to all of it; from there what the canvas shows the inside of. */
  out(): void {
    const { camera, flight } = this.stage;
    const { width, height } = camera.extent;
    const [x, y] = camera.at(width / 2, height / 2);
    const isAround = ([left, top, across, down]: Box) => x >= left && x <= left + across && y >= top && y <= top + down;
    const frames = this.decor.items().filter(({ node, box }) => node.kind === "group" && isAround(box));
    const boxes = [...frames.map(({ box }) => box).sort((a, b) => a[2] * a[3] - b[2] * b[3]), this.bounds()];
    const { zoom } = camera.pose;
    const wider = boxes.map(box => camera.lookAround(box)).find(look => look.zoom < CLOSER * zoom);
    const focus = this.store.get("focus");
    if (wider) flight.to(wider);
    else if (!this.isAll(camera.view)) this.toAll();
    else if (focus !== 0) this.store.set("focus", this.h.parent(focus));
  }

  /** Whether nothing that is drawn lies outside. */
  isAll([left, top, across, down]: Box): boolean {
    const [x, y, width, height] = this.bounds();
    return left <= x && top <= y && left + across >= x + width && top + down >= y + height;
  }

  private approach(box: Box): void {
    const { camera, flight } = this.stage;
    flight.to(camera.lookInto(box));
  }
}
