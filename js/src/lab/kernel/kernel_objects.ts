// The objects of one kernel, as its Python side lists them: see modulekg_widgets/widgets/lab/kernel_objects.py.

import type { ISessionContext } from "@jupyterlab/apputils";
import { type Kernel, KernelMessage } from "@jupyterlab/services";
import type { JSONObject } from "@lumino/coreutils";
import { type ISignal, Signal } from "@lumino/signaling";
import { isPlainName, type KernelList, OTHER_VERSION, readKernelList, WAKE_LINE } from "./kernel_protocol";

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
