// The base of every widget: its connection to the kernel, and the state of a view bound to the traits of its model.

import { DOMWidgetView, DOMWidgetModel, unpack_models } from "@jupyter-widgets/base";
import { liveViews } from "../core/shared/ui/saved_picture";
import { OutdatedNotice } from "../core/shared/ui/widget_frame";
import type { StateStore } from "../core/shared/base/state_store";
import "../../style/graph.css";
import "../../style/panels.css";
import { offerTab } from "../core/shared/ui/window_buttons";
import { MODULE, VERSION } from "../generated/version";

/** Defaults that make a model of ours; nothing else happens on creation. */
export function modelDefaults(name: string): Record<string, unknown> {
  return {
    _model_name: `${name}Model`,
    _model_module: MODULE,
    _model_module_version: VERSION,
    _view_name: `${name}View`,
    _view_module: MODULE,
    _view_module_version: VERSION
  };
}

/** Serializer of traits that name other models; one that a saved notebook lacks is no reason to show nothing. */
export const otherModels: { deserialize: typeof unpack_models } = {
  deserialize: (value, manager) => Promise.resolve(unpack_models(value, manager)).catch(() => null)
};

/** The kernel as the data of a model ask it; `taken` is called once it is done with what was sent. */
export function channelOf(model: DOMWidgetModel) {
  return {
    get isLive() {
      return model.comm_live;
    },
    send: (content: object, taken?: () => void): unknown =>
      model.send(content as never, { iopub: { status: (message: unknown) => whenIdle(message, taken) } })
  };
}

/** Data that the kernel sends beside the traits. */
interface Feed {
  receive(content: unknown, buffers: unknown): void;
  revive(): void;
}

/** Gives a feed the messages of a model, and tells it when the kernel answers again. */
export function connectFeed(model: DOMWidgetModel, feed: Feed): void {
  model.on("msg:custom", (content: unknown, buffers: unknown) => feed.receive(content, buffers));
  model.on("comm_live_update", () => {
    if (model.comm_live) feed.revive();
  });
}

function whenIdle(message: unknown, act?: () => void): void {
  const { content } = message as { content?: { execution_state?: unknown } };
  if (content?.execution_state === "idle") act?.();
}

const MAX_TITLE_LENGTH = 60; // characters

/** What a tab of the host would show: the same live model once more. */
export function offerViewInTab({ model, el }: DOMWidgetView): void {
  const kind = String(model.get("_model_name")).replace(/Model$/, "");
  const { title } = (model.get("payload") ?? {}) as { title?: unknown };
  const name = typeof title === "string" && title !== "" ? `${kind}: ${title}` : kind;
  offerTab(el, { title: name.slice(0, MAX_TITLE_LENGTH), createView: () => model.widget_manager.create_view(model) });
}

interface SignalLike<T> {
  connect(slot: (sender: unknown, args: T) => void): boolean;
  disconnect(slot: (sender: unknown, args: T) => void): boolean;
}

/** The part of a kernel connection that is used. */
interface KernelLike {
  readonly isDisposed: boolean;
  readonly status: string;
  readonly connectionStatus: string;
  readonly statusChanged: SignalLike<string>;
  readonly connectionStatusChanged: SignalLike<string>;
  readonly disposed: SignalLike<void>;
}

// After one of these the kernel knows our comm no more, even when it is back.
const LOST = ["restarting", "autorestarting", "terminating", "dead"];

/** Tells whether the model's kernel answers. */
export class Connection {
  private readonly kernel: KernelLike | null;
  private lost = false;

  constructor(
    private readonly model: DOMWidgetModel,
    private readonly changed: (connected: boolean) => void
  ) {
    this.kernel = kernelOf(model);
    this.kernel?.statusChanged.connect(this.onStatus);
    this.kernel?.connectionStatusChanged.connect(this.onConnection);
    this.kernel?.disposed.connect(this.onGone);
    model.on("comm_live_update", this.onConnection);
    this.lost = this.kernel !== null && LOST.includes(this.kernel.status);
  }

  get connected(): boolean {
    const { kernel } = this;
    const reachable = !kernel || (!kernel.isDisposed && kernel.connectionStatus === "connected");
    return this.model.comm_live && reachable && !this.lost;
  }

