// The whole panel: picker, picture, legend, alerts and toolbar around one store and the series of one model.

import "../../../style/metric_panel.css";
import "../../../style/metric_charts.css";
import { button, Disposers, el, listen, setAttribute } from "../shared/ui/dom";
import { captureKeys } from "../shared/ui/keys";
import { showMessage, readOrShowError } from "../shared/ui/status";
import { fileName } from "../export/graph_picture";
import { isEqual } from "../shared/base/state_store";
import { watchTheme } from "../shared/stage/theme";
import { AlertList } from "./alert_list";
import { hasLayers, metricOf } from "./data/selection";
import type { MetricData } from "./data/metric_data";
import { FrameScheduler } from "./base/frame_scheduler";
import { type ChartTheme, type ColorBook, readChartTheme } from "./base/chart_theme";
import { type PanelPayload, readPanel } from "./data/payload";
import { Picker } from "./picker";
import type { Source } from "./pictures";
import { pictureToPng, saveFile } from "./downloads";
import type { PanelState, PanelStore, PanelView } from "./base/state";
import { PanelStatus, PanelToolbar } from "./toolbar";
import { createView, type Outcome, type View } from "./views";
import { emptyStateText, EmptyState } from "./empty_state";

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
let created = 0;

export function createMetricPanel(
  host: HTMLElement,
  raw: unknown,
  data: MetricData,
  colors: ColorBook,
  store: PanelStore
): MetricPanel {
  host.classList.add("mkg-widget", "mkg-metric-panel");
  host.dataset.mkgId ??= `metric-panel-${++created}`;
  captureKeys(host);
  delete host.dataset.mkgReady;
  const payload = readOrShowError(host, raw, readPanel);
  try {
    if (payload) return new Panel(host, payload, data, colors, store);
  } catch (error) {
    console.error("modulekg-widgets", error); // not thrown on: its text would reach the page as HTML
    showMessage(host, "This panel cannot be drawn.");
  }
  return { dispose: () => clear(host) };
}

function clear(host: HTMLElement): void {
  host.replaceChildren();
  for (const name of ["ready", "points", "last"]) host.removeAttribute(`data-mkg-${name}`);
}

class Panel implements MetricPanel {
  private readonly disposers = new Disposers();
  private readonly title = el("div", "mkg-metric-title");
  private readonly reset = button("mkg-button mkg-metric-reset", "Show all steps", "Undo the zoom (double click)");
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
    this.build(toolbar, picker, alerts, status);
    this.pacer = new FrameScheduler(host, () => this.draw()); // the list is drawn as well: also while the picture is scrolled away
    this.picker = new Picker(picker, data, store);
    this.alerts = new AlertList(alerts, data, store);
    this.status = new PanelStatus(status, data, store);
    this.toolbar = new PanelToolbar(toolbar, store, {
      view: view => this.chooseView(view),
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
    clear(this.host);
    this.host.classList.remove("mkg-is-disconnected");
  }

  private build(toolbar: HTMLElement, picker: HTMLElement, alerts: HTMLElement, status: HTMLElement): void {
    const head = box("mkg-metric-head", this.title, this.reset);
    const centre = box("mkg-metric-centre", head, this.stage, this.legendSlot, this.remarks);
    this.said.setAttribute("role", "status");
    this.remarks.setAttribute("role", "note");
    this.host.replaceChildren(
      box("mkg-bar", toolbar),
      box("mkg-metric-main", picker, centre),
      alerts,
      status,
      this.said
    );
  }

  private listen(): void {
    const { store, data } = this;
    this.disposers.add(
      data.onChange(() => this.changed()),
      store.on(DRAWN_FROM, () => this.redraw()),
      store.on(["metric", "view"], () => this.store.set("step", null)),
      store.on("paused", () => {
        this.freeze();
        this.redraw();
      }),
      store.on("pointed", () => this.view?.point(store.get("pointed"))),
      store.on("connected", () => this.followKernel()),
      listen(this.reset, "click", () => this.showAll()),
      watchTheme(() => {
        this.theme = undefined;
        this.redraw();
      })
    );
    if (typeof ResizeObserver === "function") {
      const observer = new ResizeObserver(() => this.pacer.now());
      observer.observe(this.stage);
      this.disposers.add(() => observer.disconnect());
    }
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

  private chooseView(view: PanelView): void {
    const { data, store } = this;
    const metric = store.get("metric");
    // a number of the whole run would be one stripe: the heat map chooses a metric of layers
    if (view === "heatmap" && data.index("numbers", metric) && !hasLayers(data, metric)) store.set("metric", "");
    store.set("view", view);
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
    this.view?.dispose();
    const chart = el("div", "mkg-metric-picture");
    const legend = el("div");
    this.stage.replaceChildren(chart, this.waiting.element);
    this.legendSlot.replaceChildren(legend);
    const say = (text: string) => void (this.said.textContent = text);
    this.view = createView(kind, { chart, legend, say }, { store: this.store });
    return this.view;
  }

  private showAround({ remarks, held, last, isEmpty, label }: Outcome, source: Source): void {
    this.mark("data-mkg-points", held);
    this.mark("data-mkg-last", last);
    setText(this.title, metricOf(this.data, this.store));
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
    const { canvas } = this.view ?? {};
    const { theme } = this.source();
    const notes = this.remarks.textContent ? [this.remarks.textContent] : [];
    const title = this.title.textContent ?? "";
    try {
      const [legend, ramp] = [this.view?.legend() ?? [], this.view?.ramp() ?? null];
      const blob = canvas && (await pictureToPng({ title, canvas, legend, ramp, notes, theme }));
      if (blob) saveFile(blob, this.file("png"));
      this.store.set("notice", blob ? "" : "The picture is not drawn yet: try again in a moment.");
    } catch {
      // what went wrong may contain names from the model, so the text is fixed
      this.store.set("notice", "The PNG file could not be made.");
    }
  }

  private file(extension: string): string {
    return fileName(metricOf(this.data, this.store) || "metrics", extension);
  }
}

function setText(element: HTMLElement, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

function box(className: string, ...children: HTMLElement[]): HTMLElement {
  const element = el("div", className);
  element.append(...children);
  return element;
}
