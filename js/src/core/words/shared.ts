// Texts of all widgets.

type Pane = "left" | "right" | "both";
const PANES = { left: "tree", right: "details", both: "side panes" };

export const widthOf = (pane: Pane) => `Width of the ${PANES[pane]}`;
export const hidePane = (pane: Pane) => `Hide the ${PANES[pane]}`;
export const showPane = (pane: Pane) => `Show the ${PANES[pane]}`;
