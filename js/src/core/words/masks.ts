// Texts of the mask editor.

import { counted, exactNumber } from "./numbers";

const removedWith = (block: string) => `removed with ${block}`;

// channels, channel groups and blocks

export const channels = (count: number) => counted(count, "channel");
export const groups = (count: number) => counted(count, "group");
export const blocks = (count: number) => counted(count, "block");
export const tensors = (count: number) => counted(count, "tensor");
export const channelsInGroups = (removed: number, touched: number) => `${channels(removed)} in ${groups(touched)}`;
export const allOf = (parts: readonly string[]) => parts.join(" and ");
export const more = (count: number) => `and ${exactNumber(count)} more`;
export const foundOf = (count: number, all: string) => `${count} of ${all}`;
export const IN_MODULE = "in the selected module";

// numbers

export const PARAMETERS = "Parameters";
export const BYTES = "Bytes";
export const YOUR_BATCHES = "your batches";
export const batches = (count: number) => counted(count, "batch", "batches");

// the editor and its session

export const NOT_DRAWN = "The editor could not be drawn.";
export const STEP_LOCKED = "Its channel groups are locked. Unlock them first.";

// the toolbar

export const TOOLBAR = "Importance, ratio and search";
export const IMPORTANCE = "Importance";
export const IMPORTANCE_TITLE = "Importance score: shades the squares and ranks the channels";
export const IMPORTANCES: ReadonlyMap<string, string> = new Map([
  ["l1", "Sum of the absolute weights of a channel"],
  ["l2", "Root mean square of the weights of a channel"],
  ["random", "Random scores, as a baseline"],
  ["bn_scale", "Size of the normalization scale (BatchNorm weight) of a channel"],
  ["fpgm", "Distance of the weights of a channel to those of all others: near duplicates score low"],
  ["taylor", "First-order estimate of the loss change without the channel, from gradients"],
  ["hessian", "Second-order estimate of the loss change without the channel"],
  ["activation", "Size of the activations of a channel on the batches, times the weights that read them"],
  ["expert_usage", "What each expert adds to the output on the batches"],
  ["sensitivity", "Measured loss increase on the batches without the channel"]
]);
export const COMPARE = "Compare";
export const COMPARE_TITLE = "Where a ratio ranks channels against each other";
export const WITHIN_GROUPS = "within each group";
export const ACROSS_MODEL = "across the model";
export const UNDO = "Undo";
export const REDO = "Redo";
export const SEARCH = "Search";
export const FIND = "Find channel groups";
export const FIND_TITLE = "Search group names, tensor names and block paths";
export const RATIO = "Ratio";
export const RATIO_TITLE = "Share of channels to remove, least important first";
export const RATIO_SLIDER = "Ratio of channels to remove";
export const RATIO_FIELD = "Ratio as a number";
export const NO_SCORES = "Importance scores are not available yet.";
export const waitingFor = (task: string) => `Waiting for the kernel to ${task}…`;
export const TASKS = {
  mask: "mask the model",
  cut: "cut the model",
  undo: "undo",
  save: "save the plan",
  load: "load the plan",
  recalibrate: "recalibrate the model",
  evaluate: "evaluate the model"
};

// sizes

export const SIZES = "Size before and after";
export const forInput = (first: string, others: number) =>
  ` for an input of ${first}${others ? ` ${more(others)}` : ""}`;
export const removed = (what: string) => `${what} removed`;
export const NONE_SELECTED = "No channels selected";
export const NO_MORE_SELECTED = "No more channels selected";

// check, mask, cut, undo and the plan file

export const MODEL = "Model";
export const FILE = "File";
export const CHECK = "Dry run";
export const CHECK_TITLE = "Test the selection without changing the model";
export const MASK = "Mask";
export const MASK_TITLE = "Set the selected channels to zero; shapes are unchanged";
export const CUT = "Cut";
export const CUT_OPENS = "Cut…";
export const CUT_TITLE = "Remove the selected channels from the model; asks first";
export const UNDO_CUT = "Undo cut";
export const UNDO_MASK = "Undo mask";
export const RESTORE_MODEL = "Restore the model";
export const restoreLast = (count: number) => `Undo the last of ${count} operations`;
export const SAVE = "Save";
export const SAVE_TITLE = "Save the plan to the file";
export const LOAD = "Load";
export const LOAD_TITLE = "Load the plan from the file";
export const PLAN_FILE = "Plan file";
export const PLAN_FILE_TITLE = "Save or load a plan file";
export const CANCEL = "Cancel";
export const askForCut = (what: string) => `Cut ${what}?`;
export const CUT_IN_PLACE = "The model is changed in place. “Undo cut” restores it.";
export const CUT_RECALIBRATES = "Running statistics are then recomputed from the batches.";
export const SIZES_CHECKED = "Sizes from the dry run.";
export const SIZES_ESTIMATED = "Estimated sizes. The dry run before the cut may correct them.";

