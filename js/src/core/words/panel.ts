// Texts of the side panel.

export const FLOPS = "FLOPs";
export const FLOPS_HELP =
  "Floating-point operations in this module and everything inside; a multiply-add counts as two";

// A group of operators

export const NO_LINE = "line of code unknown";
export const firstRows = (count: string): string => `The first ${count} operators`;

// Input and output

const numbered = (word: string, number: number): string => (number > 0 ? `${word} ${number}` : word);
/** `number`: among several, 0 for the only one. */
export const inputName = (name: string, number: number): string => name || numbered("input", number);
export const outputName = (name: string, number: number): string =>
  name === "" ? numbered("output", number) : `output ${name}`;
