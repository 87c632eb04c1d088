import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { VirtualList } from "./virtual_list";

let scroller: HTMLElement;
let names: string[];
let active: number;
let list: VirtualList<string>;

const rows = () => Array.from(list.space.children, row => row.textContent);

beforeEach(() => {
  scroller = document.createElement("div");
  document.body.append(scroller);
  names = Array.from({ length: 1000 }, (_, i) => `row ${i}`);
  active = 0;
  list = new VirtualList(
    scroller,
    { rowHeight: 10, overscan: 2, assumed: 5, all: 3, below: 1 },
    {
      count: () => names.length,
      key: index => names[index],
      make: index => {
        const row = document.createElement("div");
        row.textContent = names[index];
        row.tabIndex = -1;
        return row;
      },
      draw: (row, index) => void (row.dataset.index = String(index)),
      active: () => active
    }
  );
  Object.defineProperty(scroller, "clientHeight", { value: 100, configurable: true });
  list.render();
});

afterEach(() => {
  list.dispose();
  scroller.remove();
});

describe("VirtualList", () => {
  it("keeps the rows near the view in the page, in order, and the active one", () => {
    expect(list.space.style.height).toBe("10010px");
    expect(rows()).toEqual(names.slice(0, 12));
    scroller.scrollTop = 5000;
    scroller.dispatchEvent(new Event("scroll"));
    expect(rows()).toEqual(["row 0", ...names.slice(498, 512)]);
    active = 900;
    list.render();
    expect(rows()).toEqual([...names.slice(498, 512), "row 900"]);
    expect(list.element("row 900")?.style.top).toBe("9000px");
  });

  it("has every row of a short list", () => {
    names = names.slice(0, 3);
    Object.defineProperty(scroller, "clientHeight", { value: 10 });
    list.render();
    expect(rows()).toEqual(names);
  });

  it("keeps the element of a row that moves", () => {
    const before = list.element("row 5");
    names.splice(0, 2);
    list.render();
    expect(list.element("row 5")).toBe(before);
    expect(before?.dataset.index).toBe("3");
    expect(rows()).toEqual(names.slice(0, 12));
  });

  it("never loses the focus", () => {
    list.focus("row 0");
    scroller.scrollTop = 5000;
    list.render();
    expect(document.activeElement?.textContent).toBe("row 0");
    active = 501;
    list.render();
    expect(document.activeElement?.textContent).toBe("row 501");
  });

  it("brings a row into view, with room around it where there is some", () => {
    expect(list.show(50, 2)).toBe(true);
    expect(scroller.scrollTop).toBe(430);
    list.show(42, 1, 0); // is nearer to the edge than it would be brought, and in view
    expect(scroller.scrollTop).toBe(420 - 10);
    expect(list.show(45, 1, 0)).toBe(false);
    expect(scroller.scrollTop).toBe(410);
    expect(list.page).toBe(9);
  });

  it("shows what it could not once it has a size", () => {
    Object.defineProperty(scroller, "clientHeight", { value: 0, configurable: true });
    list.show(70);
    expect(scroller.scrollTop).toBe(0);
  });

  it("asks for no row that there is not", () => {
    for (active of [-1, 1000, Number.NaN]) {
      list.render();
      expect(rows()).toEqual(names.slice(0, 12));
    }
  });

  it("knows the row that an event comes from", () => {
    const inside = document.createElement("b");
    list.element("row 3")?.append(inside);
    expect([list.keyAt(inside), list.keyAt(list.space), list.keyAt(null)]).toEqual(["row 3", undefined, undefined]);
  });

  it("draws several changes of one task once, and none when it is gone", async () => {
    names = ["a"];
    list.schedule();
    list.schedule();
    await Promise.resolve();
    expect(rows()).toEqual(["a"]);
    names = ["b"];
    list.schedule();
    list.dispose();
    await Promise.resolve();
    expect(rows()).toEqual(["a"]);
  });
});
