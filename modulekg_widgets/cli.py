"""The `modulekg` command: demo, show, diff, index and export.

For use without a notebook. Each subcommand is a function `run_…` of the parsed arguments; `main` parses, loads the
plugins, calls it and turns every exception into one line on stderr. A model is named as `module:callable`, a model
file by its path, a stored knowledge graph by `.db`, `.sqlite`, `.sqlite3` or a URL.

Exit codes: 0 done or equal, 1 different or failed notebooks, 2 error, 130 interrupted. `show`, `diff` and `export` of
model files run no code of theirs; a model named as `module:callable` is imported and built.

    modulekg show model.safetensors
    modulekg diff torchvision.models:resnet18 checkpoint.pth --weights
    modulekg index timm:resnet* --store zoo.db
"""

import argparse
import importlib
import importlib.util
import io
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from modulekg_widgets._version import __version__

if TYPE_CHECKING:
    from torch import nn

    from modulekg_widgets.engine.files.model_file import ModelFile

PICTURE_FORMATS = (".html", ".json", ".png", ".svg")
LIBRARIES = ("torchvision", "timm", "transformers")
STORES = (".db", ".sqlite", ".sqlite3")
STORE_MAGIC = b"SQLite format 3\0"
LAB_MISSING = "JupyterLab is not installed: run `pip install 'modulekg-widgets[lab]'`."
DEMO_FOLDER = "modulekg-notebooks"  # where the command is called
NOTEBOOK_TIMEOUT = 600  # seconds a cell may take
QUIET_KERNEL_OPTION = "--IPKernelApp.log_level=ERROR"  # a kernel warns of its own transport, between our lines


