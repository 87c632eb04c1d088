// The models and views of a saved page: made from its list of widgets by a registry of kinds.

import type { SavedBuffer, SavedPage, SavedWidget } from "../core/export/html";
import { type DOMWidgetView, type Manager, type Serializers, WidgetModel } from "./base";

type ModelClass = (new (...args: ConstructorParameters<typeof WidgetModel>) => WidgetModel) & {
  serializers: Serializers;
};
type ViewClass = new (options: { model: WidgetModel; options?: object }) => DOMWidgetView;

/** Classes by name: `<kind>Model` and `<kind>View`. */
export type Kinds = Readonly<Record<string, unknown>>;

export class Page implements Manager {
  readonly kernel = null;
  private readonly saved = new Map<string, SavedWidget>();
  private readonly models = new Map<string, Promise<WidgetModel>>();

  constructor(
    private readonly page: SavedPage,
    private readonly kinds: Kinds
  ) {
    for (const widget of page.widgets) this.saved.set(widget.id, widget);
  }

  /** Show the page's views in `host`, and join what is linked. */
  async mount(host: HTMLElement): Promise<void> {
    for (const id of this.page.views) {
      const view = await this.create_view(await this.get_model(id));
      host.append(view.el);
      view.trigger("displayed");
    }
    await Promise.all(this.page.widgets.map(({ id }) => this.get_model(id)));
  }

  get_model(id: string): Promise<WidgetModel> {
    const known = this.models.get(id) ?? this.make(id);
    this.models.set(id, known);
    return known;
  }

  async create_view(model: WidgetModel, options?: object): Promise<DOMWidgetView> {
    const View = this.find<ViewClass>(String(model.get("_view_name")));
    const view = new View({ model, options });
    model.views[`view-${Object.keys(model.views).length}`] = Promise.resolve(view);
    await view.render();
    return view;
  }

  answer(model: WidgetModel, question: Record<string, unknown>, buffers: readonly unknown[]): void {
    const answers = this.saved.get(model.model_id)?.answers ?? [];
    const fits = (wanted: object) => Object.entries(wanted).every(([key, value]) => question[key] === value);
    const found = answers.find(answer => fits(answer.question));
    if (!found) return;
    // later, as it would come from a kernel
    const given = found.buffers?.map(decoded) ?? buffers;
    setTimeout(() => model.trigger("msg:custom", { ...question, ...found.content }, given), 0);
  }

  private async make(id: string): Promise<WidgetModel> {
    const widget = this.saved.get(id);
    if (!widget) throw new Error("a widget is missing");
    const Model = this.find<ModelClass>(`${widget.kind}Model`);
    const state = restored(widget.state, widget.buffers);
    for (const [name, { deserialize }] of Object.entries(Model.serializers)) {
      if (deserialize && name in state) state[name] = await deserialize(state[name], this);
    }
    const model = new Model(state, { model_id: id, widget_manager: this });
    for (const { content, buffers } of widget.messages ?? []) {
      model.trigger("msg:custom", content, (buffers ?? []).map(decoded));
    }
    return model;
  }

  private find<T>(name: string): T {
    const found = new Map(Object.entries(this.kinds)).get(name);
    if (typeof found !== "function") throw new Error("a widget of an unknown kind");
    return found as T;
  }
}

/** The state with its binary values, each at its path, as the views get them from a kernel. */
function restored(state: Record<string, unknown>, buffers: readonly SavedBuffer[] = []): Record<string, unknown> {
  const whole = { ...state };
  for (const { path, data } of buffers) {
    let place = whole as Record<string | number, unknown>;
    for (const step of path.slice(0, -1)) place = place[step] as typeof place;
    place[path[path.length - 1]] = decoded(data);
  }
  return whole;
}

function decoded(base64: string): DataView {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at += 1) bytes[at] = text.charCodeAt(at);
  return new DataView(bytes.buffer);
}
