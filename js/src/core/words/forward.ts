// Texts of the forward player.

import { counted, exactNumber } from "./numbers";
import { NOT_FINITE } from "./shared";

export { NOT_FINITE, WHOLE_MODEL } from "./shared";
export const ofAll = (range: string, all: number) => `${range} of ${all}`;

// the controls

export const CONTROLS = "Forward pass";
export const FIRST = "First step";
export const BACK = "Previous step";
export const NEXT = "Next step";
export const LAST = "Last step";
export const STEP = "Step";
export const stepOf = (step: number, all: number) => `step ${step} of ${all}`;
export const PLAY = "Play";
export const PAUSE = "Pause";
export const withSpaceKey = (action: string) => `${action} (space)`;
export const SPEED = "Speed";
export const perSecond = (speed: number) => `${speed} / s`;
export const SAMPLE = "Sample";
export const SAMPLE_TITLE = "Sample of the batch; the attribute sample counts from 0";
export const ofSamples = (all: number) => `of ${all}`;
export const HIDE_SHAPES = "Hide shapes";
export const score = (right: number, asked: number) => `${right} of ${asked} correct`;
export const RESTART = "Restart";

// the status

export const CURRENT_STEP = "Current step";
export const failed = (error: string) => `Forward pass failed: ${error}`;
export const notListed = (calls: number) => `${counted(calls, "more call")} not listed.`;
export const firstNonFinite = (path: string, count: number) =>
  `First ${NOT_FINITE} values: ${path} (${exactNumber(count)})`;

// the steps

export const STEPS = "Steps of the forward pass";
export const nonFinite = (count: string) => `${count} ${NOT_FINITE}`;
export const INPUT_HIDDEN = "input hidden";
export const input = (shapes: string) => `input ${shapes}`;
export const RAISED = ", raised an error";
export const nonFiniteOutputs = (count: number) => `, ${exactNumber(count)} output values ${NOT_FINITE}`;
export const output = (shapes: string) => `${shapes} · output`;
export const STOPPED = "stopped here";
export const NO_TENSOR = "no tensor";
export const andMore = (shape: string, others: number) => `${shape} and ${others} more`;

// the details

export const NO_CALLS = "No module was called.";
export const FAILED_HERE = "The forward pass failed here: ";
export const RAISED_HERE = "It raised an error: ";
export const INPUT = "Input";
export const OUTPUT = "Output";
export const ANSWER_PREVIOUS = " Answer the previous layer first";
export const firstOf = (tensors: number) => ` the first of ${tensors} tensors`;
export const NO_FIGURES = "This output has no numeric values.";
export const RANGE = "range";
export const MEAN = "mean";
export const STD = "std";
export const ZEROS = "zeros";
export const ELEMENTS = "elements";
export const SCALAR = "scalar";
export const classAt = (place: number) => `class ${place}`;
export const channelAt = (channel: number, place: string) => `channel ${channel} at ${place}`;
export const elementAt = (place: string) => (place ? `element ${place}` : "value");

// the quiz

const EXAMPLE = "for example 1, 64, 56, 56";
export const PLACEHOLDER = EXAMPLE;
export const QUESTION = "What is the output shape?";
export const CHECK = "Check";
export const SHOW = "Show";
export const SHOW_TITLE = "Show the answer";
export const NO_SHAPE = `Enter the sizes, ${EXAMPLE}.`;
export const answer = (shapes: string) => `Answer: ${shapes}`;
export const RIGHT = "Correct.";
export const OTHER_DIMENSIONS = "Incorrect: different number of dimensions.";
export const sizesRight = (right: number, all: number) => `Incorrect: ${right} of ${all} sizes match.`;

// the pictures

export const HIDDEN_PICTURES = "Answer the question to see the pictures and the largest outputs.";
export const LARGEST = "Largest outputs";
export const PREVIOUS = "Previous";
export const FOLLOWING = "Next";
export const CLOSE = "Close";
export const pictures = (page: number, sample: number) =>
  page ? "pictures of this page" : sample ? `pictures of sample ${sample + 1}` : "pictures";
export const needKernel = (what: string) => `Kernel disconnected: no ${what}.`;
export const afterCell = (what: string) =>
  `Waiting for the running cell to end. The model then runs again for the ${what}.`;
export const whenFree = (what: string) => `Kernel busy. Waiting for the ${what}.`;
export const loading = (what: string) => `Loading the ${what}…`;
export const FINER_NEED_KERNEL = "finer pictures need the kernel, which is disconnected";
export const FINER_AFTER_CELL = "finer pictures when the running cell ends (the model runs again)";
export const FINER_WHEN_FREE = "finer pictures when the kernel is free";
export const channels = (count: number) => counted(count, "channel");
export const values = (count: number) => counted(count, "value");
export const HEAT_MAP = "Heat map";
export const NO_PICTURE = "No picture of this output";
export const rowsAndColumns = (rows: number, columns: number) => `${rows} rows, ${columns} columns`;
export const stripRows = (width: number, first: number) => `rows of ${width} values, starting at value ${first}`;
export const depthSlice = (slice: number) => `depth slice ${slice}`;
export const averaged = (from: string, to: string) => `averaged from ${from} to ${to}`;
export const firstShown = (count: number) => `first ${count} shown`;
export const channel = (place: number) => `channel ${place}`;
export const ALL_VALUES = "all values";
export const VALUES = "values";
export const NOTHING_FINITE = "no finite values";
export const constant = (value: string) => `constant ${value}`;
export const fromTo = (low: string, high: string) => `${low} to ${high}`;
export const picture = (name: string, range: string) => `${name}, ${range}`;
export const enlarge = (name: string, range: string) => `${picture(name, range)}, enlarge`;
