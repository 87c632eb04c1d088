// What an operator is called where people read it: "_log_softmax" is how torch does a log_softmax.

/** Parts of names that say how torch does it, and not what. */
const HOW = new Set(
  (
    "unsafe safe native fused flash efficient cudnn miopen mkldnn mkl mps overrideable legit functional impl helper " +
    "interface"
  ).split(" ")
);
/** Ends that say for what, or what else comes back. */
const END = /_(?:for_\w+|with_indices|no_training|no_update|with_update)$/;
/** Of those that nothing in their names leads to. */
const OTHERS: ReadonlyMap<string, string> = new Map([
  ["local_scalar_dense", "item"],
  ["constant_pad_nd", "pad"]
]);

/** "aten::_unsafe_view" as "view"; what writes in place keeps the underscore at its end. */
export function operatorWord(name: string): string {
  const own = name.slice(name.lastIndexOf(":") + 1);
  const isInner = own.startsWith("_");
  const inPlace = /[^_]_$/.test(own) ? "_" : "";
  const plain = own.replace(/^_+|_+$/g, "");
  const known = OTHERS.get(plain);
  if (known !== undefined) return known;
  const what = plain
    .split("_")
    .filter(part => !HOW.has(part))
    .join("_")
    .replace(END, "");
  return ((isInner ? what.replace(/_copy$/, "") : what) || plain || own) + inPlace;
}
