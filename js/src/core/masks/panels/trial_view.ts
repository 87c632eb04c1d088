// Results of the user's function for the model, before a cut, after it and recalibrated, beside the buttons for it.

import { button, Disposers, el, listen, nameSpan } from "../../shared/ui/dom";
import { shortNumber } from "../../shared/base/format";
import type { Evaluation } from "../session/kernel_answers";
import type { EditorContext } from "../session/editor_context";

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

export class TrialView {
  private readonly disposers = new Disposers();
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
    private readonly host: HTMLElement,
    private readonly scene: EditorContext
  ) {
    const { session, store } = scene;
    host.classList.add("mkg-mask-trial");
    host.setAttribute("role", "group");
    host.setAttribute("aria-label", "Recalibration and evaluation");
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

  dispose(): void {
    this.disposers.dispose();
    this.host.replaceChildren();
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
