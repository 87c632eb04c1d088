// Every text of the plugin goes through JupyterLab's translation.

import { type ITranslator, nullTranslator, type TranslationBundle } from "@jupyterlab/translation";

const DOMAIN = "modulekg_widgets";

export function bundleOf(translator: ITranslator | null): TranslationBundle {
  return (translator ?? nullTranslator).load(DOMAIN);
}
