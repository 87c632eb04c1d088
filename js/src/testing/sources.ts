// Files in memory, as the readers of model files get them.

import { FileProblem } from "../core/shared/payload/file_problem";
import type { FileSource } from "../core/files/bytes/records";

/** A file, and by name those of its folder; `reads` counts its requests. */
export class MemorySource implements FileSource {
  reads = 0;
  bytes = 0;

  constructor(
    readonly name: string,
    private readonly content: Uint8Array,
    private readonly folder: ReadonlyMap<string, Uint8Array> = new Map()
  ) {}

  get size(): number {
    return this.content.length;
  }

  async read(offset: number, length: number): Promise<Uint8Array> {
    this.reads += 1;
    this.bytes += length;
    if (!(offset >= 0 && length >= 0 && offset + length <= this.size)) throw new FileProblem("truncated");
    return this.content.slice(offset, offset + length);
  }

  async beside(name: string): Promise<FileSource> {
    const found = this.folder.get(name);
    if (found === undefined) throw new FileProblem("missing", name);
    return new MemorySource(name, found, this.folder);
  }
}
