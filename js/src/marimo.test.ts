import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

vi.mock("./generated/standalone_source", () => ({ STANDALONE_JS: "1;" }));

import marimo from "./marimo";

type Listener = (content: unknown, buffers: unknown) => void;

class AnyModel {
  readonly values: Record<string, unknown> = { root: "graph", states: [{ id: "graph" }], changes: 2 };
  readonly listeners = new Set<Listener>();
  readonly send = vi.fn();
  readonly save_changes = vi.fn();
  get = (name: string): unknown => this.values[name];
  set = (name: string, value: unknown): void => void (this.values[name] = value);
  on = (_event: string, listener: Listener): void => void this.listeners.add(listener);
  off = (_event: string, listener: Listener): void => void this.listeners.delete(listener);
}

let model: AnyModel;
let el: HTMLElement;
let dispose: () => void;
let told: ReturnType<typeof vi.fn>;
let pages: string[];

const frame = (): HTMLIFrameElement => el.querySelector("iframe") as HTMLIFrameElement;
const say = (data: unknown, source: unknown = frame().contentWindow): void => {
  window.dispatchEvent(new MessageEvent("message", { data, source: source as Window }));
};

beforeEach(async () => {
  const made: Promise<string>[] = [];
  pages = [];
  URL.createObjectURL = vi.fn((blob: Blob) => {
    made.push(
      new Promise(resolve => {
        const reader = new FileReader();
        reader.onload = () => resolve(String(reader.result));
        reader.readAsText(blob);
      })
    );
    return "about:blank";
  }) as never;
  URL.revokeObjectURL = vi.fn();
  model = new AnyModel();
  el = document.createElement("div");
  document.body.append(el);
  dispose = marimo.render({ model, el } as never);
  pages = await Promise.all(made);
  told = vi.fn();
  Object.defineProperty(frame().contentWindow, "postMessage", { value: told });
});
afterEach(() => {
  dispose();
  document.body.replaceChildren();
});

describe("the anywidget", () => {
  it("shows a page of its own without an origin, which has the code and nothing of the user's", () => {
    expect(frame().getAttribute("sandbox")).toBe("allow-scripts allow-downloads");
    expect(pages).toHaveLength(1);
    expect(pages[0]).toContain("default-src 'none'");
    expect(pages[0]).toContain('"live":true');
    expect(pages[0]).not.toContain("graph");
  });

  it("gives the page its widgets when it asks for them", () => {
    say({ kind: "ready" });
    expect(told.mock.calls.map(([data]) => data)).toEqual([
      { kind: "theme", isDark: false, height: window.innerHeight },
      { kind: "start", root: "graph", states: [{ id: "graph" }] }
    ]);
  });

  it("passes on what the kernel and the page say", () => {
    const buffers = [new DataView(new ArrayBuffer(2))];
    for (const listener of model.listeners) listener({ kind: "done" }, buffers);
    expect(told).toHaveBeenCalledWith({ kind: "heard", content: { kind: "done" }, buffers }, "*");
    say({ kind: "send", content: { kind: "open" }, buffers });
    expect(model.send).toHaveBeenCalledWith({ kind: "open" }, undefined, buffers);
  });

  it("counts what the page has set, so that marimo runs the cells that use it", () => {
    say({ kind: "changed" });
    expect(model.values.changes).toBe(3);
    expect(model.save_changes).toHaveBeenCalledTimes(1);
  });

  it("is as high as what is in it", () => {
    say({ kind: "height", height: 512 });
    expect(frame().style.height).toBe("512px");
  });

  it("hears no other window", () => {
    say({ kind: "send", content: { kind: "open" } }, window);
    say({ kind: "changed" }, null);
    expect(model.send).not.toHaveBeenCalled();
    expect(model.values.changes).toBe(2);
  });

  it("leaves nothing behind", () => {
    const { contentWindow } = frame();
    dispose();
    expect(el.childElementCount).toBe(0);
    expect(model.listeners.size).toBe(0);
    expect(URL.revokeObjectURL).toHaveBeenCalledTimes(1);
    say({ kind: "changed" }, contentWindow);
    expect(model.values.changes).toBe(2);
  });
});
