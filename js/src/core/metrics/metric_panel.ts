// The metric panel: picker, picture, legend, alerts and toolbar around one store and the series of one model.

import "../../../style/metric_panel.css";
import "../../../style/metric_charts.css";
import {
  button,
  Disposers,
  el,
  listen,
  setAttribute,
  copyText,
  nameSpan,
  icon,
  saveFile,
  Part,
  setRole,
  box,
  onResize,
  setText
} from "../shared/ui/dom";
import { clearHost, drawOrShowError, keepHeight, prepareHost, readOrShowError } from "../shared/ui/widget_frame";
import { fileName } from "../export/graph_picture";
import { isEqual } from "../shared/base/state_store";
import { watchTheme } from "../shared/stage/theme";
import { metricOf, chosenModules, matchesQuery, kindOf, runName, titleOf } from "./data/selection";
import { alertMessage, type AlertMark, type MetricData } from "./data/metric_data";
import { FrameScheduler } from "./base/frame_scheduler";
import { type ChartTheme, type ColorBook, readChartTheme } from "./base/chart_theme";
import { type PanelPayload, readPanel } from "./data/payload";
import { Picker } from "./picker";
import type { Source } from "./pictures";
import { pictureToPng } from "./downloads";
import type { PanelState, PanelStore } from "./base/state";
import { PanelStatus, PanelToolbar } from "./toolbar";
import { createView, type Outcome, type View } from "./views";
import { counted } from "../shared/base/format";
import { stepText } from "./base/value_axis";
import * as words from "../words/metrics";

export interface MetricPanel {
  dispose(): void;
}

// a change of one of these changes the picture
const DRAWN_FROM: readonly (keyof PanelState)[] = [
  "selected",
  "metric",
  "modules",
  "view",
  "window",
  "logScale",
  "colors",
  "phase",
  "query",
  "zoom",
  "step",
  "ridge"
];
const MARKS = ["points", "last"];

export function createMetricPanel(
  host: HTMLElement,
  raw: unknown,
  data: MetricData,
  colors: ColorBook,
  store: PanelStore
): MetricPanel {
  prepareHost(host, "metric-panel");
  const payload = readOrShowError(host, raw, readPanel);
  const draw = () => payload && new Panel(host, payload, data, colors, store);
  return drawOrShowError(host, draw, words.UNDRAWABLE) ?? { dispose: () => clearHost(host, ...MARKS) };
}

class Panel implements MetricPanel {
  private readonly disposers = new Disposers();
  private readonly title = el("div", "mkg-metric-title");
  private readonly reset = button("mkg-button mkg-metric-reset", words.SHOW_ALL, words.SHOW_ALL_HELP);
  private readonly back = button("mkg-button mkg-metric-back", words.BACK, words.BACK_HELP);
  private readonly stage = el("div", "mkg-metric-stage");
  private readonly legendSlot = el("div", "mkg-metric-legend-slot");
  private readonly remarks = el("div", "mkg-metric-remarks");
  private readonly waiting: EmptyState;
  private readonly said = el("div", "mkg-metric-said mkg-offscreen");
  private readonly pacer: FrameScheduler;
  private readonly picker: Picker;
  private readonly alerts: AlertList;
  private readonly status: PanelStatus;
  private readonly toolbar: PanelToolbar;
  private view?: View;
  private theme?: ChartTheme;
  private frozen: ReadonlyMap<number, number> | null = null; // while paused, the last step of each run
  private structure = -1; // of the catalog, as the picker shows it
  private drawn: ReadonlySet<string> = new Set(); // modules, as the picker shows them
  private isStale = true; // something was chosen since the last drawing
  private counting = 0;

  constructor(
    private readonly host: HTMLElement,
    private readonly payload: PanelPayload,
    private readonly data: MetricData,
    private readonly colors: ColorBook,
    private readonly store: PanelStore
  ) {
    const [toolbar, picker, alerts, status] = ["toolbar", "picker", "alerts", "status"].map(name =>
      el("div", `mkg-slot mkg-metric-slot-${name}`)
    );
    this.waiting = new EmptyState(text => store.set("notice", text));
    this.status = new PanelStatus(status, data, store, payload.runs);
    this.build(toolbar, picker, alerts, status);
    this.pacer = new FrameScheduler(host, () => this.draw()); // the list is drawn as well: also while the picture is scrolled away
    this.picker = new Picker(picker, data, store);
    this.alerts = new AlertList(alerts, data, store);
    this.toolbar = new PanelToolbar(toolbar, store, {
      view: view => store.set("view", view),
      csv: () => this.saveCsv(),
      png: () => void this.savePng()
    });
    for (const part of [this.pacer, this.picker, this.alerts, this.status, this.toolbar, this.waiting])
      this.disposers.add(() => part.dispose());
    this.freeze();
    this.listen();
    this.followKernel();
    this.pacer.now();
  }

