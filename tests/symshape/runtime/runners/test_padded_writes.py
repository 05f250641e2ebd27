"""Padded programs that write to their arguments, parameters and buffers: only valid elements,
exactly as eager does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import symshape
from symshape import events
from symshape.runtime.pieces import cutting
from symshape.runtime.runners.padded.runner import PaddedRunner
from symshape.runtime.runners.pieces.runner import padded_parts
from tests.meta_fns.padding.poison import assert_same, poison

Arguments = tuple[torch.Tensor, ...]


def _same(mine: Any, theirs: Any, what: str) -> None:
    pairs = zip(
        torch.utils._pytree.tree_leaves(mine), torch.utils._pytree.tree_leaves(theirs), strict=True
    )
    for place, (a, b) in enumerate(pairs):
        assert_same(a, b, f"{what} {place}", tolerance=1e-4)


def _check(
    fn: Callable[..., Any], calls: Sequence[Arguments], twin: Callable[..., Any] | None = None
) -> PaddedRunner:
    """Padded calls with poisoned buffers against eager: results, arguments afterwards, and state of
    modules.
    """
    compiled = symshape.compile(fn, dynamic=True, runner="padded", fullgraph=True)
    fallbacks: list[str] = []
    unsubscribe = events.subscribe(
        lambda e: fallbacks.append(e.reason) if isinstance(e, events.RunnerFallback) else None
    )
    try:
        with torch.no_grad():
            for number, given in enumerate(calls):
                for entry in compiled.entries:
                    for bucket in entry.runner.buckets:
                        for buffer in bucket.buffers:
                            poison(buffer, number)
                mine, theirs = ([each.clone() for each in given] for _ in range(2))
                _same(compiled(*mine), (twin or fn)(*theirs), f"call {number}, result")
                _same(mine, theirs, f"call {number}, argument")
                if isinstance(fn, nn.Module) and isinstance(twin, nn.Module):
                    _same(fn.state_dict(), twin.state_dict(), f"call {number}, state")
    finally:
        unsubscribe()
    assert not fallbacks
    (entry,) = compiled.entries
    runner: PaddedRunner = entry.runner
    assert runner.buckets
    return runner


class Decode(nn.Module):
    """A step of decoding on a cache of a fixed length that is an argument, as transformers' static
    cache writes it.
    """

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(
        self, x: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, place: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        batch, new, _ = x.shape
        q, k, v = self.qkv(x).view(batch, new, 3, 2, 8).permute(2, 0, 3, 1, 4).unbind(0)
        if self.how == "index_copy":
            keys.index_copy_(2, place, k)
            values.index_copy_(2, place, v)
        else:
            keys[:, :, place] = k
            values[:, :, place] = v
        mask = torch.arange(keys.shape[2], device=x.device)[None, :] <= place[:, None]
        y = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
        return self.out(y.transpose(1, 2).reshape(batch, new, 16)), keys


def _decoding(batch: int, first: int, new: int) -> Arguments:
    cache = torch.randn(2, batch, 2, 24, 8)
    return (
        torch.randn(batch, new, 16),
        cache[0].clone(),
        cache[1].clone(),
        torch.arange(first, first + new),
    )


@pytest.mark.parametrize("how", ["index_copy", "index_put"])
def test_a_decode_step_writes_its_cache(how: str) -> None:
    torch.manual_seed(0)
    calls = [
        _decoding(*each)
        for each in ((4, 0, 7), (3, 7, 3), (4, 5, 8), (3, 11, 3), (2, 10, 6), (2, 23, 3))
    ]
    calls = [each for each in calls if int(each[3][-1]) < 24]
    runner = _check(Decode(how).eval(), calls)
    assert len(runner.padding().padded) >= 4, runner.padding()
    assert len(runner.buckets) <= 4


class Kept(nn.Module):
    """A cache in a buffer, a counter, and a running mean."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(12, 4))
        self.register_buffer("calls", torch.tensor(0))
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> Any:
        self.cache[: x.shape[0]] = x
        self.calls += 1
        before = self.mean.clone()
        self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return self.cache.sum(0), self.calls * 2, before, self.mean + 0, self.cache[1:]


def test_buffers_of_modules_are_written() -> None:
    torch.manual_seed(0)
    _check(Kept(), [(torch.randn(n, 4),) for n in (5, 6, 3, 8, 5, 2)], Kept())


