// The tools of a toolbar that a narrow window has no room for: there they are behind a button "⋯".

import "../../../../style/tool_menu.css";
import { button, Disposers, el, listen, setRole, uniqueId } from "./dom";
import { MORE } from "../../words/shared";

export class ToolMenu {
  readonly element = el("div", "mkg-more");
  private readonly disposers = new Disposers();
  private readonly opener = button("mkg-button mkg-more-opener", "⋯", MORE);

  /** `tools` stand in the row where there is room. */
  constructor(private readonly tools: HTMLElement) {
    const { opener, element } = this;
    tools.classList.add("mkg-more-tools");
    setRole(tools, "group", MORE);
    opener.setAttribute("aria-label", MORE);
    opener.setAttribute("aria-controls", (tools.id = uniqueId()));
    element.append(opener, tools);
    this.show(false);
    const outside = ({ target }: Event) => {
      if (this.isOpen && target instanceof Node && !element.contains(target)) this.show(false);
    };
    document.addEventListener("pointerdown", outside, true);
    this.disposers.add(
      () => document.removeEventListener("pointerdown", outside, true),
      listen(opener, "click", () => this.show(!this.isOpen)),
      listen(element, "keydown", event => this.key(event))
    );
  }

  dispose(): void {
    this.disposers.dispose();
  }

  private get isOpen(): boolean {
    return this.opener.getAttribute("aria-expanded") === "true";
  }

  private show(isOpen: boolean): void {
    this.opener.setAttribute("aria-expanded", String(isOpen));
    this.tools.classList.toggle("mkg-is-open", isOpen);
  }

  private key(event: KeyboardEvent): void {
    if (!this.isOpen) return;
    const left = () => this.element.matches(":focus-within") || this.show(false);
    if (event.key === "Tab") setTimeout(left); // once the focus is where it goes
    if (event.key !== "Escape") return;
    event.stopPropagation();
    this.show(false);
    this.opener.focus();
  }
}
