// What JupyterLab and Notebook 7 show of a widget of ours whose model is not there: the picture saved with it.

import { type IRenderMime, IRenderMimeRegistry } from "@jupyterlab/rendermime";
import type { JupyterFrontEnd } from "@jupyterlab/application";
import type { TranslationBundle } from "@jupyterlab/translation";
import type { Panel } from "@lumino/widgets";
import { pictureAddress, pictureElement, VIEW_TYPE, WORDS } from "../core/shared/saved_picture";

// ms: a kernel may still have the model, and where there is no kernel the widget manager waits for one without end
const PICTURE_AFTER = 1000;
const WORDS_AFTER = 3000;

export async function addSavedPictures(app: JupyterFrontEnd, trans: TranslationBundle): Promise<void> {
  const registry = await app.resolveOptionalService(IRenderMimeRegistry);
  if (registry?.getFactory(VIEW_TYPE)) {
    showSavedPictures(registry.createRenderer(VIEW_TYPE), trans.__(WORDS));
  }
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
  prototype.renderModel = async function (this: Panel & IRenderMime.IRenderer, model: IRenderMime.IMimeModel) {
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
    show(words);
  };
}
