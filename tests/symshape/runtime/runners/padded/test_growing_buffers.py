"""Appends go into the buffers of a padded program where nothing else reads them: what new memory
held, or nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import symshape
from symshape import Options, events
from symshape.graph.codegen import compile_graph
from symshape.graph.interpreter import interpreter
from symshape.runtime.padding.padded_graph import PaddedGraph
from symshape.runtime.padding.results import amount
from symshape.runtime.runners.cuda import launch
from symshape.runtime.runners.padded import bucket as module_of_bucket
from symshape.runtime.runners.padded import fusion
from symshape.runtime.runners.padded.bucket import Variant, measured
from symshape.runtime.runners.padded.cache_append import APPENDED, append
from symshape.runtime.runners.padded.cache_append_op import APPENDED_IN_PLACE
from symshape.runtime.runners.padded.growing_buffers import _VIEWS, _apart, _Region, extended
from symshape.runtime.runners.padded.runner import PaddedRunner
from tests.bench.streams import make
from tests.meta_fns.padding.poison import assert_same, poison
from tests.symshape.runtime.runners.padded.test_cache_append import _valid, padded

aten = torch.ops.aten
Fn = Callable[..., Any]
Tensors = tuple[torch.Tensor, ...]


def more_of(fn: Fn, *call: torch.Tensor) -> Mapping[int, tuple[int, int]]:
    """Which buffers are longer; what runs on them makes what it made before, whatever they held."""
    made = padded(fn, *call)
    before = compile_graph(made.graph, {})
    found = extended(append(made), made, range(len(made.axes)))
    after, ops = interpreter(found.graph), [node.op for node in found.graph.nodes]
    assert (APPENDED_IN_PLACE in ops, APPENDED in ops) == (bool(found.more), not found.more)
    whole, buffers = _buffers(made, found.more)
    caps = made.region.caps
    most = max(caps.values())
    (length,) = made.axes[0][-2]  # others may have to be what they are
    read = {symbol.name for symbol in length.term.symbols}
    rng = random.Random(0)
    for number, size in enumerate(
        (most, 1, 2, most - 1, 3, 2, *(rng.randint(1, most) for _ in range(8)))
    ):
        values = {name: min(size, cap) if name in read else cap for name, cap in caps.items()}
        sizes = [torch.tensor(amount(term, values)) for term in made.sizes]
        leaves = []
        for value, axes, buffer, memory in zip(
            made.graph.inputs, made.axes, buffers, whole, strict=False
        ):
            poison(memory, number)
            leaf = torch.zeros(value.value.spec.sizes).to(memory.dtype)
            part = _valid(leaf, axes, values)
            part.copy_(torch.randn(part.shape))
            _valid(buffer, axes, values).copy_(part)
            leaves.append(leaf)
        expected, ours = before([*leaves, *sizes], ()), after([*buffers, *sizes])
        for place, result in made.outputs.values():
            got, theirs = (_valid(each[place], result.axes, values) for each in (ours, expected))
            torch.testing.assert_close(got, theirs, msg=lambda text, n=number: f"call {n}: {text}")
    return found.more


def _buffers(
    made: PaddedGraph, more: Mapping[int, tuple[int, int]]
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    whole, parts = [], []
    for place, each in enumerate(made.graph.inputs[: len(made.axes)]):
        sizes = list(each.value.spec.sizes)
        dim, extra = more.get(place, (0, 0))
        length = sizes[dim]
        sizes[dim] += extra
        whole.append(torch.zeros(sizes, dtype=each.value.spec.dtype))
        parts.append(whole[-1].narrow(dim, 0, length))
    return whole, parts


def attend(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(query, keys, values)


def past(length: int = 9, new: int = 1) -> Tensors:
    """Keys, values, new ones, a query."""
    return (
        torch.randn(2, 3, length, 4),
        torch.randn(2, 3, length, 4),
        torch.randn(2, 3, new, 4),
        torch.randn(2, 3, 1, 4),
    )


def together(length: int = 9, new: int = 1) -> Tensors:
    """Layers, each of keys and values; new ones, a query."""
    return torch.randn(2, 2, 2, 3, length, 4), torch.randn(2, 3, new, 4), torch.randn(2, 3, 1, 4)


@pytest.mark.parametrize("new", [1, 3])
def test_a_cache_of_its_own_for_keys_and_for_values(new: int) -> None:
    def step(
        keys: torch.Tensor, values: torch.Tensor, more: torch.Tensor, query: torch.Tensor
    ) -> torch.Tensor:
        torch._check(more.shape[2] == new)
        return attend(query, torch.cat((keys, more), 2), torch.cat((values, more + 1), -2))

    assert more_of(step, *past(new=new)) == {0: (2, new), 1: (2, new)}


def test_parts_of_one_cache() -> None:
    def step(cache: torch.Tensor, more: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
        torch._check(more.shape[2] == 1)
        for keys, values in (cache[0], cache.unbind()[1]):
            query = query + attend(
                query, torch.cat((keys, more), 2), torch.cat((values, more * 2), 2)
            )
        return query

    assert more_of(step, *together()) == {0: (4, 1)}


def test_several_parts_behind_each_other() -> None:
    def step(
        keys: torch.Tensor, values: torch.Tensor, more: torch.Tensor, query: torch.Tensor
    ) -> torch.Tensor:
        torch._check(more.shape[2] == 1)
        repeated = more[:1].expand(2, 3, 1, 4)
        behind = more, repeated
        return attend(query, torch.cat((keys, *behind), 2), torch.cat((values, *behind[::-1]), 2))

    assert more_of(step, *past()) == {0: (2, 2), 1: (2, 2)}


def test_what_is_new_lies_anywhere() -> None:
    def step(cache: torch.Tensor, more: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
        keys, values = more.view(2, 2, 3, 1, 4).transpose(0, 1)
        return attend(query, torch.cat((cache[0], keys), 2), torch.cat((cache[1], values), 2))

    cache = torch.randn(2, 2, 3, 9, 4)
    assert more_of(step, cache, torch.randn(2, 2, 12), torch.randn(2, 3, 1, 4)) == {0: (3, 1)}


def _twice(cache: torch.Tensor, more: torch.Tensor, query: torch.Tensor) -> Any:
    first = attend(query, torch.cat((cache[0, 0], more), 2), torch.cat((cache[0, 1], more), 2))
    return first + attend(
        query, torch.cat((cache[0, 0], more + 1), 2), torch.cat((cache[1, 1], more), 2)
    )


def _twice_from_the_end(cache: torch.Tensor, more: torch.Tensor, query: torch.Tensor) -> Any:
    return attend(
        query, torch.cat((cache[0, 1], more), 2), torch.cat((cache[0].select(0, -1), more), 2)
    )


def _once_each(cache: torch.Tensor, more: torch.Tensor, query: torch.Tensor) -> Any:
    """One more in the first layer, two in the second: the rows of one of them would have a gap."""
    first = attend(query, *(torch.cat((each, more), 2) for each in cache[0]))
    return first + attend(query, *(torch.cat((each, more, more), 2) for each in cache[1]))


def _read_before(cache: torch.Tensor, more: torch.Tensor, query: torch.Tensor) -> Any:
    query = query + cache[0, 0].sum(2, keepdim=True)
    return attend(query, torch.cat((cache[0, 0], more), 2), torch.cat((cache[0, 1], more), 2))


def _read_after(cache: torch.Tensor, more: torch.Tensor, query: torch.Tensor) -> Any:
    found = attend(query, torch.cat((cache[0, 0], more), 2), torch.cat((cache[0, 1], more), 2))
    return found + cache[0, 0].sum(2, keepdim=True)


def _behind_itself(cache: torch.Tensor, more: torch.Tensor, query: torch.Tensor) -> Any:
    keys = torch.cat((cache[0, 0], cache[0, 1][:, :, :1]), 2)
    return attend(query, keys, torch.cat((cache[1, 0], more), 2))


def _returned(cache: torch.Tensor, more: torch.Tensor, query: torch.Tensor) -> Any:
    keys, values = torch.cat((cache[0, 0], more), 2), torch.cat((cache[0, 1], more), 2)
    return attend(query, keys, values), keys


def _beside_each_other(cache: torch.Tensor, more: torch.Tensor, query: torch.Tensor) -> Any:
    """Keys are no block of memory: what reads the result was promised one."""
    return attend(query, torch.cat((cache[:, 0, 0], more), 2), torch.cat((cache[:, 1, 1], more), 2))


REFUSED: dict[str, Fn] = {
    "twice": _twice,
    "twice, from the end": _twice_from_the_end,
    "more in one than in another": _once_each,
    "read before": _read_before,
    "read after": _read_after,
    "behind itself": _behind_itself,
    "returned": _returned,
    "beside each other": _beside_each_other,
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_needs_new_memory(name: str) -> None:
    def step(cache: torch.Tensor, more: torch.Tensor, query: torch.Tensor) -> Any:
        torch._check(more.shape[2] == 1)
        return REFUSED[name](cache, more, query)

    assert more_of(step, *together()) == {}


def test_memory_that_is_not_aligned() -> None:
    def step(cache: torch.Tensor, more: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
        torch._check(more.shape[2] == 1)
        return attend(query, torch.cat((cache[0], more), 2), torch.cat((cache[1], more), 2))

    def found(width: int) -> Mapping[int, tuple[int, int]]:
        call = (
            torch.randn(2, 1, 1, 9, width),
            torch.randn(1, 1, 1, width),
            torch.randn(1, 1, 1, width),
        )
        return more_of(step, *call)

    assert found(4) == {0: (3, 1)}
    assert found(3) == {}


def test_the_most_that_is_appended() -> None:
    def step(cache: torch.Tensor, more: torch.Tensor, query: torch.Tensor) -> Any:
        torch._check(more.shape[2] == 1)
        return _once_each(cache, more, query)

    call = torch.randn(2, 2, 1, 1, 9, 4), torch.randn(1, 1, 1, 4), torch.randn(1, 1, 1, 4)
    assert more_of(step, *call) == {0: (4, 2)}


VIEWS: tuple[tuple[Any, tuple[Any, ...]], ...] = (
    *((aten.select.int, (dim, index)) for dim, index in ((0, 1), (1, -1), (-1, 3), (-2, -3))),
    *((aten.unbind.int, rest) for rest in ((), (1,), (-1,))),
    *(
        (aten.slice.Tensor, rest)
        for rest in ((), (1,), (2, 1), (2, -3, -1), (-1, None, 2), (0, 1, 2**63 - 1), (1, 2, 1))
    ),
    *((aten.split.Tensor, rest) for rest in ((2,), (2, 1), (1, -1))),
    *((aten.permute.default, (order,)) for order in ([2, 0, 1], [-1, 1, -3])),
    *((aten.transpose.int, rest) for rest in ((0, 1), (-1, 0))),
    *((each, ()) for each in (aten.alias.default, aten.detach.default)),
)


@pytest.mark.parametrize(("op", "rest"), VIEWS, ids=lambda each: str(each).removeprefix("aten."))
def test_which_part_a_view_is(op: Any, rest: tuple[Any, ...]) -> None:
    memory = torch.arange(6 * 5 * 7).view(6, 5, 7)
    whole = _Region(0, (1, 2, 0), ((1, 5), (0, 5), (2, 6)))
    views = op(_elements(whole, memory), *rest)
    parts = _VIEWS[op](whole, *rest)
    assert parts is not None
    for view, part in zip(
        [views] if isinstance(views, torch.Tensor) else views, parts, strict=True
    ):
        assert torch.equal(view, _elements(part, memory))


def _elements(region: _Region, memory: torch.Tensor) -> torch.Tensor:
    for dim, (start, end) in enumerate(region.box):
        memory = memory.narrow(dim, start, end - start)
    gone = [dim for dim in range(memory.dim()) if dim not in region.dims]
    return memory.permute(*region.dims, *gone).reshape(
        [region.size(dim) for dim in range(len(region.dims))]
    )


def test_every_other_position_is_no_part_that_is_known() -> None:
    assert _VIEWS[aten.slice.Tensor](_Region(0, (0,), ((0, 6),)), 0, 0, 6, 2) is None


def test_parts_that_are_apart() -> None:
    box = ((0, 2), (1, 3), (0, 5))
    assert _apart([box])
    assert _apart([box, ((2, 3), (1, 3), (0, 5)), ((0, 2), (3, 4), (0, 5))])
    assert not _apart([box, box])
    assert not _apart([box, ((1, 3), (1, 3), (0, 5))])
    assert not _apart([box, ((0, 2), (2, 4), (0, 5))])


def test_places_that_are_not_asked_for() -> None:
    def step(
        keys: torch.Tensor, values: torch.Tensor, more: torch.Tensor, query: torch.Tensor
    ) -> torch.Tensor:
        torch._check(more.shape[2] == 1)
        return attend(query, torch.cat((keys, more), 2), torch.cat((values, more), 2))

    made = padded(step, *past())
    assert extended(append(made), made, [1]).more == {1: (2, 1)}
    assert extended(append(made), made, []).more == {}


# --- whole programs -------------------------------------------------------------------------------


@pytest.fixture(params=["in Python", "in C++"])
def fused(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs run on the CPU as they do on a device."""
    monkeypatch.setattr(fusion, "FUSED", frozenset({"cpu"}))
    if request.param == "in Python":
        monkeypatch.setattr(launch, "LAUNCH", None)


