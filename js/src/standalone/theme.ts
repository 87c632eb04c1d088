// Light or dark, where somebody else than the system says which: the classes are those of style/lab.css.

import "../../style/lab.css";

const THEMES = ["light", "dark"] as const;
type Theme = (typeof THEMES)[number];

/** As the system has it, without a theme. */
export function showTheme(shown?: Theme): void {
  for (const theme of THEMES) document.body.classList.toggle(`mkg-theme-${theme}`, theme === shown);
}

/**
 * The address may end in #theme=light or #theme=dark, and change while the page is shown: a site around its frame can do that
 * where it may not reach into it, as between files of a disk. Nothing else is read of it.
 */
export function followAddress(): void {
  const follow = () => showTheme(THEMES.find(theme => location.hash === `#theme=${theme}`));
  window.addEventListener("hashchange", follow);
  follow();
}
