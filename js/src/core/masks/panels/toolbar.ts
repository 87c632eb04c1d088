// The first line: importance, scope, ratio, undo and redo, search.

import { button, Debounced, Disposers, el, listen, option } from "../../shared/ui/dom";
import { icon } from "../../shared/ui/icons";
import { addWindowButtons } from "../../shared/ui/window_buttons";
import type { Scope } from "../draft/scores";
import { RatioControl } from "./ratio_control";
import type { EditorContext } from "../session/editor_context";

const SEARCH_DELAY = 120; // ms without a key before a search runs
const SCOPES: readonly [Scope, string][] = [
  ["local", "each axis"],
  ["global", "all axes together"]
];

export class MaskToolbar {
  readonly ratio: RatioControl;
  private readonly disposers = new Disposers();
  private readonly importance = el("select", "mkg-mask-importance");
  private readonly scope = el("select", "mkg-mask-scope");
  private readonly undo = button("mkg-button mkg-mask-undo", "", "Undo (Ctrl+Z)");
  private readonly redo = button("mkg-button mkg-mask-redo", "", "Redo (Ctrl+Shift+Z)");
  private readonly input = el("input");
  private readonly count = el("span", "mkg-search-count");
  private readonly typed = new Debounced(() => this.scene.store.set("query", this.input.value), SEARCH_DELAY);

  constructor(
    private readonly host: HTMLElement,
    private readonly scene: EditorContext
  ) {
    const { data, store, session } = scene;
    host.classList.add("mkg-mask-toolbar");
    host.setAttribute("role", "toolbar");
    host.setAttribute("aria-label", "Importance, ratio and search");
    this.importance.dataset.mkgNeedsKernel = "";
    this.importance.title = "Importance: what the cells are shaded and chosen by";
    this.scope.title = "Ranked on: what a ratio takes the least important of";
    this.importance.setAttribute("aria-label", "Importance");
    this.scope.setAttribute("aria-label", "Ranked on");
    this.importance.append(...this.importances(data.payload.importances));
    this.scope.append(...SCOPES.map(([value, text]) => option(value, text)));
    this.ratio = new RatioControl(scene);
    this.disposers.add(() => this.ratio.dispose());
    host.append(
      field("Importance", this.importance),
      field("Ranked on", this.scope),
      this.ratio.element,
      this.steps(),
      this.searchBox()
    );
    this.disposers.add(addWindowButtons(host));
    this.disposers.add(
      listen(this.importance, "change", () => store.set("importance", this.importance.value)),
      listen(this.scope, "change", () => store.set("scope", this.scope.value as Scope)),
      listen(this.input, "input", () => this.typed.call()),
      listen(this.input, "keydown", event => this.searchKey(event)),
      store.on(["importance", "scope", "query"], () => this.show()),
      session.events.on("history", () => this.show())
    );
    this.show();
  }

  dispose(): void {
    this.typed.cancel();
    this.disposers.dispose();
    this.host.replaceChildren();
  }

  /** How many rows the search has left. */
  showCount(text: string): void {
    this.count.textContent = text;
  }

  focusSearch(): void {
    this.input.focus();
    this.input.select();
  }

  private importances(names: readonly string[]): HTMLOptionElement[] {
    const chosen = this.scene.store.get("importance");
    const every = names.includes(chosen) || chosen === "" ? names : [...names, chosen];
    return every.map(name => option(name, name));
  }

  private steps(): HTMLElement {
    const group = el("div", "mkg-buttons");
    for (const [element, name] of [
      [this.undo, "undo"],
      [this.redo, "redo"]
    ] as const) {
      element.append(icon(name));
      element.setAttribute("aria-label", name === "undo" ? "Undo" : "Redo");
      this.disposers.add(listen(element, "click", () => this.scene.session.step(name)));
      group.append(element);
    }
    return group;
  }

  private searchBox(): HTMLElement {
    const box = el("div", "mkg-search");
    this.input.type = "search";
    this.input.placeholder = "Find axes";
    this.input.title = "By name, or by the name of a member; blocks by their paths";
    this.input.spellcheck = false;
    this.input.autocomplete = "off";
    this.input.setAttribute("aria-label", "Find axes");
    this.input.setAttribute("aria-keyshortcuts", "/");
    this.count.setAttribute("role", "status");
    box.append(icon("search"), this.input, this.count);
    return box;
  }

  private searchKey(event: KeyboardEvent): void {
    if (event.isComposing) return;
    event.stopPropagation(); // undo and the like are the field's own here
    if (event.key !== "Escape") return;
    this.input.value = "";
    this.typed.call();
    this.typed.flush();
    event.preventDefault();
  }

  private show(): void {
    const { store, data } = this.scene;
    this.importance.value = store.get("importance");
    this.scope.value = store.get("scope");
    const query = store.get("query");
    if (this.input !== this.input.ownerDocument.activeElement) this.input.value = query;
    this.undo.disabled = !data.history.canUndo;
    this.redo.disabled = !data.history.canRedo;
  }
}

function field(text: string, control: HTMLElement): HTMLElement {
  const label = el("label", "mkg-mask-field");
  label.append(el("span", "mkg-label", text), control);
  return label;
}