def check(compiled: Any, fn: Fn, calls: list[Tensors]) -> list[Any]:
    """Calls with poisoned buffers, compared with eager when all are done: the buckets."""
    fallbacks: list[events.Event] = []
    unsubscribe = events.subscribe(
        lambda e: fallbacks.append(e) if isinstance(e, events.RunnerFallback) else None
    )
    pairs = []
    try:
        with torch.no_grad():
            for number, call in enumerate(calls):
                for bucket in (each for entry in compiled.entries for each in entry.runner.buckets):
                    for buffer in bucket.buffers:
                        poison(buffer, number)
                pairs.append((compiled(*call), fn(*call)))
    finally:
        unsubscribe()
    for number, (mine, theirs) in enumerate(pairs):
        for a, b in zip(mine, theirs, strict=True):
            assert_same(a, b, f"call {number}", tolerance=1e-4)
    assert not fallbacks
    return [bucket for entry in compiled.entries for bucket in entry.runner.buckets]


GROWING = (
    (3, 9),
    (3, 12),
    (2, 10),
    (4, 11),
    (3, 9),
    (4, 12),
    (1, 2),
    (3, 23),
    (4, 24),
    (3, 17),
    (1, 18),
    (3, 12),
)


@pytest.mark.usefixtures("fused")
def test_a_decoder_at_many_sizes() -> None:
    stream = make("decode", torch.device("cpu"), tiny=True)
    compiled = symshape.compile(stream.run, dynamic=True, runner="padded")
    rng = random.Random(0)
    sizes = [
        *GROWING,
        *GROWING[::-1],
        *((rng.randint(1, 4), rng.randint(1, 24)) for _ in range(20)),
    ]
    buckets = check(compiled, stream.run, [stream.arguments(each) for each in sizes])
    for bucket in buckets:
        cache = bucket.buffers[1]
        assert bucket.memory.extra == cache.nbytes // cache.shape[4]
        weight, planned = bucket.lease.weight, bucket.weight_of(bucket.made)
        assert bucket.bytes == weight.own + weight.shared + weight.buffers
        assert (weight.own, weight.buffers) == (planned.own, planned.buffers + bucket.memory.extra)


