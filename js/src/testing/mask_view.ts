// The mask editor on a page of jsdom, and what hands do there.

import { createMaskEditor, type MaskEditor } from "../core/masks/editor";
import type { Session } from "../core/masks/session/session";
import { type EditorState, EditorStore } from "../core/masks/session/editor_context";
import { type AxisSample, openSession, THREE } from "./masks";

// jsdom has none
class FakePointerEvent extends MouseEvent {
  readonly pointerId = 1;
}

let mounted: MaskEditor | undefined;

export function mount(
  axes: readonly AxisSample[] = THREE,
  state: Partial<EditorState> = {},
  more = {},
  prepare: (session: Session) => void = () => {}
) {
  const host = document.createElement("div");
  document.body.append(host);
  const { channel, session } = openSession(axes, more);
  prepare(session);
  const store = new EditorStore({ importance: "l1", ...state });
  mounted = createMaskEditor(host, session, store);
  const find = <T extends HTMLElement = HTMLElement>(selector: string) => host.querySelector<T>(selector) as T;
  const row = (axis: number) => find(`.mkg-mask-row[data-mkg-axis="${axis}"]`);
  const strip = (axis: number) => row(axis).querySelector(".mkg-mask-strip") as HTMLElement;
  return { host, session, channel, store, find, row, strip };
}

export function unmount(): void {
  mounted?.dispose();
  mounted = undefined;
  document.body.replaceChildren();
}

/** A pointer over an axis' cells of 16 px, all in one line. */
export function point(strip: HTMLElement, type: string, index: number, more: MouseEventInit = {}): void {
  const place = { clientX: 16 * index + 3 * Math.floor(index / 8) + 5, clientY: 5 };
  const canvas = strip.querySelector("canvas") as HTMLCanvasElement;
  canvas.dispatchEvent(new FakePointerEvent(type, { bubbles: true, button: 0, ...place, ...more }));
}

export function click(strip: HTMLElement, index: number, more: MouseEventInit = {}): void {
  point(strip, "pointerdown", index, more);
  point(strip, "pointerup", index, more);
}

/** What a screen reader hears of the cursor. */
export function spoken(strip: HTMLElement): string | null | undefined {
  return strip.querySelector("[role=option]")?.textContent;
}

export function slide(input: HTMLInputElement, value: number): void {
  input.value = String(value);
  input.dispatchEvent(new Event("input"));
}
