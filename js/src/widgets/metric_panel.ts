// MetricPanel: the series live in the model, so that all views show the same; a view binds its state to the traits.

import { DOMWidgetModel, DOMWidgetView } from "@jupyter-widgets/base";
import { Feed } from "../core/metrics/feed";
import { MetricData } from "../core/metrics/metric_data";
import { ColourBook } from "../core/metrics/palette";
import { createMetricPanel, type MetricPanel } from "../core/metrics/panel";
import { limitOf } from "../core/metrics/panel_payload";
import { type PanelState, PanelStore, type PanelView, type Phase } from "../core/metrics/state";
import { Connection, modelDefaults, TraitWriter } from "./_base";

export class MetricPanelModel extends DOMWidgetModel {
  // set in initialize(), which the base class calls before field initializers would run
  declare feed: Feed;
  declare colours: ColourBook;

  override defaults(): ReturnType<DOMWidgetModel["defaults"]> {
    return {
      ...super.defaults(),
      ...modelDefaults("MetricPanel"),
      payload: {},
      selected: null,
      metric: "",
      modules: [],
      view: "lines",
      window: null,
      log_scale: false,
      paused: false,
      phase: "train"
    };
  }

  override initialize(...options: Parameters<DOMWidgetModel["initialize"]>): void {
    super.initialize(...options);
    const isLive = () => this.comm_live;
    this.colours = new ColourBook();
    this.feed = new Feed(new MetricData(limitOf(this.get("payload"))), {
      get isLive() {
        return isLive();
      },
      send: (content, taken) => this.send(content, { iopub: { status: (message: unknown) => whenIdle(message, taken) } })
    });
    this.on("msg:custom", (content: unknown, buffers: unknown) => this.feed.receive(content, buffers));
    this.on("change:payload", () => this.feed.data.setLimit(limitOf(this.get("payload"))));
    this.on("comm_live_update", () => {
      if (this.comm_live) this.feed.revive();
    });
  }
}

function whenIdle(message: unknown, act?: () => void): void {
  const { content } = message as { content?: { execution_state?: unknown } };
  if (content?.execution_state === "idle") act?.();
}

type Key = Exclude<keyof PanelState, "query" | "zoom" | "step" | "ridge" | "pointed" | "connected" | "notice">;

interface Binding<K extends Key = Key> {
  readonly key: K;
  readonly trait: string;
  readonly delay: number; // ms until the kernel hears of it
  readonly isValid: (value: unknown) => boolean;
}

const isText = (value: unknown): value is string => typeof value === "string";
const oneOf =
  <T extends string>(...choices: readonly T[]) =>
  (value: unknown): boolean =>
    choices.includes(value as T);
const isFlag = (value: unknown): boolean => typeof value === "boolean";

const BINDINGS: readonly Binding[] = [
  { key: "selected", trait: "selected", delay: 20, isValid: value => value === null || isText(value) },
  { key: "metric", trait: "metric", delay: 60, isValid: isText },
  { key: "modules", trait: "modules", delay: 60, isValid: value => Array.isArray(value) && value.every(isText) },
  { key: "view", trait: "view", delay: 60, isValid: oneOf<PanelView>("lines", "heatmap", "histogram") },
  {
    key: "window",
    trait: "window",
    delay: 60,
    isValid: value => value === null || (Number.isInteger(value) && (value as number) > 0)
  },
  { key: "logScale", trait: "log_scale", delay: 60, isValid: isFlag },
  { key: "paused", trait: "paused", delay: 60, isValid: isFlag },
  { key: "phase", trait: "phase", delay: 60, isValid: oneOf<Phase>("train", "eval", "both") }
];

export class MetricPanelView extends DOMWidgetView {
  private store?: PanelStore;
  private panel?: MetricPanel;
  private connection?: Connection;
  private writer?: TraitWriter;
  private disposers: (() => void)[] = [];
  private fromKernel = false;

  private get series(): MetricPanelModel {
    return this.model as unknown as MetricPanelModel;
  }

  override render(): void {
    super.render();
    const store = new PanelStore(this.traits());
    this.store = store;
    this.writer = new TraitWriter(this, () => this.connection?.connected ?? false);
    this.connection = new Connection(this.model, connected => store.set("connected", connected));
    store.set("connected", this.connection.connected);
    this.el.dataset.mkgId = this.model.model_id;
    this.bindTraits(store);
    this.series.feed.wake();
    // the canvas needs the size that it has on the page
    void this.displayed.then(() => this.mount());
  }

  override remove(): void {
    this.writer?.dispose();
    this.connection?.dispose();
    this.panel?.dispose();
    this.disposers.forEach(dispose => dispose());
    this.disposers = [];
    this.store = undefined;
    super.remove();
  }

  private bindTraits(store: PanelStore): void {
    for (const binding of BINDINGS) {
      const { key, trait, delay } = binding;
      this.disposers.push(
        store.on(key, () => {
          if (!this.fromKernel) this.writer?.write(trait, store.get(key), delay);
        })
      );
      this.listenTo(this.model, `change:${trait}`, () => this.receive(binding));
    }
    this.listenTo(this.model, "change:payload", () => this.rebuild());
  }

  /** The traits as the panel's state; anything of the wrong kind is left out. */
  private traits(): Partial<PanelState> {
    const valid = BINDINGS.filter(({ trait, isValid }) => isValid(this.model.get(trait)));
    return Object.fromEntries(valid.map(({ key, trait }) => [key, this.model.get(trait)]));
  }

  private receive({ key, trait, isValid }: Binding): void {
    const value: unknown = this.model.get(trait);
    if (!this.store || !isValid(value)) return;
    this.quietly(() => {
      this.writer?.forget(trait);
      this.store?.set(key, value as PanelState[Key]);
    });
  }

  /** Every change that follows from the kernel's is part of it: none is sent back. */
  private quietly(act: () => void): void {
    this.fromKernel = true;
    try {
      act();
    } finally {
      this.fromKernel = false;
    }
  }

  private mount(): void {
    const { store } = this;
    if (!store) return; // closed before it was shown
    const { feed, colours } = this.series;
    this.quietly(() => {
      this.panel = createMetricPanel(this.el, this.model.get("payload"), feed.data, colours, store);
    });
  }

  private rebuild(): void {
    if (!this.panel) return;
    this.panel.dispose();
    this.mount();
  }
}
