// The code of `mk.marimo`: an anywidget that shows widgets in a frame of their own, and passes on what they and the kernel say.
// The frame has no origin: what runs in it reaches neither the notebook's page nor any network.

import { newNonce, PAGE_VERSION, standaloneHtml } from "./core/export/html";
import { STANDALONE_JS } from "./generated/standalone_source";

/** The part of an anywidget's model that is used. */
interface AnyModel {
  get(name: string): unknown;
  set(name: string, value: unknown): void;
  save_changes(): void;
  send(content: unknown, callbacks?: undefined, buffers?: readonly DataView[]): unknown;
  on(event: string, listener: (content: unknown, buffers: unknown) => void): void;
  off(event: string, listener: (content: unknown, buffers: unknown) => void): void;
}

interface KernelMessage {
  readonly kind?: unknown;
  readonly content?: unknown;
  readonly buffers?: readonly DataView[];
  readonly height?: unknown;
}

const FIRST_HEIGHT = 320; // px, until the widget has said how high it is

function render({ model, el }: { model: AnyModel; el: HTMLElement }): () => void {
  const frame = document.createElement("iframe");
  const stop = new AbortController();
  const tell = (data: object) => frame.contentWindow?.postMessage(data, "*"); // it has no origin to name
  const heard = (content: unknown, buffers: unknown) => tell({ kind: "heard", content, buffers });
  const showTheme = () => tell({ kind: "theme", isDark: isDark(el), height: window.innerHeight });
  const themes = new MutationObserver(showTheme);
  const take = ({ kind, content, buffers, height }: KernelMessage): void => {
    if (kind === "ready") {
      showTheme();
      tell({ kind: "start", root: model.get("root"), states: model.get("states") });
    } else if (kind === "send") void model.send(content, undefined, buffers ?? []);
    else if (kind === "changed") {
      model.set("changes", Number(model.get("changes")) + 1);
      model.save_changes();
    } else if (kind === "height") frame.style.height = `${Number(height)}px`;
  };
  const url = pageUrl();
  frame.title = "modulekg-widgets";
  frame.setAttribute("sandbox", "allow-scripts allow-downloads");
  frame.allow = "fullscreen";
  Object.assign(frame.style, { display: "block", width: "100%", border: "0", height: `${FIRST_HEIGHT}px` });
  window.addEventListener(
    "message",
    event => {
      if (event.source === frame.contentWindow) take((event.data ?? {}) as KernelMessage);
    },
    stop
  );
  window.addEventListener("resize", showTheme, stop);
  for (const element of [document.documentElement, document.body]) {
    themes.observe(element, {
      attributes: true,
      attributeFilter: ["class", "style", "data-theme", "data-jp-theme-light"]
    });
  }
  model.on("msg:custom", heard);
  frame.src = url;
  el.append(frame);
  return () => {
    model.off("msg:custom", heard);
    stop.abort();
    themes.disconnect();
    frame.remove();
    URL.revokeObjectURL(url);
  };
}

/** The page in the frame: the views' code, and nothing of the user's. */
function pageUrl(): string {
  const page = standaloneHtml(
    "modulekg-widgets",
    { schema_version: PAGE_VERSION, views: [], widgets: [], live: true },
    STANDALONE_JS,
    newNonce()
  );
  return URL.createObjectURL(new Blob([page], { type: "text/html" }));
}

/** Whether texts around are lighter than what they stand on. */
function isDark(element: Element): boolean {
  const [red = 0, green = 0, blue = 0] = (getComputedStyle(element).color.match(/[\d.]+/g) ?? []).map(Number);
  return 0.3 * red + 0.59 * green + 0.11 * blue > 128;
}

export default { render };
