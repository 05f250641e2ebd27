"""Classes that are given properties and methods after objects of them were flattened, or made while
tracing.

Each program is called some times with new objects; then somebody writes to their class, and what
the program says of the objects that come after that is compared with eager.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch

import symshape
from tests.sampling import sampled

pytestmark = pytest.mark.filterwarnings("ignore::symshape.FallbackWarning")
CALLS, PATCHED = 9, 6
Make = Callable[[], Any]


class _Methods:
    def m(self) -> Any:
        return self.a + 1  # type: ignore[attr-defined]


def _plain() -> Any:
    class Held:
        def __init__(self, a: Any = None) -> None:
            self.a = a

        def m(self) -> Any:
            return self.a + 1

    return Held


def _derived() -> Any:
    class Base(_Methods):
        pass

    class Held(Base):
        def __init__(self, a: Any = None) -> None:
            self.a = a

    return Held


def _dataclass() -> Any:
    @dataclasses.dataclass
    class Held(_Methods):
        a: Any = None
        b: int = 3

    return Held


def _frozen() -> Any:
    @dataclasses.dataclass(frozen=True)
    class Held(_Methods):
        a: Any = None

    return Held


def _slots() -> Any:
    class Held:
        __slots__ = ("a",)

        def __init__(self, a: Any = None) -> None:
            self.a = a

        def m(self) -> Any:
            return self.a + 1

    return Held


KINDS: dict[str, Make] = {
    "plain": _plain,
    "derived": _derived,
    "dataclass": _dataclass,
    "frozen": _frozen,
    "slots": _slots,
}


class _Descriptor:
    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return torch.ones(2)

    def __set__(self, owner: Any, value: Any) -> None:
        pass


def _get(self: Any, name: str) -> Any:
    found = object.__getattribute__(self, name)
    return found + 7 if name == "a" else found


def _of_base(kind: Any) -> None:
    kind.__mro__[-2].extra = property(lambda self: 5)


PATCHES: dict[str, Callable[[Any], None]] = {
    "property": lambda kind: setattr(kind, "a", property(lambda self: self.__dict__["a"] + 5)),
    "descriptor": lambda kind: setattr(kind, "a", _Descriptor()),
    "property of a base": _of_base,
    "getattribute": lambda kind: setattr(kind, "__getattribute__", _get),
    "getattr": lambda kind: setattr(kind, "__getattr__", lambda self, name: 9),
    "setattr": lambda kind: setattr(
        kind, "__setattr__", lambda s, n, v: object.__setattr__(s, n, v * 3)
    ),
    "delattr": lambda kind: setattr(kind, "__delattr__", lambda self, name: None),
    "del": lambda kind: setattr(kind, "__del__", lambda self: None),
    "method": lambda kind: setattr(kind, "m", lambda self: self.a + 100),
    "attribute": lambda kind: setattr(kind, "extra", 50),
    "bool": lambda kind: setattr(kind, "__bool__", lambda self: False),
    "len": lambda kind: setattr(kind, "__len__", lambda self: 0),
    "call": lambda kind: setattr(kind, "__call__", lambda self, x: x * 3),
    "eq": lambda kind: setattr(kind, "__eq__", lambda self, other: True),
    "iter": lambda kind: setattr(kind, "__iter__", lambda self: iter([1, 2])),
    "contains": lambda kind: setattr(kind, "__contains__", lambda self, key: True),
    "mul": lambda kind: setattr(kind, "__mul__", lambda self, other: 3),
    "rmul": lambda kind: setattr(kind, "__rmul__", lambda self, other: other * 7),
    "str": lambda kind: setattr(kind, "__str__", lambda self: "abc"),
    "hash": lambda kind: setattr(kind, "__hash__", None),
}


def _or(fn: Callable[[], Any]) -> Any:
    try:
        return fn()
    except (TypeError, AttributeError):
        return 9


def _written(held: Any, x: Any) -> Any:
    try:
        held.a = held.a * 2
    except AttributeError:
        return x * 1
    return x + 1


PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "read": lambda held, x: held.a * x,
    "method": lambda held, x: x * held.m(),
    "with a default": lambda held, x: x * getattr(held, "extra", 4),
    "of the class": lambda held, x: x * getattr(type(held), "extra", 1),
    "truth": lambda held, x: x * (2 if held else 3),
    "callable": lambda held, x: x * (2 if callable(held) else 3),
    "has": lambda held, x: x * (2 if hasattr(held, "__mul__") else 3),
    "equal": lambda held, x: x * (2 if held == 3 else 3),
    "summed": lambda held, x: x * _or(lambda: sum(iter(held))),
    "in": lambda held, x: x * _or(lambda: 4 if 3 in held else 5),
    "times": lambda held, x: x * _or(lambda: 2 * held),
    "hash": lambda held, x: x * _or(lambda: hash(held) * 0 + 4),
    "text": lambda held, x: x * (len(str(held)) if str(held) == "abc" else 5),
    "dictionary": lambda held, x: x * _or(lambda: len(held.__dict__)),
    "written": _written,
}


def _new(kind: Any, a: Any) -> Any:
    """An object that holds ``a``, whatever its class says by now."""
    held = kind.__new__(kind)
    if type(held).__dictoffset__:
        object.__getattribute__(held, "__dict__").update(
            {"a": a} | ({"b": 3} if hasattr(kind, "b") else {})
        )
    else:
        with contextlib.suppress(AttributeError):
            object.__setattr__(held, "a", a)
    return held


def _said(
    make: Make, patch: Callable[[Any], None], compiled: bool, fn: Any, made: bool
) -> list[Any]:
    kind = make()
    whole = (lambda x: fn(kind(x), x)) if made else fn
    called = symshape.compile(whole) if compiled else whole
    said: list[Any] = []
    for number in range(CALLS):
        if number == PATCHED:
            patch(kind)
        x = torch.arange(2.0 + number % 3)
        held = x if made else _new(kind, x)
        try:
            said.append(called(*((x,) if made else (held, x))).tolist())
        except Exception as error:
            said.append(type(error).__name__)
        if not made and held.__class__.__dictoffset__:
            said.append(repr(dict(object.__getattribute__(held, "__dict__"))))
    return said


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "patch"), sampled(KINDS, PATCHES, every=3))
def test_an_object_that_is_given(kind: str, patch: str) -> None:
    for name, fn in PROGRAMS.items():
        parts = (KINDS[kind], PATCHES[patch])
        assert _said(*parts, True, fn, False) == _said(*parts, False, fn, False), name


@pytest.mark.slow
@pytest.mark.parametrize("patch", PATCHES)
def test_an_object_that_is_made(patch: str) -> None:
    for name, fn in PROGRAMS.items():
        parts = (_plain, PATCHES[patch])
        assert _said(*parts, True, fn, True) == _said(*parts, False, fn, True), name


def test_a_name_that_python_does_not_look_up_costs_no_trace() -> None:
    kind = _plain()
    compiled = symshape.compile(lambda held: held.a * 2)
    for number in range(CALLS):
        setattr(kind, f"noted{number}", number)
        assert compiled(kind(torch.arange(2.0 + number % 3))).shape == (2 + number % 3,)
    first = compiled.stats().traces
    for number in range(CALLS):
        setattr(kind, f"noted later {number}", number)
        compiled(kind(torch.arange(2.0 + number % 3)))
    assert compiled.stats().traces == first <= 3


def test_slots_of_a_class_that_answers_itself_are_left_alone() -> None:
    class Answers:
        __slots__ = ("a",)

        def __init__(self, a: Any) -> None:
            self.a = a

        def __getattribute__(self, name: str) -> Any:
            return object.__getattribute__(self, name) + 7

    held = Answers(torch.ones(2))
    compiled = symshape.compile(lambda x: x * held.a)
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 8.0))
    with pytest.raises(symshape.UnsupportedError, match="slots and a __getattribute__ of its own"):
        symshape.trace(lambda x: x * held.a, torch.ones(2))
    assert torch.equal(held.a, torch.full((2,), 8.0))


def test_a_property_in_the_place_of_a_field_is_not_run_to_know_a_constant() -> None:
    @dataclasses.dataclass(frozen=True)
    class Settings:
        by: Any = 2

    def program(x: Any, settings: Any) -> Any:
        return x * 2

    compiled = symshape.compile(program)
    settings = Settings()
    Settings.by = property(lambda self: [][0])
    assert torch.equal(compiled(torch.ones(3), settings), torch.full((3,), 2.0))
