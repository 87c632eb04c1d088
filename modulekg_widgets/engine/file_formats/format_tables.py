"""Tables of dtypes, tensor types and names in model files, read from `format_tables.json`.

The page's readers have the same tables: js/src/generated/format_tables.ts is written from that file when the front end
is built. dtypes are named as torch names them, or as the format does where torch has none.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import NamedTuple, TypedDict


class FloatLayout(NamedTuple):
    """Bit layout of a float: sign, exponent and fraction, with the patterns for infinity and NaN."""

    exponent: int  # bits
    fraction: int
    bias: int
    has_infinities: bool  # the largest exponent is of infinities and NaN, as by IEEE 754
    nan: list[int]  # patterns that are NaN, where there are no infinities


class GGMLType(NamedTuple):
    """A tensor type that stores `block` elements in `nbytes` bytes."""

    name: str
    block: int
    nbytes: int


class FormatTables(TypedDict):
    """The tables of the file; rows begin with what the format calls the thing."""

    safetensors_dtypes: list[tuple[str, str, int]]
    onnx_dtypes: list[tuple[int, str, int]]
    pt2_dtypes: list[tuple[int, str, int]]
    pt2_memory_formats: list[tuple[int, str]]
    pt2_layouts: list[tuple[int, str]]
    gguf_numbers: list[tuple[int, str]]
    ggml_types: list[tuple[int, str, int, int]]
    ambiguous_ggml_types: list[tuple[int, str]]
    float_layouts: list[tuple[str, int, int, int, bool, list[int]]]
    torch_bits: dict[str, list[str]]
    torch_storages: dict[str, str]
    safe_globals: dict[str, list[str]]
    script_types: list[str]
    dangerous_modules: list[str]
    dangerous_names: list[str]
    quantized_operators: list[tuple[str, list[int], list[int]]]
    data_movement_operators: list[str]


TABLES: FormatTables = json.loads(
    (files("modulekg_widgets.engine.file_formats") / "format_tables.json").read_text("utf-8")
)

# by the format's name: torch's word, and the bits of an element; the last ones are in no torch yet, or in few
SAFETENSORS_DTYPES = {name: (word, bits) for name, word, bits in TABLES["safetensors_dtypes"]}
# TensorProto.DataType → torch's word, and the bits of an element
ONNX_DTYPES = {number: (word, bits) for number, word, bits in TABLES["onnx_dtypes"]}
# ScalarType of torch/_export/serde/schema.py → torch's word, and the bytes of an element
PT2_DTYPES = {number: (word, nbytes) for number, word, nbytes in TABLES["pt2_dtypes"]}
# MemoryFormat and Layout of the same file
PT2_MEMORY_FORMATS = dict(TABLES["pt2_memory_formats"])
PT2_LAYOUTS = dict(TABLES["pt2_layouts"])
# `enum gguf_type`, as far as it is of numbers
GGUF_NUMBERS = dict(TABLES["gguf_numbers"])
# `enum ggml_type` of ggml/include/ggml.h and the blocks of ggml/src/ggml-common.h in ggml-org/llama.cpp; 31 to 33 are
# no longer written: the blocks of Q4_0 in another order
GGML_TYPES = {row[0]: GGMLType(*row[1:]) for row in TABLES["ggml_types"]}
# numbers that readers use differently, with what each calls them; a type of the table is meant where its bytes fit
AMBIGUOUS_GGML_TYPES = dict(TABLES["ambiguous_ggml_types"])
# floats of 8 and 16 bits, by torch's word
FLOAT_LAYOUTS = {row[0]: FloatLayout(*row[1:]) for row in TABLES["float_layouts"]}
# how many bits an element takes in a pickle of torch, by torch's word
TORCH_BITS = {word: int(bits) for bits, words in TABLES["torch_bits"].items() for word in words}
# by the name of the class: what a storage has; an untyped one has bytes
TORCH_STORAGES = TABLES["torch_storages"]
# by operator, of ONNX and of ONNX Runtime: which inputs are quantized numbers, and which scales and zero points of them
QUANTIZED_OPERATORS = {name: (numbers, scales) for name, numbers, scales in TABLES["quantized_operators"]}
# of ONNX: what gives numbers of its first input as they are
DATA_MOVEMENT_OPERATORS = frozenset(TABLES["data_movement_operators"])
