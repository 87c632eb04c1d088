import { describe, expect, it } from "vitest";
import { BitTable, bytesOf, difference, ones, packed, readKernelDraft, unpacked } from "./bit_table";
import { Draft } from "./draft";

const SIZES = [10, 3, 16];
const last = (axis: number) => SIZES[axis] - 1;
const draftOf = (bits: number[] | null = null) => new Draft(SIZES, bits && Uint8Array.from(bits), last);
const indices = (draft: Draft, axis: number) =>
  Array.from({ length: SIZES[axis] }, (_, at) => at).filter(at => draft.isRemoved(axis, at));

function brushed(draft: Draft, axis: number, own: number[], goes = true) {
  draft.begin();
  draft.set(axis, own, goes);
  return draft.commit();
}

describe("bits", () => {
  it("begin with a byte of their own for every axis, the first index lowest", () => {
    const table = new BitTable(SIZES);
    expect([table.starts, table.total]).toEqual([[0, 2, 3], 5]);
    const draft = draftOf([0b00000101, 0b10, 0b010, 0, 0x80]);
    expect([0, 1, 2].map(axis => indices(draft, axis))).toEqual([[0, 2, 9], [1], [15]]);
  });

  it("ignores what lies behind an axis' last index", () => {
    const draft = draftOf([0, 0xfc, 0xf8, 0, 0]);
    expect([0, 1].map(axis => draft.dropped(axis))).toEqual([0, 0]);
    expect(ones(draft.bits)).toBe(0);
  });

  it("takes bits of another length for none", () => {
    expect([...draftOf([1, 1]).bits]).toEqual([0, 0, 0, 0, 0]);
  });

  it("finds where two differ", () => {
    expect(difference(Uint8Array.of(1, 2, 3, 4), Uint8Array.of(1, 0, 3, 0))).toEqual([1, 4]);
    expect(difference(Uint8Array.of(1), Uint8Array.of(1))).toBeNull();
  });

  it("are copied from any view", () => {
    const buffer = Uint8Array.of(9, 8, 7).buffer;
    expect([...(bytesOf(new DataView(buffer, 1)) ?? [])]).toEqual([8, 7]);
    expect([...(bytesOf(buffer) ?? [])]).toEqual([9, 8, 7]);
    expect(bytesOf([1])).toBeNull();
  });
});

describe("a gesture", () => {
  it("is one patch of the bytes that changed", () => {
    const draft = draftOf();
    draft.begin();
    draft.set(2, [1], true);
    draft.set(2, [9, 10], true);
    draft.set(0, [4], true);
    draft.set(0, [4], false);
    expect(draft.commit()).toEqual([{ axis: 2, start: 0, before: Uint8Array.of(0, 0), after: Uint8Array.of(2, 6) }]);
    expect([draft.dropped(2), draft.remaining(0), draft.isOpen]).toEqual([3, 10, false]);
  });

  it("can be given up", () => {
    const draft = draftOf([1, 0, 0, 0, 0]);
    draft.begin();
    draft.set(0, [1, 2, 3], true);
    draft.cancel();
    expect([indices(draft, 0), draft.dropped(0)]).toEqual([[0], 1]);
  });

  it("never takes all: the most important one stays", () => {
    const draft = draftOf();
    brushed(draft, 1, [0, 1, 2]);
    expect(indices(draft, 1)).toEqual([0, 1]);
    expect(brushed(draft, 1, [2])).toEqual([]);
    brushed(draft, 1, [2], false);
    brushed(draft, 1, [0], false);
    expect(indices(draft, 1)).toEqual([1]);
  });

  it("tells of every change at once, with the axes", () => {
    const draft = draftOf();
    const changes: number[][] = [];
    const stop = draft.onChange(axes => changes.push([...axes]));
    draft.set(2, [1], true);
    draft.dropFirst(0, Uint32Array.of(3, 4, 5), 2);
    stop();
    draft.set(2, [2], true);
    expect([changes, indices(draft, 0)]).toEqual([
      [[2], [0]],
      [3, 4]
    ]);
  });
});

