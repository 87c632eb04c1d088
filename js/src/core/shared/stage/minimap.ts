// The minimap: the whole picture in small, with the part in view, which a press or a drag moves.

import type { Camera } from "./camera";
import { contextOf, pixelRatio } from "../base/canvas";
import type { Theme } from "./theme";
import type { Box } from "./viewport";

const HEIGHT = 104;
const MARGIN = 6;

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
  private width = 1; // as wide as its place

  constructor(
    private readonly host: HTMLElement,
    private readonly camera: Camera
  ) {
    host.classList.add("mkg-minimap");
    host.setAttribute("aria-hidden", "true"); // the tree is its accessible twin
    host.hidden = true;
    this.canvas.style.height = `${HEIGHT}px`;
    host.append(this.canvas);
    this.context = contextOf(this.canvas);
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
    this.host.hidden = true;
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
    const [scale, left, top] = this.transform();
    this.camera.centre([(event.offsetX - left) / scale, (event.offsetY - top) / scale]);
  }

  /** Model to minimap: scale and origin. */
  private transform(): [number, number, number] {
    const [x, y, width, height] = this.bounds;
    const scale = Math.min((this.width - 2 * MARGIN) / width, (HEIGHT - 2 * MARGIN) / height);
    return [scale, (this.width - width * scale) / 2 - x * scale, (HEIGHT - height * scale) / 2 - y * scale];
  }

  private resize(): void {
    const [width, ratio] = [this.host.clientWidth, pixelRatio()];
    const pixels = [Math.round(width * ratio), Math.round(HEIGHT * ratio)];
    if (this.canvas.width === pixels[0] && this.canvas.height === pixels[1]) return;
    this.width = width;
    [this.canvas.width, this.canvas.height] = pixels;
    this.context?.setTransform(ratio, 0, 0, ratio, 0, 0);
  }

  private draw(): void {
    const { context, theme } = this;
    if (!context || !theme) {
      return;
    }
    this.host.hidden = this.isWhole();
    if (this.host.clientWidth === 0) return; // nothing out of view, or no room for it
    this.resize();
    const [scale, left, top] = this.transform();
    context.clearRect(0, 0, this.width, HEIGHT);
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
    const [vx, vy, width, height] = this.camera.view;
    const x = Math.max(1, left + vx * scale);
    const y = Math.max(1, top + vy * scale);
    const right = Math.min(this.width - 1, left + (vx + width) * scale);
    const bottom = Math.min(HEIGHT - 1, top + (vy + height) * scale);
    if (right > x && bottom > y) {
      context.strokeStyle = theme.accent;
      context.lineWidth = 1.5;
      context.strokeRect(x, y, right - x, bottom - y);
    }
  }

  /** Everything is in view. */
  private isWhole(): boolean {
    const [left, top, across, down] = this.camera.view;
    const [x, y, width, height] = this.bounds;
    return left <= x && top <= y && left + across >= x + width && top + down >= y + height;
  }
}
