// The buttons that every widget has: full screen, and a tab of its own where the host has tabs.

import { button, type Disposer, Disposers, el, isField, listen, setAttribute, widgetRoot, icon } from "./dom";
import "../../../../style/full_screen.css";
import * as words from "../../words/shared";

// A widget on the whole screen: as the browser does it, else over everything else in the page.

const FULL = "mkg-is-full";

/** Whether what `element` stands in has the whole screen. */
export function isFullScreen(element: Element): boolean {
  return element.closest(`.${FULL}`) !== null;
}

class FullScreen {
  private isOverlay = false;
  private readonly page: Document;

  constructor(
    private readonly root: HTMLElement,
    private readonly changed: (isOn: boolean) => void
  ) {
    this.page = root.ownerDocument;
    this.page.addEventListener("fullscreenchange", this.follow);
  }

  get isOn(): boolean {
    return this.root.classList.contains(FULL);
  }

  async toggle(): Promise<void> {
    if (this.isOn) await this.leave();
    else await this.enter();
  }

  dispose(): void {
    if (this.isOn) void this.leave();
    this.page.removeEventListener("fullscreenchange", this.follow);
    this.show(false);
  }

  private async enter(): Promise<void> {
    try {
      await this.root.requestFullscreen();
      this.follow();
    } catch {
      this.cover(); // the API is missing, or the page may not use it
    }
  }

  private async leave(): Promise<void> {
    if (this.isOverlay) this.uncover();
    else if (this.page.fullscreenElement === this.root) await this.page.exitFullscreen();
  }

  private readonly follow = (): void => {
    if (!this.isOverlay) this.show(this.page.fullscreenElement === this.root);
  };

  /** As a popover it lies over the page whatever it stands in: hosts clip and move what is merely fixed. */
  private cover(): void {
    this.isOverlay = true;
    if (typeof this.root.showPopover === "function") {
      this.root.popover = "manual";
      this.root.showPopover();
    }
    this.show(true);
  }

  private uncover(): void {
    this.isOverlay = false;
    if (this.root.hasAttribute("popover")) this.root.hidePopover();
    this.root.removeAttribute("popover"); // one that is not shown would be hidden
    this.show(false);
  }

  /** Browsers do the same before the page hears of the key; what Esc closes within the widget is closed first. */
  private readonly escape = (event: KeyboardEvent): void => {
    const { key, target } = event;
    const isTaken = target instanceof Element && (isField(target) || target.closest("[role=menu], dialog") !== null);
    if (key !== "Escape" || isTaken) return;
    event.preventDefault();
    event.stopPropagation();
    void this.leave();
  };

  private show(isOn: boolean): void {
    if (isOn === this.isOn) return;
    this.root.classList.toggle(FULL, isOn);
    if (isOn) this.page.addEventListener("keydown", this.escape, true);
    else this.page.removeEventListener("keydown", this.escape, true);
    this.changed(isOn);
  }
}

// Tabs of the host that can show a widget once more: the host says that it has some, each widget what it would show.

export interface TabRequest {
  readonly title: string;
  /** A second view of the same live model, as the host's widgets know it. */
  readonly createView: () => Promise<unknown>;
}

interface TabHost {
  open(request: TabRequest): void;
}

let host: TabHost | null = null;
const waiting = new Set<() => void>();
const requests = new WeakMap<HTMLElement, TabRequest>();

/** Called once by a host that has tabs; other hosts never do. */
export function setTabHost(given: TabHost | null): void {
  host = given;
  for (const listener of [...waiting]) listener();
}

/** Returns the disposer. */
function onTabHost(listener: () => void): () => void {
  waiting.add(listener);
  return () => void waiting.delete(listener);
}

/** `root`: of the widget that can be shown in a tab. */
export function offerTab(root: HTMLElement, request: TabRequest): void {
  requests.set(root, request);
}

/** Opens the widget in a tab; null where there is none for it, or it fills one already. */
function tabOpener(root: HTMLElement): (() => void) | null {
  const request = requests.get(root);
  const isInTab = root.closest(".mkg-object-tab") !== null;
  return host && request && !isInTab ? () => host?.open(request) : null;
}

const lent = new WeakMap<Element, WindowButtons>();

/** The first widget in `pane` shows, in place of its own, the buttons of `whole`, which has no toolbar. */
export function lendWindowButtons(whole: HTMLElement, pane: HTMLElement): Disposer {
  const buttons = new WindowButtons(whole, words.WORKBENCH_PREFIX);
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
  private readonly tab = button("mkg-button mkg-open-tab", "");
  private readonly screen: FullScreen;

  /** `root`: the widget; `whose`: said before what they do, where they stand in another. */
  constructor(
    private readonly root: HTMLElement,
    private readonly whose = ""
  ) {
    this.screen = new FullScreen(root, isOn => this.show(isOn));
    this.tab.append(icon("open-tab"));
    const title = whose + words.OPEN_IN_TAB;
    this.tab.title = words.withKey(title, "Shift+T");
    this.tab.setAttribute("aria-label", title);
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
    const title = this.whose + (isFull ? words.EXIT_FULL_SCREEN : words.FULL_SCREEN);
    this.full.title = words.withKey(title, isFull ? words.ESCAPE : "Shift+F");
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
