import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { WheelGuard } from "./stage";

let root: HTMLElement;
let canvas: HTMLElement;
let guard: WheelGuard;
const heard = vi.fn();

/** Whether what lies on the canvas hears of the wheel. */
function wheel(init: WheelEventInit = {}): boolean {
  heard.mockClear();
  canvas.dispatchEvent(new WheelEvent("wheel", { deltaY: 40, bubbles: true, cancelable: true, ...init }));
  return heard.mock.calls.length > 0;
}

const hinted = () => root.querySelector(".mkg-wheel-hint.mkg-is-shown") !== null;

beforeEach(() => {
  vi.useFakeTimers();
  root = document.createElement("div");
  root.className = "mkg-widget";
  const wrap = document.createElement("div");
  canvas = document.createElement("div");
  canvas.tabIndex = 0;
  canvas.addEventListener("wheel", heard);
  wrap.append(canvas);
  root.append(wrap);
  document.body.append(root);
  guard = new WheelGuard(wrap);
});

afterEach(() => {
  guard.dispose();
  document.body.replaceChildren();
  document.body.className = "";
  vi.useRealTimers();
});

describe("WheelGuard", () => {
  it("leaves the wheel to the page, with a hint that goes again", () => {
    expect(wheel()).toBe(false);
    expect(hinted()).toBe(true);
    vi.advanceTimersByTime(2000);
    expect(hinted()).toBe(false);
  });

  it("zooms while the focus is in the widget", () => {
    canvas.focus();
    expect(wheel()).toBe(true);
    expect(hinted()).toBe(false);
    canvas.blur();
    expect(wheel()).toBe(false);
  });

  it("leaves the page to be scrolled on where the canvas comes under the pointer", () => {
    canvas.focus();
    document.dispatchEvent(new Event("scroll"));
    expect(wheel()).toBe(false);
    expect(hinted()).toBe(false);
    expect(wheel({ ctrlKey: true })).toBe(true);
    vi.advanceTimersByTime(300);
    expect(wheel()).toBe(true);
    document.body.append(document.createElement("p"));
    document.body.lastElementChild?.dispatchEvent(new Event("scroll")); // a log that grows is not the page
    expect(wheel()).toBe(true);
  });

  it("zooms with Ctrl or Meta, and takes the hint away", () => {
    wheel();
    expect(wheel({ ctrlKey: true })).toBe(true);
    expect(hinted()).toBe(false);
    expect(wheel({ metaKey: true })).toBe(true);
  });

  it("zooms at once where the widget is the page", () => {
    document.body.className = "mkg-standalone";
    expect(wheel()).toBe(true);
  });

  it("leaves nothing behind", () => {
    guard.dispose();
    expect(wheel()).toBe(true);
    expect(root.querySelector(".mkg-wheel-hint")).toBeNull();
  });
});
