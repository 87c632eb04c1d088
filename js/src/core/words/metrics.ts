// Texts of the metric panel.

import { counted, exactNumber } from "./numbers";
import { NOT_FINITE } from "./shared";

export { COPIED, NOT_COPIED, NOT_FINITE as NAN_KEY, WHOLE_MODEL } from "./shared";

const capital = (text: string) => (/^[a-z ]+$/.test(text) ? text[0].toUpperCase() + text.slice(1) : text);

export const UNDRAWABLE = "This panel cannot be drawn. Run the cell again.";
export const LEFT_OUT = "modulekg-widgets: a message of metric values is damaged and left out:"; // in the console

// views, toolbar and files

export const VIEW = "View";
export const GRID = "All metrics";
export const LINES = "Lines";
export const HEAT_MAP = "Heat map";
export const HISTOGRAMS = "Histograms";
export const TOOLBAR = "View, steps and files";
export const PHASE = "Phase";
export const BOTH_PHASES = "train and eval";
export const LAST = "Last";
export const STEPS = "steps";
export const ALL = "all";
export const WINDOW_HELP = "Show only the last steps; empty shows all";
export const LOG_SCALE = "Log scale";
export const LOG_AUTOMATIC = "Automatic: log scale where positive values of a loss or of several modules span decades";
export const PAUSE = "Pause";
export const PAUSE_HELP = "Stop drawing; new values are still recorded";
export const RESUME = "Resume";
export const RESUME_HELP = "Show all new values and continue drawing";
export const SAVE_CSV = "Save the visible values as CSV";
export const SAVE_PNG = "Save the picture as PNG";
export const NOT_DRAWN = "The picture is not drawn yet. Try again in a moment.";
export const PNG_FAILED = "The PNG file could not be made. Try again with a smaller panel.";
export const SHOW_ALL = "Show all steps";
export const SHOW_ALL_HELP = "Undo the zoom (double click)";
export const ENLARGE = "Enlarge this chart";
export const BACK = "All metrics";
export const BACK_HELP = "Back to the charts of all metrics";

// states

export const NOT_STARTED = "Not started";
export const WAITING = "Waiting for the first step";
export const RUNNING = "Running";
export const PAUSED = "Paused";
export const ENDED = "Ended";
export const ENDED_EMPTY = "Ended without values";
export const stateWith = (state: string, why: string) => `${state}: ${why}`;
export const savedAt = (step: string) => `Saved while running (step ${step})`;
export const SAVED_EMPTY = "Saved before the first step";
export const KERNEL_LOST = "Kernel disconnected";
export const someRuns = (state: string, count: number, all: number) => `${state} (${count} of ${all} runs)`;

// values that are not finite

export const notFiniteKind = (hasNaN: boolean, hasInfinite: boolean) =>
  hasNaN && hasInfinite ? NOT_FINITE : hasNaN ? "NaN" : "infinite";
export const isBroken = (name: string, kind: string) => `${name} is ${kind}`;
export const NOT_FINITE_VALUES = `${NOT_FINITE} values`;
export const brokenSince = (name: string, kind: string, step: string) =>
  `${capital(name)} is ${kind} since step ${step}.`;
export const firstNotFinite = (what: string, step: string) => `First non-finite: ${what} at step ${step}.`;
export const LOSS_ITSELF = "the loss itself";
export const OUTPUTS_FINITE = "Outputs of modules were finite at that step.";
export const ofRun = (run: string, text: string) => `${run}: ${text}`;
const MEASURED: readonly [RegExp, string][] = [
  [/^Weight.*Grad/, "weight gradient"],
  [/^Input.*Grad/, "input gradient"],
  [/Grad/, "output gradient"],
  [/^Weight/, "weight"],
  [/^Input/, "input"],
  [/^(?:Output|Activation)/, "output"]
];
export const outputOf = (module: string) => `output of ${module}`;
/** What a metric of a module reads; where its name does not tell, the metric. */
export const measuredOf = (metric: string, module: string) =>
  `${MEASURED.find(([name]) => name.test(metric))?.[1] ?? metric} of ${module}`;

// metrics and modules

export const LOSSES = "Losses";
export const oneValue = (values: readonly string[]) =>
  `1 value${values.length > 1 ? " each" : ""}: ${values.join(", ")}`;
