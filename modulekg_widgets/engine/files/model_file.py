"""Model files as Python objects: `open_file` and `ModelFile`.

For checkpoints and exported models of any origin that one wants to see, compare or search before loading them. The
reader of the format (`readers.py`) parses headers, directories and pickles within bounds and returns plain records
(`records.py`); nothing is imported, unpickled or run, and no weights are read until `tensor` is called, which maps
them into memory. `hierarchy` gives the modules, as `mk.hierarchy` does of a model; `graph` the operators of exported
models. A `ModelFile` can be passed to `mk.ModelGraph`, `mk.diff` and `mk.fingerprint`.

Limits: quantised GGUF tensors have shape and bytes, but no values; classes are known only if the format stores them.

    file = mk.open_file("model.safetensors")
    file.tensors()
    file.tensor("encoder.weight")
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeGuard

import torch
from torch import nn

from modulekg_widgets.engine.errors import ModelFileError, UnknownNameError, a_type, closest_match_hint, printable
from modulekg_widgets.engine.files import formats as _formats  # noqa: F401  they register themselves
from modulekg_widgets.engine.files.config_json import add_config
from modulekg_widgets.engine.files.formats.pickle.distributed_checkpoint import METADATA, SHARD_EXTENSION
from modulekg_widgets.engine.files.readers import extension_of, read_contents
from modulekg_widgets.engine.files.records import FileContents, OperatorGraph, TensorRecord, ValueRecord
from modulekg_widgets.engine.files.skeleton import skeleton
from modulekg_widgets.engine.files.source import FileSource, open_source
from modulekg_widgets.engine.files.tensor_reading import decode_tensor, map_tensor, reopened, torch_dtype
from modulekg_widgets.engine.identity.hierarchy import Hierarchy
from modulekg_widgets.engine.identity.skeleton_source import SkeletonSource
from modulekg_widgets.engine.safe_files import PATHLIKE

if TYPE_CHECKING:
    import networkx as nx
    import pandas as pd


# --------------------
# Graph of operators as a networkx MultiDiGraph, with an edge for each value that is produced and read.


INPUT, OUTPUT = "input", "output"


def to_networkx(graph: OperatorGraph, tensors: frozenset[str]) -> nx.MultiDiGraph:
    """Nodes by name with `op`, `module`, `attributes`, `tensors`, `source`; edges with `value`, `shape`, `dtype`.

    Inputs and outputs of the model are nodes, too, of the operators "input" and "output".
    """
    import networkx as nx

    found: nx.MultiDiGraph = nx.MultiDiGraph()
    made_by: dict[str, str] = {}
    taken = {operator.name for operator in graph.operators}

    again: Counter[str] = Counter()

    def port(name: str, op: str) -> str:
        node = name
        while node in taken:
            again[name] += 1
            node = f"{name} ({op} {again[name]})"
        taken.add(node)
        found.add_node(node, op=op, module="", attributes={}, tensors=(), source="")
        return node

    for name in graph.inputs:
        made_by[name] = port(name, INPUT)
    for each in graph.operators:
        found.add_node(
            each.name,
            op=each.op,
            module=each.module,
            attributes=dict(each.attributes),
            tensors=tuple(name for name in each.inputs if name in tensors),
            source=each.source,
        )
        made_by.update(dict.fromkeys(each.outputs, each.name))
    for each in graph.operators:
        for name in each.inputs:
            if name in made_by:
                _connect(found, graph, made_by[name], each.name, name)
    for name in graph.outputs:
        node = port(name, OUTPUT)
        if name in made_by:
            _connect(found, graph, made_by[name], node, name)
    return found


def _connect(found: nx.MultiDiGraph, graph: OperatorGraph, giver: str, taker: str, value: str) -> None:
    known = graph.values.get(value, ValueRecord())
    found.add_edge(giver, taker, value=value, shape=known.shape, dtype=known.dtype)


# ----------------------------------------


COLUMNS = ("name", "shape", "dtype", "bytes")
# what a folder is opened by, in this order
DEFAULT_NAMES = (
    "model.safetensors.index.json", "model.safetensors", "diffusion_pytorch_model.safetensors.index.json",
    "diffusion_pytorch_model.safetensors", "pytorch_model.bin.index.json", "pytorch_model.bin", METADATA,
    "adapter_model.safetensors", "adapter_model.bin",
)  # fmt: skip

MAX_FOLDER_ENTRIES = 10_000  # names in a folder


class ModelFile(SkeletonSource):
    """A file with a model, opened by `open_file`: wherever a model is looked at, it can be passed.

    Parameters
    ----------
    path : str
        Where the file lies.
    contents : FileContents
        What its reader tells of it.
    size : int
        Bytes that the file had.

    Attributes
    ----------
    format : str
        "safetensors", "onnx", "pt2", "torchscript", "checkpoint", "pickle", "dcp" or "gguf", or another reader's word.
    title : str
        The class of the model where that is known, else the file's name.
    metadata : dict
        What the file, and a config.json beside it, say of the model: plain values by name.
    classes : tuple of str
        The classes and functions that the file names, and that whoever loads it would import or call.
    warnings : tuple of str
        What to know before it is loaded, such as code that would run.

    Examples
    --------
    >>> import tempfile
    >>> import torch
    >>> import modulekg_widgets as mk
    >>> path = tempfile.mkdtemp() + "/model.pt"
    >>> torch.save(torch.nn.Linear(4, 2).state_dict(), path)
    >>> file = mk.open_file(path)
    >>> file
    <ModelFile 'model.pt': checkpoint, 2 tensors, 40 bytes>
    >>> file.tensor("bias").shape, file.hierarchy().root.parameters
    (torch.Size([2]), 10)
    """

    def __init__(self, path: str, contents: FileContents, size: int) -> None:
        self.path, self.contents, self._size = path, contents, size
        self.format, self.metadata = contents.format, dict(contents.metadata)
        self.classes, self.warnings = contents.classes, contents.warnings
        root = next((part.class_name for part in contents.modules if not part.path), "")
        self.title = contents.title or root.rpartition(".")[2] or os.path.basename(path)

    def hierarchy(self) -> Hierarchy:
        """The modules of the file, as `mk.hierarchy` has those of a model: to fold, fingerprint, compare and search.

        Returns
        -------
        Hierarchy
            Classes as the file names them; where it does not, a kind such as "matrix" or "convolution 2d".

        Raises
        ------
        ModelFileError
            For more modules, or a larger tensor, than any model has.
        """
        return self._hierarchy

    @cached_property
    def _hierarchy(self) -> Hierarchy:
        return Hierarchy(skeleton(self.contents, self.title))

    def skeleton(self) -> nn.Module:
        """The modules of the file as modules of torch, with the shapes of its tensors, without values and code.

        Returns
        -------
        torch.nn.Module
            On the meta device; it cannot be called.

        Raises
        ------
        ModelFileError
            As of `hierarchy`.
        """
        return self._hierarchy.root.module

    def tensors(self) -> pd.DataFrame:
        """The tensors of the file, in its order.

        Returns
        -------
        DataFrame
            `name`, `shape` (in the order of torch), `dtype` (torch's word, or the format's, as "Q4_K") and `bytes` in
            the file.
        """
        import pandas as pd

        rows = [(each.name, each.shape, each.dtype, each.nbytes) for each in self.contents.tensors]
        table = pd.DataFrame(rows, columns=list(COLUMNS), dtype=object)  # no type for text: names may hold anything
        return table.astype({"bytes": "int64"})

    @cached_property
    def graph(self) -> nx.MultiDiGraph | None:
        """The operators of the file, as nodes with `op`, `module`, `attributes` and `tensors`; None where it has none.

        An edge is a value that one gives to another, with its name, shape and dtype; the model's inputs and outputs
        are nodes of the operators "input" and "output".
        """
        if self.contents.graph is None:
            return None
        return to_networkx(self.contents.graph, frozenset(each.name for each in self.contents.tensors))

    def tensor(self, name: str) -> torch.Tensor:
        """One tensor, mapped into memory where it lies: what is not looked at is not read, and the file never written.

        Parameters
        ----------
        name : str
            As in `tensors()`.

        Returns
        -------
        torch.Tensor
            On the CPU; changing it changes this copy alone.

        Raises
        ------
        UnknownNameError
            For a name that there is not.
        ModelFileError
            Where its bytes are not in the file as torch has them, as those of a quantised type, or no longer.
        """
        return self._tensor(self.record(name))

    def _tensor(self, record: TensorRecord) -> torch.Tensor:
        if record.encoded is None:
            return map_tensor(self.path, record, self._size)
        with reopened(self.path, self._size) as source:
            return decode_tensor(source, record)

    def stored_values(self, name: str) -> torch.Tensor:
        """The values of a tensor, or its bytes where torch has no dtype for them, as of a quantised one.

        Parameters
        ----------
        name : str
            As in `tensors()`.

        Returns
        -------
        torch.Tensor
            Mapped into memory, as of `tensor`; bytes are one-dimensional, of the dtype uint8.

        Raises
        ------
        UnknownNameError, ModelFileError
            As of `tensor`.
        """
        record = self.record(name)
        if torch_dtype(record.dtype) is None and record.encoded is None:
            record = replace(record, dtype="uint8", shape=(record.nbytes,), strides=None)
        return self._tensor(record)

    def has_bytes_of(self, other: ModelFile, name: str) -> bool:
        """Compare all bytes of a file with those of another model's: what is in one is in the other then, read or not.

        Parameters
        ----------
        other : ModelFile
            The model that is compared.
        name : str
            The name of a file beside both, as records have it; "" for the opened ones.

        Returns
        -------
        bool
            False, too, where one of them cannot be read as it was.
        """
        if self.path == other.path and self._size == other._size:
            return True
        try:
            with self._opened(name) as mine, other._opened(name) as theirs:
                return mine.equals(theirs)
        except ModelFileError:
            return False

    @contextmanager
    def _opened(self, name: str) -> Iterator[FileSource]:
        with reopened(self.path, self._size) as source:
            if not name:
                yield source
            else:
                with source.beside(name) as other:
                    yield other

    def record(self, name: str) -> TensorRecord:
        """Returns the record of one tensor.

        Parameters
        ----------
        name : str
            As in `tensors()`.

        Returns
        -------
        TensorRecord
            With its offset, strides and role.

        Raises
        ------
        UnknownNameError
            For a name that there is not.
        """
        found = self._by_name.get(name)
        if found is None:
            raise UnknownNameError(
                f"the file has no tensor {printable(str(name))!r}: {closest_match_hint(str(name), self._by_name)}"
            )
        return found

    @cached_property
    def _by_name(self) -> Mapping[str, TensorRecord]:
        return {each.name: each for each in self.contents.tensors}

    def __repr__(self) -> str:
        tensors = self.contents.tensors
        size = sum(each.nbytes for each in tensors)
        count = len(self.warnings)
        warned = f", {count} warning{'s' if count > 1 else ''}" if count else ""
        return (
            f"<ModelFile {printable(os.path.basename(self.path))!r}: {printable(self.format)}, {len(tensors):,} "
            "tensors, "
            f"{size:,} bytes{warned}>"
        )


def open_file(path: PATHLIKE) -> ModelFile:
    """Open a model file without running anything of it: its header is read, and no weights.

    Parameters
    ----------
    path : str or Path
        A file of safetensors (or the index of several), ONNX, torch.export (`.pt2`), TorchScript, a checkpoint of
        torch (`.pt`, `.pth`, `.ckpt`, `.bin`), GGUF, or of a format that `file_reader` has added; or the folder of a
        saved model, an adapter or a checkpoint of torch.distributed. A config.json beside it gives title and sizes.

    Returns
    -------
    ModelFile
        `.format`, `.hierarchy()`, `.tensors()`, `.graph`, `.metadata`, `.tensor(name)`, `.warnings`.

    Raises
    ------
    ModelFileError
        For a file that cannot be read, is cut off, malformed or forged, or of a format that is not known; it says
        what was found.
    MissingReaderError
        For ONNX without the extra `[files]`; it is a `ModelFileError`, too.

    Examples
    --------
    >>> import tempfile
    >>> import torch
    >>> import modulekg_widgets as mk
    >>> path = tempfile.mkdtemp() + "/model.pt"
    >>> torch.save(torch.nn.Sequential(torch.nn.Linear(4, 2)).state_dict(), path)
    >>> file = mk.open_file(path)
    >>> print(file.tensors().to_string(index=False))
        name  shape   dtype  bytes
    0.weight (2, 4) float32     32
      0.bias   (2,) float32      8
    """
    with open_source(_file_of(path)) as source:
        return ModelFile(source.path, add_config(read_contents(source), source), source.size)


def is_file(model: object) -> TypeGuard[ModelFile]:
    """True if `model` is a `ModelFile`, by its type alone: attributes of a live model could run its code."""
    return issubclass(type(model), ModelFile)


def is_model_file(name: str) -> bool:
    """True if a file name ends with a known extension of model files."""
    return bool(extension_of(name))


def _file_of(path: PATHLIKE) -> str:
    try:
        text = os.fsdecode(path)
        if not os.path.isdir(text):
            return text
    except (TypeError, ValueError) as error:
        raise ModelFileError(f"{a_type(path)} was passed ({error}): pass the path of a file") from None
    found = next((name for name in DEFAULT_NAMES if os.path.isfile(os.path.join(text, name))), None)
    if found is None:
        raise ModelFileError(f"the folder {printable(os.path.basename(text))!r} {_folder_advice(text)}")
    return os.path.join(text, found)


def _folder_advice(folder: str) -> str:
    """Completes the message on a folder without a model file of a default name."""
    try:
        names = sorted(os.listdir(folder))[:MAX_FOLDER_ENTRIES]
    except OSError as error:
        return f"cannot be read ({printable(error.strerror or str(error))}): pass the path of a model file"
    if any(name.endswith(SHARD_EXTENSION) for name in names):
        return (
            f"has shards of torch.distributed.checkpoint, and no {METADATA}, which names what is in them: copy it, "
            "too, from where the checkpoint was saved"
        )
    models = [name for name in names if is_model_file(name)]
    several = (
        f"; it has {', '.join(map(printable, models[:3]))}{', …' if len(models) > 3 else ''}: pass the path of one"
    )
    return f"has none of {', '.join(DEFAULT_NAMES)}{several if models else ''}"
