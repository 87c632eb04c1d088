// Widgets whose kernel is reached over a host that knows none of them (`mk.marimo`): their models, views and messages.

import { isObject } from "../core/shared/base/schema";
import type { Callbacks, WidgetModel } from "./base";
import { type Kinds, type ModelClass, Models, showTheme } from "./page";
import "../../style/live_frame.css";

type Attributes = Record<string, unknown>;

/** A widget: its class, and its traits with binary values in their places. */
export interface LiveEntry {
  readonly id: string;
  readonly kind: string;
  state: Attributes;
}

/** The way to the kernel. */
interface Way {
  send(content: object, buffers: readonly DataView[]): void;
  /** The kernel has taken what this page has set. */
  changed(): void;
}

const PATIENCE = 1000; // ms: a kernel that has not answered until then is busy, or not there

export class LivePage extends Models {
  isLive = false;
  private readonly name = String(crypto.getRandomValues(new Uint32Array(2)));
  private readonly entries = new Map<string, LiveEntry>();
  private readonly outbox = new Outbox(this.name, (lot, buffers) => this.way.send(lot, buffers));
  private opened: () => void = () => undefined;

  constructor(
    private readonly root: string,
    entries: readonly LiveEntry[],
    kinds: Kinds,
    private readonly way: Way
  ) {
    super(kinds);
    this.add(entries);
  }

  /** Show the widget as the kernel has it now; where none answers, as it was when its cell ran. */
  async mount(host: HTMLElement): Promise<void> {
    const answer = new Promise<void>(resolve => (this.opened = resolve));
    this.way.send({ kind: "open", page: this.name }, []);
    await Promise.race([answer, new Promise(resolve => setTimeout(resolve, PATIENCE))]);
    await this.show(this.root, host);
    await this.join();
  }

  /** A message of the kernel. */
  hear(content: unknown, given: unknown): void {
    if (!isObject(content)) return;
    const buffers = viewsOf(given);
    if (content.kind === "opened" && content.page === this.name) return this.open(content, buffers);
    if (!this.isLive) return; // what is older than the answer is in it
    if (content.kind === "message") this.apply(content, buffers);
    else if (content.kind === "add") {
      this.add(entriesIn(content, buffers, "added"));
      void this.join();
    } else if (content.kind === "close") this.drop(content.id as string);
    else if (content.kind === "done" && content.page === this.name && this.outbox.done(content.number)) {
      this.way.changed();
    }
  }

  answer(model: WidgetModel, content: Attributes, buffers: readonly unknown[], callbacks?: Callbacks): void {
    if (!this.isLive) return;
    const taken = () => callbacks?.iopub?.status?.({ content: { execution_state: "idle" } });
    this.outbox.custom(model.model_id, content, viewsOf(buffers), taken);
  }

  save(model: WidgetModel, changed: Attributes): void {
    if (!this.isLive) return;
    const { serializers } = model.constructor as ModelClass;
    const values = Object.entries(changed).map(([name, value]) => {
      return [name, serializers[name]?.serialize?.(value) ?? value] as const;
    });
    this.outbox.update(model.model_id, Object.fromEntries(values));
  }

  protected async make(id: string): Promise<WidgetModel> {
    const entry = this.entries.get(id);
    if (!entry) throw new Error("a widget is missing");
    return this.build(entry.kind, id, entry.state);
  }

  /** All that the page was shown before the kernel has answered is what it has changed since. */
  private open(content: Attributes, buffers: DataView[]): void {
    this.add(entriesIn(content, buffers, "added"));
    this.isLive = true;
    for (const { id, state } of entriesIn(content, buffers, "changed")) {
      const entry = this.entries.get(id);
      if (this.models.has(id)) this.set(id, () => state);
      else if (entry) entry.state = { ...entry.state, ...state };
    }
    for (const id of content.gone as string[]) this.drop(id);
    this.opened();
    for (const model of this.models.values()) void model.then(made => made.trigger("comm_live_update"));
  }

