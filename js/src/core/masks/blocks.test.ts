import { afterEach, describe, expect, it } from "vitest";
import { click, mount, unmount } from "../../testing/mask_view";
import { BLOCKS, brush, confirm, dropped, ENTRY, known, openSession, THREE, withBlocks } from "../../testing/masks";
import { press } from "../../testing/sample";
import type { EditorState } from "./session/editor_context";

afterEach(unmount);

const session = () => openSession(THREE, withBlocks());
const [OUTER, INNER, OTHER] = [0, 1, 2];

describe("blocks in a draft", () => {
  it("are bits behind those of the axes, sent and known as these", () => {
    const { channel, session: own } = session();
    own.remove(OTHER, true);
    const [sent] = channel.sent;
    expect([sent.content.axes, (sent.content.bits as DataView).getUint8(0)]).toEqual([[ENTRY], 0b100]);
    confirm(own, sent, 1);
    expect([own.data?.draft.isKnown, own.data?.blocks.removed]).toEqual([true, [OTHER]]);
    own.setDraft(known(2, { [ENTRY]: [0b10] }));
    expect(own.data?.blocks.removed).toEqual([INNER]);
  });

  it("may all go, as no axis may", () => {
    const { session: own } = session();
    for (const block of [OUTER, INNER, OTHER]) own.remove(block, true);
    expect(dropped(own)[ENTRY]).toEqual([0, 1, 2]);
  });

  it("go with the one that they lie in, and are themselves again without it", () => {
    const { session: own } = session();
    own.remove(INNER, true);
    own.remove(OUTER, true);
    const { blocks } = own.data ?? {};
    expect([blocks?.removed, [...(blocks?.gone ?? [])], blocks?.goesWith(INNER)]).toEqual([[OUTER], [0, 1], OUTER]);
    own.remove(OUTER, false);
    expect([blocks?.removed, blocks?.goesWith(INNER)]).toEqual([[INNER], -1]);
  });

  it("are taken back and made again, with what was drawn before", () => {
    const { session: own } = session();
    brush(own, 1, [0, 1]);
    own.remove(OUTER, true);
    own.step("undo");
    expect([dropped(own)[1], own.data?.blocks.removed]).toEqual([[0, 1], []]);
    own.step("undo");
    expect(own.data?.isEmpty).toBe(true);
    own.step("redo");
    own.step("redo");
    expect([dropped(own)[1], own.data?.blocks.removed]).toEqual([[0, 1], [OUTER]]);
  });

  it("keep their axes as these were drawn, and ratios away from them", () => {
    const { session: own } = session();
    brush(own, 1, [0]);
    own.remove(INNER, true);
    brush(own, 1, [3, 4]);
    own.begin();
    own.dropRatio(0.5, "local");
    own.commit();
    expect(dropped(own).slice(0, 2)).toEqual([[1, 3], [0]]);
    expect(own.ratioAxes()).toEqual([0]);
    own.remove(INNER, false);
    expect(own.ratioAxes()).toEqual([0, 1]);
  });

  it("count once, whatever else goes from them", () => {
    const { session: own } = session();
    const totals = () => own.data?.counters.totals();
    const before = totals();
    own.remove(INNER, true);
    expect(totals()?.params).toEqual({ before: 148, after: 108 }); // 4 · 3 · 9 of conv1 are left
    expect(totals()?.flops).toEqual(before?.flops); // what costs something goes with the outer one
    expect(own.data?.isApproximate).toBe(true);
    brush(own, 0, [1]);
    expect(totals()?.params.after).toBe(81);
    expect(own.data?.dropped()).toEqual({ indices: 1, axes: 1, blocks: 1 });
    own.remove(INNER, false);
    brush(own, 1, [0, 1]);
    const drawn = totals();
    own.remove(OUTER, true);
    expect(own.data?.dropped()).toEqual({ indices: 1, axes: 1, blocks: 1 });
    expect(totals()?.flops.after).toBe(2 * 3 * 3 * 10 - 2 * 3 * 3 * 2);
    own.remove(OUTER, false);
    expect(totals()).toEqual(drawn);
  });
});

function shown(state: Partial<EditorState> = {}) {
  const view = mount(THREE, state, withBlocks());
  const line = (path: string) => view.find(`[data-mkg-block="${path}"]`);
  const toggle = (path: string) => line(path).querySelector(".mkg-mask-block-toggle") as HTMLButtonElement;
  const flush = async () => new Promise(resolve => requestAnimationFrame(resolve));
  return { ...view, line, toggle, flush };
}

