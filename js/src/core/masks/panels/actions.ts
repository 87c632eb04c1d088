// The buttons for actions of the kernel: check, mask, cut, undo, save and load.

import { button, Disposers, el, listen, setAttribute, Part, setRole, field } from "../../shared/ui/dom";
import type { EditorContext } from "../session/editor_context";
import { amountText, changeText, COUNTERS, removalText } from "../draft/number_texts";
import * as words from "../../words/masks";

// Asks once, inside the widget, before the model is cut, and says what will change.

let dialogs = 0;

class CutDialog {
  private readonly disposers = new Disposers();
  private readonly veil = el("div", "mkg-mask-veil");
  private readonly confirm = button("mkg-button mkg-mask-confirm", words.CUT);
  private readonly cancel = button("mkg-button mkg-mask-cancel", words.CANCEL);
  private isOpen = true;

  constructor(
    private readonly scene: EditorContext,
    private readonly answer: (isConfirmed: boolean) => void
  ) {
    const box = this.box();
    const { host, store } = scene;
    const others = ([...host.children] as HTMLElement[]).filter(child => !child.inert);
    this.confirm.dataset.mkgNeedsKernel = "";
    this.veil.append(box);
    host.append(this.veil);
    others.forEach(child => (child.inert = true));
    const follow = () => void (this.confirm.disabled = !store.get("connected"));
    this.disposers.add(
      () => others.forEach(child => (child.inert = false)),
      () => this.veil.remove(),
      listen(this.confirm, "click", () => this.close(true)),
      listen(this.cancel, "click", () => this.close(false)),
      listen(this.veil, "keydown", event => this.key(event)),
      store.on("connected", follow)
    );
    follow();
    this.cancel.focus();
  }

  close(isConfirmed: boolean): void {
    if (!this.isOpen) return;
    this.isOpen = false;
    this.disposers.dispose();
    this.answer(isConfirmed);
  }

  private box(): HTMLElement {
    const { data, session, store } = this.scene;
    const report = session.isReportCurrent && !session.report?.error ? session.report : null;
    const [heading, text] = [`mkg-mask-ask-${++dialogs}`, `mkg-mask-says-${dialogs}`];
    const box = el("div", "mkg-mask-dialog");
    box.setAttribute("role", "dialog");
    box.setAttribute("aria-modal", "true");
    box.setAttribute("aria-labelledby", heading);
    box.setAttribute("aria-describedby", text);
    const title = el("div", "mkg-mask-dialog-title", words.askForCut(removalText(data.dropped())));
    title.id = heading;
    const body = el("div", "mkg-mask-dialog-body");
    body.id = text;
    body.append(this.sizes(report), el("p", "", report ? words.SIZES_CHECKED : words.SIZES_ESTIMATED));
    if (session.offers.recalibrate && store.get("recalibrating")) body.append(el("p", "", words.CUT_RECALIBRATES));
    body.append(el("p", "", words.CUT_IN_PLACE));
    const buttons = el("div", "mkg-mask-dialog-buttons");
    buttons.append(this.cancel, this.confirm);
    box.append(title, body, buttons);
    return box;
  }

  private sizes(report: EditorContext["session"]["report"]): HTMLElement {
    const { data } = this.scene;
    const own = data.counters.totals();
    const table = el("table", "mkg-mask-sizes");
    for (const [counter, label] of COUNTERS) {
      const { before, after } = own[counter];
      const [old, fresh] = report?.[counter] ?? [before, after];
      const row = el("tr");
      const head = el("th", "", label);
      head.scope = "row";
      const approximately = counter === "flops" && data.isApproximate && !report ? "≈ " : "";
      row.append(
        head,
        el("td", "", `${approximately}${amountText(counter, old)} → ${amountText(counter, fresh)}`),
        el("td", "mkg-dim", changeText(old, fresh))
      );
      table.append(row);
    }
    return table;
  }

  private key(event: KeyboardEvent): void {
    event.stopPropagation();
    if (event.key === "Escape") {
      event.preventDefault();
      this.close(false);
    } else if (event.key === "Tab") {
      event.preventDefault();
      const focused = this.veil.ownerDocument.activeElement;
      const next = focused === this.cancel && !this.confirm.disabled ? this.confirm : this.cancel;
      next.focus();
    }
  }
}

export class Actions extends Part {
  private readonly check = kernelButton("check", words.CHECK, words.CHECK_TITLE);
  private readonly mask = kernelButton("mask", words.MASK, words.MASK_TITLE);
  private readonly cut = kernelButton("cut", words.CUT_OPENS, words.CUT_TITLE);
  private readonly undo = kernelButton("undo-model", words.UNDO, "");
  private readonly save = kernelButton("save", words.SAVE, words.SAVE_TITLE);
  private readonly load = kernelButton("load", words.LOAD, words.LOAD_TITLE);
  private readonly path = el("input", "mkg-mask-path");
  private readonly more = button("mkg-button mkg-mask-more-file", words.PLAN_FILE, words.PLAN_FILE_TITLE);
  private dialog: CutDialog | null = null;

  /** What the buttons come to stands between them, in `outcome`. */
  constructor(
    host: HTMLElement,
    private readonly scene: EditorContext,
    outcome: HTMLElement
  ) {
    super(host);
    const { session, store, data } = scene;
    host.classList.add("mkg-mask-bar");
    const act = group(words.MODEL, this.check, this.mask, this.cut, this.undo);
    act.classList.add("mkg-mask-actions");
    const files = group(words.FILE, this.pathField(), this.save, this.load);
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
    this.path.type = "text";
    this.path.spellcheck = false;
    this.path.autocomplete = "off";
    return field("mkg-mask-field", words.PLAN_FILE, this.path);
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
    this.undo.textContent = stage === "cut" ? words.UNDO_CUT : words.UNDO_MASK;
    const count = store.get("operations");
    this.undo.title = count > 1 ? words.restoreLast(count) : words.RESTORE_MODEL;
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
  setRole(element, "group", name);
  element.append(...children);
  return element;
}
