// A file of the server in parts: what is asked for by HTTP ranges, and never the whole.

import { PathExt } from "@jupyterlab/coreutils";
import { type Contents, ServerConnection } from "@jupyterlab/services";
import type { FileSource } from "../core/files/records";
import { isPlainName } from "../core/files/bounds";
import { FileProblem } from "../core/shared/file_problem";

const [WHOLE, PART, MISSING] = [200, 206, 404];

export class RangeSource implements FileSource {
  private constructor(
    private readonly contents: Contents.IManager,
    private readonly path: string, // with its drive
    private readonly url: string,
    readonly name: string,
    readonly size: number,
    readonly state: string // another one when the file has changed
  ) {}

  static async open(contents: Contents.IManager, path: string): Promise<RangeSource> {
    const model = await describe(contents, path);
    const url = await contents.getDownloadUrl(path);
    const { size, name, last_modified: changed } = model;
    if (typeof size !== "number") throw unreadable("the server does not tell its size");
    return new RangeSource(contents, path, url, name, size, stateOf(size, changed));
  }

  /** Whether the file is no longer what was opened; false, too, where the server does not answer. */
  async hasChanged(): Promise<boolean> {
    try {
      const { size, last_modified: changed } = await describe(this.contents, this.path);
      return stateOf(size, changed) !== this.state;
    } catch {
      return false;
    }
  }

  async read(offset: number, length: number): Promise<Uint8Array> {
    if (!(offset >= 0 && length >= 0 && offset + length <= this.size)) throw new FileProblem("truncated");
    if (length === 0) return new Uint8Array(0);
    const response = await this.request(`bytes=${offset}-${offset + length - 1}`);
    // of a range that is the whole file the server sends the file
    const isWhole = response.status === WHOLE && offset === 0 && length === this.size;
    const announced = Number(response.headers.get("Content-Length") ?? length);
    if (!(isWhole && announced === length) && response.status !== PART) {
      void response.body?.cancel(); // what comes may be many gigabytes
      throw unreadable(problemOf(response.status));
    }
    const bytes = new Uint8Array(await response.arrayBuffer());
    if (bytes.length !== length) throw unreadable("the server sent another part of it");
    return bytes;
  }

  async beside(name: string): Promise<FileSource> {
    if (!isPlainName(name)) throw new FileProblem("elsewhere", name);
    const folder = PathExt.dirname(this.contents.localPath(this.path));
    const drive = this.contents.driveName(this.path);
    const path = PathExt.join(folder, name);
    return RangeSource.open(this.contents, drive === "" ? path : `${drive}:${path}`);
  }

  private async request(range: string): Promise<Response> {
    const settings = this.contents.serverSettings ?? ServerConnection.makeSettings();
    try {
      return await ServerConnection.makeRequest(this.url, { headers: { Range: range } }, settings);
    } catch {
      throw unreadable("the server does not answer");
    }
  }
}

/** What the server tells of a file without its content. */
async function describe(contents: Contents.IManager, path: string): Promise<Contents.IModel> {
  try {
    return await contents.get(path, { content: false, type: "file" });
  } catch (error) {
    const isMissing = error instanceof ServerConnection.ResponseError && error.response.status === MISSING;
    if (isMissing) throw new FileProblem("missing", PathExt.basename(path));
    throw unreadable("the server does not tell of it");
  }
}

const stateOf = (size: number | undefined, changed: string) => `${size} ${changed}`;

const unreadable = (why: string) => new FileProblem("unreadable", why);

function problemOf(status: number): string {
  return status === WHOLE ? "the server sends no parts of files" : `the server answers ${status}`;
}
