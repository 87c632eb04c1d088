// The script that classic notebooks run when they load their extensions: it shows the picture saved with a widget where the
// widget's model is missing. extension.js has it whole.

import { pictureAddress, pictureElement, VIEW_TYPE } from "./core/shared/ui/saved_picture";
import { STATIC_PREVIEW } from "./core/words/shared";

/** A list of elements of the page's jQuery. */
export interface Elements {
  append(content: Element | Elements): Elements;
}

interface Output {
  readonly data: Readonly<Record<string, unknown>>;
}

/** The part of the notebook's class that is used. */
export interface OutputAreaLike {
  readonly trusted: boolean;
  append_mime_type(output: Output, element: Elements, inserted?: () => void): Elements | null;
  create_output_subarea(metadata: object, classes: string, mimeType: string): Elements;
}

/** Teaches the class of output areas to show a picture of ours where `hasModel` does not know the widget's model. */
export function showSavedPictures(prototype: OutputAreaLike, hasModel: (id: unknown) => boolean): void {
  const append = prototype.append_mime_type;
  prototype.append_mime_type = function (this: OutputAreaLike, output, element, inserted) {
    const address = this.trusted ? pictureAddress(output.data) : null;
    const view = output.data[VIEW_TYPE] as { model_id?: unknown } | null;
    if (address === null || hasModel(view?.model_id)) {
      return append.call(this, output, element, inserted);
    }
    const area = this.create_output_subarea({}, "output_mkg_picture", VIEW_TYPE);
    area.append(pictureElement(address, STATIC_PREVIEW));
    element.append(area);
    if (inserted) {
      setTimeout(inserted, 0);
    }
    return area;
  };
}

interface ClassicWindow {
  requirejs(names: string[], then: (module: { OutputArea: { prototype: OutputAreaLike } }) => void): void;
  readonly Jupyter?: {
    readonly notebook?: { readonly kernel?: { readonly widget_manager?: { has_model(id: unknown): boolean } } | null };
  };
}

const page = window as unknown as ClassicWindow;
const hasModel = (id: unknown) => page.Jupyter?.notebook?.kernel?.widget_manager?.has_model(id) ?? false;

page.requirejs(["notebook/js/outputarea"], ({ OutputArea }) => showSavedPictures(OutputArea.prototype, hasModel));
