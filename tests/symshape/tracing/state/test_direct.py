"""What a question would look up is a place of its own, which says as much as the question does."""

from __future__ import annotations

import functools
import os

import pytest

from symshape.tracing.state.comparison import Comparison, Places
from symshape.tracing.state.direct import direct
from symshape.tracing.state.lookups import Lookup, static
from symshape.tracing.state.places import MISSING, Answer, Attribute, Cell, Keys


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
        (lambda: setattr(Middle, "flag", kept), lambda: delattr(Middle, "flag"), False),  # shadows it, though the same
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
