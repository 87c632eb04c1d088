// The toolbar of a panel, with view, phase, window, logarithm, pause and files; and its status line.

import {
  box,
  button,
  Debounced,
  el,
  listen,
  option,
  icon,
  type IconName,
  Part,
  setRole,
  field,
  checkbox,
  setText
} from "../shared/ui/dom";
import { ToolMenu } from "../shared/ui/tool_menu";
import { addWindowButtons } from "../shared/ui/window_buttons";
import type { PanelStore, PanelView, Phase } from "./base/state";
import { counted } from "../shared/base/format";
import { DISCONNECTED } from "../shared/ui/widget_frame";
import type { MetricData } from "./data/metric_data";
import { brokenWord, type NonFinite, nonFiniteOf, nonFiniteText } from "./data/non_finite";
import { stepText } from "./base/value_axis";
import * as words from "../words/metrics";

const VIEWS: readonly [PanelView, string][] = [
  ["grid", words.GRID],
  ["lines", words.LINES],
  ["heatmap", words.HEAT_MAP],
  ["histogram", words.HISTOGRAMS]
];
const PHASES: readonly [Phase, string][] = [
  ["train", "train"],
  ["eval", "eval"],
  ["both", words.BOTH_PHASES]
];
const TYPING = 250; // ms
const FIELD = "mkg-metric-field";

interface ToolbarEvents {
  view(view: PanelView): void;
  csv(): void;
  png(): void;
}

export class PanelToolbar extends Part {
  private readonly view = el("select", "mkg-metric-view");
  private readonly phase = el("select", "mkg-metric-phase");
  private readonly window = el("input", "mkg-metric-window");
  private readonly log = el("input", "mkg-metric-log");
  private readonly pause = button("mkg-button mkg-metric-pause", words.PAUSE);
  private isLog = false; // as it is drawn
  private readonly typed = new Debounced(() => this.setWindow(), TYPING);

  constructor(
    host: HTMLElement,
    private readonly store: PanelStore,
    private readonly events: ToolbarEvents
  ) {
    super(host);
    host.classList.add("mkg-metric-toolbar");
    setRole(host, "toolbar", words.TOOLBAR);
    this.view.append(...VIEWS.map(([value, text]) => option(value, text)));
    this.phase.append(...PHASES.map(([value, text]) => option(value, text)));
    this.window.type = "number";
    this.window.min = "1";
    this.window.step = "1";
    this.window.placeholder = words.ALL;
    this.window.title = words.WINDOW_HELP;
    this.log.type = "checkbox";
    const menu = new ToolMenu(
      box(
        "mkg-metric-more",
        field(FIELD, words.LAST, this.window, el("span", "mkg-label", words.STEPS)),
        checkbox("mkg-metric-check", this.log, words.LOG_SCALE),
        this.files()
      )
    );
    host.append(named(words.VIEW, this.view), named(words.PHASE, this.phase), this.pause, menu.element);
    this.disposers.add(() => menu.dispose(), addWindowButtons(host));
    this.listen();
    this.show();
  }

  override dispose(): void {
    this.typed.cancel();
    super.dispose();
  }

  /** Shows the scale on which values are drawn, which the panel may have chosen. */
  showScale(isLog: boolean): void {
    this.isLog = isLog;
    this.log.checked = this.store.get("logScale") ?? isLog;
    const isOwn = this.store.get("logScale") === null && this.store.get("view") !== "histogram";
    this.log.title = isOwn ? words.LOG_AUTOMATIC : "";
  }

  private files(): HTMLElement {
    const group = el("div", "mkg-metric-files");
    const add = (name: "csv" | "png", title: string) => {
      const element = button(`mkg-button mkg-metric-${name}`, name.toUpperCase(), title);
      element.setAttribute("aria-label", title);
      element.prepend(icon("download"));
      this.disposers.add(listen(element, "click", () => this.events[name]()));
      group.append(element);
    };
    add("csv", words.SAVE_CSV);
    add("png", words.SAVE_PNG);
    return group;
  }

