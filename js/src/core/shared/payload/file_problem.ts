// Errors of files that cannot be shown, each with a message of one sentence.

/** Texts that the host may translate: bundles of JupyterLab are of this kind. */
export interface Translations {
  /** The text, with %1, %2… replaced by the values. */
  __(text: string, ...values: (string | number)[]): string;
}

export const UNTRANSLATED: Translations = {
  __: (text, ...values) => text.replace(/%(\d)/g, (whole, at: string) => String(values[Number(at) - 1] ?? whole))
};

export const MAX_FILE_SIZE = 64 * 2 ** 20; // characters
export const MAX_DEPTH = 64; // lists and objects within each other
export const MAX_PARTS = 2_000_000; // lists and objects, each of which takes many times its text in memory

type SavedReason = "empty" | "large" | "nested" | "parts" | "cut" | "json" | "unknown" | "version" | "damaged";
type ModelReason =
  "truncated" | "malformed" | "excess" | "format" | "elsewhere" | "missing" | "unreadable" | InsteadReason;
type InsteadReason = "pointer" | "page" | "text" | "packed" | "unfinished" | "package" | "shards";
type Reason = SavedReason | ModelReason;

/** Why a file is not shown. */
export class FileProblem extends Error {
  override name = "FileProblem";

  constructor(
    readonly reason: Reason,
    readonly part = ""
  ) {
    super(reason);
  }
}

/** One sentence for whoever opened the file. */
export function problemMessage({ reason, part }: FileProblem, words: Translations): string {
  switch (reason) {
    case "empty":
      return words.__("This file is empty.");
    case "large":
      return words.__("This file is not opened: it is larger than %1 MB.", MAX_FILE_SIZE / 2 ** 20);
    case "nested":
      return words.__("This file is not opened: its lists are nested deeper than any that this package writes.");
    case "parts":
      return words.__("This file is not opened: it has more than %1 million lists and objects.", MAX_PARTS / 1e6);
    case "cut":
      return words.__("This file ends in the middle: it was not saved or copied to its end.");
    case "json":
      return words.__("This file is no JSON: save the graph or the plan again.");
    case "unknown":
      return words.__("This file is neither a graph nor a plan: save one with graph.export(path) or plan.save(path).");
    case "version":
      return words.__("This file was saved by another version of modulekg-widgets: save it again with this one.");
    case "truncated":
      return words.__("This file is cut off: it was not saved or copied to its end. Download or copy it again.");
    case "pointer":
      return words.__("This file is a pointer of Git LFS and not the file itself: run git lfs pull in its folder.");
    case "page":
      return words.__("This file is a web page and not a model: download it again, signed in if need be.");
    case "text":
      return words.__("This file is a text and not a model (%1): download it again, signed in if need be.", part);
    case "packed":
      return words.__("This file is compressed, or an archive of tar: unpack it, and open the file that is in it.");
    case "unfinished":
      return words.__("This file is empty at its beginning: its download has not been finished. Download it again.");
    case "package":
      return words.__(
        "This file is an archive of torch.package, which holds a model with its code: load it in Python, if you trust it."
      );
    case "shards":
      return words.__(
        "This file is a shard of a distributed checkpoint: open its folder with mk.open_file(folder) in Python."
      );
    case "malformed":
      return words.__("This file is malformed (%1): make it or copy it again.", part || "?");
    case "excess":
      return words.__("This file is not opened: it has more than this page reads of any model (%1).", part || "?");
    case "format":
      return words.__("This file is of no format that is known here: neither its name nor its first bytes tell it.");
    case "elsewhere":
      return words.__(
        "This file names %1, which is no file of its folder: it may lead anywhere, so it is not opened.",
        part
      );
    case "missing":
      return words.__("This file needs %1 beside it: put it into the same folder.", part || "?");
    case "unreadable":
      return words.__("This file cannot be read (%1): reload it, or look into the server's log.", part || "?");
    default:
      return words.__("This file is damaged (%1): save the graph or the plan again.", part || "?");
  }
}
