"""``cond`` on data, ``while_loop``, ``scan`` and ``associative_scan``: eager's results in one
program for all sizes.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

import symshape
from symshape import UnsupportedError
from tests.symshape.tracing.flow_programs import PARAMETERS, program
from tests.symshape.tracing.flows import SIZES, Plain, Real, assert_alike, assert_same_run, compiled

torch.manual_seed(0)
LINEAR = torch.nn.Linear(3, 3)
CELL = torch.nn.LSTMCell(3, 3)
SCALE = 2.0


# -- programs: of (operators, x, y), both (n, 3)
def branch(m: Any, x: Tensor, y: Tensor) -> Any:
    w = y * 2
    return m.cond(x.sum() > 0, lambda a: LINEAR(a) * w + a.size(0), lambda a: a - 1 + y, (x,))


def branch_of_several(m: Any, x: Tensor, y: Tensor) -> Any:
    return m.cond(
        (x > y).any(),
        lambda d: {"a": d["x"] * 2, "b": (d["y"].argmax(-1), 3, d["x"].size(0))},
        lambda d: {"a": d["x"] + y, "b": (d["y"].argmin(-1), 3, d["x"].size(0))},
        ({"x": x, "y": y},),
    )


def branches_in_branches(m: Any, x: Tensor, y: Tensor) -> Any:
    def inner(a: Tensor) -> Any:
        return m.cond(y.sum() > 0, lambda b: b.sin() + y, lambda b: b * y.size(0), (a,))

    return m.cond(x.sum() > 0, inner, lambda a: LINEAR(a), (x,))


def branch_without_operands(m: Any, x: Tensor, y: Tensor) -> Any:
    return m.cond(x.sum() > 0, lambda: x * SCALE, lambda: torch.tensor([1.0, 2.0, 3.0]) + y)


def loop(m: Any, x: Tensor, y: Tensor) -> Any:
    def body(i: Tensor, a: Tensor) -> Any:
        return i + 1, torch.tanh(LINEAR(a) * y)

    return m.while_loop(
        lambda i, a: (i < 4) & (a.sum() < 100), body, (torch.zeros((), dtype=torch.int64), x)
    )


def loop_of_none(m: Any, x: Tensor, y: Tensor) -> Any:
    return m.while_loop(lambda a, b: a.sum() > 1e9, lambda a, b: (b * 1, a * 1), (x, y))


def rows(m: Any, x: Tensor, y: Tensor) -> Any:
    return m.scan(
        lambda c, v: (torch.tanh(LINEAR(c) + v), (c * v).sum(-1)), torch.zeros_like(x[0]), x
    )


def rows_backwards(m: Any, x: Tensor, y: Tensor) -> Any:
    every = torch.stack([x, y, x + y])
    return m.scan(
        lambda c, v: (c + v * SCALE, c * v), torch.zeros(3, 3), every, dim=1, reverse=True
    )


def rows_of_trees(m: Any, x: Tensor, y: Tensor) -> Any:
    def combine(c: Any, v: Any) -> Any:
        h, e = CELL(v[0][None], (c["h"], c["e"]))
        return {"h": h, "e": e}, (h[0].clone(), [v[1] * 2])

    return m.scan(combine, {"h": torch.zeros(1, 3), "e": torch.zeros(1, 3)}, (x, y))


def branch_in_rows(m: Any, x: Tensor, y: Tensor) -> Any:
    def combine(c: Tensor, v: Tensor) -> Any:
        return m.cond(
            v.sum() > 0, lambda a, b: (LINEAR(a), a * b), lambda a, b: (a - b, b * 2), (c, v)
        )

    return m.scan(combine, y[0] * 1, x)


def rows_of_another_layout(m: Any, x: Tensor, y: Tensor) -> Any:
    """What is carried has other strides from the second round on."""
    every, start = torch.stack([x, y, x * 2]), LINEAR.bias.expand(x.size(0), 3)
    return m.scan(lambda c, v: (torch.tanh(c + v), c * v), start, every)


def levels(m: Any, x: Tensor, y: Tensor) -> Any:
    def combine(left: Any, right: Any) -> Any:
        return left[0] * right[0], right[0] * left[1] + right[1]

    return m.associative_scan(combine, (x, y), 0, combine_mode="generic")


PROGRAMS = (
    *(branch, branch_of_several, branches_in_branches, branch_without_operands, loop, loop_of_none),
    *(rows, rows_backwards, rows_of_trees, rows_of_another_layout, branch_in_rows, levels),
)
_PARAMETERS = [*LINEAR.parameters(), *CELL.parameters()]


@pytest.mark.parametrize("gradients", [False, True], ids=["plain", "gradients"])
@pytest.mark.parametrize("fn", PROGRAMS)
def test_one_program_for_all_sizes(fn: Callable[..., Any], gradients: bool) -> None:
    fast = compiled(fn)
    for n in SIZES:
        for sign in (1, -1):
            x, y = (
                (sign * torch.randn(n, 3)).requires_grad_(gradients),
                torch.randn(n, 3).requires_grad_(gradients),
            )
            assert_same_run(fn, fast, (x, y), _PARAMETERS)
    assert fast.stats().traces <= 2
    assert fast.stats().fallbacks == 0


@pytest.mark.parametrize("fn", PROGRAMS)
def test_without_fullgraph(fn: Callable[..., Any]) -> None:
    fast = symshape.compile(fn)
    with torch.no_grad():
        for n in SIZES:
            x, y = torch.randn(n, 3), torch.randn(n, 3)
            assert_alike(fn(Plain, x, y), fast(Real, x, y))
    assert fast.stats().fallbacks == 0


_REAL = (torch.float64, torch.bfloat16, torch.int64)


@pytest.mark.parametrize(
    ("fn", "dtype"),
    [
        *((fn, dtype) for fn in (branch_of_several, loop_of_none, levels) for dtype in _REAL),
        (levels, torch.complex64),
    ],
)
def test_dtypes(fn: Callable[..., Any], dtype: torch.dtype) -> None:
    fast = compiled(fn)
    for n in SIZES:
        x, y = (torch.randn(n, 3).mul(3).to(dtype) for _ in range(2))
        assert_alike(fn(Plain, x, y), fast(Real, x, y))


@pytest.mark.slow
@pytest.mark.parametrize("fn", [branch, branches_in_branches, loop, rows, rows_of_trees, levels])
def test_as_torchs_own_operators(fn: Callable[..., Any]) -> None:
    """Plain Python is what torch's operators do; which results require gradients is theirs to
    say.
    """
    torch._dynamo.reset()
    for gradients in (False, True):
        x, y = (torch.randn(5, 3).requires_grad_(gradients) for _ in range(2))
        fast = compiled(fn)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected, got = fn(Real, x, y), fast(Real, x, y)
        for one, other in zip(pytree.tree_leaves(expected), pytree.tree_leaves(got), strict=True):
            torch.testing.assert_close(one, other)
            assert one.requires_grad == other.requires_grad


def test_no_rows_at_all() -> None:
    fast = compiled(branch)
    for n in (3, 0, 1):
        assert_same_run(branch, fast, (torch.randn(n, 3), torch.randn(n, 3)))
    assert fast.stats().traces == 1
    nothing = torch.randn(0, 3), torch.randn(0, 3)
    try:
        expected = rows_backwards(Real, *nothing)
    except RuntimeError:  # torch before 2.14
        with pytest.raises(RuntimeError, match="scan dimension > 0"):
            compiled(rows_backwards)(Real, *nothing)
    else:
        assert_alike(expected, compiled(rows_backwards)(Real, *nothing))


def test_arguments_that_do_not_matter_have_gradients_of_zeros() -> None:
    """As with torch's own operators, whose backward is one for both branches."""
    x, y = torch.rand(3, 3, requires_grad=True), torch.rand(3, 3, requires_grad=True)
    for function in (
        lambda x, y: torch.cond(x.sum() > 0, lambda: x * 2, lambda: y * 3),
        lambda x, y: _loop_of(x, y),
    ):
        got = compiled(function)(x, y)
        assert torch.equal(
            torch.autograd.grad(got.sum(), (x, y), allow_unused=True)[1], torch.zeros(3, 3)
        )


