"""Sorts that may as well be stable: no result tells which of equal elements came first.

The oracle runs the traced program op by op with a sort that puts equal elements in the opposite
order: what is settled answers the same, and of what is not, one answers something else (or the
program is known to be harmless, and refused).
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import symshape
from guards.terms import fold
from guards.terms.term import Term
from symshape.graph.graph import Graph
from symshape.graph.steps import Value
from symshape.runtime.padding.ties import with_stable_sorts
from symshape.runtime.runners.padded.runner import PaddedRunner
from tests.meta_fns.padding.poison import assert_same, poison

aten = torch.ops.aten
EXPERTS, WIDTH = 4, 16
torch.manual_seed(0)
WEIGHTS = torch.randn(EXPERTS, WIDTH, WIDTH)
BIAS = torch.randn(EXPERTS, WIDTH)
GATE = torch.randn(WIDTH, EXPERTS)


def _ids(x: torch.Tensor, k: int = 2) -> torch.Tensor:
    return (x @ GATE).softmax(-1).topk(k)[1].reshape(-1)


def _ends(ids: torch.Tensor, least: int = 0, most: int = EXPERTS - 1) -> torch.Tensor:
    return torch.histc(ids.float(), bins=most - least + 1, min=least, max=most).cumsum(
        0, dtype=torch.int32
    )


def _inverse(order: torch.Tensor) -> torch.Tensor:
    back = torch.empty_like(order)
    back[order] = torch.arange(order.size(0))
    return back


def experts(x: torch.Tensor) -> torch.Tensor:
    ids, order = torch.sort(_ids(x))
    rows = torch._grouped_mm(x[order // 2], WEIGHTS, offs=_ends(ids)).add_(BIAS[ids])
    rows = rows.unflatten(1, (2, -1)).softmax(2).flatten(1).mul_(2.0)
    return rows[_inverse(order)].view(x.size(0), 2, -1).sum(1)


def experts_by_two_sorts(x: torch.Tensor) -> torch.Tensor:
    ids, order = torch.sort(_ids(x))
    rows = torch._grouped_mm(x[order // 2], WEIGHTS, offs=_ends(ids))
    return rows[torch.argsort(order)]


def experts_added_up(x: torch.Tensor) -> torch.Tensor:
    ids, order = torch.sort(_ids(x))
    rows = torch._grouped_mm(x[order // 2], WEIGHTS, offs=_ends(ids))
    return torch.zeros_like(x).index_add_(0, order // 2, rows)


def experts_scattered(x: torch.Tensor) -> torch.Tensor:
    ids, order = torch.sort(_ids(x))
    rows = torch._grouped_mm(x[order // 2], WEIGHTS, offs=_ends(ids))
    made = torch.zeros(order.size(0), WIDTH)
    made[order] = rows
    return made


def experts_that_may_be_elsewhere(x: torch.Tensor) -> torch.Tensor:
    """As transformers has it: the keys are written to once they were counted."""
    ids, order = torch.sort(_ids(x))
    rows, ends = x[order // 2], _ends(ids)
    elsewhere = (ids >= EXPERTS).unsqueeze(1)
    ids.clamp_(max=EXPERTS - 1)
    rows.masked_fill_(elsewhere, 0.0)
    rows = torch._grouped_mm(rows, WEIGHTS, offs=ends).masked_fill(elsewhere, 0.0)
    return rows[_inverse(order)].view(x.size(0), 2, -1).sum(1)


def values_alone(x: torch.Tensor) -> torch.Tensor:
    return torch.sort(_ids(x))[0] * 2


def rows_looked_up(x: torch.Tensor) -> torch.Tensor:
    order = torch.sort(_ids(x))[1]
    rows = torch.nn.functional.embedding(order // 2, x) + 2 * x.index_select(0, order // 2)
    return torch.zeros_like(x).index_put_((order // 2,), rows, accumulate=True)


SETTLED = (
    *(
        rows_looked_up,
        experts,
        experts_by_two_sorts,
        experts_added_up,
        experts_scattered,
        values_alone,
    ),
    experts_that_may_be_elsewhere,
)


def positions(x: torch.Tensor) -> torch.Tensor:
    return torch.sort(_ids(x))[1]


def rows_in_order(x: torch.Tensor) -> torch.Tensor:
    ids, order = torch.sort(_ids(x))
    return torch._grouped_mm(x[order // 2], WEIGHTS, offs=_ends(ids))


def the_way_back(x: torch.Tensor) -> torch.Tensor:
    return _inverse(torch.sort(_ids(x))[1])


def a_running_sum_of_rows(x: torch.Tensor) -> torch.Tensor:
    order = torch.sort(_ids(x))[1]
    return x[order // 2].cumsum(0)[_inverse(order)]


def groups_that_end_anywhere(x: torch.Tensor) -> torch.Tensor:
    order = torch.sort(_ids(x))[1]
    ends = torch.tensor([1, 2, 3, 4], dtype=torch.int32)
    return (
        torch._grouped_mm(x[order // 2], WEIGHTS, offs=ends)[_inverse(order)][:, :4]
        .nan_to_num(0)
        .clamp(-9, 9)
    )


def groups_without_the_first_expert(x: torch.Tensor) -> torch.Tensor:
    ids, order = torch.sort(_ids(x))
    rows = torch._grouped_mm(x[order // 2], WEIGHTS[1:], offs=_ends(ids, least=1))
    return rows[_inverse(order)][: x.size(0) // 2]


def positions_twice(x: torch.Tensor) -> torch.Tensor:
    """Of several rows that are written to one place the last one stays."""
    order = torch.sort(_ids(x))[1]
    return torch.zeros(x.size(0), 1).index_put_((order // 8,), order.unsqueeze(1).float())


def rows_beside_others(x: torch.Tensor) -> torch.Tensor:
    order = torch.sort(_ids(x))[1]
    return (x[order // 2] + torch.arange(order.size(0)).unsqueeze(1))[_inverse(order)]


def a_view_written_to(x: torch.Tensor) -> torch.Tensor:
    order = torch.sort(_ids(x))[1]
    rows = x[order // 2]
    rows[:1].zero_()
    return rows[_inverse(order)]


def a_base_written_to(x: torch.Tensor) -> torch.Tensor:
    order = torch.sort(_ids(x))[1]
    rows = torch.zeros(order.size(0), WIDTH)
    flat = rows.view(-1)
    rows.copy_(x[order // 2])
    return flat


def a_maximum_of_positions(x: torch.Tensor) -> torch.Tensor:
    order = torch.sort(_ids(x))[1]
    return order[: x.size(0)].max()


def floats_that_are_equal(x: torch.Tensor) -> torch.Tensor:
    """0.0 and -0.0 are, and differ all the same."""
    return 1 / torch.sort(torch.where(x[:, 0] > 0, 0.0, -0.0))[0]


def positions_as_halves(x: torch.Tensor) -> torch.Tensor:
    """Casts make equal what was not."""
    order = torch.sort(_ids(x))[1]
    return torch.sort((order * 100).to(torch.float8_e5m2).float())[1]


def keys_written_to(x: torch.Tensor) -> torch.Tensor:
    ids, order = torch.sort(_ids(x))
    ids.add_(torch.arange(ids.size(0)))
    return (x[order // 2] * ids.unsqueeze(1))[_inverse(order)]


def counted_when_written_to(x: torch.Tensor) -> torch.Tensor:
    ids, order = torch.sort(_ids(x))
    ids[: x.size(0)].zero_()
    return torch._grouped_mm(x[order // 2], WEIGHTS, offs=_ends(ids))[_inverse(order)]


def ends_written_to(x: torch.Tensor) -> torch.Tensor:
    ids, order = torch.sort(_ids(x))
    ends = _ends(ids)
    ends[0].sub_(1).clamp_(min=0)
    return torch._grouped_mm(x[order // 2], WEIGHTS, offs=ends)[_inverse(order)]


UNSETTLED = (
    counted_when_written_to,
    ends_written_to,
    positions,
    rows_in_order,
    the_way_back,
    a_running_sum_of_rows,
    groups_that_end_anywhere,
    groups_without_the_first_expert,
    positions_twice,
    rows_beside_others,
    a_view_written_to,
    a_base_written_to,
    a_maximum_of_positions,
    keys_written_to,
    floats_that_are_equal,
    positions_as_halves,
)


def _backwards(
    x: torch.Tensor, dim: int = -1, descending: bool = False, **_: Any
) -> tuple[torch.Tensor, ...]:
    """A sort that puts equal elements in the opposite order."""
    flipped = x.flip(dim)
    values, at = torch.sort(flipped, dim=dim, descending=descending, stable=True)
    return values, x.size(dim) - 1 - at


def _run(graph: Graph, x: torch.Tensor, sort: Callable[..., Any] | None) -> Any:
    """A graph op by op, with a sort in place of those that are not stable."""
    known: dict[Value, Any] = {graph.inputs[0].value: x}
    known |= {
        each.value: each.tensor.clone() if each.constant else each.tensor for each in graph.lifted
    }

    def read(arg: Any) -> Any:
        if type(arg) is Value:
            return known[arg]
        if type(arg) is Term:
            return fold.evaluate(arg, {"s0": x.size(0), "s1": x.size(1)})
        return [read(each) for each in arg] if isinstance(arg, (list, tuple)) else arg

    for node in graph.nodes:
        op: Any = sort if sort is not None and node.op is aten.sort.default else node.op
        made = op(*map(read, node.args), **{name: read(arg) for name, arg in node.kwargs.items()})
        made = made if isinstance(made, (list, tuple)) else [made]
        known.update(
            (value, each)
            for value, each in zip(node.outputs, made, strict=False)
            if value is not None
        )
    return known[graph.outputs[0]]


def _traced(fn: Callable[..., Any]) -> Graph:
    with torch.no_grad():
        return symshape.trace(fn, torch.randn(7, WIDTH), dynamic=True).program.graph


def _unstable(graph: Graph) -> int:
    return sum(node.op is aten.sort.default for node in graph.nodes)


@pytest.mark.parametrize("fn", SETTLED, ids=lambda fn: fn.__name__)
def test_what_no_result_can_tell_is_settled(fn: Callable[..., Any]) -> None:
    graph = _traced(fn)
    assert _unstable(graph)
    settled = with_stable_sorts(graph)
    assert not _unstable(settled)
    assert with_stable_sorts(graph) is settled
    for rows in (1, 2, 5, 23):
        x = torch.randn(rows, WIDTH)
        expected = fn(x)
        for found in (_run(graph, x, _backwards), _run(settled, x, None)):
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("fn", UNSETTLED, ids=lambda fn: fn.__name__)
def test_what_a_result_can_tell_is_not(fn: Callable[..., Any]) -> None:
    graph = _traced(fn)
    assert _unstable(graph)
    assert with_stable_sorts(graph) is graph
    torch.manual_seed(0)
    xs = [torch.randn(rows, WIDTH) for rows in (5, 9, 23, 24) * 10]
    told = [not torch.allclose(_run(graph, x, _backwards), fn(x), rtol=1e-5, atol=1e-5) for x in xs]
    assert any(told), "harmless after all: is it to be settled?"


@pytest.mark.slow
@pytest.mark.parametrize("fn", [positions, experts], ids=lambda fn: fn.__name__)
def test_graphs_that_were_looked_at_go_when_nobody_holds_them(fn: Callable[..., Any]) -> None:
    graph = _traced(fn)
    with_stable_sorts(graph)
    seen = weakref.ref(graph)
    del graph
    gc.collect()
    assert seen() is None


@pytest.mark.parametrize("fn", SETTLED, ids=lambda fn: fn.__name__)
def test_settled_programs_are_padded(fn: Callable[..., Any]) -> None:
    compiled = symshape.compile(fn, dynamic=True, runner="padded")
    with torch.no_grad():
        for number, rows in enumerate((9, 12, 10, 11, 33, 40, 35)):
            for entry in compiled.entries:
                assert isinstance(entry.runner, PaddedRunner)
                for bucket in entry.runner.buckets:
                    for buffer in bucket.buffers:
                        poison(buffer, number)
            x = torch.randn(rows, WIDTH)
            assert_same(compiled(x), fn(x), f"{rows} rows", tolerance=1e-4)
    (entry,) = compiled.entries
    assert isinstance(entry.runner, PaddedRunner)
    assert entry.runner.padding().padded == ("s0",)
    assert len(entry.runner.buckets) == 2


def test_positions_in_a_result_are_still_refused() -> None:
    compiled = symshape.compile(rows_in_order, dynamic=True, runner="padded")
    with torch.no_grad():
        for rows in (9, 11):
            x = torch.randn(rows, WIDTH)
            assert_same(compiled(x), rows_in_order(x), f"{rows} rows", tolerance=1e-4)
    (entry,) = compiled.entries
    assert isinstance(entry.runner, PaddedRunner)
    assert not entry.runner.padding().padded
    assert "equal elements" in str(entry.runner.padding())


def test_a_mixture_of_experts_of_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    transformers = pytest.importorskip("transformers")
    moe = pytest.importorskip("transformers.integrations.moe")
    monkeypatch.setattr(moe, "_can_use_grouped_mm", lambda *_: True)  # as on CUDA in bfloat16
    sizes = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }
    config = transformers.MixtralConfig(
        vocab_size=64, num_key_value_heads=2, num_local_experts=4, **sizes
    )
    model: nn.Module = transformers.MixtralModel(config).eval()
    model.set_experts_implementation("grouped_mm")  # type: ignore[operator]
    compiled = symshape.compile(model, dynamic=True, runner="padded")
    with torch.no_grad():
        for batch, length in ((3, 9), (3, 12), (2, 10), (4, 23), (4, 17)):
            tokens = torch.randint(0, 64, (batch, length))
            mine, theirs = (
                each(tokens, use_cache=False).last_hidden_state for each in (compiled, model)
            )
            assert_same(mine, theirs, f"{batch, length}", tolerance=1e-4)
    (entry,) = symshape.compiled_of(compiled).entries
    assert isinstance(entry.runner, PaddedRunner)
    assert set(entry.runner.padding().padded) == {"s0", "s1"}
