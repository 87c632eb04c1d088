import { describe, expect, it } from "vitest";
import { container, leaf, payloadOf, resnet, type Spec } from "../../../testing/payloads";
import { deepNet, wideNet } from "../../../testing/sample";
import { Hierarchy } from "./hierarchy";
import {
  collapseAll,
  collapseOthers,
  visibleRows,
  expandAll,
  nodeLimit,
  openNodes,
  reveal,
  showInstance,
  noticeLimit,
  toggle,
  tooMany,
  visibleCount
} from "./expansion";
import { GraphStore } from "./graph_store";

const h = new Hierarchy(resnet());
const at = (path: string) => h.find(path) ?? -1;
const count = (tree: Hierarchy, store: GraphStore) =>
  visibleCount(tree, store, store.get("focus"), openNodes(tree, store.get("expanded")));

/** Boxes of boxes: `widths[i]` unlike children at level i. */
function boxes(...widths: number[]): Spec {
  const [width, ...inner] = widths;
  if (width === undefined) {
    return leaf("Linear");
  }
  return container(
    `Box${inner.length}`,
    Array.from({ length: width }, (_, i) => [`${i}`, { ...boxes(...inner), cls: `C${i}` }])
  );
}

describe("reveal", () => {
  it("opens what lies around, shows the instance, and says when there is no such path", () => {
    const store = new GraphStore();
    expect(reveal(h, store, "layer3.17.conv2")).toBe(true);
    expect(store.get("expanded")).toEqual(["layer3", "layer3.17"]);
    expect(store.get("shown").get(at("layer3.1"))).toBe(at("layer3.17"));
    expect(store.get("focus")).toBe(0);
    expect(reveal(h, store, "layer3.99")).toBe(false);
  });

  it("leaves an unfolded fold as it is", () => {
    const store = new GraphStore({ unfolded: new Set([at("layer3.1")]) });
    reveal(h, store, "layer3.17");
    expect(store.get("shown").size).toBe(0);
    expect(visibleRows(h, store, at("layer3"))).toHaveLength(36);
  });

  it("leaves a focus that does not hold the node", () => {
    const store = new GraphStore({ focus: at("layer1") });
    reveal(h, store, "layer1.0.conv1");
    expect(store.get("focus")).toBe(at("layer1"));
    reveal(h, store, "fc");
    expect(store.get("focus")).toBe(0);
  });

  it("moves the focus where the limit would be passed", () => {
    const many = new Hierarchy(payloadOf(boxes(12, 12, 12)));
    const all = Array.from({ length: many.size }, (_, i) => many.path(i)).filter(path => path.split(".").length < 3);
    const store = new GraphStore({ expanded: all });
    expect(reveal(many, store, "7.3.1")).toBe(true);
    expect(many.path(store.get("focus"))).toBe("7");
    expect(count(many, store)).toBeLessThanOrEqual(nodeLimit());
  });

  it("reaches the bottom of 5,000 levels", () => {
    const deep = deepNet(5000);
    const store = new GraphStore();
    expect(reveal(deep, store, deep.path(4999))).toBe(true);
    expect(store.get("expanded").length).toBeLessThan(30);
    expect(deep.isInside(4999, store.get("focus"))).toBe(true);
  });
});

describe("showInstance", () => {
  it("keeps open in the new member what was open in the old one", () => {
    const store = new GraphStore({ expanded: ["layer3", "layer3.1"] });
    showInstance(h, store, at("layer3.20"));
    expect(store.get("expanded")).toEqual(["layer3", "layer3.20"]);
    expect(visibleRows(h, store, at("layer3"))).toEqual([at("layer3.0"), at("layer3.20")]);
  });
});

describe("toggle", () => {
  it("opens and closes", () => {
    const store = new GraphStore();
    expect(toggle(h, store, at("layer2"))).toBe(true);
    expect(store.get("expanded")).toEqual(["layer2"]);
    expect(toggle(h, store, at("layer2"))).toBe(true);
    expect(store.get("expanded")).toEqual([]);
    expect(toggle(h, store, at("fc"))).toBe(true);
    expect(store.get("expanded")).toEqual([]);
  });

  it("refuses what would show too much", () => {
    const many = new Hierarchy(payloadOf(boxes(6, 90)));
    const store = new GraphStore();
    const done = many.children(0).map(child => toggle(many, store, child));
    expect(done).toEqual([true, true, true, true, true, false]);
    expect(store.get("notice")).toBe(tooMany());
    collapseOthers(many, store, many.children(0)[5]);
    expect(toggle(many, store, many.children(0)[5])).toBe(true);
    expect(store.get("expanded")).toEqual(["5"]);
  });
});

describe("expandAll", () => {
  it("opens all of a model that fits", () => {
    const store = new GraphStore();
    expandAll(h, store);
    expect(count(h, store)).toBe(86);
    expect(store.get("notice")).toBe("");
    collapseAll(h, store);
    expect(store.get("expanded")).toEqual([]);
  });

  it("stops at the soft limit and says so", () => {
    const many = new Hierarchy(payloadOf(boxes(10, 10, 10)));
    const store = new GraphStore();
    expandAll(many, store);
    expect(count(many, store)).toBeLessThanOrEqual(noticeLimit());
    expect(store.get("notice")).not.toBe("");
  });

  it("keeps to the inside of the focus", () => {
    const store = new GraphStore({ focus: at("layer1"), expanded: ["layer4"] });
    expandAll(h, store);
    expect(store.get("expanded")).toEqual(["layer4", "layer1.0", "layer1.1", "layer1.0.downsample"]);
    collapseAll(h, store);
    expect(store.get("expanded")).toEqual(["layer4"]);
  });

  it("survives 100,000 siblings", () => {
    const wide = wideNet(100_000);
    const store = new GraphStore();
    expandAll(wide, store);
    expect(visibleRows(wide, store, 0)).toHaveLength(100_000);
  });
});
