// The picture saved with a widget, which JupyterLab and Notebook 7 show where the widget's model is missing.

import { type IRenderMime, IRenderMimeRegistry } from "@jupyterlab/rendermime";
import type { JupyterFrontEnd } from "@jupyterlab/application";
import type { TranslationBundle } from "@jupyterlab/translation";
import type { Panel } from "@lumino/widgets";
import { STATIC_PREVIEW } from "../core/words/shared";
import { liveViews, pictureAddress, pictureElement, VIEW_TYPE } from "../core/shared/ui/saved_picture";

// ms: a kernel may still have the model, and where there is no kernel the widget manager waits for one without end
const PICTURE_AFTER = 1000;
const WORDS_AFTER = 3000;
const OUTPUTS_AFTER = 100; // until the notebook has taken the pictures up

export async function addSavedPictures(app: JupyterFrontEnd, trans: TranslationBundle): Promise<void> {
  const registry = await app.resolveOptionalService(IRenderMimeRegistry);
  if (registry?.getFactory(VIEW_TYPE)) {
    showSavedPictures(registry.createRenderer(VIEW_TYPE), trans.__(STATIC_PREVIEW));
  }
  app.docRegistry.addWidgetExtension("Notebook", {
    createNew: ({ node }, context) => {
      context.saveState.connect((_, state) => {
        if (state.startsWith("completed")) void renewPictures(node, context);
      });
    }
  });
}

/** What a notebook that was saved has of its widgets is of when they were displayed: the kernel gives newer pictures. */
export async function renewPictures(notebook: HTMLElement, context: Saved): Promise<void> {
  const views = [...liveViews];
  // outputs out of sight may be off the page
  const view = views.find(({ el }) => notebook.contains(el)) ?? views.find(({ el }) => !el.isConnected);
  if (!(await view?.renewPictures())) return;
  await new Promise(resolve => setTimeout(resolve, OUTPUTS_AFTER));
  if (!context.isDisposed && context.model.dirty) await context.save();
}

interface Saved {
  readonly isDisposed: boolean;
  readonly model: { readonly dirty: boolean };
  save(): Promise<void>;
}

/**
 * Teaches the class of `sample`, the widget manager's renderer, to show a picture where it has found no model.
 *
 * The class, since each notebook has a registry of its own, whose factory the widget manager replaces with each kernel.
 * Outputs without a picture of ours are rendered as before.
 */
export function showSavedPictures(sample: IRenderMime.IRenderer, words: string): void {
  const prototype = Object.getPrototypeOf(sample) as IRenderMime.IRenderer;
  const render = prototype.renderModel;
  sample.dispose();
  const drawn = new WeakMap<IRenderMime.IRenderer, unknown>(); // the model whose view each has
  prototype.renderModel = async function (this: Panel & IRenderMime.IRenderer, model: IRenderMime.IMimeModel) {
    const { model_id: id } = (model.data[VIEW_TYPE] ?? {}) as { model_id?: unknown };
    if (id && drawn.get(this) === id && this.widgets.some(view => !view.isDisposed)) return; // only the picture is newer
    const address = pictureAddress(model.data);
    if (address === null) {
      return render.call(this, model);
    }
    const show = (caption: string) => {
      if (!this.isDisposed && !this.isHidden && this.widgets.length === 0) {
        this.node.replaceChildren(pictureElement(address, caption));
      }
    };
    const timers = [setTimeout(show, PICTURE_AFTER, ""), setTimeout(show, WORDS_AFTER, words)];
    try {
      await render.call(this, model);
    } finally {
      timers.forEach(clearTimeout);
    }
    drawn.set(this, this.widgets.length > 0 ? id : undefined);
    show(words);
  };
}
