"""Names of torch in pickles: dtypes, storages, rebuild functions, and the allow-list of its own safe loader.

The last is what `torch/_weights_only_unpickler.py` lists; the tests compare.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from modulekg_widgets.engine.errors import printable

_BYTE_DTYPES = (
    "uint8 int8 bool qint8 quint8 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu "
    "float4_e2m1fn_x2 bits8 bits1x8 bits2x4 bits4x2 "
    "int1 int2 int3 int4 int5 int6 int7 uint1 uint2 uint3 uint4 uint5 uint6 uint7"
)
# how many bits an element takes, by torch's word
BITS = {
    **dict.fromkeys(_BYTE_DTYPES.split(), 8),
    **dict.fromkeys(("int16", "uint16", "float16", "bfloat16", "bits16"), 16),
    **dict.fromkeys(("int32", "uint32", "float32", "complex32", "qint32", "bcomplex32"), 32),
    **dict.fromkeys(("int64", "uint64", "float64", "complex64"), 64),
    "complex128": 128,
    "quint4x2": 4,
    "quint2x4": 2,
}

# by the name of the class: what a storage has; an untyped one has bytes
STORAGES = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexDoubleStorage": "complex128",
    "ComplexFloatStorage": "complex64",
    "QUInt8Storage": "quint8",
    "QInt8Storage": "qint8",
    "QInt32Storage": "qint32",
    "QUInt4x2Storage": "quint4x2",
    "QUInt2x4Storage": "quint2x4",
    "UntypedStorage": "uint8",
}

_DENSE_TYPES = ("BFloat16", "Byte", "Char", "Double", "Float", "Half", "Int", "Long", "Short")
_CUDA_STORAGES = [name for name in STORAGES if not name.startswith(("Q", "U"))]
_REBUILD_NAMES = (
    "tensor tensor_v2 tensor_v3 parameter parameter_with_state qtensor sparse_tensor nested_tensor wrapper_subclass "
    "meta_tensor_no_storage device_tensor_from_numpy device_tensor_from_cpu_tensor"
)
# what stands in files under these names cannot change, though it is private: torch reads its old files by them
REBUILD = {what: f"torch._utils._rebuild_{what}" for what in _REBUILD_NAMES.split()}
REBUILD["from_type_v2"] = "torch._tensor._rebuild_from_type_v2"
LEGACY_REBUILD = "torch._utils._rebuild_xla_tensor"  # which torch no longer holds to be safe
INLINE_STORAGE = "torch.storage._load_from_bytes"
LAYOUT = "torch.serialization._get_layout"
SIZE, PARAMETER = "torch.Size", "torch.nn.parameter.Parameter"
SAFE_GLOBALS = frozenset(
    (
        *(f"torch.{name}" for name in BITS),
        *(f"torch.{name}" for name in STORAGES if name != "UntypedStorage"),
        *(f"torch.cuda.{name}" for name in _CUDA_STORAGES),
        *(f"torch.{place}{name}Tensor" for place in ("", "cuda.") for name in (*_DENSE_TYPES, "Bool")),
        *(f"torch.{place}sparse.{name}Tensor" for place in ("", "cuda.") for name in _DENSE_TYPES),
        *(f"torch.per_tensor_{kind}" for kind in ("affine", "symmetric")),
        *(f"torch.per_channel_{kind}" for kind in ("affine", "symmetric", "affine_float_qparams")),
        *REBUILD.values(),
        LAYOUT,
        SIZE,
        PARAMETER,
        "torch.Tensor",
        "torch.device",
        "torch.storage.TypedStorage",
        "torch.storage.UntypedStorage",
        "collections.Counter",
        "collections.OrderedDict",
        "_codecs.encode",
        "builtins.bytearray",
        "builtins.complex",
        "builtins.set",
    )
)
# what torch writes into the pickles of TorchScript, whose own loader takes it for types of values and imports nothing
SCRIPT_TYPES = frozenset(
    f"torch.jit._pickle.{name}"
    for name in (
        "build_intlist",
        "build_tensorlist",
        "build_doublelist",
        "build_boollist",
        "build_tensor_from_id",
        "restore_type_tag",
    )
)

# what reaches beyond the model, to be named first: all of some modules, and some of others
_DANGEROUS_MODULE_TEXT = (
    "os posix nt subprocess sys shutil socket pty runpy importlib ctypes _ctypes marshal code codeop pickle _pickle "
    "webbrowser multiprocessing asyncio threading _thread signal http urllib ftplib smtplib tempfile io _io pip timeit "
    "pdb bdb cProfile profile operator _operator"
)
_DANGEROUS_NAME_TEXT = (
    "types.FunctionType types.CodeType copyreg._extension_registry torch.load "
    "torch.hub.load torch.serialization.load numpy.load "
    "builtins.eval builtins.exec builtins.compile builtins.open builtins.__import__ builtins.getattr builtins.setattr "
    "builtins.delattr builtins.globals builtins.locals builtins.vars builtins.input builtins.breakpoint "
    "builtins.apply builtins.execfile builtins.map builtins.filter"
)
_DANGEROUS_MODULES = frozenset(_DANGEROUS_MODULE_TEXT.split())
_DANGEROUS_NAMES = frozenset(_DANGEROUS_NAME_TEXT.split())
MAX_LISTED = 8


def is_dangerous(path: str) -> bool:
    """True if an imported name reaches files, processes or other code."""
    return path.partition(".")[0] in _DANGEROUS_MODULES or path.partition("[")[0] in _DANGEROUS_NAMES


def code_warnings(classes: Iterable[str], loader: str, safe: Collection[str] = SAFE_GLOBALS) -> tuple[str, ...]:
    """Warnings for names beyond the allow-list of the safe loader, the most dangerous ones first."""
    beyond = sorted((path for path in classes if path not in safe), key=lambda path: (not is_dangerous(path), path))
    if not beyond:
        return ()
    named = ", ".join(printable(path) for path in beyond[:MAX_LISTED]) + (", …" if len(beyond) > MAX_LISTED else "")
    text = f"{loader} would import and run code that this file names, beyond what torch holds to be safe: {named}"
    if is_dangerous(beyond[0]):
        return (f"{text}. That may do anything on your computer: do not load it",)
    return (f"{text}. Load it only if you trust where it comes from",)
