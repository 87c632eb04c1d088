// Payloads of the mask editor, and a way to the kernel that only keeps what it is given.

import type { Drawing } from "../core/masks/draft/bit_table";
import { type Channel, Session } from "../core/masks/session/session";

export interface AxisSample {
  name: string;
  scores: readonly number[];
  frozen?: string;
  members?: readonly (readonly [string, number])[];
  role?: string;
  byRatio?: boolean;
}

export const THREE: readonly AxisSample[] = [
  {
    name: "conv1.weight[0]",
    scores: [3, 1, 2, 1],
    members: [
      ["conv1.weight", 0],
      ["conv2.weight", 1]
    ]
  },
  {
    name: "conv2.weight[0]",
    scores: [1, 1, 1, 1, 1, 1, 2, 1, 1, 1],
    role: "heads",
    members: [["block.conv2.weight", 0]]
  },
  { name: "fc.weight[0]", scores: [NaN, NaN, NaN], frozen: "the model gives it out", members: [["fc.weight", 0]] }
];

/** conv1: (4, 3, 9) and conv2: (10, 4) with a buffer of (10), as parameters and operators. */
export function maskPayload(axes: readonly AxisSample[] = THREE, more: Record<string, unknown> = {}) {
  const reasons = [...new Set(axes.flatMap(({ frozen }) => frozen ?? []))];
  return {
    schema_version: 1,
    kind: "mask_editor",
    title: "Net",
    axes: {
      name: axes.map(({ name }) => name),
      label: axes.map(({ name }) => name),
      size: axes.map(({ scores }) => scores.length),
      role: axes.map(({ role }) => role ?? null),
      frozen: axes.map(({ frozen }) => (frozen === undefined ? -1 : reasons.indexOf(frozen))),
      reasons,
      members: axes.map(({ members }) => members ?? []),
      by_ratio: axes.map(({ frozen, byRatio }) => frozen === undefined && byRatio !== false)
    },
    modules: ["conv1", "block.conv2", "fc"],
    terms: [0, 1, ["*", 0, ["+", 1, -2]], -3],
    tensors: [
      [0, 1, 4, 9, [0, 3]],
      [1, 1, 4, 1, [1, 0]],
      [1, 0, 8, 1, [1]]
    ],
    flops: [
      [2, [0, 0, 1]],
      [5, [2]]
    ],
    approximate: false,
    generation: 1,
    importances: ["l1", "l2"],
    ...more
  };
}

/** Of that model: a block with another one in it, which has the second axis, and a block beside them. */
export const BLOCKS = {
  path: ["block", "block.conv2", "conv1"],
  params: [40, 40, 108],
  flops: [600, 480, "90071992547409930"],
  score: [0.5, "NaN", 2],
  within: [-1, 0, -1],
  approximate: [false, true, false],
  importance: "block influence",
  of_axes: [-1, 1, -1],
  of_tensors: [2, 1, 0],
  of_flops: [-1, 0]
};
export const ENTRY = 3; // of the blocks, behind the axes

/** As more of a payload. */
export const withBlocks = (more: Partial<Record<keyof typeof BLOCKS, unknown>> = {}) => ({
  schema_version: 2,
  blocks: { ...BLOCKS, ...more }
});

export function scoresOf(axes: readonly AxisSample[], width: 4 | 8 = 4): DataView {
  const every = axes.flatMap(({ scores }) => scores);
  const view = new DataView(new ArrayBuffer(width * every.length + 4), 4); // does not begin with its buffer
  every.forEach((score, at) => {
    if (width === 4) view.setFloat32(4 * at, score, true);
    else view.setFloat64(8 * at, score, true);
  });
  return view;
}

interface Sent {
  content: Record<string, unknown>;
  taken?: () => void;
}

export class FakeChannel implements Channel {
  readonly sent: Sent[] = [];
  isLive = true;

  sendDraft(drawing: Drawing): void {
    this.sent.push({ content: { type: "draw", ...drawing } });
  }

  send(content: Record<string, unknown>, taken?: () => void): void {
    this.sent.push({ content, taken });
  }

  types(): unknown[] {
    return this.sent.map(({ content }) => content.type);
  }
}

/** The indices that go, of each axis. */
export function dropped({ data }: Session): number[][] {
  if (!data) return [];
  const { draft } = data;
  return draft.sizes.map((size, axis) => [...Array(size).keys()].filter(index => draft.isRemoved(axis, index)));
}

export function openSession(axes: readonly AxisSample[] = THREE, more: Record<string, unknown> = {}) {
  const channel = new FakeChannel();
  const session = new Session(channel);
  session.load(maskPayload(axes, more), undefined, scoresOf(axes), 0);
  return { channel, session };
}

/** A whole gesture. */
export function brush(session: Session, axis: number, indices: number[], goes = true): void {
  session.begin();
  session.paint(axis, indices, goes);
  session.commit();
}

/** What the kernel has: by number of the axis the bytes of the axes that lose indices. */
export function known(revision: number, goes: Readonly<Record<number, readonly number[]>>, by = "") {
  const bits = new DataView(Uint8Array.from(Object.values(goes).flat()).buffer);
  return { revision, by, axes: Object.keys(goes).map(Number), bits };
}

/** What a page has drawn, as `known` takes it. */
export function draftOf({ content }: Sent): Record<string, number[]> {
  const { axes, bits } = content as unknown as Drawing;
  const sizes = THREE.map(({ scores }) => (scores.length + 7) >> 3);
  let at = 0;
  return Object.fromEntries(
    axes.map(axis => {
      const parts = Array.from({ length: sizes[axis] }, (_, byte) => bits.getUint8(at + byte));
      at += sizes[axis];
      return [axis, parts];
    })
  );
}

/** The kernel takes what was drawn. */
export function confirm(session: Session, { content }: Sent, revision: number): void {
  session.setDraft({ ...content, revision });
}
