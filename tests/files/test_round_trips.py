"""What is read from a file is what the model was that it was exported from: modules, classes, names, shapes, values."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from files.exports import ARCHITECTURES, WRITERS, written

IN_CI = {"resnet18", "unet", "tied", "recurrent", "bert"}
NAMES_ONLY = {".safetensors", ".pth", ".gguf"}  # formats that know no classes, and no module without tensors
CASES = [
    pytest.param(name, ending, marks=() if name in IN_CI else pytest.mark.nightly, id=f"{name}{ending}")
    for name in ARCHITECTURES
    for ending in WRITERS
]


def owners(names: Iterable[str]) -> set[str]:
    """The paths of the modules that have these tensors, and of what they stand in."""
    found = {""}
    for name in names:
        parts = name.split(".")[:-1]
        found.update(".".join(parts[:length]) for length in range(len(parts) + 1))
    return found


def classes(modules: mk.Hierarchy) -> dict[str, str]:
    return {record.path: record.class_name for record in modules}


@pytest.mark.parametrize(("architecture", "ending"), CASES)
def test_a_file_is_read_as_the_model_that_it_was_made_of(architecture: str, ending: str, tmp_path: Path) -> None:
    net, path, called = written(architecture, ending, tmp_path)
    file = mk.open_file(path)
    found, live = classes(file.hierarchy()), classes(mk.hierarchy(net))
    check_tensors(file, net, ending)
    if ending in NAMES_ONLY:
        names = set(net.state_dict())
        assert found.keys() == owners(names & set(file.tensors()["name"]))
        if ending != ".safetensors":  # which writes one of the names of a tied tensor
            assert found.keys() == owners(names)
        assert file.graph is None
    elif ending == ".onnx":  # modules that no operator ran in are not there
        assert found.keys() <= live.keys()
        assert {path: found[path] for path in called & found.keys()} == {
            path: live[path] for path in called & found.keys()
        }
        assert len(called & found.keys()) > 0.7 * len(called)
    elif ending == ".pt2":  # knows the paths of all, and the classes of those that were called
        assert found.keys() == live.keys()
        assert {path: found[path] for path in called} == {path: live[path] for path in called}
    else:
        assert found == live
    assert (file.graph is not None) == (ending in {".onnx", ".pt2"})


def check_tensors(file: mk.ModelFile, net: nn.Module, ending: str) -> None:
    state = net.state_dict()
    shapes = {row.name: row.shape for row in file.tensors().itertuples(index=False)}
    tied = {
        name for name in state for other in state if other != name and state[name].data_ptr() == state[other].data_ptr()
    }
    if ending == ".gguf":  # has neither scalars nor integers of all kinds
        assert shapes == {name: tuple(tensor.shape) or (1,) for name, tensor in state.items()}
        return
    if ending == ".onnx":  # what the code does not read is not written, and constants are
        shapes = {name: shape for name, shape in shapes.items() if name in state}
        assert len(shapes) > 0.7 * len(state)
        assert shapes == {name: tuple(state[name].shape) for name in shapes}
        return
    found = mk.diff(file, net, weights=True)
    assert found.counts == {}, str(found)
    assert shapes.keys() | tied >= state.keys()
    assert all(torch.equal(file.tensor(name), state[name]) for name in list(shapes.keys() & state.keys())[:3])