// the dry run

export const DRY_RUN = "Dry run";
export const DRY_RUN_DETAILS = "Dry run details";
export const SELECT_CHANNELS = "No channels selected. Click, drag, or use a slider.";
export const SELECT_MORE = "Model cut. Select more channels, or undo the cut.";
export const UNTRIED = "Not tested yet. A dry run tests the selection without changing the model.";
export const OUTDATED = "Outdated";
export const CHECKING = "Dry run…";
export const FULL_ERROR = "Full error";
export const SHOW_GROUP = "Show the channel group";
export const DRY_RUN_FAILED = "Dry run failed.";
export const corrections = (count: number) => counted(count, "correction");
export const dryRunPassed = (count: number) => `Dry run passed${count ? ` with ${corrections(count)}` : ""}.`;

// recalibration and evaluation

export const TRIAL = "Recalibration and evaluation";
export const STATES: Readonly<Record<string, string>> = {
  uncut: "uncut",
  masked: "masked",
  cut: "cut",
  recalibrated: "recalibrated",
  later: "trained since"
};
export const RECALIBRATE = "Recalibrate";
export const RECALIBRATE_TITLE = "Recompute the running statistics of the cut model from the batches";
export const RECALIBRATE_AFTER = "Recalibrate after cut";
export const RECALIBRATE_AFTER_TITLE = "Recompute running statistics from the batches after each cut";
export const EVALUATE = "Evaluate";
export const EVALUATE_TITLE = "Call the function passed as evaluate=";
export const NO_STATISTICS = "no running statistics";
export const NO_STATISTICS_TITLE =
  "The model keeps no running statistics (as BatchNorm does), so there is nothing to recalibrate";

// the loss per ratio

export const LOSS = "Loss after removal";
export const ALL_FLOPS = "100 % of FLOPs left";
export const LOSS_SCALE = "loss increase, square-root scale";
export const LOSS_CURVE = "Ratio on the curve of loss against FLOPs left";
export const SUM = "sum of single channels";
export const place = (ratio: string, share: string) => `ratio ${ratio}: ${share} of FLOPs left`;
export const atRatio = (increase: string, ratio: string) => `${increase} at ratio ${ratio}`;
export const measuredLoss = (increase: string) => `measured loss ${increase}`;
export const summed = (increase: string) => `${SUM} ${increase}`;
export const WHAT_TO_PASS = "Pass batches= and loss= to MaskEditor to see the loss at each ratio.";
export const NOT_COMPUTED = "Loss per ratio not computed yet for this model.";
export const SENSE_TITLE = "Measure the loss without each channel in turn";
export const SENSE_AND_MEASURE_TITLE = "Measure the loss without each channel in turn, then at several ratios";
export const MEASURE_TITLE = "Measure the loss at several ratios of the current ranking";
export const COMPUTE = "Compute";
export const MEASURE = "Measure";
export const UPDATE = "Update";
export const SENSE_PROGRESS = "Sensitivity: channels measured";
export const sensed = (done: number, total: number | null) =>
  `Sensitivity: ${exactNumber(done)} ${total ? `of ${exactNumber(total)}` : "done"}`;
export const atShare = (share: string) => `at ${share} of FLOPs`;
export const lossMeasured = (from: string, to: string) => `Measured: loss ${from} → ${to}`;
export const lossSummed = (change: string) => `Sum: loss ${change}`;
export const NOT_MEASURED = "loss not measured yet";
export const NOT_WHILE_MASKED = " Not measured while the model is masked.";
export const NOT_WITH_BLOCKS = " Not measured with removed blocks.";
const TOGETHER = "removing them together usually costs more";
export const summedOn = (data: string, why: string) => `Sum of single channels on ${data}; ${TOGETHER}.${why}`;
export const measuredOn = (data: string, isFaint: boolean) =>
  `On ${data}, removed channels set to zero. ${isFaint ? "Faint line" : "Line"}: ${SUM}; ${TOGETHER}.`;

// the legend

