// A metric panel on the page of a test, and what a test looks at and does there.

import "./media";
import { afterEach, beforeEach, expect } from "vitest";
import { Feed, MetricData } from "../core/metrics/data/metric_data";
import { ColorBook } from "../core/metrics/base/chart_theme";
import { createMetricPanel, type MetricPanel } from "../core/metrics/metric_panel";
import { type PanelState, PanelStore } from "../core/metrics/base/state";
import { message, numbers, panelPayload, type Parts, series, until } from "./metrics";

export const MODULES = Array.from({ length: 12 }, (_, i) => `layer${i}`);

/** What a test has now; made anew for each. */
export const page: { panel?: MetricPanel; feed: Feed; store: PanelStore } = fresh();
let seq = 0;

function fresh(): { feed: Feed; store: PanelStore } {
  return { feed: new Feed(new MetricData(2000), { isLive: true, send: () => {} }), store: new PanelStore({}) };
}

/** Called once in a file of tests. */
export function useMetricPage(): void {
  beforeEach(() => {
    seq = 0;
    Object.assign(page, fresh());
  });
  afterEach(() => {
    page.panel?.dispose();
    page.panel = undefined;
    document.body.replaceChildren();
  });
}

export const host = () => document.querySelector<HTMLElement>(".mkg-metric-panel") ?? document.body;

export function find<T extends HTMLElement = HTMLElement>(selector: string): T {
  const element = host().querySelector<T>(selector);
  if (!element) throw new Error(`there is no ${selector}`);
  return element;
}

export const all = (selector: string) => [...host().querySelectorAll<HTMLElement>(selector)];
export const texts = (selector: string) => all(selector).map(element => element.textContent);
export const ticked = () =>
  all("[data-mkg-path]")
    .filter(row => row.querySelector("input")?.checked)
    .map(row => row.dataset.mkgPath);

export function open(state: Partial<PanelState> = {}, payload: unknown = panelPayload(["base"])): void {
  const element = document.createElement("div");
  document.body.append(element);
  page.store = new PanelStore(state);
  page.panel = createMetricPanel(element, payload, page.feed.data, new ColorBook(), page.store);
}

export function receive(parts: Parts): void {
  const { content, buffers } = message((seq += 1), parts);
  page.feed.receive(content, buffers);
}

export async function rendered(
  state: Partial<PanelState> = {},
  parts: Parts = twelve(),
  runs: readonly string[] = ["base"]
): Promise<void> {
  receive(parts);
  open(state, panelPayload(runs));
  await until(() => expect(host().dataset.mkgReady).toBe("true"));
}

/** Twelve layers with a metric, a loss that has no values, and histograms of one layer. */
export const twelve = (): Parts => ({
  entries: [
    ...numbers("WeightNorm", MODULES),
    ...numbers("Loss", [""]),
    [0, "layer1", "Histogram", 0, "train", "histogram"]
  ],
  points: MODULES.map((_, i) => [i, series(10, step => step + i)]),
  histograms: [
    [13, 4, [-1, 1, 10, 5], [4, 6]],
    [13, 8, [-1, 1, 10, 5], [5, 5]]
  ]
});

export function choose(selector: string, value: string): void {
  const element = find<HTMLSelectElement>(selector);
  element.value = value;
  element.dispatchEvent(new Event("change", { bubbles: true }));
}
