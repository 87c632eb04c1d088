// The translation bundle of the plugin, through which all of its texts go.

import { type ITranslator, nullTranslator, type TranslationBundle } from "@jupyterlab/translation";

const DOMAIN = "modulekg_widgets";

export function bundleOf(translator: ITranslator | null): TranslationBundle {
  return (translator ?? nullTranslator).load(DOMAIN);
}