describe("what the kernel has", () => {
  const bits = (...bytes: number[]) => Uint8Array.from(bytes);

  it("is what was drawn here, which goes on", () => {
    const draft = draftOf();
    brushed(draft, 0, [0]);
    const first = draft.bits.slice();
    expect(draft.isKnown).toBe(false);
    brushed(draft, 0, [0], false);
    draft.confirm(first);
    expect([indices(draft, 0), draft.isKnown]).toEqual([[], false]);
    draft.confirm(draft.bits.slice());
    expect(draft.isKnown).toBe(true);
  });

  it("goes under what it does not have of ours, bit by bit", () => {
    const draft = draftOf([0b100, 0, 0, 0, 0]);
    brushed(draft, 0, [0]);
    brushed(draft, 0, [2], false);
    draft.merge(bits(0b1100, 1, 0b10, 0, 0));
    expect([0, 1, 2].map(axis => indices(draft, axis))).toEqual([[0, 3, 8], [1], []]);
    expect([draft.dropped(0), draft.isKnown]).toEqual([3, false]);
    draft.merge(bits(0b1001, 1, 0b10, 0, 0)); // it has all of it now
    expect([indices(draft, 0), draft.isKnown]).toEqual([[0, 3, 8], true]);
  });

  it("goes under an open gesture, bit by bit", () => {
    const draft = draftOf();
    draft.begin();
    draft.set(0, [1], true);
    draft.merge(bits(0b1000, 0, 0, 0, 0));
    expect(indices(draft, 0)).toEqual([1, 3]);
    expect(draft.commit()).toEqual([{ axis: 0, start: 0, before: Uint8Array.of(8), after: Uint8Array.of(10) }]);
  });

  it("is all that is left of a gesture that is given up", () => {
    const draft = draftOf();
    draft.begin();
    draft.set(0, [1], true);
    draft.merge(bits(0b1000, 0, 0, 0, 0));
    draft.cancel();
    expect([indices(draft, 0), draft.isKnown]).toEqual([[3], true]);
  });

  it("never takes all together with ours: the most important one stays", () => {
    const draft = draftOf();
    brushed(draft, 1, [0, 2]);
    draft.merge(bits(0, 0, 0b010, 0, 0));
    expect([indices(draft, 1), draft.isKnown]).toEqual([[0, 1], false]);
  });

  it("comes back when ours is refused; an open gesture goes on from there", () => {
    const draft = draftOf([1, 0, 0, 0, 0]);
    brushed(draft, 2, [0]);
    draft.begin();
    draft.set(0, [4], true);
    draft.revert();
    expect([0, 2].map(axis => indices(draft, axis))).toEqual([[0], []]);
    expect([draft.dropped(2), draft.isKnown, draft.isOpen]).toEqual([0, true, true]);
    draft.set(0, [5], true);
    expect(draft.commit()).toEqual([{ axis: 0, start: 0, before: Uint8Array.of(1), after: Uint8Array.of(33) }]);
  });
});

describe("a drawing", () => {
  const table = new BitTable(SIZES);

  it("has the bytes of the axes that lose indices alone, less than 1 KB for an axis of 2,048", () => {
    const wide = new BitTable([2048, 2048]);
    const bits = new Uint8Array(wide.total);
    bits[256] = bits[511] = 1;
    const { axes, bits: own } = packed(bits, wide);
    expect([axes, own.byteLength]).toEqual([[1], 256]);
  });

  it("is read back", () => {
    const bits = Uint8Array.of(0, 2, 0, 1, 0);
    const drawing = packed(bits, table);
    expect([drawing.axes, [0, 1, 2, 3].map(at => drawing.bits.getUint8(at))]).toEqual([
      [0, 2],
      [0, 2, 1, 0]
    ]);
    expect(unpacked(drawing, table)).toEqual(bits);
    expect(unpacked({ axes: [], bits: new DataView(new ArrayBuffer(0)) }, table)).toEqual(new Uint8Array(5));
  });

  it("is read where an earlier version has saved all bits", () => {
    expect(unpacked(new DataView(Uint8Array.of(0, 0xfe, 0, 1, 0).buffer), table)).toEqual(Uint8Array.of(0, 2, 0, 1, 0));
    expect(unpacked(new DataView(new ArrayBuffer(4)), table)).toBeNull();
  });

  it.each([
    ["no list", "x", 2],
    ["an axis that is none", [3], 2],
    ["an axis before the first", [-1], 2],
    ["an axis that is no number", ["0"], 2],
    ["bytes behind the axes", [0], 3],
    ["fewer bytes than axes", [0, 1], 2],
    ["bytes of nothing", [], 1]
  ])("is not read with %s", (_, axes, length) => {
    expect(unpacked({ axes, bits: new DataView(new ArrayBuffer(length)) }, table)).toBeNull();
  });

  it.each([[null], ["x"], [3], [{}], [{ axes: [0] }], [{ axes: [0], bits: "AA" }]])("is not read from %j", raw => {
    expect(unpacked(raw, table)).toBeNull();
  });

  it("is not the kernel's without a revision", () => {
    const own = { axes: [], bits: new DataView(new ArrayBuffer(0)) };
    expect(readKernelDraft({ ...own, base: 1, by: "x" }, table)).toBeNull();
    expect(readKernelDraft({ ...own, revision: "1" }, table)).toBeNull();
    expect(readKernelDraft({ ...own, revision: 1, by: 3 }, table)).toMatchObject({ revision: 1, by: "" });
  });
});
