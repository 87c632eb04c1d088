// The buttons that every widget has: on the whole screen, and in a tab of its own where the host has tabs.

import { button, type Disposer, Disposers, el, isField, listen, setAttribute, widgetRoot } from "./dom";
import { FullScreen } from "./full_screen";
import { icon } from "./icons";
import { onTabHost, tabOpener } from "./tab_host";

const lent = new WeakMap<Element, WindowButtons>();

/** The first widget in `pane` shows, in place of its own, the buttons of `whole`, which has no toolbar. */
export function lendWindowButtons(whole: HTMLElement, pane: HTMLElement): Disposer {
  const buttons = new WindowButtons(whole, "Workbench: ");
  lent.set(pane, buttons);
  return () => {
    lent.delete(pane);
    buttons.dispose();
  };
}

/** At the end of a toolbar. */
export function addWindowButtons(toolbar: HTMLElement): Disposer {
  const root = widgetRoot(toolbar);
  const borrowed = root.parentElement && lent.get(root.parentElement);
  if (borrowed) {
    toolbar.append(borrowed.element);
    return () => borrowed.element.remove(); // they live on: the widget is drawn anew after a cut
  }
  const buttons = new WindowButtons(root);
  toolbar.append(buttons.element);
  return () => buttons.dispose();
}

class WindowButtons {
  readonly element = el("div", "mkg-buttons mkg-window-buttons");
  private readonly disposers = new Disposers();
  private readonly full = button("mkg-button mkg-full-screen", "");
  private readonly tab = button("mkg-button mkg-open-tab", "", "Open in a tab (Shift+T)");
  private readonly screen: FullScreen;

  /** `root`: the widget; `whose`: said before what they do, where they stand in another. */
  constructor(
    private readonly root: HTMLElement,
    private readonly whose = ""
  ) {
    this.screen = new FullScreen(root, isOn => this.show(isOn));
    this.tab.append(icon("open-tab"));
    this.tab.title = whose + this.tab.title;
    this.tab.setAttribute("aria-label", `${whose}Open in a tab`);
    this.tab.setAttribute("aria-keyshortcuts", "Shift+T");
    this.full.setAttribute("aria-keyshortcuts", "Shift+F");
    this.element.append(this.full, this.tab);
    this.disposers.add(
      () => this.screen.dispose(),
      listen(this.full, "click", () => void this.screen.toggle()),
      listen(this.tab, "click", () => this.openTab()),
      listen(root, "keydown", event => this.key(event)),
      onTabHost(() => this.show(this.screen.isOn))
    );
    this.show(false);
  }

  dispose(): void {
    this.disposers.dispose();
    this.element.remove();
  }

  private show(isFull: boolean): void {
    const title = this.whose + (isFull ? "Leave full screen" : "Full screen");
    this.full.title = isFull ? `${title} (Esc)` : `${title} (Shift+F)`;
    setAttribute(this.full, "aria-label", title);
    this.full.replaceChildren(icon(isFull ? "leave-full-screen" : "full-screen"));
    this.tab.hidden = isFull || tabOpener(this.root) === null;
  }

  private openTab(): boolean {
    const open = this.screen.isOn ? null : tabOpener(this.root);
    open?.();
    return open !== null;
  }

  /** Of a widget within a widget the inner one hears them first, and alone. */
  private key(event: KeyboardEvent): void {
    const plain = event.shiftKey && !event.ctrlKey && !event.metaKey && !event.altKey;
    if (!plain || event.defaultPrevented || isField(event.target)) return;
    if (event.key === "F") void this.screen.toggle();
    else if (event.key !== "T" || !this.openTab()) return;
    event.preventDefault();
    event.stopPropagation();
  }
}
