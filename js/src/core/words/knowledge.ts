// Texts of the knowledge explorer.

import { counted, exactNumber } from "./numbers";

export { COPIED, FIT, NOT_COPIED, ZOOM } from "./shared";

// counts and kinds of things

export const KINDS = {
  module: "structure",
  model: "model",
  family: "model family",
  superfamily: "family group",
  community: "community",
  type: "type"
};
export const structures = (count: number) => counted(count, "structure");
export const models = (count: number) => counted(count, "model");
export const families = (count: number) => counted(count, "family", "families");
export const uses = (count: number) => counted(count, "use");
export const steps = (count: number) => counted(count, "step");
export const parameters = (count: string) => `${count} parameters`;
export const more = (count: number) => `${exactNumber(count)} more`;
export const usesIn = (used: string, within: string) => `${used} in ${within}`;
export const outOf = (part: string, all: string) => `${part} of ${all}`;
export const select = (kind: string) => `Select this ${kind}`;
export const FAMILY = "family";

// columns and facts

export const NAME = "Name";
export const VALUE = "Value";
export const SETTINGS = "Settings";
export const USES = "Uses";
export const MODELS = "Models";
export const PARAMETERS = "Parameters";
export const MEMORY = "Memory";
export const MODULES = "Modules";
export const STRUCTURES = "Structures";
export const FAMILIES = "Families";
export const FAMILY_LABEL = "Family";
export const COMMUNITY = "Community";
export const COMMUNITIES = "Communities";
export const TYPE = "Type";
export const TYPES = "Types";
export const CLASS = "Class";
export const ROOT = "Root";
export const MOSTLY_IN = "Mostly in";
export const MOST_USED = "Most used";
export const BEST_ACCURACY = "Best accuracy";
export const DIFFER_IN = "Differ in";
export const JOB = "Job";
export const USER = "User";
export const DATA_SET = "Data set";
export const MODEL = "Model";
export const ACCURACY = "Accuracy";
export const RESULTS = "Results";
export const STEPS_TO_CONVERGE = "Steps to converge";
export const STARTED = "Started";
export const MATCHES = "Matches";
export const MATCHES_TITLE = "Matching structures inside";
export const USES_THERE = "Uses in matches";
export const USES_THERE_TITLE = "Occurrences in the matching models";
export const USES_TITLE = "Occurrences in all models";
export const MODELS_TITLE = "Models that contain it";
export const sortBy = (column: string) => `Sort by ${column}`;
export const MEASURES = new Map([
  ["pagerank", "High if many structures contain it"],
  ["in_degree", "Structures that contain it directly"],
  ["closeness", "Closeness to the structures that contain it"]
]);

// the toolbar and the views

export const VIEWS = {
  graph: "Graph",
  scatter: "Scatter",
  ranking: "Ranking",
  communities: COMMUNITIES,
  types: TYPES,
  overlap: "Overlap",
  frequency: "Rank–frequency",
  jobs: "Training"
};
export const TOOLBAR = "View, color and search";
export const VIEW = "View";
export const COLOR = "Color";
export const CLASS_TYPE = "class type";
export const GROUP_BY = "Group by";
export const GROUPS = { families: "families", communities: "communities" };
export const SEARCH = {
  placeholder: "Search: text, class:Conv2d, params > 1M",
  help:
    "Text finds names, classes and settings.\nclass:Conv2d finds a class; model:resnet18, family:ResNet and community:3 find their structures.\n" +
    "params > 1M, uses >= 10, models > 5 compare numbers.\nAll terms must match.",
  label: "Search models and structures"
};
export const matches = (count: number) => counted(count, "match", "matches");
export const NOT_DRAWN = "The graph could not be drawn.";
export const circles = (shown: number, limit: number) =>
  `${exactNumber(shown)} of at most ${exactNumber(limit)} circles`;
export const ANALYSIS = { running: ", analysis running", failed: ", analysis failed", done: "" };
export const COLLAPSE_OTHERS = "Collapse others";
export const GROUP_TOO_LARGE = "This group alone exceeds the limit.";
export const overLimit = (limit: number) => `More than ${exactNumber(limit)} circles.`;
export const notShown = (what: string) => `${what} not shown.`;
export const SEARCH_INSIDE = "Search inside";
export const DISMISS = "Dismiss";

// tooltips and empty views

