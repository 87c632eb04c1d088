// The report of the dry run, beside the buttons and in full below them, and the results of the user's function.

import { button, Disposers, el, listen, nameSpan, Part, setRole } from "../../shared/ui/dom";
import { counted, exactNumber, shortNumber } from "../../shared/base/format";
import type { Change, Report, Evaluation } from "../session/kernel_answers";
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
    setRole(host, "region", "Dry run");
    this.found.setAttribute("role", "status");
    this.body.id = `mkg-mask-report-${++bodies}`;
    this.body.tabIndex = 0; // it may have to be scrolled
    setRole(this.body, "group", "What the dry run found");
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

// Results of the user's function for the model, before a cut, after it and recalibrated, beside the buttons for it.

/** What had been done to the model, in words. */
const STATES: Readonly<Record<string, string>> = {
  uncut: "uncut",
  masked: "masked",
  cut: "cut",
  recalibrated: "recalibrated",
  later: "trained since"
};
const MAX_RESULTS = 6; // the latest
const NO_STATISTICS = "no statistics to recalibrate";

export class TrialView extends Part {
  private readonly check = el("input", "mkg-mask-recalibrating");
  private readonly recalibrate = button(
    "mkg-button mkg-mask-recalibrate",
    "Recalibrate",
    "Renew the running statistics of the cut model from the batches"
  );
  private readonly evaluate = button(
    "mkg-button mkg-mask-evaluate",
    "Evaluate",
    "Call the function that was passed as evaluate="
  );
  private readonly values = el("div", "mkg-mask-values");
  private readonly said = el("div", "mkg-offscreen");

  constructor(
    host: HTMLElement,
    private readonly scene: EditorContext
  ) {
    super(host);
    const { session, store } = scene;
    host.classList.add("mkg-mask-trial");
    setRole(host, "group", "Recalibration and evaluation");
    this.said.setAttribute("role", "status");
    this.recalibrate.dataset.mkgNeedsKernel = this.evaluate.dataset.mkgNeedsKernel = "";
    const { recalibrate, evaluate, batches, hasStatistics } = session.offers;
    const tools = el("div", "mkg-mask-group");
    if (recalibrate) tools.append(this.choice(), this.recalibrate);
    else if (batches !== null && !hasStatistics) {
      const why = el("span", "mkg-dim", NO_STATISTICS);
      why.title =
        "The model keeps no running statistics, as batch normalisations do: a recalibration would renew nothing";
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
    label.title = "A cut renews the running statistics of its normalisations from the batches";
    this.check.type = "checkbox";
    label.append(this.check, el("span", "", "recalibrate with the cut"));
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
    head.append(el("td"), ...evaluations.map(({ state }) => heading("col", STATES[state] ?? state)));
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
  const line = el("div", "mkg-mask-failure", `${STATES[state] ?? state}: `);
  line.append(nameSpan("", error));
  line.title = error;
  return [line];
}

/** "cut: accuracy 0.41" */
function spoken({ state, values, error }: Evaluation): string {
  const found = [...values].map(([name, value]) => `${name} ${shortNumber(value)}`).join(", ");
  return `${STATES[state] ?? state}: ${error || found}`;
}
