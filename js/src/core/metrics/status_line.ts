// The last line: whether values come, and how many there are.

import { Disposers, el } from "../shared/dom";
import { counted, exactNumber } from "../shared/format";
import { DISCONNECTED } from "../shared/status";
import type { MetricData } from "./metric_data";
import type { PanelStore } from "./state";

export class PanelStatus {
  private readonly disposers = new Disposers();
  private readonly text = el("span", "mkg-status-text");
  private readonly counts = el("span", "mkg-metric-counts");

  constructor(
    private readonly host: HTMLElement,
    private readonly data: MetricData,
    private readonly store: PanelStore
  ) {
    host.classList.add("mkg-status", "mkg-metric-status");
    this.text.setAttribute("role", "status");
    host.append(this.text, this.counts);
    this.disposers.add(store.on(["connected", "paused", "notice"], () => this.draw()));
  }

  dispose(): void {
    this.disposers.dispose();
    this.host.replaceChildren();
  }

  draw(): void {
    const connected = this.store.get("connected");
    const text = [this.state(connected), this.store.get("notice")].filter(Boolean).join(" · ");
    if (this.text.textContent !== text) this.text.textContent = text;
    const counts = this.countsText();
    if (this.counts.textContent !== counts) this.counts.textContent = counts;
    this.host.classList.toggle("mkg-is-warning", !connected);
  }

  private state(connected: boolean): string {
    if (!connected) return DISCONNECTED;
    if (this.store.get("paused")) return "Paused: values keep coming, Resume shows them.";
    const runs = this.runs();
    if (runs.size && [...runs].every(run => this.data.ended.has(run)))
      return runs.size > 1 ? "All runs have ended." : "The run has ended.";
    return "";
  }

  private runs(): Set<number> {
    const runs = new Set<number>();
    for (const entry of this.data.entries) if (entry) runs.add(entry.run);
    return runs;
  }

  private countsText(): string {
    const runs = this.runs();
    if (!runs.size) return "";
    const latest = Math.max(
      ...[...runs].map(run => this.data.lastStep(run)).filter(step => !Number.isNaN(step)),
      -Infinity
    );
    const metrics = this.data.metrics("numbers").length + this.data.metrics("histograms").length;
    const parts = [
      ...(latest === -Infinity ? [] : [`step ${exactNumber(latest)}`]),
      counted(metrics, "metric"),
      ...(runs.size > 1 ? [counted(runs.size, "run")] : [])
    ];
    return parts.join(" · ");
  }
}
