import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { confirm, dropped, FakeChannel, maskPayload, openSession, scoresOf, THREE } from "../../testing/masks";
import { OTHER_VERSION } from "../shared/schema";
import { Session } from "./session";

function brush(session: Session, axis: number, indices: number[], goes = true): void {
  session.begin();
  session.paint(axis, indices, goes);
  session.commit();
}

const bytes = (...values: number[]) => [new DataView(Uint8Array.from(values).buffer)];

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

  it("makes one message of a gesture", () => {
    const { channel, session } = openSession();
    session.begin();
    session.paint(0, [1], true);
    session.paint(0, [3], true);
    session.commit();
    const [{ content, buffers }] = channel.sent;
    expect(content).toEqual({ type: "edit", id: content.id, edits: [[0, 0, 1]], generation: 1 });
    expect(buffers.map(own => [...own])).toEqual([[0b1010]]);
  });

  it("sends nothing for a gesture without effect", () => {
    const { channel, session } = openSession();
    session.setLocked(["conv1.weight[0]"]);
    brush(session, 0, [1]); // locked
    brush(session, 2, [1]); // frozen
    brush(session, 1, [1], false); // stays already
    expect([channel.sent, session.data?.history.canUndo]).toEqual([[], false]);
  });

  it("takes steps back and makes them again, as edits", () => {
    const { channel, session } = openSession();
    brush(session, 0, [0, 1]);
    brush(session, 1, [9]);
    session.step("undo");
    session.step("undo");
    session.step("undo");
    expect(dropped(session)).toEqual([[], [], []]);
    session.step("redo");
    expect(dropped(session)).toEqual([[0, 1], [], []]);
    expect(channel.types()).toEqual(Array(5).fill("edit"));
    expect(channel.sent.map(({ buffers }) => [...buffers[0]])).toEqual([[3], [2], [0], [0], [3]]);
    brush(session, 0, [3]);
    expect(session.data?.history.canRedo).toBe(false);
  });

  it("takes back its own bits only", () => {
    const { session, channel } = openSession();
    brush(session, 1, [0]);
    confirm(session, channel.sent[0], 1);
    session.receive({ type: "applied", id: "other", revision: 2, edits: [[1, 0, 1]] }, bytes(0b111));
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

  it("drops a refused edit and says why", () => {
    const { session, channel } = openSession();
    brush(session, 0, [0]);
    brush(session, 1, [4]);
    const refused = channel.sent[0].content.id;
    session.receive({ type: "mask", revision: 2, refused, text: "tied" }, bytes(0, 0, 0, 0));
    expect(dropped(session)).toEqual([[], [4], []]);
    expect([session.notice, session.data?.history.peek("undo")?.id]).toEqual(["tied", channel.sent[1].content.id]);
  });

  it("shows a plan that is set from Python", () => {
    const { session } = openSession();
    session.receive({ type: "mask", revision: 2, refused: null, text: null }, bytes(1, 0, 2, 0));
    expect(dropped(session)).toEqual([[0], [9], []]);
    session.receive({ type: "mask", revision: 3, refused: null, text: null }, bytes(1));
    session.receive("noise", undefined);
    session.receive({ type: "applied", id: "x", revision: 4, edits: [[9, 0, 1]] }, bytes(1));
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
  it("keeps edits while there is none, and sends them when it answers", () => {
    const { session, channel } = openSession();
    channel.isLive = false;
    brush(session, 0, [0]);
    brush(session, 0, [1]);
    vi.advanceTimersByTime(5_000);
    expect(channel.sent).toEqual([]);
    expect(dropped(session)[0]).toEqual([0, 1]);
    channel.isLive = true;
    session.revive();
    expect(channel.types()).toEqual(["sync", "edit", "edit"]);
  });

  it("sends an edit again that was lost, but not for ever", () => {
    const { session, channel } = openSession();
    brush(session, 0, [0]);
    session.setReport({ revision: 0 });
    for (let i = 0; i < 9; i += 1) {
      channel.sent.at(-1)?.taken?.();
      vi.advanceTimersByTime(2_000);
    }
    expect(channel.types().filter(type => type === "edit")).toHaveLength(3);
    expect(channel.types().filter(type => type === "sync")).toHaveLength(2);
  });

  it("does not repeat what was confirmed", () => {
    const { session, channel } = openSession();
    brush(session, 0, [0]);
    confirm(session, channel.sent[0], 1);
    channel.sent[0].taken?.();
    vi.advanceTimersByTime(5_000);
    expect(channel.types()).toEqual(["edit", "check"]);
  });
});

describe("dry runs", () => {
  it("follow 600 ms after the last edit, one at a time", () => {
    const { session, channel } = openSession();
    brush(session, 0, [0]);
    vi.advanceTimersByTime(500);
    brush(session, 0, [1]);
    vi.advanceTimersByTime(500);
    expect(channel.types()).toEqual(["edit", "edit"]);
    vi.advanceTimersByTime(200);
    expect([channel.types().at(-1), session.isChecking]).toEqual(["check", true]);
    brush(session, 0, [3]);
    vi.advanceTimersByTime(1_000);
    session.check();
    expect(channel.types().filter(type => type === "check")).toHaveLength(1);
    session.setReport({ revision: 2 });
    vi.advanceTimersByTime(700);
    expect(channel.types().filter(type => type === "check")).toHaveLength(2);
  });

  it("wait for the user where they are slow", () => {
    const { session, channel } = openSession();
    session.check();
    vi.advanceTimersByTime(2_500);
    session.setReport({ revision: 1 });
    brush(session, 0, [0]);
    vi.advanceTimersByTime(5_000);
    expect(channel.types()).toEqual(["check", "edit"]);
    session.check();
    vi.advanceTimersByTime(100);
    session.receive({ type: "done", action: "check", text: "" }, []);
    brush(session, 0, [1]);
    vi.advanceTimersByTime(700);
    expect(channel.types()).toEqual(["check", "edit", "check", "edit", "check"]);
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
    session.receive({ type: "done", action: "mask", text: "masked 4 axes" }, []);
    expect([session.action, session.notice]).toEqual([null, "masked 4 axes"]);
    session.act("save", { path: "a.json" });
    session.receive({ type: "failed", action: "save", text: "no such folder" }, []);
    expect(channel.sent.at(-1)?.content).toEqual({ type: "save", path: "a.json" });
    expect([session.action, session.notice]).toEqual([null, "no such folder"]);
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
    expect([session.data?.history.canUndo, session.data?.draft.pending.length]).toEqual([false, 0]);
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
