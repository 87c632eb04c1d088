import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import "../testing/media";
import { golden } from "../testing/payloads";

vi.mock("@jupyter-widgets/base", () => import("./base"));

import * as all from "../widgets/all";
import { DOMWidgetModel, DOMWidgetView } from "./base";
import * as controls from "./controls";
import { type Batch, type LiveEntry, LivePage } from "./live";

class NoteModel extends DOMWidgetModel {
  static override serializers = {
    ...DOMWidgetModel.serializers,
    bytes: { serialize: (value: unknown): unknown => ({ ...(value as object), copied: true }) }
  };

  override defaults(): Record<string, unknown> {
    return { ...super.defaults(), text: "", bytes: null };
  }
}

class NoteView extends DOMWidgetView {
  override render(): void {
    super.render();
    const show = () => {
      this.el.textContent = String(this.model.get("text"));
      this.el.dataset.live = String(this.model.comm_live);
    };
    this.listenTo(this.model, "change:text comm_live_update", show);
    this.listenTo(this.model, "msg:custom", (content, buffers) => {
      this.el.dataset.heard = JSON.stringify([content, (buffers as DataView[]).map(view => view.getUint8(0))]);
    });
    show();
  }
}

const KINDS = { ...controls, ...all, NoteModel, NoteView };
const after = (ms: number) => new Promise(resolve => setTimeout(resolve, ms));
const note = (id: string, text: string): LiveEntry => ({ id, kind: "Note", state: { _view_name: "NoteView", text } });
const bytes = (...values: number[]) => new DataView(new Uint8Array(values).buffer);
const box = (children: string[]): LiveEntry => ({
  id: "box",
  kind: "VBox",
  state: { _view_name: "VBoxView", children: children.map(child => `IPY_MODEL_${child}`) }
});

interface Sent {
  readonly content: Batch & { readonly kind: string; readonly page: string };
  readonly buffers: readonly DataView[];
}

/** A page with a kernel behind it that does what the test says. */
class Kernel {
  readonly sent: Sent[] = [];
  readonly host = document.createElement("main");
  readonly page: LivePage;
  changes = 0;

  constructor(root: string, entries: readonly LiveEntry[]) {
    this.page = new LivePage(root, entries, KINDS, {
      send: (content, buffers) => this.sent.push({ content: content as Sent["content"], buffers }),
      changed: () => (this.changes += 1)
    });
    document.body.append(this.host);
  }

  /** The page, once the kernel has said what has changed. */
  async open(answer: object = {}, buffers: readonly DataView[] = []): Promise<void> {
    const mounted = this.page.mount(this.host);
    this.tell({ kind: "opened", page: this.name, added: [], changed: [], gone: [], paths: [], ...answer }, buffers);
    await mounted;
    await after(0);
    this.sent.length = 0;
  }

  get name(): string {
    return this.sent[0]?.content.page ?? this.known;
  }
  private known = "";

  tell(content: object, buffers: readonly DataView[] = []): void {
    this.known ||= this.name;
    this.page.hear(content, buffers);
  }

  update(id: string, state: object, more: object = {}): void {
    this.tell({ kind: "message", id, data: { method: "update", state, buffer_paths: [] }, ...more });
  }

  echo(id: string, state: object, number: number, page = this.known): void {
    this.tell({ kind: "message", id, data: { method: "echo_update", state, buffer_paths: [] }, page, number });
  }

  done(number: number, page = this.known): void {
    this.tell({ kind: "done", page, number });
  }

  /** The messages of the lots that the page has sent. */
  get lots(): object[][] {
    return this.sent.map(({ content }) => content.messages.map(({ id, method, state }) => ({ id, method, state })));
  }

  async set(id: string, values: Record<string, unknown>): Promise<void> {
    const model = await this.page.get_model(id);
    model.set(values);
    model.save_changes();
  }

  async text(id = "note"): Promise<unknown> {
    await after(0);
    return (await this.page.get_model(id)).get("text");
  }

  get view(): HTMLElement {
    return this.host.firstElementChild as HTMLElement;
  }
}

