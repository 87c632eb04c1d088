// @vitest-environment jsdom
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { el, keepKeys } from "./dom";

let root: HTMLElement;
let changes: string[];

beforeEach(() => {
  root = el("div");
  document.body.append(root);
  changes = [];
  root.addEventListener("change", event => changes.push((event.target as HTMLInputElement).type));
});

afterEach(() => root.remove());

function field(type: string): HTMLInputElement {
  const element = el("input");
  element.type = type;
  root.append(element);
  return element;
}

const press = (element: Element, key: string) =>
  element.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));

describe("keys in a widget", () => {
  it("are no shortcuts of the notebook for what has the focus", () => {
    keepKeys(root);
    const slider = field("range");
    expect(root.hasAttribute("data-lm-suppress-shortcuts")).toBe(true);
    expect(slider.hasAttribute("data-lm-suppress-shortcuts")).toBe(false);
    slider.focus();
    expect(slider.hasAttribute("data-lm-suppress-shortcuts")).toBe(true);
  });

  it("confirm a field with Enter, once", () => {
    keepKeys(root);
    keepKeys(root);
    for (const type of ["number", "text", "search", "range", "checkbox"]) press(field(type), "Enter");
    press(field("number"), "a");
    expect(changes).toEqual(["number", "text", "search"]);
  });
});
