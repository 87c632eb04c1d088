// The saved pages in frames follow the site's own switch between light and dark: their address says which, for a page
// from a disk may not reach into another.

const shown = new Set(); // a frame below what is in view loads nothing yet

function tell(frame) {
  const theme = document.documentElement.dataset.theme === "dark" ? "dark" : "light";
  frame.contentWindow.location.replace(`${frame.src}#theme=${theme}`); // the same page, and no step of the history
}

function loaded({ target }) {
  if (!(target instanceof HTMLIFrameElement) || !target.matches(".live iframe")) return;
  shown.add(target);
  tell(target);
}

document.addEventListener("load", loaded, true);
new MutationObserver(() => shown.forEach(tell)).observe(document.documentElement, { attributeFilter: ["data-theme"] });
