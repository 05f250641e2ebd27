"""What a question would look up is a place of its own, which says as much as the question does."""

from __future__ import annotations

import abc
import functools
import os
import random
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import pytest

from symshape.tracing.state import compiled
from symshape.tracing.state.compare.checker import Comparison, Places
from symshape.tracing.state.record.class_lookups import Lookup, static
from symshape.tracing.state.record.dictionary_reads import dicts_of_classes, direct
from symshape.tracing.state.record.places import MISSING, Answer, Attribute, Cell, Keys


def _environment(name: str) -> Answer:
    ask = functools.partial(os.environ.get, name)
    return Answer(ask, ask(), f"the environment's {name}")


def _holds(*places: Answer) -> bool:
    cells, others = direct(places)
    assert not others
    return _answer(Comparison(Places(cells)))


def _answer(comparison: Comparison) -> bool:
    try:
        return comparison.quick() or comparison.holds()
    except LookupError:
        return comparison.holds()


def test_a_variable_is_read_where_the_environment_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OF_OURS", raising=False)
    cells, others = direct([_environment("OF_OURS"), _environment("OF_OURS"), _environment("PATH")])
    assert not others
    assert len(cells) == 2  # asked twice, compared once
    comparison = Comparison(Places(cells))
    assert comparison.quick()
    monkeypatch.setenv("OF_OURS", "1")
    assert not _answer(comparison)
    set_then = Comparison(Places(direct([_environment("OF_OURS")])[0]))
    monkeypatch.setenv("OF_OURS", "2")
    assert not _answer(set_then)
    monkeypatch.setenv("OF_OURS", "".join(["1"]))  # an equal text, another object
    assert _answer(set_then)
    monkeypatch.delenv("OF_OURS")
    assert not _answer(set_then)
    assert _answer(comparison)


def test_an_entry_of_a_class_is_the_first_among_its_bases() -> None:
    class Base:
        flag = property(lambda self: 1)

    class Middle(Base): ...

    class Derived(Middle): ...

    class Other:
        flag = property(lambda self: 2)

    def ask(key: str = "flag") -> Answer:
        return Answer(Lookup(Derived, key), static(Derived, key), "Derived.flag", key)

    there, absent = ask(), ask("absent")
    assert _holds(there, absent)
    kept = Base.flag
    changes = (
        (
            lambda: setattr(Middle, "flag", kept),
            lambda: delattr(Middle, "flag"),
            False,
        ),  # shadows it, though the same
        (lambda: setattr(Base, "flag", 3), lambda: setattr(Base, "flag", kept), False),
        (lambda: delattr(Base, "flag"), lambda: setattr(Base, "flag", kept), False),
        (lambda: setattr(Base, "absent", 3), lambda: delattr(Base, "absent"), False),
        (lambda: setattr(Derived, "else_", 3), lambda: delattr(Derived, "else_"), True),
        (
            lambda: setattr(Derived, "__bases__", (Other, Middle)),
            lambda: setattr(Derived, "__bases__", (Middle,)),
            False,
        ),
    )
    for change, undo, holds in changes:
        places, _ = direct([there, absent])
        comparison = Comparison(Places(places))
        assert _answer(comparison)
        change()
        assert _answer(comparison) is holds
        undo()
    assert static(Derived, "absent") is MISSING


def test_what_stands_in_no_dictionary_stays_a_question() -> None:
    asked = Answer(lambda: 1, 1, "a flag")
    partial = Answer(functools.partial(max, 1, 2), 2, "the greater")
    keys = Keys({"a": 1}, ("a",), "a dictionary")
    cell, attribute = Cell({"a": 1}, "a", 1, "a"), Attribute(Lookup, "__name__", "Lookup", "a name")
    cells, others = direct([asked, cell, partial, keys, attribute, cell])
    assert cells == [cell, attribute]
    assert others == [asked, partial, keys]


# -- what stands in classes


def _function() -> None: ...


def _other() -> None: ...


STANDING: list[Any] = [0, 1.5, "text", None, (), _function, _other]
NAMES = ("a", "b", "forward")


def _classes(rng: random.Random) -> list[Any]:
    """A few classes on each other."""
    kinds: list[Any] = []
    for i in range(rng.randint(2, 5)):
        bases = tuple(
            sorted(
                rng.sample(kinds, min(len(kinds), rng.randint(0, 2))), key=kinds.index, reverse=True
            )
        )
        held = {name: rng.choice(STANDING) for name in NAMES if rng.random() < 0.4}
        kinds.append(
            abc.ABCMeta(f"K{i}", bases, held) if rng.random() < 0.3 else type(f"K{i}", bases, held)
        )
    return kinds


def _change(rng: random.Random, kinds: list[Any]) -> Callable[[], Any]:
    kind, name = rng.choice(kinds), rng.choice(NAMES)
    if rng.random() < 0.15 and kind.__bases__ != (object,):
        bases = (rng.choice(kind.__mro__[1:-1]),)
        return lambda: setattr(kind, "__bases__", bases)
    if rng.random() < 0.3 and name in kind.__dict__:
        return lambda: delattr(kind, name)
    value = rng.choice(STANDING)
    return lambda: setattr(kind, name, value)


@pytest.mark.skipif(compiled.VERSIONS is None, reason="dictionaries are not watched in C++ here")
@pytest.mark.parametrize("seed", range(60))
def test_no_class_answers_otherwise_while_what_is_watched_stays(seed: int) -> None:
    rng = random.Random(seed)
    try:
        kinds = _classes(rng)
    except TypeError:  # no order of these bases
        return
    for _ in range(20):
        kind, name = rng.choice(kinds), rng.choice(NAMES)
        place = Attribute(kind, name, getattr(kind, name, MISSING), name)
        view = Cell(kind.__dict__, name, kind.__dict__.get(name, MISSING), name)
        watched = [(each, dicts_of_classes(each)) for each in (place, view)]
        assert all(dicts for _, dicts in watched)
        watches = [compiled.VERSIONS((*dicts, {})) for _, dicts in watched]
        mro = kind.__mro__
        for _ in range(3):
            try:
                _change(rng, kinds)()
            except TypeError:  # no order of these bases
                continue
            still = [watches[0].unchanged(None) and kind.__mro__ is mro, watches[1].unchanged(None)]
            holds = [each.read() is each.value for each, _ in watched]
            assert all(one <= other for one, other in zip(still, holds, strict=True))


def test_what_a_metaclass_or_a_descriptor_makes_is_not_watched() -> None:
    class Meta(type):
        def __getattribute__(cls, name: str) -> Any:
            return type.__getattribute__(cls, name)

    class Strange(metaclass=Meta):
        a = 1

    class Made:
        @property
        def a(self) -> int:
            return 1

        @classmethod
        def b(cls) -> int:
            return 1

    for kind, name in (
        (Strange, "a"),
        (Made, "a"),
        (Made, "b"),
        (Made, "__mro__"),
        (Made, "__name__"),
        (Made, "mro"),
    ):
        assert dicts_of_classes(Attribute(kind, name, getattr(kind, name), name)) == ()
    assert dicts_of_classes(Attribute(_function, "__code__", _function.__code__, "")) == ()
    held = {"a": 1}
    assert dicts_of_classes(Cell(MappingProxyType(held), "a", 1, "")) == (held,)
    assert dicts_of_classes(Cell(held, "a", 1, "")) == ()
