// Texts of the model graph: canvas, cards, toolbar, legend, notices.

// Cards

export const call = (number: number, of: number): string => `call ${number} of ${of}`;
export const sideBySide = (first: string, last: string): string => `${first} … ${last} side by side`;

// Inputs and outputs

export const INPUT = "input";
export const OUTPUT = "output";
/** "input x", and of one that is called so "input". */
export const inputOf = (name: string): string => (/input/i.test(name) ? name : `${INPUT} ${name}`.trim());
/** `number`: among several, 0 for the only one. */
export const outputOf = (name: string, number: number): string => {
  if (name === "") return number > 0 ? `${OUTPUT} ${number}` : OUTPUT;
  return /output/i.test(name) ? name : `${OUTPUT} ${name}`;
};