  private listen(): void {
    const { store } = this;
    this.disposers.add(
      listen(this.view, "change", () => this.events.view(this.view.value as PanelView)),
      listen(this.phase, "change", () => store.set("phase", this.phase.value as Phase)),
      listen(this.log, "change", () => store.set("logScale", this.log.checked)),
      listen(this.pause, "click", () => store.set("paused", !store.get("paused"))),
      listen(this.window, "input", () => this.typed.call()),
      listen(this.window, "change", () => this.typed.flush()),
      store.on(["view", "phase", "logScale", "paused", "window"], () => this.show())
    );
  }

  /** Anything but a whole number of steps is left alone until it is one. */
  private setWindow(): void {
    const text = this.window.value.trim();
    const steps = Number(text);
    const isWrong = text !== "" && !(Number.isInteger(steps) && steps >= 1);
    this.window.setAttribute("aria-invalid", String(isWrong));
    if (!isWrong) this.store.set("window", text === "" ? null : steps);
  }

  private show(): void {
    const { store } = this;
    const paused = store.get("paused");
    this.view.value = store.get("view");
    this.phase.value = store.get("phase");
    this.showScale(this.isLog);
    this.pause.textContent = paused ? words.RESUME : words.PAUSE;
    this.pause.title = paused ? words.RESUME_HELP : words.PAUSE_HELP;
    this.pause.setAttribute("aria-pressed", String(paused));
    const steps = store.get("window");
    if (Number(this.window.value) !== (steps ?? 0)) this.window.value = steps === null ? "" : String(steps);
  }
}

/** In a narrow window the control stands alone. */
function named(text: string, control: HTMLElement): HTMLElement {
  control.setAttribute("aria-label", text);
  control.title = text;
  return field(FIELD, text, control);
}

// Whether values come, with a sign and a word; and the last line, with what is to say and how many values there are.

const STATES = {
  none: [words.NOT_STARTED, "circle"],
  waiting: [words.WAITING, "clock"],
  running: [words.RUNNING, "play"],
  paused: [words.PAUSED, "pause"],
  empty: [words.ENDED_EMPTY, "circle"],
  saved: [words.SAVED_EMPTY, "pause"],
  failing: [words.RUNNING, "warning"],
  failed: [words.ENDED, "warning"],
  ended: [words.ENDED, "check"],
  lost: [words.KERNEL_LOST, "close"]
} as const satisfies Record<string, readonly [string, IconName]>;

type RunState = keyof typeof STATES;

function stateOfRun(data: MetricData, run: number, isBroken: boolean): RunState {
  const isEmpty = Number.isNaN(data.lastStep(run));
  if (data.ended.has(run)) return isEmpty ? "empty" : isBroken ? "failed" : "ended";
  if (data.isSaved) return isEmpty && !data.waiting.has(run) ? "none" : "saved";
  if (isEmpty) return data.waiting.has(run) ? "waiting" : "none";
  return isBroken ? "failing" : "running";
}

// what all runs are in together is the first of these that any is in; none where nothing has begun
const ORDER = ["failing", "running", "saved", "waiting", "failed", "ended", "empty"] as const;
const OVER: readonly RunState[] = ["failed", "ended", "empty", "saved"]; // neither a pause nor the kernel's end changes them
const MAX_BROKEN = 3; // runs that are told about

export class PanelStatus extends Part {
  /** Stands at the head of the picture. */
  readonly state = el("span", "mkg-metric-state");
  private readonly text = el("span", "mkg-status-text");
  private readonly counts = el("span", "mkg-metric-counts");
  private readonly word = el("span");
  /** On top of all: the loss that is not finite, and what was not finite first. */
  readonly health = el("div", "mkg-metric-health");
  private broken: readonly (NonFinite | null)[] = []; // of each run
  private revision = -1; // of the data that they are of

