"""Private names of torch stand in torch_runtime/private.py alone: one file to mend when torch changes them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "modulekg_widgets"
HOME = PACKAGE / "engine" / "torch_runtime" / "private.py"
SOURCES = sorted(path for path in PACKAGE.rglob("*.py") if path != HOME)
# of the standard library, of IPython's widgets and of its kernel
OTHERS = {
    "_getframe", "_current_frames", "_lru_cache_wrapper", "_replace", "_asdict", "_fields", "_make",
    "_repr_mimebundle_", "_should_send_property", "_handle_msg", "_property_lock",
    "_reply_subshell_for",
}  # fmt: skip
# what stands in files under private names cannot change: torch reads its old files by them
WORDS_OF_A_FORMAT = PACKAGE / "engine" / "files" / "formats" / "pickle" / "torch_names.py"
MODULE_OF_TORCH = re.compile(r"torch(\.\w+)*\._[a-zA-Z]\w*(\.\w+)*")


def is_private(name: str) -> bool:
    return name.startswith("_") and name.strip("_") != "" and not (name.startswith("__") and name.endswith("__"))


def texts(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """The strings in the code, without docstrings."""
    skipped = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.value, node.lineno


def imported_from_torch(tree: ast.AST) -> Iterator[tuple[str, str, int]]:
    """Each name that is bound by an import of torch, with the dotted name behind it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] == "torch":
                    yield alias.asname or "torch", alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "torch" and not node.level:
            yield from (
                (alias.asname or alias.name, f"{node.module}.{alias.name}", node.lineno) for alias in node.names
            )


def accesses(tree: ast.AST) -> Iterator[tuple[str | None, str, int]]:
    """Every private attribute that is read or written, with the name that its chain begins with, if it is one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            start: ast.AST = node.value
            inner = False
            while isinstance(start, ast.Attribute):
                start, inner = start.value, True
            name = start.id if isinstance(start, ast.Name) else None
            yield (None if inner and name in ("self", "cls") else name), node.attr, node.lineno


def defined(tree: ast.AST) -> Iterator[str]:
    """The private names that code defines: functions, variables, attributes of `self`, slots."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            owner = node.value
            yield from [node.attr] * (isinstance(owner, ast.Name) and owner.id in ("self", "cls"))


def names_of_torch() -> set[str]:
    """The private names that private.py uses, in any form."""
    tree = ast.parse(HOME.read_text("utf-8"))
    every = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    every |= {text for text, _ in texts(tree)}
    every |= {part for _, dotted, _ in imported_from_torch(tree) for part in dotted.split(".")}
    return {name for name in every if is_private(name) and name.isidentifier()}


TORCHS = names_of_torch()
ATTRIBUTES = {text for text, _ in texts(ast.parse(HOME.read_text("utf-8"))) if text in TORCHS}
ATTRIBUTES -= {path.stem for path in SOURCES}  # _version.py
OURS = {name for path in SOURCES for name in defined(ast.parse(path.read_text("utf-8"))) if is_private(name)}


def uses(source: str, in_texts: bool = True) -> list[str]:
    """The private names of torch in some code, each with its line; with `in_texts` also those in strings."""
    tree = ast.parse(source)
    imports = list(imported_from_torch(tree))
    found = [f"{line}: {dotted}" for _, dotted, line in imports if any(map(is_private, dotted.split(".")))]
    bound = {name for name, _, _ in imports}
    for start, name, line in accesses(tree):
        own = start in ("self", "cls") or (name in OURS and name not in TORCHS)
        if start in bound or not (own or name in OTHERS):
            found.append(f"{line}: {start or '…'}.{name}")
    said = texts(tree) if in_texts else ()
    return found + [f"{line}: {text!r}" for text, line in said if text in ATTRIBUTES or MODULE_OF_TORCH.fullmatch(text)]


@pytest.mark.parametrize("path", SOURCES, ids=[path.relative_to(PACKAGE).as_posix() for path in SOURCES])
def test_private_names_of_torch_stand_in_one_file(path: Path) -> None:
    assert uses(path.read_text("utf-8"), in_texts=path != WORDS_OF_A_FORMAT) == []


def test_each_private_name_is_said_once() -> None:
    found = [text for text, _ in texts(ast.parse(HOME.read_text("utf-8"))) if is_private(text) and text.isidentifier()]
    assert sorted(found) == sorted(set(found))


@pytest.mark.parametrize(
    "line",
    [
        "import torch._dynamo",
        "from torch._subclasses import fake_tensor",
        "from torch.overrides import _push_mode",
        "import torch as t\nt._C._has_storage(x)",
        "from torch import nn\nnn.modules.conv._ConvNd",
        "module._parameters",
        "self.module._buffers",
        "x.grad_fn._brand_new_name",
        "f()._version",
        "state['_modules']",
        "sys.modules.get('torch._dynamo.eval_frame')",
    ],
)
def test_the_check_sees_what_it_forbids(line: str) -> None:
    assert uses(line)


@pytest.mark.parametrize("line", ["self._parameters = {}", "sys._getframe()", "pair._replace(a=1)", "'aten::_softmax'"])
def test_the_check_leaves_the_rest_alone(line: str) -> None:
    assert uses(line) == []
