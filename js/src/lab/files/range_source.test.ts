import { afterEach, describe, expect, it, vi } from "vitest";
import type { Contents } from "@jupyterlab/services";

interface Served {
  readonly bytes: Uint8Array;
  readonly ranges?: boolean;
}

const { files, asked, ServerConnection } = vi.hoisted(() => {
  const known = new Map<string, Served>();
  const log: string[] = [];
  class ResponseError extends Error {
    constructor(readonly response: { status: number }) {
      super();
    }
  }
  return {
    files: known,
    asked: log,
    ServerConnection: { ResponseError, makeSettings: () => ({}), makeRequest: answer }
  };

  /** As tornado answers: 200 for a range that is the whole file. */
  function answer(url: string, init: { headers: { Range: string } }): Promise<Response> {
    const [, from, to] = /^bytes=(\d+)-(\d+)$/.exec(init.headers.Range) ?? [];
    log.push(`${url} ${from}-${to}`);
    const file = known.get(decodeURIComponent(url.slice("/files/".length)));
    if (!file) return Promise.resolve(new Response("", { status: 404 }));
    const { bytes, ranges = true } = file;
    if (ranges && Number(from) >= bytes.length) return Promise.resolve(new Response("", { status: 416 }));
    const end = Math.min(Number(to) + 1, bytes.length);
    const isWhole = !ranges || (from === "0" && end === bytes.length);
    const part = isWhole ? bytes : bytes.slice(Number(from), end);
    const headers = {
      "Content-Length": String(part.length),
      "Content-Range": `bytes ${from}-${end - 1}/${bytes.length}`
    };
    return Promise.resolve(new Response(part.slice(), { status: isWhole ? 200 : 206, headers }));
  }
});

vi.mock("@jupyterlab/services", () => ({ ServerConnection }));
vi.mock("@jupyterlab/coreutils", () => ({
  PathExt: {
    basename: (path: string) => path.slice(path.lastIndexOf("/") + 1),
    dirname: (path: string) => path.slice(0, Math.max(0, path.lastIndexOf("/"))),
    join: (...parts: string[]) => parts.filter(Boolean).join("/")
  }
}));

const { RangeSource } = await import("./server_file");

const contents = {
  get: (path: string) => {
    const file = files.get(path);
    if (!file) return Promise.reject(new ServerConnection.ResponseError({ status: 404 }));
    return Promise.resolve({ size: file.bytes.length, last_modified: "now" });
  },
  getDownloadUrl: (path: string) => Promise.resolve(`/files/${encodeURIComponent(path)}`),
  localPath: (path: string) => path.slice(path.indexOf(":") + 1),
  driveName: (path: string) => path.slice(0, Math.max(0, path.indexOf(":")))
} as unknown as Contents.IManager;

const LONG = Uint8Array.from({ length: 200_000 }, (_, i) => (i * 7) % 251);
const open = (path: string) => RangeSource.open(contents, path);
const reasonOf = (act: Promise<unknown>) =>
  act.then(
    () => "none",
    (error: { reason: string; part: string }) => error
  );

afterEach(() => {
  files.clear();
  asked.length = 0;
});

describe("RangeSource", () => {
  it("asks for the parts that are wanted, and once for the beginning", async () => {
    files.set("a/b.pt", { bytes: LONG });
    const source = await open("a/b.pt");
    expect([source.name, source.size]).toEqual(["b.pt", LONG.length]);
    expect([...(await source.read(10, 5))]).toEqual([...LONG.slice(10, 15)]);
    expect([...(await source.read(199_990, 10))]).toEqual([...LONG.slice(199_990)]);
    expect(asked.map(line => line.split(" ")[1])).toEqual(["0-65535", "199990-199999"]);
    expect(await source.read(0, LONG.length)).toEqual(LONG); // answered with 200
    expect(await source.read(LONG.length, 0)).toHaveLength(0);
  });

  it("reads a short file at once, and an empty one not at all", async () => {
    files.set("s", { bytes: LONG.slice(0, 100) });
    files.set("e", { bytes: new Uint8Array(0) });
    expect(await (await open("s")).read(40, 60)).toEqual(LONG.slice(40, 100));
    expect((await open("e")).size).toBe(0);
    expect(asked).toHaveLength(1);
  });

  it("never takes a whole file for a part", async () => {
    const cancelled = vi.spyOn(ReadableStream.prototype, "cancel");
    files.set("large", { bytes: LONG, ranges: false });
    expect(await reasonOf(open("large"))).toMatchObject({
      reason: "unreadable",
      part: expect.stringMatching(/does not send parts/)
    });
    expect(cancelled).toHaveBeenCalled();
    files.set("large", { bytes: LONG });
    const source = await open("large");
    files.set("large", { bytes: LONG, ranges: false });
    expect(await reasonOf(source.read(70_000, 10))).toMatchObject({ reason: "unreadable" });
  });

  it("refuses what lies beyond the end, and what came with another length", async () => {
    files.set("f", { bytes: LONG });
    const source = await open("f");
    for (const [offset, length] of [
      [-1, 2],
      [0, LONG.length + 1],
      [LONG.length, 1],
      [NaN, 1]
    ]) {
      expect(await reasonOf(source.read(offset, length))).toMatchObject({ reason: "truncated" });
    }
    files.set("f", { bytes: LONG.slice(0, 100_000) }); // cut off meanwhile
    expect(await reasonOf(source.read(99_990, 20))).toMatchObject({ reason: "unreadable" });
    expect(await source.lookAgain()).toBe("changed");
    files.delete("f");
    expect(await source.lookAgain()).toBe("gone");
    expect(await reasonOf(open("f"))).toMatchObject({ reason: "missing", part: "f" });
  });

  it("finds what lies beside a file, and nothing else", async () => {
    files.set("drive:a/index.json", { bytes: LONG.slice(0, 9) });
    files.set("drive:a/part 1", { bytes: LONG.slice(0, 20) });
    const source = await open("drive:a/index.json");
    expect((await source.beside("part 1")).size).toBe(20);
    expect(await reasonOf(source.beside("part 2"))).toMatchObject({ reason: "missing", part: "part 2" });
    for (const name of ["../x", "a/b", "..", "", "C:x", "x\0"]) {
      expect(await reasonOf(source.beside(name))).toMatchObject({ reason: "elsewhere" });
    }
  });
});
