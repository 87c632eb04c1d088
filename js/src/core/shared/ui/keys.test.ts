// @vitest-environment jsdom
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { el } from "./dom";
import { captureKeys } from "./keys";

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
    captureKeys(root);
    const slider = field("range");
    expect(root.hasAttribute("data-lm-suppress-shortcuts")).toBe(true);
    expect(slider.hasAttribute("data-lm-suppress-shortcuts")).toBe(false);
    slider.focus();
    expect(slider.hasAttribute("data-lm-suppress-shortcuts")).toBe(true);
  });

  it("confirm a field with Enter, once", () => {
    captureKeys(root);
    captureKeys(root);
    for (const type of ["number", "text", "search", "range", "checkbox"]) press(field(type), "Enter");
    press(field("number"), "a");
    expect(changes).toEqual(["number", "text", "search"]);
  });

  describe("after a click in it", () => {
    let notebook: HTMLElement;
    let cell: string[]; // keys that the notebook has heard, as JupyterLab does: at the document, before the widget
    let widget: string[];
    let isSaved: boolean;
    const listens = (event: KeyboardEvent) => {
      if ((event.target as Element).closest("[data-lm-suppress-shortcuts]")) return;
      if (event.key === "s" && event.ctrlKey) {
        isSaved = true;
        event.preventDefault();
      } else cell.push(event.key);
    };
    const click = (element: Element) => element.dispatchEvent(new MouseEvent("pointerdown", { bubbles: true }));

    beforeEach(() => {
      notebook = el("div");
      notebook.tabIndex = -1;
      document.body.append(notebook);
      notebook.append(root);
      root.getClientRects = () => [new DOMRect()] as unknown as DOMRectList;
      captureKeys(root);
      [cell, widget, isSaved] = [[], [], false];
      document.addEventListener("keydown", listens, true);
      root.addEventListener("keydown", event => widget.push(event.key));
    });

    afterEach(() => {
      document.removeEventListener("keydown", listens, true);
      notebook.remove();
    });

    it.each(["text", "what is taken away"])("on %s no key reaches the notebook", what => {
      const text = el("span", "", "words");
      root.append(text);
      click(text);
      notebook.focus(); // as JupyterLab does after a click in an output
      if (what !== "text") text.remove();
      for (const key of ["d", "d", "x"]) press(document.activeElement ?? document.body, key);
      expect([cell, widget]).toEqual([[], ["d", "d", "x"]]);
      expect(document.activeElement).toBe(root);
    });

    it("with the focus lost to nothing they are the widget's", () => {
      const one = field("text");
      one.focus();
      one.remove();
      press(document.body, "d");
      expect([cell, widget]).toEqual([[], ["d"]]);
    });

    it("elsewhere, or Tab to elsewhere, they are the notebook's again", () => {
      click(root);
      click(notebook);
      press(notebook, "d");
      click(root);
      press(notebook, "Tab");
      press(notebook, "x");
      click(root);
      const other = el("input");
      notebook.append(other);
      other.focus();
      press(other, "y");
      expect(cell).toEqual(["d", "Tab", "x", "y"]);
    });

    it("are the notebook's once the widget is gone or hidden", () => {
      click(root);
      root.getClientRects = () => [] as unknown as DOMRectList;
      press(notebook, "d");
      click(root);
      root.remove();
      press(notebook, "x");
      expect(cell).toEqual(["d", "x"]);
    });

    it("saves the notebook", () => {
      root.focus();
      const save = new KeyboardEvent("keydown", { key: "s", ctrlKey: true, bubbles: true, cancelable: true });
      root.dispatchEvent(save);
      expect([isSaved, save.defaultPrevented, cell, widget]).toEqual([true, true, [], []]);
    });
  });
});
