// The steps as an indented list: what flows in stands on the line into each step. Only the rows in sight are in the page.

import { Disposers, el, listen, nameSpan, setAttribute } from "../shared/dom";
import { familyColor } from "../shared/theme";
import { type Forward, shapesText, type Step } from "./payload";
import type { FoundOut, Quiz } from "./quiz";
import { type ForwardStore, goTo } from "./state";

export const ROW_HEIGHT = 44;
const OVERSCAN = 6;
const INDENT = 12;
const DEEPEST_INDENT = 10;
const HIDDEN = "?";
const LONGEST_TITLE = 400;

interface Row {
  readonly element: HTMLElement;
  content: string; // what was drawn last
}

export class StepList {
  readonly list = el("div", "mkg-forward-list");
  private readonly space = el("div", "mkg-forward-space");
  private readonly end = el("div", "mkg-forward-end");
  private readonly rows = new Map<number, Row>();
  private readonly places = new WeakMap<Element, number>();
  private readonly disposers = new Disposers();
  private frame = 0;
  private isPlaced = false; // whether the list had a size when it last followed the step

  constructor(
    host: HTMLElement,
    private readonly forward: Forward,
    private readonly store: ForwardStore,
    private readonly quiz: Quiz,
    found: FoundOut
  ) {
    this.list.setAttribute("role", "listbox");
    this.list.setAttribute("aria-label", "Steps of the forward pass");
    this.space.setAttribute("role", "none");
    this.space.style.height = `${(forward.size + 1) * ROW_HEIGHT}px`;
    this.end.style.top = `${forward.size * ROW_HEIGHT}px`;
    this.end.setAttribute("aria-hidden", "true");
    this.space.append(this.end);
    this.list.append(this.space);
    host.append(this.list);
    this.disposers.add(
      listen(this.list, "scroll", () => this.schedule()),
      listen(this.list, "click", event => this.clicked(event)),
      listen(this.list, "keydown", event => this.keyed(event)),
      store.on("step", () => this.follow()),
      store.on("hideShapes", () => this.render()),
      found.onChange(() => this.render())
    );
    if (typeof ResizeObserver !== "undefined") {
      const observer = new ResizeObserver(() => (this.isPlaced ? this.schedule() : this.follow()));
      observer.observe(this.list);
      this.disposers.add(() => observer.disconnect());
    }
    this.follow();
  }

  dispose(): void {
    cancelAnimationFrame(this.frame);
    this.disposers.dispose();
    this.list.remove();
  }

  private schedule(): void {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.render();
    });
  }

  /** Bring the step into view, two rows off the edge where there is room. */
  private follow(): void {
    const top = this.store.get("step") * ROW_HEIGHT;
    const { scrollTop, clientHeight } = this.list;
    const margin = clientHeight > 6 * ROW_HEIGHT ? 2 * ROW_HEIGHT : 0;
    this.isPlaced = clientHeight > 0;
    if (this.isPlaced) {
      if (top - margin < scrollTop) this.list.scrollTop = Math.max(0, top - margin);
      else if (top + ROW_HEIGHT + margin > scrollTop + clientHeight)
        this.list.scrollTop = top + ROW_HEIGHT + margin - clientHeight;
    }
    this.render();
  }

  private render(): void {
    const hadFocus = this.list.contains(document.activeElement);
    const wanted = this.window();
    const keep = new Set(wanted);
    for (const [index, { element }] of this.rows) {
      if (keep.has(index)) continue;
      element.remove();
      this.rows.delete(index);
    }
    let next = this.space.firstElementChild;
    for (const index of wanted) {
      const element = this.draw(index);
      if (element === next) next = next.nextElementSibling;
      else this.space.insertBefore(element, next);
    }
    this.drawEnd();
    const current = this.rows.get(this.store.get("step"))?.element;
    if (hadFocus && current && document.activeElement !== current) current.focus({ preventScroll: true });
  }

  /** Indices of the rows in sight; the current one is always there, or focus would be lost. */
  private window(): number[] {
    const { size } = this.forward;
    const height = this.list.clientHeight || ROW_HEIGHT * 12;
    const first = Math.max(0, Math.floor(this.list.scrollTop / ROW_HEIGHT) - OVERSCAN);
    const end = Math.min(size, Math.ceil((this.list.scrollTop + height) / ROW_HEIGHT) + OVERSCAN);
    const indices = Array.from({ length: Math.max(0, end - first) }, (_, offset) => first + offset);
    const current = this.store.get("step");
    if (current < first) indices.unshift(current);
    else if (current >= end && current < size) indices.push(current);
    return indices;
  }

  private draw(index: number): HTMLElement {
    const row = this.rows.get(index) ?? this.newRow(index);
    const isCurrent = index === this.store.get("step");
    setAttribute(row.element, "aria-selected", String(isCurrent));
    row.element.tabIndex = isCurrent ? 0 : -1;
    const step = this.forward.step(index);
    const edge = this.edgeText(step);
    if (edge !== row.content) {
      row.content = edge;
      this.fill(row.element, step, edge);
    }
    return row.element;
  }

  private newRow(index: number): Row {
    const element = el("div", "mkg-forward-row");
    const { depth, path } = this.forward.step(index);
    element.setAttribute("role", "option");
    setAttribute(element, "aria-posinset", index + 1);
    setAttribute(element, "aria-setsize", this.forward.size);
    element.style.top = `${index * ROW_HEIGHT}px`;
    element.style.setProperty("--mkg-indent", `${Math.min(depth, DEEPEST_INDENT) * INDENT}px`);
    element.dataset.mkgStep = String(index);
    element.dataset.mkgPath = path;
    this.places.set(element, index);
    const row = { element, content: "" };
    this.rows.set(index, row);
    return row;
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
    const takes = edge === HIDDEN ? "its input is hidden" : `takes ${edge}`;
    const broke = step.error === null ? "" : ", it raised an error";
    setAttribute(element, "aria-label", `${name}, ${step.className}, ${takes}${broke}`);
    element.classList.toggle("mkg-is-broken", step.error !== null);
    element.title = [name, step.className].join("\n").slice(0, LONGEST_TITLE);
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
    const row = event.target instanceof Element ? event.target.closest("[role=option]") : null;
    const index = row ? this.places.get(row) : undefined;
    if (index === undefined) return;
    this.store.set("playing", false);
    this.store.set("step", index);
    this.rows.get(index)?.element.focus({ preventScroll: true });
  }

  private keyed(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(this.list.clientHeight / ROW_HEIGHT) - 1);
    const by = { PageDown: page, PageUp: -page }[event.key];
    if (by === undefined) return; // the other keys are those of the whole player
    goTo(this.store, this.forward, this.store.get("step") + by);
    event.preventDefault();
    event.stopPropagation();
  }
}
