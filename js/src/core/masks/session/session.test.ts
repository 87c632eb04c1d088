import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import {
  brush,
  confirm,
  draftOf,
  dropped,
  FakeChannel,
  known,
  maskPayload,
  openSession,
  scoresOf,
  THREE
} from "../../../testing/masks";
import { OTHER_VERSION } from "../../shared/base/schema";
import { Session } from "./session";

beforeEach(() => {
  vi.useFakeTimers();
});

afterEach(() => {
  vi.useRealTimers();
});

describe("Session", () => {
  it("sends nothing on its own", () => {
    const { channel } = openSession();
    vi.advanceTimersByTime(10_000);
    expect(channel.sent).toEqual([]);
  });

  it("says why there is nothing to edit", () => {
    const session = new Session(new FakeChannel());
    session.load({}, undefined, undefined, 0);
    expect([session.data, session.problem]).toEqual([null, ""]);
    session.load(maskPayload(THREE, { schema_version: 7 }), undefined, undefined, 0);
    expect([session.data, session.problem]).toEqual([null, OTHER_VERSION]);
  });

  it("makes one value of a gesture", () => {
    const { channel, session } = openSession();
    session.begin();
    session.paint(0, [1], true);
    session.paint(0, [3], true);
    session.commit();
    const [{ content }] = channel.sent;
    expect(content).toMatchObject({ type: "draw", generation: 1, base: 0, axes: [0] });
    expect([channel.sent.length, draftOf(channel.sent[0])]).toEqual([1, { 0: [0b1010] }]);
  });

  it("sends nothing for a gesture without effect", () => {
    const { channel, session } = openSession();
    session.setLocked(["conv1.weight[0]"]);
    brush(session, 0, [1]); // locked
    brush(session, 2, [1]); // frozen
    brush(session, 1, [1], false); // stays already
    expect([channel.sent, session.data?.history.canUndo]).toEqual([[], false]);
  });

  it("takes steps back and makes them again, each as one value", () => {
    const { channel, session } = openSession();
    brush(session, 0, [0, 1]);
    brush(session, 1, [9]);
    session.step("undo");
    session.step("undo");
    session.step("undo");
    expect(dropped(session)).toEqual([[], [], []]);
    session.step("redo");
    expect(dropped(session)).toEqual([[0, 1], [], []]);
    expect(channel.types()).toEqual(Array(5).fill("draw"));
    expect(channel.sent.map(draftOf)).toEqual([{ 0: [3] }, { 0: [3], 1: [0, 2] }, { 0: [3] }, {}, { 0: [3] }]);
    brush(session, 0, [3]);
    expect(session.data?.history.canRedo).toBe(false);
  });

  it("takes back its own bits only", () => {
    const { session, channel } = openSession();
    brush(session, 1, [0]);
    confirm(session, channel.sent[0], 1);
    session.setDraft(known(2, { 1: [0b111, 0] }));
    session.step("undo");
    expect(dropped(session)[1]).toEqual([1, 2]);
  });

  it("leaves locked axes alone when it takes a step back", () => {
    const { session, channel } = openSession();
    brush(session, 0, [0]);
    session.setLocked(["conv1.weight[0]"]);
    session.step("undo");
    expect([dropped(session)[0], channel.sent.length]).toEqual([[0], 1]);
    expect(session.notice).toContain("locked");
    session.setLocked([]);
    session.step("undo");
    expect(dropped(session)[0]).toEqual([]);
  });

  it("gives up what is refused and says why", () => {
    const { session, channel } = openSession();
    brush(session, 1, [9]);
    confirm(session, channel.sent[0], 1);
    brush(session, 0, [0]);
    brush(session, 1, [4]);
    const { by } = channel.sent[1].content;
    session.act("cut");
    session.receive({ type: "failed", action: "draw", by, text: "tied" });
    expect([dropped(session), session.notice, session.action]).toEqual([[[], [9], []], "tied", null]);
    session.step("undo"); // the steps that were refused are gone
    expect(dropped(session)).toEqual([[], [], []]);
    expect([session.data?.history.canUndo, channel.types()]).toEqual([false, ["draw", "draw", "draw", "draw"]]);
    session.setDraft({ ...channel.sent[2].content, revision: 2 }); // taken after all: it is another's by now
    expect(dropped(session)).toEqual([[0], [4], []]);
  });

  it("lets a refusal of what others drew alone", () => {
    const { session } = openSession();
    brush(session, 0, [0]);
    session.receive({ type: "failed", action: "draw", by: "another", text: "tied" });
    session.receive({ type: "failed", action: "draw", by: null, text: "tied" });
    expect([dropped(session)[0], session.notice]).toEqual([[0], "tied"]);
  });

  it("shows a plan that is set from Python", () => {
    const { session } = openSession();
    session.setDraft(known(2, { 0: [1], 1: [0, 2] }));
    expect(dropped(session)).toEqual([[0], [9], []]);
    for (const noise of [null, "noise", {}, { ...known(3, { 0: [1] }), axes: [9] }, known(1, {}), known(2, {})])
      session.setDraft(noise);
    session.receive("noise");
    expect(dropped(session)).toEqual([[0], [9], []]);
  });

  it("knows whether the report is of the draft as it stands", () => {
    const { session, channel } = openSession();
    session.setReport({ revision: 0, error: null });
    expect(session.isReportCurrent).toBe(true);
    brush(session, 0, [0]);
    expect(session.isReportCurrent).toBe(false);
    confirm(session, channel.sent[0], 1);
    expect(session.isReportCurrent).toBe(false);
    session.setReport({ revision: 1, error: null });
    expect(session.isReportCurrent).toBe(true);
    session.begin();
    expect(session.isReportCurrent).toBe(false);
  });
});

