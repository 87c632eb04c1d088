// The offline page: reads model and state from its own document and mounts the explorer.

import graphStyle from "../style/graph.css";
import panelStyle from "../style/panels.css";
import sidePanelStyle from "../style/side_panel.css";
import stripStyle from "../style/strip.css";
import toolbarStyle from "../style/toolbar.css";
import treeStyle from "../style/tree.css";
import { el } from "./core/dom";
import { PAYLOAD_ID, type SavedState, SCRIPT_ID, STATE_ID } from "./core/export/html";
import { createModelGraph } from "./core/model_graph";
import { Store } from "./core/store";

function readJson(id: string): unknown {
  const text = document.getElementById(id)?.textContent;
  return text ? JSON.parse(text) : undefined;
}

function initialState(): SavedState {
  const saved = readJson(STATE_ID);
  return typeof saved === "object" && saved !== null ? (saved as SavedState) : {};
}

function start(): void {
  // pages written by the kernel have no id there; the export menu finds the page's script by its id
  if (document.currentScript) document.currentScript.id = SCRIPT_ID;
  document.body.classList.add("mkg-standalone");
  document.head.append(
    el("style", "", [graphStyle, panelStyle, toolbarStyle, treeStyle, sidePanelStyle, stripStyle].join("\n"))
  );
  const host = el("main", "mkg-page");
  document.body.append(host);
  const raw = readJson(PAYLOAD_ID);
  createModelGraph(host, raw, new Store(initialState()));
  document.addEventListener("keydown", event => passOn(event, host));
}

/** The page is nothing but the explorer: its shortcuts work before anything in it has the focus. */
function passOn(event: KeyboardEvent, host: HTMLElement): void {
  if (event.target !== document.body) return;
  const { key, ctrlKey, metaKey, altKey, shiftKey } = event;
  const copy = new KeyboardEvent("keydown", { key, ctrlKey, metaKey, altKey, shiftKey, cancelable: true });
  if (!host.dispatchEvent(copy)) event.preventDefault();
}

start();