  constructor(
    host: HTMLElement,
    private readonly data: MetricData,
    private readonly store: PanelStore,
    private readonly runs: readonly string[]
  ) {
    super(host);
    host.classList.add("mkg-status", "mkg-metric-status");
    this.text.setAttribute("role", "status");
    this.state.setAttribute("role", "status");
    this.state.append(this.word);
    this.health.setAttribute("role", "status");
    this.health.hidden = true;
    host.append(this.text, this.counts);
    this.disposers.add(store.on(["connected", "paused", "notice"], () => this.draw()));
  }

  draw(): void {
    const connected = this.store.get("connected");
    setText(this.text, [connected ? "" : DISCONNECTED, this.store.get("notice")].filter(Boolean).join(" · "));
    setText(this.counts, this.countsText());
    this.host.classList.toggle("mkg-is-warning", !connected);
    this.drawHealth();
    const states = this.runs.map((_, run) => stateOfRun(this.data, run, this.broken[run]?.isLasting ?? false));
    const own = ORDER.find(one => states.includes(one)) ?? "none";
    const count = states.filter(one => one === own).length;
    const state = OVER.includes(own) ? own : !connected ? "lost" : this.store.get("paused") ? "paused" : own;
    const sign = STATES[state][1];
    const word = this.wordOf(state, states);
    const { length } = this.runs;
    setText(this.word, state !== own || count === length ? word : words.someRuns(word, count, length));
    const isOver = OVER.includes(state) && !this.store.get("paused"); // nothing is left to pause
    this.host.parentElement?.classList.toggle("mkg-is-over", isOver);
    if (this.state.dataset.mkgState === state) return;
    this.state.dataset.mkgState = state;
    this.state.replaceChildren(icon(sign), this.word);
  }

  /** With what is not finite, or the step of a saved page. */
  private wordOf(state: RunState, states: readonly RunState[]): string {
    const latest = this.latestSteps();
    const isAt = state === "saved" && latest.length > 0;
    const word = isAt ? words.savedAt(stepText(Math.max(...latest))) : STATES[state][0];
    const broken = this.broken.find((one, run) => one?.isLasting && states[run] === state);
    return broken ? words.stateWith(word, brokenWord(broken)) : word;
  }

  private drawHealth(): void {
    const { data, runs, health } = this;
    if (this.revision === data.revision) return;
    this.revision = data.revision;
    this.broken = runs.map((_, run) => nonFiniteOf(data, run));
    const texts = this.broken.flatMap((one, run) => {
      if (!one) return [];
      const text = nonFiniteText(data, one);
      return [runs.length > 1 ? words.ofRun(runs[run], text) : text];
    });
    const text = texts.slice(0, MAX_BROKEN).join("\n");
    const isWarning = this.broken.some(one => one?.isLasting);
    health.hidden = text === "";
    const isSame = health.textContent === text && health.classList.contains("mkg-is-warning") === isWarning;
    health.classList.toggle("mkg-is-warning", isWarning);
    if (isSame) return;
    health.replaceChildren(icon(isWarning ? "warning" : "circle"), el("span", "", text));
  }

  private latestSteps(): number[] {
    return this.runs.map((_, run) => this.data.lastStep(run)).filter(step => !Number.isNaN(step));
  }

  private countsText(): string {
    const runs = new Set(this.data.entries.flatMap(entry => (entry ? [entry.run] : [])));
    if (!runs.size) return "";
    const latest = this.latestSteps();
    const metrics = this.data.metrics("numbers").length + this.data.metrics("histograms").length;
    const parts = [
      ...(latest.length ? [words.stepAt(stepText(Math.max(...latest)))] : []),
      counted(metrics, "metric"),
      ...(runs.size > 1 ? [counted(runs.size, "run")] : [])
    ];
    return parts.join(" · ");
  }
}
