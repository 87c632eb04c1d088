// The records that every reader makes of a model file, as modulekg_widgets/engine/files/records.py has them.

export type Plain = string | number | boolean | null;

/** A tensor in a file: its shape in the order of torch, and what it takes there. */
export interface TensorRecord {
  readonly name: string;
  readonly shape: readonly number[];
  readonly dtype: string; // torch's word without its prefix, or the format's own for one that torch has not
  readonly nbytes: number;
  readonly offset: number | null; // of its first byte in `file`; null where its bytes do not stand there as they are
  readonly file: string; // a name in the same folder; "" is the file that was opened
  readonly strides: readonly number[] | null; // in elements; null for a contiguous tensor
  readonly role: "parameter" | "buffer" | "constant" | null; // null where the format does not tell
}

/** A module that a file names: its dotted path ("" is the root's), and its class, "" where the format does not tell. */
export interface ModulePart {
  readonly path: string;
  readonly className: string;
  readonly settings: Readonly<Record<string, Plain>>;
}

/** An operator; an input that is one of the file's tensors has its name. In the order in which they run. */
export interface OperatorRecord {
  readonly name: string;
  readonly op: string;
  readonly module: string; // the dotted path of the module that it runs in
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  readonly attributes: Readonly<Record<string, Plain>>;
  readonly source: string;
}

export interface ValueRecord {
  readonly shape: readonly (number | string)[] | null; // text for a size that is not fixed
  readonly dtype: string;
}

export interface OperatorGraph {
  readonly operators: readonly OperatorRecord[];
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  readonly values: ReadonlyMap<string, ValueRecord>;
}

export interface FileContents {
  readonly format: string;
  readonly title: string;
  readonly metadata: Readonly<Record<string, Plain>>;
  readonly tensors: readonly TensorRecord[];
  readonly modules: readonly ModulePart[];
  readonly graph: OperatorGraph | null;
  readonly classes: readonly string[]; // that whoever loads the file would import
  readonly warnings: readonly string[];
}

/** A file to read in parts, and those beside it. */
export interface FileSource {
  readonly name: string;
  readonly size: number;
  /** Exactly these bytes; rejects with a FileProblem where there are not as many. */
  read(offset: number, length: number): Promise<Uint8Array>;
  /** A file of the same folder; rejects where there is none. */
  beside(name: string): Promise<FileSource>;
}

export type Reader = (source: FileSource) => Promise<FileContents>;
