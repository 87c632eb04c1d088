// Texts of the side panel of a model graph.

import { counted } from "./numbers";

export { COPIED, NOT_COPIED, NOT_FINITE, WHOLE_MODEL, THE_WHOLE_MODEL } from "./shared";

export const PANEL = "Details of the selected module";
export const INVITATION = "Click a module to see its parameters and shapes. Double-click to open it and zoom in.";
export const NO_MODULE = "This model has no module with the selected path.";
export const COPY_PATH = "Copy path";
export const FOCUS = "Focus";
export const FOCUS_HELP = "Fill the canvas with the inside of this module";
export const SELECT_MODULE = "Select this module";

// Numbers

export const PARAMETERS = "Parameters";
export const OWN_PARAMETERS = "Own parameters";
export const MEMORY = "Memory";
export const HELP: ReadonlyMap<string, string> = new Map([
  ["params", "Trainable parameters in this module and everything inside; a shared tensor counts once"],
  ["own_params", "Parameters of this module itself, without those of modules inside"],
  ["bytes", "Size of parameters and buffers, here and inside"],
  ["output_bytes", "Size of the output tensors of this module, over all its calls"],
  ["time", "Measured on the model's device, over all calls, with everything called inside"],
  ["time_after", "The time with the cuts of the plan"]
]);
export const FLOPS = "FLOPs";
export const FLOPS_KNOWN = "FLOPs, known";
export const FLOPS_UNKNOWN = "FLOPs unknown";
export const FLOPS_HELP =
  "Floating-point operations in this module and everything inside; a multiply-add counts as two";
export const NOT_CALLED = "none: not called in this forward pass";
export const SUM_OF_CHILDREN = "(sum of children)";
export const CHILDREN_CALLED = "This module is not called itself: its children are called one by one";
export const NO_FORMULA = "unknown: no formula for this operator";
export const OCCURRENCES = "Occurrences";
export const ONCE = "1 in this model";
export const occurrences = (count: string): string => `${count} in this model`;
export const FOLDED = "Folded";
export const copyOf = (number: string, count: string): string => `Copy ${number} of ${count}`;
export const SAME = "same structure, own weights";
export const OTHER_SIZES = "same structure, other sizes";

// Comparison

export const IN_PLACE = ", at the same place";
export const STATUS = {
  same: `identical${IN_PLACE}`,
  renamed: "identical under another name",
  moved: "identical at another place",
  changed: `different settings${IN_PLACE}`,
  removed: "missing",
  added: "only there"
};
export const CHANGED_INSIDE = `changed inside${IN_PLACE}`;
export const OTHER_MODEL = "In the other model";
export const OTHER_PATH = "Path there";
export const HERE = "Here";
export const THERE = "There";

// Tables

export const NAME = "Name";
export const VALUE = "Value";
export const SHAPE = "Shape";
export const SETTINGS = "Settings";
export const BUFFER = "buffer";
export const NOT_SET = "not set";
export const SINGLE = "a single number";
export const TRUE = "True"; // as in the Python call
export const FALSE = "False";
export const SHAPE_AND_TYPE = "Shape and type";
export const more = (count: string): string => `and ${count} more`;

// What points at the same module or tensor

export const SHARED = "Shared";
export const CONNECTION = "connection";
export const REACHED_AS = "also reached as ";
export const USED_AS = "also used as ";
export const IN = " in ";
export const SLOT = "the slot ";
export const LEADS_BACK = " leads back to ";
export const SAME_MODULE = " is the same module as ";
export const TENSOR = "the tensor ";
export const SAME_TENSOR = " is the same as ";
export const OF = " of ";

// Identity

export const IDENTITY = "Identity";
export const CLASS = "Class";
export const SOURCE = "Source";
export const DISPLAY_NAME = "Display name";
export const FINGERPRINT = "Fingerprint";
export const FINGERPRINT_HELP = "Modules with the same fingerprint have the same structure";
export const COPY_FINGERPRINT = "Copy fingerprint";
export const NO_FINGERPRINT = "none: this module cannot be fingerprinted";
export const NO_CLASS = "not in the file";
export const guessed = (kind: string): string => `${kind} (guessed from its tensors)`;

// Channel groups (axes)