describe("the way to the kernel", () => {
  it("keeps what is drawn while there is none, and sends it when it answers", () => {
    const { session, channel } = openSession();
    channel.isLive = false;
    brush(session, 0, [0]);
    brush(session, 0, [1]);
    vi.advanceTimersByTime(5_000);
    expect(channel.sent).toEqual([]);
    expect(dropped(session)[0]).toEqual([0, 1]);
    channel.isLive = true;
    session.settle();
    expect(channel.sent.map(draftOf)).toEqual([{ 0: [3] }]);
  });

  it("sends what was lost with the next gesture", () => {
    const { session, channel } = openSession();
    brush(session, 0, [0]);
    brush(session, 1, [1]); // the first one never arrives
    expect(draftOf(channel.sent[1])).toEqual({ 0: [1], 1: [2, 0] });
    confirm(session, channel.sent[1], 1);
    expect([dropped(session), session.data?.draft.isKnown]).toEqual([[[0], [1], []], true]);
  });

  it("does not repeat what was confirmed", () => {
    const { session, channel } = openSession();
    brush(session, 0, [0]);
    confirm(session, channel.sent[0], 1);
    session.settle();
    vi.advanceTimersByTime(5_000);
    expect(channel.types()).toEqual(["draw", "check"]);
  });

  it("is never ahead of the hand: an answer to the last but one gesture takes nothing back", () => {
    const { session, channel } = openSession();
    brush(session, 0, [0]);
    brush(session, 0, [0], false);
    brush(session, 0, [1]);
    confirm(session, channel.sent[0], 1);
    expect([dropped(session)[0], session.data?.draft.isKnown]).toEqual([[1], false]);
    confirm(session, channel.sent[2], 2); // the kernel was busy: the second was never sent
    expect([dropped(session)[0], session.data?.draft.isKnown]).toEqual([[1], true]);
  });

  it("puts what is drawn here on what others drew meanwhile, and sends that", () => {
    const { session, channel } = openSession();
    brush(session, 0, [0]);
    expect(session.setDraft(known(1, { 1: [4, 0] }, "another page"))).toBe(true); // so ours is not taken
    expect(dropped(session)).toEqual([[0], [2], []]);
    session.settle();
    expect([channel.sent[1].content.base, draftOf(channel.sent[1])]).toEqual([1, { 0: [1], 1: [4, 0] }]);
    confirm(session, channel.sent[1], 2);
    session.settle();
    expect([channel.sent.length, session.data?.draft.isKnown]).toEqual([2, true]);
  });

  it("does not send an open gesture when others draw, and all at its end", () => {
    const { session, channel } = openSession();
    session.begin();
    session.paint(0, [0], true);
    session.setDraft(known(1, { 1: [4, 0] }));
    session.settle();
    expect(channel.sent).toEqual([]);
    session.commit();
    expect(channel.sent.map(draftOf)).toEqual([{ 0: [1], 1: [4, 0] }]);
  });
});

