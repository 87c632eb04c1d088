// The models and views of a page, made by a registry of kinds.

import type { Callbacks, DOMWidgetView, Manager, Serializers } from "./base";
import { WidgetModel } from "./base";

type Attributes = Record<string, unknown>;
export type ModelClass = (new (...args: ConstructorParameters<typeof WidgetModel>) => WidgetModel) & {
  serializers: Serializers;
};
type ViewClass = new (options: { model: WidgetModel; options?: object }) => DOMWidgetView;

/** Classes by name: `<kind>Model` and `<kind>View`. */
export type Kinds = Readonly<Record<string, unknown>>;

export abstract class Models implements Manager {
  readonly kernel = null;
  abstract readonly isLive: boolean;
  protected readonly models = new Map<string, Promise<WidgetModel>>();

  constructor(private readonly kinds: Kinds) {}

  abstract answer(model: WidgetModel, question: Attributes, buffers: readonly unknown[], callbacks?: Callbacks): void;
  abstract save(model: WidgetModel, changed: Attributes): void;
  protected abstract make(id: string): Promise<WidgetModel>;

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

  /** The view of a model in its place. */
  protected async show(id: string, host: HTMLElement): Promise<void> {
    const view = await this.create_view(await this.get_model(id));
    host.append(view.el);
    view.trigger("displayed");
  }

  protected async build(kind: string, id: string, state: Attributes): Promise<WidgetModel> {
    const Model = this.find<ModelClass>(`${kind}Model`);
    return new Model(await this.deserialized(Model, state), { model_id: id, widget_manager: this });
  }

  protected async deserialized({ serializers }: ModelClass, state: Attributes): Promise<Attributes> {
    const whole = { ...state };
    for (const [name, { deserialize }] of Object.entries(serializers)) {
      if (deserialize && name in whole) whole[name] = await deserialize(whole[name], this);
    }
    return whole;
  }

  private find<T>(name: string): T {
    const found = new Map(Object.entries(this.kinds)).get(name);
    if (typeof found !== "function") throw new Error("a widget of an unknown kind");
    return found as T;
  }
}
