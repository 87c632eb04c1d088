"""Python sources, read and never imported: their modules, what imports what, where that goes in a circle, and names."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path, PurePath

Graph = Mapping[str, Collection[str]]


@cache
def tree_of(path: Path) -> ast.Module:
    """The syntax tree of a file, parsed once; nothing writes to it."""
    return ast.parse(path.read_text("utf-8"))


def module_name(path: PurePath, root: PurePath) -> str:
    """The dotted name of a file below `root`; a package's is that of its folder."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules_of(package: Path) -> dict[str, Path]:
    """The files of a package by dotted name."""
    return {module_name(path, package.parent): path for path in sorted(package.rglob("*.py"))}


def imports(path: Path, root: Path) -> Iterator[tuple[str, bool]]:
    """Every imported dotted name, and whether the import stands inside a function."""
    tree = tree_of(path)
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    lazy = {id(node) for found in ast.walk(tree) if isinstance(found, functions) for node in ast.walk(found)}
    package = module_name(path, root).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, id(node) in lazy) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((f"{source}.{alias.name}", id(node) in lazy) for alias in node.names)


def import_graph(package: Path) -> dict[str, set[str]]:
    """Module → the modules of the same package that it imports, lazily or for its types alone included."""
    modules = modules_of(package)

    def home(name: str) -> str | None:
        return next((one for one in (name, name.rpartition(".")[0]) if one in modules), None)

    return {
        module: {found for name, _ in imports(path, package.parent) if (found := home(name))} - {module}
        for module, path in modules.items()
    }


def folded(graph: Graph, package: str, packages: Collection[str]) -> dict[str, set[str]]:
    """The graph between what lies directly in a package: its files, its own `__init__`, and each folder as one."""

    def entry(module: str) -> str | None:
        if module == package:
            return f"{package}.__init__"
        if not module.startswith(f"{package}."):
            return None
        child = f"{package}.{module.removeprefix(f'{package}.').partition('.')[0]}"
        return f"{child}/" if child in packages else child

    result: dict[str, set[str]] = defaultdict(set)
    for module, targets in graph.items():
        source = entry(module)
        if source is not None:
            result[source] |= {found for target in targets if (found := entry(target))} - {source}
    return result


def circles(graph: Graph) -> list[list[str]]:
    """The sets of nodes that reach one another, sorted (Tarjan's algorithm, without recursion)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    path: list[str] = []
    on_path: set[str] = set()
    found: list[list[str]] = []
    for root in graph:
        if root in index:
            continue
        work = [(root, iter(sorted(graph[root])))]
        index[root] = low[root] = len(index)
        path.append(root)
        on_path.add(root)
        while work:
            node, targets = work[-1]
            for target in targets:
                if target not in index:
                    index[target] = low[target] = len(index)
                    path.append(target)
                    on_path.add(target)
                    work.append((target, iter(sorted(graph.get(target, ())))))
                    break
                if target in on_path:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    at = path.index(node)
                    component, path[at:] = path[at:], []
                    on_path -= set(component)
                    if len(component) > 1:
                        found.append(sorted(component))
    return sorted(found)


def floors(graph: Graph, package: str) -> dict[str, int]:
    """The floor of each module of a package: 1 with no import inside of it, else one above the highest imported."""
    inside = {module for module in graph if module == package or module.startswith(f"{package}.")}
    found: dict[str, int] = {}

    def floor(module: str) -> int:
        if module not in found:
            found[module] = 1 + max((floor(target) for target in graph[module] if target in inside), default=0)
        return found[module]

    return {module: floor(module) for module in sorted(inside)}


def packages_of(package: Path) -> dict[str, Path]:
    """The package and its sub-packages: dotted name → folder."""
    return {name: path.parent for name, path in modules_of(package).items() if path.name == "__init__.py"}


def circles_of_folders(package: Path) -> dict[str, list[list[str]]]:
    """Package → the circles between what lies directly in it; packages without any are left out."""
    graph = import_graph(package)
    packages = packages_of(package)
    found = {name: circles(folded(graph, name, packages)) for name in packages}
    return {name: rings for name, rings in found.items() if rings}


# -------------------------------------------------------------------- names


def classes(paths: Iterable[Path]) -> dict[str, list[Path]]:
    """Class name → the files that define it, one entry for each definition at any depth."""
    found: dict[str, list[Path]] = defaultdict(list)
    for path in paths:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(path)
    return found


def functions(paths: Iterable[Path]) -> dict[str, set[Path]]:
    """Name of a function of a module → the files that define it; methods and inner functions do not count."""
    found: dict[str, set[Path]] = defaultdict(set)
    for path in paths:
        for node in tree_of(path).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found[node.name].add(path)
    return found


def operator_lists(path: Path, known: Collection[str]) -> list[int]:
    """The lines at which a file keeps a list of ATen operators, of `known` where they are written without `aten::`.

    A list is a collection with two such names or more, or a string of three or more, which is split, of which one in
    four may be unknown.
    """
    tree = tree_of(path)
    decorators = {id(node) for each in ast.walk(tree) for found in getattr(each, "decorator_list", ())
                  for node in ast.walk(found)}  # fmt: skip
    found = []
    for node in ast.walk(tree):
        if id(node) in decorators:
            continue
        if isinstance(node, ast.List | ast.Tuple | ast.Set | ast.Dict):
            elements = node.keys if isinstance(node, ast.Dict) else node.elts
            texts = [each.value for each in elements if isinstance(each, ast.Constant)]
            if sum(isinstance(text, str) and text.startswith("aten::") for text in texts) > 1:
                found.append(node.lineno)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            words = [word.removeprefix("aten::").rstrip("_") for word in node.value.split()]
            if len(words) > 2 and sum(word in known for word in words) > 0.75 * len(words):
                found.append(node.lineno)
    return found


def private_torch_names(path: Path) -> Iterator[str]:
    """Dotted names below `torch` that have a part with a leading underscore, once for each use."""
    tree = tree_of(path)
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute) and id(node) not in inner:
            names = [ast.unparse(node)]
        else:
            continue
        yield from (name for name in names if name.startswith("torch.") and any(map(_is_private, name.split("."))))


def _is_private(part: str) -> bool:
    return part.startswith("_") and not part.startswith("__")