def _loop_of(x: Tensor, y: Tensor) -> Tensor:
    found: Tensor = Real.while_loop(
        lambda i, a: i < 2,
        lambda i, a: (i + 1, a * 2 + y.detach()),
        (torch.zeros((), dtype=torch.int64), x + y * 0),
    )[1]
    return found


def test_which_results_require_gradients() -> None:
    def fn(x: Tensor, y: Tensor) -> Any:
        made = torch.cond(
            x.sum() > 0,
            lambda: (x * 2, x.argmax(), torch.ones(3)),
            lambda: (y * 1, y.argmax(), y.sum(0)),
        )
        with torch.no_grad():
            other = torch.cond(x.sum() > 0, lambda: x * 2, lambda: y * 1)
        return *made, other, [each.requires_grad for each in (*made, other)]

    for x in (torch.rand(3, 3, requires_grad=True), -torch.rand(3, 3, requires_grad=True)):
        *found, said = compiled(fn)(x.detach().requires_grad_(), torch.rand(3, 3))
        assert [each.requires_grad for each in found] == said == [True, False, True, False]
    *found, said = compiled(fn)(torch.rand(3, 3), torch.rand(3, 3))
    assert [each.requires_grad for each in found] == said == [False] * 4


def test_gradients_of_gradients() -> None:
    x = torch.rand(4, requires_grad=True)
    fast = compiled(lambda x: torch.cond(x.sum() > 0, lambda: x**3, lambda: x**2))
    (first,) = torch.autograd.grad(fast(x).sum(), x, create_graph=True)
    torch.testing.assert_close(first, 3 * x**2)
    torch.testing.assert_close(torch.autograd.grad(first.sum(), x)[0], 6 * x)


