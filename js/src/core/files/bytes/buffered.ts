// Buffered reading of a file for synchronous parsers: many small reads become few requests; skipped bytes are never read.

import { FileProblem } from "../../shared/payload/file_problem";
import { limitExceeded } from "./limits";
import type { FileSource } from "./records";

const MIN_WINDOW_SIZE = 64 * 2 ** 10; // bytes of one request
const MAX_WINDOW_SIZE = 4 * 2 ** 20;
const MAX_BUFFER_SIZE = 96 * 2 ** 20;

/** Bytes that are there at once. */
export interface Bytes {
  /** Those from `offset` on; they are not to be changed. */
  bytes(offset: number, length: number): Uint8Array;
  byte(offset: number): number;
}

/** A part of a file, or of an archive, that has been read. */
export class Whole implements Bytes {
  constructor(private readonly content: Uint8Array) {}

  bytes(offset: number, length: number): Uint8Array {
    if (!(offset >= 0 && length >= 0 && offset + length <= this.content.length)) throw new FileProblem("truncated");
    return this.content.subarray(offset, offset + length);
  }

  byte(offset: number): number {
    return this.content[offset] ?? this.bytes(offset, 1)[0];
  }
}

/** That bytes have to be fetched before a step can be made. */
class NotYet {
  constructor(
    readonly offset: number,
    readonly length: number
  ) {}
}

interface Segment {
  readonly start: number;
  readonly end: number;
  readonly content: Uint8Array;
}

/** The window of a file that has been fetched. It grows ahead of a parser that reads on, and starts anew behind a gap. */
export class Window implements Bytes {
  private segments: Segment[] = [];
  private last: Segment = { start: 0, end: 0, content: new Uint8Array(0) };
  private ahead = MIN_WINDOW_SIZE;

  constructor(private readonly source: FileSource) {}

  bytes(offset: number, length: number): Uint8Array {
    const { start, end, content } = this.last;
    if (offset >= start && length >= 0 && offset + length <= end) {
      return content.subarray(offset - start, offset - start + length);
    }
    return this.readUnbuffered(offset, length);
  }

  byte(offset: number): number {
    return this.last.content[offset - this.last.start] ?? this.readUnbuffered(offset, 1)[0];
  }

  /**
   * What `step` returns. It is called again from its beginning whenever bytes that it wants are not there yet, so it has
   * to change nothing before it has read what it needs; what it has passed for good it tells by `passed`.
   */
  async run<T>(step: () => T): Promise<T> {
    for (;;) {
      try {
        return step();
      } catch (reason) {
        if (!(reason instanceof NotYet)) throw reason;
        await this.fetch(reason);
      }
    }
  }

  /** That nothing before `offset` is read again. */
  passed(offset: number): void {
    if (this.segments.length > 1 && this.segments[0].end <= offset) {
      this.segments = this.segments.filter(segment => segment.end > offset);
    }
  }

  private readUnbuffered(offset: number, length: number): Uint8Array {
    if (!(offset >= 0 && length >= 0 && offset + length <= this.source.size)) throw new FileProblem("truncated");
    const found = this.segments.find(({ start, end }) => offset >= start && offset + length <= end);
    if (found === undefined) throw new NotYet(offset, length);
    return found.content.subarray(offset - found.start, offset - found.start + length);
  }

  private async fetch({ offset, length }: NotYet): Promise<void> {
    const goesOn = offset >= this.last.start && offset <= this.last.end;
    this.ahead = goesOn ? Math.min(2 * this.ahead, MAX_WINDOW_SIZE) : MIN_WINDOW_SIZE;
    const wanted = Math.min(Math.max(length, this.ahead), this.source.size - offset);
    const held = this.segments.reduce((total, segment) => total + segment.content.length, wanted);
    if (held > MAX_BUFFER_SIZE) throw limitExceeded("bytes at once");
    const content = await this.source.read(offset, wanted);
    this.last = { start: offset, end: offset + wanted, content };
    this.segments.push(this.last);
  }
}
