// The widgets of the package, for hosts that load one file: a saved page and notebooks with AMD modules.

export * from "./forward_player";
export * from "./knowledge_explorer";
export * from "./mask_editor";
export * from "./metric_panel";
export * from "./model_graph";
export * from "./workbench";
