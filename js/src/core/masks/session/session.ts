// The editing session of a model: the draft with its way to the kernel, the history and the actions, shared by all views.

import { PayloadError } from "../../shared/base/schema";
import {
  type Measured,
  NO_CAPABILITIES,
  NO_TRIAL,
  type Capabilities,
  readMeasured,
  readCapabilities,
  readReport,
  readSensitivity,
  readTrial,
  type Report,
  type SensitivityProgress,
  type Trial
} from "./kernel_answers";
import { type Drawing, packed, readKernelDraft } from "../draft/bit_table";
import { type Step, stepOf } from "../draft/draft";
import { type PlanData, readPlan, renewedPlan } from "../draft/plan_data";
import { removedByRatio, type Scope } from "../draft/scores";
import { Debounced } from "../../shared/ui/dom";
import * as words from "../../words/masks";
import { UNREADABLE } from "../../words/shared";

// A list of listeners for each kind of event.

export class SessionEvents<Kind extends string> {
  private readonly lists = new Map<Kind, Set<() => void>>();

  /** Returns the disposer. */
  on(kinds: Kind | readonly Kind[], listener: () => void): () => void {
    const entry = () => listener(); // a wrapper, so that one function may listen twice
    const watched = typeof kinds === "string" ? [kinds] : kinds;
    for (const kind of watched) {
      const list = this.lists.get(kind) ?? new Set();
      this.lists.set(kind, list);
      list.add(entry);
    }
    return () => watched.forEach(kind => this.lists.get(kind)?.delete(entry));
  }

  tell(kind: Kind): void {
    for (const listener of [...(this.lists.get(kind) ?? [])]) listener();
  }
}

// When a dry run is asked for: by the user at any time, by itself after a gesture while dry runs are quick.

const CALM = 600; // ms without a gesture
const QUICK = 2000; // ms that a dry run may take to be repeated unasked

class DryRunScheduler {
  private startedAt: number | null = null;
  private took = 0; // ms, the last one
  private isStale = false; // drawn since the running one was asked for
  private readonly soon = new Debounced(() => this.start(), CALM);

  constructor(
    private readonly ask: () => boolean, // false: it could not be asked for
    private readonly changed: () => void
  ) {}

  get isRunning(): boolean {
    return this.startedAt !== null;
  }

  edited(): void {
    this.isStale = true;
    if (this.took < QUICK && !this.isRunning) this.soon.call();
  }

  start(): void {
    this.soon.cancel();
    if (this.isRunning || !this.ask()) return;
    this.isStale = false;
    this.startedAt = performance.now();
    this.changed();
  }

  /** The dry run has come to an end, well or not. */
  ended(): void {
    if (this.startedAt === null) return;
    this.took = performance.now() - this.startedAt;
    this.startedAt = null;
    if (this.isStale) this.edited();
    this.changed();
  }

  /** Nothing is waited for any more. */
  stop(): void {
    this.soon.cancel();
    if (this.startedAt === null) return;
    this.startedAt = null;
    this.changed();
  }
}

export type Action = "mask" | "cut" | "undo" | "save" | "load" | "recalibrate" | "evaluate";
type SessionEvent = "data" | "scores" | "increases" | "costs" | "status" | "report" | "history";

/** The way to the kernel: ordered and reliable. */
export interface Channel {
  readonly isLive: boolean;
  /** Of several that wait for a busy kernel the latest alone arrives. */
  sendDraft(drawing: Drawing): void;
  /** `taken` is called once the kernel has dealt with the message. */
  send(content: Record<string, unknown>, taken?: () => void): void;
}

/** How many indices of which axes go at a ratio. */
export type RatioCounts = readonly [ratio: number, counts: readonly (readonly [axis: number, count: number])[]];

const PATIENCE = 1000; // ms

/** Tells what is drawn here from what others draw. */
const newName = (): string => Math.random().toString(36).slice(2, 12);

