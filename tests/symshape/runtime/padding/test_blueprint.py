"""Padded programs are derived once for many buckets, and each is the one that the rules make for
its bucket.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest
import torch
import torch.nn.functional as F

import symshape
from symshape.graph import codegen
from symshape.runtime.padding import blueprint, planning, transform
from symshape.runtime.padding.blueprint import MOST, Blueprints
from symshape.runtime.padding.padded_graph import PaddedGraph, Refusal
from symshape.runtime.padding.planning import blueprints_of, plan
from symshape.runtime.padding.region import Region
from symshape.runtime.runners.cuda.graph_bytes import weight_of

SIZES = [(3, 5), (7, 9), (6, 33), (13, 6), (5, 100), (30, 20), (4, 14)]


class _Block(torch.nn.Module):
    """A layer of a transformer, small."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv = torch.nn.LayerNorm(8), torch.nn.Linear(8, 24)
        self.out, self.up, self.down = (
            torch.nn.Linear(8, 8),
            torch.nn.Linear(8, 16),
            torch.nn.Linear(16, 8),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norm(x)).view(batch, length, 3, 2, width // 2).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(x)))


def _step() -> Callable[[torch.Tensor], torch.Tensor]:
    """A step of training, without an optimizer."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(_Block(), _Block())

    def step(x: torch.Tensor) -> Any:
        loss = model(x).pow(2).mean()
        return loss.detach(), torch.autograd.grad(loss, list(model.parameters()))

    return step


@attrs.define
class _Work:
    """How often each was done."""

    walks: int = 0
    rules: int = 0
    compiled: int = 0


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> _Work:
    done, walk, rule, compile_graph = (
        _Work(),
        planning.pad,
        transform._Transform._made,
        codegen.compile_graph,
    )

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def count(*args: Any, **kwargs: Any) -> Any:
            setattr(done, name, getattr(done, name) + 1)
            return function(*args, **kwargs)

        return count

    monkeypatch.setattr(planning, "pad", counted("walks", walk))
    monkeypatch.setattr(transform._Transform, "_made", counted("rules", rule))
    monkeypatch.setattr(blueprint, "compile_graph", counted("compiled", compile_graph))
    monkeypatch.setattr(
        "symshape.runtime.runners.padded.fusion.compile_graph", counted("compiled", compile_graph)
    )
    return done


def _equal(mine: Any, theirs: Any) -> None:
    for a, b in zip(
        torch.utils._pytree.tree_leaves(mine), torch.utils._pytree.tree_leaves(theirs), strict=True
    ):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_new_buckets_ask_no_rule_and_generate_no_code(work: _Work) -> None:
    eager, compiled = _step(), symshape.compile(_step(), dynamic=True, runner="padded")
    done = []
    for size in SIZES:
        x = torch.randn(*size, 8)
        _equal(compiled(x), eager(x))
        done.append(attrs.astuple(work))
    [entry] = compiled.entries
    assert len(entry.runner.buckets) == len(SIZES)
    assert done[0][0] == done[0][2] == 1
    assert done[-1] == done[0]


FUNCTIONS: dict[str, Callable[[torch.Tensor], Any]] = {}


def _function(fn: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
    FUNCTIONS[fn.__name__] = fn
    return fn


@_function
def merged(x: torch.Tensor) -> Any:
    """Dimensions of two sizes, means over them, and the last rows."""
    flat = x.reshape(-1, 8)
    return flat.softmax(0), flat.mean(0), x[:, -1], x.flatten(1).amax(1)


@_function
def written(x: torch.Tensor) -> Any:
    """Writes into a part of a tensor, and results that share memory."""
    y = x.clone()
    y[:, 1:] += x[:, :-1]
    return y, y[0], y.transpose(0, 1)


@_function
def indexed(x: torch.Tensor) -> Any:
    """Indices, whose padding points beyond the capacity."""
    places = torch.arange(x.size(1) - 1, -1, -1)
    return (
        x[:, places],
        torch.cumsum(x, 1),
        x.new_zeros(x.size(1), 8).index_add(0, places, x[0]),
        x.argmax(1),
    )


@_function
def joined(x: torch.Tensor) -> Any:
    """Concatenation, margins, and a triangle."""
    scores = x @ x.transpose(1, 2)
    return torch.cat([x, x[:, :2]], 1), F.pad(x, (0, 0, 1, 2)), scores.tril(), scores / x.size(1)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_instance_is_what_the_rules_make(
    name: str, planned_both_ways: list[PaddedGraph]
) -> None:
    fn = FUNCTIONS[name]
    compiled = symshape.compile(fn, dynamic=True, runner="padded", fullgraph=True)
    with torch.no_grad():
        for size in SIZES:
            x = torch.randn(*size, 8)
            _equal(compiled(x), fn(x))
    assert sum(each.late is not None for each in planned_both_ways) >= len(SIZES) - 1


def test_arguments_and_buffers_are_written() -> None:
    def fn(cache: torch.Tensor, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        cache.index_copy_(1, at, x)
        x.mul_(2)
        return cache.sum()

    compiled = symshape.compile(fn, dynamic=True, runner="padded", fullgraph=True)
    for batch, length, new in ((3, 20, 4), (5, 50, 7), (9, 33, 3)):
        calls = []
        for call in (fn, compiled):
            torch.manual_seed(batch)
            given = (
                torch.randn(batch, length, 8),
                torch.randn(batch, new, 8),
                torch.arange(2, 2 + new),
            )
            calls.append((call(*given), given))
        _equal(*calls)


def _program(fn: Callable[..., Any], *args: Any) -> Any:
    with torch.no_grad():
        return symshape.trace(fn, *args, dynamic=True).program


def test_regions_that_answer_otherwise_have_their_own() -> None:
    """So have other exact sizes; those that were used last are kept."""
    program = _program(merged, torch.randn(3, 5, 8))
    known = blueprints_of(program)
    for batch in (3, 5, 9):
        plan(program, {"s0": batch, "s1": 5, "s2": 8}, blueprints=known)
    assert known.derived == 1
    exact = {"s2": Refusal("", "", "kept", "", frozenset({"s2"}))}
    for number, width in enumerate(range(8, 8 + MOST), 2):
        for batch in (3, 5):
            plan(program, {"s0": batch, "s1": 5, "s2": width}, exact, blueprints=known)
        assert known.derived == number
    for batch in (3, 5):
        plan(program, {"s0": batch, "s1": 5, "s2": 8}, exact, blueprints=known)
    assert known.derived == MOST + 1, "it is still there"
    plan(program, {"s0": 3, "s1": 5, "s2": 8}, blueprints=known)
    assert known.derived == MOST + 2, "it was used least recently"


def test_where_formulas_are_refused_plain_integers_serve() -> None:
    """A rule that counts to a capacity is refused, or depends on it; a bucket gets its own
    program.
    """
    program = _program(lambda x: x.relu(), torch.randn(3, 8))
    derive = blueprints_of(program)._derive

    def only_plain(region: Region) -> PaddedGraph:
        if region._capacities is not None:
            raise Refusal("", "", "formulas", "", frozenset())
        return derive(region)

    known = Blueprints(only_plain, compiled=True)
    for size in range(3, 3 + 2 * MOST):
        made = plan(program, {"s0": size, "s1": 8}, blueprints=known).padded
        assert made is not None
        assert made.run is None
    assert known.derived == 2 * MOST + MOST


@pytest.mark.parametrize("lent", [False, True])
def test_the_weight_of_an_instance_is_that_of_its_graph(lent: bool) -> None:
    program = _program(merged, torch.randn(3, 5, 8))
    known = blueprints_of(program)
    for sizes in ((3, 5), (4, 50), (20, 7)):
        made = plan(program, {"s0": sizes[0], "s1": sizes[1], "s2": 8}, blueprints=known).padded
        assert made is not None
        assert made.formulas is not None
        buffers = None if lent else len(made.axes)
        assert weight_of(made.formulas, made.region.caps, buffers) == weight_of(
            made.graph, {}, buffers
        )


def test_what_another_program_would_cost_is_known_once_one_was_derived() -> None:
    """Capacities of 1 have a program of their own."""
    program = _program(lambda x: x.softmax(0).cumsum(1), torch.ones(5, 4))
    known = blueprints_of(program, compiled=True)
    others, one = {"s0": 8, "s1": 8}, {"s0": 1, "s1": 8}
    assert known.expected_ms(others) == known.expected_ms(one) == 0.0
    for sizes in ({"s0": 7, "s1": 8}, {"s0": 1, "s1": 8}):
        assert plan(program, sizes, blueprints=known).padded is not None
        assert known.expected_ms(sizes) == 0.0
        assert known.expected_ms({"s0": 6, "s1": 16}) == 0.0
        assert known.expected_ms({"s0": 6, "s1": 1}) > 0.0
