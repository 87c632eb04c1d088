// Texts of the model graph: canvas, cards, toolbar, legend, notices, comparison.

import { counted } from "./numbers";
import { FIT, NOT_FINITE, THE_WHOLE_MODEL, ZOOM } from "./shared";

export { FIT, ZOOM, THE_WHOLE_MODEL as ROOT } from "./shared";

// Cards

export const INPUT = "input";
export const OUTPUT = "output";
/** "input x", and of one that is called so "input". */
export const inputOf = (name: string): string => (/input/i.test(name) ? name : `${INPUT} ${name}`.trim());
/** `number`: among several, 0 for the only one. */
export const outputOf = (name: string, number: number): string => {
  if (name === "") return number > 0 ? `${OUTPUT} ${number}` : OUTPUT;
  return /output/i.test(name) ? name : `${OUTPUT} ${name}`;
};
export const outputs = (count: number): string => `${count} outputs`;
export const call = (number: number, of: number): string => `call ${number} of ${of}`;
export const calls = (count: number): string => `${count} calls`;
export const sideBySide = (first: string, last: string): string => `${first} … ${last} side by side`;
export const before = (count: number): string => `⋯ ${count} before`;
export const more = (count: number): string => `⋯ ${count} more`;
export const lessUsed = (count: number): string => `⋯ ${count} used less`;
export const backTo = (path: string): string => `back to ${path}`;
export const sharedWith = (path: string): string => `shared with ${path}`;
export const inside = (path: string): string => `in ${path}`;

// Operators under their usual names

export const ROTARY_EMBEDDING = "rotary embedding";
export const LAYER_NORM = "layer norm";
export const RMS_NORM = "RMS norm";
export const WEIGHTED_SUM = "weighted sum";

// Signs beside a name

export const TIED = "tied";
export const tiedTo = (name: string, other: string, path: string): string => `${TIED} ${name} is ${other} of ${path}`;
export const otherSizes = (label: string): string => `same structure, other sizes${label ? `: ${label}` : ""}`;
export const BATCH_NORM = "batch norm"; // of a file that tells no classes

// Edges

export const ORDER_CODE = "mk.ModelGraph(model, x)";
const PASS_INPUTS = "Pass inputs to see the data flow: ";
export const ORDER = `Order of registration. ${PASS_INPUTS}${ORDER_CODE}`;
export const ORDER_NOTICE = `Arrows show the order of registration. ${PASS_INPUTS}`;
export const COPY_CODE = "Copy code";
export const SHAPE_UNKNOWN = "shape unknown";
export const SIZE_UNKNOWN = "size unknown";
export const TYPE_UNKNOWN = "type unknown";
export const moreValues = (count: number): string => `+${count} more`;
export const readIn = (count: number): string => `read in ${count} places`;

// Canvas

export const CANVAS = "Model graph. The module tree offers the same by keyboard.";
export const UNDRAWABLE = "This model cannot be drawn.";
export const NO_PICTURE = "This browser cannot draw the picture.";

// Views

export const VIEW = "View";
export const HIERARCHY = "Hierarchy";
export const DATAFLOW = "Data flow";
export const OPERATORS = "Operators";
export const UNIQUE = "Unique modules";
export const DIFF = "Side by side";
export const VIEW_HELP = {
  hierarchy: "Modules as they are nested, with the operators between them",
  dataflow: "Calls of modules in the order of the forward pass, with their operators",
  operators: "Every operator of the forward pass, inside its module",
  deduplicated: "Each structure once: class, short hash, and how often it is used",
  diff: "Both models, with their differences"
};

// Toolbar

export const TOOLBAR = "View, color and search";
export const COLOR = "Color";
export const NO_COLOR = "none";
export const FLOPS = "FLOPs";
export const flops = (count: string): string => `${count}${/\d$/.test(count) ? " " : ""}FLOPs`;
export const FLOPS_HELP = "Show the FLOPs of each module on its card";
export const EXPAND_ALL = "Expand all";
export const COLLAPSE_ALL = "Collapse all";
export const HELP = "Keys and gestures";
export const matchOf = (number: number, of: number): string => `${number} of ${of}`;

// Legend

