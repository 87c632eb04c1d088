"""Errors for unknown keywords, with advice for those that other pruning and logging tools use."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from modulekg_widgets.engine.errors import UnknownKeywordError, closest_match_hint, printable

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_RATIO = "ratio=0.5 of mk.plan, the share of indices to remove"
_FLOOR = "floor=0.1 of mk.plan, the smallest share of each axis to keep"
_AXIS = "per_axis={'layer1.conv1': 0.3} of mk.plan"
_KEEP = "keep=[…] of mk.plan; outputs keep their shape automatically"
_ONLY = "only=[…] of mk.plan, names, modules or classes"
_HEADS = "found automatically; granularity='head' of mk.plan removes whole heads"
_GROUPS = "found automatically; granularity='group' of mk.plan removes whole groups"
_INPUTS = "args of mk.trace(model, args, kwargs)"
_MASKS = "masks of mk.speedup(model, masks, args)"
_STEPS = "mk.PruningSchedule(steps=5, end=0.5)"
_SINKS = "sinks=[…] of mk.Monitor: paths, a TensorBoard writer, a run of wandb"
_RUN = "name=… of mk.Monitor"
_SCHEDULE = "a schedule in its config, as {'fc': [['WeightNorm', 'linear(5, 0)']]}"
_CONFIG = "config of mk.Monitor(model, config), as {'fc': ['WeightNorm']}"
_NAMES = "names, as mk.rewrite.find(model, nn.Linear) gives them"
_PLACE = "not needed: rewriting is in place, and undo() of the result restores the model"
_NEW = "fn of mk.rewrite.replace(model, names, fn), a function that returns the new module"

KEYWORD_ADVICE = {
    # Torch-Pruning
    "pruning_ratio": _RATIO, "ch_sparsity": _RATIO, "head_pruning_ratio": _RATIO, "layer_sparsity": _AXIS,
    "pruning_ratio_dict": _AXIS, "ch_sparsity_dict": _AXIS, "head_pruning_ratio_dict": _AXIS,
    "max_pruning_ratio": _FLOOR, "max_ch_sparsity": _FLOOR,
    "ignored_layers": _KEEP, "ignored_params": _KEEP,
    "global_pruning": "scope='global' of mk.plan", "isomorphic": "scope='isomorphic' of mk.plan",
    "num_heads": _HEADS, "prune_num_heads": _HEADS, "prune_head_dims": "granularity='index' of mk.plan, the default",
    "in_channel_groups": _GROUPS, "out_channel_groups": _GROUPS, "channel_groups": _GROUPS,
    "iterative_steps": _STEPS, "iterative_pruning_ratio_scheduler": _STEPS, "iterative_sparsity_scheduler": _STEPS,
    "example_inputs": _INPUTS, "forward_fn": _INPUTS, "output_transform": "outputs=[…] of mk.trace, those to keep",
    "customized_pruners": "@mk.axis_rule or @mk.adapter over a function of yours",
    "unwrapped_parameters": "not needed: every parameter counts",
    "root_module_types": "not needed: every operator counts", "pruning_dim": "dim of graph.cut_analysis",
    "pruning_fn": "graph.cut_analysis(name, index=[…], dim=0)", "idxs": "index=[…] of graph.cut_analysis",
    "pruning_idxs": "index=[…] of graph.cut_analysis", "round_to_multiple": "round_to=8 of mk.plan",
    # NNI
    "config_list": "ratio=…, per_axis={…}, only=[…] and keep=[…] of mk.plan", "sparsity": _RATIO,
    "sparse_ratio": _RATIO, "total_sparsity": "ratio=0.5, scope='global' of mk.plan", "sparsity_per_layer": _RATIO,
    "max_sparsity_per_layer": _FLOOR,
    "op_types": _ONLY, "op_names": _ONLY, "op_partial_names": _ONLY, "exclude": _KEEP, "exclude_op_names": _KEEP,
    "exclude_op_types": _KEEP, "dummy_input": _INPUTS, "masks_file": _MASKS, "masks": _MASKS,
    "map_location": "not needed: mask files are read on the CPU", "batch_dim": "not needed: nothing is sampled",
    "confidence": "not needed: nothing is sampled", "batch_size": "not needed: nothing is sampled",
    "customized_replace_func": "@mk.adapter(MyModule) over a function of its sizes",
    "evaluator": "importance=mk.pruning.Taylor(batches, loss) of mk.plan",
    "training_steps": "importance=mk.pruning.Taylor(batches, loss) of mk.plan",
    # torch.nn.utils.prune, torch.fx, torch.export, torchinfo
    "amount": _RATIO, "importance_scores": "importance=a function of a group, of mk.plan",
    "concrete_args": _INPUTS, "sample_inputs": _INPUTS,
    "example_kwarg_inputs": "kwargs of mk.trace(model, args, kwargs)",
    "example_kwargs": "kwargs of mk.trace(model, args, kwargs)", "inputs": _INPUTS, "input_data": _INPUTS,
    "input_size": "args of mk.trace(model, args, kwargs): tensors, as torch.randn(1, 3, 224, 224)",
    "input_shape": "args of mk.trace(model, args, kwargs): tensors, as torch.randn(1, 3, 224, 224)",
    "dynamic_shapes": "not needed: sizes are always symbolic", "strict": "not needed",
    "device": "not needed: a trace needs no data, and takes the model where it is",
    "mode": "training=True or False of mk.trace",
    # wandb, Taiyi, TensorBoard
    "log_freq": _SCHEDULE, "interval": _SCHEDULE, "log_every": _SCHEDULE, "every_n_steps": _SCHEDULE, "log": _CONFIG,
    "metrics": _CONFIG, "quantities": _CONFIG, "monitor_config": _CONFIG, "hooks": _CONFIG,
    "log_graph": "mk.ModelGraph(model)", "criterion": "monitor.log({'loss': loss})",
    "models": "a monitor for each model", "wandb": _SINKS, "writer": _SINKS, "logger": _SINKS, "log_dir": _SINKS,
    "dir": _SINKS, "run": _SINKS, "project": _RUN, "run_name": _RUN, "entity": _RUN,
    "optimizer": "optimizer of plan.cut(model, optimizer); a monitor needs none",
    "initial_step": "start=… of mk.Monitor",
    # torch.fx, torch.ao, peft, TorchPruner
    "target_modules": _NAMES, "module_names": _NAMES,
    "modules_to_fuse": "not needed: mk.rewrite.fold_conv_bn finds them",
    "module_type": "cls of mk.rewrite.find(model, cls)", "target_class": "cls of mk.rewrite.find(model, cls)",
    "inplace": _PLACE, "r": "rank=8 of mk.rewrite.low_rank", "lora_alpha": "alpha=… of mk.rewrite.low_rank",
    "replacement": _NEW, "new_module": _NEW, "match_filters": "mk.rewrite.find_chains(graph, pattern)",
    "pattern": "pattern of mk.rewrite.find_chains(graph, pattern)",
    "qconfig": "bits=8, activation_bits=… of mk.rewrite.fake_quant",
    "qconfig_mapping": "bits=8, activation_bits=… of mk.rewrite.fake_quant",
    "calibration_data": "batches=[…] of mk.rewrite.fake_quant",
}  # fmt: skip


def explain_keywords(name: str) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Decorator for a public function or `__init__` that users call as `name`: unknown keywords get an advice.

    Raises `UnknownKeywordError`, a TypeError, that says what the keyword of another tool is here, or the nearest one.
    """

    def decorate(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        known = [parameter for parameter in inspect.signature(function).parameters if parameter != "self"]

        @wraps(function)
        def checked(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
            for keyword in kwargs:
                if keyword not in known:
                    raise UnknownKeywordError(
                        f"{name} takes no keyword {printable(keyword)!r}: {_advice(keyword, known)}"
                    )
            return function(*args, **kwargs)

        return checked

    return decorate


def _advice(keyword: str, known: list[str]) -> str:
    here = KEYWORD_ADVICE.get(keyword)
    return (
        closest_match_hint(keyword, known)
        if here is None
        else f"here it is {here}"
        if not here.startswith("not ")
        else here
    )