class CommandError(Exception):
    """A mistake on the command line; its text is the one line that the user sees."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: that of the process) and return the exit code; 2 stands for an error."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a console of few characters gets the others as escapes
        sys.stdout.reconfigure(errors="backslashreplace")
    arguments = parser().parse_args(argv)
    try:
        if arguments.run is not run_demo:  # the kernels of the notebooks load their own
            from modulekg_widgets.engine import plugins

            plugins.load()
        code = arguments.run(arguments)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # the reader (`| head`) went away; the interpreter's last flush must not complain about it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 2
    except Exception as error:  # noqa: BLE001 - a command line answers with one line, whatever went wrong
        print(f"modulekg: {describe(error)}", file=sys.stderr)
        return 2


def parser() -> argparse.ArgumentParser:
    """The argument parser of all subcommands."""
    root = argparse.ArgumentParser(prog="modulekg", description="Inspect, query and prune PyTorch models.")
    root.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = root.add_subparsers(title="commands", required=True, metavar="COMMAND")
    name = "a model as module:callable, e.g. torchvision.models:resnet18"

    demo = commands.add_parser(
        "demo",
        help="open the quickstart notebooks in JupyterLab",
        description="Copy the notebooks to a folder and open the quickstart there. Notebooks that are already in "
        "the folder are not overwritten.",
    )
    demo.add_argument("--folder", type=Path, help=f"folder of the notebooks (default: ./{DEMO_FOLDER})")
    demo.add_argument(
        "--check",
        action="store_true",
        help="execute every notebook without a browser, print the seconds of each, and delete the copies",
    )
    demo.add_argument("notebooks", nargs="*", metavar="NOTEBOOK", help="with --check, run only these")
    demo.add_argument("--port", type=int, help="port of the server (default: JupyterLab's choice)")
    demo.add_argument("--no-browser", action="store_true", help="do not open a browser")
    demo.set_defaults(run=run_demo)

    show = commands.add_parser("show", help="print the contents of a model file without running its code")
    show.add_argument("file", type=Path, help="such as model.safetensors, model.onnx, model.pt2, checkpoint.pth")
    show.add_argument("--tensors", action="store_true", help="list every tensor instead of the folded modules")
    show.set_defaults(run=run_show)

    compare = commands.add_parser("diff", help="compare two models or model files (exit code 0: same, 1: different)")
    compare.add_argument("a", help=f"{name}, or a model file")
    compare.add_argument("b", help="another one")
    compare.add_argument("--weights", action="store_true", help="also compare the values of the tensors")
    compare.set_defaults(run=run_diff)

    index = commands.add_parser("index", help="add models to a knowledge graph; continues an interrupted run")
    index.add_argument(
        "models",
        nargs="+",
        help=f"{', '.join(f'{library}:all' for library in LIBRARIES)}, a pattern in the place of all, or {name}",
    )
    index.add_argument("--store", required=True, help="a file such as zoo.db, or postgresql://host/database")
    index.add_argument("--again", action="store_true", help="also add models that the graph already has")
    index.set_defaults(run=run_index)

    export = commands.add_parser("export", help="write a picture or the graph of a model, or a stored graph")
    export.add_argument("model", help=f"{name}, a model file, or the store of a graph: {' '.join(STORES)} or a URL")
    shows = f"{' '.join(PICTURE_FORMATS)} show the hierarchy of a model, .dot .graphml .csv … the graph of structures"
    export.add_argument("out", type=Path, help=f"file; its ending decides: {shows}")
    export.set_defaults(run=run_export)
    return root


def run_demo(arguments: argparse.Namespace) -> int:
    """Open the notebooks in a persistent folder, or execute temporary copies with --check."""
    if arguments.notebooks and not arguments.check:
        raise CommandError("notebooks can be named only with --check: the folder that opens has all")
    for package in ("jupyterlab", "nbclient"):
        if importlib.util.find_spec(package) is None:
            raise CommandError(LAB_MISSING)
    if arguments.check:
        return check_copies(arguments)
    folder = (arguments.folder or Path(DEMO_FOLDER)).expanduser().absolute()
    notebooks, changed = copy_notebooks(folder)
    print(f"The notebooks are in {folder}", flush=True)
    print("Your changes in this folder are kept. For fresh copies, delete it", flush=True)
    print("or pass another --folder. Temporary folders are not kept.", flush=True)
    if changed:
        print(f"Not overwritten: {', '.join(changed)}", flush=True)
    start_lab(folder, notebooks[0], arguments)
    return 0


def check_copies(arguments: argparse.Namespace) -> int:
    """Execute copies of the notebooks in a temporary folder."""
    if arguments.folder is not None:
        raise CommandError("--check runs temporary copies: remove --folder")
    folder = Path(tempfile.mkdtemp(prefix="modulekg-check-"))
    try:
        return check_notebooks(select_notebooks(copy_notebooks(folder)[0], arguments.notebooks))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def select_notebooks(notebooks: Sequence[Path], names: Sequence[str]) -> list[Path]:
    """Returns the notebooks of these names, or all of them if no name is passed."""
    by_name = {notebook.name: notebook for notebook in notebooks}
    unknown = [name for name in names if name not in by_name]
    if unknown:
        raise CommandError(f"There is no notebook {unknown[0]}; there are {', '.join(by_name)}.")
    return [by_name[name] for name in names] or list(notebooks)


def start_lab(folder: Path, notebook: Path, arguments: argparse.Namespace) -> None:
    """Serve `folder` with JupyterLab until the user stops it."""
    from jupyterlab.labapp import LabApp

    # the address that is printed, and opened where there is a browser, is that of the notebook
    options = [f"--ServerApp.root_dir={folder}", f"--LabApp.default_url=/lab/tree/{quote(notebook.name)}"]
    if arguments.port is not None:
        options.append(f"--port={arguments.port}")
    if arguments.no_browser:
        options.append("--no-browser")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        options.append("--allow-root")  # in a container everyone is root; the server listens on loopback with a token
    LabApp.launch_instance(options)


def copy_notebooks(folder: Path) -> tuple[list[Path], list[str]]:
    """Copy missing files to `folder`; returns its notebooks in order, and the files that differ there."""
    source = notebooks_folder()
    wanted = [path.relative_to(source) for path in sorted(source.rglob("*")) if path.is_file()]
    wanted = [path for path in wanted if not any(part.startswith((".", "__")) for part in path.parts)]
    changed = []
    for path in wanted:
        own = folder / path
        if not own.exists():
            own.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / path, own)
        elif own.read_bytes() != (source / path).read_bytes():
            changed.append(str(path))
    return [folder / path for path in wanted if path.suffix == ".ipynb"], changed


def notebooks_folder() -> Path:
    """Returns the folder of notebooks: in an installed package, or beside the package in a checkout."""
    package = Path(__file__).resolve().parent
    for source in (package / "notebooks", package.parent / "notebooks"):
        if any(source.glob("*.ipynb")):
            return source
    raise CommandError("The notebooks are missing from this installation: install modulekg-widgets again.")


def check_notebooks(notebooks: Sequence[Path]) -> int:
    """Execute the notebooks, print one line each, and return 1 if any failed."""
    failures = 0
    for notebook in notebooks:
        started = time.perf_counter()
        error = first_error(notebook)
        outcome = "ok" if error is None else f"FAILED  {error}"
        print(f"{notebook.name:<40} {time.perf_counter() - started:7.1f} s  {outcome}", flush=True)
        failures += error is not None
    return 1 if failures else 0


def first_error(notebook: Path) -> str | None:
    """Returns one line on the reason why `notebook` fails, or None if it runs to its end."""
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    resources = {"metadata": {"path": str(notebook.parent)}}
    try:
        content = nbformat.read(notebook, as_version=4)
        NotebookClient(
            content, timeout=NOTEBOOK_TIMEOUT, resources=resources, extra_arguments=[QUIET_KERNEL_OPTION]
        ).execute()
    except CellExecutionError as error:
        return one_line(f"{error.ename}: {error.evalue}")
    except Exception as error:  # noqa: BLE001 - an unreadable file, a dead kernel or a timeout must not hide the other notebooks
        return describe(error)
    return None


def run_show(arguments: argparse.Namespace) -> int:
    """Print format, metadata, warnings and modules of a file."""
    from modulekg_widgets.engine.errors import printable
    from modulekg_widgets.engine.files.model_file import open_file

    file = open_file(arguments.file)
    print(repr(file)[1:-1])
    for name, value in file.metadata.items():
        print(f"  {printable(name)}: {printable(str(value))}")
    for warning in file.warnings:
        print(f"  warning: {printable(warning, 400)}")
    if arguments.tensors:
        for each in file.contents.tensors:
            print(f"{printable(each.name, 400)}  {list(each.shape)}  {printable(each.dtype)}  {each.nbytes:,}")
    else:
        print(file.hierarchy().fold())
    return 0


def run_diff(arguments: argparse.Namespace) -> int:
    """Print the differences of two models; the exit code is 0 if there are none."""
    from modulekg_widgets.engine.files.compare.comparison import diff

    difference = diff(model_or_file(arguments.a), model_or_file(arguments.b), weights=arguments.weights)
    print(difference)
    return 0 if difference.identical else 1


def run_index(arguments: argparse.Namespace) -> int:
    """Add models to a graph; raises `IndexingError` after printing the reason of each model that failed."""
    import modulekg_widgets as mk
    from modulekg_widgets.engine.errors import IndexingError

    builders: dict[str, Callable[[], nn.Module]] = {}
    for name in arguments.models:
        library, _, pattern = name.partition(":")
        found = builders_of(library, pattern or "all") if library in LIBRARIES else {}
        found = found or {name: partial(load_model, name)}
        for each, builder in found.items():
            # the model of another library that has this name already is told apart by the library
            is_another = library in LIBRARIES and builders.get(each, builder) != builder
            builders[f"{library}/{each}" if is_another else each] = builder
    try:
        print(mk.index_models(builders, arguments.store, again=arguments.again))
    except IndexingError as error:
        for model, reason in error.failures.items():
            print(f"{model}: {reason}", file=sys.stderr)
        raise
    return 0


def builders_of(library: str, pattern: str) -> "dict[str, Callable[[], nn.Module]]":
    """The builders of a library's models, of all or of those whose names match a pattern."""
    import modulekg_widgets as mk

    every = getattr(mk, f"{library}_builders")()
    return {name: builder for name, builder in every.items() if pattern == "all" or fnmatchcase(name, pattern)}


