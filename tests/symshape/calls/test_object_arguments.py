"""Caches flattened: their leaves, paths and keys, and the objects that are made of them again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from symshape.calls import object_arguments, object_kinds
from symshape.calls.arguments import (
    INT_KEY,
    RECORD_KEY,
    flatten_call,
    skeleton,
    sources_of,
    values_of,
)
from symshape.calls.call_key import read, read_usual
from symshape.calls.outputs import finisher, result_of

transformers: Any = pytest.importorskip("transformers")


def filled(length: int = 3, layers: int = 2) -> Any:
    cache = transformers.DynamicCache()
    for layer in range(layers):
        cache.update(torch.randn(1, 2, length, 4), torch.randn(1, 2, length, 4), layer)
    return cache


def model(past: Any, x: Any = None) -> None: ...


class Slotted(transformers.DynamicCache):  # type: ignore[misc]
    __slots__ = ("extra",)


class Watching(transformers.DynamicCache):  # type: ignore[misc]
    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)


class Mine(transformers.DynamicCache):  # type: ignore[misc]
    """A cache of the user's own."""


@pytest.mark.parametrize(
    ("kind", "is_one"),
    [
        (transformers.DynamicCache, True),
        (transformers.StaticCache, True),
        (transformers.EncoderDecoderCache, True),
        (Mine, True),
        (Slotted, False),
        (Watching, False),
        (torch.nn.Linear, False),
        (dict, False),
        (torch.Tensor, False),
    ],
)
def test_what_is_a_record(kind: type, is_one: bool) -> None:
    assert object_kinds.is_cache(kind) is is_one


def test_paths_keys_and_sources() -> None:
    cache = filled()
    call = flatten_call(model, (cache,), {"x": 3})
    assert call.paths[0] == "past"
    assert call.leaves[0] is cache
    assert call.keys[0] is RECORD_KEY
    assert "past.layers[1].keys" in call.paths
    layer = call.paths.index("past.layers[1]")
    assert call.leaves[layer] is cache.layers[1]
    assert call.keys[layer] is RECORD_KEY
    assert call.keys[call.paths.index("x")] is INT_KEY
    assert {"past.layers[0].values.size(2)", "x"} <= {source.text() for source in sources_of(call)}
    assert not any(
        leaf is each for leaf in skeleton(call).leaves for each in (cache, *cache.layers)
    )


def test_the_quick_reading_has_the_same_leaves_and_integers() -> None:
    cache = filled()
    call = flatten_call(model, (cache,), {"x": 3})
    quick = read_usual((cache,), {"x": 3})
    assert quick is not None
    leaves, _, values = quick
    assert len(leaves) == len(call.leaves)
    assert all(a is b for a, b in zip(leaves, call.leaves, strict=True))
    assert values == values_of(call.leaves, call.keys)


def _other_names(cache: Any) -> None:
    cache.layers[0].extra = 1


def _other_dtype(cache: Any) -> None:
    cache.layers[0].dtype = torch.float64


def _fewer_layers(cache: Any) -> None:
    cache.layers.pop()


def _a_flag(cache: Any) -> None:
    cache.layers[1].is_initialized = False


@pytest.mark.parametrize("change", [_other_names, _other_dtype, _fewer_layers, _a_flag])
def test_what_must_be_equal(change: Callable[[Any], None]) -> None:
    one, other = filled(3), filled(5)
    structure = read(model, (one,), {})[1]
    assert read(model, (other,), {})[1] == structure, "lengths are integers of the call"
    nesting = flatten_call(model, (one,), {})
    change(other)
    assert read(model, (other,), {})[1] != structure
    again = flatten_call(model, (other,), {})
    assert (again.nesting, again.keys) != (nesting.nesting, nesting.keys)


def test_nesting_makes_new_objects_of_the_same_parts() -> None:
    cache = filled()
    call = flatten_call(model, (cache, cache), {})
    (one, other), _, _ = call.nest(call.leaves)
    assert one is other
    assert one is not cache
    assert type(one) is type(cache)
    assert one.layers is not cache.layers
    assert one.layers[0] is not cache.layers[0]
    assert one.layers[0].keys is cache.layers[0].keys
    assert vars(one.layers[0]) == vars(cache.layers[0])


def test_an_object_that_holds_itself_is_not_taken_apart_twice() -> None:
    cache = filled()
    cache.me = cache
    assert sum(each is cache for each in flatten_call(model, (cache,), {}).leaves) == 2


def test_the_registry_of_torch_is_as_it_was() -> None:
    flatten_call(model, (filled(),), {})
    assert transformers.DynamicCache not in pytree.SUPPORTED_NODES


def test_an_outcome_is_written_and_built() -> None:
    cache = filled(layers=1)
    leaves = [cache, cache.layers, cache.layers[0]]
    made = object_arguments.MadeObject(
        Mine, ("layers", "again"), 0, [object_arguments.MadeObject(list, (0,), 1, [10]), 11]
    )
    outcome = object_arguments.Outcome(
        {
            "past": object_arguments.ArgumentReference(0),
            "new": made,
            "same": object_arguments.MadeReference(0),
        },
        [
            object_arguments.ObjectWrite(
                2, type(cache.layers[0]), ("keys", "fresh"), [12, object_arguments.HeldClass(int)]
            )
        ],
    )
    flat, tree = pytree.tree_flatten(outcome)
    finish = finisher(tree)
    assert finish is not None
    result = finish([each * 2 for each in flat], leaves)
    assert result["past"] is cache
    assert result["new"] is result["same"]
    assert type(result["new"]) is Mine
    assert (result["new"].layers, result["new"].again) == ([20], 22)
    assert cache.layers[0].keys == 24
    assert cache.layers[0].fresh is int
    assert finisher(pytree.tree_structure([1, 2])) is None
    assert isinstance(
        result_of(pytree.tree_unflatten(flat, tree))["past"], object_arguments.ArgumentReference
    )