def test_gradients_that_the_program_computes_itself() -> None:
    def through_a_branch(x: Tensor) -> Tensor:
        return torch.autograd.grad(torch.cond(x.sum() > 0, lambda: x * 2, lambda: x * 3).sum(), x)[
            0
        ]

    def through_rows(x: Tensor) -> Tensor:
        return torch.autograd.grad(
            Real.scan(lambda c, v: (c + v, c * v), torch.zeros(3), x)[1].sum(), x
        )[0]

    def through_levels(x: Tensor) -> Tensor:
        made = Real.associative_scan(lambda a, b: a * b, x, 0, combine_mode="generic")
        return torch.autograd.grad(made.sum(), x)[0]

    x = torch.rand(9, 3, requires_grad=True)
    for fn in (through_a_branch, through_rows):
        with pytest.raises(UnsupportedError, match=r"computes gradients of a (cond|scan) itself"):
            compiled(fn)(x)

    def with_another_error(x: Tensor) -> Tensor:
        try:
            return through_levels(x)
        except BaseException:
            raise ValueError("no gradients") from None

    for fn in (through_levels, with_another_error):
        fast = compiled(fn)
        for n in (9, 5, 2):
            x = torch.rand(n, 3, requires_grad=True)
            assert torch.equal(through_levels(x), fast(x))
        assert fast.stats().traces


# -- inside of checkpoints
def branch_of_rows(m: Any, x: Tensor, y: Tensor) -> Any:
    found = m.cond(x.sum() > 0, lambda a: a[a[:, 0] > 0] * 2, lambda a: LINEAR(a), (x,))
    return found.sum(0) * y * x.sum().item()


