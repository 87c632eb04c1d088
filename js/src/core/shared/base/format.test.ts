import { expect, it } from "vitest";
import { counted, exactNumber, rangeText, shortBytes, shortColumn, shortNumber } from "./format";

it.each<[number, string]>([
  [0, "0"],
  [7, "7"],
  [999, "999"],
  [1000, "1.00 k"],
  [999_999, "1.00 M"],
  [25_557_032, "25.6 M"],
  [-1234, "−1.23 k"],
  [0.5, "0.5"],
  [0.12345, "0.123"],
  [0.00001234, "1.23e-5"],
  [1e30, "1.00e+30"],
  [999_600, "1.00 M"],
  [123_456, "123 k"],
  [Number.NaN, "NaN"],
  [Number.POSITIVE_INFINITY, "∞"]
])("%d is %s", (value, text) => expect(shortNumber(value)).toBe(text));

it.each<[number, string]>([
  [0, "0 B"],
  [512, "512 B"],
  [1023, "1023 B"],
  [1024, "1.00 KiB"],
  [102_228_128, "97.5 MiB"],
  [1023 * 1024, "1023 KiB"],
  [1023.9 * 1024, "1.00 MiB"]
])("%d bytes are %s", (value, text) => expect(shortBytes(value)).toBe(text));

it.each<[number, string]>([
  [0, "0 ms"],
  [0.01234, "12.3 µs"],
  [1, "1 ms"],
  [12.345, "12.3 ms"],
  [1234.5, "1.23 s"],
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
  [8192, 64_100, "8.19–64.1 k"],
  [312, 295_680, "312 – 296 k"],
  [5, 12, "5 – 12"],
  [1000, 1001, "1.00 k"]
])("has one unit for %d to %d where it is the same", (from, to, text) => expect(rangeText(from, to)).toBe(text));