describe("dry runs", () => {
  /** A gesture that the kernel takes at once. */
  function draw(session: Session, channel: FakeChannel, axis: number, indices: number[], revision: number): void {
    brush(session, axis, indices);
    confirm(session, channel.sent[channel.sent.length - 1], revision);
  }

  it("follow 600 ms after the last gesture, one at a time", () => {
    const { session, channel } = openSession();
    draw(session, channel, 0, [0], 1);
    vi.advanceTimersByTime(500);
    draw(session, channel, 0, [1], 2);
    vi.advanceTimersByTime(500);
    expect(channel.types()).toEqual(["draw", "draw"]);
    vi.advanceTimersByTime(200);
    expect([channel.types().at(-1), session.isChecking]).toEqual(["check", true]);
    draw(session, channel, 0, [3], 3);
    vi.advanceTimersByTime(1_000);
    session.check();
    expect(channel.types().filter(type => type === "check")).toHaveLength(1);
    session.setReport({ revision: 2 });
    vi.advanceTimersByTime(700);
    expect(channel.types().filter(type => type === "check")).toHaveLength(2);
  });

  it("are of what the kernel has: none is asked for before", () => {
    const { session, channel } = openSession();
    brush(session, 0, [0]);
    vi.advanceTimersByTime(5_000);
    expect(channel.types()).toEqual(["draw"]);
  });

  it("wait for the user where they are slow", () => {
    const { session, channel } = openSession();
    session.check();
    vi.advanceTimersByTime(2_500);
    session.setReport({ revision: 1 });
    draw(session, channel, 0, [0], 1);
    vi.advanceTimersByTime(5_000);
    expect(channel.types()).toEqual(["check", "draw"]);
    session.check();
    vi.advanceTimersByTime(100);
    session.receive({ type: "done", action: "check", text: "" });
    draw(session, channel, 0, [1], 2);
    vi.advanceTimersByTime(700);
    expect(channel.types()).toEqual(["check", "draw", "check", "draw", "check"]);
  });

  it("end when the kernel has nothing new to say", () => {
    const { session, channel } = openSession();
    session.check();
    channel.sent[0].taken?.();
    vi.advanceTimersByTime(1_100);
    expect(session.isChecking).toBe(false);
  });
});

describe("actions", () => {
  it("are asked for one at a time, and end with a text", () => {
    const { session, channel } = openSession();
    session.act("mask");
    session.act("cut");
    expect([channel.sent.map(({ content }) => content), session.action]).toEqual([[{ type: "mask" }], "mask"]);
    session.receive({ type: "done", action: "mask", text: "masked 4 axes" });
    expect([session.action, session.notice]).toEqual([null, "masked 4 axes"]);
    session.act("save", { path: "a.json" });
    session.receive({ type: "failed", action: "save", text: "no such folder" });
    expect(channel.sent.at(-1)?.content).toEqual({ type: "save", path: "a.json" });
    expect([session.action, session.notice]).toEqual([null, "no such folder"]);
  });

  it("wait until the kernel has the draft that they are for", () => {
    const { session, channel } = openSession();
    brush(session, 0, [0]);
    session.act("cut");
    session.act("mask");
    expect([channel.types(), session.action]).toEqual([["draw"], "cut"]);
    session.setDraft(known(1, { 1: [1, 0] })); // Python's, so ours comes again on top of it
    session.settle();
    expect(channel.types()).toEqual(["draw", "draw"]);
    confirm(session, channel.sent[1], 2);
    expect(channel.types()).toEqual(["draw", "draw", "cut"]);
    confirm(session, channel.sent[1], 3);
    expect(channel.types()).toEqual(["draw", "draw", "cut"]);
  });

  it("that wait go with the model that they were for", () => {
    const { session, channel } = openSession();
    brush(session, 0, [0]);
    session.act("cut");
    session.load(maskPayload(THREE, { generation: 2 }), known(4, {}), scoresOf(THREE), 4);
    session.setDraft(known(5, {}));
    expect([channel.types(), session.action]).toEqual([["draw"], null]);
  });

  it("need the kernel, and end with it", () => {
    const { session, channel } = openSession();
    session.act("cut");
    session.abandon();
    expect(session.action).toBeNull();
    channel.isLive = false;
    session.act("cut");
    session.check();
    expect([channel.types(), session.action, session.isChecking]).toEqual([["cut"], null, false]);
  });

  it("start anew with another payload", () => {
    const { session } = openSession();
    brush(session, 0, [0]);
    session.load(maskPayload(), new DataView(Uint8Array.of(0, 1, 0, 0).buffer), scoresOf(THREE), 8);
    expect(dropped(session)).toEqual([[], [0], []]);
    expect([session.data?.history.canUndo, session.data?.draft.isKnown]).toEqual([false, true]);
  });

  it("go on where only the importances are others", () => {
    const { session } = openSession();
    brush(session, 0, [0]);
    session.load(maskPayload(THREE, { importances: ["mine"] }), null, scoresOf(THREE), 1);
    expect(dropped(session)).toEqual([[0], [], []]);
    session.step("undo");
    expect(dropped(session)).toEqual([[], [], []]);
    session.load(maskPayload([THREE[1], THREE[0]]), null, undefined, 2);
    expect([dropped(session), session.data?.history.canRedo]).toEqual([[[], []], false]);
  });
});
