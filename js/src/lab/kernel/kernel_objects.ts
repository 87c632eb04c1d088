// The objects of one kernel and the lines of Python that ask for them, as modulekg_widgets/widgets/lab/kernel_objects.py has them.

import type { ISessionContext } from "@jupyterlab/apputils";
import { type Kernel, KernelMessage } from "@jupyterlab/services";
import type { JSONObject } from "@lumino/coreutils";
import { type ISignal, Signal } from "@lumino/signaling";
import { isArrayOf, isObject, isValue } from "../../core/shared/base/schema";

// The list that the kernel sends: its types and its checks.

export const OBJECT_KINDS = ["model", "plan", "monitor", "recording", "graph"] as const;
export type ObjectKind = (typeof OBJECT_KINDS)[number];

export interface KernelObject {
  readonly name: string;
  readonly kind: ObjectKind;
  readonly className: string;
  readonly size: readonly number[] | null;
}

interface KernelList {
  readonly objects: readonly KernelObject[];
  readonly leftOut: number;
}

export const SCHEMA_VERSION = 1;
export const OTHER_VERSION = "other-version";

const MAX_LENGTH = 200;
const MAX_OBJECTS = 1000;

/** The list, without the entries that are none; null for something else altogether. */
export function readKernelList(
  raw: unknown,
  isName: (name: unknown) => boolean
): KernelList | typeof OTHER_VERSION | null {
  if (!isObject(raw) || !Array.isArray(raw.objects)) {
    return null;
  }
  if (raw.schema_version !== SCHEMA_VERSION) {
    return OTHER_VERSION;
  }
  const leftOut = typeof raw.left_out === "number" && raw.left_out > 0 ? Math.floor(raw.left_out) : 0;
  const objects = raw.objects.slice(0, MAX_OBJECTS).map(entry => readObject(entry, isName));
  return { objects: objects.filter(entry => entry !== null), leftOut };
}

function readObject(raw: unknown, isName: (name: unknown) => boolean): KernelObject | null {
  if (!isObject(raw) || !isName(raw.name) || !OBJECT_KINDS.some(kind => kind === raw.kind)) {
    return null;
  }
  return {
    name: raw.name as string,
    kind: raw.kind as ObjectKind,
    className: typeof raw.class === "string" ? raw.class.slice(0, MAX_LENGTH) : "",
    size: isArrayOf(raw.size, isValue) ? raw.size.map(Number) : null // large ones come as text
  };
}

/** What a tab shows of one object of the kernel. */
export type TabKind = "graph" | "masks" | "panel" | "plan";

const FUNCTIONS: Readonly<Record<TabKind, string>> = {
  graph: "show_graph",
  masks: "show_masks",
  panel: "show_panel",
  plan: "show_plan"
};

/** What can be shown of an object; the first is what a double click does. */
export const TAB_KINDS: Readonly<Record<ObjectKind, readonly TabKind[]>> = {
  model: ["graph", "masks"],
  plan: ["plan"],
  monitor: ["panel"],
  recording: ["panel"],
  graph: []
};

const MAX_NAME_LENGTH = 100;
const KEYWORDS = new Set(
  (
    "False None True and as assert async await break class continue def del elif else except finally for from global " +
    "if import in is lambda nonlocal not or pass raise return try while with yield"
  ).split(" ")
);

/** Whether `name` is an identifier of Python and nothing else. */
export function isPlainName(name: unknown): name is string {
  return (
    typeof name === "string" &&
    name.length <= MAX_NAME_LENGTH &&
    /^[\p{ID_Start}_][\p{ID_Continue}]*$/u.test(name) &&
    !KEYWORDS.has(name.normalize("NFKC")) // as Python reads it
  );
}

export function isTabKind(kind: unknown): kind is TabKind {
  return typeof kind === "string" && Object.keys(FUNCTIONS).includes(kind);
}

export function isTabId(tab: unknown): tab is string {
  return typeof tab === "string" && /^[\w-]{1,80}$/.test(tab);
}

/** Shows the object `name` in the tab; `inputs` is an expression that somebody typed. Defines nothing in the notebook. */
export function lineFor(kind: TabKind, name: string, tab: string, inputs?: string): string {
  return called(FUNCTIONS[kind], name, tab, inputs);
}

/** Shows what the tab has shown of the object before the page was loaded anew. */
export function restoreLine(name: string, tab: string): string {
  return called("show_again", name, tab);
}

/** The class of the error that says that there is nothing to be shown again. */
export const NO_OUTPUT = "NothingShownError";

function called(what: string, name: string, tab: string, inputs?: string): string {
  if (!isPlainName(name) || !isTabId(tab)) {
    throw new Error("not a name"); // never with the text: errors may reach the page as HTML
  }
  const given = inputs === undefined ? "" : `, (\n${inputs}\n)`;
  return `__import__("modulekg_widgets.widgets.lab.tabs", fromlist=["tabs"]).${what}(${name}, "${tab}"${given})`;
}

