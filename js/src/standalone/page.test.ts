import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import "../testing/media";
import { foreignParts, hostileTexts } from "../testing/sample";
import { golden } from "../testing/payloads";

vi.mock("@jupyter-widgets/base", () => import("./base"));

import type { SavedPage, SavedWidget } from "../core/export/html";
import { STANDALONE_JS } from "../generated/standalone_source";
import * as amd from "../nbextension";
import * as all from "../widgets/all";
import { DOMWidgetModel, DOMWidgetView } from "./base";
import * as controls from "./controls";
import { Page } from "./page";

class NoteModel extends DOMWidgetModel {
  override defaults(): Record<string, unknown> {
    return { ...super.defaults(), text: "", bytes: null };
  }
}

class NoteView extends DOMWidgetView {
  override render(): void {
    super.render();
    const show = () => void (this.el.textContent = String(this.model.get("text")));
    this.listenTo(this.model, "change:text", show);
    this.listenTo(this.model, "msg:custom", content => void (this.el.dataset.heard = JSON.stringify(content)));
    void this.displayed.then(() => (this.el.dataset.shown = String(this.el.isConnected)));
    show();
  }
}

const KINDS = { ...controls, NoteModel, NoteView };
const after = (ms: number) => new Promise(resolve => setTimeout(resolve, ms));

const note = (id: string, text: string, more: Partial<SavedWidget> = {}): SavedWidget => ({
  kind: "Note",
  id,
  state: { _view_name: "NoteView", text },
  ...more
});
const box = (kind: string, id: string, children: string[], state: Record<string, unknown> = {}): SavedWidget => ({
  kind,
  id,
  state: { _view_name: `${kind}View`, children: children.map(child => `IPY_MODEL_${child}`), ...state }
});
const link = (source: string, target: string, kind = "Link"): SavedWidget => ({
  kind,
  id: `${source}-${target}`,
  state: { source: [`IPY_MODEL_${source}`, "text"], target: [`IPY_MODEL_${target}`, "text"] }
});

let host: HTMLElement;

async function show(view: string, ...widgets: SavedWidget[]): Promise<Page> {
  const saved: SavedPage = { schema_version: 1, views: [view], widgets };
  const page = new Page(saved, KINDS);
  await page.mount(host);
  await after(5);
  return page;
}

const texts = () => [...host.querySelectorAll("[data-shown]")].map(element => element.textContent);

beforeEach(() => {
  host = document.createElement("main");
  document.body.append(host);
});

afterEach(() => host.remove());

describe("kinds", () => {
  it("are the widgets that JupyterLab has", async () => {
    expect([...Object.keys(all), "version"].sort()).toEqual(Object.keys(amd).sort());
  });

  it("have a model and a view each", () => {
    const names = Object.keys(all);
    const kinds = names.filter(name => name.endsWith("Model")).map(name => name.slice(0, -"Model".length));
    expect(kinds.length).toBeGreaterThan(4);
    for (const kind of kinds) expect(names).toContain(`${kind}View`);
  });
});

