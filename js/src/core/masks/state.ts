// What one view of the editor shows.

import { StateStore } from "../shared/state_store";
import type { Scope } from "./ratio";

export type Stage = "" | "masked" | "cut";

export interface EditorState {
  importance: string;
  scope: Scope;
  locked: readonly string[]; // names of axes
  axis: string | null; // the current row
  selected: string | null; // dotted path of a module
  stage: Stage;
  operations: number; // that can be taken back in the kernel
  recalibrating: boolean; // a cut renews running statistics
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
    recalibrating: false,
    path: "plan.modulekg.json",
    query: "",
    connected: true
  };
}

export class EditorStore extends StateStore<EditorState> {
  constructor(initial: Partial<EditorState> = {}) {
    super({ ...initialEditorState(), ...initial });
  }
}
