// Texts of the JupyterLab extension that its translations do not cover: descriptions of plugins, and errors of a server.

export const SETTINGS = "Settings of the modulekg-widgets views.";
export const WIDGETS = "Views of the modulekg-widgets Python package.";
export const SAVED_PICTURES = "Shows the saved picture of a widget without a kernel.";
export const VIEWER = "Opens saved graphs and plans.";
export const MODEL_FILES = "Opens model files without a kernel: contents and sizes.";
export const LAB = "Commands, tabs and the side panel for the models of a notebook's kernel.";

// answers of a server, within a sentence

export const NO_SIZE = "the server reports no size";
export const NO_ANSWER = "the server does not answer";
export const WRONG_PART = "the server sent a wrong part";
export const NOT_LISTED = "the server does not list it";
export const NO_PARTS = "the server does not send parts of files";
export const answered = (status: number) => `the server answered ${status}`;

// answers of a kernel

export const NO_KERNEL = "Needs a running Python kernel with modulekg_widgets. Open a notebook and try again.";
export const NO_READER = "modulekg_widgets in the kernel cannot read model files. Install or update it and try again.";
export const KERNEL_SILENT = "The kernel did not answer. Try again.";
