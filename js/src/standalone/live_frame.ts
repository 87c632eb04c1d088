// The inside of the frame in which js/src/marimo.ts shows widgets: it hears and tells nothing but the page around it.

import "../../style/live_frame.css";
import { isObject } from "../core/shared/schema";
import { type LiveEntry, LivePage, type Way } from "./live";
import { viewsOf } from "./live_buffers";
import type { Kinds } from "./models";
import { showTheme } from "./theme";

/** Waits for the widgets, which the page around sends, and shows them in `host`. */
export function startLive(host: HTMLElement, kinds: Kinds): void {
  const tell = (kind: string, more: object = {}) => window.parent.postMessage({ kind, ...more }, "*");
  const way: Way = {
    send: (content, buffers) => tell("send", { content, buffers }),
    changed: () => tell("changed")
  };
  const tellHeight = () => {
    if (!document.fullscreenElement) tell("height", { height: Math.ceil(host.getBoundingClientRect().height) });
  };
  let page: LivePage | undefined;
  document.body.classList.add("mkg-live");
  window.addEventListener("message", event => {
    const data: unknown = event.data;
    if (event.source !== window.parent || !isObject(data)) return;
    if (data.kind === "theme") look(data.isDark === true, Number(data.height));
    else if (data.kind === "heard") page?.hear(data.content, viewsOf(data.buffers));
    else if (data.kind === "start" && !page) {
      page = new LivePage(String(data.root), data.states as LiveEntry[], kinds, way);
      page.mount(host).then(tellHeight, error => console.error("modulekg-widgets", error));
    }
  });
  new ResizeObserver(tellHeight).observe(host); // which sleeps while the frame is out of sight
  tell("ready");
}

/** As the page around looks; its height stands for the screen's, for the frame is as high as what is in it. */
function look(isDark: boolean, height: number): void {
  showTheme(isDark ? "dark" : "light");
  document.body.style.setProperty("--mkg-screen", `${height}px`);
}
