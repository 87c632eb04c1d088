// The script that classic notebooks run when they load their extensions; extension.js has it whole.

import { type OutputAreaLike, showSavedPictures } from "./classic/saved_pictures";

interface ClassicWindow {
  requirejs(names: string[], then: (module: { OutputArea: { prototype: OutputAreaLike } }) => void): void;
  readonly Jupyter?: {
    readonly notebook?: { readonly kernel?: { readonly widget_manager?: { has_model(id: unknown): boolean } } | null };
  };
}

const page = window as unknown as ClassicWindow;
const hasModel = (id: unknown) => page.Jupyter?.notebook?.kernel?.widget_manager?.has_model(id) ?? false;

page.requirejs(["notebook/js/outputarea"], ({ OutputArea }) => showSavedPictures(OutputArea.prototype, hasModel));