export const TO_COLLAPSE = "double-click to collapse";
export const TO_EXPAND = "double-click to expand";
export const TO_SEARCH = "click to search inside";
export const CLASS_ROW = "class";
export const USES_ROW = "uses";
export const MODELS_ROW = "models";
export const PARAMETERS_ROW = "parameters";
export const STRUCTURES_ROW = "structures";
export const FAMILIES_ROW = "families";
export const MODULES_ROW = "modules";
export const ADVICE = {
  models: {
    said: "The graph has no models yet. Add one (kg is the graph, explorer this widget):",
    code: 'import torchvision\nkg.add_model(torchvision.models.resnet18(), name="resnet18")\nexplorer.refresh()'
  },
  others: {
    said: "The graph has one model, so there is nothing to compare. Add another:",
    code: 'import torchvision\nkg.add_model(torchvision.models.resnet50(), name="resnet50")\nexplorer.refresh()'
  },
  results: {
    said: "No model has two numbers to compare. Add results, for example those of timm:",
    code: 'kg.add_results(mk.published_results("timm"))\nexplorer.refresh()'
  },
  jobs: {
    said: "No training runs yet. Add one as a job of a model in the graph:",
    code:
      'kg.add_user("me")\nkg.add_dataset("my data")\n' +
      'kg.add_job(user="me", dataset="my data", model="resnet18", accuracy=0.91)\nexplorer.refresh()'
  }
};
export const COPY_CODE = "Copy code";
export const analyzing = (what: string) => `Analyzing ${what}… Graph and Scatter already show the models.`;
export const notAnalyzed = (what: string) => `${what} could not be analyzed. See the kernel log.`;

// searches

export const nameMissing = (kind: string) => `Enter a name after “${kind}:”, for example class:Conv2d.`;
export const unknownNumber = (name: string, known: string) => `Unknown number “${name}”. Known: ${known}.`;
export const numberMissing = (term: string, name: string) =>
  `Enter a number after “${term}”, for example ${name} > 1M.`;
export const noMatch = (term: string) => `Nothing matches “${term}”`;
export const notTogether = (count: number) => `Nothing matches all ${count} terms`;
export const matching = (what: string) => `${what} found`;
export const CLEAR = "Clear search";
export const CLEAR_BY_KEY = "Escape in the search field also clears it.";
export const NO_RESULTS = ["No results for “", "”."];
export const ELSEWHERE = ["Results for “", "” are not in this view."];
export const FOUND = "Results";
export const moreFound = (count: number) => `and ${exactNumber(count)} more. Narrow the search.`;
export const WITH_MATCHES = ", with matching structures";
export const ofSource = (source: string) => `, from ${source}`;
export const withStructuresOf = (source: string) => `, with structures of ${source}`;

// the map, its tree and its legend

export const MAP = "Graph of all models. The tree offers the same by keyboard.";
export const TREE = "Communities and families";
export const MODEL_FAMILIES = "Model families";
export const SMALL_COMMUNITIES = "Small communities";
export const communities = (count: number) => `${count} communities`;
export const OTHER_MODELS = "Other models";
export const otherModels = (count: number) => `${count} models`;
export const LEGEND = "Legend";
export const CLASSES = [
  "convolutions",
  "normalizations",
  "linear layers",
  "attention",
  "activations",
  "pooling",
  "no weights"
];
export const CONTAINERS = "containers";
export const OTHERS = "others";
export const smaller = (count: number) => `${count} smaller`;
export const importance = (measure: string) => `importance (${measure})`;
export const UNKNOWN = "unknown";
export const SHAPES = {
  circle: KINDS.community,
  square: "family, model",
  stack: KINDS.type,
  ring: "container",
  dot: "module"
};
export const LOG_NOTE = "log scale; groups show their highest member";

// the overlap of models

export const SHOW_NAMES = "Show all names";
export const MATRIX = "Overlap of models: arrow keys move, Enter selects the row's model";
export const NO_OVERLAP = "no overlap";
export const IDENTICAL = "identical";
export const JACCARD = "overlap (Jaccard)";
export const SHARED_ROW = "shared structures";
export const shared = (what: string) => `${what} shared`;
export const nearestTo = (model: string, others: string) => `${model} and ${others} with most overlap`;

// uses by rank

export const FREQUENCY = "Uses by rank: arrow keys move, Enter selects";
export const SCALE = "Scale";
export const RANK_ROW = "rank";
export const atRank = (rank: number, name: string, used: number) => `rank ${exactNumber(rank)}: ${name}, ${uses(used)}`;
export const marked = (what: string) => `${what} marked`;
export const LOG_LOG = "Log–log";
export const LINEAR = "Linear";
export const COMPARED_WITH = "Compared with";
export const LIKELIHOOD_RATIO = "Log-likelihood ratio";

// scatter

