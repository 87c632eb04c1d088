// Moves cytoscape's camera: first looks, what stays in place, what has to come into view.

import type { Core } from "cytoscape";
import type { Box } from "./layout";
import { boundsOf, type Placed } from "./routes";
import { anchored, type Camera, fitted, opening } from "./viewport";

export class GraphCamera {
  private touched = false; // the user has moved it

  constructor(private readonly cy: Core) {
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
    this.moveTo(opening(boundsOf(boxes), this.cy.width(), this.cy.height()));
  }

  /** After a new layout the card `id` stays where it was. */
  keep(id: string, before: Placed, after: Placed): void {
    const [from, to] = [before, after].map(({ scene, boxes }) => boxes[scene.nodes.findIndex(node => node.id === id)]);
    if (from && to) {
      this.moveTo(anchored(this.now(), from, to, this.extent()));
    }
  }

  /** Moves as little as brings the box into view. */
  show(box: Box): void {
    this.moveTo(anchored(this.now(), box, box, this.extent()));
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
