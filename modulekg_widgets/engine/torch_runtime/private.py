"""Every private name of torch that the package uses, with its purpose.

Such names may change with any release of torch; then this is the only file to change (a test of the architecture finds
other uses). Constants are names of attributes in a module's `__dict__`; functions are getters in C.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter, methodcaller
from types import FrameType, ModuleType
from typing import Any, TypeAlias

import torch
from torch import _tensor_str, nn
from torch._subclasses.fake_tensor import FakeTensor as FakeTensor  # a tensor without data that knows its device
from torch._subclasses.fake_tensor import FakeTensorMode as FakeTensorMode  # makes them
from torch.nested._internal.nested_tensor import NestedTensor as NestedTensor  # rows of several lengths, jagged
from torch.utils import _python_dispatch
from torch.utils._python_dispatch import (
    is_traceable_wrapper_subclass as is_traceable_wrapper_subclass,  # made of others
)

from modulekg_widgets.engine.torch_runtime.pytree import Function


class TorchDispatchMode(_python_dispatch.TorchDispatchMode):
    """A mode that sees every operator that runs, with a constructor that has types."""

    def __init__(self) -> None:
        super().__init__()


# ------------------------------------------------------------------ modules, by what stands in their `__dict__`

PARAMETERS, BUFFERS, MODULES = "_parameters", "_buffers", "_modules"  # what a module registers
parameters_of: Callable[[nn.Module], dict[str, Any]] = attrgetter(PARAMETERS)
buffers_of: Callable[[nn.Module], dict[str, Any]] = attrgetter(BUFFERS)
modules_of: Callable[[nn.Module], dict[str, Any]] = attrgetter(MODULES)
VOLATILE_BUFFERS = "_non_persistent_buffers_set"  # names of buffers that are in no state_dict
BACKWARD_HOOKS = "_backward_hooks"  # of a module, and of a tensor
PRE_HOOKS = "_forward_pre_hooks"  # of a module, such as the old kinds of spectral and weight norm
CALL_HOOKS = frozenset({"_forward_hooks", PRE_HOOKS, BACKWARD_HOOKS, "_backward_pre_hooks"})
COMPILED_CALL = "_compiled_call_impl"  # stands here: torch calls it in the place of the module, hooks included
compiled_call_of = attrgetter(COMPILED_CALL)
plain_call_of: Callable[[nn.Module], Function] = attrgetter("_call_impl")  # hooks and forward
CALL_CODE = nn.Module._call_impl.__code__  # the frame of a module's call
OUTER_CALL_CODE = nn.Module._wrapped_call_impl.__code__  # the one around it
ORIGINAL_MODULE = "_orig_mod"  # the module behind what torch.compile returns
FLAT_WEIGHTS, FLAT_WEIGHT_REFS = "_flat_weights", "_flat_weight_refs"  # recurrent layers list their weights once more
PADDING_TWICE = "_reversed_padding_repeated_twice"  # what a convolution pads its input by
padding_twice_of = attrgetter(PADDING_TWICE)
RESET_PARAMETERS = "_reset_parameters"  # attention and transformer layers draw their first weights in it
METHODS_OF_LAYERS = ("_conv_forward", "_output_padding", "_check_input_dim")  # that forward of a standard layer calls
has_one_projection = attrgetter("_qkv_same_embed_dim")  # whether attention keeps query, key and value in one weight
dims_without_batch = attrgetter("_get_no_batch_dim")  # of an instance norm, to be called
NUMERICAL_PATH = "_enable_slow_path_for_better_numerical_stability"  # of a fused norm that is trained with fake quanta
# what compiling, scripting and parallel training leave behind in a module
WRAPPER_ATTRIBUTES = frozenset({
    COMPILED_CALL, "_is_torch_compile", "_ddp_params_and_buffers_to_ignore", "_is_fsdp_managed_module",
    "_fsdp_use_orig_params", "_sync_gradients", "_state_dict_type", "_state_dict_config", "_distribute_module_applied",
})  # fmt: skip
SHARDED_FLAT = "_fsdp_flattened"  # set on a parameter that is part of a flat one, which is sharded
FLAT_HANDLE = "_handle"  # what FullyShardedDataParallel keeps a flat parameter by
# of a flat parameter: its parts where modules keep them as parameters, what lies here, and where each part lies in it
flat_views, flat_shard, flat_positions = (
    attrgetter("_params"),
    attrgetter("_local_shard"),
    attrgetter("_shard_param_infos"),
)
flat_names, flat_shapes = attrgetter("_param_infos"), attrgetter("_shapes")
COPIES_OF_SHARDS = "_inter_node_pg"  # the processes of a wrapper that hold the same shard
PARAMETRIZATIONS = "parametrizations"  # the child that holds what parameters are computed from
ConvNd = nn.modules.conv._ConvNd  # all convolutions
AnyNorm = nn.modules.batchnorm._NormBase  # batch and instance norms
BatchNorm = nn.modules.batchnorm._BatchNorm  # batch norms of any dimension
InstanceNorm = nn.modules.instancenorm._InstanceNorm  # instance norms of any dimension
SpectralParametrization = nn.utils.parametrizations._SpectralNorm  # the new kind of spectral norm
matrix_of_spectral: Callable[[nn.Module], Callable[[torch.Tensor], torch.Tensor]] = attrgetter(
    "_reshape_weight_to_matrix"
)  # the matrix whose norm it takes

# ---------------------------------------------------------------------------------------------------------- hooks

# the hooks for all modules that take keywords: a handle that is removed leaves its entry there
hooks_of_all_modules_with_kwargs: dict[int, bool] = nn.modules.module._global_forward_hooks_with_kwargs
tensor_hooks_of = attrgetter(BACKWARD_HOOKS)  # the hooks of a tensor, None for none
# gives a tensor its hooks without a handle for each
set_tensor_hooks: Callable[[torch.Tensor, Any], None] = vars(torch._C.TensorBase)[BACKWARD_HOOKS].__set__
_ENTRY = "_register_hook_dict"  # tells a graph's node of the hooks of a tensor
CAN_ENTER_HOOKS = hasattr(torch._C._FunctionBase, _ENTRY)  # as `Tensor.register_hook` enters them
hook_entry_of: Callable[[Any], Callable[[torch.Tensor], None]] = attrgetter(_ENTRY)

# --------------------------------------------------------------------------------------------------------- tensors

LIST_EXPORTS: frozenset[Function] = frozenset({torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.__array__})
TensorBase: Any = torch._C.TensorBase  # its descriptors read a tensor whatever its class defines
frame_at: Callable[[int], FrameType] = sys._getframe  # 0 is the frame of the caller
DisableTorchFunction = torch._C.DisableTorchFunction  # neither a tensor's class nor a mode answers
DisableTorchFunctionSubclass = torch._C.DisableTorchFunctionSubclass  # a tensor's class does not answer, a mode does
version_of: Callable[[torch.Tensor], int] = attrgetter("_version")  # how often it was written
base_of: Callable[[torch.Tensor], torch.Tensor | None] = attrgetter("_base")  # what it is a view of
address_of: Callable[[Any], int] = attrgetter("_cdata")  # of a storage or generator in C++, whose wrappers are many
# puts back how often tensors were written: (tensors, versions)
set_versions: Callable[..., None] = torch._C._autograd._unsafe_set_version_counter  # type: ignore[attr-defined]
has_storage: Callable[[torch.Tensor], bool] = torch._C._has_storage  # whether it has memory of its own kind
as_class: Callable[..., torch.Tensor] = torch.Tensor._make_subclass  # a tensor's memory under another class
# whether a tensor may be given the memory and type of another one
can_take_data: Callable[..., bool] = torch._has_compatible_shallow_copy_type  # type: ignore[attr-defined]
# the norms of many tensors in a given precision, on a GPU by few kernels and without copies
norms_at_once: Callable[[list[torch.Tensor], float, torch.dtype], Sequence[torch.Tensor]] = vars(torch)["_foreach_norm"]
values_of_nested: Callable[[torch.Tensor], torch.Tensor] = attrgetter("_values")  # all rows of a jagged tensor
numbers_of: Callable[[torch.Tensor], list[float]] = methodcaller("tolist")  # of a tensor with one dimension
sparse_entry_count: Callable[[torch.Tensor], int] = methodcaller(
    "_nnz"
)  # how many places of a sparse tensor hold something
PRINT_OPTIONS = _tensor_str.PRINT_OPTS  # of the process

# -------------------------------------------------------------------------------------------------------- operators

OpOverload = torch._ops.OpOverload  # aten::add.Tensor
Overload: TypeAlias = "torch._ops.OpOverload[..., Any]"  # its type, whatever it takes and gives
OpOverloadPacket = torch._ops.OpOverloadPacket  # aten::add
HigherOrderOperator = torch._ops.HigherOrderOperator  # cond, which takes functions
SCHEMA = "_schema"  # the signature of an overload
schema_of: Callable[[Overload], torch._C.FunctionSchema] = attrgetter(SCHEMA)
packet_of: Callable[[Overload], OpOverloadPacket] = attrgetter("_overloadpacket")  # the packet of an overload
overload_name_of: Callable[[Overload], str] = attrgetter("_overloadname")  # "Tensor" of aten::add.Tensor
PACKET_NAME = "_qualified_op_name"  # "aten::add" of a packet
packet_name_of: Callable[[Any], str] = attrgetter(PACKET_NAME)
CUSTOM_NAME = "_qualname"  # the same of what torch.library.custom_op makes
has_kernel: Callable[[str, str], bool] = torch._C._dispatch_has_kernel_for_dispatch_key  # tells composite operators
attention_as_products = torch.ops.aten._scaled_dot_product_attention_math  # has second derivatives; the fused have none


def decompositions() -> ModuleType:
    """Operators written in others, as recurrent layers step by step; takes a while to import."""
    from torch._decomp import decompositions as module

    return module


recurrent_steps: Callable[[Any], Function] = attrgetter("_rnn_helper")  # of these, for all recurrent layers


# ------------------------------------------------------------------------------------------------ modes of a thread

disable_current_modes = _python_dispatch._disable_current_modes  # operators run as outside of all modes
function_modes = torch.overrides._get_current_function_mode_stack  # the modes that hear of functions, innermost last
pop_function_mode, push_function_mode = torch.overrides._pop_mode, torch.overrides._push_mode  # to put them back
without_innermost_mode = torch.overrides._pop_mode_temporarily  # a context
without_innermost_dispatch_mode = _python_dispatch._pop_mode_temporarily  # a context, in which operators run past it
set_grad_enabled: Callable[[bool], None] = torch._C._set_grad_enabled  # without the context manager's cost
is_any_autocast_enabled: Callable[[], bool] = torch._C._is_any_autocast_enabled  # on whichever device
tracing_state: Callable[[], object] = torch._C._get_tracing_state  # not None while torch.jit.trace records
_levels = vars(torch._C)["_functorch"]
transforms: Callable[[], object] = _levels.peek_interpreter_stack  # not None inside of vmap, grad
is_functorch_wrapped_tensor: Callable[[torch.Tensor], bool] = _levels.is_functorch_wrapped_tensor  # by one of these
unwrapped_once: Callable[[torch.Tensor], torch.Tensor] = _levels.get_unwrapped  # what one of them has wrapped
backward_pass: Callable[[], int] = torch._C._current_graph_task_id  # its number, -1 outside
backward_node: Callable[[], Any] = torch._C._current_autograd_node  # the one that a backward pass is at
_graphs = vars(torch._C)["_autograd"]
keeps_graph: Callable[[], bool] = _graphs._get_current_graph_task_keep_graph  # may come again
will_run_node: Callable[[Any], bool] = torch._C._will_engine_execute_node  # raises for a leaf of autograd.grad
LEAF_NODE: type = vars(torch._C)["_functions"].AccumulateGrad  # adds to the `.grad` of a leaf
next_node_number: Callable[[], int] = _graphs._get_sequence_nr  # of a graph of gradients
BACKWARD_FUNCTION = "_engine_run_backward"  # in whose frame a thread runs a backward pass
FAKE_TENSOR_LOGGER = "torch._subclasses.fake_tensor"  # logs an error before it is raised
C_EXTENSION = torch._C.__name__  # the module of classes in C++


def is_innermost(mode: TorchDispatchMode) -> bool:
    """True if the mode is the innermost dispatch mode."""
    return _python_dispatch._get_current_dispatch_mode() is mode


def default_device() -> torch.device | None:
    """Returns the device set by `torch.set_default_device` in this thread."""
    context = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    return None if context is None else context.device


# ------------------------------------------------------------------------------------------------------ torch.compile

COMPILED_FROM = "_torchdynamo_orig_callable"  # the function behind a compiled one


def compiler_frames() -> ModuleType | None:
    """The part of torch that wraps compiled modules, once it is loaded."""
    return sys.modules.get("torch._dynamo.eval_frame")


def is_compiler_loaded() -> bool:
    return "torch._dynamo" in sys.modules


def compiler_stance() -> str | None:
    """Returns the stance set by `torch.compiler.set_stance`; None before anything is compiled."""
    frames = compiler_frames()
    return None if frames is None else frames._stance.stance


def count_compiled_frames(count: int) -> int:
    """Sets the number of compiled frames that torch counts in this thread (-1 to stop counting)."""
    frames = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
    set_count = getattr(frames, "set_fullgraph_compiled_frame_count", None)
    return -1 if set_count is None else set_count(count)


def kernel_in_parts(operator: Any) -> Function | None:
    """Returns the kernel of a higher-order operator in terms of basic operators."""
    return operator.py_kernels.get(torch._C.DispatchKey.CompositeExplicitAutograd)


def scan_in_parts(*args: object, **kwargs: object) -> Any:
    """The kernel of scan without its check that no mode is on."""
    from torch._higher_order_ops.scan import generic_scan

    combine, init, xs, *more = args
    return generic_scan(combine, init, xs, additional_inputs=more[0] if more else kwargs.get("additional_inputs", ()))


# -------------------------------------------------------------------------------------------------------- TorchScript

ScriptClass = torch._C.ScriptModule  # the compiled module in C++
NATIVE, TRACED = "_c", "_actual_script_module"  # where a scripted module has it, and a traced one the scripted
type_of_script: Callable[[Any], Callable[[], Any]] = attrgetter("_type")  # of a compiled module or object


def script_registry(role: str, native: Any) -> Mapping[str, Any]:
    """The "parameter", "buffer" or "module" entries of a compiled module."""
    kinds: Any = {"parameter": torch._C.ParameterDict, "buffer": torch._C.BufferDict, "module": torch._C.ModuleDict}  # type: ignore[attr-defined]
    return dict(kinds[role](native).items())


def script_methods(native: Any) -> list[str]:
    """The methods of a compiled module, by name, as the text of their graphs."""
    return [native._get_method(name).graph.str(False) for name in sorted(native._method_names())]


def saved_state(value: Any) -> object:
    """The state that an object of C++ is pickled with."""
    return value.__getstate__()


def can_be_saved(value: Any) -> bool:
    """True if an object of C++ can be pickled."""
    return value._has_method("__getstate__")


# -------------------------------------------------------------------------------------------------------- distributed


def default_store() -> Any:
    """Returns the key-value store of the default process group."""
    return torch.distributed.distributed_c10d._get_default_store()
