"""`mk.rewrite`: finding, replacing, functions as modules, and ready recipes."""

from __future__ import annotations

from modulekg_widgets.engine.rewriting.chains import find_chains
from modulekg_widgets.engine.rewriting.function_modules.context import (
    FunctionModules,
    activate,
    deactivate,
    function_modules,
    is_active,
)
from modulekg_widgets.engine.rewriting.function_modules.function_module import FunctionModule
from modulekg_widgets.engine.rewriting.recipes.folding import Folding, fold_conv_bn
from modulekg_widgets.engine.rewriting.recipes.low_rank import Adaptation, low_rank, merge_low_rank
from modulekg_widgets.engine.rewriting.recipes.quantization import FakeQuantization, fake_quant
from modulekg_widgets.engine.rewriting.recipes.separable import Separation, depthwise_separable
from modulekg_widgets.engine.rewriting.replace import replace, replace_chains
from modulekg_widgets.engine.rewriting.select import find, get, set
from modulekg_widgets.engine.rewriting.undo import Rewrite

__all__ = [
    "Adaptation",
    "FakeQuantization",
    "Folding",
    "FunctionModule",
    "FunctionModules",
    "Rewrite",
    "Separation",
    "activate",
    "deactivate",
    "depthwise_separable",
    "fake_quant",
    "find",
    "find_chains",
    "fold_conv_bn",
    "function_modules",
    "get",
    "is_active",
    "low_rank",
    "merge_low_rank",
    "replace",
    "replace_chains",
    "set",
]
