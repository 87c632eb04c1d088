// The alerts below the picture, the latest first; a click shows the metric and selects the module.

import { button, Disposers, el, nameSpan } from "../shared/ui/dom";
import { counted } from "../shared/base/format";
import { runName } from "./data/selection";
import type { AlertMark, MetricData } from "./data/metric_data";
import { stepText } from "./base/value_axis";
import type { PanelStore } from "./base/state";

const MAX_ROWS = 100;

export class AlertList {
  private readonly disposers = new Disposers();
  private readonly heading = el("div", "mkg-metric-alerts-heading");
  private readonly list = el("ul", "mkg-metric-alerts");
  private readonly more = el("div", "mkg-dim");
  private built = "";

  constructor(
    private readonly host: HTMLElement,
    private readonly data: MetricData,
    private readonly store: PanelStore
  ) {
    host.classList.add("mkg-metric-alert-box");
    host.setAttribute("role", "group");
    host.setAttribute("aria-label", "Alerts");
    this.list.setAttribute("aria-label", "Alerts, the latest first");
    this.heading.setAttribute("role", "status");
    host.append(this.heading, this.list, this.more);
    host.hidden = true;
  }

  dispose(): void {
    this.disposers.dispose();
    this.host.replaceChildren();
  }

  draw(runs: readonly string[]): void {
    const { alertCount, alerts, structure } = this.data;
    const built = `${alertCount} ${structure} ${runs.join("\n")}`;
    if (built === this.built) return;
    this.built = built;
    this.host.hidden = alertCount === 0;
    this.heading.textContent = counted(alertCount, "alert");
    const latest = [...alerts]
      .reverse()
      .sort((a, b) => b.step - a.step)
      .slice(0, MAX_ROWS);
    this.list.replaceChildren(...latest.map(alert => this.entry(alert, runs)));
    this.more.textContent = alertCount > latest.length ? `The latest ${MAX_ROWS} are listed.` : "";
  }

  private entry(alert: AlertMark, runs: readonly string[]): HTMLElement {
    const entry = el("li");
    const element = button("mkg-metric-alert", "");
    const place = [`step ${stepText(alert.step)}`, ...(runs.length > 1 ? [runName(runs, alert.run)] : [])].join(" · ");
    element.append(el("span", "mkg-metric-alert-step", place), nameSpan("mkg-metric-alert-text", alertMessage(alert)));
    element.title = "Show this metric and select the module";
    element.addEventListener("click", () => this.go(alert));
    entry.append(element);
    return entry;
  }

  private go({ metric, module }: AlertMark): void {
    if (this.data.index("numbers", metric)) {
      if (this.store.get("view") === "histogram") this.store.set("view", "lines");
      this.store.set("metric", metric);
    }
    this.store.set("selected", module);
  }
}

/** The alert's text; the module goes before it where it is not named in it. */
export function alertMessage({ module, text }: AlertMark): string {
  return module === "" || text.includes(module) ? text : `${module}: ${text}`;
}
