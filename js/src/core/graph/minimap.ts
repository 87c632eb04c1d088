// The whole picture in small, with the part in view; press or drag to move it.

import type { Core } from "cytoscape";
import type { Theme } from "./style";
import type { Box } from "./layout";

const SIZE = { width: 132, height: 88, margin: 5 };
const GAP = 10; // to the edges of the canvas, as graph.css has it
/** The corner of the canvas that the minimap takes. */
export const COVERED = { width: SIZE.width + 2 * GAP, height: SIZE.height + 2 * GAP };

export interface MinimapItem {
  box: Box;
  fill: string;
  frame: boolean;
}

export class Minimap {
  private readonly canvas = document.createElement("canvas");
  private readonly context: CanvasRenderingContext2D | null;
  private readonly controller = new AbortController();
  private items: readonly MinimapItem[] = [];
  private bounds: Box = [0, 0, 1, 1];
  private theme?: Theme;
  private frame = 0;

  constructor(
    private readonly host: HTMLElement,
    private readonly cy: Core
  ) {
    host.classList.add("mkg-minimap");
    host.setAttribute("aria-hidden", "true"); // the tree is its accessible twin
    const ratio = globalThis.devicePixelRatio || 1;
    this.canvas.width = SIZE.width * ratio;
    this.canvas.height = SIZE.height * ratio;
    this.canvas.style.width = `${SIZE.width}px`;
    this.canvas.style.height = `${SIZE.height}px`;
    host.append(this.canvas);
    this.context = typeof CanvasRenderingContext2D === "undefined" ? null : this.canvas.getContext("2d");
    this.context?.scale(ratio, ratio);
    this.listen();
  }

  show(items: readonly MinimapItem[], bounds: Box, theme: Theme): void {
    this.items = items;
    this.bounds = bounds;
    this.theme = theme;
    this.schedule();
  }

  schedule(): void {
    if (this.frame === 0) {
      this.frame = requestAnimationFrame(() => {
        this.frame = 0;
        this.draw();
      });
    }
  }

  dispose(): void {
    cancelAnimationFrame(this.frame);
    this.controller.abort();
    this.host.replaceChildren();
  }

  private listen(): void {
    const { signal } = this.controller;
    this.canvas.addEventListener(
      "pointerdown",
      event => {
        this.canvas.setPointerCapture(event.pointerId);
        this.moveTo(event);
      },
      { signal }
    );
    this.canvas.addEventListener(
      "pointermove",
      event => {
        if (event.buttons & 1) {
          this.moveTo(event);
        }
      },
      { signal }
    );
  }

  private moveTo(event: PointerEvent): void {
    const { cy } = this;
    const [scale, left, top] = this.transform();
    const zoom = cy.zoom();
    const x = (event.offsetX - left) / scale;
    const y = (event.offsetY - top) / scale;
    cy.pan({ x: cy.width() / 2 - x * zoom, y: cy.height() / 2 - y * zoom });
  }

  /** Model to minimap: scale and origin. */
  private transform(): [number, number, number] {
    const [x, y, width, height] = this.bounds;
    const room = [SIZE.width - 2 * SIZE.margin, SIZE.height - 2 * SIZE.margin];
    const scale = Math.min(room[0] / width, room[1] / height);
    return [scale, (SIZE.width - width * scale) / 2 - x * scale, (SIZE.height - height * scale) / 2 - y * scale];
  }

  private draw(): void {
    const { context, theme, cy } = this;
    if (!context || !theme || cy.destroyed()) {
      return;
    }
    const [scale, left, top] = this.transform();
    context.clearRect(0, 0, SIZE.width, SIZE.height);
    for (const { box, fill, frame } of this.items) {
      const [x, y, width, height] = box.map(length => length * scale);
      context.fillStyle = fill;
      context.fillRect(left + x, top + y, Math.max(1, width), Math.max(1, height));
      if (frame) {
        context.strokeStyle = theme.border;
        context.lineWidth = 0.5;
        context.strokeRect(left + x, top + y, width, height);
      }
    }
    this.drawView(context, theme, scale, left, top);
  }

  private drawView(context: CanvasRenderingContext2D, theme: Theme, scale: number, left: number, top: number): void {
    const { cy } = this;
    const [zoom, pan] = [cy.zoom(), cy.pan()];
    const x = Math.max(1, left - (pan.x / zoom) * scale);
    const y = Math.max(1, top - (pan.y / zoom) * scale);
    const right = Math.min(SIZE.width - 1, left + ((cy.width() - pan.x) / zoom) * scale);
    const bottom = Math.min(SIZE.height - 1, top + ((cy.height() - pan.y) / zoom) * scale);
    const whole = this.isWhole();
    this.host.classList.toggle("mkg-is-whole", whole);
    if (right > x && bottom > y && !whole) {
      context.strokeStyle = theme.accent;
      context.lineWidth = 1.5;
      context.strokeRect(x, y, right - x, bottom - y);
    }
  }

  /** Everything is in view. */
  private isWhole(): boolean {
    const { x1, y1, x2, y2 } = this.cy.extent();
    const [x, y, width, height] = this.bounds;
    return x1 <= x && y1 <= y && x2 >= x + width && y2 >= y + height;
  }
}
