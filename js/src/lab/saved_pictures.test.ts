// @vitest-environment jsdom
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

vi.mock("@jupyterlab/rendermime", () => ({ IRenderMimeRegistry: {} }));

import { liveViews } from "../core/shared/ui/saved_picture";
import { VIEW_TYPE } from "../core/shared/ui/saved_picture";
import { STATIC_PREVIEW } from "../core/words/shared";
import { renewPictures, showSavedPictures } from "./saved_pictures";

const SVG = '<svg class="mkg-saved-picture"></svg>';
const OURS = { data: { [VIEW_TYPE]: { model_id: "1" }, "image/svg+xml": SVG } };
const THEIRS = { data: { [VIEW_TYPE]: { model_id: "2" }, "image/png": "AAAA" } };

type Way = "not found" | "never" | "shown" | "late" | "hidden" | "throws";

/** What the widget manager's renderer does, in the order in which it does it. */
function rendererClass(way: Way) {
  return class Renderer {
    node = document.createElement("div");
    widgets: unknown[] = [];
    isDisposed = false;
    isHidden = false;

    dispose(): void {
      this.isDisposed = true;
    }

    async renderModel(_model: unknown): Promise<void> {
      this.node.textContent = "Loading widget...";
      if (way === "throws") throw new Error("no");
      if (way === "never") await new Promise(() => undefined);
      if (way === "late" || way === "not found") await new Promise(resolve => setTimeout(resolve, 2000));
      if (way === "hidden") {
        this.isHidden = true;
      } else if (way === "not found") {
        this.node.textContent = "Error displaying widget: model not found";
      } else {
        this.node.textContent = "";
        this.widgets.push({});
        this.node.append(document.createElement("canvas"));
      }
    }
  };
}

function rendered(way: Way, model: unknown = OURS) {
  const Renderer = rendererClass(way);
  const sample = new Renderer();
  showSavedPictures(sample as never, STATIC_PREVIEW);
  expect(sample.isDisposed).toBe(true);
  const renderer = new Renderer();
  const done = renderer.renderModel(model);
  return { renderer, node: renderer.node, done };
}

const image = (node: HTMLElement) => node.querySelector("figure img")?.getAttribute("src") ?? null;

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

describe("a widget of ours", () => {
  it("whose model is not found shows its picture and how to go on, and no error", async () => {
    const { node, done } = rendered("not found");
    await vi.advanceTimersByTimeAsync(2000);
    await done;
    expect(image(node)).toContain("mkg-saved-picture");
    expect(node.textContent).toBe(STATIC_PREVIEW);
  });

  it("shows its picture soon where no kernel ever comes", async () => {
    const { node } = rendered("never");
    await vi.advanceTimersByTimeAsync(1500);
    expect(image(node)).not.toBeNull();
    expect(node.textContent).toBe(""); // it may still become live
    await vi.advanceTimersByTimeAsync(2000);
    expect(node.textContent).toBe(STATIC_PREVIEW);
  });

  it.each<Way>(["shown", "late"])("that is %s is not touched in the end", async way => {
    const { node, done } = rendered(way);
    await vi.advanceTimersByTimeAsync(10_000);
    await done;
    expect(node.innerHTML).toBe("<canvas></canvas>");
  });

  it("that was closed stays away", async () => {
    const { node, done } = rendered("hidden");
    await done;
    expect(image(node)).toBeNull();
  });

  it("that is gone meanwhile is left alone", async () => {
    const { renderer, node } = rendered("never");
    renderer.dispose();
    await vi.advanceTimersByTimeAsync(5000);
    expect(image(node)).toBeNull();
  });

  it("leaves errors to the notebook", async () => {
    const { node, done } = rendered("throws");
    await expect(done).rejects.toThrow("no");
    await vi.advanceTimersByTimeAsync(5000);
    expect(image(node)).toBeNull();
  });
});

it.each<Way>(["not found", "shown"])("a widget of others that is %s is rendered as before", async way => {
  const { node, done } = rendered(way, THEIRS);
  await vi.advanceTimersByTimeAsync(5000);
  await done;
  expect(image(node)).toBeNull();
  expect(node.textContent).toBe(way === "shown" ? "" : "Error displaying widget: model not found");
});

describe("a newer picture", () => {
  it("of a widget that is shown leaves its view as it is", async () => {
    const { renderer, done } = rendered("shown");
    await done;
    const newer = { data: { ...OURS.data, "image/svg+xml": `${SVG} ` } };
    await renderer.renderModel(newer);
    expect(renderer.widgets).toHaveLength(1);
    renderer.widgets = [{ isDisposed: true }];
    await renderer.renderModel(newer);
    expect(renderer.widgets).toHaveLength(2);
    await renderer.renderModel({ data: { [VIEW_TYPE]: { model_id: "3" }, "image/svg+xml": SVG } });
    expect(renderer.widgets).toHaveLength(3);
  });

  it.each([
    [true, true, 1],
    [true, false, 0],
    [false, true, 0]
  ])("that came (%s) to a notebook that is no longer as it was saved (%s) is saved too", async (came, dirty, saves) => {
    const notebook = document.createElement("div");
    const el = notebook.appendChild(document.createElement("div"));
    const view = { el, renewPictures: () => Promise.resolve(came) };
    liveViews.add(view);
    const save = vi.fn(() => Promise.resolve());
    void renewPictures(notebook, { isDisposed: false, model: { dirty }, save });
    await vi.advanceTimersByTimeAsync(200);
    liveViews.delete(view);
    expect(save).toHaveBeenCalledTimes(saves);
  });
});
