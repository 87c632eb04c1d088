// MaskEditor: the draft lives in the model, so that all views edit the same; a view binds its state to the traits.

import { DOMWidgetModel, DOMWidgetView, unpack_models } from "@jupyter-widgets/base";
import { bytesOf } from "../core/masks/bits";
import { createMaskEditor, type MaskEditor } from "../core/masks/editor";
import { GraphLink, type LinkedGraph } from "../core/masks/graph_link";
import { Session } from "../core/masks/session";
import { type EditorState, EditorStore } from "../core/masks/state";
import { Connection, modelDefaults, TraitWriter } from "./_base";

/** A copy: what is saved or sent does not change under the hands of whoever does it. */
const copied = {
  serialize: (value: unknown): unknown => {
    const bytes = bytesOf(value);
    return bytes ? new DataView(bytes.buffer) : value;
  }
};

export class MaskEditorModel extends DOMWidgetModel {
  static override serializers: typeof DOMWidgetModel.serializers = {
    ...DOMWidgetModel.serializers,
    graphs: { deserialize: unpack_models },
    dropped: copied,
    scores: copied
  };

  // set in initialize(), which the base class calls before field initializers would run
  declare session: Session;
  declare link: GraphLink;

  override defaults(): ReturnType<DOMWidgetModel["defaults"]> {
    return {
      ...super.defaults(),
      ...modelDefaults("MaskEditor"),
      payload: {},
      dropped: new DataView(new ArrayBuffer(0)),
      scores: new DataView(new ArrayBuffer(0)),
      importance: "",
      scope: "local",
      locked: [],
      axis: null,
      selected: null,
      stage: "",
      operations: 0,
      report: {},
      revision: 0,
      path: "plan.modulekg.json",
      graphs: []
    };
  }

  override initialize(...options: Parameters<DOMWidgetModel["initialize"]>): void {
    super.initialize(...options);
    const isLive = () => this.comm_live;
    this.session = new Session({
      get isLive() {
        return isLive();
      },
      send: (content, buffers, taken) =>
        this.send(content as never, { iopub: { status: (message: unknown) => whenIdle(message, taken) } }, buffers)
    });
    this.link = new GraphLink(() => this.session.data);
    this.reload();
    this.session.setReport(this.get("report"));
    this.session.setLocked(texts(this.get("locked")));
    // the bits may come with the payload, after it or not at all: then the draft is as it was
    this.on("change:payload", () => this.reload(this.hasChanged("dropped") ? this.get("dropped") : null));
    this.on("change:dropped", () => {
      if (!this.hasChanged("payload")) this.reload();
    });
    this.on("change:scores", () => {
      if (!this.hasChanged("payload")) this.session.setScores(this.get("scores"));
    });
    this.on("change:report", () => this.session.setReport(this.get("report")));
    this.on("change:revision", () => this.session.setRevision(this.get("revision")));
    this.on("change:locked", () => this.session.setLocked(texts(this.get("locked"))));
    this.on("change:graphs", () => this.link.follow(this.graphs()));
    // state messages are applied one after the other, later than they come: what follows them waits for them
    this.on("msg:custom", (content: unknown, buffers: unknown) => {
      void Promise.resolve(this.state_change).then(() => this.session.receive(content, buffers));
    });
    this.on("comm_live_update", () => {
      if (this.comm_live) this.session.revive();
    });
    this.on("destroy", () => {
      this.link.dispose();
      this.session.dispose();
    });
  }

  /** What a saved notebook keeps: the draft as it stands. */
  override get_state(drop_defaults?: boolean): ReturnType<DOMWidgetModel["get_state"]> {
    const state = super.get_state(drop_defaults);
    const { data } = this.session;
    return data ? ({ ...state, dropped: new DataView(data.draft.bits.slice().buffer) } as never) : state;
  }

  private reload(dropped: unknown = this.get("dropped")): void {
    this.session.load(this.get("payload"), dropped, this.get("scores"), this.get("revision"));
    this.link.follow(this.graphs());
  }

  private graphs(): LinkedGraph[] {
    const graphs: unknown = this.get("graphs");
    return Array.isArray(graphs) ? graphs.filter(graph => typeof (graph as LinkedGraph)?.set_state === "function") : [];
  }
}

