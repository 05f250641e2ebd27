"""Messages of checks are made of the numbers of the run that fails."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import symshape
from guards.terms import arithmetic
from symshape.errors import RuntimeAssertionError
from symshape.graph.assertion_messages import Message, Place, Places
from symshape.graph.float_terms import FloatTerm

U = arithmetic.symbol("u0")
QUOTIENT = FloatTerm("truediv", (U, arithmetic.const(4)))
READ = FloatTerm("symbol", symbol="f0")


def test_places_are_found_again() -> None:
    places = Places()
    message = places.message(
        f"{places.mark(U)} and {places.mark(QUOTIENT, '.1f')}, "
        f"{places.mark(U, '+03d')}{places.mark(READ)}"
    )
    assert message.text({"u0": 6, "f0": 0.5}) == "6 and 1.5, +060.5"
    assert str(message) == "u0 and (u0 / 4), u0f0"
    assert message.names() == {"u0", "f0"}
    assert message.symbols() == {U}
    assert Message((Place(U),))
    assert not Message()
    assert places.message("plain") == Message(("plain",))


def test_a_mark_in_pieces_leaves_no_text() -> None:
    places = Places()
    assert not places.message(places.mark(U)[1:])
    assert not places.message(f"a {places.mark(U)[0]}")


CHECKS: list[Any] = [
    lambda n, x: f"{n} of {x.shape[0]} is negative",
    lambda n, x: "%s, %r" % (n, n),  # noqa: UP031
    lambda n, x: "{} {:>5} {!r}".format(n, n, x.shape[0] * 2),  # noqa: UP032
    lambda n, x: f"{n * 2 + x.shape[0]} {n // 3} {n / 2:.3f} {float(x.shape[0])} {n == 3}",
    lambda n, x: f"{list(x.shape)} {x.shape} {(n,)}",
    lambda n, x: "nothing",
]


@pytest.mark.parametrize("message", CHECKS)
@pytest.mark.parametrize("dynamic", [None, True])
def test_the_message_is_the_plain_functions(message: Any, dynamic: bool | None) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        n = x.sum().item()
        torch._check(n >= 0, lambda: message(n, x))
        return x * 2

    fast = symshape.compile(fn, dynamic=dynamic)
    for k, size in ((2, 3), (1, 4), (-2, 3), (-2, 5), (3, 6), (-7, 2)):
        x = torch.full((size,), k)
        if k > 0:
            assert torch.equal(fast(x), fn(x))
            continue
        with pytest.raises(RuntimeError) as expected:
            fn(x)
        with pytest.raises(RuntimeAssertionError) as got:
            fast(x)
        assert str(expected.value) in str(got.value)


def test_a_message_that_cannot_be_made_does_not_matter_until_it_is_shown() -> None:
    def fn(x: torch.Tensor, how: Any) -> torch.Tensor:
        n = x.sum().item()
        torch._check(n >= 0, lambda: how(n, x))
        return x * 2

    def fails(n: int, x: torch.Tensor) -> str:
        raise KeyError("no text")

    for how in (
        lambda n, x: f"{int(n)}",
        lambda n, x: "%d" % n,  # noqa: UP031
        lambda n, x: f"{x}",
        lambda n, x: "a" if n < -3 else "b",
        fails,
    ):
        traced = symshape.trace(fn, torch.full((3,), 2), how)
        assert torch.equal(traced(torch.full((3,), 2), how), torch.full((3,), 4))
        with pytest.raises(RuntimeAssertionError, match="u0 >= 0 does not hold"):
            traced(torch.full((3,), -2), how)


def test_a_check_that_fails_while_it_is_traced_says_what_it_can() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        n = x.sum().item()
        torch._check(x.shape[0] == y.shape[0], lambda: f"{x.shape[0]} is not {y.shape[0]}, {n}")
        return x + y

    with pytest.raises(RuntimeError, match=r"3 is not 4, u0|s0 is not s1, u0"):
        symshape.trace(fn, torch.ones(3, dtype=torch.int64), torch.ones(4))
