// Texts that several widgets share: their frames, windows, errors, colors and exports.

import { counted } from "./numbers";

// frames and errors

export const DISCONNECTED = "Kernel disconnected. You can still browse; run the cell again to edit.";
export const NO_DATA = "Nothing to show yet. Run the cell.";
export const UNREADABLE = "Widget data cannot be read. Run the cell again.";
export const OTHER_VERSION =
  "Made by another version of modulekg-widgets. Restart the kernel and reload the page, or install the same version where JupyterLab runs.";
export const damaged = (part: string) => `Widget data is damaged (${part}). Run the cell again.`;
export const PAGE_DAMAGED = "This page is damaged. Save it again with mk.save_html.";
export const DISMISS = "Dismiss";
export const REFRESH = "Refresh";
export const REFRESH_TITLE = "Show the current model";
export const CANCEL = "Cancel";
export const CANCEL_REFRESH_TITLE = "Stop and keep the current view";
export const STATIC_PREVIEW = "Static preview. Run the cell for the interactive view.";
export const PICTURE = "Picture of a widget";

// what is shown

export const WHOLE_MODEL = "whole model";
export const THE_WHOLE_MODEL = `the ${WHOLE_MODEL}`; // within a sentence
export const NOT_FINITE = "NaN or infinite";

// copying

export const COPIED = "Copied.";
export const NOT_COPIED = "The browser did not allow copying. Select the text and copy it with the keyboard.";

// windows

export const FIT = "Fit to window";
export const ZOOM = "Zoom to selection";

export const WORKBENCH_PREFIX = "Workbench: ";
export const GRAPH_HEIGHT = "Graph height";
export const EDITOR_WIDTH = "Editor width";
export const OPEN_IN_TAB = "Open in tab";
export const FULL_SCREEN = "Full screen";
export const EXIT_FULL_SCREEN = "Exit full screen";
export const ESCAPE = "Esc";
export const withKey = (action: string, key: string) => `${action} (${key})`;
export const WHEEL_HINT = "Click the graph, or hold Ctrl, to zoom";

// colors

export const SUM_OF_CHILDREN = "sum of children";
export const MEAN_OF_MODULES = "mean of modules inside";
export const meanOf = (count: number) => `mean of ${counted(count, "module")}`;
export const NO_FINITE = "no finite values inside";
/** Of columns that the page knows, as they begin a line. */
export const COLUMNS: ReadonlyMap<string, string> = new Map([
  ["params", "Parameters"],
  ["own_params", "Own parameters"],
  ["bytes", "Memory"],
  ["flops", "FLOPs"],
  ["output_bytes", "Output size"],
  ["time", "Time"],
  ["time_after", "Time after the plan"],
  ["occurrences", "Occurrences"],
  ["overlay", "Overlay"],
  ["pruned", "Share pruned"]
]);
export const OVERLAY = "overlay";
export const SHARE_PRUNED = "share pruned";
export const OCCURRENCES = "Occurrences in this model";

// exports

export const EXPORT = "Export";
export const EXPORT_TITLE = "Save as file";
export const FORMATS = {
  svg: "scalable picture",
  png: "picture",
  dot: "Graphviz",
  json: "data of this view",
  html: "offline page"
};
export const NO_PICTURE = "The picture is not ready yet. Try again.";
export const exportFailed = (format: string) => `The ${format} file could not be created. Try again.`;

// side panes

type Pane = "left" | "right" | "both";
const PANES = { left: "tree", right: "details", both: "side panes" };

export const widthOf = (pane: Pane) => `Width of the ${PANES[pane]}`;
export const hidePane = (pane: Pane) => `Hide the ${PANES[pane]}`;
export const showPane = (pane: Pane) => `Show the ${PANES[pane]}`;

export const MORE = "More tools";