@pytest.mark.usefixtures("fused")
def test_a_decoder_that_answers_its_cache() -> None:
    def step(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> Tensors:
        keys, values = torch.cat((keys, query + 1), 2), torch.cat((values, query * 2), 2)
        return attend(query, keys, values), keys, values

    def run(**options: Any) -> None:
        compiled = symshape.compile(step, dynamic=True, runner="padded", options=Options(**options))
        calls = [
            tuple(torch.randn(b, 3, n, 4) for n in (1, length, length)) for b, length in GROWING
        ]
        if not options:
            check(compiled, step, calls)
        mine = theirs = (torch.randn(2, 3, 1, 4), *(torch.randn(2, 3, 5, 4) for _ in range(2)))
        with torch.no_grad():
            for number in range(12):  # what was answered comes back
                mine, theirs = compiled(*mine), step(*theirs)
                torch.testing.assert_close(
                    mine, theirs, msg=lambda text, n=number: f"step {n}: {text}"
                )
        assert not any(
            bucket.memory.extra for entry in compiled.entries for bucket in entry.runner.buckets
        )

    run()
    run(outputs="borrow")


@pytest.mark.usefixtures("fused")
def test_a_view_of_the_argument_is_the_callers_own() -> None:
    def step(query: torch.Tensor, cache: torch.Tensor, new: torch.Tensor) -> Tensors:
        torch._check(new.shape[2] == 1)
        return (
            attend(query, *(torch.cat((each, new), 2) for each in cache)),
            cache[0].transpose(0, 1),
            cache,
        )

    compiled = symshape.compile(step, dynamic=True, runner="padded")
    calls = [
        (torch.randn(b, 3, 1, 4), torch.randn(2, b, 3, n, 4), torch.randn(b, 3, 1, 4))
        for b, n in GROWING
    ]
    buckets = check(compiled, step, calls)
    assert all(bucket.memory.extra for bucket in buckets)
    with torch.no_grad():
        _, view, whole = compiled(*calls[0])
    assert whole is calls[0][1]
    assert view.data_ptr() == whole.data_ptr()


@pytest.mark.usefixtures("fused")
def test_a_cache_that_is_written_to_is_not_appended_to() -> None:
    def step(query: torch.Tensor, cache: torch.Tensor, new: torch.Tensor) -> Tensors:
        torch._check(new.shape[2] == 1)
        found = attend(query, *(torch.cat((each, new), 2) for each in cache))
        cache.mul_(2)
        return (found,)

    compiled = symshape.compile(step, dynamic=True, runner="padded")
    with torch.no_grad():
        for b, n in GROWING:
            query, cache, new = (
                torch.randn(b, 3, 1, 4),
                torch.randn(2, b, 3, n, 4),
                torch.randn(b, 3, 1, 4),
            )
            theirs = cache.clone()
            for a, e in zip(
                (*compiled(query, cache, new), cache),
                (*step(query, theirs, new), theirs),
                strict=True,
            ):
                assert_same(a, e, str((b, n)), tolerance=1e-4)
    buckets = [bucket for entry in compiled.entries for bucket in entry.runner.buckets]
    assert buckets
    assert not any(bucket.memory.extra for bucket in buckets)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fused", "faster"),
    [
        ("in Python", "eager"),
        ("in C++", "inductor"),
        pytest.param("in Python", "inductor", marks=pytest.mark.nightly),
        pytest.param("in C++", "eager", marks=pytest.mark.nightly),
    ],
    indirect=["fused"],
)
def test_kernels_of_a_compiler_get_plain_buffers_if_they_serve(
    fused: None, faster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def timed(variants: Sequence[Variant], device: torch.device) -> tuple[Variant, ...]:
        found = measured(variants, device)
        return tuple(sorted(found, key=lambda each: each.kernels != faster))

    monkeypatch.setattr(module_of_bucket, "measured", timed)
    stream = make("decode", torch.device("cpu"), tiny=True)
    compiled = symshape.compile(
        stream.run, dynamic=True, runner="padded", options=Options(kernels="auto")
    )
    calls = [stream.arguments(each) for each in GROWING]
    buckets = check(compiled, stream.run, calls)
    assert all(bucket.memory.extra for bucket in buckets), "nobody compiles in calls"
    for entry in compiled.entries:
        assert isinstance(entry.runner, PaddedRunner)
        assert entry.runner._kernels is not None
        # as if calls compiled: at places that are known already
        with entry.runner._kernels.waiting():
            buckets = check(compiled, stream.run, calls)
    assert {bucket.variants[0].kernels for bucket in buckets} == {faster}
    assert all(len(bucket.variants) == 2 for bucket in buckets)
    assert all(bool(bucket.memory.extra) == (faster == "eager") for bucket in buckets)
    buckets = check(compiled, stream.run, calls[::-1])
    model = stream.run.__closure__[0].cell_contents  # type: ignore[attr-defined]
    # a parameter lies elsewhere: everything is captured again
    model.words.weight.data = model.words.weight.data * 1.5
    check(compiled, stream.run, calls)


@pytest.mark.usefixtures("fused")
def test_lent_results_do_not_lie_in_buffers() -> None:
    stream = make("decode", torch.device("cpu"), tiny=True)
    compiled = symshape.compile(
        stream.run, dynamic=True, runner="padded", options=Options(outputs="borrow")
    )
    with torch.no_grad():
        for sizes in GROWING:
            call = stream.arguments(sizes)
            for a, b in zip(compiled(*call), stream.run(*call), strict=True):
                assert_same(a, b, str(sizes), tolerance=1e-4)
                memory = a.untyped_storage().data_ptr()
                buckets = compiled.entries[0].runner.buckets
                assert all(
                    buffer.data_ptr() != memory for bucket in buckets for buffer in bucket.buffers
                )
