module.exports = {
  // Module ids from relative names: every checkout folder builds the same bytes.
  optimization: { moduleIds: "named", chunkIds: "deterministic" },
  performance: { hints: false } // the large chunks are loaded with the first widget, not with the page
};
