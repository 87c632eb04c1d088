// Files that are no models are called what they are, as tests/files/test_refusals.py has them.

import { gzipSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import { MemorySource } from "../../testing/sources";
import { zipped } from "../../testing/zips";
import { FileProblem, problemMessage, UNTRANSLATED } from "../shared/payload/file_problem";
import { readModelFile } from "./registry";

const bytes = (text: string) => new TextEncoder().encode(text);
const PICKLE = "\u0080\u0002}."; // written as UTF-8, so not one that can be followed
const [POINTER, PAGE] = ["a Git LFS pointer", "a web page, not a model"];
const LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:a\nsize 9\n";

async function problemOf(name: string, content: Uint8Array): Promise<string> {
  try {
    await readModelFile(new MemorySource(name, content));
    return "";
  } catch (error) {
    if (!(error instanceof FileProblem)) throw error;
    return problemMessage(error, UNTRANSLATED);
  }
}

describe("what is not a model", () => {
  it.each([
    ["a.safetensors", "\n\n<!DOCTYPE html><html>", PAGE],
    ["a.gguf", "\ufeff<html lang=en>", PAGE],
    ["c.pt", "<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>", "text, not a model"],
    ["d.safetensors", '{"error":"Repository not found"}', "text, not a model"],
    ["f.bin", "Not Found", "text, not a model (Not Found)"],
    ["h.onnx", LFS, POINTER],
    ["i.gguf", LFS, POINTER],
    ["j.gguf", "\0".repeat(5_000), "download of this file is incomplete"],
    ["__0_0.distcp", "PK\u0003\u0004", "one shard of a distributed checkpoint"],
    ["odd.onnx", PICKLE, "malformed"]
  ])("is called so: %s", async (name, content, told) => {
    expect(await problemOf(name, bytes(content))).toContain(told);
  });

  it("is unpacked first", async () => {
    expect(await problemOf("model.pth.tar", new Uint8Array(gzipSync(bytes("x".repeat(300)))))).toContain("Unpack it");
    const tar = new Uint8Array(1_024);
    tar.set(bytes("storages"));
    tar.set(bytes("ustar"), 257);
    expect(await problemOf("model.pth.tar", tar)).toContain("Unpack it");
  });

  it("is an archive of torch.package, or several archives in a row", async () => {
    const named = zipped([{ name: "model/.data/extern_modules", content: "torch" }]);
    expect(await problemOf("model.pt", named)).toContain("torch.package");
    const one = zipped([{ name: "archive/data.pkl", content: "}." }]);
    expect(await problemOf("model.pt", one)).toBe("");
    const two = new Uint8Array([...one, ...one]);
    expect(await problemOf("model.pt", two)).toContain("a distributed checkpoint");
  });
});
