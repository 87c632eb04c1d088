// One model's editing: the draft with its way to the kernel, the history and the actions, shared by all views.

import { PayloadError } from "../shared/schema";
import { bytesOf } from "./bits";
import { Checker } from "./checker";
import { unpacked } from "./draft";
import { Events } from "./events";
import { stepOf } from "./history";
import { type Channel, newId, Outbox } from "./outbox";
import { type PlanData, readPlan, renewedPlan } from "./plan_data";
import { goneByRatio, type Scope } from "./ratio";
import { readReport, type Report } from "./report";

export type Action = "mask" | "cut" | "undo" | "save" | "load";
export type SessionEvent = "data" | "scores" | "status" | "report" | "history";

const PATIENCE = 1000; // ms
const UNREADABLE = "This widget's data cannot be read.";
const REFUSED = "The kernel did not take the last change.";

export class Session {
  data: PlanData | null = null;
  problem = ""; // why there is no data; "" before any has come
  report: Report | null = null;
  action: Action | null = null; // what the kernel was asked to do and has not done yet
  notice = "";
  readonly events = new Events<SessionEvent>();
  private readonly checker: Checker;
  private outbox: Outbox | null = null;
  private revision = 0;
  private locked: ReadonlySet<string> = new Set();
  private patience?: ReturnType<typeof setTimeout>;

  constructor(private readonly channel: Channel) {
    this.checker = new Checker(
      () => this.askForCheck(),
      () => this.events.tell("status")
    );
  }

  dispose(): void {
    clearTimeout(this.patience);
    this.checker.stop();
    this.outbox?.dispose();
  }

  // ------------------------------------------------------------ from outside

  /** `dropped` null: as it is, where the axes are the same. */
  load(payload: unknown, dropped: unknown, scores: unknown, revision: unknown): void {
    const former = dropped === null ? this.data : null;
    this.outbox?.dispose();
    this.checker.stop();
    this.data = null;
    this.problem = "";
    try {
      const isEmpty = typeof payload !== "object" || payload === null || Object.keys(payload).length === 0;
      const renewed = isEmpty || !former ? null : renewedPlan(former, payload, scores);
      if (!isEmpty) this.data = renewed ?? readPlan(payload, dropped, scores);
      this.revision = Math.max(Number(revision) || 0, renewed ? this.revision : 0);
    } catch (error) {
      this.problem = error instanceof PayloadError ? error.message : UNREADABLE;
    }
    this.outbox = this.data && new Outbox(this.data.draft, this.channel, this.data.payload.generation);
    this.events.tell("data");
  }

  setScores(raw: unknown): void {
    this.data?.setScores(raw);
    this.events.tell("scores");
  }

  setLocked(names: readonly string[]): void {
    this.locked = new Set(names);
  }

  setReport(raw: unknown): void {
    this.report = readReport(raw);
    this.checker.ended();
    this.events.tell("report");
  }

  setRevision(revision: unknown): void {
    if (typeof revision !== "number" || revision <= this.revision) return;
    this.revision = revision;
    this.events.tell("report");
  }

  /** A custom message from the kernel. */
  receive(content: unknown, buffers: unknown): void {
    const message = content as Record<string, unknown> | null;
    const buffer = bytesOf(Array.isArray(buffers) ? buffers[0] : undefined);
    const text = typeof message?.text === "string" ? message.text : "";
    if (message?.type === "applied") this.applied(message, buffer);
    else if (message?.type === "mask") this.replaced(message, buffer, text);
    else if (message?.type === "checking") this.checker.began();
    else if (message?.type === "done" || message?.type === "failed") this.ended(message.action, text);
  }

  /** The kernel answers (again). */
  revive(): void {
    if (this.data?.draft.pending.length) this.outbox?.revive();
  }

  /** The kernel is gone: nothing that it was asked for will come. */
  abandon(): void {
    this.action = null;
    this.checker.stop();
    this.events.tell("status");
  }

  private applied(message: Record<string, unknown>, buffer: Uint8Array | null): void {
    const edit = unpacked(String(message.id), message.edits, buffer, this.data?.axes.size ?? []);
    if (!edit) return;
    this.setRevision(message.revision);
    this.data?.draft.apply(edit);
    this.events.tell("report");
  }

  private replaced(message: Record<string, unknown>, buffer: Uint8Array | null, text: string): void {
    const { data } = this;
    const refused = typeof message.refused === "string" ? message.refused : null;
    if (!data || !buffer || !data.draft.replace(buffer, refused)) return;
    this.setRevision(message.revision);
    if (refused !== null) data.history.drop(refused);
    if (text || refused !== null) this.say(text || REFUSED);
    this.events.tell("history");
    this.events.tell("report");
  }

