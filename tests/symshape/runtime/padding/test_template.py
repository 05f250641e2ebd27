"""Templates: one form for the padded programs of all buckets, checked against each bucket's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest
import torch
from torch import nn

import symshape
from guards.sets.sources import Size
from guards.terms.term import Op, Term
from symshape.graph.codegen import compile_graph
from symshape.runtime.padding.planning import plan
from symshape.runtime.padding.region import Region
from symshape.runtime.padding.results import aliased_storages, amount
from symshape.runtime.padding.template import Template, generalise
from symshape.runtime.padding.transform import PaddedGraph, device_of, pad
from tests.symshape.runtime.runners.padded.test_runner import WHOLE, Call

Make = Callable[..., tuple[PaddedGraph, dict[str, int]]]


def _made(model: Callable[..., Any], *arguments: torch.Tensor) -> tuple[Template | None, Make]:
    """The template of a program at the bucket of these arguments; what makes padded programs for
    others, and sizes.
    """
    with torch.no_grad():
        program = symshape.trace(model, *arguments, dynamic=True).program
    device, aliased = device_of(program.graph), aliased_storages(program.graph)

    def padded(*tensors: torch.Tensor) -> tuple[PaddedGraph, dict[str, int]]:
        by_path = dict(zip(program.call.paths, tensors, strict=True))
        sizes = {
            name: by_path[source.arg].size(source.dim)
            for name, source in program.sources.items()
            if isinstance(source, Size)
        }
        found = plan(program, sizes).padded
        assert found is not None
        return apart(Region(found.region.given, found.region.exact, found.region.caps)), sizes

    def apart(region: Region) -> PaddedGraph:
        return pad(program.graph, region, device, aliased, apart=True)

    first, _ = padded(*arguments)
    return generalise(first, apart), padded


@pytest.mark.parametrize(
    ("name", "make", "call"), [row[:3] for row in WHOLE], ids=[row[0] for row in WHOLE]
)
def test_whole_models_have_one_form(name: str, make: Callable[[], nn.Module], call: Call) -> None:
    torch.manual_seed(0)
    template, padded = _made(make().eval(), *call(6, 23))
    assert template is not None
    # also where capacities are equal
    for batch, length in ((6, 23), (2, 11), (3, 17), (12, 12), (16, 15)):
        own, _ = padded(*call(batch, length))
        assert template.serves(own), (batch, length)


def test_the_form_runs_as_the_program_does() -> None:
    linear = nn.Linear(4, 3)

    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return linear(torch.cat([x, y])).softmax(0).flatten().cumsum(0)

    template, padded = _made(fn, torch.randn(5, 4), torch.randn(9, 4))
    assert template is not None
    for rows in ((5, 9), (3, 20), (70, 2)):
        own, sizes = padded(*(torch.randn(each, 4) for each in rows))
        assert template.serves(own)
        buffers = [torch.randn(each.value.spec.sizes) for each in own.graph.inputs[: len(own.axes)]]
        amounts = torch.tensor([amount(term, sizes) for term in own.sizes])
        expected = compile_graph(own.graph, {})([*buffers, *amounts.unbind()], ())
        integers = [size for tensor in (*buffers, amounts) for size in tensor.size()]
        positions = {
            slot.term.name: place
            for place, slot in enumerate(template.slots)
            if slot.term.op is Op.SYMBOL
        }
        mine = compile_graph(template.graph, positions)([*buffers, amounts], integers)
        for a, b in zip(mine, expected, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=0)


@pytest.mark.parametrize("first", [2, 5])
def test_the_least_capacity_that_a_guard_allows_has_the_form_of_others(first: int) -> None:
    """With ``s0 >= 2`` a capacity of 2 leaves one size; it is padded like any other, and no second
    form is compiled.
    """

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x.softmax(0).cumsum(1) if x.size(0) > 1 else x

    template, padded = _made(fn, torch.randn(first, 7))
    assert template is not None
    for rows in (2, 3, 9):
        own, _ = padded(torch.randn(rows, 7))
        assert template.serves(own), rows


def test_equal_capacities_have_the_form_of_others() -> None:
    """Computed once, the positions of two dimensions that are as large in memory would be one
    vector.
    """

    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.softmax(0).sum() + y.softmax(0).sum()

    x, y = torch.randn(6, 4), torch.randn(6, 4)
    for first, second in (((x, y), (torch.randn(9, 4), y)), ((torch.randn(9, 4), y), (x, y))):
        template, padded = _made(fn, *first)
        assert template is not None
        assert template.serves(padded(*second)[0])


def test_a_program_of_another_form_is_not_served() -> None:
    x = torch.randn(6, 4)
    template, padded = _made(lambda x: x.softmax(0).sum(0), x)
    other, padded_other = _made(lambda x: x.softmax(0).amax(0), x)
    assert template is not None
    assert other is not None
    assert template.serves(padded(x)[0])
    assert not template.serves(padded_other(x)[0])
    assert not other.serves(padded(x)[0])


def test_an_integer_that_differs_is_not_served() -> None:
    """Whatever was guessed of an integer, a bucket whose own program has another one is refused."""
    x = torch.randn(6, 4)
    template, padded = _made(lambda x: x.reshape(-1, 2).softmax(0), x)
    assert template is not None
    own, _ = padded(x)
    for place, leaf in enumerate(template._shape):
        if type(leaf) is int or isinstance(leaf, Term):
            wrong = attrs.evolve(
                template, shape=(*template._shape[:place], 12345, *template._shape[place + 1 :])
            )
            assert not wrong.serves(own)