def run_export(arguments: argparse.Namespace) -> int:
    """Write one model, or one graph, to one file."""
    import modulekg_widgets as mk
    from modulekg_widgets.engine.knowledge.exchange import exporters
    from modulekg_widgets.engine.knowledge.store.database import checked_existing

    stored = "://" in arguments.model or is_store(arguments.model)
    ending = arguments.out.suffix.lower()
    graphs = tuple(f".{extension}" for extension in exporters)
    known = graphs if stored else (*PICTURE_FORMATS, *graphs)
    if ending not in known:
        raise CommandError(f"cannot export to {str(arguments.out)!r}: the file must end in one of {' '.join(known)}")
    if not arguments.out.absolute().parent.is_dir():
        raise CommandError(f"cannot export to {str(arguments.out)!r}: there is no such folder")
    if stored:
        mk.KnowledgeGraph(checked_existing(arguments.model)).export(arguments.out)
    elif ending in PICTURE_FORMATS:
        mk.ModelGraph(model_or_file(arguments.model)).export(arguments.out)
    else:
        graph = mk.KnowledgeGraph()
        graph.add_model(model_or_file(arguments.model), name=arguments.model)
        graph.export(arguments.out)
    print(arguments.out)
    return 0


def is_store(name: str) -> bool:
    """True if a name is that of a stored graph: by its extension, or by the magic bytes of SQLite."""
    if name.endswith(STORES) or not Path(name).is_file():
        return name.endswith(STORES)
    with open(name, "rb") as file:
        return file.read(len(STORE_MAGIC)) == STORE_MAGIC


