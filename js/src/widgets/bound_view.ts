// A view whose state is bound to the traits of its model, key by key.

import { DOMWidgetView } from "@jupyter-widgets/base";
import { liveViews } from "../core/shared/ui/saved_picture";
import { OutdatedNotice } from "../core/shared/ui/status";
import type { StateStore } from "../core/shared/base/state_store";
import { Connection, offerViewInTab, TraitWriter } from "./_base";

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
  private readonly notice = new OutdatedNotice(() => this.model.send({ kind: "refresh" }, {}));

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
    this.listenTo(this.model, "change:outdated", () => this.followOutdated());
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

  /** Above what is shown stands whether its model has changed since. */
  private followOutdated(): void {
    const text: unknown = this.model.get("outdated");
    if (this.shown) this.notice.show(this.el, isText(text) ? text : "", this.connection?.connected ?? false);
  }

  protected mount(): void {
    const { store } = this;
    if (!store) return; // closed before it was shown
    this.quietly(() => {
      this.shown = this.create(store);
    });
    this.followOutdated();
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
