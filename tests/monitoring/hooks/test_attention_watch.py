"""A forward pass whose attention is watched is as without it, and the watch leaves nothing behind."""

from __future__ import annotations

import copy
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import _get_current_function_mode_stack

from models.functional import Lambda
from modulekg_widgets.engine.monitoring.hooks.attention_recorder import remove_interrupted
from modulekg_widgets.engine.monitoring.measures.attention_logits import AttentionLogits
from modulekg_widgets.engine.monitoring.metric import NoValueError
from monitoring.measures.attention_samples import (
    B,
    E,
    Fused,
    H,
    L,
    N,
    S,
    W,
    check,
    projected,
    random,
    reference,
    watched,
)


class Twice(nn.Module):
    """Two attentions, one of them in a child that is called again."""

    def __init__(self, fail: BaseException | None = None) -> None:
        super().__init__()
        self.inner, self.fail = Fused(), fail

    def forward(self, x: torch.Tensor, depth: int = 0) -> torch.Tensor:
        y = self.inner(x, x, x) + F.scaled_dot_product_attention(x, 2 * x, x)
        if self.fail is not None:
            raise self.fail
        return self(y, depth - 1) if depth else y


def test_nested_watches_see_their_own_and_all_calls_count() -> None:
    module, x = Twice(), random(B, H, L, E)
    outer, inner = watched(module), watched(module.inner)
    module(x)
    assert [len(each[0].calls) for each in (outer, inner) if each[0]] == [2, 1]
    check(inner[0], reference(x, x))
    parts = [reference(x, x), reference(x, 2 * x)]
    check(outer[0], (sum(part[0] for part in parts) / 2, max(part[1] for part in parts)))


def test_a_recursive_module_has_its_own_calls() -> None:
    module = Twice()
    seen = watched(module)
    module(random(B, H, L, E), depth=2)
    assert [len(each.calls) for each in seen if each] == [2, 4, 6]  # the innermost ends first
    assert not _get_current_function_mode_stack()


def test_what_raises_leaves_nothing() -> None:
    module = Twice(ValueError("stop"))
    seen = watched(module)
    with pytest.raises(ValueError, match="stop"):
        module(random(B, H, L, E))
    assert seen == [None]
    assert not _get_current_function_mode_stack()


def test_an_interrupt_is_made_good() -> None:
    module, x = Twice(KeyboardInterrupt()), random(B, H, L, E)
    seen = watched(module)
    with pytest.raises(KeyboardInterrupt) as caught:  # its traceback keeps the frames, as in a notebook
        module(x)
    assert len(_get_current_function_mode_stack()) == 1
    F.scaled_dot_product_attention(x, x, x)
    listener = _get_current_function_mode_stack()[0]
    assert len(listener.calls) == 2  # of the call itself, none after it
    module.fail = None
    module(x)
    assert [each and len(each.calls) for each in seen] == [2]
    assert not _get_current_function_mode_stack()
    assert caught.value is not None
    assert module.watch._open == {threading.get_ident(): []}  # type: ignore[union-attr]


def test_what_an_interrupt_left_can_be_taken_away_below_other_modes() -> None:
    module, x = Twice(KeyboardInterrupt()), random(B, H, L, E)
    watched(module)
    with pytest.raises(KeyboardInterrupt):
        module(x)
    with torch.device("cpu"):
        assert len(_get_current_function_mode_stack()) == 2
        remove_interrupted()
        assert [type(mode).__name__ for mode in _get_current_function_mode_stack()] == ["DeviceContext"]
    assert not _get_current_function_mode_stack()


def test_two_watches_of_one_module_see_the_same() -> None:
    module, x = Twice(), random(B, H, L, E)
    both = [watched(module), watched(module)]
    module(x, depth=1)
    assert [[len(each.calls) for each in seen if each] for seen in both] == [[2, 4], [2, 4]]
    assert not _get_current_function_mode_stack()


def test_each_thread_has_its_own() -> None:
    module = Fused()
    seen = watched(module)
    gate = threading.Barrier(2)
    forward = module.forward
    module.forward = lambda *args: (gate.wait(30), forward(*args), gate.wait(30))[1]  # type: ignore[method-assign]
    queries = [random(1, 1, length, E) for length in (3, 6)]
    threads = [threading.Thread(target=module, args=(query, query, query)) for query in queries]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(each.calls[0].query.size(-2) for each in seen if each) == [3, 6]


