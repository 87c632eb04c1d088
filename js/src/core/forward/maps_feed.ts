// Pictures from the kernel: one question at a time, the latest request wins, and pages that came are kept for a while.

import { type Fields, isArrayOf, isCount, isObject, isString, tuple } from "../shared/schema";
import { isTop, type Num, type Top } from "./payload";

/** Which pictures are wanted. */
export interface MapsRequest {
  readonly run: number;
  readonly step: number;
  readonly sample: number;
  readonly page: number;
}

export type Form = "channels" | "heat" | "strip" | "none";

export interface MapPage {
  readonly form: Form;
  readonly width: number; // of each map, in pixels
  readonly height: number;
  readonly first: number; // channel or value
  readonly total: number;
  readonly sizes: readonly number[]; // of a map before it was averaged
  readonly slice: number | null;
  readonly ranges: readonly (readonly [Num, Num])[];
  readonly top: Top | null;
  readonly item: number;
  readonly pixels: Uint8Array; // map after map; 255 is not finite
}

export type Answer = { readonly page: MapPage } | { readonly error: string };

/** The way to the kernel. */
export interface Channel {
  readonly isLive: boolean;
  send(question: { kind: "maps"; run: number; step: number; sample: number; page: number }): void;
}

const LONGEST_WAIT = 30_000; // ms; then a question is taken as lost
const KEPT = 48; // answers

export class MapsFeed {
  private request: MapsRequest | null = null;
  private asked: MapsRequest | null = null;
  private askedAt = 0;
  private readonly answers = new Map<string, Answer>(); // the last used come last
  private readonly listeners = new Set<() => void>();

  constructor(private readonly channel: Channel) {}

  /** Have these pictures brought, if they are not there. */
  want(request: MapsRequest): void {
    this.request = request;
    const known = this.get(request);
    if (known && "page" in known) return;
    this.answers.delete(keyOf(request)); // what went wrong once may go well now
    this.ask();
  }

  get(request: MapsRequest): Answer | undefined {
    const key = keyOf(request);
    const answer = this.answers.get(key);
    if (answer && this.answers.delete(key)) this.answers.set(key, answer);
    return answer;
  }

  receive(content: unknown, buffers: unknown): void {
    if (!isObject(content) || content.kind !== "maps" || !isMapsRequest(content)) return;
    const answer = readAnswer(content, buffers);
    if (this.asked && keyOf(this.asked) === keyOf(content)) this.asked = null;
    if (answer) this.keep(content, answer);
    this.listeners.forEach(listener => listener());
    if (this.request && !this.get(this.request) && keyOf(this.request) !== keyOf(content)) this.ask();
  }

  /** The kernel answers (again). */
  revive(): void {
    this.asked = null;
    if (this.request && !this.get(this.request)) this.ask();
  }

  onChange(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => void this.listeners.delete(listener);
  }

  private ask(): void {
    const isOpen = this.asked !== null && performance.now() - this.askedAt < LONGEST_WAIT;
    if (isOpen || !this.request || !this.channel.isLive) return;
    this.asked = this.request;
    this.askedAt = performance.now();
    this.channel.send({ kind: "maps", ...this.request });
  }

  private keep(request: MapsRequest, answer: Answer): void {
    this.answers.set(keyOf(request), answer);
    for (const key of this.answers.keys()) {
      if (this.answers.size <= KEPT) break;
      this.answers.delete(key);
    }
  }
}

function keyOf({ run, step, sample, page }: MapsRequest): string {
  return [run, step, sample, page].join();
}

function isMapsRequest(content: Fields): content is Fields & MapsRequest {
  return [content.run, content.step, content.sample, content.page].every(isCount);
}

/** Null for an answer that cannot be read. */
function readAnswer(content: Fields, buffers: unknown): Answer | null {
  if (isString(content.error)) return { error: content.error as string };
  const { maps } = content;
  if (!isObject(maps) || !isPage(maps)) return null;
  const pixels = bytesOf(buffers);
  const { width, height, ranges } = maps as unknown as MapPage;
  if (pixels.length !== width * height * ranges.length) return null;
  return { page: { ...(maps as unknown as MapPage), pixels } };
}

const isNum = (value: unknown) => typeof value === "number" || typeof value === "string";

function isPage(maps: Fields): boolean {
  const counts = [maps.width, maps.height, maps.first, maps.total, maps.item];
  return (
    ["channels", "heat", "strip", "none"].includes(maps.form as string) &&
    counts.every(isCount) &&
    isArrayOf(maps.sizes, isCount) &&
    (maps.slice === null || isCount(maps.slice)) &&
    isArrayOf(maps.ranges, tuple(isNum, isNum)) &&
    (maps.top === null || isTop(maps.top))
  );
}

function bytesOf(buffers: unknown): Uint8Array {
  const buffer: unknown = Array.isArray(buffers) ? buffers[0] : undefined;
  if (buffer instanceof ArrayBuffer) return new Uint8Array(buffer);
  return ArrayBuffer.isView(buffer)
    ? new Uint8Array(buffer.buffer, buffer.byteOffset, buffer.byteLength)
    : new Uint8Array(0);
}