def test_a_warm_up_leaves_no_trace() -> None:
    module = Kept()
    compiled = symshape.compile(module, dynamic={"x": {0: "rows"}}, runner="padded")
    with torch.no_grad():
        compiled(torch.ones(5, 4))
        before = {name: each.clone() for name, each in module.state_dict().items()}
        assert compiled.warm_up([8, 12], progress=False).graphs == 2
    _same(module.state_dict(), before, "state")


def _views(x: torch.Tensor) -> Any:
    y = x * 2
    z = y.t()[1:]
    y[:, 1:].add_(1)
    z[0] = 5
    w = y.view(-1)
    w.mul_(3)
    return y, z.sum(0), w.cumsum(0), y.t().unsqueeze(0) + 0


def _argument_by_views(x: torch.Tensor, y: torch.Tensor) -> Any:
    part = x[:, : y.shape[1]].transpose(0, 1)
    part.copy_(y.t())
    part[-1].zero_()
    return part.sum(0), x.mean(1)


def _returned(x: torch.Tensor) -> Any:
    early = x[1:]
    x.add_(1)
    return x, early, x.sum(0)


def _mask(x: torch.Tensor, keep: torch.Tensor) -> Any:
    x.masked_fill_(~keep, 0).clamp_(-1, 1)
    return x.sum(1)


@pytest.mark.parametrize(
    ("fn", "make"),
    [
        (_views, lambda n, m: (torch.randn(n, m),)),
        (_argument_by_views, lambda n, m: (torch.randn(n, m + 3), torch.randn(n, m))),
        (_returned, lambda n, m: (torch.randn(n, m),)),
        (_mask, lambda n, m: (torch.randn(n, m), torch.rand(n, m) < 0.5)),
    ],
)
def test_writes_through_views(
    fn: Callable[..., Any], make: Callable[[int, int], Arguments]
) -> None:
    _check(fn, [make(*sizes) for sizes in ((5, 4), (6, 3), (3, 8), (5, 5), (2, 2))])


def test_a_returned_argument_is_the_callers_own() -> None:
    compiled = symshape.compile(_returned, dynamic=True, runner="padded")
    x = torch.zeros(4, 3)
    whole, early, _ = compiled(x)
    assert whole is x
    assert early.data_ptr() == x[1:].data_ptr()
    assert (early == 1).all()


def test_arguments_that_overlap_run_op_by_op() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return y * 2

    compiled = symshape.compile(program, dynamic=True, runner="padded")
    compiled(torch.zeros(3), torch.zeros(4))
    seen: list[str] = []
    unsubscribe = events.subscribe(
        lambda e: seen.append(e.reason) if isinstance(e, events.RunnerFallback) else None
    )
    for _ in range(2):
        whole = torch.zeros(8)
        assert compiled(whole[:5], whole[2:]).tolist() == [2, 2, 2, 0, 0, 0]
        assert whole.tolist() == [1] * 5 + [0] * 3
    unsubscribe()
    assert seen == ["what it writes overlaps another tensor of the call"]


def test_arguments_of_one_memory_that_do_not_overlap_are_padded() -> None:
    """As the keys and values of a cache that was allocated at once."""
    compiled = symshape.compile(
        Decode("index_copy").eval(), dynamic=True, runner="padded", fullgraph=True
    )
    seen: list[events.Event] = []
    unsubscribe = events.subscribe(
        lambda e: seen.append(e) if isinstance(e, events.RunnerFallback) else None
    )
    twin = compiled.fn
    with torch.no_grad():
        for batch, first, new in ((4, 0, 7), (3, 7, 3), (4, 5, 8)):
            mine, x, place = (
                torch.randn(2, batch, 2, 24, 8),
                torch.randn(batch, new, 16),
                torch.arange(first, first + new),
            )
            theirs = mine.clone()
            _same(
                compiled(x, mine[0], mine[1], place), twin(x, theirs[0], theirs[1], place), "result"
            )
            _same(mine, theirs, "cache")
    unsubscribe()
    assert not seen


def test_arguments_whose_elements_share_memory_run_op_by_op() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        x[0].add_(1)
        return x.sum(0)

    compiled = symshape.compile(program, dynamic=True, runner="padded")
    for n in (4, 5):
        assert compiled(torch.zeros(1, 3).expand(n, 3)).tolist() == [n] * 3
        assert compiled(torch.zeros(n, 6)[:, ::2]).tolist() == [1] * 3