export class Session {
  data: PlanData | null = null;
  problem = ""; // why there is no data; "" before any has come
  report: Report | null = null;
  offers: Capabilities = NO_CAPABILITIES;
  sensing: SensitivityProgress | null = null;
  trial: Trial = NO_TRIAL;
  measured: Measured | null = null;
  wantsCurve = false; // what ratios cost is to be measured as soon as a view knows in which ranking
  readonly ratios = new Map<string, number>(); // that were chosen, by how many indices go since
  action: Action | null = null; // what the kernel was asked to do and has not done yet
  notice = "";
  isRefused = false; // the notice says what could not be done
  readonly events = new SessionEvents<SessionEvent>();
  private readonly checker: DryRunScheduler;
  private page = newName();
  private revision = 0; // of the draft that the kernel has, as far as it is known here
  private isAccepted = false; // the kernel will say when the action has come to its end
  private asked: Record<string, unknown> | null = null; // an action, until the kernel has the draft that it is for
  private locked: ReadonlySet<string> = new Set();
  private patience?: ReturnType<typeof setTimeout>;

  constructor(private readonly channel: Channel) {
    this.checker = new DryRunScheduler(
      () => this.askForCheck(),
      () => this.events.tell("status")
    );
  }

  dispose(): void {
    clearTimeout(this.patience);
    this.checker.stop();
  }

  // ------------------------------------------------------------ from outside

  /** `drawn` null: as it is, where the axes are the same. */
  load(payload: unknown, drawn: unknown, scores: unknown, revision: unknown, isComparable = false): void {
    const former = drawn === null ? this.data : null;
    this.checker.stop();
    this.data = null;
    this.problem = "";
    try {
      const isEmpty = typeof payload !== "object" || payload === null || Object.keys(payload).length === 0;
      const renewed = isEmpty || !former ? null : renewedPlan(former, payload, scores, isComparable);
      if (!isEmpty) this.data = renewed ?? readPlan(payload, drawn, scores, isComparable);
      if (!renewed) [this.revision, this.page] = [Number(revision) || 0, newName()];
      if (!renewed && this.asked) this.asked = this.action = null;
    } catch (error) {
      this.problem = error instanceof PayloadError ? error.message : UNREADABLE;
    }
    this.events.tell("data");
  }

  setScores(raw: unknown, isComparable = false): void {
    this.data?.setScores(raw, isComparable);
    this.events.tell("scores");
  }

  setIncreases(raw: unknown): void {
    this.data?.setIncreases(raw);
    this.events.tell("increases");
  }

  setCosts(offers: unknown, sensing: unknown, trial: unknown): void {
    [this.offers, this.sensing, this.trial] = [readCapabilities(offers), readSensitivity(sensing), readTrial(trial)];
    this.events.tell("costs");
  }

  setMeasured(raw: unknown): void {
    this.measured = readMeasured(raw);
    this.events.tell("costs");
  }

  setLocked(names: readonly string[]): void {
    this.locked = new Set(names);
  }

  setReport(raw: unknown): void {
    this.report = readReport(raw);
    this.checker.ended();
    this.events.tell("report");
  }

  /** What the kernel has: drawn here, or by others; returns whether others have drawn. */
  setDraft(raw: unknown): boolean {
    const { data } = this;
    const known = data && readKernelDraft(raw, data.draft.table);
    if (!data || !known || known.revision <= this.revision) return false;
    this.revision = known.revision;
    const isOwn = known.by === this.page;
    if (isOwn) data.draft.confirm(known.bits);
    else data.draft.merge(known.bits);
    if (isOwn && data.draft.isKnown) this.checker.edited();
    this.ask();
    this.events.tell("history");
    this.events.tell("report");
    return !isOwn;
  }

  /** Gives the kernel what it does not have: after others have drawn, and when it answers again. */
  settle(): void {
    const { draft } = this.data ?? {};
    if (draft && !draft.isOpen && !draft.isKnown) this.sendDraft();
  }

