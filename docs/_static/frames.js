// The saved pages in frames follow the site's own switch between light and dark.
// By themselves they follow the system; where pages come from a disk, no page may reach into another, and that is all.

const PALETTES = {
  light: {
    "--jp-layout-color1": "#ffffff",
    "--jp-layout-color2": "#f3f5f7",
    "--jp-ui-font-color1": "#1f2328",
    "--jp-ui-font-color2": "#59636e",
    "--jp-border-color2": "#d5dae0",
    "--jp-brand-color1": "#0969da"
  },
  dark: {
    "--jp-layout-color1": "#1b1f24",
    "--jp-layout-color2": "#262c33",
    "--jp-ui-font-color1": "#e6edf3",
    "--jp-ui-font-color2": "#9aa6b2",
    "--jp-border-color2": "#3a424b",
    "--jp-brand-color1": "#58a6ff"
  }
};

function paint(frame) {
  const page = frame.contentDocument?.documentElement;
  if (!page) return;
  const theme = document.documentElement.dataset.theme === "dark" ? "dark" : "light";
  for (const [name, color] of Object.entries(PALETTES[theme])) page.style.setProperty(name, color);
  page.style.colorScheme = theme;
}

function paintAll() {
  document.querySelectorAll(".live iframe").forEach(paint);
}

document.addEventListener("DOMContentLoaded", () => {
  for (const frame of document.querySelectorAll(".live iframe")) frame.addEventListener("load", () => paint(frame));
  paintAll();
  new MutationObserver(paintAll).observe(document.documentElement, { attributeFilter: ["data-theme"] });
});
