"""Plain Python arithmetic on sizes and on single elements: as in eager at every size, and without a
trace for each.
"""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import symshape
from symshape.tracing.intercept.python_numbers.builtins import CALLED
from symshape.tracing.intercept.python_numbers.math_functions import plain_gcd
from symshape.tracing.state.instrument.rewriter import CALLED_BY_NAME

SIZES = (
    5,
    6,
    1,
    2,
    3,
    4,
    7,
    8,
    9,
    10,
    11,
    15,
    20,
    25,
    29,
    30,
    40,
    50,
    64,
    75,
    90,
    99,
    100,
    0,
    110,
    128,
    250,
)

PROGRAMS: dict[str, tuple[int, Callable[[torch.Tensor], Any]]] = {
    "int of a size": (2, lambda x: x[: int(x.shape[0])] * int(x.shape[1])),
    "float of a size": (2, lambda x: x * float(x.shape[0])),
    "one over": (2, lambda x: x / float(x.shape[0] + 1)),
    "sizes mapped": (2, lambda x: x * sum(map(int, x.shape))),
    "floats mapped": (2, lambda x: x * sum(map(float, x.shape))),
    "half": (2, lambda x: x[: int(x.shape[0] * 0.5)]),
    "half, rounded up by hand": (2, lambda x: x[: int(x.shape[0] * 0.5 + 0.5)]),
    "three tenths": (2, lambda x: x[: int(x.shape[0] * 0.3)]),
    "a tenth, at least one": (4, lambda x: x[: max(1, int(0.1 * x.shape[0]))]),
    "seven tenths": (13, lambda x: x[: int(x.shape[0] * 0.7)]),
    "ceiling of seven tenths": (2, lambda x: x[: math.ceil(x.shape[0] * 0.7)]),
    "ceiling of three tenths": (2, lambda x: x[: math.ceil(x.shape[0] * 0.3)]),
    "ceiling of a fifth": (2, lambda x: x[: math.ceil(x.shape[0] * 0.2)]),
    "rounded twice": (18, lambda x: x[: math.ceil(x.shape[0] * 0.2 * 0.7)]),
    "floor of a quotient": (2, lambda x: x[: math.floor(x.shape[0] / 1.5)]),
    "quotient by a tenth": (2, lambda x: x * math.floor(x.shape[0] / 0.1)),
    "negative": (3, lambda x: x * int(-x.shape[0] * 0.3)),
    "rounded": (3, lambda x: x[: round(x.shape[0] / 4)]),
    "rounded third": (2, lambda x: x[: round(x.shape[0] / 3)]),
    "rounded tenths": (3, lambda x: x[: round(x.shape[0] * 0.3)]),
    "rounded to digits": (2, lambda x: x * round(x.shape[0] / 7, 2)),
    "root": (15, lambda x: x * int(math.sqrt(x.shape[0]))),
    "threshold": (3, lambda x: x * 2 if x.shape[0] * 0.3 > 2 else x),
    "threshold of a root": (3, lambda x: x * 2 if math.sqrt(x.shape[0]) <= 4.5 else x),
    "equal to a float": (4, lambda x: x * 2 if x.shape[0] * 0.3 == 3.0 else x),
    "unequal, from the left": (4, lambda x: x * 2 if x.shape[0] * 0.1 != 1.0 else x),
    "falling": (3, lambda x: x * 2 if 20 - x.shape[0] * 1.1 >= 0 else x),
    "logarithms": (
        2,
        lambda x: (
            x * math.log10(x.shape[0] + 1) + math.log1p(x.shape[0]) + math.log(x.shape[0] + 2, 2)
        ),
    ),
    "other functions": (
        2,
        lambda x: x * math.tanh(x.shape[0]) + math.atan(x.shape[0]) + math.fabs(x.shape[0]),
    ),
    "classes of numbers": (
        2,
        lambda x: x if math.isfinite(x.shape[0]) and not math.isnan(x.shape[0]) else -x,
    ),
    "common divisor": (10, lambda x: x * math.gcd(x.shape[0], 8)),
    "index": (2, lambda x: x[: operator.index(x.shape[0])]),
    "greater float": (2, lambda x: x * max(1.5, x.shape[0] * 0.1)),
    "interpolated": (
        3,
        lambda x: F.interpolate(
            x[None, None] if len(x) else x.new_ones(1, 1, 1, 3), size=(4, int(x.shape[1] * 1.7))
        ),
    ),
    "int of an element": (2, lambda x: x * int((x > 0).sum())),
    "size of an element": (2, lambda x: torch.zeros(int((x > 0).sum()) + 1)),
    "float of an element": (2, lambda x: x * float(x.sum())),
    "floats of elements": (2, lambda x: [float(each) for each in x.sum(0)]),
    "elements mapped": (2, lambda x: list(map(float, x.sum(0)))),
    "int of a flag": (2, lambda x: x * int((x > 0).sum() > 2)),
    "float of a flag": (2, lambda x: x * float((x > 0).any())),
    "sum of flags": (2, lambda x: x * sum(map(int, (x > 0).any(0)))),
    "not a size": (
        2,
        lambda x: (
            x * int("11", base=2) * float("2.5") + int(2.7) + int("0") + sum(map(len, ["ab"]))
        ),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_size_is_as_in_eager_with_few_traces(name: str) -> None:
    most, fn = PROGRAMS[name]
    compiled: Any = symshape.compile(fn, fullgraph=True)
    torch.manual_seed(0)
    for n in SIZES:
        x = torch.randn(n, 3)
        got, want = compiled(x), fn(x)
        if isinstance(want, list):
            assert list(map(type, got)) == list(map(type, want))
            assert got == want
        else:
            assert torch.equal(got, want), n
    assert compiled.stats().traces <= most


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.to(int) + torch.zeros(3, dtype=int),  # type: ignore[call-overload]
        lambda x: [kind(x.shape[0]) for kind in (int, float)],
        lambda x: {int: x}[type(x.shape[0])],
        lambda x: (
            x if isinstance(int(x.shape[0]), int) and type(float(x.shape[0])) is float else -x
        ),
        lambda x: int.__name__ + float.__name__ + map.__name__ + str(isinstance(3, int)),
        lambda x: x * float(Fraction(3, 4)),
        lambda x: str([type(int(x.shape[0])), type(float(len(x))), type(map(int, x.shape))]),
        lambda x: x * int(True) * float(False) + int(x.shape[0] > 2),
    ],
)
def test_the_classes_stay_what_they_are(fn: Callable[[torch.Tensor], Any]) -> None:
    compiled: Any = symshape.compile(fn)
    for n in (5, 3, 2, 9):
        x = torch.arange(n * 3.0).view(n, 3)
        got, want = compiled(x), fn(x)
        assert torch.equal(got, want) if isinstance(want, torch.Tensor) else got == want


