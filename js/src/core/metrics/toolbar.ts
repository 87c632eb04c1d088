// The toolbar of a panel, with view, phase, window, logarithm, pause and files; and its status line.

import { button, Debounced, el, listen, option, icon, Part, setRole, field, checkbox } from "../shared/ui/dom";
import { addWindowButtons } from "../shared/ui/window_buttons";
import type { PanelStore, PanelView, Phase } from "./base/state";
import { counted, exactNumber } from "../shared/base/format";
import { DISCONNECTED } from "../shared/ui/widget_frame";
import type { MetricData } from "./data/metric_data";

const VIEWS: readonly [PanelView, string][] = [
  ["lines", "Lines"],
  ["heatmap", "Heat map"],
  ["histogram", "Histograms"]
];
const PHASES: readonly [Phase, string][] = [
  ["train", "train"],
  ["eval", "eval"],
  ["both", "train and eval"]
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
  private readonly pause = button("mkg-button mkg-metric-pause", "Pause");
  private isLog = false; // as it is drawn
  private readonly typed = new Debounced(() => this.setWindow(), TYPING);

  constructor(
    host: HTMLElement,
    private readonly store: PanelStore,
    private readonly events: ToolbarEvents
  ) {
    super(host);
    host.classList.add("mkg-metric-toolbar");
    setRole(host, "toolbar", "View, steps and files");
    this.view.append(...VIEWS.map(([value, text]) => option(value, text)));
    this.phase.append(...PHASES.map(([value, text]) => option(value, text)));
    this.window.type = "number";
    this.window.min = "1";
    this.window.step = "1";
    this.window.placeholder = "all";
    this.window.title = "Show only the last so many steps; empty shows all";
    this.log.type = "checkbox";
    host.append(
      field(FIELD, "View", this.view),
      field(FIELD, "Phase", this.phase),
      field(FIELD, "Last", this.window, el("span", "mkg-label", "steps")),
      checkbox("mkg-metric-check", this.log, "Log scale"),
      this.pause,
      this.files()
    );
    this.disposers.add(addWindowButtons(host));
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
    this.log.title = isOwn ? "Chosen by the panel: logarithmic where positive values of layers span decades" : "";
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
    add("csv", "Save what is shown as CSV");
    add("png", "Save the picture as PNG");
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
    this.pause.textContent = paused ? "Resume" : "Pause";
    this.pause.title = paused ? "Show all that has come, and go on drawing" : "Stop drawing; values keep coming";
    this.pause.setAttribute("aria-pressed", String(paused));
    const steps = store.get("window");
    if (Number(this.window.value) !== (steps ?? 0)) this.window.value = steps === null ? "" : String(steps);
  }
}

// The last line: whether values come, and how many there are.

export class PanelStatus extends Part {
  private readonly text = el("span", "mkg-status-text");
  private readonly counts = el("span", "mkg-metric-counts");

  constructor(
    host: HTMLElement,
    private readonly data: MetricData,
    private readonly store: PanelStore
  ) {
    super(host);
    host.classList.add("mkg-status", "mkg-metric-status");
    this.text.setAttribute("role", "status");
    host.append(this.text, this.counts);
    this.disposers.add(store.on(["connected", "paused", "notice"], () => this.draw()));
  }

  draw(): void {
    const connected = this.store.get("connected");
    const text = [this.state(connected), this.store.get("notice")].filter(Boolean).join(" · ");
    if (this.text.textContent !== text) this.text.textContent = text;
    const counts = this.countsText();
    if (this.counts.textContent !== counts) this.counts.textContent = counts;
    this.host.classList.toggle("mkg-is-warning", !connected);
  }

  private state(connected: boolean): string {
    if (!connected) return DISCONNECTED;
    if (this.store.get("paused")) return "Paused: values keep coming, Resume shows them.";
    const runs = this.runs();
    if (runs.size && [...runs].every(run => this.data.ended.has(run)))
      return runs.size > 1 ? "All runs have ended." : "The run has ended.";
    return "";
  }

  private runs(): Set<number> {
    const runs = new Set<number>();
    for (const entry of this.data.entries) if (entry) runs.add(entry.run);
    return runs;
  }

  private countsText(): string {
    const runs = this.runs();
    if (!runs.size) return "";
    const latest = Math.max(
      ...[...runs].map(run => this.data.lastStep(run)).filter(step => !Number.isNaN(step)),
      -Infinity
    );
    const metrics = this.data.metrics("numbers").length + this.data.metrics("histograms").length;
    const parts = [
      ...(latest === -Infinity ? [] : [`step ${exactNumber(latest)}`]),
      counted(metrics, "metric"),
      ...(runs.size > 1 ? [counted(runs.size, "run")] : [])
    ];
    return parts.join(" · ");
  }
}