  private apply(message: Attributes, buffers: DataView[]): void {
    const { id, data } = message as { id: string; data: Attributes };
    if (!this.entries.has(id)) return;
    if (data.method === "custom") {
      void this.get_model(id).then(model => model.trigger("msg:custom", data.content, buffers));
      return;
    }
    const state = data.state as Attributes;
    putBuffers(state, (data.buffer_paths ?? []) as [], buffers);
    const isEcho = data.method === "echo_update";
    this.set(id, () => (isEcho ? this.outbox.news(id, state, message.page, message.number) : state));
  }

  /** After all that has come for the model before. */
  private set(id: string, state: () => Attributes): void {
    void this.get_model(id).then(model => {
      const set = async () => model.set_state(await this.deserialized(model.constructor as ModelClass, state()));
      model.state_change = model.state_change.then(set).catch(error => console.error("modulekg-widgets", error));
    });
  }

  private add(entries: readonly LiveEntry[]): void {
    for (const entry of entries) this.entries.set(entry.id, entry);
  }

  /** Makes what no view needs: links, and the widgets that others name. */
  private async join(): Promise<void> {
    await Promise.all([...this.entries.keys()].map(id => this.get_model(id)));
  }

  private drop(id: string): void {
    const model = this.models.get(id);
    this.models.delete(id);
    this.entries.delete(id);
    void model?.then(made => made.close());
  }
}

function entriesIn(content: Attributes, buffers: readonly DataView[], part: "added" | "changed"): LiveEntry[] {
  if (Array.isArray(content.paths)) {
    putBuffers(content, content.paths as [], buffers);
    content.paths = null; // once
  }
  return content[part] as LiveEntry[];
}

// The inside of the frame in which js/src/marimo.ts shows widgets: it hears and tells nothing but the page around it.

/** Waits for the widgets, which the page around sends, and shows them in `host`. */
export function startLive(host: HTMLElement, kinds: Kinds): void {
  const tell = (kind: string, more: object = {}) => window.parent.postMessage({ kind, ...more }, "*");
  const way: Way = {
    send: (content, buffers) => tell("send", { content, buffers }),
    changed: () => tell("changed")
  };
  const tellHeight = () => {
    if (!document.fullscreenElement) tell("height", { height: Math.ceil(host.getBoundingClientRect().height) });
  };
  let page: LivePage | undefined;
  document.body.classList.add("mkg-live");
  window.addEventListener("message", event => {
    const data: unknown = event.data;
    if (event.source !== window.parent || !isObject(data)) return;
    if (data.kind === "theme") applyAppearance(data.isDark === true, Number(data.height));
    else if (data.kind === "heard") page?.hear(data.content, viewsOf(data.buffers));
    else if (data.kind === "start" && !page) {
      page = new LivePage(String(data.root), data.states as LiveEntry[], kinds, way);
      page.mount(host).then(tellHeight, error => console.error("modulekg-widgets", error));
    }
  });
  new ResizeObserver(tellHeight).observe(host); // which sleeps while the frame is out of sight
  tell("ready");
}

/** As the page around looks; its height stands for the screen's, for the frame is as high as what is in it. */
function applyAppearance(isDark: boolean, height: number): void {
  showTheme(isDark ? "dark" : "light");
  document.body.style.setProperty("--mkg-screen", `${height}px`);
}

// Messages to a kernel that is reached over a host: in order, one lot at a time, and no more than it takes.

// Binary values apart from the rest of a message, and back in their places.

type Path = readonly (string | number)[];

interface Split {
  readonly state: Record<string, unknown>; // without the binary values
  readonly buffer_paths: readonly Path[];
  readonly buffers: readonly DataView[];
}

function viewOf(value: unknown): DataView | null {
  if (value instanceof ArrayBuffer) return new DataView(value);
  return ArrayBuffer.isView(value) ? new DataView(value.buffer, value.byteOffset, value.byteLength) : null;
}

const viewsOf = (values: unknown): DataView[] =>
  Array.isArray(values) ? values.map(viewOf).filter(view => view !== null) : [];

