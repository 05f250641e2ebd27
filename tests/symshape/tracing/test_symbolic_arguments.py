"""What the traced function gets: symbols where policies allow, constants elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from symshape import Dim, DimError, Options, Policy
from symshape.calls.arguments import flatten_call, sources_of
from symshape.tracing.symbolic.env import ShapeEnv
from symshape.tracing.symbolic_arguments import SymbolicArguments
from symshape.tracing.tracer import Tracer

R = torch.randn


def made(
    policies: Any, *args: Any, options: Options | None = None, **kwargs: Any
) -> tuple[Tracer, SymbolicArguments]:
    tracer = Tracer(ShapeEnv())
    return tracer, SymbolicArguments(
        tracer, flatten_call(None, args, kwargs), policies, options or Options()
    )


def slots(found: SymbolicArguments) -> dict[str, str]:
    return {slot.source.text(): str(slot.term) for slot in found.slots}


def sources(*args: Any) -> dict[str, Any]:
    call = flatten_call(None, args, {})
    return {source.text(): source for source in sources_of(call)}


def test_static_where_nothing_is_said() -> None:
    tracer, found = made({}, R(2, 3), 4, "text")
    assert [str(size) for size in found.tensors()[0].shape] == ["2", "3"]
    assert found.leaves[1:] == [4, "text"]
    assert not tracer.env.symbols
    assert set(slots(found).values()) >= {"2", "3", "4"}
    assert [each.position for each in found.inputs] == [0]


def test_sizes_by_policy() -> None:
    x = R(2, 3)
    first, second = list(sources(x).values())[:2]
    tracer, found = made({first: Dim("rows", min=1, max=8), second: Policy.UNBACKED}, x)
    assert list(tracer.env.symbols) == ["rows", "u0"]
    assert tracer.env.symbols["u0"].hint is None
    assert tracer.env.symbols["rows"].sources == (first,)
    assert list(slots(found).values())[:2] == ["rows", "u0"]
    assert {str(guard.term) for guard in tracer.env.guards} == {"rows >= 1", "rows <= 8"}


def test_one_dim_for_two_sizes() -> None:
    x = R(2, 2)
    first, second = list(sources(x).values())[:2]
    dim = Dim("n")
    tracer, found = made({first: dim, second: dim}, x)
    assert tracer.env.symbols["n"].sources == (first, second)
    a, b = found.tensors()[0]._spec.sizes
    assert a is b
    with pytest.raises(DimError, match="sizes in this call are 2 and 3"):
        made({first: dim, second: dim}, R(2, 3))
    with pytest.raises(DimError, match="different bounds or policies"):
        made({first: dim, second: Dim("n", max=9)}, x)
    with pytest.raises(DimError, match="outside the declared"):
        made({first: Dim("n", min=3)}, x)


def test_names_of_ours_avoid_those_of_the_caller() -> None:
    x = R(2, 3, 4)
    a, b, c = list(sources(x).values())[:3]
    tracer, _ = made({a: Policy.AUTO, b: Dim("s0"), c: Policy.AUTO}, x)
    assert list(tracer.env.symbols) == ["s1", "s0", "s2"]


def test_zero_one_and_duck_shapes_when_asked_for() -> None:
    x = R(1, 4, 4)
    policies = dict.fromkeys(list(sources(x).values())[:3], Policy.AUTO)
    tracer, _ = made(policies, x)
    assert len(tracer.env.symbols) == 3
    tracer, _ = made(policies, x, options=Options(specialize_zero_one=True, duck_shape=True))
    (symbol,) = tracer.env.symbols.values()
    assert len(symbol.sources) == 2


def test_strides_are_formulas_of_sizes() -> None:
    x = R(3, 4).t()
    everything = dict.fromkeys(sources(x).values(), Policy.AUTO)
    _, found = made(everything, x)
    spec = found.tensors()[0]._spec
    assert [str(each) for each in spec.strides] == ["1", str(spec.sizes[0])]


def test_one_tensor_given_twice_is_one_stand_in() -> None:
    x = R(3)
    _, found = made({}, x, x)
    assert found.leaves[0] is found.leaves[1]
    assert len(found.inputs) == 1
