// Texts that the host may translate: JupyterLab's translation bundles are of this kind.

export interface Translations {
  /** The text, with %1, %2… replaced by the values. */
  __(text: string, ...values: (string | number)[]): string;
}

export const UNTRANSLATED: Translations = {
  __: (text, ...values) => text.replace(/%(\d)/g, (whole, at: string) => String(values[Number(at) - 1] ?? whole))
};
