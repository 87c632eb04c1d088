// The entry of the AMD module that classic notebooks and VS Code load.

export * from "./widgets/all";
export { VERSION as version } from "./generated/version";
