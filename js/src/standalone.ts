// The page without a host: reads its widgets from its own document and shows them, or those of the page around it.

import "../style/saved_page.css";
import { el } from "./core/shared/ui/dom";
import { PAGE_ID, PAGE_VERSION, type SavedPage, SCRIPT_ID } from "./core/export/html";
import { isObject } from "./core/shared/base/schema";
import { startLive } from "./standalone/live";
import { followAddress, Page, type Kinds } from "./standalone/page";
import * as widgets from "./widgets/all";
import * as controls from "./standalone/controls";
import * as words from "./core/words/shared";

/** Whether the script is that of live pages, too: saved ones need not carry how those hear from the page around them. */
declare const WITH_LIVE: boolean;

// What a page without a host can show: every widget of the package, and the boxes and links of ipywidgets.

const KINDS: Kinds = { ...controls, ...widgets };

const UNREADABLE = words.PAGE_DAMAGED;

function start(): void {
  if (document.currentScript) document.currentScript.id = SCRIPT_ID;
  const page = readPage();
  const host = el("main", "mkg-page");
  document.body.append(host);
  if (WITH_LIVE && page?.live && window.parent !== window) {
    document.body.className = "";
    return startLive(host, KINDS);
  }
  document.body.classList.add("mkg-saved");
  followAddress();
  if (!page) return explain(host);
  if (isAlone(page)) document.body.classList.add("mkg-standalone");
  new Page(page, KINDS).mount(host).catch(error => {
    console.error("modulekg-widgets", error);
    explain(host);
  });
  document.addEventListener("keydown", event => passOn(event, host));
}

function readPage(): SavedPage | undefined {
  try {
    const page: unknown = JSON.parse(document.getElementById(PAGE_ID)?.textContent ?? "");
    return isObject(page) && page.schema_version === PAGE_VERSION ? (page as unknown as SavedPage) : undefined;
  } catch {
    return undefined;
  }
}

function explain(host: HTMLElement): void {
  const message = el("p", "mkg-page-message", UNREADABLE);
  message.setAttribute("role", "alert");
  host.replaceChildren(message);
}

/** Whether the page is nothing but one widget: it fills the window. */
function isAlone({ widgets }: SavedPage): boolean {
  return widgets.filter(({ kind, state }) => kind !== "Layout" && state._view_name).length === 1;
}

/** The page is nothing but one widget: its shortcuts work before anything in it has the focus. */
function passOn(event: KeyboardEvent, host: HTMLElement): void {
  if (event.target !== document.body || !document.body.classList.contains("mkg-standalone")) return;
  const { key, ctrlKey, metaKey, altKey, shiftKey } = event;
  const copy = new KeyboardEvent("keydown", { key, ctrlKey, metaKey, altKey, shiftKey, cancelable: true });
  const widget = host.querySelector(".mkg-widget");
  if (widget && !widget.dispatchEvent(copy)) event.preventDefault();
}

start();
