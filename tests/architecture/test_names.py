"""One class, one name: in the engine no class name is defined twice."""

from pathlib import Path

from architecture.python_sources import classes, functions, modules_of, operator_lists, private_torch_names

PACKAGE = Path(__file__).resolve().parents[2] / "modulekg_widgets"


def test_no_class_name_is_defined_twice_in_the_engine() -> None:
    found = classes(modules_of(PACKAGE / "engine").values())
    twice = {
        name: sorted(path.relative_to(PACKAGE).as_posix() for path in paths)
        for name, paths in found.items()
        if len(paths) > 1
    }
    assert twice == {}


# ------------------------------------------------ the checks, on files that are made up


def test_classes_are_found_at_any_depth_and_twice_in_one_file(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text("class A:\n    class B: ...\ndef f():\n    class A: ...\n")
    assert {name: len(paths) for name, paths in classes([path]).items()} == {"A": 2, "B": 1}


def test_functions_of_modules_are_found_and_no_methods(tmp_path: Path) -> None:
    path = tmp_path / "b.py"
    path.write_text("def f():\n    def g(): ...\nclass A:\n    def h(self): ...\nasync def k(): ...\n")
    assert set(functions([path])) == {"f", "k"}


def test_lists_of_operators_are_found(tmp_path: Path) -> None:
    path = tmp_path / "c.py"
    path.write_text(
        'A = {"aten::add", "aten::mul"}\n'
        'B = {"aten::add": 1, "aten::mul": 2}\n'
        'C = "add mul_ sub".split()\n'
        'D = ("aten::add", "mul")\n'
        'E = "add and sub"\n'
        '@rule("aten::add aten::mul aten::sub")\ndef f(): ...\n'
        "@rule(*['aten::add', 'aten::mul'])\ndef g(): ...\n"
    )
    assert operator_lists(path, {"add", "mul", "sub"}) == [1, 2, 3]


def test_private_names_of_torch_are_found(tmp_path: Path) -> None:
    path = tmp_path / "d.py"
    path.write_text(
        "import torch, torch._dynamo\n"
        "from torch.utils._python_dispatch import TorchDispatchMode\n"
        "from torch.overrides import _pop_mode, TorchFunctionMode\n"
        "from torch.nn import Module\n"
        "def f(x):\n"
        "    return torch._C._has_storage(x), x._private, torch.nn.functional.relu(x), torch.__version__\n"
    )
    assert sorted(private_torch_names(path)) == [
        "torch._C._has_storage",
        "torch._dynamo",
        "torch.overrides._pop_mode",
        "torch.utils._python_dispatch.TorchDispatchMode",
    ]
