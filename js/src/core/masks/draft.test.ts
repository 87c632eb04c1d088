import { describe, expect, it } from "vitest";
import { BitTable, bytesOf, difference, ones } from "./bits";
import { Draft, packed, unpacked } from "./draft";

const SIZES = [10, 3, 16];
const last = (axis: number) => SIZES[axis] - 1;
const draftOf = (bits: number[] | null = null) => new Draft(SIZES, bits && Uint8Array.from(bits), last);
const indices = (draft: Draft, axis: number) =>
  Array.from({ length: SIZES[axis] }, (_, at) => at).filter(at => draft.goes(axis, at));

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
    expect([draft.dropped(2), draft.kept(0), draft.isOpen]).toEqual([3, 10, false]);
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
    const told: number[][] = [];
    const stop = draft.onChange(axes => told.push([...axes]));
    draft.set(2, [1], true);
    draft.dropFirst(0, Uint32Array.of(3, 4, 5), 2);
    stop();
    draft.set(2, [2], true);
    expect([told, indices(draft, 0)]).toEqual([
      [[2], [0]],
      [3, 4]
    ]);
  });
});

describe("what the kernel says", () => {
  const edit = (id: string, axis: number, start: number, ...after: number[]) => ({
    id,
    patches: [{ axis, start, after: Uint8Array.from(after) }]
  });

  it("goes under what it has not confirmed", () => {
    const draft = draftOf();
    const patches = brushed(draft, 0, [0]);
    draft.send({ id: "own", patches });
    draft.apply(edit("other", 0, 0, 0b110));
    expect(indices(draft, 0)).toEqual([0]); // the bytes of ours are absolute
    draft.apply({ id: "own", patches });
    expect([indices(draft, 0), draft.pending.length]).toEqual([[0], 0]);
    draft.apply(edit("other", 0, 1, 1));
    expect(indices(draft, 0)).toEqual([0, 8]);
  });

  it("goes under an open gesture, bit by bit", () => {
    const draft = draftOf();
    draft.begin();
    draft.set(0, [1], true);
    draft.apply(edit("other", 0, 0, 0b1000));
    expect(indices(draft, 0)).toEqual([1, 3]);
    expect(draft.commit()).toEqual([{ axis: 0, start: 0, before: Uint8Array.of(8), after: Uint8Array.of(10) }]);
  });

  it("replaces all but what is on its way, and drops what is refused", () => {
    const draft = draftOf();
    draft.send({ id: "a", patches: brushed(draft, 0, [0]) });
    draft.send({ id: "b", patches: brushed(draft, 2, [0]) });
    expect(draft.replace(Uint8Array.of(0, 2, 1, 0, 0), "a")).toBe(true);
    expect([0, 1, 2].map(axis => indices(draft, axis))).toEqual([[9], [0], [0]]);
    expect(draft.pending.map(({ id }) => id)).toEqual(["b"]);
    expect(draft.replace(Uint8Array.of(1), null)).toBe(false);
  });
});

describe("messages", () => {
  it("carry the bytes one after the other, less than 1 KB for an axis of 2,048", () => {
    const draft = new Draft([2048], null, () => 0);
    draft.begin();
    draft.set(0, [0, 2047], true);
    const { content, buffer } = packed({ id: "abcdefgh-1", patches: draft.commit() });
    expect(content).toEqual({ type: "edit", id: "abcdefgh-1", edits: [[0, 0, 256]] });
    expect(JSON.stringify(content).length + buffer.length).toBeLessThan(1024);
  });

  it("are read back", () => {
    const draft = draftOf();
    draft.begin();
    draft.set(0, [9], true);
    draft.set(2, [0], true);
    const edit = { id: "x", patches: draft.commit() };
    const { content, buffer } = packed(edit);
    const read = unpacked("x", content.edits, buffer, SIZES);
    expect(read?.patches.map(({ axis, start, after }) => [axis, start, [...after]])).toEqual([
      [0, 1, [2]],
      [2, 0, [1]]
    ]);
  });

  it.each([
    ["no list", "x", 2],
    ["an axis that is none", [[3, 0, 1]], 2],
    ["bytes behind the axis", [[0, 1, 2]], 2],
    ["a start before it", [[0, -1, 1]], 2],
    ["more bytes than came", [[0, 0, 2]], 1]
  ])("are not read with %s", (_, edits, length) => {
    expect(unpacked("x", edits, new Uint8Array(length), SIZES)).toBeNull();
  });
});
