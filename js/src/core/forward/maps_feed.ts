// Feature maps requested from the kernel: few requests at a time, the latest first, with a cache of answers.

import {
  arrayOf,
  checked,
  count,
  type Fields,
  is,
  isArrayOf,
  isBoolean,
  isCount,
  isInteger,
  isObject,
  isString,
  list,
  parts,
  PayloadError,
  record,
  relations,
  tuple
} from "../shared/base/schema";
import { isTop, type Num, type Top } from "./payload";
import * as v from "valibot";

// One page of pictures of an output: how it comes from the kernel, checked.

/** Which pictures are wanted. */
export interface MapsRequest {
  readonly run: number;
  readonly step: number;
  readonly sample: number;
  readonly page: number;
}

type Form = "channels" | "heat" | "strip" | "none";

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

type Drawing = Omit<MapPage, "pixels">;

export function keyOf({ run, step, sample, page }: MapsRequest): string {
  return [run, step, sample, page].join();
}

/** How many bytes its pixels are. */
function sizeOf({ width, height, ranges }: Drawing): number {
  return width * height * ranges.length;
}

const isNum = (value: unknown) => typeof value === "number" || typeof value === "string";

function isDrawing(maps: unknown): maps is Drawing & Fields {
  if (!isObject(maps)) return false;
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

function bytesOf(buffer: unknown): Uint8Array {
  if (buffer instanceof ArrayBuffer) return new Uint8Array(buffer);
  return ArrayBuffer.isView(buffer)
    ? new Uint8Array(buffer.buffer, buffer.byteOffset, buffer.byteLength)
    : new Uint8Array(0);
}

// The pictures that come with the steps: what can be shown before the kernel answers any question.

const PICTURES_VERSION = 1;

interface FirstPicture {
  readonly page: MapPage;
  readonly isWhole: boolean; // the kernel has no finer one
}

const PicturesSchema = v.pipe(
  parts({
    schema_version: v.literal(PICTURES_VERSION),
    kind: v.literal("forward_pictures"),
    run: is(isInteger),
    sample: count,
    each: list(record({ steps: arrayOf(isCount), whole: isBoolean, maps: isDrawing })),
    pixels: v.pipe(v.unknown(), v.transform(bytesOf)) // of all, one after the other
  }),
  relations({ pixels: ({ each, pixels }) => each.reduce((sum, { maps }) => sum + sizeOf(maps), 0) === pixels.length })
);

/** The pictures by the requests that they answer; none where there are none that can be read. */
export function readFirstPictures(raw: unknown): Map<string, FirstPicture> {
  const found = new Map<string, FirstPicture>();
  try {
    const { run, sample, each, pixels } = checked(PicturesSchema, raw);
    let at = 0;
    for (const { steps, whole, maps } of each) {
      const picture = { page: { ...maps, pixels: pixels.subarray(at, at + sizeOf(maps)) }, isWhole: whole };
      for (const step of steps) found.set(keyOf({ run, step, sample, page: 0 }), picture);
      at += sizeOf(maps);
    }
  } catch (error) {
    if (!(error instanceof PayloadError)) throw error;
  }
  return found;
}

export type Answer = { readonly page: MapPage } | { readonly error: string };

/** The way to the kernel. */
interface Channel {
  readonly isLive: boolean;
  send(question: { kind: "maps"; run: number; step: number; sample: number; page: number }): void;
}

interface Question {
  readonly key: string;
  readonly at: number; // when it was asked
}

// A kernel that runs cells hears what is asked once it listens beside them, which begins soon after a widget was made:
// a question from before then waits for the end of all cells.
const PATIENCE = 1_000; // ms until another question may follow one that has no answer
const MAX_PENDING = 3;
const MAX_WAIT = 30_000; // ms; then a question is taken as lost
const KEPT = 48; // answers

export class MapsFeed {
  private request: MapsRequest | null = null;
  private open: Question[] = [];
  private timer?: ReturnType<typeof setTimeout>;
  private firstPictures: ReadonlyMap<string, FirstPicture> = new Map();
  private postponed: string | null = null;
  private readonly answers = new Map<string, Answer>(); // the last used come last
  private readonly listeners = new Set<() => void>();

  constructor(private readonly channel: Channel) {}

  /** The pictures that come with the steps. */
  begin(raw: unknown): void {
    this.firstPictures = readFirstPictures(raw);
  }

  /** Have these pictures brought, if they are not there. */
  want(request: MapsRequest): void {
    this.request = request;
    this.postponed = null;
    const known = this.get(request);
    if (known && "page" in known) return;
    this.answers.delete(keyOf(request)); // what went wrong once may go well now
    this.ask();
  }

  /** The pictures as fine as they are to be had. */
  get(request: MapsRequest): Answer | undefined {
    const key = keyOf(request);
    const first = this.firstPictures.get(key);
    if (first?.isWhole) return first;
    const answer = this.answers.get(key);
    if (answer && this.answers.delete(key)) this.answers.set(key, answer);
    return answer;
  }

  /** What there is before these are here: coarse ones, and not of all channels perhaps. */
  coarse(request: MapsRequest): MapPage | undefined {
    return this.firstPictures.get(keyOf(request))?.page;
  }

  /** Whether the kernel has said that the model has to run again for these, once no cell runs. */
  isPostponed(request: MapsRequest): boolean {
    return this.postponed === keyOf(request);
  }

  receive(content: unknown, buffers: unknown): void {
    if (!isObject(content) || content.kind !== "maps" || !isMapsRequest(content)) return;
    const key = keyOf(content);
    const asked = this.open.map(question => question.key).lastIndexOf(key);
    this.open.splice(0, asked + 1); // those before it lie where no one listens, or are answered in any case
    if (content.later === true) this.postponed = key;
    else {
      const answer = readAnswer(content, buffers);
      if (answer) this.keep(key, answer);
      if (this.postponed === key) this.postponed = null;
    }
    this.listeners.forEach(listener => listener());
    if (this.request && !this.get(this.request) && keyOf(this.request) !== key) this.ask();
  }

  /** The kernel answers (again). */
  revive(): void {
    this.open = [];
    if (this.request && !this.get(this.request)) this.ask();
  }

  onChange(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => {
      this.listeners.delete(listener);
      if (!this.listeners.size) clearTimeout(this.timer);
    };
  }

  private ask(): void {
    const { request, channel } = this;
    const now = performance.now();
    this.open = this.open.filter(({ at }) => now - at < MAX_WAIT);
    const last = this.open[this.open.length - 1];
    if (!request || !channel.isLive || this.open.length >= MAX_PENDING || (last && now - last.at < PATIENCE)) return;
    this.open.push({ key: keyOf(request), at: now });
    channel.send({ kind: "maps", ...request });
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.askOnceMore(), PATIENCE);
  }

  private askOnceMore(): void {
    const { request } = this;
    if (request && this.listeners.size && !this.get(request) && !this.isPostponed(request)) this.ask();
  }

  private keep(key: string, answer: Answer): void {
    this.answers.set(key, answer);
    for (const old of this.answers.keys()) {
      if (this.answers.size <= KEPT) break;
      this.answers.delete(old);
    }
  }
}

function isMapsRequest(content: Fields): content is Fields & MapsRequest {
  return [content.run, content.step, content.sample, content.page].every(isCount);
}

/** Null for an answer that cannot be read. */
function readAnswer(content: Fields, buffers: unknown): Answer | null {
  if (isString(content.error)) return { error: content.error as string };
  const { maps } = content;
  if (!isDrawing(maps)) return null;
  const pixels = bytesOf(Array.isArray(buffers) ? buffers[0] : undefined);
  return pixels.length === sizeOf(maps) ? { page: { ...maps, pixels } } : null;
}
