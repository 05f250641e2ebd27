"""A cache after a compiled call holds what it holds after the same call in eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import symshape
from symshape import events

transformers = pytest.importorskip("transformers")
Cache = Any


def new(length: int, layers: int = 2) -> Cache:
    cache = transformers.DynamicCache()
    generator = torch.Generator().manual_seed(length)
    for layer in range(layers):
        keys, values = (torch.randn(2, 2, length, 4, generator=generator) for _ in range(2))
        cache.update(keys, values, layer)
    return cache


def state(cache: Any) -> Any:
    """All that an object holds, tensors as lists."""
    if isinstance(cache, torch.Tensor):
        return (cache.shape, cache.dtype, cache.tolist())
    if isinstance(cache, (list, tuple)):
        return [state(each) for each in cache]
    if isinstance(cache, dict):
        return {key: state(each) for key, each in cache.items()}
    if hasattr(cache, "__dict__") and not isinstance(cache, type):
        return (type(cache), {name: state(each) for name, each in vars(cache).items()})
    return cache


def _grow(cache: Cache, x: torch.Tensor) -> Any:
    keys, values = cache.update(x, x * 2, 0)
    return (keys * values).sum()


def _a_new_layer(cache: Cache, x: torch.Tensor) -> Any:
    cache.update(x, x + 1, 2)
    return cache


def _an_item(cache: Cache, x: torch.Tensor) -> Any:
    cache.layers[0], cache.layers[1] = cache.layers[1], cache.layers[0]
    return {"cache": cache, "layers": cache.layers}


def _in_place(cache: Cache, x: torch.Tensor) -> Any:
    cache.layers[0].keys.mul_(2)
    cache.layers[1].keys = cache.layers[0].keys
    return cache.layers[0].values[..., :1, :]


def _numbers(cache: Cache, x: torch.Tensor) -> Any:
    cache.count = getattr(cache, "count", 0) + x.shape[2]
    cache.seen = {"last": x.shape[0], "kind": type(cache)}
    return x * cache.count


def _made(cache: Cache, x: torch.Tensor) -> Any:
    fresh = transformers.DynamicCache()
    fresh.update(x, x, 0)
    return fresh, [fresh], cache


def _emptied(cache: Cache, x: torch.Tensor) -> Any:
    cache.layers.pop()
    cache.layers[0].keys = None
    return x + 1


def _crop(cache: Cache, x: torch.Tensor) -> Any:
    cache.crop(-1)
    return x + cache.get_seq_length()


def _views(cache: Cache, x: torch.Tensor) -> Any:
    cache.layers[0].keys = cache.layers[0].keys[:, :, 1:]
    return cache.layers[0].keys


PROGRAMS = [_grow, _a_new_layer, _an_item, _in_place, _numbers, _made, _emptied, _crop, _views]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_call_leaves_what_eager_leaves(program: Callable[..., Any]) -> None:
    fast = symshape.compile(program, fullgraph=True)
    for length, more in ((3, 1), (4, 2), (7, 3), (1, 1), (9, 5)):
        ours, theirs = new(length), new(length)
        x = torch.randn(2, 2, more, 4)
        got, wanted = fast(ours, x), program(theirs, x)
        assert state(ours) == state(theirs)
        assert state(got) == state(wanted)
    assert fast.stats().traces <= 2


def test_what_is_returned_is_the_callers_own_object() -> None:
    cache = new(3)
    layers, held = cache.layers, list(cache.layers)
    returned = symshape.compile(_an_item, fullgraph=True)(cache, torch.ones(1))
    assert returned["cache"] is cache
    assert returned["layers"] is layers is cache.layers
    assert cache.layers[0] is held[1]
    assert cache.layers[1] is held[0]
    fresh, (same,), given = symshape.compile(_made, fullgraph=True)(cache, torch.ones(2, 2, 1, 4))
    assert fresh is same
    assert given is cache


def test_aliases_are_those_of_eager() -> None:
    cache = new(3)
    result = symshape.compile(_in_place, fullgraph=True)(cache, torch.ones(1))
    assert cache.layers[0].keys is cache.layers[1].keys
    result.zero_()
    assert not cache.layers[0].values[..., 0, :].any()


def test_growing_call_by_call_traces_once() -> None:
    fast = symshape.compile(_grow, fullgraph=True)
    ours, theirs = new(3), new(3)
    for _ in range(6):
        x = torch.randn(2, 2, 1, 4)
        assert torch.equal(fast(ours, x), _grow(theirs, x))
    assert state(ours) == state(theirs)
    assert fast.stats().traces == 1


def _delete(cache: Cache, x: torch.Tensor) -> Any:
    del cache.layers[0].keys
    return x


def _holds_itself(cache: Cache, x: torch.Tensor) -> Any:
    fresh = transformers.DynamicCache()
    fresh.me = fresh
    cache.other = fresh
    return x


@pytest.mark.parametrize(
    ("program", "word"),
    [
        (_delete, "deletes the attribute 'keys' of the argument cache.layers"),
        (_holds_itself, "itself"),
    ],
)
def test_what_cannot_be_repeated_is_refused(program: Callable[..., Any], word: str) -> None:
    cache = new(2)
    before = state(cache)
    with pytest.raises(symshape.UnsupportedError, match=word):
        symshape.compile(program, fullgraph=True)(cache, torch.ones(1))
    assert state(cache) == before, "a refused trace leaves the argument as it was"


kept = new(3)


def _reads_another(cache: Cache, x: torch.Tensor) -> Any:
    cache.layers[0].keys = cache.layers[0].keys * 2
    return kept.layers[0].keys + (1 if cache is kept else 0)


@pytest.mark.filterwarnings("ignore::symshape.FallbackWarning")
def test_an_object_that_is_reached_in_two_ways_is_not_taken_for_two() -> None:
    with pytest.raises(
        symshape.UnsupportedError,
        match=r"reads a Dynamic.* outside its arguments that may be the same object as one of them",
    ):
        symshape.compile(_reads_another, fullgraph=True)(new(4), torch.ones(1))
    before = kept.layers[0].keys.clone()
    fast = symshape.compile(_reads_another)
    assert torch.equal(fast(new(4), torch.ones(1)), before)
    assert torch.equal(fast(kept, torch.ones(1)), before * 2 + 1)


def test_a_trace_and_a_traced_call() -> None:
    ours, theirs = new(3), new(3)
    before = state(ours)
    traced = symshape.trace(_grow, ours, torch.ones(2, 2, 1, 4))
    assert state(ours) == before
    assert torch.equal(traced(ours, torch.ones(2, 2, 1, 4)), _grow(theirs, torch.ones(2, 2, 1, 4)))
    assert state(ours) == state(theirs)


def test_calls_that_may_write_to_objects_are_served_and_not_verified() -> None:
    told: list[Any] = []
    fast = symshape.compile(_grow, options={"verify": 1.0})
    unsubscribe = events.subscribe(told.append)
    ours, theirs = new(3), new(3)
    x = torch.ones(2, 2, 1, 4)
    try:
        assert torch.equal(fast(ours, x), _grow(theirs, x))
    finally:
        unsubscribe()
    assert state(ours) == state(theirs)
    assert any(type(each).__name__ == "NotVerified" for each in told)
