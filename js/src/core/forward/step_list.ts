// The steps as an indented list: what flows in stands on the line into each step. Only the rows in sight are in the page.

import { Disposers, el, listen, nameSpan, setAttribute } from "../shared/ui/dom";
import { exactNumber, shortNumber } from "../shared/base/format";
import { familyColor } from "../shared/stage/theme";
import { VirtualList } from "../shared/ui/virtual_list";
import { type Forward, shapesText, type Step } from "./payload";
import type { RevealedShapes, Quiz } from "./quiz";
import { type ForwardStore, goTo } from "./state";

const ROW_HEIGHT = 44;
const OVERSCAN = 6;
const ASSUMED = 12; // rows in view of a list without a size
const INDENT = 12;
const MAX_INDENT = 10;
const HIDDEN = "?";
const MAX_TITLE_LENGTH = 400;

export class StepList {
  readonly list = el("div", "mkg-forward-list");
  private readonly rows: VirtualList<number>;
  private readonly contents = new WeakMap<Element, string>(); // what was drawn last
  private readonly end = el("div", "mkg-forward-end");
  private readonly disposers = new Disposers();

  constructor(
    host: HTMLElement,
    private readonly forward: Forward,
    private readonly store: ForwardStore,
    private readonly quiz: Quiz,
    found: RevealedShapes
  ) {
    this.list.setAttribute("role", "listbox");
    this.list.setAttribute("aria-label", "Steps of the forward pass");
    this.rows = new VirtualList(
      this.list,
      { rowHeight: ROW_HEIGHT, overscan: OVERSCAN, assumed: ASSUMED, below: 1 },
      {
        count: () => forward.size,
        key: index => index,
        make: index => this.newRow(index),
        draw: (element, index) => this.draw(element, index),
        active: () => store.get("step")
      }
    );
    const { space } = this.rows;
    space.className = "mkg-forward-space";
    space.setAttribute("role", "none");
    this.end.style.top = `${forward.size * ROW_HEIGHT}px`;
    this.end.setAttribute("aria-hidden", "true");
    space.append(this.end);
    host.append(this.list);
    this.disposers.add(
      listen(this.list, "click", event => this.clicked(event)),
      listen(this.list, "keydown", event => this.keyed(event)),
      store.on("step", () => this.follow()),
      store.on("hideShapes", () => this.render()),
      found.onChange(() => this.render())
    );
    this.follow();
  }

  dispose(): void {
    this.disposers.dispose();
    this.rows.dispose();
    this.list.remove();
  }

  /** Bring the step into view, two rows off the edge where there is room. */
  private follow(): void {
    this.rows.show(this.store.get("step"), 2);
    this.render();
  }

  private render(): void {
    this.rows.render();
    this.drawEnd();
  }

  private draw(element: HTMLElement, index: number): void {
    const isCurrent = index === this.store.get("step");
    setAttribute(element, "aria-selected", String(isCurrent));
    element.tabIndex = isCurrent ? 0 : -1;
    const step = this.forward.step(index);
    const edge = this.edgeText(step);
    if (edge === this.contents.get(element)) return;
    this.contents.set(element, edge);
    this.fill(element, step, edge);
  }

  private newRow(index: number): HTMLElement {
    const element = el("div", "mkg-forward-row");
    const { depth, path } = this.forward.step(index);
    element.setAttribute("role", "option");
    setAttribute(element, "aria-posinset", index + 1);
    setAttribute(element, "aria-setsize", this.forward.size);
    element.style.setProperty("--mkg-indent", `${Math.min(depth, MAX_INDENT) * INDENT}px`);
    element.dataset.mkgStep = String(index);
    element.dataset.mkgPath = path;
    return element;
  }

  private fill(element: HTMLElement, step: Step, edge: string): void {
    const name = step.path || "the model";
    const line = el("span", "mkg-forward-edge");
    line.append(el("span", "mkg-forward-shape", edge));
    const head = el("span", "mkg-forward-module");
    const chip = el("span", "mkg-chip");
    chip.style.backgroundColor = familyColor(step.className, false);
    head.append(
      chip,
      nameSpan("mkg-row-name", this.forward.name(step.index)),
      nameSpan("mkg-row-class", step.className)
    );
    if (step.error !== null) head.append(el("span", "mkg-row-mark", "!"));
    const notFinite = this.forward.notFinite(step.index);
    if (notFinite > 0) head.append(el("span", "mkg-row-mark", `${shortNumber(notFinite)} not finite`));
    const takes = edge === HIDDEN ? "its input is hidden" : `takes ${edge}`;
    const broke = step.error === null ? "" : ", it raised an error";
    const values = notFinite === 0 ? "" : `, ${exactNumber(notFinite)} of the values that it gives are not finite`;
    setAttribute(element, "aria-label", `${name}, ${step.className}, ${takes}${values}${broke}`);
    element.classList.toggle("mkg-is-broken", step.error !== null || notFinite > 0);
    element.title = [name, step.className].join("\n").slice(0, MAX_TITLE_LENGTH);
    element.replaceChildren(line, head);
  }

  private edgeText(step: Step): string {
    return this.quiz.showsInput(step) ? shapesText(step.inputs) : HIDDEN;
  }

  /** What the model returns flows out of the last step. */
  private drawEnd(): void {
    if (!this.forward.size) return;
    const root = this.forward.step(0);
    const shape = this.quiz.showsOutput(root) ? shapesText(root.outputs) : HIDDEN;
    const text = this.forward.error === null ? `${shape} · output` : "it stopped here";
    if (this.end.textContent === text) return;
    const line = el("span", "mkg-forward-edge");
    line.append(el("span", "mkg-forward-shape", text));
    this.end.replaceChildren(line);
  }

  private clicked(event: MouseEvent): void {
    const index = this.rows.keyAt(event.target);
    if (index === undefined) return;
    this.store.set("playing", false);
    this.store.set("step", index);
    this.rows.focus(index);
  }

  private keyed(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { page } = this.rows;
    const by = { PageDown: page, PageUp: -page }[event.key];
    if (by === undefined) return; // the other keys are those of the whole player
    goTo(this.store, this.forward, this.store.get("step") + by);
    event.preventDefault();
    event.stopPropagation();
  }
}