export const LEGEND = "Legend";
export const UNIT = "1 square = 1 channel";
export const LOW = "low";
export const HIGH = "high importance";
export const KEPT = "kept";
export const REMOVED = "removed";
export const UNSCORED = "no score";
export const KEPT_BY_DRY_RUN = "kept by the dry run";
export const REMOVED_BY_DRY_RUN = "removed by the dry run";
export const OUTDATED_MARK = "gray: outdated";
export const RANGE_MARK = "range for the space key";
export const CURSOR_MARK = "keyboard cursor";
export const LOCKED_MARK = "pale: locked";
export const SCALE_PER_ROW = "one scale per row";
export const SCALE_PER_ROW_TITLE = "1st to 99th percentile of the row's scores";
export const ONE_SCALE = "one scale for all rows";
export const ONE_SCALE_TITLE = "1st to 99th percentile of all scores, each divided by its row's mean";
export const RAW_SCALE_TITLE = "1st to 99th percentile of all scores";
export const clamped = (how: string) => `${how}; values beyond have the color of the end`;
export const PREVIOUS_SCORES = "previous scores";
export const untilSensed = (isRunning: boolean) => ` until the sensitivity is ${isRunning ? "ready" : "computed"}`;
export const sensitivityState = (isRunning: boolean) => (isRunning ? " in progress" : " not computed");
export const onBatches = (data: string) => ` on ${data}`;
export const FROM_GRADIENTS = " from the current gradients";

// the rows of channel groups

export const PRUNABLE = "Prunable channel groups (axes)";
export const FIXED = "Fixed channel groups";
export const fixed = (count: number) => `${exactNumber(count)} fixed:`;
export const moreReasons = (count: number) => `, ${counted(count, "more reason")}`;
export const NO_MATCH = "No channel group matches this search.";
export const NO_GROUPS = "This model has no channel groups.";
export const TENSORS = "Tensors";
export const ofGroup = (what: string, name: string) => `${what} of ${name}`;
export const role = (name: string) => `Role: ${name}`;
export const keptOf = (kept: number, all: number) => `${exactNumber(kept)} of ${exactNumber(all)} kept`;
export const removedOf = (count: number, all: number) => `${exactNumber(count)} of ${exactNumber(all)} removed`;
export const SIZE_TITLE = "channels";
export const UNLOCK_TITLE = "Unlock: allow changes to this group";
export const LOCK_TITLE = "Lock: prevent changes to this group";
export const lock = (name: string) => `Lock ${name}`;
export const SLIDER_TITLE = "Channels to remove, least important first";
export const slider = (name: string) => `Channels to remove of ${name}`;
export const lossChange = (increase: string) => `loss ${increase}`;
export const perChannel = (increase: string) => `${increase} per channel`;
export const costTitle = (single: string) => `Estimated loss increase: ${single} on average for a single channel`;
export const costOfRemoved = (count: number, all: string, each: string, single: string) =>
  `Estimated loss increase: ${all} for ${channels(count)} removed (${each} each); ${TOGETHER}. Single channel: ${single} on average`;
export const KEYS =
  "Arrow keys move between channels. Space keeps or removes. Shift with arrows selects a range. Home and End jump to the ends.";

// the squares of a channel group

export const squares = (name: string) => `Channels of ${name}`;
export const channelOf = (channel: number, all: number) => `channel ${channel} of ${all}`;
export const importance = (score: string) => `importance ${score}`;
export const lossWithout = (increase: string) => `loss ${increase} without it`;
export const removedFirst = (name: string, block: string) =>
  `${name} is ${removedWith(block)}. Restore ${block} first.`;
export const isLocked = (name: string) => `${name} is locked. Unlock it first.`;

// the blocks

export const BLOCKS = "Blocks";
export const BLOCK = "Block";
export const BLOCK_PARAMETERS_TITLE = "Parameters removed with the block";
export const BLOCK_FLOPS_TITLE = "FLOPs in a forward pass";
export const BLOCK_SCORE_TITLE = "Importance of the block; low scores cost little to remove";
export const STATUS = "Status";
export const STATUS_TITLE = "Keep or remove";
export const KEEP = "Keep";
export const REMOVE = "Remove";
export const away = (block: string) => `Removed with ${block}`;
export const restoreFirst = (block: string) => `${away(block)}. Restore ${block} first.`;
export const remove = (block: string, score = "") => `Remove ${block}${score && `; ${score}`}`;
export const restore = (block: string) => `Restore ${block}`;
export const NESTED = "Nested blocks";
export const blocksIn = (block: string) => `Blocks in ${block}`;
export const UNKNOWN = "unknown";
export const blockSummary = (nested: number, removing: number) =>
  `can be removed as a whole${nested ? `, ${exactNumber(nested)} nested` : ""}${removing ? `; ${exactNumber(removing)} removed` : ""}`;