  dispose(): void {
    cancelAnimationFrame(this.counting);
    this.disposers.dispose();
    this.view?.dispose();
    clearHost(this.host, ...MARKS);
  }

  private build(toolbar: HTMLElement, picker: HTMLElement, alerts: HTMLElement, status: HTMLElement): void {
    this.back.prepend(icon("back"));
    const head = box("mkg-metric-head", this.back, this.title, this.reset, this.status.state);
    const centre = box("mkg-metric-centre", head, this.stage, this.legendSlot, this.remarks);
    const main = box("mkg-metric-main", picker, centre);
    this.disposers.add(keepHeight(main, "metrics"));
    this.said.setAttribute("role", "status");
    this.remarks.setAttribute("role", "note");
    this.host.replaceChildren(box("mkg-bar", toolbar), this.status.health, main, alerts, status, this.said);
  }

  private listen(): void {
    const { store, data } = this;
    this.disposers.add(
      data.onChange(() => this.changed()),
      store.on(DRAWN_FROM, () => this.redraw()),
      store.on("metric", () => this.store.set("step", null)),
      store.on("paused", () => {
        this.freeze();
        this.redraw();
      }),
      store.on("pointed", () => this.view?.point(store.get("pointed"))),
      store.on("connected", () => this.followKernel()),
      listen(this.reset, "click", () => this.showAll()),
      listen(this.back, "click", () => this.goBack()),
      watchTheme(() => {
        this.theme = undefined;
        this.redraw();
      })
    );
    this.disposers.add(onResize(this.stage, () => this.pacer.now()));
  }

  /** Values came: counted at once, drawn when it is time, and not at all while paused. */
  private changed(): void {
    if (!this.frozen) this.pacer.data();
    this.counting ||= requestAnimationFrame(() => this.count());
  }

  private redraw(): void {
    this.isStale = true;
    this.pacer.now();
  }

  /** How much is held, whether or not it is drawn. */
  private count(): void {
    this.counting = 0;
    this.status.draw();
    if (this.view) this.mark("data-mkg-points", this.view.points(this.source()));
  }

  private freeze(): void {
    const { data } = this;
    if (!this.store.get("paused")) this.frozen = null;
    else
      this.frozen ??= new Map(
        data.entries.flatMap(entry => (entry ? [[entry.run, data.lastStep(entry.run)] as const] : []))
      );
  }

  /** To the charts of all metrics, at the one that was seen. */
  private goBack(): void {
    const metric = metricOf(this.data, this.store);
    this.store.set("view", "grid");
    const focus = () => {
      const cards = [...this.stage.querySelectorAll<HTMLElement>(".mkg-metric-card")];
      const card = cards.find(({ dataset }) => dataset.mkgMetric === metric) ?? cards[0];
      card?.querySelector("button")?.focus();
    };
    requestAnimationFrame(() => requestAnimationFrame(focus)); // once they are drawn
  }

  private showAll(): void {
    this.store.set("zoom", null);
    this.stage.querySelector<HTMLElement>("[tabindex='0']")?.focus(); // the button is gone
  }

  private source(): Source {
    const { data, store, colors, frozen, payload } = this;
    this.theme ??= readChartTheme(this.host);
    const until = (run: number) => (frozen ? (frozen.get(run) ?? -Infinity) : Infinity);
    return { data, store, colors, runs: payload.runs, theme: this.theme, until };
  }

  private draw(): void {
    const source = this.source();
    const view = this.viewFor();
    const outcome = view.draw(source);
    if (this.isStale || this.structure !== this.data.structure || !isEqual(this.drawn, outcome.modules)) {
      this.picker.draw(outcome);
      this.drawn = outcome.modules;
      this.structure = this.data.structure;
      this.isStale = false;
    }
    this.toolbar.showScale(outcome.isLog);
    this.alerts.draw(this.payload.runs);
    this.status.draw();
    this.showAround(outcome, source);
    this.host.dataset.mkgReady = "true";
  }