export const GROUPS = "Channel groups (axes)";
export const GROUPS_HERE = "Channel groups in this layer";
export const GROUPS_HELP = "Channels that must be pruned together. Click a group to highlight it.";
export const GROUP = "Channel group (axis)";
export const CLEAR_GROUP = "Clear the selection";
export const HIGHLIGHT = "Highlight everything along this channel group";
export const PRUNABLE = "prunable";
export const PRUNABLE_HELP = "Its channels can be removed, in all tensors at once";
export const fixed = (reason: string): string => `Fixed: ${reason}`;
export const prunableCount = (count: string): string => `${count} prunable`;
export const fixedCount = (count: string): string => `${count} fixed`;
export const tensors = (count: number): string => counted(count, "tensor");
export const groupTitle = (name: string, count: number, reason: string | null): string =>
  [name, tensors(count) + (reason === null ? "" : `, fixed: ${reason}`), HIGHLIGHT].join("\n");
export const sizeOf = (size: string): string => `size ${size}`;
export const dimension = (number: number): string => ` dim ${number}`;
/** What tensors are to a channel group; the key is for the program. */
export const ROLES = [
  ["made", "output channels", "removed"],
  ["read", "input channels", "follow"],
  ["carried", "one value per channel", "follow"]
] as const;
export const ROLE_NAMES = { made: "output", read: "input", carried: "per channel", other: "" };
export const carriedBy = (names: readonly string[], others: number): string =>
  `Carried by ${names.join(", ")}${others > 0 ? ` and ${others} more` : ""} (no parameters of the group)`;
export const FEWER = "fewer";
export const moreTensors = (count: string): string => `+${count} more`;
export const SHOW_FEWER = "Show fewer tensors";
export const showMore = (count: string): string => `Show ${count} more tensors`;

// Input and output

const numbered = (word: string, number: number): string => (number > 0 ? `${word} ${number}` : word);
/** `number`: among several, 0 for the only one. */
export const inputName = (name: string, number: number): string => name || numbered("input", number);
export const outputName = (name: string, number: number): string =>
  name === "" ? numbered("output", number) : `output ${name}`;
export const TRAFFIC = "Input and output";
export const trafficOf = (calls: number): string => (calls > 1 ? `${TRAFFIC} of ${counted(calls, "call")}` : TRAFFIC);
export const calls = (numbers: readonly string[], isOne: boolean): string =>
  `${isOne ? "call" : "calls"} ${numbers.join(", ")}`;
export const otherCalls = (count: number): string => `and ${count} calls with other shapes`;

// Operators

export const OPERATOR = "Operator";
export const operators = (count: number): string => counted(count, "operator");
export const READS = "Reads";
export const CALLED_AT = "Called at";
export const NO_LINE = "line of code unknown";
export const firstRows = (count: string): string => `The first ${count} operators`;

// A file

export const FILE = "File";
export const FORMAT = "Format";
export const TENSORS = "Tensors";
export const FILE_SIZE = "File size";
export const BYTES = "Bytes";
export const TYPE = "Type";
export const TYPES = "Types";
export const METADATA = "Metadata";
export const NONE = "none";
export const moreOf = (count: string): string => `${count} more`;
export const LIST_MORE = "List more tensors";
export const ownTensors = (count: number): string => (count === 1 ? "Own tensor" : `Own tensors: ${count}`);
export const inTensors = (count: number): string => ` in ${counted(count, "tensor")}`;
export const otherTypes = (count: number): string => `and ${counted(count, "other type")}`;
export const CLASSES = "Classes this file would import (not loaded here)";
export const FILE_NAME = "Name in the file";

// Histogram of a tensor

export const HISTOGRAM = "histogram";
export const HIDE = "hide";
export const HISTOGRAM_HELP = "Ask a running kernel for its numbers";
export const histogramOf = (name: string, isOpen: boolean): string =>
  `${isOpen ? "Hide the histogram" : "Histogram"} of ${name}`;
export const ASKING = "Asking the kernel…";
export const NOT_ASKED = "The kernel did not answer. Try again once it runs.";
export const OTHER_ANSWER = "The kernel's answer has another format. Use one version in page and kernel.";
export const MEAN = "Mean";
export const ZEROS = "Zeros";
export const COUNTED = "Counted";
export const sample = (counted: string, all: string): string => `${counted} of ${all} numbers, evenly spaced`;
export const histogramRange = (from: string, to: string): string => `Histogram from ${from} to ${to}`;
export const bar = (from: string, to: string, count: string): string => `${from} … ${to}: ${count}`;
