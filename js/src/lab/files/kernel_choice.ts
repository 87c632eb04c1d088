// Choice of the kernel that computes a file's histograms: that of the notebook or console in front, else any running Python
// kernel.

import type { JupyterFrontEnd } from "@jupyterlab/application";
import { IConsoleTracker } from "@jupyterlab/console";
import { INotebookTracker } from "@jupyterlab/notebook";
import type { Kernel } from "@jupyterlab/services";

/** Runs `ask` with a kernel of Python; null where none runs. None is ever started. */
export type Kernels = <T>(ask: (kernel: Kernel.IKernelConnection) => Promise<T>) => Promise<T | null>;

const LOST: readonly string[] = ["terminating", "dead"];

export async function kernelsOf(app: JupyterFrontEnd): Promise<Kernels> {
  // in other front ends there are none of these
  const [notebooks, consoles] = await Promise.all([
    app.resolveOptionalService(INotebookTracker).catch(() => null),
    app.resolveOptionalService(IConsoleTracker).catch(() => null)
  ]);
  const { kernels, kernelspecs } = app.serviceManager;
  const isPython = (name: string) => kernelspecs.specs?.kernelspecs[name]?.language.toLowerCase() === "python";
  return async ask => {
    await kernelspecs.ready;
    for (const panel of [notebooks?.currentWidget, consoles?.currentWidget]) {
      const kernel = panel?.sessionContext.session?.kernel;
      if (kernel && isPython(kernel.name) && !LOST.includes(kernel.status)) return ask(kernel);
    }
    await kernels.refreshRunning();
    const model = [...kernels.running()].find(({ name }) => isPython(name));
    if (!model) return null;
    const own = kernels.connectTo({ model });
    try {
      return await ask(own);
    } finally {
      own.dispose(); // the connection; the kernel goes on
    }
  };
}
