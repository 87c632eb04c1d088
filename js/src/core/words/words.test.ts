// Texts on the screen stand in the files of this folder, where a translator finds them, and nowhere else.

import { readdirSync, readFileSync } from "node:fs";
import { join, relative } from "node:path";
import ts from "typescript";
import { expect, it } from "vitest";

const SOURCE = join(__dirname, "..", "..");
const WORDS = "core/words/";
const READERS = "core/files/"; // what is wrong with a file is said where it is found, as Python's readers say it
const PENDING = ["core/knowledge/"]; // folders whose texts stand in their code still
const SENTENCE = /(?:^|[^-\w/.])[A-Za-z]{2,},?[ \u00a0]+[a-z]{2,}(?![-\w/.(])/; // two words in a row
const LABEL = /^[A-Z][a-z]{2,}[…:]?$/; // one with a capital
const STYLE =
  /^mkg-|^[a-z]+(?:-[a-z]+)+ |[{};]|\b(?:px|em|translate|solid|normal)\b|^\(|^[#.@:]|^<|^change:|-gradient\(|\bsans-serif\b/;

function sources(folder: string): string[] {
  return readdirSync(folder, { withFileTypes: true }).flatMap(entry => {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) return ["generated", "testing"].includes(entry.name) ? [] : sources(path);
    return entry.name.endsWith(".ts") && !entry.name.endsWith(".test.ts") ? [path] : [];
  });
}

/** What uses a text, past brackets and the sign between its parts. */
function userOf({ parent }: ts.Node): ts.Node {
  const isSum = ts.isBinaryExpression(parent) && parent.operatorToken.getText() === "+";
  return isSum || ts.isParenthesizedExpression(parent) ? userOf(parent) : parent;
}

// calls whose texts are no user's: selectors, prefixes of keys, names of kinds
const OF_PROGRAM = /(?:^|\.)(?:querySelector(?:All)?|closest|matches|startsWith|modelDefaults|addWidgetExtension)$/;

/** Whether the program compares with a text, imports by it, names a type with it, or works on it. */
function isForTheProgram(node: ts.Node): boolean {
  const parent = userOf(node);
  if (ts.isCallExpression(parent) && OF_PROGRAM.test(parent.expression.getText())) return true;
  if (ts.isBinaryExpression(parent)) return parent.operatorToken.getText().includes("==");
  if (ts.isNewExpression(parent)) return parent.expression.getText() === "Error"; // a defect of ours: nobody's text
  return (
    ts.isCaseClause(parent) ||
    ts.isLiteralTypeNode(parent) ||
    ts.isImportDeclaration(parent) ||
    ts.isExportDeclaration(parent) ||
    ts.isPropertyAccessExpression(parent) || // as "a b".split(" ")
    (ts.isPropertyAssignment(parent) && parent.name === node)
  );
}

/** The text that JupyterLab translates itself: `words.__("…")`. */
const isTranslated = ({ parent }: ts.Node) =>
  ts.isCallExpression(parent) && /\.(?:__|_n)$/.test(parent.expression.getText());

function textOf(node: ts.Node): string | null {
  if (ts.isStringLiteral(node) || ts.isNoSubstitutionTemplateLiteral(node)) return node.text;
  if (!ts.isTemplateExpression(node)) return null;
  return [node.head.text, ...node.templateSpans.map(({ literal }) => literal.text)].join("%");
}

/** What a file would show that stands in its code. */
function strayTexts(name: string, code: string): string[] {
  const file = ts.createSourceFile(name, code, ts.ScriptTarget.Latest, true);
  const found: string[] = [];
  const visit = (node: ts.Node): void => {
    const text = textOf(node);
    const isShown = text !== null && (SENTENCE.test(text) || LABEL.test(text)) && !STYLE.test(text);
    if (isShown && !isForTheProgram(node) && !isTranslated(node)) {
      const { line } = file.getLineAndCharacterOfPosition(node.getStart());
      found.push(`${name}:${line + 1} ${text}`);
    }
    ts.forEachChild(node, visit);
  };
  visit(file);
  return found;
}

it("finds texts in code", () => {
  const code = 'el("p", "mkg-dim", "No channels selected."); if (key === "Escape") throw new Error("no such thing");';
  expect(strayTexts("a.ts", code)).toEqual(["a.ts:1 No channels selected."]);
  expect(strayTexts("a.ts", 'button("Cut"); words.__("Open the file"); name(`${a} of all ${b}`)')).toEqual([
    "a.ts:1 Cut",
    "a.ts:1 % of all %"
  ]);
});

const files = sources(SOURCE).map(path => [relative(SOURCE, path).replaceAll("\\", "/"), path] as const);

it.each(files.filter(([name]) => ![WORDS, READERS, ...PENDING].some(folder => name.startsWith(folder))))(
  "%s has no text of its own",
  (name, path) => {
    expect(strayTexts(name, readFileSync(path, "utf8"))).toEqual([]);
  }
);
