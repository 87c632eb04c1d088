// Files that were tampered with are read or refused, in time, and nothing but a `FileProblem` comes of them.

import { readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { drawer, mutated } from "../../testing/mutations";
import { MemorySource } from "../../testing/sources";
import { zipped } from "../../testing/zips";
import { FileProblem, problemMessage, UNTRANSLATED } from "../shared/payload/file_problem";
import { readModelFile } from "./registry";

const FOLDER = join(dirname(fileURLToPath(import.meta.url)), "../../../../tests/files/golden");
const EXPECTED = ".expected.json";
const FILES = readdirSync(FOLDER)
  .filter(name => name.endsWith(EXPECTED))
  .map(name => name.slice(0, -EXPECTED.length))
  .sort();
const MUTANTS = 200; // of each file; each format has several files
const MAX_MS = 2_000;

/** The sentence that is told of a file; "" for one that is read. */
async function problemOf(name: string, content: Uint8Array): Promise<string> {
  const before = performance.now();
  try {
    await readModelFile(new MemorySource(name, content));
    return "";
  } catch (error) {
    if (!(error instanceof FileProblem)) throw error;
    return problemMessage(error, UNTRANSLATED);
  } finally {
    expect(performance.now() - before).toBeLessThan(MAX_MS);
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
const many = (count: number, make: (at: number) => string) =>
  Array.from({ length: count }, (_, at) => make(at)).join("");
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
// parts of pickles without bytes beyond 127
const text = (content: string) => `X${u32(content.length)}${content}`;
const global = (module: string, name: string) => `c${module}\n${name}\n`;
const KEPT = u32(99);
const storage = (more = "") =>
  `(${text("storage")}${global("torch", "FloatStorage")}${text("0")}${text("cpu")}K\x01${more}tQ`;
const tensor = (kept: string, more = "") =>
  `${global("torch._utils", "_rebuild_tensor_v2")}(${kept}K\0(K\x01t(K\x01tI00\nN${more}tR`;
/** A list that has one value many times. */
const often = (made: string, count = 20_000) => `${made}r${KEPT}0](${`j${KEPT}`.repeat(count)}e.`;
/** A module with one setting many times. */
const settings = (made: string) =>
  `${made}r${KEPT}0${global("m", "Net")})R}(${text("_parameters")}}${text("_modules")}}` +
  `${many(50_000, at => `${text(`s${at}`)}j${KEPT}`)}ub.`;
const checkpoint = (pickle: string) =>
  zipped([
    { name: "a/data.pkl", content: pickle },
    { name: "a/data/0", content: "\0".repeat(4) }
  ]);
/** A file of torch's old format in bytes of a pickle. */
const LEGACY = `\x80\x02\x8a\x0a${String.fromCharCode(0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19)}.`;
const inline = (content: string) =>
  `${global("torch.storage", "_load_from_bytes")}(B${u32(content.length)}${content}tR`;
/** An operator of a local function F, and the function. */
const called = (name: string) => field(1, field(3, name) + field(4, "F") + field(7, "d"));
const graphOf = (graph: string, rest = "") => bytes(field(8, "\x10\x12") + field(7, graph) + rest);
const functionOf = (node: string) => field(25, field(1, "F") + field(10, "d") + field(7, node).repeat(20));
const scopes = (list: string) =>
  ["name_scopes", "class_hierarchy"].map(key => field(9, field(1, `pkg.torch.onnx.${key}`) + field(2, list))).join("");
const MANY_SCOPES = `['a', ${"'',".repeat(5_000)}]`;
const TWICE = '"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}';
const put = (index: number) => `r${u32(index)}`;
const ARRAYS = u32(9) + u64(1) + u32(0) + u64(8) + "\x01".repeat(8); // an array of one array of eight bytes
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
    ["a memo of 5,000 numbers far apart", "a.pkl", bytes(`\x80\x02N${many(5_000, at => put(2 ** 23 + at))}.`)],
    ["a text of 4 GB", "a.pkl", bytes("\x80\x02X\xff\xff\xff\xffa.")],
    ["a million arrays", "a.gguf", gguf(0, 1, u64(1) + "a" + u32(9) + u32(9) + u64(150_000) + ARRAYS.repeat(150_000))],
    ["millions of names", "a.safetensors", header(`{"__metadata__":{${many(610_000, at => `"${at}":"",`)}}}`)],
    ["millions of sizes", "a.safetensors", header(`{"a":[${"1,".repeat(6_100_000)}1]}`)],
    [
      "pairs that are none",
      "a.pkl",
      bytes(often(`${global("collections", "OrderedDict")}((${"N".repeat(100_000)}ltR`))
    ],
    [
      "a storage that is read for long",
      "a.pkl",
      bytes(`}${text("w")}${tensor(inline(LEGACY + "N0".repeat(1_000)))}s.`)
    ],
    ["no archive", "a.pt2", bytes("PK\x03\x04" + "\0".repeat(500))]
  ])("is refused: %s", async (_, name, content) => {
    expect(await problemOf(name, content)).toMatch(/^This file /);
  });

  it.each<[string, string, Uint8Array]>([
    [
      "a long text as a number",
      "a.pt",
      checkpoint(
        settings(
          `${global("numpy.core.multiarray", "scalar")}(${global("numpy", "dtype")}(${text("f8")}tR` +
            `${text("a".repeat(2 ** 20))}tR`
        )
      )
    ],
    ["a long size", "a.pt", checkpoint(settings(`${global("torch", "Size")}((${"K\x01".repeat(500_000)}ttR`))],
    ["a long list", "a.pt", checkpoint(settings(`](${"K\x01".repeat(500_000)}e`))],
    ["a long key", "a.pt", checkpoint(often(`}(${"K\x01".repeat(500_000)}t]Nas`))],
    ["a long storage", "a.pt", checkpoint(often(tensor(storage("N".repeat(1_000_000)))))],
    [
      "long metadata of a tensor",
      "a.pt",
      checkpoint(often(tensor(storage(), `}(${many(100_000, at => `J${u32(at & 0x7f7f7f)}I00\n`)}u`)))
    ],
    [
      "a scope of functions",
      "a.onnx",
      graphOf(called("").repeat(1_000), functionOf(field(4, "A") + scopes(MANY_SCOPES)))
    ],
    [
      "a deep module of functions",
      "a.onnx",
      graphOf(
        many(1_000, at => called(`/${"a.".repeat(9_000)}b/${at}`)),
        functionOf(field(4, "A"))
      )
    ],
    [
      "deep names",
      "a.onnx",
      graphOf(many(300, at => field(5, `\x08\0\x10\x01${field(8, `${at}.${"a.".repeat(7_900)}w`)}`)))
    ]
  ])("is read in time: %s that is reached from many places", async (_, name, content) => {
    expect(await problemOf(name, content)).toBe("");
  });

  it("may have a memo in any order", async () => {
    const memo = `${many(50_000, at => put(50_000 - at))}${put(2 ** 30)}\x94j${u32(2 ** 30)}j${u32(50_001)}`;
    expect(await problemOf("a.pkl", bytes(`\x80\x04}${memo}.`))).toBe("");
  });

  it("may name other files, and leads nowhere", async () => {
    const index = '{"weight_map": {"a": "../secret.safetensors"}}';
    expect(await problemOf("a.safetensors.index.json", bytes(index))).toContain("outside its folder");
    const entry = field(13, field(1, "location") + field(2, "/etc/passwd")) + "\x70\x01";
    const model = bytes(field(8, "\x10\x12") + field(7, field(5, `\x10\x01${field(8, "w")}${entry}`)));
    expect(await problemOf("a.onnx", model)).toContain("outside its folder");
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
