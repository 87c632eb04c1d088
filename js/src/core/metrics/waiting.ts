// Why there is nothing to draw, in words.

import { heatRows, kindOf, metricOf } from "./choice";
import type { MetricData } from "./metric_data";
import type { PanelStore } from "./state";

const NOTHING = "Waiting for values: they appear with the first step that is recorded.";

export function waitingText(data: MetricData, store: PanelStore): string {
  const view = store.get("view");
  const metric = metricOf(data, store);
  const phase = store.get("phase");
  if (data.isEmpty) return NOTHING;
  const index = data.index(kindOf(view), metric);
  if (!index && view === "histogram" && data.metrics("histograms").length === 0)
    return "No metric has recorded histograms yet.";
  if (!index) return NOTHING;
  if (view === "heatmap" && store.get("query") && !heatRows(data, store, []).length)
    return "No module matches the search.";
  const hasPhase = index.series.some(series => phase === "both" || data.entries[series]?.phase === phase);
  if (!hasPhase) return `Waiting for values in the ${phase} phase: so far there are none of this metric.`;
  return NOTHING;
}
