// Texts of the model graph: canvas, cards, toolbar, legend, notices.

// Cards

export const call = (number: number, of: number): string => `call ${number} of ${of}`;
export const sideBySide = (first: string, last: string): string => `${first} … ${last} side by side`;
