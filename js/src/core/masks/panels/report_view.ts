// The report of the dry run, in one line beside the buttons: sizes before and after, or why the draft does not run. Its
// corrections, and a long error, open below it.

import { button, Disposers, el, listen, nameSpan } from "../../shared/ui/dom";
import { counted, exactNumber } from "../../shared/base/format";
import type { Change, Report } from "../session/kernel_answers";
import type { EditorContext } from "../session/editor_context";
import { amountText, changeText, COUNTERS } from "../draft/number_texts";

const MAX_LISTED = 200;
const MAX_LINKS = 4;
const EMPTY = "Nothing goes yet: click cells, drag over them, or move a slider.";
const UNTRIED = "Not tried yet: Check runs the draft without changing the model.";
let bodies = 0;

export class ReportView {
  private readonly disposers = new Disposers();
  private links = new Disposers();
  private drawn: Report | null = null;
  private isOpen = false;
  private wasChecking = false;
  private readonly head = el("div", "mkg-mask-report-head");
  private readonly hint = el("span", "mkg-mask-hint");
  private readonly found = el("span", "mkg-mask-found"); // is read out: the finished outcome alone
  private readonly note = el("span", "mkg-mask-note");
  private readonly toggle = button("mkg-button mkg-mask-details", "");
  private readonly body = el("div", "mkg-mask-report-body");

  constructor(
    private readonly host: HTMLElement,
    private readonly scene: EditorContext,
    private readonly show: (axis: number) => void
  ) {
    host.classList.add("mkg-mask-report");
    host.setAttribute("role", "region");
    host.setAttribute("aria-label", "Dry run");
    this.found.setAttribute("role", "status");
    this.body.id = `mkg-mask-report-${++bodies}`;
    this.body.tabIndex = 0; // it may have to be scrolled
    this.body.setAttribute("role", "group");
    this.body.setAttribute("aria-label", "What the dry run found");
    this.toggle.setAttribute("aria-controls", this.body.id);
    this.head.append(this.hint, this.found, this.note, this.toggle);
    host.append(this.head, this.body);
    const { events } = scene.session;
    const later = () => scene.frames.add(this.draw);
    this.disposers.add(
      events.on(["report", "status"], later),
      scene.data.draft.onChange(later),
      listen(this.toggle, "click", () => this.open(!this.isOpen))
    );
    this.showBody();
    this.draw();
  }

  dispose(): void {
    this.disposers.dispose();
    this.links.dispose();
    this.host.replaceChildren();
  }

  private open(isOpen: boolean): void {
    this.isOpen = isOpen;
    this.showBody();
  }

  private readonly draw = (): void => {
    const { session, data } = this.scene;
    const { report, isReportCurrent, isChecking } = session;
    const isStale = report !== null && !isReportCurrent;
    this.host.classList.toggle("mkg-is-empty", report === null);
    this.host.classList.toggle("mkg-is-stale", isStale);
    this.host.classList.toggle("mkg-is-failed", !!report?.error);
    const hint = report || isChecking ? "" : data.isEmpty ? EMPTY : UNTRIED;
    const note = [isStale ? "of an earlier draft" : "", isChecking ? "checking…" : ""].filter(Boolean).join(" · ");
    if (this.hint.textContent !== hint) this.hint.textContent = hint;
    if (this.note.textContent !== note) this.note.textContent = note;
    // one that comes to the same is read out again
    const isFresh = report !== this.drawn || (this.wasChecking && !isChecking);
    this.wasChecking = isChecking;
    if (isFresh) this.take(report);
  };

  private take(report: Report | null): void {
    this.found.replaceChildren(...(report ? outcome(report) : []));
    if (report === this.drawn) return;
    this.drawn = report;
    this.links.dispose();
    this.links = new Disposers();
    this.body.replaceChildren(...(report ? this.details(report) : []));
    this.showBody();
  }

  private showBody(): void {
    const { drawn, toggle, body, isOpen } = this;
    const hasBody = drawn !== null && (drawn.error !== null || drawn.changes.length > 0);
    toggle.hidden = !hasBody;
    toggle.textContent = drawn?.error ? "Whole error" : counted(drawn?.changes.length ?? 0, "correction");
    toggle.setAttribute("aria-expanded", String(hasBody && isOpen));
    body.hidden = !hasBody || !isOpen;
  }

  private details(report: Report): HTMLElement[] {
    if (report.error !== null) return [nameSpan("mkg-mask-whole-error", report.error)];
    if (!report.changes.length) return [];
    const list = el("ul", "mkg-mask-changes");
    list.append(...report.changes.slice(0, MAX_LISTED).map(change => this.change(change)));
    const rest = report.changes.length - MAX_LISTED;
    if (rest > 0) list.append(el("li", "mkg-dim", `and ${exactNumber(rest)} more`));
    return [list];
  }

  private change({ kind, text, axes }: Change): HTMLElement {
    const entry = el("li");
    if (kind) entry.append(nameSpan("mkg-mask-kind", kind), " ");
    entry.append(nameSpan("", text));
    const { name } = this.scene.data.axes;
    for (const axis of axes.filter(own => own < name.length).slice(0, MAX_LINKS)) {
      const link = button("mkg-link", "", "Show the axis");
      link.append(nameSpan("mkg-code", name[axis]));
      this.links.add(listen(link, "click", () => this.show(axis)));
      entry.append(" ", link);
    }
    return entry;
  }
}

/** "Dry run: it runs, 1 correction. Parameters 148 → 100 (−32.4 %), …" */
function outcome({ error, changes, ...sizes }: Report): (Node | string)[] {
  if (error !== null) {
    const text = nameSpan("mkg-mask-error", error);
    text.title = error;
    return [el("strong", "", "Dry run: the draft does not run."), " ", text];
  }
  const count = changes.length ? counted(changes.length, "correction") : "no corrections";
  const figures = COUNTERS.flatMap(([counter, label]) => {
    const pair = sizes[counter];
    if (!pair) return [];
    const change = changeText(...pair);
    const text = `${label} ${amountText(counter, pair[0])} → ${amountText(counter, pair[1])}`;
    return [el("span", "mkg-mask-figure", change ? `${text} (${change})` : text)];
  });
  const parts = figures.flatMap((figure, at) => [at ? ", " : " ", figure]);
  return [el("strong", "", `Dry run: it runs, ${count}.`), ...parts];
}
