import { describe, expect, it, vi } from "vitest";
import { isEqual } from "../base/state_store";
import { GraphStore } from "./graph_store";

describe("Store", () => {
  it("tells the listeners of a key, and only of a change", () => {
    const store = new GraphStore({ query: "a" });
    const [query, selected] = [vi.fn(), vi.fn()];
    store.on("query", query);
    store.on("selected", selected);
    store.set("query", "a");
    expect(query).not.toHaveBeenCalled();
    store.set("query", "b");
    expect(query).toHaveBeenCalledTimes(1);
    expect(selected).not.toHaveBeenCalled();
    expect(store.get("query")).toBe("b");
  });

  it("forgets a listener that was disposed of, even while it tells the others", () => {
    const store = new GraphStore();
    const calls: string[] = [];
    const stops = [
      store.on("focus", () => {
        calls.push("first");
        stops.forEach(stop => stop());
      }),
      store.on("focus", () => calls.push("second"))
    ];
    store.set("focus", 1);
    store.set("focus", 2);
    expect(calls).toEqual(["first", "second"]);
  });

  it("takes one function twice", () => {
    const store = new GraphStore();
    const listener = vi.fn();
    const stop = store.on("focus", listener);
    store.on("focus", listener);
    stop();
    store.set("focus", 1);
    expect(listener).toHaveBeenCalledTimes(1);
  });

  it("compares what lists, maps, sets and records hold", () => {
    expect(isEqual(["a"], ["a"])).toBe(true);
    expect(isEqual(["a"], ["a", "b"])).toBe(false);
    expect(isEqual(new Map([[1, 2]]), new Map([[1, 2]]))).toBe(true);
    expect(isEqual(new Map([[1, 2]]), new Map([[1, 3]]))).toBe(false);
    expect(isEqual(new Set([1]), new Set([2]))).toBe(false);
    expect(isEqual({ a: NaN }, { a: NaN })).toBe(true);
    expect(isEqual({ a: 1 }, { b: 1 })).toBe(false);
    expect(isEqual(null, {})).toBe(false);
    expect(isEqual("", null)).toBe(false);
  });
});