/** Makes the kernel tell what it has. */
const WAKE_LINE = '__import__("modulekg_widgets")';

/** The name of the comm's target, and of the comm: a kernel has one, which is never opened but only sent on. */
const TARGET = "modulekg-widgets:kernel-objects";
const ANSWER_TIME = 10_000; // ms
const LOST: readonly string[] = ["restarting", "autorestarting", "terminating", "dead"];

/** Sent as it is, and not by a comm handler: of several connections to one kernel, only one may have these. */
export function sendToKernel(kernel: Kernel.IKernelConnection | null | undefined, data: JSONObject): void {
  if (!kernel || kernel.isDisposed || LOST.includes(kernel.status)) {
    return;
  }
  const { clientId, username } = kernel;
  const message = KernelMessage.createMessage<KernelMessage.ICommMsgMsg<"shell">>({
    msgType: "comm_msg",
    channel: "shell",
    username,
    session: clientId,
    content: { comm_id: TARGET, data }
  });
  kernel.sendShellMessage(message, false, true).done.catch(() => undefined); // the kernel went meanwhile
}

type ListState = "nothing" | "list" | typeof OTHER_VERSION;

/** The objects of the kernel of one notebook or console; `known` is "nothing" until the package is imported there. */
export class KernelObjects {
  list: KernelList = { objects: [], leftOut: 0 };
  known: ListState = "nothing";
  private readonly listChanged = new Signal<this, void>(this);

  constructor(private readonly session: ISessionContext) {
    session.kernelChanged.connect(this.onKernel);
    session.statusChanged.connect(this.onStatus);
    session.iopubMessage.connect(this.onMessage);
    this.attach();
  }

  get changed(): ISignal<this, void> {
    return this.listChanged;
  }

  dispose(): void {
    Signal.clearData(this);
  }

  /** Asks for the list, with all sizes counted anew. */
  refresh(): void {
    sendToKernel(this.kernel, { method: "list" });
  }

  /** Imports the package where that has not been done; resolves when the kernel has sent its list, or after a while. */
  async wake(): Promise<void> {
    const { kernel } = this;
    if (this.known === "list" || !kernel) {
      return;
    }
    const future = kernel.requestExecute({ code: WAKE_LINE, silent: true, store_history: false, stop_on_error: false });
    const reply = await future.done;
    if (reply.content.status !== "ok") {
      return;
    }
    const listed = new Promise<void>(resolve => {
      const done = () => {
        this.listChanged.disconnect(done);
        resolve();
      };
      this.listChanged.connect(done);
      setTimeout(done, ANSWER_TIME);
    });
    this.refresh();
    await listed;
  }

  private get kernel(): Kernel.IKernelConnection | null {
    return this.session.session?.kernel ?? null;
  }

  /** A page that was loaded after the kernel had begun to tell asks whether it does. */
  private attach(): void {
    const { kernel } = this;
    if (!kernel) {
      return;
    }
    void kernel
      .requestCommInfo({ target_name: TARGET })
      .then(reply => {
        if (reply.content.status === "ok" && TARGET in reply.content.comms && kernel === this.kernel) {
          this.refresh();
        }
      })
      .catch(() => undefined); // the kernel went meanwhile
  }

  private readonly onKernel = (): void => {
    this.forget();
    this.attach();
  };

  private readonly onStatus = (_: unknown, status: Kernel.Status): void => {
    if (LOST.includes(status)) {
      this.forget();
    }
  };

  private readonly onMessage = (_: unknown, message: KernelMessage.IMessage): void => {
    if (!KernelMessage.isCommMsgMsg(message) || message.content.comm_id !== TARGET) {
      return;
    }
    const list = readKernelList(message.content.data, isPlainName);
    if (list === null) {
      return;
    }
    this.known = list === OTHER_VERSION ? OTHER_VERSION : "list";
    this.list = list === OTHER_VERSION ? { objects: [], leftOut: 0 } : list;
    this.listChanged.emit();
  };

  private forget(): void {
    this.known = "nothing";
    this.list = { objects: [], leftOut: 0 };
    this.listChanged.emit();
  }
}

/** One `KernelObjects` for each notebook and console, kept as long as that is open. */
export class AllKernelObjects {
  private readonly known = new Map<ISessionContext, KernelObjects>();

  of(session: ISessionContext): KernelObjects {
    const found = this.known.get(session);
    if (found) {
      return found;
    }
    const made = new KernelObjects(session);
    this.known.set(session, made);
    session.disposed.connect(() => {
      this.known.delete(session);
      made.dispose();
    });
    return made;
  }
}