@pytest.mark.parametrize("weights", [True, False])
def test_training_is_bit_equal(weights: bool) -> None:
    def trained(watch: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = nn.TransformerDecoderLayer(W, H, 16, dropout=0.1, batch_first=True)
        model.self_attn.forward = _with_weights(model.self_attn.forward, weights)  # type: ignore[method-assign]
        seen = [watched(part) for part in model.modules()] if watch else []
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for step in range(3):
            optimizer.zero_grad()
            model(random(N, L, W, seed=step), random(N, S, W)).square().mean().backward()
            optimizer.step()
        assert not watch or [len(each.calls) for each in seen[0] if each] == [2] * 3
        return [*model.state_dict().values(), torch.get_rng_state()]

    assert all(torch.equal(mine, theirs) for mine, theirs in zip(trained(True), trained(False), strict=True))


def _with_weights(forward: Callable[..., Any], weights: bool) -> Callable[..., Any]:
    return lambda *args, **kwargs: forward(*args, **{**kwargs, "need_weights": weights})


@pytest.mark.slow
def test_nothing_is_kept_and_nothing_of_the_graph() -> None:
    module, x = Fused(), random(B, H, L, E).requires_grad_()
    seen = watched(module)
    query = x * 1
    storage = weakref.ref(query)
    module(query, query, query)
    call = seen[0].calls[0]  # type: ignore[union-attr]
    assert not call.query.requires_grad
    del query
    gc.collect()
    assert storage() is None
    data = weakref.ref(call.query)
    del call
    seen.clear()
    gc.collect()
    assert data() is None
    assert copy.deepcopy(module.watch)._open == {threading.get_ident(): []}  # type: ignore[union-attr]


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_what_cannot_be_read_is_a_reason() -> None:
    seen = watched(module := Lambda(lambda m, x: torch.func.vmap(lambda q: F.scaled_dot_product_attention(q, q, q))(x)))
    module(random(B, H, L, E))
    assert seen[0] is not None
    with pytest.raises(NoValueError, match=r"torch\.func"):
        seen[0].largest_logit()
    linear = nn.Linear(E, E)
    seen = watched(linear)
    linear(random(B, E))
    assert seen == [None]


def test_compiled_code_is_left_alone() -> None:
    torch.compiler.reset()
    x = random(B, H, L, E)
    module = Fused()
    seen = watched(module)
    whole = torch.compile(module, backend="eager", fullgraph=True)  # fails at a graph break
    assert torch.equal(whole(x, x, x), Fused()(x, x, x))
    assert seen == [None]
    graphs: list[Any] = []
    part = torch.compile(Fused(), backend=lambda graph, _: graphs.append(graph) or graph.forward, fullgraph=True)
    outer = nn.ModuleDict({"part": part})
    outer.forward = lambda x: part(x, x, x)  # type: ignore[method-assign]
    outer(x)
    seen = watched(outer)
    outer(x)
    assert len(graphs) == 1  # it has not been compiled again
    assert seen[0] is not None
    with pytest.raises(NoValueError, match="compiled"):
        seen[0].entropy()
    with torch.compiler.set_stance("force_eager"):  # as the monitor does on steps that it measures
        outer(x)
    check(seen[1], reference(x, x))


def test_the_fast_path_of_an_encoder_has_no_value_and_stays() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(W, H, 16, batch_first=True)
    model = nn.Sequential(nn.Linear(W, W), nn.TransformerEncoder(layer, 2)).eval()
    x = random(N, L, W)
    with torch.no_grad():
        expected = model(x)
        seen = watched(model)
        assert torch.equal(model(x), expected)
        assert seen[0] is not None
        with pytest.raises(NoValueError, match="set_fastpath_enabled"):
            seen[0].entropy()
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            model(x)
        finally:
            torch.backends.mha.set_fastpath_enabled(True)
    assert seen[1] is not None
    assert len(seen[1].calls) == 2
    first = model[1].layers[0].self_attn  # type: ignore[union-attr, index]
    check(AttentionLogits(seen[1].calls[:1]), reference(*projected(first, model[0](x))))
