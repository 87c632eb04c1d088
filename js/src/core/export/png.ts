// The canvas as it is drawn, as a bitmap.

/** What can draw itself as a bitmap: the graph on the canvas. */
export interface Bitmap {
  exportPng(): Promise<Blob>;
}

export async function toPng(source: Bitmap): Promise<Blob> {
  const blob = await source.exportPng();
  return blob.type === "image/png" ? blob : new Blob([blob], { type: "image/png" });
}