@pytest.mark.parametrize(
    ("fn", "error"),
    [
        (lambda x: x * int(x), None),
        (lambda x: x * float(x[:, :2]), None),
        (lambda x: x * int("five"), ValueError),
        (lambda x: x * int([]), TypeError),  # type: ignore[call-overload]
        (lambda x: x * float(3, 4), TypeError),  # type: ignore[call-arg]
        (lambda x: x * int(x.shape[0] * math.inf), OverflowError),
        (lambda x: x * math.sqrt(x.shape[0] - 9), ValueError),
        (lambda x: x if math.sqrt(x.shape[0] - 4) <= 9 else -x, ValueError),
    ],
)
def test_errors_are_those_of_eager(fn: Callable[[torch.Tensor], Any], error: Any) -> None:
    compiled: Any = symshape.compile(fn)
    for n in (5, 3, 2):
        x = torch.randn(n, 3)
        try:
            want = fn(x)
        except Exception as raised:
            with pytest.raises(type(raised)) as caught:
                compiled(x)
            assert error is None or caught.type is error
        else:
            assert torch.equal(compiled(x), want)


def test_numbers_in_buffers() -> None:
    """They are read in each call."""

    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("most", torch.tensor(2))
            self.register_buffer("scale", torch.tensor(2.5))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[: int(self.most)] * float(self.scale) / float(self.most)

    model = Scaled()
    compiled: Any = symshape.compile(model, fullgraph=True)
    for n in (4, 5, 6, 7):
        x = torch.randn(n, 3)
        assert torch.equal(compiled(x), model(x))
        model.most.add_(1)
        model.scale.mul_(2)
    assert symshape.compiled_of(compiled).stats().traces <= 2


def test_a_name_of_the_modules_own_is_that() -> None:
    """``int`` may mean anything."""
    namespace: dict[str, Any] = {"int": lambda n: n + 1, "float": lambda n: n * 2}
    exec("def f(x):\n    return x * int(x.shape[0]) + float(x.shape[0])", namespace)
    compiled = symshape.compile(namespace["f"])
    for n in (3, 4, 5):
        assert torch.equal(compiled(torch.ones(n)), torch.full((n,), n + 1.0 + 2 * n))
    namespace["int"] = lambda n: n
    assert torch.equal(compiled(torch.ones(5)), torch.full((5,), 15.0))


def test_integer_arguments_too() -> None:
    """Beyond what floats hold, Python's answers stay."""
    compiled = symshape.compile(lambda x, k: x * int(k * 0.3) + (k * 0.3 > 5.0), dynamic=True)
    x = torch.ones(2)
    for k in (10, 11, 90, -7, -10, 0, 2**53 + 1, 2**62):
        assert torch.equal(compiled(x, k), x * int(k * 0.3) + (k * 0.3 > 5.0))


def test_the_names_are_those_of_the_functions() -> None:
    assert {id(getattr(builtins, name)) for name in CALLED_BY_NAME} == CALLED.keys()


def test_the_common_divisor_of_plain_numbers() -> None:
    for numbers in ((), (4,), (12, 18), (12, 18, 27), (0, 5), (-4, 6)):
        assert plain_gcd(*numbers) == math.gcd(*numbers)
