import { describe, expect, it } from "vitest";
import { MemorySource } from "../../testing/sources";
import { readModelFile } from "./registry";

function indexOf(listed: Readonly<Record<string, string>>, ending: string): MemorySource {
  const text = JSON.stringify({ metadata: { total_size: 4 }, weight_map: listed });
  return new MemorySource(`model${ending}`, new TextEncoder().encode(text));
}

describe.each([".safetensors.index.json", ".bin.index.json"])("an index that ends with %s", ending => {
  it("is shown where none of its files is there", async () => {
    const { tensors, metadata, warnings } = await readModelFile(indexOf({ a: "one.bin", b: "two.bin" }, ending));
    expect(tensors).toEqual([]);
    expect(metadata).toEqual({ total_size: 4 });
    expect(warnings).toEqual(["2 of the files are not there, so their tensors are not shown: one.bin, two.bin"]);
  });

  it.each(["../a.bin", "/a.bin", "sub/a.bin", "", "c:a.bin"])("leads to no other folder: %s", async name => {
    await expect(readModelFile(indexOf({ a: name }, ending))).rejects.toMatchObject({ reason: "elsewhere" });
  });
});