  private ended(action: unknown, text: string): void {
    if (action === "check") this.checker.ended();
    if (action === this.action) this.action = null;
    if (text || action !== "check") this.say(text);
  }

  /** The kernel has dealt with a message whose answer should be here by now. */
  private soonAfter(isOpen: () => boolean, end: () => void): void {
    clearTimeout(this.patience);
    this.patience = setTimeout(() => {
      if (isOpen()) end();
    }, PATIENCE);
  }

  say(notice: string): void {
    this.notice = notice;
    this.events.tell("status");
  }

  // -------------------------------------------------------------- what it is

  get isChecking(): boolean {
    return this.checker.isRunning;
  }

  /** Whether the report is of the draft as it stands. */
  get isReportCurrent(): boolean {
    const { draft } = this.data ?? {};
    return this.report?.revision === this.revision && !draft?.isOpen && !draft?.pending.length;
  }

  isLocked(axis: number): boolean {
    return this.data !== null && this.locked.has(this.data.axes.name[axis]);
  }

  mayChange(axis: number): boolean {
    return this.data !== null && this.data.isFree(axis) && !this.isLocked(axis);
  }

  /** The axes that a ratio takes from. */
  ratioAxes(): number[] {
    const { by_ratio } = this.data?.axes ?? { by_ratio: [] };
    return [...by_ratio.keys()].filter(axis => by_ratio[axis] && this.mayChange(axis));
  }

  // ----------------------------------------------------------------- gestures

  begin(): void {
    this.data?.draft.begin();
  }

  /** Within a gesture; locked and frozen axes stay as they are. */
  paint(axis: number, indices: Iterable<number>, goes: boolean): void {
    if (this.mayChange(axis)) this.data?.draft.set(axis, indices, goes);
  }

  dropCount(axis: number, count: number): void {
    const { data } = this;
    if (!data?.scores || !this.mayChange(axis)) return;
    data.draft.dropFirst(axis, data.scores.order(axis), Math.max(0, Math.min(count, data.axes.size[axis] - 1)));
  }

  dropRatio(ratio: number, scope: Scope): void {
    const { data } = this;
    if (!data?.scores) return;
    const axes = this.ratioAxes();
    const counts = goneByRatio(axes, data.axes.size, ratio, scope, data.scores);
    axes.forEach((axis, at) => this.dropCount(axis, counts[at]));
  }

  /** Ends the gesture: one message, one step. */
  commit(): void {
    const { data } = this;
    if (!data?.draft.isOpen) return;
    const patches = data.draft.commit();
    if (patches.length) {
      const id = newId();
      data.history.add(stepOf(id, patches));
      this.post(id, patches);
    }
    this.events.tell("history");
  }

  cancel(): void {
    this.data?.draft.cancel();
    this.events.tell("history");
  }

  /** Takes the last step back, or makes it again; parts on locked axes are left alone. */
  step(way: "undo" | "redo"): void {
    const { data } = this;
    this.commit();
    const step = data?.history.peek(way);
    if (!data || !step) return;
    const parts = step.parts.filter(({ axis }) => this.mayChange(axis));
    if (!parts.length) return this.say("Its axes are locked: unlock them first.");
    data.draft.begin();
    for (const { axis, start, mask, before, after } of parts)
      data.draft.write(axis, start, mask, way === "undo" ? before : after);
    const id = newId();
    const patches = data.draft.commit();
    data.history.move(way, id);
    if (patches.length) this.post(id, patches);
    this.events.tell("history");
  }

  private post(id: string, patches: Parameters<Outbox["post"]>[0]["patches"]): void {
    this.outbox?.post({ id, patches });
    this.checker.edited();
    this.events.tell("report");
  }

  // ------------------------------------------------------------------ actions

  check(): void {
    this.checker.start();
  }

  act(action: Action, more: Record<string, unknown> = {}): void {
    if (this.action || !this.channel.isLive || !this.data) return;
    this.commit();
    this.action = action;
    this.notice = "";
    const isOpen = () => this.action === action;
    this.channel.send({ type: action, ...more }, [], () => this.soonAfter(isOpen, () => this.ended(action, "")));
    this.events.tell("status");
  }

  private askForCheck(): boolean {
    if (!this.channel.isLive || !this.data) return false;
    const end = () => this.checker.ended();
    this.channel.send({ type: "check", id: newId() }, [], () => this.soonAfter(() => this.isChecking, end));
    return true;
  }
}
