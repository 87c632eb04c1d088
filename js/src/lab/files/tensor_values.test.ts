import { execFileSync } from "node:child_process";
import { expect, it, vi } from "vitest";

vi.mock("@jupyterlab/coreutils", () => ({ PageConfig: { getOption: () => "" } }));
vi.mock("@jupyterlab/services", () => ({ KernelMessage: {} }));

const { lineFor } = await import("./server_file");

it("has both texts as data, whatever is in them", () => {
  const odd = [
    '"',
    "'",
    "\\",
    "\\n",
    "\n",
    "\r",
    "é",
    "\u2028",
    "😀",
    "%s",
    "{x}",
    '")); import os; ("',
    "\u0000",
    "${1}",
    ""
  ];
  for (const text of odd) {
    const line = lineFor(text, text);
    expect(line).toMatch(/^[ -~]*$/);
    const [, literal] = /loads\((".*")\)\)\)$/.exec(line) ?? [];
    // the literal as Python reads it is the one as JSON reads it: escapes of both are the same
    expect(JSON.parse(JSON.parse(literal) as string)).toEqual([text, text]);
  }
});

it("is one expression of Python", () => {
  const program =
    "import ast, json, sys; call = ast.parse(sys.stdin.read(), mode='eval').body.args[0].args[0].value; print(json.dumps(ast.literal_eval(call.args[0])))";
  const given = ['a "b" é\n\\', "x.'😀"] as const;
  let printed: string;
  try {
    printed = execFileSync("python3", ["-c", program], { input: lineFor(...given), encoding: "utf8" });
  } catch (error) {
    if ((error as { code?: string }).code === "ENOENT") return; // no Python on this machine
    throw error;
  }
  expect(JSON.parse(JSON.parse(printed) as string)).toEqual(given);
});
