"""Floats that depend on sizes: computed again at run time, decided as integers where they are exact
ratios.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy
import pytest
import torch

import symshape
from guards.terms import arithmetic, division, extremes, fold
from symshape.graph.float_terms import CPP, FUNCTIONS, OF_ONE, OF_TWO, FloatTerm
from tests.symshape.eager import agree

M, N = arithmetic.symbol("m"), arithmetic.symbol("n")
VALUES = [{"m": m, "n": n} for m, n in itertools.product((1, 2, 3, 7, 10), repeat=2)]


def of(op: str, *args: Any) -> FloatTerm:
    return FloatTerm(op, args)


TERMS = [
    of("truediv", M, arithmetic.add(N, arithmetic.ONE)),
    of("truediv", arithmetic.add(M, N), arithmetic.const(2)),
    of("truediv", arithmetic.sub(M, N), arithmetic.mul(M, N)),
    of("neg", of("truediv", arithmetic.sub(M, N), arithmetic.const(3))),
    of("mul", of("truediv", M, arithmetic.const(3)), of("from_int", arithmetic.sub(N, M))),
    of("sub", 1.5, of("sub", of("from_int", M), of("from_int", N))),
    of("pow", of("from_int", M), 0.5),
    of("pow", of("neg", of("from_int", M)), 2.0),
    of("sqrt", of("add", of("from_int", M), 2.0)),
    of("max", of("truediv", M, N), 1.5),
    of("min", of("from_int", division.floordiv(M, N)), of("from_int", division.mod(M, N))),
    of("mod", of("truediv", M, arithmetic.const(2)), 1.0),
    of("abs", of("from_int", arithmetic.sub(M, N))),
    of("log", of("exp", of("truediv", M, arithmetic.const(10)))),
    of("log2", of("from_int", extremes.maximum(M, N))),
    of("cos", of("sin", of("from_int", M))),
    of("log10", of("add", of("log1p", of("from_int", N)), 1.0)),
    of("expm1", of("tanh", of("atan", of("from_int", M)))),
    of("as_float", of("from_int", N)),
    of("round", of("truediv", M, arithmetic.const(7)), 2.0),
    of("mul", float("inf"), of("from_int", M)),
    of("add", -0.0, 0.0),
    *(of(name, of("truediv", 0.5, of("from_int", N))) for name in OF_ONE if name != "acosh"),
    of("acosh", of("add", of("from_int", N), 1.0)),
    *(of(name, of("from_int", M), of("truediv", N, arithmetic.const(3))) for name in OF_TWO),
    of("mul", of("np_float", 0.5), of("from_int", M)),
    of("np_pow", of("np_sqrt", of("from_int", M)), 3.0),
    of(
        "truediv",
        of("np_log", of("from_int", M)),
        of("np_log2", of("from_int", arithmetic.add(M, N))),
    ),
    of("np_log10", of("np_log1p", of("np_exp", of("truediv", M, arithmetic.const(10))))),
    of("np_expm1", of("np_sin", of("np_cos", of("np_tanh", of("from_int", N))))),
    of("cpp_truediv", 2.0, of("sub", of("from_int", M), of("from_int", N))),
    of("cpp_pow", of("sub", of("from_int", M), of("from_int", N)), -1.5),
]


@pytest.mark.parametrize("term", TERMS, ids=str)
def test_source_computes_what_evaluate_does(term: FloatTerm) -> None:
    code = compile(term.source({"m": "m", "n": "n"}), "<float>", "eval")
    for values in VALUES:
        assert repr(eval(code, {"math": math, "numpy": numpy, **CPP}, dict(values))) == repr(
            term.evaluate(values)
        )


NUMBERS = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -3.0, 1e200, -1e200, math.inf, -math.inf, math.nan)


@pytest.mark.parametrize(("name", "op"), [("cpp_truediv", torch.div), ("cpp_pow", torch.pow)])
def test_operations_of_cpp_never_raise(name: str, op: Any) -> None:
    for a, b in itertools.product(NUMBERS, repeat=2):
        wanted = op(torch.tensor(a, dtype=torch.float64), torch.tensor(b, dtype=torch.float64))
        found = CPP[name](a, b)
        assert repr(abs(found) if math.isnan(found) else found) == repr(
            abs(wanted.item()) if math.isnan(wanted) else wanted.item()
        ), (a, b)


SHIFTED = [
    of("add", 1.0, of("truediv", M, arithmetic.const(7))),
    of("sub", of("truediv", M, arithmetic.const(3)), of("from_int", N)),
    of(
        "add",
        of("sub", of("truediv", arithmetic.scale(M, 11), arithmetic.const(49)), of("from_int", N)),
        2.0**30,
    ),
    of("sub", of("add", of("mul", of("from_int", M), 2.5), of("from_int", N)), 3.0),
    of("add", of("mul", of("from_int", M), 0.5), 0.5),
    of("sub", of("truediv", M, arithmetic.const(8)), of("truediv", N, arithmetic.const(4))),
]


@pytest.mark.parametrize("term", SHIFTED, ids=str)
def test_floors_and_ceilings_of_sums(term: FloatTerm) -> None:
    found = term.shifted_ratio()
    assert found is not None
    tops, bottom = found
    for m, n in itertools.product((*range(1, 60), 343, 700, 2**20 - 1), (1, 2, 7, 14)):
        values = {"m": m, "n": n}
        assert all(abs(fold.evaluate(each, values)) < 2**42 for each in tops)
        top = fold.evaluate(tops[-1], values)
        assert (math.floor(term.evaluate(values)), math.ceil(term.evaluate(values))) == (
            top // bottom,
            -(-top // bottom),
        )


def test_numerators_on_the_way_count() -> None:
    """What cancels at the end has been rounded before."""
    term = of("sub", of("add", of("truediv", M, arithmetic.const(3)), 2.0**52), 2.0**52)
    found = term.shifted_ratio()
    assert found is not None
    assert max(fold.evaluate(each, {"m": 4}) for each in found[0]) > 2**52
    assert (
        of(
            "add", of("truediv", M, arithmetic.const(3)), of("truediv", N, arithmetic.const(7))
        ).shifted_ratio()
        is None
    )


def test_every_function_has_been_tried() -> None:
    def ops(term: object) -> set[str]:
        return {term.op}.union(*map(ops, term.args)) if isinstance(term, FloatTerm) else set()

    assert set().union(*map(ops, TERMS)) == set(FUNCTIONS)


def test_text_reads_as_it_computes() -> None:
    assert str(TERMS[0]) == "(m / (n + 1))"
    assert str(TERMS[1]) == "((m + n) / 2)"


RATIOS = [
    (of("as_float", of("from_int", M)), lambda m, n: (m, 1)),
    (of("truediv", of("as_float", of("from_int", M)), 3.0), lambda m, n: (m, 3)),
    (of("mul", of("as_float", of("from_int", M)), 2.5), lambda m, n: (5 * m, 2)),
    (of("from_int", M), lambda m, n: (m, 1)),
    (of("truediv", M, arithmetic.const(3)), lambda m, n: (m, 3)),
    (of("neg", of("truediv", M, arithmetic.const(3))), lambda m, n: (-m, 3)),
    (of("mul", of("truediv", M, arithmetic.const(3)), 0.5), lambda m, n: (m, 6)),
    (of("mul", 4.0, of("from_int", M)), lambda m, n: (4 * m, 1)),
    (of("truediv", of("from_int", arithmetic.add(M, N)), 2.0), lambda m, n: (m + n, 2)),
    (of("mul", of("from_int", M), 2.5), lambda m, n: (5 * m, 2)),
    (of("mul", 0.375, of("from_int", M)), lambda m, n: (3 * m, 8)),
]


@pytest.mark.parametrize(("term", "expected"), RATIOS)
def test_exact_ratios(term: FloatTerm, expected: Any) -> None:
    ratio = term.ratio()
    assert ratio is not None
    for values in VALUES:
        top, bottom = fold.evaluate(ratio[0], values), ratio[1]
        want = expected(values["m"], values["n"])
        assert top * want[1] == bottom * want[0]
        assert term.evaluate(values) == top / bottom


@pytest.mark.parametrize(
    "term",
    [
        of("mul", of("truediv", M, arithmetic.const(3)), 3.0),  # rounds twice
        of("mul", of("from_int", M), 0.1),
        of("mul", of("truediv", M, arithmetic.const(3)), 2.5),
        of("truediv", M, N),
        of("truediv", of("truediv", M, arithmetic.const(3)), arithmetic.const(7)),
        of("add", of("truediv", M, arithmetic.const(3)), 1.0),
        of("sqrt", of("from_int", M)),
        of("truediv", M, arithmetic.const(-2)),
        of("mul", of("from_int", M), -2.0),
    ],
)
def test_what_is_rounded_is_no_ratio(term: FloatTerm) -> None:
    assert term.ratio() is None


CONDITIONS = [
    lambda n: n / 2 > 1.5,
    lambda n: n / 3 == 1,
    lambda n: n / 3 >= 1.0,
    lambda n: n / 2 != 2.5,
    lambda n: n / 2 < n / 3 + 1,
    lambda n: -n / 2 < -1.5,
    lambda n: n * 0.25 <= 1,
    lambda n: n / 4 > 0.75,
    lambda n: math.floor(n / 2) == 2,
    lambda n: math.ceil(n / 3) == 2,
    lambda n: math.trunc(-n / 3) == -1,
    lambda n: (n / 2).is_integer(),
    lambda n: round(n / 2) == 2,
    lambda n: int(n * 0.3) == 1,
    lambda n: n * 0.1 > 0.3,
    lambda n: n / 10 == 0.3,
    lambda n: n**0.5 > 2,
    lambda n: math.sqrt(n) > 2,
    lambda n: 1 / (n + 1) > 0.2,
    lambda n: n / 2 > torch.sym_max(1.5, n / 4) if n else False,
    lambda n: float(n) > 3.5,
    lambda n: n > 3.5,
    lambda n: n == 4.0,
    lambda n: n < float("inf"),
    lambda n: n > float("nan"),
    lambda n: bool(n / 2),
    lambda n: torch.sym_float(n) > 3.5,
    lambda n: n / 7 > 0.1428571428571428,
    lambda n: n * 1e300 > 1e301,
    lambda n: n / 3 * 3 == n,
    lambda n: abs(n / 2 - 2) < 1,
    lambda n: max(n / 2, 1.0) > 1.0,
    lambda n: min(n / 2, 2.0) == 2.0,
    lambda n: (n / 2) % 1 == 0.5,
    lambda n: n // 2.0 == 2.0,
    lambda n: divmod(float(n), 2.0)[1] == 0.0,
]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_branches_on_floats(condition: Any) -> None:
    """The branch of eager, or a refusal: at every size from 0 to 12, from several examples."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if condition(x.size(0)) else x - 1

    sizes = [(torch.ones(n),) for n in range(13)]
    for example in (4, 3, 0, 1):
        agree(fn, sizes[example], *sizes)


