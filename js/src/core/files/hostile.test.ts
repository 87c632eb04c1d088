// Files that were tampered with are read or refused, in time, and nothing but a `FileProblem` comes of them.

import { readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { drawer, mutated } from "../../testing/mutations";
import { MemorySource } from "../../testing/sources";
import { zipped } from "../../testing/zips";
import { FileProblem, sentence } from "../shared/file_problem";
import { ENGLISH } from "../shared/words";
import { readModelFile } from "./registry";

const FOLDER = join(dirname(fileURLToPath(import.meta.url)), "../../../../tests/files/golden");
const EXPECTED = ".expected.json";
const FILES = readdirSync(FOLDER)
  .filter(name => name.endsWith(EXPECTED))
  .map(name => name.slice(0, -EXPECTED.length))
  .sort();
const MUTANTS = 200; // of each file; each format has several files
const MOST_MS = 2_000;

/** The sentence that is told of a file; "" for one that is read. */
async function problemOf(name: string, content: Uint8Array): Promise<string> {
  const before = performance.now();
  try {
    await readModelFile(new MemorySource(name, content));
    return "";
  } catch (error) {
    if (!(error instanceof FileProblem)) throw error;
    return sentence(error, ENGLISH);
  } finally {
    expect(performance.now() - before).toBeLessThan(MOST_MS);
  }
}

describe.each(FILES)("%s", name => {
  const content = new Uint8Array(readFileSync(join(FOLDER, name)));

  it("is read or refused wherever it is cut off", { timeout: 60_000 }, async () => {
    const step = Math.max(1, Math.floor(content.length / 150));
    for (let length = 0; length < content.length; length += step) {
      const told = await problemOf(name, content.subarray(0, length));
      expect(told === "" || /^This file /.test(told)).toBe(true);
    }
  });

  it("is read or refused after changes", { timeout: 60_000 }, async () => {
    const draw = drawer(7);
    const told = [];
    for (let count = 0; count < MUTANTS; count++) told.push(await problemOf(name, mutated(content, draw)));
    expect(told.filter(sentence => sentence !== "").length).toBeGreaterThan(0);
    // a sentence is one line, and nothing that is hidden stands in it
    expect(told.filter(sentence => sentence.length > 300 || /[\n\0\u202e]/.test(sentence))).toEqual([]);
  });
});

const bytes = (text: string) => Uint8Array.from(text, character => character.charCodeAt(0));
const u32 = (value: number) => [0, 8, 16, 24].map(shift => String.fromCharCode((value >>> shift) & 255)).join("");
const u64 = (low: number, high = 0) => u32(low) + u32(high);
const header = (json: string) => bytes(u64(json.length) + json);
const gguf = (tensors: number, keys: number, rest = "") => bytes(`GGUF${u32(3)}${u64(tensors)}${u64(keys)}${rest}`);
const varint = (value: number): string =>
  value < 128 ? String.fromCharCode(value) : String.fromCharCode((value & 127) | 128) + varint(Math.floor(value / 128));
const field = (number: number, content: string) => varint(number * 8 + 2) + varint(content.length) + content;

/** Graphs within attributes of operators within graphs. */
function nested(depth: number): string {
  let graph = "";
  for (let left = depth; left > 0; left--) graph = field(1, field(5, field(6, graph)));
  return graph;
}

/** Tuples of two times the one before: a pickle of a few bytes that would have 2^depth values. */
const bomb = (depth: number) => `\x80\x02)${"q\0h\0\x86".repeat(depth)}.`;
const TWICE = '"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}';
const MARKED = `\x80\x02${"(".repeat(200_000)}`;

describe("a forged file", () => {
  it.each<[string, string, Uint8Array]>([
    ["a header of 2^63 bytes", "a.safetensors", bytes(u64(0, 0x7fffffff) + "{}")],
    ["a deep header", "a.safetensors", header(`{"a":${"[".repeat(100_000)}`)],
    ["a tensor twice", "a.safetensors", header(`{${TWICE},${TWICE}}`)],
    [
      "a size of 2^60",
      "a.safetensors",
      header('{"a":{"dtype":"U8","shape":[1152921504606846976,16],"data_offsets":[0,0]}}')
    ],
    ["a gap", "a.safetensors", header('{"a":{"dtype":"U8","shape":[0],"data_offsets":[5,5]}}')],
    ["a billion tensors", "a.gguf", gguf(2 ** 30, 0)],
    ["a billion keys", "a.gguf", gguf(0, 2 ** 30)],
    ["a text beyond the end", "a.gguf", gguf(0, 1, u64(1) + "a" + u32(8) + u64(2 ** 31))],
    ["deep arrays", "a.gguf", gguf(0, 1, u64(1) + "a" + (u32(9) + u64(0)).repeat(1) + (u32(9) + u64(1)).repeat(9))],
    ["deep graphs", "a.onnx", bytes(field(8, "\x10\x12") + field(7, nested(60)))],
    ["a field without an end", "a.onnx", bytes("\x3a\xff\xff\xff\xff\xff\xff\xff\xff\x7f")],
    ["a million empty operators", "a.onnx", bytes(field(8, "\x10\x12") + field(7, "\x0a\0".repeat(1_000_000)))],
    ["many values that are few", "a.pkl", bytes(bomb(200))],
    ["marks without an end", "a.pkl", bytes(MARKED)],
    ["a million dicts", "a.pkl", bytes(`\x80\x02${"}".repeat(1_000_000)}.`)],
    ["three million tuples", "a.pkl", bytes(`\x80\x02)${"\x85".repeat(3_000_000)}.`)],
    ["a stack that is empty", "a.pkl", bytes("\x80\x02.")],
    ["a memo that is empty", "a.pkl", bytes("\x80\x02h\x05.")],
    ["a text of 4 GB", "a.pkl", bytes("\x80\x02X\xff\xff\xff\xffa.")],
    ["no archive", "a.pt2", bytes("PK\x03\x04" + "\0".repeat(500))]
  ])("is refused: %s", async (_, name, content) => {
    expect(await problemOf(name, content)).toMatch(/^This file /);
  });

  it("may name other files, and leads nowhere", async () => {
    const index = '{"weight_map": {"a": "../secret.safetensors"}}';
    expect(await problemOf("a.safetensors.index.json", bytes(index))).toContain("may lead anywhere");
    const entry = field(13, field(1, "location") + field(2, "/etc/passwd")) + "\x70\x01";
    const model = bytes(field(8, "\x10\x12") + field(7, field(5, `\x10\x01${field(8, "w")}${entry}`)));
    expect(await problemOf("a.onnx", model)).toContain("may lead anywhere");
  });

  it("runs nothing that a pickle names, and says what it names", async () => {
    const source = new MemorySource("a.pt", bytes("\x80\x02cos\nsystem\nX\x04\0\0\0true\x85R."));
    const { classes, warnings } = await readModelFile(source);
    expect(classes).toEqual(["os.system"]);
    expect(warnings[0]).toContain("do not load it");
  });
});

describe("an archive", () => {
  const program = JSON.stringify({ graph_module: { graph: {}, signature: {} } });

  it("may be compressed", async () => {
    const content = zipped([{ name: "a/models/model.json", content: program, isDeflated: true }]);
    expect(await problemOf("a.pt2", content)).toBe("");
  });

  it.each([
    ["says less than it inflates to", { size: 50 }],
    ["says more than it inflates to", { size: 2 ** 31 }]
  ])("that %s is refused", async (_, lie) => {
    const zeros = "0".repeat(20_000_000);
    const content = zipped([{ name: "a/models/model.json", content: zeros, isDeflated: true, ...lie }]);
    expect(await problemOf("a.pt2", content)).toMatch(/^This file /);
  });

  it("whose members overlap is refused", async () => {
    const members = Array.from({ length: 50 }, (_, at) => ({
      name: `a/data/${at}`,
      content: program,
      isDeflated: true
    }));
    expect(await problemOf("a.pt", zipped(members, true))).toContain("overlaps");
  });
});
