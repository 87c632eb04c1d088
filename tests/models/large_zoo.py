"""A graph of 2,000 real models with published results, for the nightly tests of what is promised at that size."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

LEAST = 2000  # models


@pytest.fixture(scope="session")
def large_zoo(require: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of all models of torchvision, timm and transformers that can be built; ten minutes where none is given.

    $MODULEKG_LARGE_ZOO names a store to copy, of an earlier `modulekg index timm:all torchvision:all transformers:all`.
    """
    require("timm", "transformers")
    import modulekg_widgets as mk

    file = tmp_path_factory.mktemp("large_zoo") / "zoo.db"
    given = os.environ.get("MODULEKG_LARGE_ZOO")
    if given:
        shutil.copy(given, file)
    kg = mk.KnowledgeGraph(str(file))
    if not given:
        for builders in (mk.torchvision_builders(), mk.timm_builders(), mk.transformers_builders()):
            mk.index_models(builders, kg)
    if not kg.contents().jobs:
        kg.add_results(mk.published_results("timm"))
    assert len(kg.contents().models) >= LEAST
    return file
