// The state of a metric panel: what is chosen in it.

import { StateStore } from "../../shared/base/state_store";

/** All metrics in small charts, or one metric as lines, heat map or histograms. */
export type PanelView = "grid" | "lines" | "heatmap" | "histogram";
export type Phase = "train" | "eval" | "both";
/** From where to where the colors of a heat map reach: without outliers, over all values, or of each row by itself. */
export type ColorRule = "robust" | "full" | "row";
export type Span = readonly [first: number, last: number]; // steps

export interface PanelState {
  selected: string | null; // dotted path; "" is the whole model
  metric: string; // "" is the first that comes
  modules: readonly string[]; // [] is the panel's own choice
  view: PanelView;
  window: number | null; // the last so many steps; null is all
  logScale: boolean | null; // null is as the values are
  paused: boolean;
  phase: Phase;
  // The rest stays in the browser.
  query: string; // what the list of modules is searched for
  zoom: Span | null;
  step: number | null; // of the histograms; null is the latest
  colors: ColorRule;
  ridge: boolean; // histograms of all steps, one behind the other
  pointed: number | null; // the series whose name is pointed at
  connected: boolean;
  notice: string;
}

function initialPanelState(): PanelState {
  return {
    selected: null,
    metric: "",
    modules: [],
    view: "lines",
    window: null,
    logScale: null,
    colors: "robust",
    paused: false,
    phase: "train",
    query: "",
    zoom: null,
    step: null,
    ridge: false,
    pointed: null,
    connected: true,
    notice: ""
  };
}

export class PanelStore extends StateStore<PanelState> {
  constructor(initial: Partial<PanelState> = {}) {
    super({ ...initialPanelState(), ...initial });
  }
}

/** What pictures are made by. */
export type PanelReader = Pick<PanelStore, "get">;

/** The state as it is but for the metric, which is drawn as lines, and the modules where they are given. */
export function linesOf(store: PanelReader, metric: string, modules?: readonly string[]): PanelReader {
  const own: Partial<PanelState> = { metric, view: "lines", modules };
  return { get: key => own[key] ?? store.get(key) } as PanelReader;
}
