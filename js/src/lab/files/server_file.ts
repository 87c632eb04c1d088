// A model file of the server: its bytes by HTTP ranges, never the whole, and histograms of its tensors by a kernel.

import { PathExt, PageConfig } from "@jupyterlab/coreutils";
import { type Contents, ServerConnection, KernelMessage } from "@jupyterlab/services";
import { isPlainName } from "../../core/files/bytes/limits";
import type { FileSource } from "../../core/files/bytes/records";
import { FileProblem } from "../../core/shared/payload/file_problem";
import { HistogramProblem, readHistogram, type TensorHistogram } from "../../core/panel/file_panel";
import type { Kernels } from "./kernel_choice";
import * as words from "../../core/words/lab";

const HEAD = 64 * 2 ** 10; // bytes that the first request asks for: most headers are not longer
const NOTHING = new Uint8Array(0);
const [WHOLE, PART, MISSING, BEYOND] = [200, 206, 404, 416];

export class RangeSource implements FileSource {
  private constructor(
    private readonly contents: Contents.IManager,
    private readonly path: string, // with its drive
    private readonly url: string,
    private readonly head: Uint8Array,
    readonly size: number,
    private readonly state: string // another one when the file has changed
  ) {}

  /** A file to be watched, too. */
  static async open(contents: Contents.IManager, path: string): Promise<RangeSource> {
    const { text, isEmpty } = await stateOf(contents, path);
    return isEmpty ? new RangeSource(contents, path, "", NOTHING, 0, text) : RangeSource.begin(contents, path, text);
  }

  private static async begin(contents: Contents.IManager, path: string, state: string): Promise<RangeSource> {
    const url = await contents.getDownloadUrl(path);
    const { bytes, size } = await fetchHead(contents, url, PathExt.basename(path));
    return new RangeSource(contents, path, url, bytes, size, state);
  }

  get name(): string {
    return PathExt.basename(this.contents.localPath(this.path));
  }

  /** What has become of the file that was opened; nothing, too, where the server does not answer. */
  async lookAgain(): Promise<"same" | "changed" | "gone"> {
    try {
      return (await stateOf(this.contents, this.path)).text === this.state ? "same" : "changed";
    } catch (error) {
      return error instanceof FileProblem && error.reason === "missing" ? "gone" : "same";
    }
  }

  async read(offset: number, length: number): Promise<Uint8Array> {
    const end = offset + length;
    if (!(offset >= 0 && length >= 0 && end <= this.size)) throw new FileProblem("truncated");
    if (length === 0 || end <= this.head.length) return this.head.subarray(offset, end);
    const response = await request(this.contents, this.url, offset, length);
    // of a range that is the whole file the server sends the file
    const isWhole = response.status === WHOLE && offset === 0 && length === this.size;
    return bytesOf(response, length, isWhole);
  }

  async beside(name: string): Promise<FileSource> {
    if (!isPlainName(name)) throw new FileProblem("elsewhere", name);
    const folder = PathExt.dirname(this.contents.localPath(this.path));
    const drive = this.contents.driveName(this.path);
    const path = PathExt.join(folder, name);
    return RangeSource.begin(this.contents, drive === "" ? path : `${drive}:${path}`, "");
  }
}

/** The first bytes of a file, and how many it has. */
async function fetchHead(
  contents: Contents.IManager,
  url: string,
  name: string
): Promise<{ bytes: Uint8Array; size: number }> {
  const response = await request(contents, url, 0, HEAD);
  if (response.status === MISSING) throw new FileProblem("missing", name);
  if (response.status === BEYOND) return { bytes: NOTHING, size: 0 };
  const length = Number(response.headers.get("Content-Length") ?? NaN);
  // a file that is not longer comes whole
  const isWhole = response.status === WHOLE && length <= HEAD;
  const size = isWhole ? length : Number(/\/(\d+)$/.exec(response.headers.get("Content-Range") ?? "")?.[1] ?? NaN);
  const bytes = await bytesOf(response, isWhole ? length : HEAD, isWhole);
  if (!Number.isSafeInteger(size)) throw unreadable(words.NO_SIZE);
  return { bytes, size };
}

async function request(contents: Contents.IManager, url: string, offset: number, length: number): Promise<Response> {
  const settings = contents.serverSettings ?? ServerConnection.makeSettings();
  try {
    return await ServerConnection.makeRequest(
      url,
      { headers: { Range: `bytes=${offset}-${offset + length - 1}` } },
      settings
    );
  } catch {
    throw unreadable(words.NO_ANSWER);
  }
}

/** Exactly so many; of an answer that is no part, and need not be the whole file, none is waited for. */
async function bytesOf(response: Response, length: number, isWhole: boolean): Promise<Uint8Array> {
  const announced = response.headers.get("Content-Length");
  if (!(response.status === PART || isWhole) || (announced !== null && Number(announced) !== length)) {
    void response.body?.cancel(); // what comes may be many gigabytes
    throw unreadable(problemOf(response.status));
  }
  const bytes = new Uint8Array(await response.arrayBuffer());
  if (bytes.length !== length) throw unreadable(words.WRONG_PART);
  return bytes;
}

/** What changes with a file, without its content. */
async function stateOf(contents: Contents.IManager, path: string): Promise<{ text: string; isEmpty: boolean }> {
  try {
    const { size, last_modified: changed } = await contents.get(path, { content: false, type: "file" });
    return { text: `${size} ${changed}`, isEmpty: size === 0 };
  } catch (error) {
    const isMissing = error instanceof ServerConnection.ResponseError && error.response.status === MISSING;
    if (isMissing) throw new FileProblem("missing", PathExt.basename(path));
    throw unreadable(words.NOT_LISTED);
  }
}

const unreadable = (why: string) => new FileProblem("unreadable", why);

function problemOf(status: number): string {
  if (status === PART) return words.WRONG_PART;
  return status === WHOLE ? words.NO_PARTS : words.answered(status);
}

// The histogram of one tensor, which a kernel is asked for: one fixed line of Python, with two texts as data.

const SOURCE = "modulekg_widgets.engine.views.file_payload";
const MAX_ANSWER_LENGTH = 100_000; // characters

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
  if (found === null) throw new HistogramProblem(words.NO_KERNEL);
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
  if (content.status !== "error") return words.KERNEL_SILENT;
  return /^(?:ModuleNotFound|Import)Error$/.test(content.ename) ? words.NO_READER : content.evalue;
}
