// The types of tensors in GGUF files: the name of each, how many elements a block of it has, and its bytes.
// As modulekg_widgets/engine/files/formats/gguf.py has them.

export interface GgmlType {
  readonly name: string;
  readonly block: number;
  readonly nbytes: number;
}

const TABLE: readonly (readonly [kind: number, name: string, block: number, nbytes: number])[] = [
  [0, "float32", 1, 4],
  [1, "float16", 1, 2],
  [2, "Q4_0", 32, 18],
  [3, "Q4_1", 32, 20],
  [6, "Q5_0", 32, 22],
  [7, "Q5_1", 32, 24],
  [8, "Q8_0", 32, 34],
  [9, "Q8_1", 32, 40],
  [10, "Q2_K", 256, 84],
  [11, "Q3_K", 256, 110],
  [12, "Q4_K", 256, 144],
  [13, "Q5_K", 256, 176],
  [14, "Q6_K", 256, 210],
  [15, "Q8_K", 256, 292],
  [16, "IQ2_XXS", 256, 66],
  [17, "IQ2_XS", 256, 74],
  [18, "IQ3_XXS", 256, 98],
  [19, "IQ1_S", 256, 50],
  [20, "IQ4_NL", 32, 18],
  [21, "IQ3_S", 256, 110],
  [22, "IQ2_S", 256, 82],
  [23, "IQ4_XS", 256, 136],
  [24, "int8", 1, 1],
  [25, "int16", 1, 2],
  [26, "int32", 1, 4],
  [27, "int64", 1, 8],
  [28, "float64", 1, 8],
  [29, "IQ1_M", 256, 56],
  [30, "bfloat16", 1, 2],
  [31, "Q4_0_4_4", 32, 18],
  [32, "Q4_0_4_8", 32, 18],
  [33, "Q4_0_8_8", 32, 18],
  [34, "TQ1_0", 256, 54],
  [35, "TQ2_0", 256, 66],
  [39, "MXFP4", 32, 17],
  [40, "NVFP4", 64, 36],
  [41, "Q1_0", 128, 18]
];

export const GGML_TYPES: ReadonlyMap<number, GgmlType> = new Map(
  TABLE.map(([kind, name, block, nbytes]) => [kind, { name, block, nbytes }])
);

/** Numbers that readers use differently, with what each calls them; a type of the table is meant where its bytes fit. */
export const USED_DIFFERENTLY: ReadonlyMap<number, string> = new Map([
  [36, "I2_S of bitnet.cpp or IQ4_NL_4_4 of earlier versions of llama.cpp"],
  [37, "I8_S of bitnet.cpp or IQ4_NL_4_8 of earlier versions of llama.cpp"],
  [38, "TL1 of bitnet.cpp or IQ4_NL_8_8 of earlier versions of llama.cpp"],
  [39, "MXFP4 of llama.cpp or TL2 of bitnet.cpp"],
  [40, "NVFP4 of llama.cpp or a type of another reader"],
  [41, "Q1_0 of llama.cpp or a type of another reader"]
]);