  /** Whether it runs a cell, or answers. */
  get busy(): boolean {
    return this.connected && this.kernel?.status === "busy";
  }

  dispose(): void {
    this.kernel?.statusChanged.disconnect(this.onStatus);
    this.kernel?.connectionStatusChanged.disconnect(this.onConnection);
    this.kernel?.disposed.disconnect(this.onGone);
    this.model.off("comm_live_update", this.onConnection);
  }

  private readonly onStatus = (_: unknown, status: string): void => {
    this.lost ||= LOST.includes(status);
    this.changed(this.connected);
  };

  private readonly onConnection = (): void => this.changed(this.connected);

  private readonly onGone = (): void => {
    this.lost = true;
    this.changed(false);
  };
}

/** Only the managers of live front ends have a kernel; a static page has none. */
function kernelOf(model: DOMWidgetModel): KernelLike | null {
  const manager = model.widget_manager as unknown as { kernel?: KernelLike | null } | undefined;
  return manager?.kernel ?? null;
}

/** Browser → kernel writes: collected, sent once after `delay`, never while there is no kernel. */
export class TraitWriter {
  private readonly waiting = new Map<string, unknown>();
  private timer?: ReturnType<typeof setTimeout>;
  private due = Infinity;

  constructor(
    private readonly view: DOMWidgetView,
    private readonly isConnected: () => boolean
  ) {}

  write(trait: string, value: unknown, delay: number): void {
    this.waiting.set(trait, value);
    const due = performance.now() + delay;
    if (this.timer === undefined || due < this.due) {
      clearTimeout(this.timer);
      this.due = due;
      this.timer = setTimeout(() => this.flush(), delay);
    }
  }

  /** A value that the kernel has set since is not overwritten by an older one of ours. */
  forget(trait: string): void {
    this.waiting.delete(trait);
  }

  dispose(): void {
    this.flush();
  }

  private flush(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
    this.due = Infinity;
    if (this.waiting.size === 0) {
      return;
    }
    this.view.model.set(Object.fromEntries(this.waiting));
    this.waiting.clear();
    if (this.isConnected()) {
      this.view.touch();
    }
  }
}

// A view whose state is bound to the traits of its model, key by key.

export interface Binding<State> {
  readonly key: keyof State & string;
  readonly trait: string;
  readonly delay: number | null; // ms until the kernel hears of it; null: the page never sets it
  readonly isValid: (value: unknown) => boolean;
  readonly read?: (value: unknown) => unknown; // of a valid value what is taken
}

export const isText = (value: unknown): value is string => typeof value === "string";
export const isTextOrNull = (value: unknown): boolean => value === null || isText(value);
export const areTexts = (value: unknown): boolean => Array.isArray(value) && value.every(isText);
export const isFlag = (value: unknown): boolean => typeof value === "boolean";
export const isCount = (value: unknown): boolean => Number.isInteger(value) && (value as number) >= 0;
export const oneOf =
  (...choices: readonly string[]) =>
  (value: unknown): boolean =>
    choices.includes(value as string);

interface Part {
  dispose(): void;
}

const PICTURES_WITHIN = 5000; // ms

export abstract class BoundView<State extends { connected: boolean }, Shown extends Part = Part> extends DOMWidgetView {
  protected store?: StateStore<State>;
  protected shown?: Shown;
  protected writer?: TraitWriter;
  protected connection?: Connection;
  private disposers: (() => void)[] = [];
  protected incoming?: keyof State; // it is set as the model has it, and alone is no news
  private isQuiet = false;
  private readonly notice = new OutdatedNotice(kind => this.model.send({ kind }, {}));

  protected abstract readonly bindings: readonly Binding<State>[];
  protected abstract createStore(initial: Partial<State>): StateStore<State>;
  /** What is shown, once the view has its place on the page: canvases need their size. */
  protected abstract create(store: StateStore<State>): Shown;

