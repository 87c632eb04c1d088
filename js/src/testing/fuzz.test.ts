// Whatever comes from a kernel, a file or a page: a sentence of ours, or nothing at all.

import "./media";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { createForwardPlayer } from "../core/forward/player";
import { MapsFeed } from "../core/forward/maps_feed";
import { RevealedShapes } from "../core/forward/quiz";
import { createModelGraph } from "../core/graph/model_graph";
import { createKnowledgeExplorer } from "../core/knowledge/explorer";
import { ExplorerStore, VIEW_NAMES } from "../core/knowledge/data/state";
import { createMaskEditor } from "../core/masks/editor";
import { Session } from "../core/masks/session/session";
import { EditorStore } from "../core/masks/session/editor_context";
import { Feed, MetricData } from "../core/metrics/data/metric_data";
import { ColorBook } from "../core/metrics/base/chart_theme";
import { createMetricPanel } from "../core/metrics/metric_panel";
import { PanelStore } from "../core/metrics/base/state";
import { showPlan } from "../core/panel/plan_view";
import { FileProblem, UNTRANSLATED } from "../core/shared/payload/file_problem";
import { readSavedFile } from "../core/shared/payload/saved_file";
import { GraphStore, type ViewName } from "../core/shared/model/graph_store";
import { buffersOf, golden as goldenForward, storeWith } from "./forward";
import { rawKnowledge } from "./knowledge";
import { FakeChannel, known, maskPayload, scoresOf, THREE } from "./masks";
import { message, panelPayload } from "./metrics";
import { mutant, type Random, randomly } from "./mutants";
import { compared, golden, resnet } from "./payloads";
import { foreignParts, settle } from "./sample";
import { savedPlan } from "./saved";

const RUNS = 40;
let host: HTMLElement;
let complaints: unknown[];

const complain = (event: ErrorEvent | PromiseRejectionEvent) =>
  void complaints.push("reason" in event ? event.reason : event.error);
const rejected = (reason: unknown) => void complaints.push(reason);

beforeEach(() => {
  host = document.createElement("div");
  document.body.append(host);
  complaints = [];
  vi.spyOn(console, "error").mockImplementation((...all) => void complaints.push(all));
  vi.spyOn(console, "warn").mockImplementation(() => {});
  window.addEventListener("error", complain);
  process.on("unhandledRejection", rejected);
});

afterEach(() => {
  window.removeEventListener("error", complain);
  process.off("unhandledRejection", rejected);
  vi.restoreAllMocks();
  document.body.replaceChildren();
});

type End = () => void;

/** Does it for many mutants; what is on the page afterwards is ours. */
async function fuzz(seed: number, act: (random: Random, run: number) => End): Promise<void> {
  for (let run = 0; run < RUNS; run++) {
    const name = `seed ${seed}, run ${run}`;
    let end: End | undefined;
    try {
      end = act(randomly(1000 * seed + run), run);
    } catch (error) {
      complaints.push(error);
    }
    await settle(10);
    expect(complaints, name).toEqual([]);
    expect(foreignParts(host), name).toEqual([]);
    expect(({} as Record<string, unknown>).polluted, name).toBeUndefined();
    end?.();
    host.replaceChildren();
  }
}