function whenIdle(message: unknown, act?: () => void): void {
  const { content } = message as { content?: { execution_state?: unknown } };
  if (content?.execution_state === "idle") act?.();
}

type Key = Exclude<keyof EditorState, "query" | "connected">;

interface Binding<K extends Key = Key> {
  readonly key: K;
  readonly delay: number | null; // ms until the kernel hears of it; null: only the kernel sets it
  readonly isValid: (value: unknown) => boolean;
}

const isText = (value: unknown): value is string => typeof value === "string";
const isTextOrNull = (value: unknown): boolean => value === null || isText(value);
const texts = (value: unknown): string[] => (Array.isArray(value) ? value.filter(isText) : []);
const oneOf =
  <T extends string>(...choices: readonly T[]) =>
  (value: unknown): boolean =>
    choices.includes(value as T);

// the traits have the names of the keys
const BINDINGS: readonly Binding[] = [
  { key: "importance", delay: 60, isValid: isText },
  { key: "scope", delay: 60, isValid: oneOf("local", "global") },
  { key: "locked", delay: 60, isValid: value => Array.isArray(value) && value.every(isText) },
  { key: "axis", delay: 20, isValid: isTextOrNull },
  { key: "path", delay: 0, isValid: isText },
  { key: "selected", delay: null, isValid: isTextOrNull },
  { key: "stage", delay: null, isValid: oneOf("", "masked", "cut") },
  { key: "operations", delay: null, isValid: Number.isInteger }
];

export class MaskEditorView extends DOMWidgetView {
  private store?: EditorStore;
  private editor?: MaskEditor;
  private connection?: Connection;
  private writer?: TraitWriter;
  private disposers: (() => void)[] = [];
  private fromKernel = false;

  private get session(): Session {
    return (this.model as MaskEditorModel).session;
  }

  override render(): void {
    super.render();
    const store = new EditorStore(this.traits());
    this.store = store;
    this.writer = new TraitWriter(this, () => this.connection?.connected ?? false);
    this.connection = new Connection(this.model, connected => this.followKernel(connected));
    store.set("connected", this.connection.connected);
    this.el.dataset.mkgId = this.model.model_id;
    this.bindTraits(store);
    // the canvases need the size that they have on the page
    void this.displayed.then(() => this.mount());
  }

  override remove(): void {
    this.writer?.dispose();
    this.connection?.dispose();
    this.editor?.dispose();
    this.disposers.forEach(dispose => dispose());
    this.disposers = [];
    this.store = undefined;
    super.remove();
  }

  private followKernel(connected: boolean): void {
    if (!connected) this.session.abandon();
    this.store?.set("connected", connected);
  }

  private bindTraits(store: EditorStore): void {
    for (const binding of BINDINGS) {
      const { key, delay } = binding;
      if (delay !== null)
        this.disposers.push(
          store.on(key, () => {
            if (!this.fromKernel) this.writer?.write(key, store.get(key), delay);
          })
        );
      this.listenTo(this.model, `change:${key}`, () => this.receive(binding));
    }
  }

  /** The traits as the editor's state; anything of the wrong kind is left out. */
  private traits(): Partial<EditorState> {
    const valid = BINDINGS.filter(({ key, isValid }) => isValid(this.model.get(key)));
    return Object.fromEntries(valid.map(({ key }) => [key, this.model.get(key)]));
  }

  private receive({ key, isValid }: Binding): void {
    const value: unknown = this.model.get(key);
    if (!this.store || !isValid(value)) return;
    this.quietly(() => {
      this.writer?.forget(key);
      this.store?.set(key, value as EditorState[Key]);
    });
  }

  /** Every change that follows from the kernel's is part of it: none is sent back. */
  private quietly(act: () => void): void {
    this.fromKernel = true;
    try {
      act();
    } finally {
      this.fromKernel = false;
    }
  }

  private mount(): void {
    const { store } = this;
    if (!store) return; // closed before it was shown
    this.quietly(() => {
      this.editor = createMaskEditor(this.el, this.session, store);
    });
  }
}