@pytest.mark.parametrize("fn", [branch, branches_in_branches, loop, branch_of_rows])
def test_inside_of_a_checkpoint(fn: Callable[..., Any]) -> None:
    """Backward of eager's runs it once more, which reads the same data and writes nothing."""

    def whole(m: Any, x: Tensor, y: Tensor) -> Any:
        return checkpoint(lambda *given: fn(m, *given), x, y, use_reentrant=False)

    fast = compiled(whole)
    for n in (3, 5, 9):
        x, y = (torch.randn(n, 3).requires_grad_() for _ in range(2))
        assert_same_run(whole, fast, (x, y), [*LINEAR.parameters()])
    assert fast.stats().traces == 1


def test_what_writes_inside_of_a_checkpoint_is_refused() -> None:
    norm = torch.nn.BatchNorm1d(3)
    fast = compiled(
        lambda x: checkpoint(lambda a: norm(a) * a.sum().item(), x, use_reentrant=False)
    )
    with pytest.raises(
        UnsupportedError, match="inside or beside a checkpoint, whose backward writes again"
    ):
        fast(torch.rand(3, 3, requires_grad=True))


# -- numbers
def test_integers_that_a_loop_carries() -> None:
    def fn(m: Any, x: Tensor, k: int) -> Any:
        i, a = m.while_loop(lambda i, a: 2 * i < x.size(0), lambda i, a: (i + k, a * 2 + i), (k, x))
        return a * i + x, i

    fast = symshape.compile(fn, fullgraph=True)
    for n in (*SIZES, 0):
        for k in (1, 2, 3):
            x = torch.randn(n, 3)
            assert_alike(fn(Plain, x, k), fast(Real, x, k))
    assert fast.stats().traces <= 4
    # torch fails there, too
    with pytest.raises(UnsupportedError, match="integers where gradients"):
        compiled(fn)(Real, torch.randn(3, 3, requires_grad=True), 1)


def test_conditions() -> None:
    def by(condition: Callable[[Tensor], Any]) -> Any:
        return lambda m, x: m.cond(condition(x), lambda a: a * 2, lambda a: a + 1, (x,))

    for condition in (
        *(
            lambda x: x.sum() > 0,
            lambda x: x.sum().reshape(1, 1),
            lambda x: (x > 0).sum(),
            lambda x: x[0, 0] * 1,
        ),
        *(lambda x: x.size(0) > 2, lambda x: True, lambda x: x.dim() == 3),
    ):
        fast = compiled(by(condition))
        for n in (3, 2, 5):
            for x in (torch.rand(n, 3), -torch.rand(n, 3), torch.zeros(n, 3)):
                assert_alike(by(condition)(Plain, x), fast(Real, x))


def test_numbers_around_a_part() -> None:
    def fn(m: Any, x: Tensor, scale: float, k: int) -> Any:
        total = x.sum().item()
        count = (x > 0).nonzero().size(0)
        return m.cond(x.sum() > 0, lambda a: a * scale + total, lambda a: a + count * k, (x,))

    fast = symshape.compile(fn, fullgraph=True)
    for n, scale, k in ((3, 1.5, 2), (5, 2.5, 3), (2, 3.5, 4), (1, 0.5, 0)):
        for x in (torch.rand(n, 3), -torch.rand(n, 3)):
            assert_alike(fn(Plain, x, scale, k), fast(Real, x, scale, k))


# -- random programs
@pytest.mark.parametrize("seed", range(60))
def test_random_programs(seed: int) -> None:
    rng = random.Random(seed)
    torch.manual_seed(seed)
    fn = program(rng, rng.choice([1, 2, 2, 3]))
    gradients = rng.random() < 0.5
    fast = compiled(fn)
    with torch.set_grad_enabled(gradients):
        for n in SIZES:
            args = [torch.randn(n, 3).requires_grad_(gradients) for _ in range(2)]
            assert_same_run(fn, fast, args, PARAMETERS)