  override render(): void {
    super.render();
    const store = this.createStore(this.traits());
    this.store = store;
    this.writer = new TraitWriter(this, () => this.connection?.connected ?? false);
    this.connection = new Connection(this.model, connected => this.followKernel(connected));
    this.followKernel(this.connection.connected);
    this.el.dataset.mkgId = this.model.model_id;
    this.bindTraits(store);
    this.listenTo(this.model, "change:payload", () => this.rebuild());
    for (const trait of ["outdated", "progress"])
      this.listenTo(this.model, `change:${trait}`, () => this.followOutdated());
    liveViews.add(this);
    offerViewInTab(this);
    void this.displayed.then(() => this.mount());
  }

  override remove(): void {
    liveViews.delete(this);
    this.writer?.dispose();
    this.connection?.dispose();
    this.shown?.dispose();
    this.shown = undefined; // ipywidgets may keep the view
    this.disposers.forEach(dispose => dispose());
    this.disposers = [];
    this.store = undefined;
    super.remove();
  }

  renewPictures(): Promise<boolean> {
    const { model } = this;
    if (!this.connection?.connected || this.connection.busy) return Promise.resolve(false);
    return new Promise(resolve => {
      const end = (isRenewed: boolean) => {
        clearTimeout(timer);
        model.off("msg:custom", hear);
        resolve(isRenewed);
      };
      const hear = (content: unknown) => {
        const { kind, renewed } = (content ?? {}) as { kind?: unknown; renewed?: unknown };
        if (kind === "pictures") end(renewed === true);
      };
      const timer = setTimeout(end, PICTURES_WITHIN, false);
      model.on("msg:custom", hear);
      model.send({ kind: "pictures" }, {});
    });
  }

  protected followKernel(connected: boolean): void {
    this.store?.set("connected", connected as State["connected"]);
    this.followOutdated();
  }

  /** Above what is shown stands whether its model has changed since; a file can neither be refreshed nor runs anything. */
  private followOutdated(): void {
    const [outdated, progress] = ["outdated", "progress"].map(name => {
      const text: unknown = this.model.get(name);
      return isText(text) ? text : "";
    });
    const isConnected = this.connection?.connected ?? false;
    if (!this.shown) return;
    this.notice.show(this.el, this.model.comm_live ? outdated : "", isConnected ? progress : "", isConnected);
  }

  protected mount(): void {
    const { store } = this;
    if (!store) return; // closed before it was shown
    this.quietly(() => {
      this.shown = this.create(store);
    });
    this.followOutdated();
  }

  /** The payload is another one. */
  protected rebuild(): void {
    if (!this.shown) return;
    this.shown.dispose();
    this.mount();
  }

  /** The traits as state; anything of the wrong kind is left out. */
  protected traits(): Partial<State> {
    const read = this.bindings.map(binding => [binding.key, this.value(binding)] as const);
    return Object.fromEntries(read.filter(([, value]) => value !== undefined)) as Partial<State>;
  }

  /** Undefined where the trait is of the wrong kind. */
  protected value({ trait, isValid, read }: Binding<State>): unknown {
    const value: unknown = this.model.get(trait);
    return isValid(value) ? (read ? read(value) : value) : undefined;
  }

  protected receive(binding: Binding<State>): void {
    const value = this.value(binding);
    if (value === undefined) return;
    this.quietly(() => {
      this.writer?.forget(binding.trait);
      this.store?.set(binding.key, value as State[keyof State]);
    });
  }

  /** Every change that follows from the kernel's is part of it: none is sent back. */
  protected quietly(act: () => void): void {
    this.isQuiet = true;
    try {
      act();
    } finally {
      this.isQuiet = false;
    }
  }

  /** What the kernel hears of a key. */
  protected outgoing(key: keyof State): unknown {
    return this.store?.get(key);
  }

  protected isNews(key: keyof State): boolean {
    return !this.isQuiet && key !== this.incoming && !this.isOwn(key);
  }

  /** Whether the page alone has set what a key has now, so that no kernel has to hear of it. */
  protected isOwn(_key: keyof State): boolean {
    return false;
  }

  private bindTraits(store: StateStore<State>): void {
    for (const binding of this.bindings) {
      const { key, trait, delay } = binding;
      if (delay !== null) {
        const write = () => {
          if (this.isNews(key)) this.writer?.write(trait, this.outgoing(key), delay);
        };
        this.disposers.push(store.on(key, write));
      }
      this.listenTo(this.model, `change:${trait}`, () => this.receive(binding));
    }
  }
}