let kernel: Kernel;
beforeEach(() => {
  kernel = new Kernel("note", [note("note", "as it was")]);
});
afterEach(() => {
  vi.useRealTimers();
  document.body.replaceChildren();
});

describe("LivePage", () => {
  it("shows what the kernel has now", async () => {
    await kernel.open({ changed: [{ id: "note", state: { text: "as it is" } }] });
    expect(kernel.view.textContent).toBe("as it is");
    expect(kernel.view.dataset.live).toBe("true");
  });

  it("shows what the cell has shown where no kernel answers, and becomes live with one", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout"] });
    const mounted = kernel.page.mount(kernel.host);
    await vi.advanceTimersByTimeAsync(1000);
    await mounted;
    vi.useRealTimers();
    expect(kernel.view.textContent).toBe("as it was");
    expect(kernel.view.dataset.live).toBe("false");
    await kernel.set("note", { text: "alone" });
    expect(kernel.sent.map(({ content }) => content.kind)).toEqual(["open"]);
    kernel.tell({ kind: "opened", page: kernel.name, added: [], changed: [], gone: [], paths: [] });
    await after(0);
    expect(kernel.view.dataset.live).toBe("true");
  });

  it("hears nothing that is older than the answer, and no answer to another page", async () => {
    const mounted = kernel.page.mount(kernel.host);
    kernel.update("note", { text: "older" });
    kernel.tell({
      kind: "opened",
      page: "other",
      added: [],
      changed: [{ id: "note", state: { text: "no" } }],
      gone: []
    });
    kernel.tell({ kind: "opened", page: kernel.name, added: [], changed: [], gone: [], paths: [] });
    await mounted;
    expect(await kernel.text()).toBe("as it was");
  });

  it("sets what Python sets, and sends nothing back", async () => {
    await kernel.open();
    kernel.update("note", { text: "of Python" });
    expect(await kernel.text()).toBe("of Python");
    expect(kernel.view.textContent).toBe("of Python");
    await kernel.set("note", {});
    expect(kernel.sent).toEqual([]);
  });

  it("sends one lot at a time, and one value of each trait in it", async () => {
    await kernel.open();
    for (const text of ["a", "b", "c"]) await kernel.set("note", { text });
    const lot = (text: string) => [{ id: "note", method: "update", state: { text } }];
    expect(kernel.lots).toEqual([lot("a")]);
    kernel.done(1, "other");
    expect(kernel.lots).toHaveLength(1);
    kernel.done(1);
    expect(kernel.lots).toEqual([lot("a"), lot("c")]);
    expect(kernel.changes).toBe(1);
    kernel.done(2);
    kernel.done(2);
    expect(kernel.lots).toHaveLength(2);
    expect(kernel.changes).toBe(2);
  });

  it("keeps its newer value until the echo of it has come, and takes those of other pages", async () => {
    await kernel.open();
    await kernel.set("note", { text: "a" });
    kernel.echo("note", { text: "older, of another page" }, 9, "other");
    expect(await kernel.text()).toBe("a");
    await kernel.set("note", { text: "b" });
    kernel.echo("note", { text: "a" }, 1);
    expect(await kernel.text()).toBe("b");
    kernel.done(1);
    kernel.echo("note", { text: "b" }, 2);
    kernel.done(2);
    kernel.echo("note", { text: "of another page" }, 10, "other");
    expect(await kernel.text()).toBe("of another page");
    expect(kernel.lots).toHaveLength(2);
  });

  it("ends as the kernel does, whichever value came first there", async () => {
    await kernel.open();
    await kernel.set("note", { text: "clicked" });
    kernel.update("note", { text: "set before the click came" });
    kernel.echo("note", { text: "clicked" }, 1);
    expect(await kernel.text()).toBe("clicked");
  });

  it("sends binary values apart, as their serializer gives them", async () => {
    await kernel.open();
    await kernel.set("note", { bytes: { bits: bytes(7), more: [bytes(8, 9)] } });
    const [{ content, buffers }] = kernel.sent;
    expect(content.messages[0]).toMatchObject({
      state: { bytes: { bits: null, more: [null], copied: true } },
      buffer_paths: [
        ["bytes", "bits"],
        ["bytes", "more", 0]
      ],
      buffers: 2
    });
    expect(buffers.map(view => view.byteLength)).toEqual([1, 2]);
  });

  it("puts binary values where they belong", async () => {
    await kernel.open(
      { changed: [{ id: "note", state: { bytes: [null] } }], paths: [["changed", 0, "state", "bytes", 0]] },
      [bytes(5)]
    );
    const model = await kernel.page.get_model("note");
    expect((model.get("bytes") as DataView[])[0].getUint8(0)).toBe(5);
    const data = { method: "update", state: { bytes: { a: null } }, buffer_paths: [["bytes", "a"]] };
    kernel.tell({ kind: "message", id: "note", data }, [bytes(6)]);
    await after(0);
    expect((model.get("bytes") as { a: DataView }).a.getUint8(0)).toBe(6);
  });

  it("passes messages on, both ways and with their buffers, and says when the kernel is done with one", async () => {
    await kernel.open();
    const data = { method: "custom", content: { kind: "answer" } };
    kernel.tell({ kind: "message", id: "note", data }, [bytes(3)]);
    await after(0);
    expect(kernel.view.dataset.heard).toBe('[{"kind":"answer"},[3]]');
    const model = await kernel.page.get_model("note");
    const status = vi.fn();
    model.send({ kind: "ask" }, { iopub: { status } }, [bytes(4)]);
    const [{ content, buffers }] = kernel.sent;
    expect(content.messages).toEqual([{ id: "note", method: "custom", content: { kind: "ask" }, buffers: 1 }]);
    expect(buffers[0].getUint8(0)).toBe(4);
    expect(status).not.toHaveBeenCalled();
    kernel.done(1);
    expect(status).toHaveBeenCalledWith({ content: { execution_state: "idle" } });
    expect(kernel.changes).toBe(0);
  });

  it("takes up and drops widgets and links", async () => {
    kernel = new Kernel("box", [box(["one", "two"]), note("one", "1"), note("two", "2")]);
    await kernel.open();
    const link = { source: ["IPY_MODEL_one", "text"], target: ["IPY_MODEL_two", "text"] };
    kernel.tell({ kind: "add", added: [{ id: "link", kind: "Link", state: link }], paths: [] });
    await after(0);
    expect(await kernel.text("two")).toBe("1");
    kernel.done(1);
    await kernel.set("two", { text: "both" });
    expect(await kernel.text("one")).toBe("both");
    kernel.tell({ kind: "close", id: "link" });
    await after(0);
    await kernel.set("two", { text: "alone" });
    expect(await kernel.text("one")).toBe("both");
    kernel.tell({ kind: "close", id: "one" });
    await after(0);
    expect(kernel.host.textContent).toBe("alone");
    kernel.update("one", { text: "nobody" });
    await after(0);
  });

  it("is not led astray by what is no message", async () => {
    await kernel.open();
    for (const content of [null, 3, [], {}, { kind: "message", id: "nobody", data: {} }, { kind: "done" }]) {
      kernel.page.hear(content, undefined);
    }
    expect(await kernel.text()).toBe("as it was");
  });

  it("shows a graph as it is with a kernel", async () => {
    const state = { _view_name: "ModelGraphView", payload: golden("folded"), selected: null };
    kernel = new Kernel("graph", [{ id: "graph", kind: "ModelGraph", state }]);
    await kernel.open();
    await after(20);
    const { view } = kernel;
    const [, row, other] = view.querySelectorAll<HTMLElement>("[role=treeitem]");
    expect(view.dataset.mkgReady).toBe("true");
    expect(view.classList.contains("mkg-is-disconnected")).toBe(false);
    row.click();
    await after(60);
    const [[message]] = kernel.lots;
    expect(message).toMatchObject({ id: "graph", method: "update", state: { selected: row.dataset.mkgPath } });
    kernel.update("graph", { selected: other.dataset.mkgPath });
    await after(20);
    expect(view.querySelector<HTMLElement>(".mkg-side-panel")?.dataset.mkgPath).toBe(other.dataset.mkgPath);
  });
});
