// The picture that a saved notebook has beside each widget, for pages that lack the widget's model; and the views on this page.

import "../../../../style/saved_picture.css";
import { el } from "./dom";
import { PICTURE } from "../../words/shared";

export const VIEW_TYPE = "application/vnd.jupyter.widget-view+json";

const SVG_TYPE = "image/svg+xml";
// modulekg_widgets/engine/views/pictures/png.py writes both
const MARK = '<svg class="mkg-saved-picture"';
const WORDS_INSIDE = /<text class="mkg-words"[^<]*<\/text>/; // for hosts that add none below

/** The address of the picture among the data of an output that shows a widget of ours; null for any other output. */
export function pictureAddress(data: Readonly<Record<string, unknown>>): string | null {
  const given = data[SVG_TYPE];
  const text = Array.isArray(given) ? given.join("") : given; // files have a list of lines
  if (!(VIEW_TYPE in data) || typeof text !== "string" || !text.startsWith(MARK)) {
    return null;
  }
  // half characters have no address
  const picture = text.replace(WORDS_INSIDE, "").replace(/\p{Surrogate}/gu, "\ufffd");
  return `data:${SVG_TYPE};charset=utf-8,${encodeURIComponent(picture)}`;
}

/** The picture, with `words` below it. As an image it runs no script and loads nothing, whatever is in it. */
export function pictureElement(address: string, words: string): HTMLElement {
  const figure = el("figure", "mkg-saved-picture");
  const image = el("img");
  image.alt = PICTURE;
  image.src = address;
  figure.append(image, el("figcaption", "", words));
  return figure;
}

// The views of widgets on this page, for hosts that ask them something.

interface LiveView {
  readonly el: HTMLElement;
  /** Whether its kernel has put newer pictures of all widgets into their outputs. */
  renewPictures(): Promise<boolean>;
}

export const liveViews = new Set<LiveView>();
