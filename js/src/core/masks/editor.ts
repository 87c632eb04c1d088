// The mask editor: toolbar, actions with their outcome, counters, legend and rows around one session and one view.

import "../../../style/mask_costs.css";
import "../../../style/mask_editor.css";
import "../../../style/mask_rows.css";
import "../../../style/search.css";
import { Disposers, el } from "../shared/ui/dom";
import { clearHost, drawOrShowError, prepareHost, showMessage } from "../shared/ui/widget_frame";
import { watchTheme } from "../shared/stage/theme";
import { Actions } from "./panels/actions";
import { CellLegend } from "./cells/cell_legend";
import { CellTooltip } from "./cell_drawing";
import { CounterLine, MaskStatus, MaskToolbar } from "./panels/toolbar";
import { EstimateView } from "./panels/estimate_view";
import { type EditorStore, FrameQueue, EditorContext } from "./session/editor_context";
import type { PlanData } from "./draft/plan_data";
import { ReportView, TrialView } from "./panels/report_view";
import { AxisList } from "./rows/axis_list";
import type { Session } from "./session/session";
import * as words from "../words/masks";
import { NO_DATA } from "../words/shared";

export interface MaskEditor {
  dispose(): void;
}

export function createMaskEditor(host: HTMLElement, session: Session, store: EditorStore): MaskEditor {
  prepareHost(host, "mask-editor");
  let shown = mounted(host, session, store);
  const stop = session.events.on("data", () => {
    const focused = host.contains(document.activeElement) ? document.activeElement : null;
    shown.dispose();
    shown = mounted(host, session, store);
    if (focused) refocus(host, focused);
  });
  return {
    dispose: () => {
      stop();
      shown.dispose();
    }
  };
}

/** What has taken the place of an element, or else the first control. */
function refocus(host: HTMLElement, { className }: Element): void {
  const controls = [...host.querySelectorAll<HTMLElement>("button, select, input, [tabindex]")];
  const usable = controls.filter(control => !control.matches(":disabled, [hidden]"));
  (usable.find(control => control.className === className) ?? usable[0])?.focus();
}

function mounted(host: HTMLElement, session: Session, store: EditorStore): MaskEditor {
  delete host.dataset.mkgReady;
  const draw = () => session.data && new Editor(host, session, session.data, store);
  if (!session.data) showMessage(host, session.problem || NO_DATA);
  return drawOrShowError(host, draw, words.NOT_DRAWN) ?? { dispose: () => clearHost(host) };
}

class Editor implements MaskEditor {
  private readonly disposers = new Disposers();
  private readonly frames = new FrameQueue();
  private readonly scene: EditorContext;
  private readonly toolbar: MaskToolbar;
  private readonly legend: CellLegend;
  private readonly rows: AxisList;

  constructor(
    private readonly host: HTMLElement,
    session: Session,
    data: PlanData,
    private readonly store: EditorStore
  ) {
    const [toolbar, actions, counters, legend, rows] = Array.from({ length: 5 }, () => el("div"));
    const [report, status, estimate, trial] = Array.from({ length: 4 }, () => el("div"));
    const outcome = el("div", "mkg-mask-outcome");
    outcome.append(report, status);
    // all that is said stands in one block, which is in view while the rows scroll, and of a height of its own: nothing
    // moves under a hand that brushes
    const head = el("div", "mkg-mask-head");
    const costs = el("div", "mkg-mask-costs");
    costs.append(estimate, trial);
    head.append(toolbar, actions, costs, counters, legend);
    host.replaceChildren(head, rows);
    const tip = new CellTooltip(host);
    const scene = new EditorContext(host, session, data, store, this.frames, tip);
    this.scene = scene;
    session.setLocked(store.get("locked"));
    this.disposers.add(store.on("locked", () => session.setLocked(store.get("locked")))); // before all parts
    this.toolbar = new MaskToolbar(toolbar, scene);
    this.legend = new CellLegend(legend, scene);
    this.rows = new AxisList(rows, scene, text => this.toolbar.showCount(text));
    const show = (axis: number) => {
      scene.point(axis);
      this.rows.show(axis);
    };
    const parts = [
      tip,
      this.toolbar,
      this.legend,
      this.rows,
      new CounterLine(counters, scene),
      new Actions(actions, scene, outcome),
      new ReportView(report, scene, show),
      new MaskStatus(status, scene),
      new EstimateView(estimate, scene, this.toolbar.ratio),
      new TrialView(trial, scene)
    ];
    for (const part of parts) this.disposers.add(() => part.dispose());
    this.listen();
    this.recolor();
    this.tellPending();
    this.followKernel();
    host.dataset.mkgReady = "true";
  }

  dispose(): void {
    this.scene.session.commit(); // what is seen is what was meant
    this.disposers.dispose();
    this.frames.dispose();
    clearHost(this.host);
    this.host.classList.remove("mkg-is-dark");
  }

  private listen(): void {
    const { store, scene } = this;
    const onKey = (event: KeyboardEvent) => this.key(event);
    this.host.addEventListener("keydown", onKey);
    this.disposers.add(
      () => this.host.removeEventListener("keydown", onKey),
      store.on("scope", () => this.recolor()),
      store.on("connected", () => this.followKernel()),
      scene.session.events.on("scores", () => this.recolor()),
      scene.session.events.on("report", () => this.tellPending()),
      watchTheme(() => this.recolor())
    );
  }

  /** Whether the kernel does not have all that is drawn yet. */
  private tellPending(): void {
    this.host.dataset.mkgPending = this.scene.data.draft.isKnown ? "0" : "1";
  }

  private recolor(): void {
    this.scene.forget();
    this.host.classList.toggle("mkg-is-dark", this.scene.colors.dark);
    this.legend.recolor();
    this.rows.repaint();
  }

  private key(event: KeyboardEvent): void {
    const { session } = this.scene;
    const key = event.key.toLowerCase();
    const isField = event.target instanceof Element && event.target.matches("input:not([type=range]), select");
    if (isField || event.altKey) return;
    if ((event.ctrlKey || event.metaKey) && (key === "z" || key === "y"))
      session.step(key === "y" || event.shiftKey ? "redo" : "undo");
    else if (event.key === "/" && !event.ctrlKey && !event.metaKey) this.toolbar.focusSearch();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  private followKernel(): void {
    const connected = this.store.get("connected");
    this.host.classList.toggle("mkg-is-disconnected", !connected);
    const importance = this.host.querySelector<HTMLSelectElement>(".mkg-mask-importance");
    if (importance) importance.disabled = !connected;
  }
}