  /** A custom message from the kernel. */
  receive(content: unknown): void {
    const message = content as Record<string, unknown> | null;
    const text = typeof message?.text === "string" ? message.text : "";
    if (message?.type === "failed" && message.action === "draw") this.refused(message.by, text);
    else if (message?.type === "accepted") this.isAccepted ||= message.action === this.action;
    else if (message?.type === "done" || message?.type === "failed")
      this.ended(message.action, text, message.type === "failed");
  }

  /** The kernel is gone: nothing that it was asked for will come. */
  abandon(): void {
    this.asked = this.action = null;
    this.checker.stop();
    this.events.tell("status");
  }

  /** Nothing that is on its way is ours any more, should it be taken after all. */
  private refused(by: unknown, text: string): void {
    const { data } = this;
    if (data && by === this.page) {
      this.page = newName();
      data.draft.revert();
      data.history.drop(step => isIn(step, data));
      this.asked = this.action = null;
      this.events.tell("history");
      this.events.tell("report");
    }
    this.say(text, true);
  }

  private ended(action: unknown, text: string, isRefused = false): void {
    if (action === "check") this.checker.ended();
    if (action === "sense" && !isRefused) this.wantsCurve = true;
    if (this.wantsCurve) this.events.tell("costs");
    if (action === this.action) this.action = null;
    if (text || action !== "check") this.say(text, isRefused);
  }

  /** The kernel has dealt with a message whose answer should be here by now. */
  private soonAfter(isOpen: () => boolean, end: () => void): void {
    clearTimeout(this.patience);
    this.patience = setTimeout(() => {
      if (isOpen()) end();
    }, PATIENCE);
  }

  /** The draft as it stands, as the kernel gives it. */
  drawing(): Record<string, unknown> | null {
    const { draft } = this.data ?? {};
    return draft ? { revision: this.revision, by: "", ...packed(draft.bits, draft.table) } : null;
  }

  say(notice: string, isRefused = false): void {
    this.notice = notice;
    this.isRefused = isRefused;
    this.events.tell("status");
  }

  // -------------------------------------------------------------- what it is

  get isChecking(): boolean {
    return this.checker.isRunning;
  }

  /** Whether the report is of the draft as it stands. */
  get isReportCurrent(): boolean {
    const { draft } = this.data ?? {};
    return this.report?.revision === this.revision && !draft?.isOpen && draft?.isKnown === true;
  }

  /** The loss that was measured of the draft as it stands; null where none was. */
  get measuredLoss(): number | null {
    const { data, measured } = this;
    const isOf = measured?.revision === this.revision && data?.draft.isOpen === false && data.draft.isKnown;
    return measured && isOf ? measured.loss : null;
  }

  isLocked(axis: number): boolean {
    return this.data !== null && this.locked.has(this.data.axes.name[axis]);
  }

  /** Of the entries of the draft that of the blocks always may. */
  mayChange(entry: number): boolean {
    const { data } = this;
    return data !== null && (entry === data.blocks.entry || (data.isFree(entry) && !this.isLocked(entry)));
  }

  /** Whether a gesture changes an axis: one that goes with a block stays as it was drawn. */
  mayDraw(axis: number): boolean {
    return this.mayChange(axis) && this.data?.isAway(axis) === false;
  }

  /** The axes that a ratio takes from. */
  ratioAxes(): number[] {
    const { by_ratio } = this.data?.axes ?? { by_ratio: [] };
    return [...by_ratio.keys()].filter(axis => by_ratio[axis] && this.mayDraw(axis));
  }

  // ----------------------------------------------------------------- gestures

  begin(): void {
    this.data?.draft.begin();
  }

  /** Within a gesture; locked and frozen axes stay as they are. */
  paint(axis: number, indices: Iterable<number>, goes: boolean): void {
    if (this.mayDraw(axis)) this.data?.draft.set(axis, indices, goes);
  }

