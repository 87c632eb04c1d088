// The report of the dry run, beside the buttons and in full below them, and the results of the user's function.

import { button, Disposers, el, listen, nameSpan, Part, setRole } from "../../shared/ui/dom";
import { shortNumber } from "../../shared/base/format";
import type { Change, Report, Evaluation } from "../session/kernel_answers";
import type { EditorContext } from "../session/editor_context";
import { amountText, changeText, COUNTERS } from "../draft/number_texts";
import * as words from "../../words/masks";

const MAX_LISTED = 200;
const MAX_LINKS = 4;
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
    setRole(host, "region", words.DRY_RUN);
    this.found.setAttribute("role", "status");
    this.body.id = `mkg-mask-report-${++bodies}`;
    this.body.tabIndex = 0; // it may have to be scrolled
    setRole(this.body, "group", words.DRY_RUN_DETAILS);
    this.toggle.setAttribute("aria-controls", this.body.id);
    this.head.append(this.hint, this.found, this.note, this.toggle);
    host.append(this.head, this.body);
    const { events } = scene.session;
    const later = () => scene.frames.add(this.draw);
    this.disposers.add(
      events.on(["report", "status"], later),
      scene.data.draft.onChange(later),
      scene.store.on("stage", later),
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
    const hint = report || isChecking ? "" : data.isEmpty ? this.emptyHint : words.UNTRIED;
    const note = [isStale ? words.OUTDATED : "", isChecking ? words.CHECKING : ""].filter(Boolean).join(" · ");
    if (this.hint.textContent !== hint) this.hint.textContent = hint;
    if (this.note.textContent !== note) this.note.textContent = note;
    // one that comes to the same is read out again
    const isFresh = report !== this.drawn || (this.wasChecking && !isChecking);
    this.wasChecking = isChecking;
    if (isFresh) this.take(report);
  };

  /** What to do with an empty draft; the notice says what a cut has done. */
  private get emptyHint(): string {
    const { session, store } = this.scene;
    if (store.get("stage") !== "cut") return words.SELECT_CHANNELS;
    return session.notice ? "" : words.SELECT_MORE;
  }

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
    toggle.textContent = drawn?.error ? words.FULL_ERROR : words.corrections(drawn?.changes.length ?? 0);
    toggle.setAttribute("aria-expanded", String(hasBody && isOpen));
    body.hidden = !hasBody || !isOpen;
  }

  private details(report: Report): HTMLElement[] {
    if (report.error !== null) return [nameSpan("mkg-mask-whole-error", report.error)];
    if (!report.changes.length) return [];
    const list = el("ul", "mkg-mask-changes");
    list.append(...report.changes.slice(0, MAX_LISTED).map(change => this.change(change)));
    const rest = report.changes.length - MAX_LISTED;
    if (rest > 0) list.append(el("li", "mkg-dim", words.more(rest)));
    return [list];
  }

  private change({ kind, text, axes }: Change): HTMLElement {
    const entry = el("li");
    if (kind) entry.append(nameSpan("mkg-mask-kind", kind), " ");
    entry.append(nameSpan("", text));
    const { name } = this.scene.data.axes;
    for (const axis of axes.filter(own => own < name.length).slice(0, MAX_LINKS)) {
      const link = button("mkg-link", "", words.SHOW_GROUP);
      link.append(nameSpan("mkg-code", name[axis]));
      this.links.add(listen(link, "click", () => this.show(axis)));
      entry.append(" ", link);
    }
    return entry;
  }
}

/** "Dry run passed with 1 correction. Parameters 148 → 100 (−32.4 %), …" */
function outcome({ error, changes, ...sizes }: Report): (Node | string)[] {
  if (error !== null) {
    const text = nameSpan("mkg-mask-error", error);
    text.title = error;
    return [el("strong", "", words.DRY_RUN_FAILED), " ", text];
  }
  const figures = COUNTERS.flatMap(([counter, label]) => {
    const pair = sizes[counter];
    if (!pair) return [];
    const change = changeText(...pair);
    const text = `${label} ${amountText(counter, pair[0])} → ${amountText(counter, pair[1])}`;
    return [el("span", "mkg-mask-figure", change ? `${text} (${change})` : text)];
  });
  const parts = figures.flatMap((figure, at) => [at ? ", " : " ", figure]);
  return [el("strong", "", words.dryRunPassed(changes.length)), ...parts];
}

// Results of the user's function for the model, before a cut, after it and recalibrated, beside the buttons for it.

const MAX_RESULTS = 6; // the latest