def test_conditions_on_ratios_fix_nothing() -> None:
    for condition in (*CONDITIONS[:4], *CONDITIONS[5:12]):
        traced = symshape.trace(
            lambda x, c=condition: x + 1 if c(x.size(0)) else x - 1, torch.ones(40)
        )
        assert sum(traced.check(torch.ones(n)) for n in range(40, 60)) >= 10


def test_scales_are_computed_again() -> None:
    def attention(q: torch.Tensor) -> torch.Tensor:
        return (q @ q.mT) * (q.size(-1) ** -0.5) / q.size(0) + 1.0 / (q.size(1) + 1)

    traced, seen = agree(
        attention, (torch.randn(2, 3, 4),), (torch.randn(1, 5, 7),), (torch.randn(3, 1, 1),)
    )
    assert set(seen) == {"equal"}
    assert [str(guard.term) for guard in traced.guards] in (
        [],
        ["s2 != 0"],
        ["s0 != 0"],
        ["s0 != 0", "s2 != 0"],
    )


def test_floats_of_data() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        mean = x.mean().item()
        return (
            x - mean,
            mean * 2 + 1,
            x.clamp(max=mean),
            torch.full((2,), mean),
            mean / (x.size(0) + 1),
        )

    _, seen = agree(fn, (torch.randn(4),), (torch.randn(7),), (torch.randn(1),))
    assert set(seen) == {"equal"}


