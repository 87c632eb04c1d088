import { afterEach, describe, expect, it, vi } from "vitest";
import { openSession, THREE, withBlocks } from "../testing/masks";
import { smallNet } from "../testing/sample";
import { colorOf, scaleOf, valueOf } from "../core/shared/stage/color";
import { GraphStore } from "../core/shared/model/graph_store";
import { Legend, Toolbar } from "../core/graph/parts/toolbar";
import { GraphLink } from "./linked_models";

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
  it("colors graphs by blocks that are removed, and by those that were cut", () => {
    const { session: own } = openSession(THREE, withBlocks());
    const states: Record<string, unknown>[] = [];
    const graph = { get: () => ({}), set_state: (state: Record<string, unknown>) => void states.push(state) };
    own.remove(1, true);
    expect(own.data?.counters.shares()).toEqual({ conv1: 0, "block.conv2": 1, block: 1, "": 40 / 148 });
    expect(own.data?.counters.shares(new Map([["block", 60]]))).toMatchObject({
      block: 1,
      "": expect.closeTo(100 / 208) as number
    });
    const link = new GraphLink(() => own.data);
    link.follow([graph]);
    link.dispose();
    expect(states).toEqual([]);
  });

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

  it("tells what a cut has taken, also while nothing goes any more", () => {
    vi.useFakeTimers();
    const { session } = openSession();
    const linked = graph();
    let uncut = new Map([["conv1", 216]]); // it has half of them
    const link = new GraphLink(
      () => session.data,
      () => uncut
    );
    link.follow([linked]);
    vi.advanceTimersByTime(500);
    expect(linked.get("pruned")).toMatchObject({ conv1: 0.5, block: 0, "block.conv2": 0 });
    uncut = new Map();
    link.follow([linked]);
    vi.advanceTimersByTime(500);
    expect(linked.get("pruned")).toEqual({});
    link.dispose();
  });
});

describe("the column of an explorer", () => {
  const h = smallNet(); // 1 is conv1, 4 to 13 the blocks with a conv and a relu each
  const pruned = { conv1: 0.5, layer1: 0.25, "layer1.0": 0.25, "layer1.0.conv": 0.25, "": 0.4 };

  it("colors by the shares, containers by their own", () => {
    const store = new GraphStore({ colorBy: "pruned", pruned });
    expect(scaleOf(h, store)).toMatchObject({ label: "Share pruned", min: 0, max: 0.5, missing: 0 });
    expect(valueOf(h, store, h.find("layer1") ?? -1)).toEqual({ value: 0.25, note: "" });
    const color = colorOf(h, store);
    const [conv1, block] = ["conv1", "layer1.0"].map(path => color(h.find(path) ?? -1));
    expect(conv1).not.toBe(block);
    store.set("pruned", { conv1: 0.5, layer1: 0.5 });
    expect(color(h.find("layer1") ?? -1)).toBe(color(h.find("conv1") ?? -1));
  });

  it("leaves all as it is without colors until something goes, and afterwards what loses nothing", () => {
    const store = new GraphStore({ colorBy: "pruned" });
    const color = colorOf(h, store);
    const colors = () => Array.from({ length: h.size }, (_, node) => color(node)).filter(own => own !== null);
    for (const none of [{}, { conv1: 0, "": 0 }] as Record<string, number>[]) {
      store.set("pruned", none);
      expect([colors(), scaleOf(h, store), valueOf(h, store, 1)]).toEqual([[], null, null]);
    }
    store.set("pruned", { conv1: 0.5, layer1: 0, "": 0.1 });
    expect(color(h.find("conv1") ?? -1)).not.toBeNull();
    expect(["layer1", "layer1.0.relu"].map(path => color(h.find(path) ?? -1))).toEqual([null, null]);
  });

  it("says so in the legend, in percent", () => {
    const host = document.createElement("div");
    const store = new GraphStore({ colorBy: "pruned" });
    const legend = new Legend(host, h, store);
    expect(host.hidden).toBe(true);
    store.set("pruned", pruned);
    expect([host.hidden, host.textContent]).toEqual([false, "Share pruned0 %50 %No color: nothing removed"]);
    legend.dispose();
  });

  it("is offered while there are shares", () => {
    const host = document.createElement("div");
    document.body.append(host);
    const store = new GraphStore();
    const bar = new Toolbar(host, h, store);
    const offered = () => [...host.querySelectorAll(".mkg-color-by option")].map(({ textContent }) => textContent);
    expect(offered()).not.toContain("Share pruned");
    store.set("pruned", pruned);
    expect(offered()).toContain("Share pruned");
    store.set("pruned", {});
    expect(offered()).not.toContain("Share pruned");
    bar.dispose();
  });
});
