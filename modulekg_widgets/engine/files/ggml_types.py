"""The types of tensors in GGUF files: the name of each, how many elements a block of it has, and its bytes.

From `enum ggml_type` of ggml/include/ggml.h and the blocks of ggml/src/ggml-common.h in ggml-org/llama.cpp; what torch
has is named as torch names it.
"""

from __future__ import annotations

from typing import NamedTuple


class GGMLType(NamedTuple):
    """A type of elements, which are kept in blocks of `block` elements that take `nbytes` bytes."""

    name: str
    block: int
    nbytes: int


GGML_TYPES = {
    0: GGMLType("float32", 1, 4),
    1: GGMLType("float16", 1, 2),
    2: GGMLType("Q4_0", 32, 18),
    3: GGMLType("Q4_1", 32, 20),
    6: GGMLType("Q5_0", 32, 22),
    7: GGMLType("Q5_1", 32, 24),
    8: GGMLType("Q8_0", 32, 34),
    9: GGMLType("Q8_1", 32, 40),
    10: GGMLType("Q2_K", 256, 84),
    11: GGMLType("Q3_K", 256, 110),
    12: GGMLType("Q4_K", 256, 144),
    13: GGMLType("Q5_K", 256, 176),
    14: GGMLType("Q6_K", 256, 210),
    15: GGMLType("Q8_K", 256, 292),
    16: GGMLType("IQ2_XXS", 256, 66),
    17: GGMLType("IQ2_XS", 256, 74),
    18: GGMLType("IQ3_XXS", 256, 98),
    19: GGMLType("IQ1_S", 256, 50),
    20: GGMLType("IQ4_NL", 32, 18),
    21: GGMLType("IQ3_S", 256, 110),
    22: GGMLType("IQ2_S", 256, 82),
    23: GGMLType("IQ4_XS", 256, 136),
    24: GGMLType("int8", 1, 1),
    25: GGMLType("int16", 1, 2),
    26: GGMLType("int32", 1, 4),
    27: GGMLType("int64", 1, 8),
    28: GGMLType("float64", 1, 8),
    29: GGMLType("IQ1_M", 256, 56),
    30: GGMLType("bfloat16", 1, 2),
    # 31 to 33 are no longer written: the blocks of Q4_0 in another order
    31: GGMLType("Q4_0_4_4", 32, 18),
    32: GGMLType("Q4_0_4_8", 32, 18),
    33: GGMLType("Q4_0_8_8", 32, 18),
    34: GGMLType("TQ1_0", 256, 54),
    35: GGMLType("TQ2_0", 256, 66),
    39: GGMLType("MXFP4", 32, 17),
    40: GGMLType("NVFP4", 64, 36),
    41: GGMLType("Q1_0", 128, 18),
}
# numbers that readers use differently, with what each calls them; a type of the table is meant where its bytes fit
USED_DIFFERENTLY = {
    36: "I2_S of bitnet.cpp or IQ4_NL_4_4 of earlier versions of llama.cpp",
    37: "I8_S of bitnet.cpp or IQ4_NL_4_8 of earlier versions of llama.cpp",
    38: "TL1 of bitnet.cpp or IQ4_NL_8_8 of earlier versions of llama.cpp",
    39: "MXFP4 of llama.cpp or TL2 of bitnet.cpp",
    40: "NVFP4 of llama.cpp or a type of another reader",
    41: "Q1_0 of llama.cpp or a type of another reader",
}
