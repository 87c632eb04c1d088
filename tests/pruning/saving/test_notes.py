"""transformers' own `save_pretrained` warns where a cut has left the configuration behind."""

from __future__ import annotations

import copy
import json
import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest

import modulekg_widgets as mk
from models import transformers_models
from modulekg_widgets.engine.pruning.cut.notes import KEY


@pytest.fixture
def llama() -> tuple[Any, Any]:
    pytest.importorskip("transformers")
    model, kwargs = transformers_models.build("llama")
    return model, mk.plan(mk.trace(model, (), kwargs), ratio=0.5)


@pytest.mark.slow
def test_a_cut_model_warns_when_its_library_saves_it(llama: tuple[Any, Any], tmp_path: Path) -> None:
    model, plan = llama
    receipt = plan.cut(model)
    for each in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model)), model.config):
        with pytest.warns(UserWarning, match=r"receipt\.save_pretrained"):
            each.save_pretrained(tmp_path / "theirs")
    assert KEY in json.loads((tmp_path / "theirs" / "config.json").read_text())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert KEY in repr(model.config)  # nobody is warned who only looks
        receipt.save_pretrained(tmp_path / "ours")
    assert KEY not in json.loads((tmp_path / "ours" / "config.json").read_text())


def test_a_cut_that_the_configuration_follows_does_not_warn(tmp_path: Path) -> None:
    """Layers that leave their list are counted: the library loads what it has saved."""
    pytest.importorskip("transformers")
    model, kwargs = transformers_models.build("llama")
    mk.plan(mk.trace(model, (), kwargs), blocks=1).cut(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.save_pretrained(tmp_path / "theirs")
    again, loading = type(model).from_pretrained(tmp_path / "theirs", output_loading_info=True)  # type: ignore[attr-defined]
    assert not any(loading[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert len(again.model.layers) == 1


def test_the_uncut_and_the_undone_do_not_warn(llama: tuple[Any, Any], tmp_path: Path) -> None:
    model, plan = llama
    config, before = model.config, dict(vars(model.config))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.save_pretrained(tmp_path / "whole")
        plan.cut(model).undo()
        assert model.config is config
        before.update({name: vars(config)[name] for name in ("architectures", "dtype")})  # which saving sets
        assert vars(config) == before
        model.save_pretrained(tmp_path / "undone")
