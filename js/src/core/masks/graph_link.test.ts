import { afterEach, describe, expect, it, vi } from "vitest";
import { openSession } from "../../testing/masks";
import { smallNet } from "../../testing/sample";
import { colorOf, MISSING_COLOR, scaleOf, valueOf } from "../shared/color";
import { Store } from "../shared/store";
import { Toolbar } from "../graph/toolbar";
import { GraphLink } from "./graph_link";

function graph() {
  const state: Record<string, unknown> = {};
  const set_state = vi.fn((values: Record<string, unknown>) => void Object.assign(state, values));
  return { get: (name: string) => state[name], set_state };
}

afterEach(() => {
  vi.useRealTimers();
  document.body.replaceChildren();
});

describe("GraphLink", () => {
  it("tells once after many changes, and clears when nothing goes any more", () => {
    vi.useFakeTimers();
    const { session } = openSession();
    const linked = graph();
    const link = new GraphLink(() => session.data);
    link.follow([linked]);
    vi.advanceTimersByTime(500);
    expect(linked.set_state).not.toHaveBeenCalled();
    session.begin();
    for (const index of [0, 1, 2]) session.paint(0, [index], true);
    vi.advanceTimersByTime(500);
    expect(linked.set_state).toHaveBeenCalledTimes(1);
    expect(linked.get("pruned")).toMatchObject({ conv1: 0.75, "": 0.75 });
    session.cancel();
    vi.advanceTimersByTime(500);
    expect(linked.get("pruned")).toEqual({});
    link.dispose();
    session.paint(0, [0], true);
    vi.advanceTimersByTime(500);
    expect(linked.set_state).toHaveBeenCalledTimes(2);
  });
});

describe("the column of an explorer", () => {
  const h = smallNet(); // 1 is conv1, 4 to 13 the blocks with a conv and a relu each
  const pruned = { conv1: 0.5, layer1: 0.25, "layer1.0": 0.25, "layer1.0.conv": 0.25, "": 0.4 };

  it("colors by the shares, containers by their own", () => {
    const store = new Store({ colorBy: "pruned", pruned });
    expect(scaleOf(h, store)).toMatchObject({ label: "share pruned", min: 0.25, max: 0.5, aggregation: "" });
    expect(valueOf(h, store, h.find("layer1") ?? -1)).toEqual({ value: 0.25, note: "" });
    const color = colorOf(h, store);
    const [conv1, block, relu] = ["conv1", "layer1.0", "layer1.0.relu"].map(path => color(h.find(path) ?? -1));
    expect(conv1).not.toBe(block);
    expect(relu).toBe(MISSING_COLOR);
    store.set("pruned", { conv1: 0.5, layer1: 0.5 });
    expect(color(h.find("layer1") ?? -1)).toBe(color(h.find("conv1") ?? -1));
  });

  it("is offered while there are shares", () => {
    const host = document.createElement("div");
    document.body.append(host);
    const store = new Store();
    const bar = new Toolbar(host, h, store);
    const offered = () => [...host.querySelectorAll(".mkg-color-by option")].map(({ textContent }) => textContent);
    expect(offered()).not.toContain("share pruned");
    store.set("pruned", pruned);
    expect(offered()).toContain("share pruned");
    store.set("pruned", {});
    expect(offered()).not.toContain("share pruned");
    bar.dispose();
  });
});