describe("Page", () => {
  it("shows a view that hears when it stands in the page", async () => {
    await show("a", note("a", "hello"));
    expect(host.querySelector<HTMLElement>("[data-shown]")?.dataset.shown).toBe("true");
    expect(texts()).toEqual(["hello"]);
  });

  it("shows boxes within boxes", async () => {
    await show(
      "v",
      box("VBox", "v", ["a", "h"]),
      box("HBox", "h", ["b", "c"]),
      note("a", "1"),
      note("b", "2"),
      note("c", "3")
    );
    expect(texts()).toEqual(["1", "2", "3"]);
    expect(host.querySelector(".mkg-page-vbox > .mkg-page-hbox")?.childElementCount).toBe(2);
  });

  it("links both ways, from the source at first", async () => {
    const page = await show("v", box("VBox", "v", ["a", "b"]), note("a", "1"), note("b", "2"), link("a", "b"));
    expect(texts()).toEqual(["1", "1"]);
    (await page.get_model("b")).set("text", "3");
    expect(texts()).toEqual(["3", "3"]);
    (await page.get_model("a")).set({ text: "4" });
    expect(texts()).toEqual(["4", "4"]);
  });

  it("links one way", async () => {
    const links = [link("a", "b", "DirectionalLink")];
    const page = await show("v", box("VBox", "v", ["a", "b"]), note("a", "1"), note("b", "2"), ...links);
    (await page.get_model("b")).set("text", "3");
    expect(texts()).toEqual(["1", "3"]);
    (await page.get_model("a")).set("text", "4");
    expect(texts()).toEqual(["4", "4"]);
  });

  it("puts binary values at their places", async () => {
    const page = await show("a", note("a", "", { buffers: [{ path: ["bytes"], data: btoa("\x00\xff\x07") }] }));
    const value = (await page.get_model("a")).get("bytes") as DataView;
    expect([...new Uint8Array(value.buffer)]).toEqual([0, 255, 7]);
  });

  it("gives messages to the model as they would come", async () => {
    const heard: unknown[] = [];
    class EagerModel extends NoteModel {
      override initialize(): void {
        this.on("msg:custom", (content, buffers) => heard.push(content, (buffers as DataView[])[0].getUint8(0)));
      }
    }
    const messages = [{ content: { seq: 1 }, buffers: [btoa("\x05")] }];
    const saved: SavedPage = { schema_version: 1, views: ["a"], widgets: [note("a", "", { messages })] };
    await new Page(saved, { NoteModel: EagerModel, NoteView }).mount(host);
    expect(heard).toEqual([{ seq: 1 }, 5]);
  });

  it("answers with the first that fits, and later than it was asked", async () => {
    const answers = [
      { question: { kind: "maps", step: 1 }, content: { maps: "one" } },
      { question: { kind: "maps" }, content: { error: "not here" } }
    ];
    const page = await show("a", note("a", "", { answers }));
    const model = await page.get_model("a");
    const element = host.querySelector<HTMLElement>("[data-shown]");
    for (const [step, more] of [
      [1, { maps: "one" }],
      [2, { error: "not here" }]
    ] as const) {
      delete element?.dataset.heard;
      model.send({ kind: "maps", step });
      expect(element?.dataset.heard).toBeUndefined();
      await after(5);
      expect(JSON.parse(element?.dataset.heard ?? "")).toEqual({ kind: "maps", step, ...more });
    }
    model.send({ kind: "other" });
    await after(5);
    expect(element?.dataset.heard).toContain("not here");
  });

  it("shows one tab at a time, by click and arrow keys", async () => {
    const state = { titles: ["A", ""], selected_index: 0 };
    await show("t", box("Tab", "t", ["a", "b"], state), note("a", "1"), note("b", "2"));
    const tabs = [...host.querySelectorAll<HTMLElement>("[role=tab]")];
    const pages = [...host.querySelectorAll<HTMLElement>("[role=tabpanel]")];
    const shown = () => pages.map(page => !page.hidden);
    expect(tabs.map(tab => tab.textContent)).toEqual(["A", "2"]);
    expect(shown()).toEqual([true, false]);
    tabs[1].click();
    expect([shown(), tabs.map(tab => tab.tabIndex)]).toEqual([
      [false, true],
      [-1, 0]
    ]);
    tabs[1].dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true, cancelable: true }));
    expect(shown()).toEqual([true, false]);
    expect(document.activeElement).toBe(tabs[0]);
  });

  it("refuses unknown kinds and lost widgets in fixed words", async () => {
    for (const kind of ["Unheard", "constructor", "__proto__", "toString"])
      await expect(show("a", { ...note("a", ""), kind })).rejects.toThrow("a widget of an unknown kind");
    await expect(show("v", box("VBox", "v", ["gone"]))).rejects.toThrow("a widget is missing");
  });

  it.each(hostileTexts())("shows %j as text in a tab, and as nothing in a layout", async text => {
    const layout: SavedWidget = { kind: "Layout", id: "l", state: { width: text, flex: text } };
    const tab = box("Tab", "t", ["a"], { titles: [text], selected_index: 0, layout: "IPY_MODEL_l" });
    await show("t", tab, layout, note("a", text));
    expect(host.querySelector("[role=tab]")?.textContent).toBe(text);
    expect(foreignParts(host)).toEqual([]);
    expect(host.querySelector(".mkg-page-tab")?.getAttribute("style") ?? "").not.toMatch(/url|xss/);
  });
});

describe("widgets of the package", () => {
  it("are shown without a kernel, and know it not", async () => {
    const state = { _view_name: "ModelGraphView", payload: golden("folded"), selected: null };
    const saved: SavedPage = { schema_version: 1, views: ["g"], widgets: [{ kind: "ModelGraph", id: "g", state }] };
    await new Page(saved, { ...controls, ...all }).mount(host);
    await after(20);
    expect(host.querySelectorAll("[role=treeitem]").length).toBeGreaterThan(1);
    expect(host.querySelector(".mkg-is-disconnected")).toBeNull();
  });
});

// with one beyond Latin-1 the browser keeps all of the script in two bytes for each letter, and takes longer to compile it
it("has a script without letters beyond ASCII", () => {
  expect(STANDALONE_JS.length).toBeGreaterThan(100_000);
  expect([...STANDALONE_JS.matchAll(/[^\0-\x7f]/g)].map(({ 0: letter, index }) => [letter, index])).toEqual([]);
});
