// What modules of files are called whose classes no file tells: by a tensor that no other kind has, or by their weights.

export const CONTAINER = "module";
export const OTHER = "tensors";
export const BY_NAME: ReadonlyMap<string, string> = new Map([
  ["running_mean", "batch norm"],
  ["weight_ih_l0", "recurrent"],
  ["in_proj_weight", "attention"]
]);
export const BY_DIMENSIONS: ReadonlyMap<number, string> = new Map([
  [1, "norm"],
  [2, "matrix"],
  [3, "convolution 1d"],
  [4, "convolution 2d"],
  [5, "convolution 3d"]
]);
export const KINDS: ReadonlySet<string> = new Set([CONTAINER, OTHER, ...BY_NAME.values(), ...BY_DIMENSIONS.values()]);
