"""Experts of a list in a MaskEditor in JupyterLab: an index that goes takes its module along, counted, cut and back."""

from __future__ import annotations

import pytest

from browser.fixtures import in_shared_page
from browser.masks import MasksPage
from browser.page import NotebookPage

SETUP = """
import torch
from IPython.display import display
from torch import nn
import modulekg_widgets as mk

class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.num_experts = 5
        self.gate = nn.Linear(8, 5)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 8)) for _ in range(5))

    def forward(self, x):
        weights, chosen = self.gate(x).softmax(-1).topk(2, dim=-1)
        out = torch.zeros_like(x)
        for number in range(self.num_experts):
            rows, slots = torch.where(chosen == number)
            out[rows] += self.experts[number](x[rows]) * weights[rows, slots, None]
        return out

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 8), Mixture(), nn.Linear(8, 3)).eval()
weights = mk.weight_fingerprint(model)
"""
SHOW = """
editor = mk.MaskEditor(model, torch.randn(20, 6))
display(editor)
"""
EXPERTS = "1.gate.experts"
ONE = 8 * 12 + 12 + 12 * 8 + 8 + 8 + 1  # an expert, its row of the router, and its bias there
SIZES = "[len(model[1].experts), model[1].num_experts, model[1].gate.out_features]"


@pytest.mark.nightly
@in_shared_page
def test_an_index_takes_its_module_along(notebook: NotebookPage) -> None:
    masks = MasksPage.show(notebook, SETUP, SHOW)
    whole = notebook.value("sum(p.numel() for p in model.parameters())")
    masks.click(EXPERTS, 1)
    masks.wait_for_dropped({EXPERTS: [1]})
    masks.wait_for_after("params", whole - ONE)
    masks.click(EXPERTS, 3)
    masks.wait_for_after("params", whole - 2 * ONE)
    masks.wait_for_report("Dry run passed")
    assert [masks.after("params"), masks.after("flops")] == notebook.value(
        "[editor.plan.params[1], editor.plan.flops[1]]"
    )
    notebook.screenshot("mask-editor-experts")
    masks.button("cut").click()
    masks.button("confirm").click()
    notebook.wait_for_value(SIZES, [3, 3, 3])
    assert notebook.value("sum(p.numel() for p in model.parameters())") == whole - 2 * ONE
    masks.button("undo-model").click()
    notebook.wait_for_value(f"{SIZES} + [mk.weight_fingerprint(model) == weights]", [5, 5, 5, True])
