// @vitest-environment jsdom
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { addWindowButtons } from "./window_buttons";
import { EVEN, readSplit, type Split, WorkbenchPanes } from "./workbench";

let host: HTMLElement;
let splits: Split[];

beforeEach(() => {
  host = document.createElement("div");
  document.body.append(host);
  splits = [];
});

afterEach(() => host.remove());

const made = (count: number, split: Split = EVEN) =>
  new WorkbenchPanes(host, count, split, changed => splits.push(changed));
const handles = () => [...host.querySelectorAll<HTMLElement>("[role=separator]")];
const press = (element: HTMLElement, key: string) =>
  element.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));

describe("split", () => {
  it("is read from what the kernel says, within bounds", () => {
    expect(readSplit({ rows: 0.3 })).toEqual({ rows: 0.3, columns: EVEN.columns });
    expect(readSplit({ rows: -4, columns: 1 })).toEqual({ rows: 0.1, columns: 0.9 });
    for (const odd of [null, 3, "x", { rows: "0.2", columns: NaN }]) expect(readSplit(odd)).toEqual(EVEN);
  });
});

describe("workbench", () => {
  it("has a pane each, and handles between them", () => {
    const view = made(3);
    expect(view.panes.length).toBe(3);
    expect(handles().map(handle => handle.getAttribute("aria-orientation"))).toEqual(["horizontal", "vertical"]);
    expect(handles().every(handle => handle.tabIndex === 0 && handle.getAttribute("aria-label"))).toBe(true);
  });

  it("lends its buttons to the first part, for as often as that is drawn anew", () => {
    const view = made(2);
    host.classList.add("mkg-widget");
    view.addButtons();
    const parts = view.panes.map(pane => {
      const [part, toolbar] = [document.createElement("div"), document.createElement("div")];
      part.className = "mkg-widget";
      part.append(toolbar);
      pane.append(part);
      return toolbar;
    });
    const names = () => [...host.querySelectorAll(".mkg-full-screen")].map(one => one.getAttribute("aria-label"));
    const disposers = parts.map(toolbar => addWindowButtons(toolbar));
    expect(names()).toEqual(["Workbench: Full screen", "Full screen"]);
    disposers[0]();
    expect(names()).toEqual(["Full screen"]);
    addWindowButtons(parts[0]);
    expect(names()).toEqual(["Workbench: Full screen", "Full screen"]);
    host.classList.remove("mkg-widget");
  });

  it("has one handle for two panes, and none for one", () => {
    made(2).dispose();
    made(2);
    expect(handles().length).toBe(1);
    host.replaceChildren();
    made(1);
    expect(handles().length).toBe(0);
  });

  it("is resized with the keyboard", () => {
    made(3, { rows: 0.5, columns: 0.5 });
    const [rows, columns] = handles();
    press(rows, "ArrowDown");
    press(columns, "ArrowLeft");
    expect(splits.at(-1)?.rows).toBeCloseTo(0.55);
    expect(splits.at(-1)?.columns).toBeCloseTo(0.45);
    expect(rows.getAttribute("aria-valuenow")).toBe("55");
    expect(Number(host.style.getPropertyValue("--mkg-rows"))).toBeCloseTo(0.55);
    press(rows, "Home");
    expect(splits.at(-1)?.rows).toBe(0.1);
    press(rows, "End");
    expect(splits.at(-1)?.rows).toBe(0.9);
    press(rows, "Enter");
    expect(splits.at(-1)?.rows).toBe(EVEN.rows);
    press(rows, "a");
    expect(splits.length).toBe(5);
  });

  it("has one part more beneath, with no handle of its own", () => {
    const view = new WorkbenchPanes(host, 4, EVEN, changed => splits.push(changed), true);
    expect(handles().length).toBe(2);
    expect(host.lastElementChild).toBe(view.panes[3]);
    expect(host.classList.contains("mkg-workbench-tall")).toBe(true);
    view.dispose();
    new WorkbenchPanes(host, 3, EVEN, changed => splits.push(changed), true);
    expect(handles().map(handle => handle.getAttribute("aria-orientation"))).toEqual(["horizontal"]);
  });

  it("follows the kernel without an answer", () => {
    const view = made(3);
    view.setSplit({ rows: 0.2, columns: 0.8 });
    expect(handles()[0].getAttribute("aria-valuenow")).toBe("20");
    expect(splits).toEqual([]);
  });

  it("leaves nothing behind", () => {
    made(3).dispose();
    expect(host.childElementCount).toBe(0);
  });
});