export const LEGEND = "Color legend";
export const LOG_SCALE = "Log color scale";
export const CONTAINERS = {
  sum: "Containers show the sum of their children",
  mean: "Containers show the mean of modules inside",
  own: ""
};
export const NOT_PRUNED = "No color: nothing removed";
export const inTheMiddle = (value: string): string => `Middle: ${value}`;
export const noValue = (count: string): string => `No value: ${count}`;
export const notFinite = (count: string): string => `${NOT_FINITE}: ${count}`;
export const BADGES = "Badges";
export const BADGE_FOLD = "modules of the same structure, drawn once";
export const BADGE_FAMILY = "modules of the same structure, other sizes";
export const BADGE_BLOCK = "residual block: can be removed as a whole";
export const BADGE_NOTE = "something to know: hover over the card";
export const BADGE_TIED = "shares a tensor with another module";

// Breadcrumb

export const PATH = "Path of the selected module";
export const SHOWING = "Focus: ";
export const SHOW_ALL = `Show ${THE_WHOLE_MODEL}`;
export const moreLevels = (count: number): string => counted(count, "more level");
export const size = (modules: number, params: string): string =>
  [counted(modules, "module"), params].filter(Boolean).join(" · ");
export const params = (text: string, isOne: boolean): string => `${text} ${isOne ? "parameter" : "parameters"}`;

// Keys and gestures

export const GESTURES: readonly (readonly [keys: string, what: string])[] = [
  ["Click", "Select a module, a group of operators or a channel group"],
  ["Double-click", "Open and zoom in"],
  ["Click on ›, Enter", "Open or close"],
  ["Drag, pinch", "Move and zoom"],
  ["Wheel after a click, Ctrl+wheel", "Zoom"],
  ["Arrow keys", "Go to the next card"],
  ["Escape", "Select what is around"],
  ["Backspace", "Zoom out one level"],
  ["f", FIT],
  ["z", ZOOM],
  ["/", "Search"],
  ["Shift+F", "Full screen"],
  ["Shift+T", "Open in tab (JupyterLab)"],
  ["?", "Show these keys"]
];
export const CLOSE = "Close";

// Folded modules

export const COPIES = "Copies of the folded module";
export const SAME = "same structure, own weights";
export const SIZES_VARY = "sizes vary";
export const FOLD = "Fold";
export const UNFOLD = "Unfold";
export const FOLD_HELP = "Draw one for all";
export const UNFOLD_HELP = "Draw every copy";
export const COPY = "Copy";
export const COPY_NUMBER = "Number of the copy";
export const copyOf = (count: string): string => `of ${count}`;
export const PREVIOUS_COPIES = "Previous copies";
export const NEXT_COPIES = "Next copies";
export const notUnfolded = (most: number): string =>
  `Not unfolded: more than ${most} nodes would be shown. Pick a copy here instead.`;

// Limits

export const manyNodes = (most: number): string => `More than ${most} nodes are shown. Fold or focus for speed.`;
export const tooMany = (most: number): string =>
  `Not opened: more than ${most} nodes would be shown. Fold other groups or focus on this one.`;
export const openedPartly = (most: number): string => `Opened up to ${most} nodes. Focus on a group to open the rest.`;
export const leftOut = (most: number): string => `Only the ${most} most used structures are drawn.`;
export const DRAWN_CLOSED = "Some open groups are drawn closed. Focus on a group to see its inside.";
export const TOO_MANY = "Too many nodes";
export const TOO_MANY_HERE = "Too many nodes to open this here.";
export const FOLD_OTHERS = "Fold the others";
export const FOCUS_HERE = "Focus on this one";

// Forward pass and file

export const STOPPED = "The forward pass stopped: the data flow is drawn up to there.";
export const FAILED = "Only the structure is shown.";
export const DISMISS = "Dismiss";
export const DANGER = "do not load it"; // as the readers end a warning of code that may do anything
export const otherWarnings = (count: number): string => `and ${counted(count, "other warning")}`;

// Comparison

export const NEXT_DIFFERENCE = "Next difference";
export const CHANGED_INSIDE = "changed inside";
export const NO_DIFFERENCES = "no differences";
export const tensors = (text: string): string => `Tensors: ${text}`;