function withoutBuffers(state: Record<string, unknown>): Split {
  const [paths, buffers]: [Path[], DataView[]] = [[], []];
  const taken = (value: unknown, path: Path): unknown => {
    const view = viewOf(value);
    if (view) {
      paths.push(path);
      buffers.push(view);
      return null;
    }
    if (Array.isArray(value)) return value.map((item, at) => taken(item, [...path, at]));
    if (typeof value !== "object" || value === null) return value;
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, taken(item, [...path, key])]));
  };
  return { state: taken(state, []) as Record<string, unknown>, buffer_paths: paths, buffers };
}

/** Puts each buffer at its path in `state`, which is changed. */
function putBuffers(state: object, paths: readonly Path[], buffers: readonly DataView[]): void {
  for (const [at, path] of paths.entries()) {
    let place = state as Record<string | number, unknown>;
    for (const step of path.slice(0, -1)) place = place[step] as typeof place;
    place[path[path.length - 1]] = buffers[at];
  }
}

/** A message as it travels: the change of a state, or a content of its own; `buffers` counts those that are its. */
interface Sent {
  readonly id: string;
  readonly method: "update" | "custom";
  readonly state?: Record<string, unknown>;
  readonly buffer_paths?: readonly (readonly (string | number)[])[];
  readonly content?: unknown;
  readonly buffers: number;
}

export interface Batch {
  readonly kind: "messages";
  readonly page: string;
  readonly number: number;
  readonly messages: readonly Sent[];
}

interface Waiting {
  readonly id: string;
  state?: Record<string, unknown>;
  readonly content?: unknown;
  readonly buffers?: readonly DataView[];
  readonly taken?: () => void;
}

class Outbox {
  private waiting: Waiting[] = [];
  private underWay: Waiting[] = [];
  private number = 0;
  /** By widget and trait: the lot whose echo is the first that counts again. */
  private readonly expected = new Map<string, number>();

  constructor(
    private readonly page: string,
    private readonly send: (lot: Batch, buffers: readonly DataView[]) => void
  ) {}

  /** What waits anyway goes as one change. */
  update(id: string, state: Record<string, unknown>): void {
    const last = this.waiting[this.waiting.length - 1];
    if (last?.id === id && last.state) last.state = { ...last.state, ...state };
    else this.waiting.push({ id, state });
    this.flush();
  }

  custom(id: string, content: unknown, buffers: readonly DataView[], taken?: () => void): void {
    this.waiting.push({ id, content, buffers, taken });
    this.flush();
  }

  /** The kernel is done with a lot; whether anything in it changed a state. */
  done(number: unknown): boolean {
    if (number !== this.number || this.underWay.length === 0) return false;
    const lot = this.underWay;
    this.underWay = [];
    this.flush();
    for (const { taken } of lot) taken?.();
    return lot.some(({ state }) => state !== undefined);
  }

  /** Of what the kernel has heard from a page, what counts here: an older value is no news to whoever has set a newer one. */
  news(id: string, echo: Record<string, unknown>, page: unknown, number: unknown): Record<string, unknown> {
    const counts = ([name]: [string, unknown]): boolean => {
      const key = keyOf(id, name);
      const expected = this.expected.get(key);
      if (expected === undefined) return true;
      if (page !== this.page || number !== expected) return false;
      this.expected.delete(key);
      return !this.waiting.some(one => one.id === id && one.state && name in one.state);
    };
    return Object.fromEntries(Object.entries(echo).filter(counts));
  }

  private flush(): void {
    if (this.underWay.length || !this.waiting.length) return;
    this.number += 1;
    this.underWay = this.waiting;
    this.waiting = [];
    const buffers: DataView[] = [];
    const messages = this.underWay.map(one => this.packed(one, buffers));
    this.send({ kind: "messages", page: this.page, number: this.number, messages }, buffers);
  }

  private packed({ id, state, content, buffers = [] }: Waiting, all: DataView[]): Sent {
    if (!state) {
      all.push(...buffers);
      return { id, method: "custom", content, buffers: buffers.length };
    }
    for (const name of Object.keys(state)) this.expected.set(keyOf(id, name), this.number);
    const split = withoutBuffers(state);
    all.push(...split.buffers);
    const { buffer_paths } = split;
    return { id, method: "update", state: split.state, buffer_paths, buffers: split.buffers.length };
  }
}

const keyOf = (id: string, name: string): string => `${id} ${name}`;