export const ONLY_NAN = "NaN only";
export const ONLY_NOT_FINITE = `${NOT_FINITE} only`;
export const LOG_AXIS = "log scale";

export const PICKER = "Metric and modules";
export const METRIC = "Metric";
export const NUMBERS = "Numbers";
export const NONE_YET = "none yet";
export const withoutValues = (metric: string) => `${metric} (no values yet)`;
export const MODULES = "Modules";
export const SEARCH = "Search modules";
export const selectFound = (count: number) => `Select the ${exactNumber(count)} found`;
export const allOf = (count: number) => `All ${exactNumber(count)}`;
export const mostUnusual = (count: number) => `${count} most unusual`;
export const show = (what: string) => `Show: ${what}`;
export const listed = (count: number) => `The first ${exactNumber(count)} are listed. Search for the others.`;
export const callNumber = (call: number) => `call ${call + 1}`;
export const runNumber = (run: number) => `run ${run + 1}`;
const calls = (modules: number, series: number) => (series > modules ? ` · ${counted(series, "call")}` : "");
/** Modules and calls of modules are different counts. */
export const modulesAndCalls = (modules: number, series: number) => counted(modules, "module") + calls(modules, series);
export const shownOf = (shown: number, all: number, series: number) =>
  `${exactNumber(shown)} of ${counted(all, "module")} shown${calls(shown, series)}`;
export const selectedOf = (selected: number, shown: string) => `${exactNumber(selected)} selected, ${shown}`;
export const unusual = (shown: number, all: number, series: number) =>
  `${shown} most unusual of ${counted(all, "module")}${calls(shown, series)}`;
/** Of a metric that not all of the chosen modules have. */
export const unusualWithIt = (shown: number, chosen: number, series: number) =>
  `${shown} of the ${chosen} most unusual modules${calls(shown, series)}`;
/** What the numbers at unusual modules are. */
export const comparedBy = (hasFactors: boolean, hasAlerts: boolean) =>
  ` (${hasFactors ? "× median" : "difference from the median"})${hasAlerts ? "; alerts first" : ""}`;
export const TYPICAL = "typical";
export const alertAt = (step: string) => `alert at step ${step}`;
export const brokenFrom = (step: string) => `${NOT_FINITE} from step ${step}`;

// the pictures and what is remarked about them

export const CHART_KEYS = "Arrow keys read values, plus and minus zoom, Escape shows all steps.";
export const HEAT_KEYS = "Arrow keys read values, Enter selects the module.";
export const lineChart = (metric: string, lines: number) =>
  `Line chart of ${metric}, ${counted(lines, "line")}. ${CHART_KEYS}`;
export const heatMap = (metric: string, rows: number, scale: string) =>
  `Heat map of ${metric}, ${counted(rows, "row")}. ${scale}. ${HEAT_KEYS}`;
export const histogramsOf = (metric: string) => `Histograms of ${metric || "no module"}`;
export const chartsOf = (count: number) => `Charts of ${counted(count, "metric")}`;
export const STEP = "step";
export const stepAt = (step: string) => `step ${step}`;
export const atStep = (step: string) => `at step ${step}`;
export const latest = (step: string) => `${step} (latest)`;
export const reading = (name: string, step: string, value: string) => `${name}, step ${step}: ${value}`;
export const NO_VALUE = "no value";
export const moreLines = (count: number) => `${count} more in the legend`;
/** After the name of a line that so many further series have with it, as their values are the same. */
export const more = (count: number) => (count > 0 ? ` +${exactNumber(count)}` : "");
export const sameValues = (name: string, names: readonly string[]) => `${name}: ${names.join(", ")}`;
export const greyLines = (count: number) => `${counted(count, "line")} in grey: more lines than colors.`;
export const pick = (label: string) => `${label}: click to select the module`;
export const LEGEND = "Lines and their values";
export const someOf = (shown: number, all: number, what: string) =>
  `${shown} of ${counted(all, what)} shown: the most unusual.`;
export const LINE = "line";
export const HISTOGRAM = "histogram";
export const SEE_HEAT_MAP = " The heat map shows all.";
export const leftOut = (count: number) =>
  `${counted(count, "value")} ≤ 0 cannot be shown on the log scale and ${count === 1 ? "is" : "are"} left out.`;
export const leftOutOfColors = (count: number) =>
  `${counted(count, "value")} < 0 cannot be shown on the log scale: empty squares.`;