export class TrialView extends Part {
  private readonly check = el("input", "mkg-mask-recalibrating");
  private readonly recalibrate = button("mkg-button mkg-mask-recalibrate", words.RECALIBRATE, words.RECALIBRATE_TITLE);
  private readonly evaluate = button("mkg-button mkg-mask-evaluate", words.EVALUATE, words.EVALUATE_TITLE);
  private readonly values = el("div", "mkg-mask-values");
  private readonly said = el("div", "mkg-offscreen");

  constructor(
    host: HTMLElement,
    private readonly scene: EditorContext
  ) {
    super(host);
    const { session, store } = scene;
    host.classList.add("mkg-mask-trial");
    setRole(host, "group", words.TRIAL);
    this.said.setAttribute("role", "status");
    this.recalibrate.dataset.mkgNeedsKernel = this.evaluate.dataset.mkgNeedsKernel = "";
    const { recalibrate, evaluate, batches, hasStatistics } = session.offers;
    const tools = el("div", "mkg-mask-group");
    if (recalibrate) tools.append(this.choice(), this.recalibrate);
    else if (batches !== null && !hasStatistics) {
      const why = el("span", "mkg-dim", words.NO_STATISTICS);
      why.title = words.NO_STATISTICS_TITLE;
      tools.append(why);
    }
    if (evaluate) tools.append(this.evaluate);
    host.append(tools);
    if (evaluate) host.append(this.values, this.said);
    host.hidden = !tools.childElementCount;
    this.disposers.add(
      listen(this.check, "change", () => store.set("recalibrating", this.check.checked)),
      listen(this.recalibrate, "click", () => session.act("recalibrate")),
      listen(this.evaluate, "click", () => session.act("evaluate")),
      store.on(["stage", "connected", "recalibrating"], () => this.show()),
      session.events.on("status", () => this.show()),
      session.events.on("costs", () => this.draw())
    );
    this.show();
    this.list();
  }

  private choice(): HTMLElement {
    const label = el("label", "mkg-mask-field");
    label.title = words.RECALIBRATE_AFTER_TITLE;
    this.check.type = "checkbox";
    label.append(this.check, el("span", "", words.RECALIBRATE_AFTER));
    return label;
  }

  private draw(): void {
    this.show();
    const before = this.said.textContent;
    this.list();
    const { evaluations } = this.scene.session.trial;
    const text = evaluations.map(spoken).join("; ");
    if (text !== before) this.said.textContent = text;
  }

  private show(): void {
    const { store, session } = this.scene;
    const connected = store.get("connected");
    this.check.checked = store.get("recalibrating");
    this.check.disabled = !connected;
    const isPossible = store.get("stage") === "cut" && !session.trial.recalibrated;
    if (!isPossible && this.recalibrate.matches(":focus")) this.check.focus();
    this.recalibrate.hidden = !isPossible;
    this.recalibrate.disabled = !connected;
    this.evaluate.disabled = !connected;
    for (const element of [this.recalibrate, this.evaluate])
      if (session.action) element.setAttribute("aria-disabled", "true");
      else element.removeAttribute("aria-disabled");
  }

  private list(): void {
    const evaluations = this.scene.session.trial.evaluations.slice(-MAX_RESULTS);
    const names = [...new Set(evaluations.flatMap(({ values }) => [...values.keys()]))];
    const table = el("table", "mkg-mask-sizes mkg-mask-found-values");
    const head = el("tr");
    head.append(el("td"), ...evaluations.map(({ state }) => heading("col", words.STATES[state] ?? state)));
    if (evaluations.length) table.append(head);
    for (const name of names) {
      const row = el("tr");
      row.append(heading("row", name));
      for (const { values } of evaluations) {
        const value = values.get(name);
        const cell = el("td", "", value === undefined ? "–" : shortNumber(value));
        if (value !== undefined) cell.title = String(value);
        row.append(cell);
      }
      table.append(row);
    }
    this.values.replaceChildren(...(names.length ? [table] : []), ...evaluations.flatMap(failure));
  }
}

function heading(scope: "col" | "row", text: string): HTMLElement {
  const cell = el("th");
  cell.scope = scope;
  cell.append(nameSpan("", text));
  return cell;
}

/** Why a function found nothing. */
function failure({ state, error }: Evaluation): HTMLElement[] {
  if (!error) return [];
  const line = el("div", "mkg-mask-failure", `${words.STATES[state] ?? state}: `);
  line.append(nameSpan("", error));
  line.title = error;
  return [line];
}

/** "cut: accuracy 0.41" */
function spoken({ state, values, error }: Evaluation): string {
  const found = [...values].map(([name, value]) => `${name} ${shortNumber(value)}`).join(", ");
  return `${words.STATES[state] ?? state}: ${error || found}`;
}
