"""A mask editor that has data of a user, its page and the kernel's loop; a test file may have another of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from torch import nn
from torch.nn import functional as F

import modulekg_widgets as mk
from widgets.mask_data import BATCHES, Loop, X, loss_of, net
from widgets.mask_page import Page


@pytest.fixture
def model() -> nn.Sequential:
    return net()


@pytest.fixture
def editor(model: nn.Sequential) -> Iterator[mk.MaskEditor]:
    made = mk.MaskEditor(model, X, batches=BATCHES, loss=F.cross_entropy, evaluate=loss_of)
    yield made
    made.close()


@pytest.fixture
def page(editor: mk.MaskEditor, monkeypatch: pytest.MonkeyPatch) -> Page:
    return Page(editor, monkeypatch)


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    return Loop(monkeypatch)