describe("hostile payloads", () => {
  const VIEWS: ViewName[] = ["hierarchy", "dataflow", "operators", "deduplicated", "diff"];

  it.each<[string, () => object]>([
    ["a small one", () => golden("wide")],
    ["a traced one", () => golden("traced")],
    ["a comparison", () => compared(resnet([1, 1]), resnet([1, 2]))]
  ])("of a graph: %s", async (_, right) => {
    const payload = right();
    await fuzz(1, (random, run) => {
      const store = new GraphStore({ view: VIEWS[run % VIEWS.length], expanded: ["layer1", "0"], query: "conv" });
      const graph = createModelGraph(host, mutant(payload, random), store);
      store.set("overlay", mutant<Record<string, never>>({ layer1: 1 as never, "0": "NaN" as never }, random));
      store.set("colorBy", ["params", "constructor", "__proto__", "overlay"][run % 4]);
      store.set("selected", ["layer1", "__proto__", "", "0.0"][run % 4]);
      return () => graph.dispose();
    });
  });

  it("of a knowledge graph", async () => {
    const payload = rawKnowledge();
    await fuzz(2, (random, run) => {
      const store = new ExplorerStore({
        view: VIEW_NAMES[run % VIEW_NAMES.length]
      });
      const explorer = createKnowledgeExplorer(host, mutant(payload, random), store);
      return () => explorer.dispose();
    });
  });

  it("of a mask editor", async () => {
    await fuzz(3, random => {
      const session = new Session(new FakeChannel());
      session.load(mutant(maskPayload(), random), mutant(known(0, { 0: [1] }), random), scoresOf(THREE), 0);
      const editor = createMaskEditor(host, session, new EditorStore({ importance: "l1" }));
      return () => {
        editor.dispose();
        session.dispose();
      };
    });
  });

  it("of a forward pass", async () => {
    await fuzz(4, (random, run) => {
      const { payload } = goldenForward(run % 2 ? "residual" : "stops");
      const feed = new MapsFeed({ isLive: true, send: () => {} });
      const store = storeWith({ step: run % 5 });
      const shared = { feed, found: new RevealedShapes(), mayTick: () => true };
      const player = createForwardPlayer(host, mutant(payload, random), store, shared);
      return () => player.dispose();
    });
  });

  it("of a metric panel", async () => {
    await fuzz(5, random => {
      const panel = createMetricPanel(
        host,
        mutant(panelPayload(["a", "b"]), random),
        new MetricData(10),
        new ColorBook(),
        new PanelStore({})
      );
      return () => panel.dispose();
    });
  });

  it("of a file", async () => {
    await fuzz(6, (random, run) => {
      try {
        const file = readSavedFile(JSON.stringify(mutant<object>(run % 2 ? savedPlan() : golden("wide"), random)));
        if (file.kind === "plan") showPlan(host, file.plan, UNTRANSLATED);
      } catch (error) {
        if (!(error instanceof FileProblem)) throw error;
      }
      return () => {};
    });
  });
});

describe("hostile messages", () => {
  it("of metric values", async () => {
    const right = message(1, {
      entries: [
        [0, "a", "Loss", 0, "train", "number"],
        [0, "a", "Weights", 0, "train", "histogram"]
      ],
      points: [[0, [[1, 2]]]],
      histograms: [[1, 1, [0, 1, 3, 3], [1, 2]]],
      alerts: [[0, "a", "Loss", 1, "<b>"]],
      ended: [0]
    });
    await fuzz(7, (random, run) => {
      const feed = new Feed(new MetricData(10), { isLive: true, send: () => {} });
      const store = new PanelStore({ view: (["lines", "heatmap", "histogram"] as const)[run % 3] });
      const panel = createMetricPanel(host, panelPayload(), feed.data, new ColorBook(), store);
      const { content, buffers } = mutant(right, random);
      feed.receive(content, buffers);
      feed.receive(mutant(right, random), [new DataView(new ArrayBuffer(5))]);
      return () => panel.dispose();
    });
  });

  it("of feature maps", async () => {
    await fuzz(8, random => {
      const right = goldenForward("residual");
      const feed = new MapsFeed({ isLive: true, send: () => {} });
      const shared = { feed, found: new RevealedShapes(), mayTick: () => true };
      const player = createForwardPlayer(host, right.payload, storeWith({ step: 1 }), shared);
      feed.receive(mutant(right.reply, random), buffersOf(right));
      feed.receive(right.reply, mutant(buffersOf(right), random));
      return () => player.dispose();
    });
  });

  it("of a draft, a report and an action", async () => {
    await fuzz(9, random => {
      const session = new Session(new FakeChannel());
      session.load(maskPayload(), known(0, {}), scoresOf(THREE), 0);
      const editor = createMaskEditor(host, session, new EditorStore({ importance: "l1" }));
      session.begin();
      session.paint(0, [1], true);
      session.setDraft(mutant(known(1, { 0: [1], 1: [2] }), random));
      session.commit();
      session.act("mask");
      for (const type of ["done", "failed"])
        session.receive(mutant({ type, action: "draw", by: "me", text: "<b>" }, random));
      session.setReport(
        mutant(
          {
            revision: 1,
            error: null,
            params: [1, 2],
            flops: [1, "9007199254740993"],
            bytes: [1, 2],
            changes: [{ kind: "kept", text: "<i>", axes: [0] }],
            kept: [[0, [1]]],
            taken: [[1, [0]]]
          },
          random
        )
      );
      session.setScores(mutant({ a: 1 }, random));
      session.settle();
      return () => {
        editor.dispose();
        session.dispose();
      };
    });
  });
});
