import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { hierarchyOf, smallNet, storeOf } from "../../testing/sample";
import { measurer } from "../shared/base/canvas";
import type { Hierarchy } from "../shared/model/hierarchy";
import type { CardStyle } from "./paint/card_style";
import type { PaintItem } from "./paint/text_lines";
import { GraphHover, neighbourOf } from "./navigation";
import { moduleCard } from "./scene/scene";

const wrap = document.createElement("div");
let hover: GraphHover;
let under: PaintItem | undefined;
let changes = 0;

beforeEach(() => {
  vi.useFakeTimers();
  document.body.append(wrap);
  under = undefined;
  changes = 0;
});

afterEach(() => {
  hover.leave();
  wrap.replaceChildren();
  vi.useRealTimers();
});

function cardOf(h: Hierarchy, node: number, kind?: "group"): PaintItem {
  const card = moduleCard(h, storeOf(), measurer(), node, -1);
  const rest = { depth: 0, container: false, family: "", fill: null, status: null, mark: null, flag: "" };
  const own = { ...card, kind: kind ?? card.kind };
  return { node: own, box: [0, 0, 200, 200], ...rest, dim: false, hit: false, onAxis: false, selected: false };
}

function pointAt(h: Hierarchy, item: PaintItem | undefined, y = 10): void {
  under = item;
  const decor = { hit: () => under?.node.id ?? null, itemOf: () => under, edges: () => [] };
  hover ??= new GraphHover(wrap, h, storeOf(), decor as unknown as CardStyle, () => (changes += 1));
  hover.point([5, y], 5, y, 1);
}

const told = () => (wrap.querySelector<HTMLElement>(".mkg-metric-tip:not([hidden])")?.textContent ?? "").trim();

describe("a card under the pointer", () => {
  const h = smallNet({ blocks: { "1": "residual branch" }, marks: { "1": ["not called"] } });

  beforeEach(() => (hover = undefined as unknown as GraphHover));

  it("stands out at once, and says more when the pointer rests", () => {
    pointAt(h, cardOf(h, 1));
    expect(hover.spots.over).toBe("conv1");
    expect(changes).toBe(1);
    expect(told()).toBe("");
    vi.advanceTimersByTime(1000);
    for (const text of ["conv1", "pack.Conv2d", "! not called", "− residual branch"]) expect(told()).toContain(text);
  });

  it("says nothing while the pointer goes over it, and no more when it has left", () => {
    for (let step = 0; step < 10; step += 1) {
      pointAt(h, cardOf(h, 1));
      vi.advanceTimersByTime(100);
    }
    expect(told()).toBe("");
    vi.advanceTimersByTime(1000);
    expect(told()).not.toBe("");
    hover.point(null, 0, 0, 1);
    expect([told(), hover.spots.over]).toEqual(["", null]);
    vi.advanceTimersByTime(1000);
    expect(told()).toBe("");
  });

  it("tells what a fold stands for", () => {
    pointAt(h, cardOf(h, 4));
    vi.advanceTimersByTime(1000);
    expect(told()).toContain("×4 same structure, own weights");
  });

  it("is a frame only where its header is", () => {
    pointAt(h, cardOf(h, 3, "group"), 100);
    expect(hover.spots.over).toBeNull();
    pointAt(h, cardOf(h, 3, "group"), 20);
    expect(hover.spots.over).toBe("layer1");
  });

  it("shows hostile names as text", () => {
    const hostile = hierarchyOf({ inside: [{ name: "<img src=x>", cls: "<b>" }] });
    pointAt(hostile, cardOf(hostile, 1));
    vi.advanceTimersByTime(1000);
    expect(told()).toContain("<img src=x>");
    expect(wrap.querySelector("img, b")).toBeNull();
  });
});

describe("the arrow keys", () => {
  /** Ids as "name" or "name@frame"; "x#2" is another card of the module x, "+…" an operator, "(…" an end. */
  const drawn = (...ids: string[]) =>
    ids.map(text => {
      const [id, frame] = text.split("@");
      const index = /^[+(]/.test(id) ? -1 : ids.findIndex(other => other.split(/[@#]/)[0] === id.split("#")[0]);
      const parent = frame === undefined ? -1 : ids.findIndex(other => other.split("@")[0] === frame);
      return { node: { id, index, parent, kind: id.startsWith("(") ? "pseudo" : "module" } } as unknown as PaintItem;
    });
  const items = drawn("(in", "conv", "block", "relu#1", "+", "relu#2", "(out", "norm@block", "+2@block");
  const walk = (id: string, direction: number) => {
    const found = [];
    for (let at = neighbourOf(items, id, direction); at; at = neighbourOf(items, at.node.id, direction)) {
      found.push(at.node.id);
    }
    return found.join(" ");
  };

  it("walk through modules and groups of operators, into open frames and out of them", () => {
    expect(walk("conv", 1)).toBe("block norm +2 relu#1 +");
    expect(walk("+", -1)).toBe("relu#1 block conv");
    expect(walk("+2", -1)).toBe("norm block conv");
  });

  it("lead nowhere from what is not drawn", () => expect(neighbourOf(items, "other", 1)).toBeUndefined());
});
