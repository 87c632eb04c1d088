// @vitest-environment jsdom
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { forgetAll } from "../base/settings";
import { box } from "./dom";
import { SidePanes } from "./side_panes";

let main: HTMLElement;
let size: { width: number; height: number };

const USUAL = { left: 0.2, right: 0.3, both: 0.4 };

function made(): SidePanes {
  const root = document.createElement("div");
  main = root.appendChild(document.createElement("div"));
  Object.defineProperty(main, "clientWidth", { get: () => size.width });
  Object.defineProperty(root, "clientHeight", { get: () => size.height });
  const panes = new SidePanes(main, box("mkg-left"), box("mkg-centre"), box("mkg-right"), "test", USUAL);
  panes.measure();
  return panes;
}

const columns = () => ["--mkg-first-column", "--mkg-last-column"].map(name => main.style.getPropertyValue(name));
const isShown = (side: string) => !main.querySelector<HTMLElement>(`.mkg-${side}`)?.hidden;
const folds = () => [...main.querySelectorAll<HTMLElement>(".mkg-pane-gutter:not([hidden]) > .mkg-pane-fold")];
const handles = () => [...main.querySelectorAll<HTMLElement>("[role=separator]")];
const press = (element: HTMLElement, key: string) =>
  element.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));

beforeEach(() => {
  size = { width: 1400, height: 600 };
});

afterEach(() => {
  vi.unstubAllGlobals();
  localStorage.clear();
  forgetAll();
});

describe("side panes", () => {
  it("stand at both sides where there is room", () => {
    made();
    expect(columns()).toEqual(["20.00%", "30.00%"]);
    expect([isShown("left"), isShown("right")]).toEqual([true, true]);
    expect(folds().map(fold => fold.getAttribute("aria-label"))).toEqual(["Hide the tree", "Hide the details"]);
  });

  it("stand in one column where there is less", () => {
    size.width = 960;
    made();
    expect(columns()).toEqual(["40.00%", "0px"]);
    expect(main.classList.contains("mkg-is-shared")).toBe(true);
    expect(folds().map(fold => fold.getAttribute("aria-label"))).toEqual(["Hide the side panes"]);
    folds()[0].click();
    expect([columns()[0], isShown("left"), isShown("right")]).toEqual(["0px", false, false]);
  });

  it("are folded where there is little, until somebody asks for them", () => {
    size.width = 600;
    made();
    expect([columns()[0], folds()[0].getAttribute("aria-expanded")]).toEqual(["0px", "false"]);
    folds()[0].click();
    expect([columns()[0], isShown("right")]).toEqual(["40.00%", true]);
    size = { width: 1400, height: 300 };
    made();
    expect(isShown("left")).toBe(true); // what was asked for holds
    forgetAll();
    localStorage.clear();
    made();
    expect([isShown("left"), isShown("right")]).toEqual([false, true]);
    size.width = 960;
    made();
    expect([isShown("left"), isShown("right")]).toEqual([false, false]);
    expect(main.parentElement?.className).toBe("mkg-is-short");
  });

  it("are as wide as the keys make them, and fold by Enter", () => {
    made();
    const [left, right] = handles();
    press(left, "ArrowRight");
    press(right, "ArrowRight"); // to the right, which makes it narrower
    expect(columns()).toEqual(["25.00%", "25.00%"]);
    expect(left.getAttribute("aria-valuenow")).toBe("25");
    press(right, "End");
    expect(columns()[1]).toBe("35.00%");
    press(right, "Enter");
    expect(isShown("right")).toBe(false);
    expect(right.hidden).toBe(true);
  });

  it("leave the canvas two fifths of the width, whatever is asked for or remembered", () => {
    const sum = () => columns().reduce((all, one) => all + parseFloat(one), 0);
    made();
    const [left, right] = handles();
    press(left, "End");
    expect([columns()[0], left.getAttribute("aria-valuemax")]).toEqual(["30.00%", "30"]);
    press(right, "End");
    expect(sum()).toBeCloseTo(60);
    folds()[1].click();
    press(left, "End");
    expect(columns()).toEqual(["60.00%", "0px"]);
    folds()[1].click();
    expect(sum()).toBeCloseTo(60);
    localStorage.setItem("modulekg-widgets:test:right", "0.6");
    localStorage.setItem("modulekg-widgets:test:left", "0.6");
    forgetAll();
    made();
    expect(columns()).toEqual(["50.00%", "10.00%"]);
  });

  it("keep the focus where Enter folds, and name the handle by what it moves", () => {
    made();
    document.body.append(main.parentElement as HTMLElement);
    const [left] = handles();
    expect(left.getAttribute("aria-label")).toBe("Width of the tree");
    left.focus();
    press(left, "Enter");
    expect(document.activeElement).toBe(folds()[0]);
    size.width = 960;
    made();
    expect(handles()[0].getAttribute("aria-label")).toBe("Width of the side panes");
  });

  it("are written down when a drag ends, not at each move", () => {
    made();
    main.getBoundingClientRect = () => new DOMRect(0, 0, 1000, 500);
    const [left] = handles();
    left.setPointerCapture = () => undefined;
    const send = (type: string, clientX: number) => left.dispatchEvent(new MouseEvent(type, { clientX }));
    const known = () => localStorage.getItem("modulekg-widgets:test:left");
    send("pointerdown", 200);
    send("pointermove", 210);
    send("pointermove", 150);
    expect([columns()[0], known()]).toEqual(["15.00%", null]);
    send("pointerup", 150);
    expect([columns()[0], known()]).toEqual(["15.00%", "0.15"]);
  });

  it("are remembered by the browser, damaged entries not", () => {
    made();
    press(handles()[0], "Home");
    folds()[1].click();
    forgetAll();
    made();
    expect(columns()).toEqual(["10.00%", "0px"]);
    localStorage.setItem("modulekg-widgets:test:left", "{");
    localStorage.setItem("modulekg-widgets:test:right-folded", '"yes"');
    forgetAll();
    made();
    expect(columns()).toEqual(["20.00%", "30.00%"]);
  });

  it("are left away by a view that has nothing for one", () => {
    const panes = made();
    panes.leaveAway("left", true);
    expect([columns()[0], isShown("left"), folds().length]).toEqual(["0px", false, 1]);
    panes.leaveAway("left", false);
    expect(isShown("left")).toBe(true);
    panes.dispose();
  });

  it("have the height again that the corner gave them, and none that a layout says", () => {
    const heard: (() => void)[] = [];
    class Observer {
      constructor(act: () => void) {
        heard.push(act);
      }
      observe = vi.fn();
      disconnect = vi.fn();
    }
    vi.stubGlobal("ResizeObserver", Observer);
    const resized = () => heard.forEach(act => act());
    const height = () => main.style.getPropertyValue("--mkg-height");
    made();
    expect(height()).toBe("");
    main.style.height = "500px";
    resized();
    made();
    expect(height()).toBe("");
    resized();
    main.style.height = "812px"; // as the browser writes it
    resized();
    forgetAll(); // the page is loaded anew
    made();
    expect(height()).toBe("812px");
  });
});
