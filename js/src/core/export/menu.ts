// The export menu: what is on the canvas, or all of the model, as a file.

import { button, el, listen, icon, saveFile, Part, setRole } from "../shared/ui/dom";
import type { Hierarchy } from "../shared/model/hierarchy";
import type { GraphStore } from "../shared/model/graph_store";
import { pictureToDot, fileName, GraphPicture, pictureToSvg } from "./graph_picture";
import { graphPage, newNonce, SCRIPT_ID, standaloneHtml } from "./html";
import * as words from "../words/shared";

/** The graph on the canvas. */
export interface Picture {
  scene(): GraphPicture;
  exportPng(): Promise<Blob>;
}

interface PictureSource {
  graph(): Picture | undefined;
}

type Format = keyof typeof words.FORMATS;

const FORMATS = Object.keys(words.FORMATS) as Format[];

export class ExportMenu extends Part {
  private readonly opener = button("mkg-button mkg-export-button", "", words.EXPORT_TITLE);
  private readonly menu = el("div", "mkg-export-menu");

  constructor(
    host: HTMLElement,
    private readonly h: Hierarchy,
    private readonly store: GraphStore,
    private readonly source: PictureSource
  ) {
    super(host);
    host.classList.add("mkg-export");
    this.opener.append(icon("download"), el("span", "mkg-export-word", words.EXPORT));
    this.opener.setAttribute("aria-label", words.EXPORT); // where the word has no room
    this.opener.setAttribute("aria-haspopup", "menu");
    setRole(this.menu, "menu", words.EXPORT);
    for (const format of FORMATS) this.menu.append(item(format));
    host.append(this.opener, this.menu);
    this.show(false);
    this.listen();
  }

  private get items(): HTMLElement[] {
    return Array.from(this.menu.querySelectorAll<HTMLElement>("[role=menuitem]"));
  }

  private listen(): void {
    const outside = (event: Event) => {
      if (event.target instanceof Node && !this.host.contains(event.target)) this.show(false);
    };
    document.addEventListener("pointerdown", outside, true);
    this.disposers.add(
      () => document.removeEventListener("pointerdown", outside, true),
      listen(this.opener, "click", () => this.toggle()),
      listen(this.menu, "click", event => this.clicked(event)),
      listen(this.host, "keydown", event => this.key(event))
    );
  }

  private toggle(): void {
    this.show(this.menu.hidden);
    if (!this.menu.hidden) this.items[0]?.focus();
  }

  private show(open: boolean): void {
    this.menu.hidden = !open;
    this.opener.setAttribute("aria-expanded", String(open));
  }

  private key(event: KeyboardEvent): void {
    if (this.menu.hidden) return;
    const { items } = this;
    const at = items.findIndex(element => element === document.activeElement);
    const moves: Partial<Record<string, number>> = {
      ArrowDown: (at + 1) % items.length,
      ArrowUp: (at - 1 + items.length) % items.length,
      Home: 0,
      End: items.length - 1
    };
    const next = moves[event.key];
    if (next !== undefined) items[next].focus();
    else if (event.key === "Escape") {
      this.show(false);
      this.opener.focus();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  private clicked(event: MouseEvent): void {
    const target = event.target instanceof Element ? event.target.closest<HTMLElement>("[data-mkg-export]") : null;
    const format = FORMATS.find(name => name === target?.dataset.mkgExport);
    if (!format) return;
    this.show(false);
    this.opener.focus();
    void this.save(format);
  }

  private async save(format: Format): Promise<void> {
    try {
      const blob = await this.make(format);
      if (!blob) this.store.set("notice", words.NO_PICTURE);
      else saveFile(blob, fileName(this.h.payload.title, format));
    } catch {
      // what went wrong may contain names from the model, so the text is fixed
      this.store.set("notice", words.exportFailed(format.toUpperCase()));
    }
  }

  private async make(format: Format): Promise<Blob | undefined> {
    const { payload } = this.h;
    if (format === "json") return textBlob(`${JSON.stringify(payload)}\n`, "application/json");
    if (format === "html") return this.makeHtml();
    const picture = this.source.graph();
    if (!picture) return undefined;
    if (format === "png") return new Blob([await picture.exportPng()], { type: "image/png" });
    if (format === "dot") return textBlob(pictureToDot(picture.scene(), payload.title), "text/vnd.graphviz");
    return textBlob(pictureToSvg(picture.scene(), payload.title), "image/svg+xml");
  }

  private async makeHtml(): Promise<Blob> {
    // large, and needed by few: loaded when it is asked for
    const { STANDALONE_JS } = await import("../../generated/standalone_source");
    // an exported page does not contain its own source a second time, but it is its own source
    const script = STANDALONE_JS || document.getElementById(SCRIPT_ID)?.textContent || "";
    const { payload } = this.h;
    return textBlob(standaloneHtml(payload.title, graphPage(payload, this.store), script, newNonce()), "text/html");
  }
}

function item(format: Format): HTMLElement {
  const element = button("mkg-export-item", "");
  element.setAttribute("role", "menuitem");
  element.tabIndex = -1;
  element.dataset.mkgExport = format;
  element.append(el("span", "mkg-export-name", format.toUpperCase()), el("span", "mkg-dim", words.FORMATS[format]));
  return element;
}

function textBlob(text: string, type: string): Blob {
  return new Blob([text], { type: `${type};charset=utf-8` });
}
