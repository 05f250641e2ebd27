"""Functions that traced code gets in the place of Python's: the same answers, and what they read is
told.
"""

from __future__ import annotations

import types
from typing import Any

import pytest
import torch

from symshape import UnsupportedError
from symshape.tracing.state.instrument.substitutes import Substitutes
from tests.symshape.tracing.state.recorded import recorded, seen

get_of_ours = getattr


class Told:
    """A set of substitutes and what they told of."""

    def __init__(self) -> None:
        self.read: list[Any] = []
        self.listed: list[Any] = []
        self.answered: list[Any] = []
        self.printed = 0
        self.stored: list[Any] = []
        self.of = Substitutes(
            lambda owner, name: self.read.append(name),
            self.listed.append,
            lambda question, answer, name: self.answered.append((name, question() == answer)),
            self._print,
            lambda owner, name: self.stored.append(name),
            lambda module: None,
            lambda value: value,
        ).of

    def _print(self) -> None:
        self.printed += 1


def test_the_answers_are_pythons() -> None:
    told, thing = Told(), types.SimpleNamespace(a=1)
    assert told.of(getattr)(thing, "a") == 1
    assert told.of(getattr)(thing, "b", 2) == 2
    told.of(setattr)(thing, "c", 3)
    assert thing.c == 3
    told.of(delattr)(thing, "c")
    assert not hasattr(thing, "c")
    assert told.stored == ["c", "c"]
    with pytest.raises(AttributeError):
        told.of(getattr)(thing, "b")
    assert told.of(hasattr)(thing, "a")
    assert not told.of(hasattr)(thing, "b")
    assert told.of(vars)(thing) == {"a": 1}
    assert told.of(dir)(thing) == dir(thing)
    assert told.read == ["a", "b", "c", "b", "a", "b", "__dict__"]
    assert told.listed == [thing]


def test_what_is_no_substitute_stays_itself() -> None:
    told = Told()
    for value in (3, torch.add, sum, None):
        assert told.of(value) is value
    for value in (getattr, hasattr, vars, dir, print, isinstance, type, len, divmod, id):
        assert told.of(value) is not value


def test_printing_is_told_first(capsys: pytest.CaptureFixture[str]) -> None:
    told = Told()
    told.of(print)("a", "b", sep="-")
    assert told.printed == 1
    assert capsys.readouterr().out == "a-b\n"


def test_they_are_found_under_any_name() -> None:
    thing = types.SimpleNamespace(a=1)
    own = types.SimpleNamespace(get=getattr)
    for fn in (
        lambda: get_of_ours(thing, "a"),
        lambda: own.get(thing, "a"),
        lambda: getattr(thing, "a"),  # noqa: B009
    ):
        assert seen(fn, lambda: setattr(thing, "a", thing.a + 1))


def test_a_flag_of_torch_is_asked_again() -> None:
    before = torch.is_anomaly_enabled()
    try:
        assert seen(
            lambda: torch.is_anomaly_enabled(),
            lambda: torch.autograd.set_detect_anomaly(not before),
        )
    finally:
        torch.autograd.set_detect_anomaly(before)


def test_getattr_finds_what_is_refused() -> None:
    import time

    with pytest.raises(UnsupportedError, match=r"time\.time"):
        recorded(lambda: getattr(time, "time"))  # noqa: B009
