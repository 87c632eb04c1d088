// The picture on the canvas as plain data, from which the exporters draw.

export interface SceneNode {
  readonly id: string;
  readonly label: string;
  readonly sublabel: string;
  readonly x: number; // centre
  readonly y: number;
  readonly width: number;
  readonly height: number;
  readonly color: string | null;
  readonly kind: "module" | "group" | "fold" | "pseudo" | "operator";
}

export interface SceneEdge {
  readonly source: string;
  readonly target: string;
  readonly kind: "order" | "data";
  readonly label: string;
}

export interface Scene {
  readonly nodes: readonly SceneNode[];
  readonly edges: readonly SceneEdge[];
}

/** What a node is called in full: its path, or its label where it is no module (such ids begin with U+0000). */
export function hoverText(node: SceneNode): string {
  return node.id.startsWith("\u0000") ? node.label : node.id;
}

/** Control characters, lone surrogates and non-characters, which no XML can carry, become U+FFFD. */
export function printable(text: string, keepNewlines = false): string {
  const forbidden = /(?![\t\n\r])\p{Cc}|\p{Cs}|[\ufffe\uffff]/gu;
  const clean = text.replace(forbidden, "\ufffd");
  return keepNewlines ? clean : clean.replace(/[\t\n\r]/g, "\ufffd");
}

/** A file name that every system takes, from a title. */
export function fileName(title: string, extension: string): string {
  const stem = title
    .normalize("NFKD")
    .replace(/[^\w.-]+/g, "_")
    .replace(/^[._-]+|[._-]+$/g, "")
    .slice(0, 80);
  return `${stem || "model"}.${extension}`;
}
