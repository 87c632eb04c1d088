// @vitest-environment jsdom
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { SearchBox } from "./search_box";

const TEXTS = { placeholder: "Search: text, class:Conv2d", help: "", label: "Search", suggest: () => [] };
const LETTER = 5; // pixels
const CLEAR = 20; // pixels for the button that clears the field

let resized: () => void;

beforeEach(() => {
  const context = { font: "", measureText: (text: string) => ({ width: LETTER * text.length }) };
  vi.stubGlobal("CanvasRenderingContext2D", vi.fn());
  vi.spyOn(HTMLCanvasElement.prototype, "getContext").mockReturnValue(context as unknown as null);
  class Observer {
    constructor(act: () => void) {
      resized = act;
    }
    observe() {}
    disconnect() {}
  }
  vi.stubGlobal("ResizeObserver", Observer);
});

afterEach(() => {
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
});

it.each([
  ["Search: text, class:Conv2d", 26],
  ["Search: text", 25],
  ["Search: text", 12],
  ["Search", 11],
  ["Search", 6],
  ["", 5]
])("says %o where %i letters have room", (said, letters) => {
  const root = document.createElement("div");
  const box = new SearchBox(root, TEXTS, { search: vi.fn(), step: vi.fn() });
  const input = box.element.querySelector("input") as HTMLInputElement;
  input.style.padding = "0px";
  Object.defineProperty(input, "clientWidth", { value: letters * LETTER + CLEAR });
  expect(input.placeholder).toBe(TEXTS.placeholder);
  resized();
  expect(input.placeholder).toBe(said);
  box.dispose();
});