describe("the rows of blocks", () => {
  it("are not there without blocks", () => {
    const { host } = mount();
    expect(host.querySelector(".mkg-mask-blocks, .mkg-mask-blocks-heading")).toBeNull();
  });

  it("say what each has, and fold those that lie in others", () => {
    const { find, line } = shown();
    const cells = [...line("block").querySelectorAll("th, td")].map(({ textContent }) => textContent);
    expect(cells).toEqual(["block", "40", "600", "0.5", "Keep"]);
    expect(line("block.conv2").hidden).toBe(true);
    const fold = line("block").querySelector("button.mkg-mask-block-fold") as HTMLButtonElement;
    fold.click();
    expect([line("block.conv2").hidden, fold.getAttribute("aria-expanded")]).toEqual([false, "true"]);
    expect(line("block.conv2").textContent).toBe("conv240480–Keep");
    expect(line("block.conv2").querySelector(".mkg-mask-name")?.getAttribute("aria-label")).toBe("block.conv2");
    expect(find(".mkg-mask-blocks thead").textContent).toContain("block influence");
    expect(find(".mkg-mask-blocks-heading").textContent).toBe("2 blocks can be removed as a whole, 1 nested");
  });

  it("keep the end of a long name in sight", () => {
    const { host } = mount(THREE, {}, withBlocks({ path: ["encoder.layers.10", "encoder.layers.10.mlp", "b"] }));
    const parts = (row: Element) =>
      [...row.querySelectorAll(".mkg-mask-name span")].map(({ textContent }) => textContent);
    const rows = [...host.querySelectorAll(".mkg-mask-block")].map(parts);
    expect(rows).toContainEqual(["encoder", ".layers.10"]);
  });

  it("are switched by a click, and those in them with them", async () => {
    const { session: own, toggle, line, row, find, flush } = shown();
    own.remove(INNER, true);
    await flush();
    expect(line("block.conv2").hidden).toBe(false); // what goes is seen
    expect(toggle("block.conv2").getAttribute("aria-pressed")).toBe("true");
    expect(row(1).querySelector(".mkg-mask-away")?.textContent).toBe("Removed with block.conv2");
    toggle("block").click();
    await flush();
    expect(toggle("block").textContent).toBe("Remove");
    expect([toggle("block.conv2").textContent, toggle("block.conv2").getAttribute("aria-disabled")]).toEqual([
      "Removed with block",
      "true"
    ]);
    toggle("block.conv2").click();
    expect([own.notice, own.data?.blocks.removed]).toEqual([
      "block.conv2 is removed with block. Restore block first.",
      [OUTER]
    ]);
    expect(find(".mkg-mask-dropped").textContent).toBe("1 block removed");
    toggle("block").click();
    await flush();
    expect(own.data?.blocks.removed).toEqual([INNER]);
  });

  it("keep a hand from their axes, and say why", async () => {
    const { session: own, strip, flush } = shown();
    own.remove(OUTER, true);
    await flush();
    click(strip(1), 3);
    expect([dropped(own)[1], own.notice]).toEqual([[], "conv2.weight[0] is removed with block. Restore block first."]);
    expect(strip(1).getAttribute("aria-readonly")).toBe("true");
  });

  it("are gone through with the arrow keys", () => {
    const { toggle } = shown();
    toggle("block").focus();
    press(toggle("block"), "ArrowDown");
    expect(document.activeElement).toBe(toggle("conv1")); // the one between is folded
    press(toggle("conv1"), "ArrowDown");
    expect(document.activeElement).toBe(toggle("conv1"));
    press(toggle("conv1"), "Home");
    expect(document.activeElement).toBe(toggle("block"));
  });

  it("are found by their paths", () => {
    const { store, line, find } = shown();
    store.set("query", "conv2");
    expect([line("block").hidden, line("block.conv2").hidden]).toEqual([true, false]);
    expect(find(".mkg-search-count").textContent).toBe("1 of 3 blocks, 2 of 3 groups");
    store.set("query", "nothing");
    expect([find(".mkg-mask-blocks").hidden, find(".mkg-mask-empty").hidden]).toEqual([true, false]);
    store.set("query", "");
    expect([line("block").hidden, find(".mkg-mask-blocks").hidden]).toEqual([false, false]);
  });

  it("are folded where there are very many", () => {
    const many = Array.from({ length: 13 }, (_, at) => `layers.${at}`);
    const none = many.map(() => -1);
    const columns = { path: many, params: none.map(() => 1), flops: none.map(() => 1), score: none, within: none };
    const more = withBlocks({ ...columns, approximate: many.map(() => false) });
    const { find } = mount(THREE, {}, more);
    const fold = find(".mkg-mask-blocks-heading button");
    expect([fold.getAttribute("aria-expanded"), find(".mkg-mask-blocks").hidden]).toEqual(["false", true]);
    fold.click();
    expect([fold.getAttribute("aria-expanded"), find(".mkg-mask-blocks").hidden]).toEqual(["true", false]);
  });

  it("select their module, and are marked where it is selected", () => {
    const { store, line } = shown({ selected: "conv1" });
    expect(line("conv1").classList.contains("mkg-is-on-module")).toBe(true);
    (line("block").querySelector(".mkg-mask-name") as HTMLElement).click();
    expect(store.get("selected")).toBe("block");
    expect([line("block"), line("conv1")].map(row => row.classList.contains("mkg-is-on-module"))).toEqual([
      true,
      false
    ]);
  });

  it("are in the question before a cut", async () => {
    const { session: own, find, flush } = shown();
    brush(own, 0, [1]);
    own.remove(OUTER, true);
    await flush();
    find(".mkg-mask-cut").click();
    expect(find(".mkg-mask-dialog-title").textContent).toBe("Cut 1 channel in 1 group and 1 block?");
  });

  it("show hostile paths as text", () => {
    const path = "<img src=x onerror=alert(1)>";
    const { host } = mount(THREE, {}, withBlocks({ path: [path, ...BLOCKS.path.slice(1)], importance: path }));
    expect(host.querySelector("img")).toBeNull();
    expect(host.querySelector(".mkg-mask-block .mkg-mask-name")?.textContent).toBe(path);
  });
});
