// What the dry run came to: its sizes, what it had to change and why, or why the draft does not run.

import { button, Disposers, el, listen, nameSpan } from "../shared/dom";
import { counted, exactNumber } from "../shared/format";
import type { Change, Report } from "./report";
import type { Scene } from "./scene";
import { amountText, COUNTERS } from "./words";

const MOST_LISTED = 200;
const MOST_LINKS = 4;

export class ReportView {
  private readonly disposers = new Disposers();
  private links = new Disposers();
  private drawn: Report | null = null;
  private readonly head = el("div", "mkg-mask-report-head");
  private readonly body = el("div", "mkg-mask-report-body");

  constructor(
    private readonly host: HTMLElement,
    private readonly scene: Scene,
    private readonly show: (axis: number) => void
  ) {
    host.classList.add("mkg-mask-report");
    host.setAttribute("role", "region");
    host.setAttribute("aria-label", "Dry run");
    this.body.tabIndex = 0; // it may have to be scrolled
    this.body.setAttribute("role", "group");
    this.body.setAttribute("aria-label", "What the dry run found");
    host.append(this.head, this.body);
    const { events } = scene.session;
    this.disposers.add(
      events.on(["report", "status"], () => scene.frames.add(this.draw)),
      scene.data.draft.onChange(() => scene.frames.add(this.draw))
    );
    this.draw();
  }

  dispose(): void {
    this.disposers.dispose();
    this.links.dispose();
    this.host.replaceChildren();
  }

  private readonly draw = (): void => {
    const { report, isReportCurrent, isChecking } = this.scene.session;
    this.host.hidden = !report && !isChecking;
    const isStale = report !== null && !isReportCurrent;
    this.host.classList.toggle("mkg-is-stale", isStale);
    this.host.classList.toggle("mkg-is-failed", !!report?.error);
    const text = [report ? headOf(report) : "", isStale ? "of an earlier draft" : "", isChecking ? "checking…" : ""]
      .filter(Boolean)
      .join(" · ");
    if (this.head.textContent !== text) this.head.textContent = text;
    if (report === this.drawn) return;
    this.drawn = report;
    this.links.dispose();
    this.links = new Disposers();
    this.body.replaceChildren(...(report ? this.found(report) : []));
    this.body.hidden = !this.body.hasChildNodes();
  };

  private found(report: Report): HTMLElement[] {
    if (report.error !== null) return [nameSpan("mkg-mask-error", report.error)];
    const parts: HTMLElement[] = [];
    if (report.changes.length) {
      const list = el("ul", "mkg-mask-changes");
      list.append(...report.changes.slice(0, MOST_LISTED).map(change => this.change(change)));
      const rest = report.changes.length - MOST_LISTED;
      if (rest > 0) list.append(el("li", "mkg-dim", `and ${exactNumber(rest)} more`));
      parts.push(list);
    }
    return parts;
  }

  private change({ kind, text, axes }: Change): HTMLElement {
    const entry = el("li");
    if (kind) entry.append(nameSpan("mkg-mask-kind", kind), " ");
    entry.append(nameSpan("", text));
    const { name } = this.scene.data.axes;
    for (const axis of axes.filter(own => own < name.length).slice(0, MOST_LINKS)) {
      const link = button("mkg-link", "", "Show the axis");
      link.append(nameSpan("mkg-code", name[axis]));
      this.links.add(listen(link, "click", () => this.show(axis)));
      entry.append(" ", link);
    }
    return entry;
  }
}

function headOf({ error, changes, ...sizes }: Report): string {
  if (error !== null) return "Dry run: the draft does not run";
  const found = COUNTERS.flatMap(([counter, label]) => {
    const pair = sizes[counter];
    return pair ? [`${label.toLowerCase().replace("flops", "FLOPs")} ${amountText(counter, pair[1])}`] : [];
  });
  const count = changes.length ? counted(changes.length, "correction") : "no corrections";
  return `Dry run: it runs, ${count}${found.length ? `; ${found.join(", ")} left` : ""}`;
}
