// Asks a kernel for the histogram of one tensor of a file: one fixed line of Python, with two texts as data.

import { PageConfig } from "@jupyterlab/coreutils";
import { KernelMessage } from "@jupyterlab/services";
import { HistogramProblem, readHistogram, type TensorHistogram } from "../../core/panel/file_panel";
import type { Kernels } from "./kernel_choice";

const SOURCE = "modulekg_widgets.engine.views.file_payload";
const MAX_ANSWER_LENGTH = 100_000; // characters
const NO_KERNEL = "This needs a running kernel of Python with modulekg_widgets: open a notebook, and try again.";
const NOT_THERE = "The kernel has no modulekg_widgets that reads model files: install it there, and try again.";

/** `path`: from the folder that the server serves. */
export async function askHistogram(kernels: Kernels, path: string, name: string): Promise<TensorHistogram> {
  const root = PageConfig.getOption("serverRoot");
  const found = await kernels(async kernel => {
    const future = kernel.requestExecute({
      code: lineFor(root === "" ? path : `${root}/${path}`, name),
      silent: true,
      store_history: false,
      stop_on_error: false
    });
    let printed = "";
    future.onIOPub = message => {
      if (!KernelMessage.isStreamMsg(message) || message.content.name !== "stdout") return;
      if (printed.length < MAX_ANSWER_LENGTH) printed += message.content.text;
    };
    const { content } = await future.done;
    if (content.status === "ok") return readHistogram(printed);
    throw new HistogramProblem(reasonOf(content));
  });
  if (found === null) throw new HistogramProblem(NO_KERNEL);
  return found;
}

/** The texts are ASCII in JSON in JSON: nothing in them can end the text that they stand in. */
export function lineFor(path: string, name: string): string {
  const given = JSON.stringify([path, name]).replace(/[^ -~]/g, unit => {
    return `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
  });
  const line = `__import__("${SOURCE}", fromlist=["histogram_line"]).histogram_line`;
  return `print(${line}(*__import__("json").loads(${JSON.stringify(given)})))`;
}

function reasonOf(content: KernelMessage.IReplyErrorContent | KernelMessage.IReplyAbortContent): string {
  if (content.status !== "error") return "The kernel did not come to it: try again.";
  return /^(?:ModuleNotFound|Import)Error$/.test(content.ename) ? NOT_THERE : content.evalue;
}
