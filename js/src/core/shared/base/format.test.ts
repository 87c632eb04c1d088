import { expect, it } from "vitest";
import { counted, exactNumber, rangeText, shortBytes, shortColumn, shortNumber } from "./format";

it.each<[number, string]>([
  [0, "0"],
  [7, "7"],
  [999, "999"],
  [1000, "1.00\u00a0k"],
  [999_999, "1.00\u00a0M"],
  [25_557_032, "25.6\u00a0M"],
  [-1234, "−1.23\u00a0k"],
  [0.5, "0.5"],
  [0.12345, "0.123"],
  [0.00001234, "1.23e-5"],
  [1e30, "1.00e+30"],
  [999_600, "1.00\u00a0M"],
  [123_456, "123\u00a0k"],
  [Number.NaN, "NaN"],
  [Number.POSITIVE_INFINITY, "∞"]
])("%d is %s", (value, text) => expect(shortNumber(value)).toBe(text));

it.each<[number, string]>([
  [0, "0\u00a0B"],
  [512, "512\u00a0B"],
  [1023, "1023\u00a0B"],
  [1024, "1.00\u00a0KiB"],
  [102_228_128, "97.5\u00a0MiB"],
  [1023 * 1024, "1023\u00a0KiB"],
  [1023.9 * 1024, "1.00\u00a0MiB"]
])("%d bytes are %s", (value, text) => expect(shortBytes(value)).toBe(text));

it.each<[number, string]>([
  [0, "0\u00a0ms"],
  [0.01234, "12.3\u00a0µs"],
  [1, "1\u00a0ms"],
  [12.345, "12.3\u00a0ms"],
  [1234.5, "1.23\u00a0s"],
  [Number.NaN, "NaN"]
])("%d milliseconds are %s", (value, text) => {
  expect(shortColumn("time", value)).toBe(text);
  expect(shortColumn("time_after", value)).toBe(text);
});

it("gives every digit", () => {
  expect(exactNumber(25_557_032)).toBe("25,557,032");
  expect(exactNumber("36893488147419103232")).toBe("36,893,488,147,419,103,232");
  expect(exactNumber(0.1)).toBe("0.1");
  expect(exactNumber(null)).toBe("");
});

it("counts", () => expect([counted(1, "module"), counted(12_000, "module")]).toEqual(["1 module", "12,000 modules"]));

it.each<[number, number, string]>([
  [8192, 64_100, "8.19–64.1\u00a0k"],
  [312, 295_680, "312 – 296\u00a0k"],
  [5, 12, "5 – 12"],
  [1000, 1001, "1.00\u00a0k"]
])("has one unit for %d to %d where it is the same", (from, to, text) => expect(rangeText(from, to)).toBe(text));
