// What the kernel is asked to do: check, mask, cut, take back, save and load.

import { button, Disposers, el, listen, setAttribute } from "../shared/dom";
import { CutDialog } from "./cut_dialog";
import type { Scene } from "./scene";

export class Actions {
  private readonly disposers = new Disposers();
  private readonly check = kernelButton("check", "Check", "Try the draft in a dry run; nothing is changed");
  private readonly mask = kernelButton("mask", "Mask", "Set to zero what goes; the model keeps its shape");
  private readonly cut = kernelButton("cut", "Cut…", "Take out what goes; asks before it does");
  private readonly undo = kernelButton("undo-model", "Undo", "");
  private readonly save = kernelButton("save", "Save", "Write the plan to the file");
  private readonly load = kernelButton("load", "Load", "Read the plan from the file");
  private readonly path = el("input", "mkg-mask-path");
  private readonly more = button("mkg-button mkg-mask-more-file", "Plan file", "Save the plan to a file, or load one");
  private dialog: CutDialog | null = null;

  /** What the buttons come to stands between them, in `outcome`. */
  constructor(
    private readonly host: HTMLElement,
    private readonly scene: Scene,
    outcome: HTMLElement
  ) {
    const { session, store, data } = scene;
    host.classList.add("mkg-mask-bar");
    const act = group("Model", this.check, this.mask, this.cut, this.undo);
    act.classList.add("mkg-mask-actions");
    const files = group("File", this.pathField(), this.save, this.load);
    files.classList.add("mkg-mask-file");
    this.more.setAttribute("aria-expanded", "false");
    host.append(act, this.more, outcome, files);
    this.disposers.add(
      () => this.dialog?.close(false),
      listen(this.more, "click", () => this.openFile(files)),
      listen(this.check, "click", () => session.check()),
      listen(this.mask, "click", () => session.act("mask")),
      listen(this.cut, "click", () => this.ask()),
      listen(this.undo, "click", () => session.act("undo")),
      listen(this.save, "click", () => session.act("save", { path: this.file() })),
      listen(this.load, "click", () => session.act("load", { path: this.file() })),
      listen(this.path, "change", () => void this.file()),
      store.on(["stage", "operations", "connected", "path"], () => this.show()),
      session.events.on("status", () => this.show()),
      data.draft.onChange(() => scene.frames.add(this.show))
    );
    this.show();
  }

  dispose(): void {
    this.disposers.dispose();
    this.host.replaceChildren();
  }

  /** Where there is little room the fields of the file are folded away. */
  private openFile(files: HTMLElement): void {
    const isOpen = files.classList.toggle("mkg-is-open");
    this.more.setAttribute("aria-expanded", String(isOpen));
  }

  /** The name in the field, also known to the kernel. */
  private file(): string {
    const path = this.path.value.trim();
    if (path) this.scene.store.set("path", path);
    return path;
  }

  private pathField(): HTMLElement {
    const label = el("label", "mkg-mask-field");
    this.path.type = "text";
    this.path.spellcheck = false;
    this.path.autocomplete = "off";
    label.append(el("span", "mkg-label", "Plan file"), this.path);
    return label;
  }

  private ask(): void {
    if (this.dialog || this.scene.session.action) return;
    this.dialog = new CutDialog(this.scene, isConfirmed => {
      this.dialog = null;
      if (isConfirmed) this.scene.session.act("cut");
      this.cut.focus();
    });
  }

  private readonly show = (): void => {
    const { store, session, data } = this.scene;
    const connected = store.get("connected");
    const stage = store.get("stage");
    const { isEmpty } = data;
    const buttons: [HTMLButtonElement, boolean][] = [
      [this.check, isEmpty],
      [this.mask, isEmpty],
      [this.cut, isEmpty],
      [this.undo, stage === ""],
      [this.save, false],
      [this.load, false]
    ];
    for (const [element, isIdle] of buttons) {
      element.disabled = !connected || isIdle;
      // not disabled: the focus would be lost for the moment that the kernel takes
      const isBusy = element === this.check ? session.isChecking : session.action !== null;
      setAttribute(element, "aria-disabled", isBusy ? "true" : null);
    }
    this.undo.hidden = stage === "" && !this.undo.matches(":focus");
    this.undo.textContent = stage === "cut" ? "Undo cut" : "Undo mask";
    const count = store.get("operations");
    const before = "The model becomes what it was before";
    this.undo.title = count > 1 ? `${before} the last of ${count} operations` : before;
    if (this.path !== this.path.ownerDocument.activeElement) this.path.value = store.get("path");
  };
}

function kernelButton(name: string, text: string, title: string): HTMLButtonElement {
  const element = button(`mkg-button mkg-mask-${name}`, text, title);
  element.dataset.mkgNeedsKernel = "";
  return element;
}

function group(name: string, ...children: HTMLElement[]): HTMLElement {
  const element = el("div", "mkg-mask-group");
  element.setAttribute("role", "group");
  element.setAttribute("aria-label", name);
  element.append(...children);
  return element;
}
