import { describe, expect, it } from "vitest";
import { MemorySource } from "../../testing/sources";
import { readModelFile } from "./registry";

const encoder = new TextEncoder();

const varint = (value: number): number[] =>
  value < 128 ? [value] : [(value & 127) | 128, ...varint(Math.floor(value / 128))];

function joined(...parts: readonly Uint8Array[]): Uint8Array {
  const whole = new Uint8Array(parts.reduce((total, part) => total + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

function field(number: number, ...parts: readonly Uint8Array[]): Uint8Array {
  const content = joined(...parts);
  return joined(Uint8Array.from([...varint(number * 8 + 2), ...varint(content.length)]), content);
}

const text = (number: number, value: string) => field(number, encoder.encode(value));
const entry = (key: string, value: string) => field(14, text(1, key), text(2, value));

describe("an ONNX file", () => {
  it("may have metadata that are longer than is shown", async () => {
    const long = [entry("names", "é".repeat(600_000)), entry("k".repeat(700_000), "v"), text(6, "d".repeat(1_500_000))];
    const parts = [field(8, Uint8Array.of(16, 18)), field(7), ...long, entry("author", "him")];
    const { metadata } = await readModelFile(new MemorySource("a.onnx", joined(...parts)));
    expect(metadata).toEqual({
      opset: "ai.onnx 18",
      description: `${"d".repeat(199)}…`,
      names: `${"é".repeat(199)}…`,
      [`${"k".repeat(199)}…`]: "v",
      author: "him"
    });
  });
});
