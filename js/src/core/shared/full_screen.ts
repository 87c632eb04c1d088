// A widget on the whole screen: as the browser does it, else over everything else in the page.

import "../../../style/full_screen.css";
import { isField } from "./dom";

const FULL = "mkg-is-full";

/** Whether what `element` stands in has the whole screen. */
export function isFullScreen(element: Element): boolean {
  return element.closest(`.${FULL}`) !== null;
}

export class FullScreen {
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
