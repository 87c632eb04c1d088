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
      return words.__("This file is not opened: its lists are nested too deep.");
    case "parts":
      return words.__("This file is not opened: it has more than %1 million lists and objects.", MAX_PARTS / 1e6);
    case "cut":
      return words.__("This file is incomplete. Save or copy it again.");
    case "json":
      return words.__("This file is not JSON. Save the graph or the plan again.");
    case "unknown":
      return words.__("This file is neither a graph nor a plan. Save one with graph.export(path) or plan.save(path).");
    case "version":
      return words.__("This file was saved by another version of modulekg-widgets. Save it again with this one.");
    case "truncated":
      return words.__("This file is incomplete. Download or copy it again.");
    case "pointer":
      return words.__("This file is a Git LFS pointer. Run git lfs pull in its folder.");
    case "page":
      return words.__("This file is a web page, not a model. Download it again; you may have to sign in.");
    case "text":
      return words.__("This file is text, not a model (%1). Download it again; you may have to sign in.", part);
    case "packed":
      return words.__("This file is compressed or a tar archive. Unpack it and open the file inside.");
    case "unfinished":
      return words.__("The download of this file is incomplete. Download it again.");
    case "package":
      return words.__(
        "This file is a torch.package archive, a model with its code. Load it in Python if you trust its source."
      );
    case "shards":
      return words.__(
        "This file is one shard of a distributed checkpoint. Open its folder with mk.open_file(folder) in Python."
      );
    case "malformed":
      return words.__("This file is malformed (%1). Create or copy it again.", part || "?");
    case "excess":
      return words.__("This file is not opened: it exceeds what this page reads of a model (%1).", part || "?");
    case "format":
      return words.__("Unknown file format: neither the name nor the first bytes identify it.");
    case "elsewhere":
      return words.__("This file refers to %1, which is outside its folder. It is not opened.", part);
    case "missing":
      return words.__("This file needs %1. Put it into the same folder.", part || "?");
    case "unreadable":
      return words.__("This file cannot be read (%1). Reload it, or check the server log.", part || "?");
    default:
      return words.__("This file is damaged (%1). Save the graph or the plan again.", part || "?");
  }
}
