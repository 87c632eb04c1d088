// The search field of a toolbar: what is typed, how many it finds, and the keys that go with it.

import "../../../../style/search.css";
import { contextOf } from "../base/canvas";
import { Debounced, type Disposer, Disposers, el, isField, listen, icon, onResize, option, uniqueId } from "../ui/dom";

const CLEAR = 20; // pixels that browsers keep for the button that clears the field
const DELAY = 90; // ms without a key before a search runs

export interface SearchTexts {
  readonly placeholder: string;
  readonly help: string;
  readonly label: string;
  /** What the query may become. */
  suggest(query: string): readonly string[];
}

interface SearchEvents {
  search(query: string): void;
  /** Enter: to the next of what was found, or with Shift to the one before. */
  step(direction: 1 | -1): void;
}

export class SearchBox {
  readonly element = el("label", "mkg-search"); // a click beside the field goes into it
  private readonly disposers = new Disposers();
  private readonly input = el("input");
  private readonly count = el("span", "mkg-search-count");
  private readonly typed = new Debounced(() => this.events.search(this.input.value), DELAY);

  /** Within `root`, "/" leads here. */
  constructor(
    root: HTMLElement,
    texts: SearchTexts,
    private readonly events: SearchEvents
  ) {
    this.input.type = "search";
    this.input.title = texts.help;
    this.input.spellcheck = false;
    this.input.autocomplete = "off";
    this.input.setAttribute("aria-label", texts.label);
    this.input.setAttribute("aria-keyshortcuts", "/");
    this.count.setAttribute("role", "status");
    this.element.append(icon("search"), this.input, this.count, this.suggested(texts));
    this.disposers.add(fitPlaceholder(this.input, texts.placeholder));
    this.disposers.add(
      listen(this.input, "input", () => this.typed.call()),
      listen(this.input, "keydown", event => this.key(event)),
      listen(root, "keydown", event => this.shortcut(event)),
      () => this.typed.cancel()
    );
  }

  dispose(): void {
    this.disposers.dispose();
  }

  /** Shows a query that came from elsewhere. */
  follow(query: string): void {
    if (this.input.value === query) return;
    this.typed.cancel();
    this.input.value = query;
  }

  /** Says how many were found, or, as a notice, what is wrong with the query. */
  say(text: string, isNotice: boolean): void {
    this.count.textContent = text;
    this.count.title = text;
    this.count.classList.toggle("mkg-is-notice", isNotice);
  }

  /** Offers words as one types. */
  private suggested(texts: SearchTexts): HTMLElement {
    const list = el("datalist");
    list.id = uniqueId();
    this.input.setAttribute("list", list.id);
    const fill = () => list.replaceChildren(...texts.suggest(this.input.value).map(one => option(one, one)));
    this.disposers.add(listen(this.input, "input", fill), listen(this.input, "focus", fill));
    return list;
  }

  private shortcut(event: KeyboardEvent): void {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || isField(event.target)) return;
    event.preventDefault();
    event.stopPropagation();
    this.input.focus();
    this.input.select();
  }

  private key(event: KeyboardEvent): void {
    if (event.isComposing) return;
    event.stopPropagation(); // letters are text here, not shortcuts of the widget
    if (event.key !== "Enter" && event.key !== "Escape") return;
    event.preventDefault();
    if (event.key === "Escape") {
      this.input.value = "";
      this.typed.call();
    }
    this.typed.flush();
    if (event.key === "Enter") this.events.step(event.shiftKey ? -1 : 1);
  }
}

/** As much of it as has room, in whole parts: "Search: text, class:Conv2d" down to "Search", or nothing. */
function fitPlaceholder(input: HTMLInputElement, text: string): Disposer {
  const cuts = [text.length, ...[...text.matchAll(/[:,] /g)].map(({ index }) => index).reverse()];
  const offered = cuts.map(end => text.slice(0, end));
  const fit = () => {
    const style = getComputedStyle(input);
    const context = contextOf(document.createElement("canvas"));
    if (context) context.font = style.font;
    const room = input.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight) - CLEAR;
    const width = (one: string) => context?.measureText(one).width ?? 0;
    input.placeholder = offered.find(one => width(one) <= room) ?? ""; // the icon says it too
  };
  input.placeholder = text;
  return onResize(input, fit);
}