def model_or_file(name: str) -> "nn.Module | ModelFile":
    """The model file of this path; where there is none, the model that `module:callable` builds."""
    from modulekg_widgets.engine.files.model_file import open_file

    if os.path.exists(name):
        return open_file(name)
    if is_path(name):
        raise CommandError(f"there is no file {name!r}: write the path of a model file, or a model as module:callable")
    return load_model(name)


def is_path(name: str) -> bool:
    """True if a name can only be a path, existing or not: `module:callable` has no separator or drive."""
    from modulekg_widgets.engine.files.model_file import is_model_file

    drive = re.match(r"[A-Za-z]:", name)
    return any(separator in name for separator in "/\\") or (is_model_file(name) and (":" not in name or bool(drive)))


def load_model(name: str) -> "nn.Module":
    """Returns the model that `module:callable` builds, or the module object with that name."""
    from torch import nn

    from modulekg_widgets.engine.errors import a_type

    module, separator, attributes = name.partition(":")
    if not (module and separator and attributes) or is_path(name):
        raise CommandError(f"{name!r} does not name a model: write module:callable, e.g. torchvision.models:resnet18")
    if "" not in sys.path:
        sys.path.insert(0, "")  # a model in the current folder, as with `python -m`
    try:
        found = importlib.import_module(module)
        for attribute in attributes.split("."):
            found = getattr(found, attribute)
    except Exception as error:
        raise CommandError(f"cannot load {name!r}: {describe(error)}") from error
    if isinstance(found, nn.Module):
        return found
    if not callable(found):
        raise CommandError(f"{name!r} is not callable but of type {type(found).__name__}")
    try:
        model = found()
    except Exception as error:
        raise CommandError(f"{name!r} fails when called without arguments: {describe(error)}") from error
    if not isinstance(model, nn.Module):
        raise CommandError(f"{name!r} returns {a_type(model)}, not a torch.nn.Module")
    return model


def describe(error: BaseException) -> str:
    """Returns the error in one line, with its type unless the message was written for users."""
    from modulekg_widgets.engine.errors import ModuleKGError

    text = one_line(str(error))
    return text if text and isinstance(error, CommandError | ModuleKGError) else f"{type(error).__name__}: {text}"


def one_line(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    sys.exit(main())
