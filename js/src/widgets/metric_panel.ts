// The widget MetricPanel: the series live in the model, so that all views show the same; a view binds its state to the traits.

import { DOMWidgetModel } from "@jupyter-widgets/base";
import { Feed, MetricData } from "../core/metrics/data/metric_data";
import { ColorBook } from "../core/metrics/base/chart_theme";
import { createMetricPanel, type MetricPanel } from "../core/metrics/metric_panel";
import { limitOf } from "../core/metrics/data/payload";
import { type PanelState, PanelStore } from "../core/metrics/base/state";
import {
  channelOf,
  connectFeed,
  modelDefaults,
  areTexts,
  type Binding,
  BoundView,
  isCount,
  isFlag,
  isText,
  isTextOrNull,
  oneOf
} from "./base";

export class MetricPanelModel extends DOMWidgetModel {
  // set in initialize(), which the base class calls before field initializers would run
  declare feed: Feed;
  declare colors: ColorBook;

  override defaults(): ReturnType<DOMWidgetModel["defaults"]> {
    return {
      ...super.defaults(),
      ...modelDefaults("MetricPanel"),
      payload: {},
      selected: null,
      metric: "",
      modules: [],
      view: "lines", // what a notebook without this key shows; a kernel sends "grid"
      window: null,
      log_scale: false, // what a notebook without this key meant when it was saved; a kernel sends null for "as the values are"
      paused: false,
      phase: "train"
    };
  }

  override initialize(...options: Parameters<DOMWidgetModel["initialize"]>): void {
    super.initialize(...options);
    this.colors = new ColorBook();
    this.feed = new Feed(new MetricData(limitOf(this.get("payload"))), channelOf(this));
    connectFeed(this, this.feed);
    this.on("change:payload", () => this.feed.data.setLimit(limitOf(this.get("payload"))));
  }
}

const BINDINGS: readonly Binding<PanelState>[] = [
  { key: "selected", trait: "selected", delay: 20, isValid: isTextOrNull },
  { key: "metric", trait: "metric", delay: 60, isValid: isText },
  { key: "modules", trait: "modules", delay: 60, isValid: areTexts },
  { key: "view", trait: "view", delay: 60, isValid: oneOf("grid", "lines", "heatmap", "histogram") },
  { key: "window", trait: "window", delay: 60, isValid: value => value === null || (isCount(value) && value !== 0) },
  { key: "logScale", trait: "log_scale", delay: 60, isValid: value => value === null || isFlag(value) },
  { key: "paused", trait: "paused", delay: 60, isValid: isFlag },
  { key: "phase", trait: "phase", delay: 60, isValid: oneOf("train", "eval", "both") }
];

export class MetricPanelView extends BoundView<PanelState, MetricPanel> {
  protected readonly bindings = BINDINGS;

  override render(): void {
    super.render();
    this.series.feed.wake();
  }

  protected createStore(initial: Partial<PanelState>): PanelStore {
    return new PanelStore(initial);
  }

  protected create(store: PanelStore): MetricPanel {
    const { feed, colors } = this.series;
    return createMetricPanel(this.el, this.model.get("payload"), feed.data, colors, store);
  }

  private get series(): MetricPanelModel {
    return this.model as unknown as MetricPanelModel;
  }
}
