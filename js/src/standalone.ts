// The offline page: reads model and state from its own document and mounts the explorer.

import graphStyle from "../style/graph.css";
import panelStyle from "../style/panels.css";
import { el } from "./core/dom";
import { PAYLOAD_ID, type SavedState, SCRIPT_ID, STATE_ID } from "./core/export/html";
import { Hierarchy } from "./core/hierarchy";
import { createModelGraph } from "./core/model_graph";
import { type ModelPayload, PayloadError, readPayload } from "./core/payload";
import { Store } from "./core/store";

const FIRST_NODES = 25; // opened at the start when the page carries no state

function readJson(id: string): unknown {
  const text = document.getElementById(id)?.textContent;
  return text ? JSON.parse(text) : undefined;
}

/** Containers to open, level by level, while no more than FIRST_NODES rows are shown. */
function firstOpening(payload: ModelPayload): string[] {
  const h = new Hierarchy(payload);
  const opened: string[] = [];
  let level = [...h.rows(0)];
  let count = level.length;
  let full = false;
  while (level.length && !full) {
    const next: number[] = [];
    for (const node of level) {
      const inside = h.rows(node);
      full ||= count + inside.length > FIRST_NODES;
      if (!inside.length || count + inside.length > FIRST_NODES) continue;
      count += inside.length;
      opened.push(h.path(node));
      next.push(...inside);
    }
    level = next;
  }
  return opened;
}

function initialState(raw: unknown): SavedState {
  const saved = readJson(STATE_ID);
  if (typeof saved === "object" && saved !== null) return saved as SavedState;
  try {
    return { expanded: firstOpening(readPayload(raw)) };
  } catch (error) {
    if (error instanceof PayloadError) return {}; // the explorer itself says what is wrong
    throw error;
  }
}

function start(): void {
  // pages written by the kernel carry neither; the export menu finds the page's script by its id
  if (document.currentScript) document.currentScript.id = SCRIPT_ID;
  document.body.classList.add("mkg-standalone");
  document.head.append(el("style", "", `${graphStyle}\n${panelStyle}`));
  const host = el("main", "mkg-page");
  document.body.append(host);
  const raw = readJson(PAYLOAD_ID);
  createModelGraph(host, raw, new Store(initialState(raw)));
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
