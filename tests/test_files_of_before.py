"""What the release before wrote is read as it was meant: see tests/files_of_before/write.py, which wrote it."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import modulekg_widgets as mk
from modulekg_widgets.engine.knowledge.exchange import export_graph
from modulekg_widgets.engine.knowledge.exchange.property_graph import STORED_TYPES, property_graph
from modulekg_widgets.engine.knowledge.zoo.meta_weights import meta_weights
from modulekg_widgets.engine.knowledge.zoo.torchvision_models import torchvision_builders

FOLDER = Path(__file__).parent / "files_of_before"
FACTS = json.loads((FOLDER / "facts.json").read_text("utf-8"))
_spec = importlib.util.spec_from_file_location("writer_of_before", FOLDER / "write.py")
assert _spec is not None
assert _spec.loader is not None
writer: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(writer)


def as_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


@pytest.mark.parametrize("name", writer.MODELS)
def test_a_plan_is_read_and_cuts_its_model(name: str) -> None:
    plan = mk.load_plan(FOLDER / f"{name}.plan.json")
    assert as_json(writer.plan_facts(plan)) == FACTS["plans"][name]
    make, args = writer.MODELS[name]
    model = make()
    plan.cut(model)
    assert sum(parameter.numel() for parameter in model.parameters()) == plan.params[1]
    model.eval()(args)


@pytest.mark.parametrize("name", writer.MODELS)
def test_a_plan_is_made_again_by_its_names(name: str) -> None:
    """Also by those that axes have no longer: the names of recurrent layers now say layer and direction."""
    plan = mk.load_plan(FOLDER / f"{name}.plan.json")
    make, args = writer.MODELS[name]
    model = make()
    again = mk.plan(mk.trace(model, args), per_axis={cut.name: list(cut.dropped) for cut in plan.axes})
    assert (again.params, again.flops, again.macs) == (plan.params, plan.flops, plan.macs)
    assert [(cut.dropped, cut.members) for cut in again.axes] == [(cut.dropped, cut.members) for cut in plan.axes]
    editor = mk.MaskEditor(model, args)
    editor.load(FOLDER / f"{name}.plan.json")
    assert editor.plan is not None
    editor.cut()
    assert sum(parameter.numel() for parameter in model.parameters()) == plan.params[1]
    editor.close()


@pytest.mark.parametrize("name", writer.MODELS)
def test_a_plan_is_written_as_before(name: str, tmp_path: Path) -> None:
    path = FOLDER / f"{name}.plan.json"
    mk.load_plan(path).save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == path.read_bytes()


def test_mask_files_are_read() -> None:
    masks = mk.pruning.load_masks(FOLDER / "masks.pth")
    assert writer.mask_facts(masks) == FACTS["masks"]
    make, args = writer.MODELS["convolutions"]
    model = make()
    mk.speedup(model, FOLDER / "masks.pth", args)
    assert model[0].out_channels == 4


@pytest.fixture
def store(tmp_path: Path) -> Any:
    """The store of before, which opening may change, as a copy."""
    shutil.copy(FOLDER / "zoo.db", tmp_path / "zoo.db")
    return mk.KnowledgeGraph(f"sqlite:///{tmp_path / 'zoo.db'}")


def test_a_store_is_read(store: Any) -> None:
    assert as_json(writer.graph_facts(store)) == FACTS["graph"]
    properties = dict(store.to_networkx().nodes(data=True))
    (data,) = [each["properties"] for each in properties.values() if each["type"] == "DataSet"]
    assert (data["classes"], data["share"], data["pair"]) == (3, float("inf"), (1, b"\0"))
    (job,) = [each for each in properties.values() if each["type"] == "Job"]
    assert job["accuracy"] == 0.5
    assert store.tree("linears").number_of_nodes() == 4


def test_a_store_is_written_to(store: Any) -> None:
    store.add_model(writer.linears(), name="another")
    assert store.unique_count == FACTS["graph"]["modules"][1]  # of structures that are there


@pytest.mark.parametrize("ending", ["graphml", "cyjs", "jsonld"])
def test_a_graph_file_is_read(ending: str) -> None:
    assert as_json(writer.graph_facts(mk.load_graph(FOLDER / f"zoo.{ending}"))) == FACTS["graph"]


@pytest.mark.parametrize("ending", writer.EXCHANGED)
def test_a_graph_file_is_written_as_before(ending: str, store: Any, tmp_path: Path) -> None:
    """Of the types of nodes that such a file had: those of today have the derived types, too."""
    types = ("Module",) if ending in ("dot", "edges") else (*STORED_TYPES, "Operator")
    export_graph(property_graph(store.contents(), types), tmp_path / f"again.{ending}")
    assert (tmp_path / f"again.{ending}").read_bytes() == (FOLDER / f"zoo.{ending}").read_bytes()


@pytest.mark.parametrize("ending", writer.RECORDED)
def test_a_recording_is_read(ending: str) -> None:
    assert as_json(writer.recording_facts(mk.load_recording(FOLDER / f"run.{ending}"))) == {
        **FACTS["recording"], **({"name": "run"} if ending == "csv" else {}),
    }  # fmt: skip


def test_a_payload_is_that_of_today() -> None:
    then = json.loads((FOLDER / "model.json").read_text("utf-8"))
    now = mk.ModelGraph(writer.linears(), args=torch.zeros(2, 4)).payload
    assert then["schema_version"] == now["schema_version"] == FACTS["page"]["version"]
    assert then["nodes"]["name"] == now["nodes"]["name"] == FACTS["page"]["names"]


def test_the_state_in_a_saved_notebook_is_known() -> None:
    saved = json.loads((FOLDER / "saved_notebook.json").read_text("utf-8"))
    states = saved["metadata"]["widgets"]["application/vnd.jupyter.widget-state+json"]["state"].values()
    (state,) = [each["state"] for each in states if each["model_name"] == "ModelGraphModel"]
    known = mk.ModelGraph.class_traits(sync=True)
    assert set(state) - set(known) == set()
    assert state["payload"]["nodes"]["name"] == FACTS["page"]["names"]


@pytest.mark.parametrize("name", FACTS["fingerprints"])
def test_fingerprints_are_the_same(name: str) -> None:
    with meta_weights():
        model = torchvision_builders()[name]()
    structure, seed = mk.fingerprint(model), mk.fingerprint(model, scheme="seed")
    assert [structure.hexdigest, structure.display_name, seed.display_name] == FACTS["fingerprints"][name]


def test_fingerprints_of_weights_are_the_same() -> None:
    assert str(mk.weight_fingerprint(writer.linears())) == FACTS["weights"]
