// The "⋯" button of a toolbar: in a narrow window the tools of a group are behind it, else they stand in the row.

import { box, button, type Disposers, listen, setRole, uniqueId } from "./dom";
import "../../../../style/more_menu.css";
import * as words from "../../words/shared";

/** Puts the group into a menu of the toolbar; style sheets say from which width on it is one. */
export function moreMenu(toolbar: HTMLElement, group: HTMLElement, disposers: Disposers): HTMLElement {
  const opener = button("mkg-button mkg-more-opener", "⋯", words.MORE);
  setRole(group, "group", words.MORE);
  opener.setAttribute("aria-label", words.MORE);
  opener.setAttribute("aria-controls", (group.id = uniqueId()));
  const show = (isOpen: boolean) => {
    opener.setAttribute("aria-expanded", String(isOpen));
    group.classList.toggle("mkg-is-open", isOpen);
  };
  const isOpen = () => opener.getAttribute("aria-expanded") === "true";
  const outside = ({ target }: Event) => {
    if (isOpen() && target instanceof Node && !group.parentElement?.contains(target)) show(false);
  };
  const left = () => group.parentElement?.matches(":focus-within") || show(false);
  show(false);
  document.addEventListener("pointerdown", outside, true);
  disposers.add(
    () => document.removeEventListener("pointerdown", outside, true),
    listen(opener, "click", () => show(!isOpen())),
    listen(toolbar, "keydown", event => {
      if (event.key === "Tab" && isOpen()) setTimeout(left); // once the focus is where it goes
      if (event.key !== "Escape" || !isOpen()) return;
      event.stopPropagation();
      show(false);
      opener.focus();
    })
  );
  return box("mkg-more", opener, group);
}
