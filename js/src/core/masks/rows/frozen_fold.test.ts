import { afterEach, describe, expect, it } from "vitest";
import { mount, unmount } from "../../../testing/mask_view";
import type { AxisSample } from "../../../testing/masks";
import { press } from "../../../testing/sample";

afterEach(unmount);

const frozen = (name: string, reason: string): AxisSample => ({
  name,
  scores: [NaN, NaN, NaN],
  frozen: reason,
  members: [[`${name}.weight`, 2]]
});
const AXES: readonly AxisSample[] = [
  frozen("a.kernel", "positions of the kernel: aten::convolution in a, conv.py:5"),
  { name: "a.out", scores: [1, 2, 3], members: [["a.weight", 0]] },
  frozen("b.kernel", "positions of the kernel: aten::convolution in b, conv.py:5"),
  frozen("a.in", "model input"),
  frozen("c", "c.weight is not read by this forward pass"),
  frozen("d", "d.weight is not read by this forward pass"),
  frozen("e", "another one"),
  frozen("f", "one more")
];

function folded() {
  const view = mount(AXES);
  const toggle = view.find(".mkg-mask-fold-toggle");
  const list = document.getElementById(toggle.getAttribute("aria-controls") ?? "") as HTMLElement;
  return { ...view, toggle, list, state: () => [toggle.getAttribute("aria-expanded"), list.hidden] };
}

describe("the frozen axes", () => {
  it("are one line, with a count and how many there are for each reason", () => {
    const { toggle, list, state } = folded();
    expect(state()).toEqual(["false", true]);
    expect(list.childElementCount).toBe(7);
    expect(toggle.textContent).toBe(
      "7 fixed: 2 × positions of the kernel, 2 × … is not read by this forward pass, 1 × model input, " +
        "1 × another one, 1 more reason"
    );
    expect(toggle.title.split("\n")).toHaveLength(5);
  });

  it("unfold with a click or a key, and fold again", () => {
    const { toggle, state } = folded();
    expect(toggle.matches("button:not([tabindex='-1'])")).toBe(true); // enter and space are its own
    toggle.click();
    expect(state()).toEqual(["true", false]);
    toggle.click();
    expect(state()).toEqual(["false", true]);
  });

  it("are shown while a search finds some of them, and when one is chosen", () => {
    const { store, state, toggle, find } = folded();
    store.set("query", "b.kernel");
    expect(state()).toEqual(["true", false]);
    store.set("query", "a.out");
    expect([state()[0], (toggle.parentElement as HTMLElement).hidden]).toEqual(["false", true]);
    store.set("query", "");
    expect([state()[0], (toggle.parentElement as HTMLElement).hidden]).toEqual(["false", false]);
    store.set("axis", "a.out");
    expect(state()).toEqual(["false", true]);
    store.set("axis", "a.in");
    expect(state()).toEqual(["true", false]);
    expect(find("[aria-current]").dataset.mkgAxis).toBe("3");
  });

  it("stay open when they were opened by hand, whatever is sought", () => {
    const { store, state, toggle, find } = folded();
    toggle.click();
    store.set("query", "b.kernel");
    press(find(".mkg-search input"), "Escape");
    expect(state()).toEqual(["true", false]);
  });

  it("have no line where there are none", () => {
    const { host } = mount([AXES[1]]);
    expect(host.querySelector(".mkg-mask-fold")).toBeNull();
  });
});