def test_batch_norm_in_training_is_refused_and_right() -> None:
    torch.manual_seed(0)
    module, twin = nn.BatchNorm1d(4), nn.BatchNorm1d(4)
    compiled = symshape.compile(module, dynamic={"input": {0: "batch"}}, runner="padded")
    with torch.no_grad():
        for n in (5, 6, 3):
            x = torch.randn(n, 4)
            _same(compiled(x), twin(x), "result")
            _same(module.state_dict(), twin.state_dict(), "state")
    assert "statistics over a whole tensor" in compiled.report()


def test_buffers_that_share_memory_are_left_to_eager() -> None:
    module = nn.Module()
    memory = torch.zeros(6)
    module.first, module.second = memory[:4], memory[2:]

    def program(x: torch.Tensor) -> torch.Tensor:
        module.first.add_(x.sum())
        return module.second * 2

    compiled = symshape.compile(program, dynamic=True, runner="padded")
    assert compiled(torch.ones(3)).tolist() == [6, 6, 0, 0]
    assert compiled(torch.ones(2)).tolist() == [10, 10, 0, 0]


def test_an_index_that_eager_refuses_writes_nothing() -> None:
    def program(x: torch.Tensor, i: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.index_copy_(0, i, y)
        return x.sum(0)

    compiled = symshape.compile(program, dynamic=True, runner="padded")
    compiled(torch.zeros(5, 2), torch.tensor([0, 4, 2]), torch.ones(3, 2))
    x = torch.zeros(5, 2)
    with pytest.raises(IndexError):
        compiled(x, torch.tensor([0, 5, 2]), torch.ones(3, 2))
    compiled(x, torch.tensor([1, 0, 2]), torch.ones(3, 2))
    assert x.sum() == 6


def _poisoned_calls(fn: Any, shapes: Sequence[tuple[int, ...]], make: Any = torch.randn) -> None:
    compiled = symshape.compile(fn, dynamic=True, runner="padded")
    with torch.no_grad():
        for number, shape in enumerate(shapes):
            for bucket in compiled.entries[0].runner.buckets if compiled.entries else ():
                for buffer in bucket.buffers:
                    poison(buffer, number)
            mine = make(*shape)
            theirs = mine.clone()
            for a, b in zip(_leaves(compiled(mine)), _leaves(fn(theirs)), strict=True):
                assert_same(a, b, f"{shape}")
                assert a.stride() == b.stride()
            assert torch.equal(mine, theirs), shape


def _leaves(result: Any) -> list[torch.Tensor]:
    return [
        each for each in torch.utils._pytree.tree_leaves(result) if isinstance(each, torch.Tensor)
    ]


def test_writes_through_a_view_that_has_to_be_read_one_by_one() -> None:
    """Its sizes are not made of whole old ones: what is put back lies elsewhere at the
    capacities.
    """

    def fn(x: torch.Tensor) -> torch.Tensor:
        rows = x.view(x.size(-1), -1)
        rows.add_(3)
        return rows.sum()

    _poisoned_calls(fn, ((8, 1, 1), (5, 1, 1), (2, 3, 4), (3, 2, 2), (4, 1, 3)))


def test_writes_into_an_argument_whose_dimension_is_made_of_several_sizes() -> None:
    """In the first piece the sizes stand apart, in the second one the argument is flat, and
    compacted to be written.
    """

    def fn(x: torch.Tensor) -> Any:
        flat = x.view(-1)
        found = torch.bincount(flat.abs().long())
        flat.scatter_(0, flat.argmax(0, keepdim=True) * 0 + found[:1] * 0, 9)
        return flat * 1, found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cutting, "LEAST", 1)
        compiled = symshape.compile(fn, dynamic=True, runner="padded")
        with torch.no_grad():
            for number, shape in enumerate(((6, 4, 8), (3, 1, 2), (3, 1, 2), (2, 2, 2), (3, 1, 2))):
                for entry in compiled.entries:
                    for _, part in padded_parts(entry.runner, entry.program):
                        for bucket in part.buckets:
                            for buffer in bucket.buffers:
                                poison(buffer, number)
                mine = torch.randn(shape) * 3
                theirs = mine.clone()
                for a, b in zip(compiled(mine), fn(theirs), strict=True):
                    assert_same(a, b, f"{shape}")
                assert torch.equal(mine, theirs), shape


def test_results_that_lie_as_reshape_has_it() -> None:
    """With a size of 1 eager makes a view there, and a copy else: what is computed from it lies
    like that.
    """
    _poisoned_calls(
        lambda x: (x.transpose(-1, 1).flatten(0, 1) * 2, x.sum()),
        ((3, 3, 5, 4), (2, 2, 8, 1), (2, 2, 8, 3), (2, 2, 8, 1)),
    )
