// The widget MaskEditor: the draft lives in the model, so that all views edit the same; a view binds its state to the traits.

import { DOMWidgetModel } from "@jupyter-widgets/base";
import { bytesOf } from "../core/masks/draft/bit_table";
import { createMaskEditor, type MaskEditor } from "../core/masks/editor";
import { GraphLink, type LinkedGraph, linkedModels } from "./linked_models";
import { Session } from "../core/masks/session/session";
import { type EditorState, EditorStore } from "../core/masks/session/editor_context";
import { isObject } from "../core/shared/base/schema";
import {
  channelOf,
  modelDefaults,
  otherModels,
  areTexts,
  type Binding,
  BoundView,
  isCount,
  isFlag,
  isText,
  isTextOrNull,
  oneOf
} from "./base";

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
    graphs: otherModels,
    draft: { serialize: (value: unknown): unknown => value }, // it has bytes, which are nobody else's
    scores: copied,
    increases: copied
  };

  // set in initialize(), which the base class calls before field initializers would run
  declare session: Session;
  declare link: GraphLink;

  override defaults(): ReturnType<DOMWidgetModel["defaults"]> {
    return {
      ...super.defaults(),
      ...modelDefaults("MaskEditor"),
      outdated: "",
      progress: "",
      payload: {},
      draft: {},
      scores: new DataView(new ArrayBuffer(0)),
      increases: new DataView(new ArrayBuffer(0)),
      comparable: false,
      offers: {},
      sensing: {},
      trial: {},
      measured: {},
      recalibrating: false,
      importance: "",
      scope: "local",
      locked: [],
      axis: null,
      selected: null,
      stage: "",
      operations: 0,
      uncut: {},
      report: {},
      path: "plan.modulekg.json",
      graphs: []
    };
  }

  override initialize(...options: Parameters<DOMWidgetModel["initialize"]>): void {
    super.initialize(...options);
    const sendDraft = (drawing: unknown) => {
      this.set({ draft: drawing });
      this.save_changes();
    };
    this.session = new Session(Object.assign(channelOf(this), { sendDraft }));
    this.link = new GraphLink(
      () => this.session.data,
      () => counts(this.get("uncut"))
    );
    this.readCosts();
    this.session.setMeasured(this.get("measured"));
    this.reload();
    this.session.setReport(this.get("report"));
    this.session.setLocked(texts(this.get("locked")));
    // the draft may come with the payload, after it or not at all: then it is as it was
    this.on("change:payload", () => this.reload(this.hasChanged("draft") ? this.get("draft") : null));
    this.on("change:draft", () => {
      if (this.hasChanged("payload")) return;
      // what is set while the kernel's value is being set would be sent twice
      if (this.session.setDraft(this.get("draft"))) void Promise.resolve().then(() => this.session.settle());
    });
    for (const trait of ["scores", "comparable"])
      this.on(`change:${trait}`, () => {
        if (!this.hasChanged("payload")) this.session.setScores(this.get("scores"), this.isComparable);
      });
    this.on("change:increases", () => {
      if (!this.hasChanged("payload")) this.session.setIncreases(this.get("increases"));
    });
    for (const trait of ["offers", "sensing", "trial"]) this.on(`change:${trait}`, () => this.readCosts());
    this.on("change:measured", () => this.session.setMeasured(this.get("measured")));
    this.on("change:report", () => this.session.setReport(this.get("report")));
    this.on("change:locked", () => this.session.setLocked(texts(this.get("locked"))));
    this.on("change:graphs change:uncut", () => this.link.follow(this.graphs()));
    // state messages are applied one after the other, later than they come: what follows them waits for them
    this.on("msg:custom", (content: unknown) => {
      void Promise.resolve(this.state_change).then(() => this.session.receive(content));
    });
    this.on("comm_live_update", () => this.session.settle());
    this.on("destroy", () => {
      this.link.dispose();
      this.session.dispose();
    });
  }

  /** What a saved notebook keeps: the draft as it stands. */
  override get_state(drop_defaults?: boolean): ReturnType<DOMWidgetModel["get_state"]> {
    const state = super.get_state(drop_defaults);
    const draft = this.session.drawing();
    return draft ? ({ ...state, draft } as never) : state;
  }

  private get isComparable(): boolean {
    return this.get("comparable") === true;
  }

  private readCosts(): void {
    this.session.setCosts(this.get("offers"), this.get("sensing"), this.get("trial"));
  }

  private reload(drawn: unknown = this.get("draft")): void {
    const { revision } = (drawn ?? {}) as { revision?: unknown };
    // a notebook that an earlier version has saved has all bits in a trait of their own
    const own = drawn !== null && revision === undefined ? this.get("dropped") : drawn;
    this.session.load(this.get("payload"), own, this.get("scores"), revision, this.isComparable);
    this.session.setIncreases(this.get("increases"));
    this.link.follow(this.graphs());
  }

  private graphs(): LinkedGraph[] {
    return linkedModels<LinkedGraph>(this.get("graphs"), "set_state");
  }
}

/** Of whatever a saved notebook has: the entries that are numbers; above 2^53 they travel as text. */
function counts(value: unknown): Map<string, number> {
  const entries = isObject(value) ? Object.entries(value).map(([path, count]) => [path, Number(count)] as const) : [];
  return new Map(entries.filter(([, count]) => Number.isFinite(count) && count > 0));
}

const texts = (value: unknown): string[] => (Array.isArray(value) ? value.filter(isText) : []);

const BINDINGS: readonly Binding<EditorState>[] = [
  { key: "importance", trait: "importance", delay: 60, isValid: isText },
  { key: "scope", trait: "scope", delay: 60, isValid: oneOf("local", "global") },
  { key: "locked", trait: "locked", delay: 60, isValid: areTexts },
  { key: "axis", trait: "axis", delay: 20, isValid: isTextOrNull },
  { key: "recalibrating", trait: "recalibrating", delay: 0, isValid: isFlag },
  { key: "path", trait: "path", delay: 0, isValid: isText },
  { key: "selected", trait: "selected", delay: 20, isValid: isTextOrNull },
  { key: "stage", trait: "stage", delay: null, isValid: oneOf("", "masked", "cut") },
  { key: "operations", trait: "operations", delay: null, isValid: isCount }
];

export class MaskEditorView extends BoundView<EditorState, MaskEditor> {
  protected readonly bindings = BINDINGS;

  protected createStore(initial: Partial<EditorState>): EditorStore {
    return new EditorStore(initial);
  }

  protected create(store: EditorStore): MaskEditor {
    return createMaskEditor(this.el, this.session, store);
  }

  protected override followKernel(connected: boolean): void {
    if (!connected) this.session.abandon();
    super.followKernel(connected);
  }

  /** The session follows the payload itself. */
  protected override rebuild(): void {}

  private get session(): Session {
    return (this.model as MaskEditorModel).session;
  }
}
