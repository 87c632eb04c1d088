// ForwardPlayer: the player's state bound to the traits; pictures and answers are shared by all views of a model.

import { DOMWidgetModel, DOMWidgetView } from "@jupyter-widgets/base";
import { MapsFeed } from "../core/forward/maps_feed";
import { createForwardPlayer, type ForwardPlayer } from "../core/forward/player";
import { FoundOut } from "../core/forward/quiz";
import { type ForwardState, ForwardStore } from "../core/forward/state";
import { Connection, modelDefaults, TraitWriter } from "./_base";

export class ForwardPlayerModel extends DOMWidgetModel {
  // set in initialize(), which the base class calls before field initializers would run
  declare feed: MapsFeed;
  declare found: FoundOut;
  declare shownBy: ForwardPlayerView[];

  override defaults(): ReturnType<DOMWidgetModel["defaults"]> {
    return {
      ...super.defaults(),
      ...modelDefaults("ForwardPlayer"),
      payload: {},
      step: 0,
      selected: null,
      playing: false,
      speed: 2,
      hide_shapes: false,
      sample: 0,
      page: 0,
      quiz: { asked: 0, right: 0 }
    };
  }

  override initialize(...options: Parameters<DOMWidgetModel["initialize"]>): void {
    super.initialize(...options);
    const isLive = () => this.comm_live;
    this.shownBy = [];
    this.found = new FoundOut();
    this.feed = new MapsFeed({
      get isLive() {
        return isLive();
      },
      send: content => this.send(content, {})
    });
    this.on("msg:custom", (content: unknown, buffers: unknown) => this.feed.receive(content, buffers));
    this.on("comm_live_update", () => {
      if (this.comm_live) this.feed.revive();
    });
  }
}

type Key = Exclude<keyof ForwardState, "large" | "connected">;

interface Binding<K extends Key = Key> {
  readonly key: K;
  readonly trait: string;
  readonly isValid: (value: unknown) => boolean;
}

const DELAY = 60; // ms until the kernel hears of a change; what goes together goes in one message
const isCount = (value: unknown): boolean => Number.isInteger(value) && (value as number) >= 0;
const isFlag = (value: unknown): boolean => typeof value === "boolean";

function isQuiz(value: unknown): boolean {
  const counts = value as Partial<ForwardState["quiz"]> | null;
  return typeof counts === "object" && isCount(counts?.asked) && isCount(counts?.right);
}

const BINDINGS: readonly Binding[] = [
  { key: "step", trait: "step", isValid: isCount },
  { key: "selected", trait: "selected", isValid: value => value === null || typeof value === "string" },
  { key: "playing", trait: "playing", isValid: isFlag },
  { key: "speed", trait: "speed", isValid: value => typeof value === "number" && value > 0 },
  { key: "hideShapes", trait: "hide_shapes", isValid: isFlag },
  { key: "sample", trait: "sample", isValid: isCount },
  { key: "page", trait: "page", isValid: isCount },
  { key: "quiz", trait: "quiz", isValid: isQuiz }
];

export class ForwardPlayerView extends DOMWidgetView {
  private store?: ForwardStore;
  private player?: ForwardPlayer;
  private connection?: Connection;
  private writer?: TraitWriter;
  private disposers: (() => void)[] = [];
  private isQuiet = false;
  private incoming?: Key;
  private shownPayload?: unknown;

  private get shared(): ForwardPlayerModel {
    return this.model as unknown as ForwardPlayerModel;
  }

  override render(): void {
    super.render();
    const store = new ForwardStore(this.traits());
    this.store = store;
    this.writer = new TraitWriter(this, () => this.connection?.connected ?? false);
    this.connection = new Connection(this.model, connected => store.set("connected", connected));
    store.set("connected", this.connection.connected);
    if (!this.connection.connected) store.set("playing", false); // a saved widget does nothing on its own
    this.el.dataset.mkgId = this.model.model_id;
    this.shared.shownBy.push(this);
    this.bindTraits(store);
    void this.displayed.then(() => this.mount());
  }

  override remove(): void {
    const { shownBy } = this.shared;
    const at = shownBy.indexOf(this);
    if (at >= 0) shownBy.splice(at, 1);
    this.writer?.dispose();
    this.connection?.dispose();
    this.player?.dispose();
    this.disposers.forEach(dispose => dispose());
    this.disposers = [];
    this.store = undefined;
    super.remove();
  }

  private bindTraits(store: ForwardStore): void {
    for (const binding of BINDINGS) {
      const { key, trait } = binding;
      this.disposers.push(
        store.on(key, () => {
          // what follows from a change of the model is news to it: it may come from another widget of the page
          if (!this.isQuiet && this.incoming !== key) this.writer?.write(trait, store.get(key), DELAY);
        })
      );
      this.listenTo(this.model, `change:${trait}`, () => this.receive(binding));
    }
    this.listenTo(this.model, "change:payload", () => this.rebuild());
  }

  /** The traits as the player's state; anything of the wrong kind is left out. */
  private traits(): Partial<ForwardState> {
    const valid = BINDINGS.filter(({ trait, isValid }) => isValid(this.model.get(trait)));
    return Object.fromEntries(valid.map(({ key, trait }) => [key, this.model.get(trait)]));
  }

  private receive({ key, trait, isValid }: Binding): void {
    const value: unknown = this.model.get(trait);
    const { store } = this;
    if (!store || !isValid(value)) return;
    if (this.player && this.shownPayload !== this.model.get("payload")) {
      this.rebuild(); // takes all traits, which belong to other steps than those that are shown
      return;
    }
    this.writer?.forget(trait);
    this.incoming = key;
    store.set(key, value as ForwardState[Key]);
    this.incoming = undefined;
  }

  private mount(): void {
    const { store } = this;
    if (!store) return; // closed before it was shown
    const { feed, found } = this.shared;
    const mayTick = () => this.shared.shownBy[0] === this;
    this.shownPayload = this.model.get("payload");
    this.isQuiet = true;
    this.player = createForwardPlayer(this.el, this.shownPayload, store, { feed, found, mayTick });
    this.isQuiet = false;
  }

  /** Another run. */
  private rebuild(): void {
    const { store } = this;
    if (!this.player || !store || this.shownPayload === this.model.get("payload")) return;
    this.player.dispose();
    this.isQuiet = true;
    for (const { trait } of BINDINGS) this.writer?.forget(trait);
    for (const [key, value] of Object.entries(this.traits())) store.set(key as Key, value);
    this.isQuiet = false;
    this.mount();
  }
}