const notFinite = (count: number) => `${counted(count, "value")} ${count === 1 ? "is" : "are"} ${NOT_FINITE}`;
export const broken = (count: number) => `${notFinite(count)}: × NaN, ∧ infinite, ∨ negative infinite.`;
export const brokenColors = (count: number) => `${notFinite(count)}: pink squares.`;
export const full = (count: number) => `The panel holds ${exactNumber(count)} series. Further series are left out.`;

// colors of a heat map

export const COLORS = "Colors";
export const COLOR_LEGEND = "Color legend";
export const WITHOUT_OUTLIERS = "without outliers";
export const ALL_VALUES = "all values";
export const PER_ROW = "each row separately";
export const ROW_LOW = "lowest of the row";
export const ROW_HIGH = "highest of the row";
export const NAME_KEY = "name";
export const UNUSUAL_KEY = "most unusual rows";
export const ABOVE_KEY = "row with values above the colors";
export const BELOW_KEY = "row with values below the colors";
const scale = (isLog: boolean) => (isLog ? "Log color scale" : "Linear color scale");
/** `low` and `high` are percentiles; "" is the lowest and the highest value. */
export function colorScale(isLog: boolean, low = "", high = "", outside = 0): string {
  const ends = low && high ? `, ${low} to ${high} percentile` : low ? `, from the ${low} percentile` : "";
  const end = high && !low ? `, up to the ${high} percentile` : ends;
  return `${scale(isLog)}${end}${outside ? `; ${counted(outside, "value")} outside` : ""}`;
}
export const rowScale = (isLog: boolean) => `${scale(isLog)}, separate for each row: do not compare rows`;

// histograms

export const ONE_STEP = "one step";
export const ALL_STEPS = "all steps";
export const STEPS_SHOWN = "Steps shown";
export const STEP_SLIDER = "Step";
export const NO_FINITE = "no finite values at this step";
export const NO_VALUES = "no values yet";
export const stepCount = (count: number) => counted(count, "step");
export const binRange = (from: string, to: string) => `${from} to ${to}`;
export const cellAt = (label: string, step: string) => `${label} · step ${step}`;
export const sampleOf = (count: string, all: string) => `sample of ${count} of ${all}`;
export const valueCount = (count: string) => `${count} values`;
export const heights = (isLog: boolean, why: string) =>
  `Height: ${isLog ? "logarithm of counts" : "counts"}, scaled to the highest bar of each histogram.${why && ` ${why}, by width.`}`;

// alerts

export const ALERTS = "Alerts";
export const ALERTS_LATEST = "Alerts, the latest first";
export const GO_TO_ALERT = "Show this metric and select the module";
export const latestAlerts = (count: number) => `The latest ${count} are listed.`;

// an empty picture, with code to copy

export const COPY = "Copy";
export const COPY_HELP = "Copy these lines";
export const NO_STEP = "No values yet. They appear with the first recorded step. Tell the monitor each step:";
export const NO_STEP_CODE = `with monitor:
    for step, batch in enumerate(batches):
        ...  # forward, backward, optimizer step
        monitor.log({"loss": loss})
        monitor.track(step)`;
export const NO_HISTOGRAMS = "No histograms recorded yet. Add them to the monitor, here for every 20th step:";
export const HISTOGRAMS_CODE = `monitor = mk.Monitor(model, {"*": [
    ["WeightHistogram", "linear(20)"],
    ["OutputHistogram", "linear(20)"],
]})`;
export const NO_LAYERS = "A heat map has one row per layer, and no layer is measured yet. Add a metric of layers:";
export const LAYERS_CODE = `monitor = mk.Monitor(model, {"*": ["OutputGradSndNorm", "OutputSndNorm"]})`;
export const noPhase = (phase: string) => `No values of this metric in the ${phase} phase yet. Measure one:`;
export const EVAL_CODE = `model.train(False)  # same as model.eval
with torch.no_grad():
    model(batch)
monitor.track(step)`;
export const TRAIN_CODE = `model.train()
loss_of(model(batch)).backward()
monitor.track(step)`;
export const NOT_FOUND = "No shown module matches the search. Change the search or select more modules.";
export const NO_METRIC = "No values of this metric yet. Add it to the monitor:";
export const metricCode = (metric: string) => `monitor = mk.Monitor(model, {"*": [${JSON.stringify(metric)}]})`;
