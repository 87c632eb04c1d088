// The message in an empty panel: why there is nothing to draw, and code to copy so that there is.

import { button, copyText, Disposers, el, listen } from "../shared/ui/dom";
import { icon } from "../shared/ui/icons";
import { chosenModules, matchesQuery, kindOf, metricOf } from "./data/selection";
import type { MetricData } from "./data/metric_data";
import type { PanelStore } from "./base/state";

/** What an empty picture says. */
interface EmptyStateText {
  readonly text: string;
  readonly code: string; // "" where nothing is to be written
}

const NOTHING: EmptyStateText = {
  text: "Waiting for values: they appear with the first step that is recorded. The training tells the monitor its steps:",
  code: `with monitor:
    for step, batch in enumerate(batches):
        ...  # forward, backward and the optimizer's step
        monitor.track(step)`
};
const HISTOGRAMS: EmptyStateText = {
  text: "No metric has recorded histograms yet. Ask the monitor for some, here of every 20th step:",
  code: `monitor = mk.Monitor(model, {"*": [
    ["WeightHistogram", "linear(20)"],
    ["OutputHistogram", "linear(20)"],
]})`
};
const LAYERS: EmptyStateText = {
  text: "A heat map has one row for each layer, and no layer has been measured yet. Ask the monitor for a metric of layers:",
  code: `monitor = mk.Monitor(model, {"*": ["OutputGradSndNorm", "OutputSndNorm"]})`
};
const PHASES: Readonly<Record<string, string>> = {
  eval: `model.train(False)  # what model.eval does
with torch.no_grad():
    model(batch)
monitor.track(step)`,
  train: `model.train()
loss_of(model(batch)).backward()
monitor.track(step)`
};

export function emptyStateText(data: MetricData, store: PanelStore): EmptyStateText {
  const view = store.get("view");
  const metric = metricOf(data, store);
  const phase = store.get("phase");
  if (data.isEmpty) return NOTHING;
  const index = data.index(kindOf(view), metric);
  if (!index && metric) return ofMetric(metric);
  if (!index && view === "histogram") return HISTOGRAMS;
  if (!index) return view === "heatmap" ? LAYERS : NOTHING;
  const query = store.get("query");
  const isSearched = view === "heatmap" && query !== "";
  if (isSearched && !chosenModules(data, store).modules.some(module => matchesQuery(module, query)))
    return { text: "No module that is drawn matches the search.", code: "" };
  const hasPhase = index.series.some(series => phase === "both" || data.entries[series]?.phase === phase);
  if (hasPhase) return NOTHING;
  const text = `Waiting for values in the ${phase} phase: so far there are none of this metric. A pass in it is measured, too:`;
  return { text, code: PHASES[phase] ?? "" };
}

/** A metric that was chosen by name and has not come. */
function ofMetric(metric: string): EmptyStateText {
  const text = "No values of this metric so far. If the monitor was not asked for it:";
  return { text, code: `monitor = mk.Monitor(model, {"*": [${JSON.stringify(metric)}]})` };
}

const COPIED_FOR = 1500; // ms

/** The words and the code in the middle of an empty picture. */
export class EmptyState {
  readonly element = el("div", "mkg-metric-waiting");
  private readonly disposers = new Disposers();
  private readonly text = el("p", "mkg-metric-waiting-text");
  private readonly code = el("code");
  private readonly copy = button("mkg-button mkg-metric-copy", "Copy", "Copy these lines");
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
    if (this.text.textContent !== text) this.text.textContent = text;
    if (this.code.textContent !== code) this.code.textContent = code;
    this.box.hidden = code === "";
    this.element.hidden = empty === null;
  }

  dispose(): void {
    this.disposers.dispose();
  }

  private async take(notify: (text: string) => void): Promise<void> {
    const done = await copyText(this.code.textContent ?? "");
    notify(done ? "Copied." : "The browser did not allow copying.");
    clearTimeout(this.timer);
    this.timer = setTimeout(() => notify(""), COPIED_FOR);
  }
}
