// Texts of the side panel.

export const FLOPS = "FLOPs";
export const FLOPS_HELP =
  "Floating-point operations in this module and everything inside; a multiply-add counts as two";

// A group of operators

export const NO_LINE = "line of code unknown";
export const firstRows = (count: string): string => `The first ${count} operators`;