  private viewFor(): View {
    const kind = this.store.get("view");
    if (this.view?.kind === kind) return this.view;
    const hadFocus = this.stage.contains(document.activeElement);
    this.view?.dispose();
    const chart = el("div", "mkg-metric-picture");
    const legend = el("div");
    this.stage.replaceChildren(chart, this.waiting.element);
    this.legendSlot.replaceChildren(legend);
    const say = (text: string) => void (this.said.textContent = text);
    this.view = createView(kind, { chart, legend, say, redraw: () => this.pacer.now() }, this.store);
    if (hadFocus) chart.focus(); // what had it is gone
    return this.view;
  }

  private showAround({ remarks, held, last, isEmpty, label }: Outcome, source: Source): void {
    this.mark("data-mkg-points", held);
    this.mark("data-mkg-last", last);
    const isGrid = this.store.get("view") === "grid";
    setText(this.title, isGrid ? words.GRID : titleOf(this.data, this.store));
    this.back.hidden = isGrid || this.data.isEmpty;
    this.waiting.show(isEmpty ? emptyStateText(this.data, this.store) : null);
    this.stage.classList.toggle("mkg-is-empty", isEmpty);
    this.legendSlot.hidden = isEmpty;
    this.reset.hidden = this.store.get("zoom") === null || this.store.get("view") === "histogram";
    setText(this.remarks, remarks.join(" "));
    this.remarks.hidden = remarks.length === 0;
    const chart = this.stage.firstElementChild;
    if (chart) setAttribute(chart, "aria-label", label);
    this.host.classList.toggle("mkg-is-dark", source.theme.dark);
  }

  private mark(name: string, value: number | null): void {
    setAttribute(this.host, name, value === null ? null : String(value));
  }

  private followKernel(): void {
    this.host.classList.toggle("mkg-is-disconnected", !this.store.get("connected"));
    this.status.draw();
  }

  private saveCsv(): void {
    const text = this.view?.csv(this.source()) ?? "";
    saveFile(new Blob([text], { type: "text/csv;charset=utf-8" }), this.file("csv"));
  }

  private async savePng(): Promise<void> {
    const source = this.source();
    const { theme } = source;
    const notes = [this.status.health, this.remarks].flatMap(({ textContent }) => textContent || []);
    const title = this.title.textContent ?? "";
    try {
      const [legend, ramp] = [this.view?.legend() ?? [], this.view?.ramp() ?? null];
      const picture = await this.view?.picture(source);
      const blob = picture && (await pictureToPng({ title, picture, legend, ramp, notes, theme }));
      if (blob) saveFile(blob, this.file("png"));
      this.store.set("notice", blob ? "" : words.NOT_DRAWN);
    } catch {
      // what went wrong may contain names from the model, so the text is fixed
      this.store.set("notice", words.PNG_FAILED);
    }
  }

  private file(extension: string): string {
    return fileName(metricOf(this.data, this.store) || "metrics", extension);
  }
}

// The message in an empty panel: why there is nothing to draw, and code to copy so that there is.

/** What an empty picture says. */
interface EmptyStateText {
  readonly text: string;
  readonly code: string; // "" where nothing is to be written
}

const NOTHING: EmptyStateText = { text: words.NO_STEP, code: words.NO_STEP_CODE };
const HISTOGRAMS: EmptyStateText = { text: words.NO_HISTOGRAMS, code: words.HISTOGRAMS_CODE };
const LAYERS: EmptyStateText = { text: words.NO_LAYERS, code: words.LAYERS_CODE };
const PHASES: Readonly<Record<string, string>> = { eval: words.EVAL_CODE, train: words.TRAIN_CODE };

