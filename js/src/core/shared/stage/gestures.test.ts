import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Gestures } from "./stage";

let host: HTMLElement;
let gestures: Gestures;
let done: string[];
const held = new Set<number>(); // pointers

function pointer(
  type: string,
  x: number,
  y: number,
  init: { id?: number; button?: number; buttons?: number; touch?: boolean } = {}
): void {
  const { id = 1, button = 0, touch = false } = init;
  if (type === "down") held.add(id);
  else if (type !== "move") held.delete(id);
  const { buttons = held.has(id) ? 1 : 0 } = init;
  const event = new MouseEvent(`pointer${type}`, { clientX: x, clientY: y, button, buttons });
  const values = { pointerId: id, pointerType: touch ? "touch" : "mouse" };
  for (const [name, value] of Object.entries(values)) Object.defineProperty(event, name, { value });
  host.dispatchEvent(event);
}

function click(x: number, y: number): void {
  pointer("down", x, y);
  pointer("up", x, y);
}

function wheel(init: WheelEventInit): number {
  host.dispatchEvent(new WheelEvent("wheel", { cancelable: true, ...init }));
  return Number(done.pop()?.split(" ")[1] ?? Number.NaN);
}

beforeEach(() => {
  host = document.createElement("div");
  done = [];
  held.clear();
  const note =
    (name: string) =>
    (...at: number[]) =>
      void done.push([name, ...at].join(" "));
  gestures = new Gestures(host, {
    press: () => {},
    tap: note("tap"),
    doubleTap: note("double"),
    point: note("point"),
    leave: note("leave"),
    pan: note("pan"),
    zoom: note("zoom")
  });
});

afterEach(() => gestures.dispose());

describe("Gestures", () => {
  it("tells clicks, and of two the system's double click, but not after a drag", () => {
    const double = () => host.dispatchEvent(new MouseEvent("dblclick", { clientX: 5, clientY: 6 }));
    click(5, 6);
    click(5, 6);
    double();
    expect(done).toEqual(["tap 5 6", "tap 5 6", "double 5 6"]);
    pointer("down", 0, 0);
    pointer("move", 50, 0);
    pointer("up", 50, 0);
    double();
    expect(done.slice(3)).toEqual(["pan 50 0"]);
  });

  it("clicks with the main button alone", () => {
    pointer("down", 1, 1, { button: 2 });
    pointer("up", 1, 1, { button: 2 });
    expect(done).toEqual([]);
  });

  it("drags once the pointer has left its place, without a click", () => {
    pointer("down", 10, 10);
    pointer("move", 12, 10);
    expect(done).toEqual([]);
    pointer("move", 20, 10);
    pointer("move", 25, 13);
    pointer("up", 25, 13);
    expect(done).toEqual(["pan 10 0", "pan 5 3"]);
  });

  it("points while nothing is pressed", () => {
    pointer("move", 3, 4);
    pointer("leave", 0, 0);
    expect(done).toEqual(["point 3 4", "leave"]);
  });

  it("zooms and pans with two fingers, and does not click after it", () => {
    pointer("down", 0, 0, { id: 1, touch: true });
    pointer("down", 100, 0, { id: 2, touch: true });
    pointer("move", 200, 0, { id: 2, touch: true });
    expect(done).toEqual(["pan 50 0", "zoom 2 100 0"]);
    pointer("up", 200, 0, { id: 2, touch: true });
    pointer("move", 10, 0, { id: 1, touch: true });
    pointer("up", 10, 0, { id: 1, touch: true });
    expect(done.slice(2)).toEqual(["pan 10 0"]);
  });

  it("forgets a pointer that the system takes away", () => {
    pointer("down", 0, 0);
    pointer("cancel", 0, 0);
    pointer("move", 30, 0);
    expect(done).toEqual(["point 30 0"]);
  });

  it("holds a pointer from the first, and lets go of one whose release nobody heard of", () => {
    const captured: number[] = [];
    host.setPointerCapture = id => void captured.push(id);
    pointer("down", 1, 1);
    expect(captured).toEqual([1]);
    pointer("move", 40, 1, { buttons: 0 });
    pointer("move", 60, 1, { buttons: 0 });
    expect(done).toEqual(["point 40 1", "point 60 1"]);
  });

  it("knows its places where the page is shown in another size", () => {
    vi.spyOn(host, "offsetWidth", "get").mockReturnValue(200);
    vi.spyOn(host, "getBoundingClientRect").mockReturnValue({ left: 10, top: 20, width: 100 } as DOMRect);
    click(60, 70);
    expect(done).toEqual(["tap 100 100"]);
  });

  it("zooms with the wheel: by pixels on a touchpad, by clicks with a mouse", () => {
    expect(wheel({ deltaY: -25 })).toBeCloseTo(10 ** 0.1);
    expect(wheel({ deltaY: 120 })).toBeCloseTo(10 ** -0.012);
    expect(wheel({ deltaY: -240 })).toBeCloseTo(10 ** 0.024);
    expect(wheel({ deltaY: 3, deltaMode: 1 })).toBeCloseTo(10 ** -0.012);
    expect(wheel({ deltaY: 0 })).toBeNaN();
  });

  it("leaves nothing behind", () => {
    gestures.dispose();
    click(1, 1);
    expect(wheel({ deltaY: 10 })).toBeNaN();
    expect(done).toEqual([]);
  });
});