export const Y_AXIS = "Y axis";
export const X_AXIS = "X axis";
export const BEST = "Best trade-offs";
export const BEST_LABEL = "Models that no other model beats in both values";
export const onFront = (shown: string, best: number) => `${shown}, ${exactNumber(best)} on the front`;
export const points = (count: number) => `${exactNumber(count)} points of `;
export const incomplete = (count: number) => `${exactNumber(count)} without both values`;
export const found = (count: number) => `${exactNumber(count)} found`;
export const IMAGE_SIZE = "image size";
export const DIRECTION_TITLE = "Which direction is better";
export const LOG_TITLE = "Log scale";
export const LOG = "log";
export const LOWER = "lower is better";
export const HIGHER = "higher is better";

// the comparison of two models

export const PICKER = "Models, largest overlap first";
export const PICKER_FIELD = "Model name";
export const PICKER_LABEL = "Model to compare with";
export const NO_MODEL = "No other model has this name.";
export const NARROW = "Type to narrow the list.";
export const COMPARE = "Compare with…";
export const COMPARE_ANOTHER = "Compare with another…";
export const COMPARE_TITLE = "Compare this model with another";
export const BACK = "Back to the comparison";
export const AND = " and ";
export const OF = " of ";
export const IN_COMMON = "In common with ";
export const overlap = (value: string) => `overlap ${value} (Jaccard). `;
export const SHARED = "Shared";
export const COMPARISON = "Comparison";
export const IN_BOTH = "In both";
export const onlyIn = (model: string) => `Only in ${model}`;
export const ONLY_IN = " Only in ";
export const SAME_STRUCTURES = "Both use the same structures.";
export const SAME_BUT_COUNTS = "Both use the same structures, in different numbers or order";
export const counts = (one: number, other: number) => ` ×${exactNumber(one)} and ×${exactNumber(other)}`;
export const NOTHING_SHARED = "No shared structures.";
export const FEW_SHARED = "The shared structures have almost no parameters: ";
export const ALL_OF = "All of ";
export const IS_IN = " is in ";
export const MAINLY_SHARED = "Mainly shared: ";
export const ofParameters = (share: string) => ` (${share} of the parameters of `;
export const andMore = (count: number) => ` and ${more(count)}`;

// the side panel

export const SELECTION = "Selection";
export const NO_SELECTION = "Click a circle, a row or a name for details.";
export const NOT_FOUND = "The graph has no such name.";
export const GRAPH = "Graph";
export const modularity = (count: string, value: string) => `${count}, modularity ${value}`;
export const ofModularity = (value: string) => `, modularity ${value}`;
export const atLevel = (count: number, level: number) => `${exactNumber(count)} at level ${level}`;
export const FINGERPRINT = "fingerprint";
export const NAME_NOUN = "name";
export const copy = (what: string) => `Copy ${what}`;
export const CONTAINS = "Contains";
export const CONTAINED_IN = "Contained in";
export const USES_BY_LEVEL = "By level";
export const usedAs = (count: number, level: string) => `${exactNumber(count)} as ${level}`;
export const within = (model: string) => `in ${model}`;
export const IS_A = "Is a";
export const DIFFERS = " differs in ";
export const TYPICAL = " typical";
export const DEPTH_FAMILY = "Depth family";
export const IN_MODELS = "In models";
export const IDENTITY = "Identity";
export const STRUCTURES_LATER = "Structures appear after the analysis.";
export const STRUCTURES_UNKNOWN = "Structures unknown.";
export const LARGEST_OVERLAP = "Largest overlap (Jaccard)";
export const MOST_USED_HERE = "Most used here";
export const TRAINING_RUNS = "Training runs";
export const moreRuns = (count: number) => `${count} more in the Training view.`;
export const UNKNOWN_USER = "unknown user";
export const TRAINED = " trained ";
export const A_MODEL = "a model";
export const ON = " on ";
export const converged = (after: string) => `, converged after ${after}`;
export const MOST_SIMILAR = "Most similar";
export const SIMILARITY = "Architecture similarity (1 = identical), ignoring widths.";

// the tables

export const NOUNS: Readonly<Record<string, readonly [one: string, many: string]>> = {
  modules: ["structure", "structures"],
  models: ["model", "models"],
  communities: ["community", "communities"],
  types: ["type", "types"],
  jobs: ["job", "jobs"]
};
export const LEVELS: Readonly<Record<string, string>> = {
  all: "all levels",
  model: "models (roots)",
  stage: "stages",
  block: "blocks",
  op: "operations"
};
export const RANK = "Rank";
export const USED_AS = "Used as";
export const LEVEL = "Level";
export const TYPE_LEVELS = ["1: same class and children", "2: depth families"];
export const DEPTH_NOTE = ", models and blocks that differ in depth only";
