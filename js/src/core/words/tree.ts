// Texts of the module tree and of its search.

export const MODULES = "Modules";
export const matchesInside = (count: number): string => `, ${count} matches inside`;
export const copies = (count: string): string => `(${count} ${count === "1" ? "copy" : "copies"})`;
export const SHOW_COPIES = "Show these copies, each as a row and on the canvas";
export const IN_GROUP = ", in the selected channel group";
export const EQUAL = "identical";
export const SIMILAR = "similar";
export const shareOf = (amount: string, share: string, parent: string): string => `${amount}: ${share} % of ${parent}`;
export { THE_WHOLE_MODEL as WHOLE } from "./shared";

// Search

export const SEARCH = "Search modules";
export const placeholder = (byClass: string): string => `Search: text, ${byClass}, params > 1M`;
export const help = (byClass: string): string =>
  `Text finds paths and classes.\n${byClass} finds a class.\nparams > 1M, bytes <= 2k compare numbers.\nAll terms must match.`;
export const classMissing = (example: string): string => `Write a class after “class:”, for example class:${example}.`;
export const unknownField = (name: string, known: string): string => `No field “${name}”. Fields: ${known}.`;
export const unknownWord = (word: string, known: string): string => `No search word “${word}”. Use text, ${known}.`;
export const fieldMissing = (sign: string, known: string): string => `Write a field before “${sign}”: ${known}.`;
export const numberMissing = (before: string, field: string): string =>
  `Write a number after “${before}”, for example ${field} > 1M.`;
export const noMatch = (term: string): string => `No module matches “${term}”`;
export const notTogether = (count: number): string => `No module matches all ${count} terms`;
export const matches = (count: string): string => `${count} ${count === "1" ? "match" : "matches"}`;