function emptyStateText(data: MetricData, store: PanelStore): EmptyStateText {
  const view = store.get("view");
  const metric = metricOf(data, store);
  const phase = store.get("phase");
  if (data.isEmpty) return NOTHING;
  const index = data.index(kindOf(view), metric);
  if (!index && metric) return { text: words.NO_METRIC, code: words.metricCode(metric) };
  if (!index && view === "histogram") return HISTOGRAMS;
  if (!index) return view === "heatmap" ? LAYERS : NOTHING;
  const query = store.get("query");
  const isSearched = view === "heatmap" && query !== "";
  if (isSearched && !chosenModules(data, store).modules.some(module => matchesQuery(module, query)))
    return { text: words.NOT_FOUND, code: "" };
  const hasPhase = index.series.some(series => phase === "both" || data.entries[series]?.phase === phase);
  if (hasPhase) return NOTHING;
  return { text: words.noPhase(phase), code: PHASES[phase] ?? "" };
}

const COPIED_FOR = 1500; // ms

/** The words and the code in the middle of an empty picture. */
class EmptyState {
  readonly element = el("div", "mkg-metric-waiting");
  private readonly disposers = new Disposers();
  private readonly text = el("p", "mkg-metric-waiting-text");
  private readonly code = el("code");
  private readonly copy = button("mkg-button mkg-metric-copy", words.COPY, words.COPY_HELP);
  private readonly box = el("div", "mkg-metric-waiting-code");
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(notify: (text: string) => void) {
    const lines = el("pre");
    lines.append(this.code);
    this.copy.prepend(icon("copy"));
    this.box.append(lines, this.copy);
    this.text.setAttribute("role", "status");
    this.element.append(this.text, this.box);
    this.disposers.add(
      listen(this.copy, "click", () => void this.take(notify)),
      () => clearTimeout(this.timer)
    );
  }

  /** Null: there is a picture. */
  show(empty: EmptyStateText | null): void {
    const { text, code } = empty ?? { text: "", code: "" };
    setText(this.text, text);
    setText(this.code, code);
    this.box.hidden = code === "";
    this.element.hidden = empty === null;
  }

  dispose(): void {
    this.disposers.dispose();
  }

  private async take(notify: (text: string) => void): Promise<void> {
    const done = await copyText(this.code.textContent ?? "");
    notify(done ? words.COPIED : words.NOT_COPIED);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => notify(""), COPIED_FOR);
  }
}

// The alerts below the picture, the latest first; a click shows the metric and selects the module.

const MAX_ROWS = 100;

class AlertList extends Part {
  private readonly heading = el("div", "mkg-metric-alerts-heading");
  private readonly list = el("ul", "mkg-metric-alerts");
  private readonly more = el("div", "mkg-dim");
  private built = "";

  constructor(
    host: HTMLElement,
    private readonly data: MetricData,
    private readonly store: PanelStore
  ) {
    super(host);
    host.classList.add("mkg-metric-alert-box");
    setRole(host, "group", words.ALERTS);
    this.list.setAttribute("aria-label", words.ALERTS_LATEST);
    this.heading.setAttribute("role", "status");
    host.append(this.heading, this.list, this.more);
    host.hidden = true;
  }

  draw(runs: readonly string[]): void {
    const { alertCount, alerts, structure } = this.data;
    const built = `${alertCount} ${structure} ${runs.join("\n")}`;
    if (built === this.built) return;
    this.built = built;
    this.host.hidden = alertCount === 0;
    this.heading.textContent = counted(alertCount, "alert");
    const latest = [...alerts]
      .reverse()
      .sort((a, b) => b.step - a.step)
      .slice(0, MAX_ROWS);
    this.list.replaceChildren(...latest.map(alert => this.entry(alert, runs)));
    this.more.textContent = alertCount > latest.length ? words.latestAlerts(MAX_ROWS) : "";
  }

  private entry(alert: AlertMark, runs: readonly string[]): HTMLElement {
    const entry = el("li");
    const element = button("mkg-metric-alert", "");
    const place = [words.stepAt(stepText(alert.step)), ...(runs.length > 1 ? [runName(runs, alert.run)] : [])].join(
      " · "
    );
    element.append(el("span", "mkg-metric-alert-step", place), nameSpan("mkg-metric-alert-text", alertMessage(alert)));
    element.title = words.GO_TO_ALERT;
    element.addEventListener("click", () => this.go(alert));
    entry.append(element);
    return entry;
  }

  private go({ metric, module }: AlertMark): void {
    if (this.data.index("numbers", metric)) {
      if (["histogram", "grid"].includes(this.store.get("view"))) this.store.set("view", "lines");
      this.store.set("metric", metric);
    }
    this.store.set("selected", module);
  }
}