def test_a_float_of_an_unknown_size_that_the_facts_fix() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.unique() * round(x.unique().size(0) / 2)  # of one element: one

    agree(f, (torch.tensor(3.0),), (torch.tensor(-1.0),))


SPREADS = {
    "std": lambda x: x.std(0),
    "var of all": lambda x: x.var(correction=8),
    "var_mean": lambda x: torch.var_mean(x, 0, correction=3)[0],
    "no correction": lambda x: x.var(0, correction=0),
}


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("name", SPREADS)
@pytest.mark.parametrize("runner", ["eager", "padded"])
def test_gradients_divide_by_zero_as_cpp_does(name: str, runner: str) -> None:
    """Python would raise; torch's formulas give NaN and infinity."""

    def program(x: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_()
        return torch.autograd.grad(SPREADS[name](x).sum(), x)[0]

    for fn in (program, lambda x: SPREADS[name](x)):
        compiled = symshape.compile(fn, runner=runner, dynamic=True)
        for rows in (4, 5, 3, 2, 1, 0, 6):
            found = []
            for each in (fn, compiled):
                x = torch.linspace(-1, 2, rows * 4).view(rows, 4).requires_grad_()
                made = each(x)
                made.sum().backward() if made.requires_grad else None
                found.append((made.detach(), x.grad))
            torch.testing.assert_close(*found, equal_nan=True)


def test_users_divide_as_python_does() -> None:
    compiled = symshape.compile(lambda x: x * (2.0 / (x.shape[0] - 3)), dynamic=True)
    compiled(torch.ones(5))
    with pytest.raises(ZeroDivisionError):
        compiled(torch.ones(3))
