// What a view has begun ends with it: observers, and what it hears of the page around it.

import "./media";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { createForwardPlayer } from "../core/forward/player";
import { MapsFeed } from "../core/forward/maps_feed";
import { RevealedShapes } from "../core/forward/quiz";
import { createModelGraph } from "../core/graph/model_graph";
import { createKnowledgeExplorer } from "../core/knowledge/explorer";
import { ExplorerStore, VIEW_NAMES } from "../core/knowledge/data/state";
import { createMaskEditor } from "../core/masks/editor";
import { EditorStore } from "../core/masks/session/editor_context";
import { MetricData } from "../core/metrics/data/metric_data";
import { ColorBook } from "../core/metrics/base/chart_theme";
import { createMetricPanel } from "../core/metrics/metric_panel";
import { PanelStore } from "../core/metrics/base/state";
import { GraphStore, type ViewName } from "../core/shared/model/graph_store";
import { golden as goldenForward, storeWith } from "./forward";
import { rawKnowledge } from "./knowledge";
import { openSession } from "./masks";
import { panelPayload } from "./metrics";
import { compared, resnet } from "./payloads";
import { settle } from "./sample";

let host: HTMLElement;
const open = new Map<string, number>();
const count = (name: string, by: number) => open.set(name, (open.get(name) ?? 0) + by);

/** Counts itself while it observes. */
function observer(name: string) {
  return class {
    private isOn = false;
    observe(): void {
      if (!this.isOn) count(name, 1);
      this.isOn = true;
    }
    disconnect(): void {
      if (this.isOn) count(name, -1);
      this.isOn = false;
    }
    unobserve(): void {}
    takeRecords(): [] {
      return [];
    }
  };
}

beforeEach(() => {
  open.clear();
  for (const name of ["ResizeObserver", "IntersectionObserver", "MutationObserver"])
    vi.stubGlobal(name, observer(name));
  document.body.matches(":hover"); // jsdom itself listens from the first question of each kind on
  getComputedStyle(document.body);
  for (const [name, target] of Object.entries<EventTarget>({ window, document, body: document.body })) {
    const { addEventListener: add, removeEventListener: remove } = target;
    const heard = new Set<unknown>();
    vi.spyOn(target, "addEventListener").mockImplementation((type, listener, options) => {
      if (!heard.has(listener)) count(`${name}: ${type}`, 1);
      heard.add(listener);
      const signal = typeof options === "object" ? options.signal : undefined;
      signal?.addEventListener("abort", () => heard.delete(listener) && count(`${name}: ${type}`, -1));
      add.call(target, type, listener, options);
    });
    vi.spyOn(target, "removeEventListener").mockImplementation((type, listener, options) => {
      if (heard.delete(listener)) count(`${name}: ${type}`, -1);
      remove.call(target, type, listener, options);
    });
  }
  host = document.createElement("div");
  document.body.append(host);
});

afterEach(() => {
  vi.unstubAllGlobals();
  vi.restoreAllMocks();
  document.body.replaceChildren();
});

const GRAPH_VIEWS: ViewName[] = ["hierarchy", "dataflow", "operators", "deduplicated", "diff"];

describe("a view that goes leaves nothing behind", () => {
  it.each<[string, () => { dispose(): void }]>([
    ...GRAPH_VIEWS.map((view): [string, () => { dispose(): void }] => [
      `graph, ${view}`,
      () => createModelGraph(host, compared(resnet([1, 1]), resnet([1, 2])), new GraphStore({ view }))
    ]),
    ...VIEW_NAMES.map((view): [string, () => { dispose(): void }] => [
      `knowledge, ${view}`,
      () => createKnowledgeExplorer(host, rawKnowledge(), new ExplorerStore({ view }))
    ]),
    ["mask editor", () => createMaskEditor(host, openSession().session, new EditorStore({ importance: "l1" }))],
    [
      "forward player",
      () => {
        const feed = new MapsFeed({ isLive: true, send: () => {} });
        const shared = { feed, found: new RevealedShapes(), mayTick: () => true };
        return createForwardPlayer(host, goldenForward("residual").payload, storeWith(), shared);
      }
    ],
    [
      "metric panel",
      () => createMetricPanel(host, panelPayload(), new MetricData(10), new ColorBook(), new PanelStore({}))
    ]
  ])("%s", async (_, create) => {
    const view = create();
    await settle(40);
    expect([...open.values()].some(number => number > 0)).toBe(true);
    view.dispose();
    await settle(40);
    expect([...open].filter(([, number]) => number !== 0)).toEqual([]);
  });
});
