// @vitest-environment jsdom
import { describe, expect, it, vi } from "vitest";

vi.hoisted(() => Object.assign(window, { requirejs: () => undefined }));

import { VIEW_TYPE } from "./core/shared/ui/saved_picture";
import { STATIC_PREVIEW } from "./core/words/shared";
import { type Elements, type OutputAreaLike, showSavedPictures } from "./classic";

const SVG = '<svg class="mkg-saved-picture"></svg>';
const data = (view: unknown) => ({ data: { [VIEW_TYPE]: view, "image/svg+xml": SVG } });
const GONE = data({ model_id: "gone" });

/** A jQuery list of one element. */
class List implements Elements {
  constructor(readonly node: HTMLElement = document.createElement("div")) {}

  append(content: Element | Elements): Elements {
    this.node.append(content instanceof List ? content.node : (content as Element));
    return this;
  }
}

function shown(output: { data: Record<string, unknown> }, trusted = true) {
  const before = vi.fn(() => null);
  const prototype: OutputAreaLike = { trusted, append_mime_type: before, create_output_subarea: () => new List() };
  showSavedPictures(prototype, id => id === "live");
  const element = new List();
  const inserted = vi.fn();
  const area = prototype.append_mime_type(output, element, inserted);
  return { before, element, area, inserted };
}

describe("the classic notebook", () => {
  it("shows the picture of a widget whose model is gone", async () => {
    const { before, element, area, inserted } = shown(GONE);
    expect(before).not.toHaveBeenCalled();
    expect(element.node.querySelector("figure img")).not.toBeNull();
    expect(element.node.textContent).toBe(STATIC_PREVIEW);
    expect(area).toBeInstanceOf(List);
    await vi.waitFor(() => expect(inserted).toHaveBeenCalledOnce());
  });

  it.each([
    ["a live widget", data({ model_id: "live" }), true],
    ["what nobody trusts", GONE, false],
    ["another output", { data: { "image/svg+xml": SVG } }, true],
    ["another widget", { data: { [VIEW_TYPE]: { model_id: "gone" }, "image/png": "AAAA" } }, true]
  ])("renders %s as before", (_what, output, trusted) => {
    const { before, element, inserted } = shown(output, trusted);
    expect(before).toHaveBeenCalledWith(output, element, inserted);
    expect(element.node.childNodes).toHaveLength(0);
  });

  it.each([null, 7, "x", []])("takes a view of %j for one that is gone", view => {
    expect(shown(data(view)).element.node.textContent).toBe(STATIC_PREVIEW);
  });
});