  dropCount(axis: number, count: number): void {
    const { data } = this;
    if (!data?.scores || !this.mayDraw(axis)) return;
    data.draft.dropFirst(axis, data.scores.order(axis), Math.max(0, Math.min(count, data.axes.size[axis] - 1)));
  }

  dropRatio(ratio: number, scope: Scope): void {
    const { data } = this;
    if (!data?.scores) return;
    const axes = this.ratioAxes();
    const counts = removedByRatio(axes, data.axes.size, ratio, scope, data.scores, data.axes.least);
    axes.forEach((axis, at) => this.dropCount(axis, counts[at]));
  }

  /** A block goes or stays, as a gesture of its own. */
  remove(block: number, goes: boolean): void {
    const { data } = this;
    if (!data) return;
    this.commit();
    data.draft.begin();
    data.draft.set(data.blocks.entry, [block], goes);
    this.commit();
  }

  /** Ends the gesture: one value to the kernel, one step. */
  commit(): void {
    const { data } = this;
    if (!data?.draft.isOpen) return;
    const patches = data.draft.commit();
    if (patches.length) {
      data.history.add(stepOf(patches));
      this.sendDraft();
    }
    this.events.tell("history");
  }

  cancel(): void {
    this.data?.draft.cancel();
    this.settle();
    this.events.tell("history");
  }

  /** Takes the last step back, or makes it again; parts on locked axes are left alone. */
  step(way: "undo" | "redo"): void {
    const { data } = this;
    this.commit();
    const step = data?.history.peek(way);
    if (!data || !step) return;
    const parts = step.parts.filter(({ axis }) => this.mayChange(axis));
    if (!parts.length) return this.say(words.STEP_LOCKED);
    data.draft.begin();
    for (const { axis, start, changed, before, after } of parts)
      data.draft.write(axis, start, changed, way === "undo" ? before : after);
    data.history.move(way);
    if (data.draft.commit().length) this.sendDraft();
    this.events.tell("history");
  }

  private sendDraft(): void {
    const { data } = this;
    if (!data) return;
    const { bits, table } = data.draft;
    const { generation } = data.payload;
    if (this.channel.isLive)
      this.channel.sendDraft({ generation, base: this.revision, by: this.page, ...packed(bits, table) });
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
    this.isAccepted = false;
    this.notice = "";
    this.asked = { type: action, ...more };
    this.ask();
    this.events.tell("status");
  }

  /** An action is for the draft as it is seen: it waits until the kernel has that. */
  private ask(): void {
    const { asked, action } = this;
    if (!asked || !this.data?.draft.isKnown) return;
    this.asked = null;
    const isOpen = () => this.action === action && !this.isAccepted;
    this.channel.send(asked, () => this.soonAfter(isOpen, () => this.ended(action, "")));
  }

  /** Starts or ends the computation of the sensitivity. */
  sense(isWanted: boolean): void {
    if (this.channel.isLive) this.channel.send({ type: isWanted ? "sense" : "cancel" });
  }

  /** Has the loss measured without what goes at some ratios, for each by axis how many indices. */
  measure(key: string, points: readonly RatioCounts[]): void {
    this.wantsCurve = false;
    if (this.channel.isLive) this.channel.send({ type: "measure", key, points });
  }

  private askForCheck(): boolean {
    if (!this.channel.isLive || !this.data) return false;
    const end = () => this.checker.ended();
    this.channel.send({ type: "check" }, () => this.soonAfter(() => this.isChecking, end));
    return true;
  }
}

/** Whether the draft has what a step has made. */
function isIn({ parts }: Step, { draft }: PlanData): boolean {
  return parts.every(({ axis, start, changed, after }) => {
    const bytes = draft.bitsOf(axis);
    return changed.every((own, at) => ((bytes[start + at] ^ after[at]) & own) === 0);
  });
}
