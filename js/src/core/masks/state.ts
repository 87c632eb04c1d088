// What one view of the editor shows, with a listener list for each key.

import { isEqual } from "../store";
import type { Scope } from "./ratio";
import { Events } from "./events";

export type Stage = "" | "masked" | "cut";

export interface EditorState {
  importance: string;
  scope: Scope;
  locked: readonly string[]; // names of axes
  axis: string | null; // the current row
  selected: string | null; // dotted path of a module
  stage: Stage;
  operations: number; // that can be taken back in the kernel
  path: string; // file that a plan is saved to
  // The rest stays in the browser.
  query: string;
  connected: boolean;
}

export function initialEditorState(): EditorState {
  return {
    importance: "",
    scope: "local",
    locked: [],
    axis: null,
    selected: null,
    stage: "",
    operations: 0,
    path: "plan.modulekg.json",
    query: "",
    connected: true
  };
}

export class EditorStore {
  private readonly state: EditorState;
  private readonly events = new Events<keyof EditorState>();

  constructor(initial: Partial<EditorState> = {}) {
    this.state = { ...initialEditorState(), ...initial };
  }

  get<K extends keyof EditorState>(key: K): EditorState[K] {
    return this.state[key];
  }

  /** Nobody is told when the value is equal to the one before. */
  set<K extends keyof EditorState>(key: K, value: EditorState[K]): void {
    if (isEqual(this.state[key], value)) return;
    this.state[key] = value;
    this.events.tell(key);
  }

  /** Returns the disposer. */
  on(keys: keyof EditorState | readonly (keyof EditorState)[], listener: () => void): () => void {
    return this.events.on(keys, listener);
  }
}
