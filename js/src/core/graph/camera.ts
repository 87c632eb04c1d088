// Moves cytoscape's camera: first looks, what stays in place, what has to come into view.

import type { Core } from "cytoscape";
import type { Box } from "./layout";
import { COVERED } from "./minimap";
import { boundsOf, type Placed } from "./routes";
import { anchored, type Camera, clearOf, fitsLegibly, fitted, opening, OVERVIEW, settled } from "../shared/viewport";

export class GraphCamera {
  private touched = false; // the user has moved it

  /** `overview`: the first look shows the whole even where its text is small. */
  constructor(
    private readonly cy: Core,
    private readonly overview: boolean
  ) {
    cy.on("scrollzoom pinchzoom dragpan", () => (this.touched = true));
  }

  get isTouched(): boolean {
    return this.touched;
  }

  fit(boxes: readonly Box[]): void {
    this.moveTo(fitted(boundsOf(boxes), this.cy.width(), this.cy.height()));
  }

  /** The first look: everything if it stays legible, else the beginning. */
  open(boxes: readonly Box[]): void {
    this.touched = false;
    const legible = this.overview ? OVERVIEW : undefined;
    this.moveTo(opening(boundsOf(boxes), this.cy.width(), this.cy.height(), legible));
  }

  /** After a new layout the card `id` stays where it was, unless all of the picture can be seen instead. */
  keep(id: string, before: Placed, after: Placed): void {
    const [from, to] = [before, after].map(({ scene, boxes }) => boxes[scene.nodes.findIndex(node => node.id === id)]);
    const camera = from && to ? anchored(this.now(), from, to, this.extent()) : this.now();
    const bounds = boundsOf(after.boxes);
    if (!this.touched && fitsLegibly(bounds, this.extent())) {
      this.fit(after.boxes);
    } else {
      this.moveTo(settled(camera, bounds, this.extent()));
    }
  }

  /** Moves as little as brings the box into view, beside the minimap. */
  show(box: Box): void {
    const camera = anchored(this.now(), box, box, this.extent());
    this.moveTo(clearOf(camera, box, this.extent(), COVERED));
  }

  /** The card nearest to the middle of the view, of those that `survives` tells to be there still. */
  centralCard({ scene, boxes }: Placed, survives: (id: string) => boolean): string | null {
    const { x, y, zoom } = this.now();
    const { width, height } = this.extent();
    const middle = [(width / 2 - x) / zoom, (height / 2 - y) / zoom];
    let best: { id: string | null; distance: number } = { id: null, distance: Infinity };
    scene.nodes.forEach(({ id, kind }, place) => {
      const [left, top, w, h] = boxes[place];
      const distance = Math.hypot(left + w / 2 - middle[0], top + h / 2 - middle[1]);
      if (kind !== "group" && distance < best.distance && survives(id)) {
        best = { id, distance };
      }
    });
    return best.id;
  }

  private now(): Camera {
    return { ...this.cy.pan(), zoom: this.cy.zoom() };
  }

  private extent(): { width: number; height: number } {
    return { width: this.cy.width(), height: this.cy.height() };
  }

  private moveTo({ x, y, zoom }: Camera): void {
    this.cy.viewport({ zoom, pan: { x, y } });
  }
}
