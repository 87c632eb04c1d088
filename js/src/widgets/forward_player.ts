// The widget ForwardPlayer: its state bound to the traits; pictures and answers are shared by all views of a model.

import { DOMWidgetModel } from "@jupyter-widgets/base";
import { MapsFeed } from "../core/forward/maps_feed";
import { createForwardPlayer, type ForwardPlayer } from "../core/forward/player";
import { RevealedShapes } from "../core/forward/quiz";
import { type ForwardState, ForwardStore } from "../core/forward/state";
import { channelOf, connectFeed, modelDefaults, type Binding, BoundView, isCount, isFlag, isTextOrNull } from "./base";

export class ForwardPlayerModel extends DOMWidgetModel {
  // set in initialize(), which the base class calls before field initializers would run
  declare feed: MapsFeed;
  declare found: RevealedShapes;
  declare shownBy: ForwardPlayerView[];

  override defaults(): ReturnType<DOMWidgetModel["defaults"]> {
    return {
      ...super.defaults(),
      ...modelDefaults("ForwardPlayer"),
      outdated: "",
      progress: "",
      payload: {},
      pictures: {},
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
    this.shownBy = [];
    this.found = new RevealedShapes();
    this.feed = new MapsFeed(channelOf(this));
    connectFeed(this, this.feed);
  }
}

const DELAY = 60; // ms until the kernel hears of a change; what goes together goes in one message

function isQuiz(value: unknown): boolean {
  const counts = value as Partial<ForwardState["quiz"]> | null;
  return typeof counts === "object" && isCount(counts?.asked) && isCount(counts?.right);
}

const BINDINGS: readonly Binding<ForwardState>[] = [
  { key: "step", trait: "step", delay: DELAY, isValid: isCount },
  { key: "selected", trait: "selected", delay: DELAY, isValid: isTextOrNull },
  { key: "playing", trait: "playing", delay: DELAY, isValid: isFlag },
  { key: "speed", trait: "speed", delay: DELAY, isValid: value => typeof value === "number" && value > 0 },
  { key: "hideShapes", trait: "hide_shapes", delay: DELAY, isValid: isFlag },
  { key: "sample", trait: "sample", delay: DELAY, isValid: isCount },
  { key: "page", trait: "page", delay: DELAY, isValid: isCount },
  { key: "quiz", trait: "quiz", delay: DELAY, isValid: isQuiz }
];

export class ForwardPlayerView extends BoundView<ForwardState, ForwardPlayer> {
  protected readonly bindings = BINDINGS;
  private shownPayload?: unknown;

  override render(): void {
    super.render();
    // a saved widget does nothing on its own
    if (!this.connection?.connected) this.quietly(() => this.store?.set("playing", false));
    this.shared.shownBy.push(this);
  }

  override remove(): void {
    const { shownBy } = this.shared;
    const at = shownBy.indexOf(this);
    if (at >= 0) shownBy.splice(at, 1);
    super.remove();
  }

  protected override followKernel(connected: boolean): void {
    super.followKernel(connected);
    this.store?.set("busy", this.connection?.busy ?? false);
  }

  protected createStore(initial: Partial<ForwardState>): ForwardStore {
    return new ForwardStore(initial);
  }

  protected create(store: ForwardStore): ForwardPlayer {
    const { feed, found } = this.shared;
    const mayTick = () => this.shared.shownBy[0] === this;
    this.shownPayload = this.model.get("payload");
    feed.begin(this.model.get("pictures"));
    return createForwardPlayer(this.el, this.shownPayload, store, { feed, found, mayTick });
  }

  /** What follows from a change of the model is news to it: the change may come from another widget of the page. */
  protected override receive(binding: Binding<ForwardState>): void {
    const { store } = this;
    const value = this.value(binding);
    if (!store || value === undefined) return;
    if (this.shown && this.shownPayload !== this.model.get("payload")) {
      this.rebuild(); // takes all traits, which belong to other steps than those that are shown
      return;
    }
    this.writer?.forget(binding.trait);
    this.incoming = binding.key;
    store.set(binding.key, value as ForwardState[keyof ForwardState]);
    this.incoming = undefined;
  }

  private get shared(): ForwardPlayerModel {
    return this.model as unknown as ForwardPlayerModel;
  }

  /** Another run. */
  protected override rebuild(): void {
    const { store } = this;
    if (!this.shown || !store || this.shownPayload === this.model.get("payload")) return;
    this.shown.dispose();
    this.quietly(() => {
      for (const { trait } of BINDINGS) this.writer?.forget(trait);
      for (const [key, value] of Object.entries(this.traits())) store.set(key as keyof ForwardState, value);
    });
    this.mount();
  }
}
