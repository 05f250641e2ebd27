"""Substitutes for functions that read objects past every look-up: the answers are the originals',
and what is read is told.
"""

from __future__ import annotations

import abc
import collections.abc
import copy
import dataclasses
import inspect
import pickle
import string
import typing
from types import SimpleNamespace
from typing import Any

import pytest

from symshape.tracing.state.instrument.object_readers import NAMES, ObjectReaders


class _Thing:
    def __init__(self) -> None:
        self.k, self.inner = 1, SimpleNamespace(k=2)


@typing.runtime_checkable
class _HasK(typing.Protocol):
    k: int


@dataclasses.dataclass
class _Fields:
    k: int = 1


class Told:
    """The substitutes and what they told of."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        note = self.seen.append
        self.readers = ObjectReaders(
            lambda owner, name: note(("read", name)),
            lambda owner, deep: note(("whole", deep)),
            lambda owner: note("members"),
            lambda found: note(("unpickled", found)),
            lambda question, answer, name: note(("answered", question() is answer)),
            lambda: note("printed"),
        )

    def of(self, value: Any) -> Any:
        return self.readers.table[id(value)]


@pytest.mark.parametrize(
    ("function", "args", "seen"),
    [
        (copy.copy, (_Fields(),), [("whole", False)]),
        (copy.deepcopy, ([_Fields()],), [("whole", True)]),
        (pickle.dumps, (_Fields(),), [("whole", True)]),
        (pickle.loads, (pickle.dumps(_Fields()),), [("unpickled", _Fields)]),
        (inspect.getmembers, (_Fields(),), ["members"]),
        (inspect.getattr_static, (_Fields(), "k"), [("read", "k")]),
        (inspect.getmro, (_Fields,), [("read", "__mro__")]),
        (dataclasses.fields, (_Fields,), [("read", "__dataclass_fields__")]),
        (isinstance, (_Fields(), _Fields), []),
        (isinstance, (_Fields(), (int, _HasK)), [("read", "k")]),
        (isinstance, (3, collections.abc.Sequence), []),
        (issubclass, (_Fields, collections.abc.Sequence), [("answered", True)]),
        (issubclass, (_Fields, abc.ABC), [("answered", True)]),
    ],
)
def test_the_answer_is_the_originals_and_the_read_is_told(
    function: Any, args: tuple[Any, ...], seen: list[Any]
) -> None:
    told = Told()
    ours = told.of(function)
    assert ours == function
    found, expected = ours(*args), function(*args)
    if function is not inspect.getmembers:  # bound methods of C are new each time
        assert found == expected
    assert [each for each in told.seen if each != ("read", "__init__")] == seen


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("{.k}", ["k"]),
        ("{0.inner.k:>{0.k}}", ["inner", "k", "k"]),
        ("{a[0].k} {}", ["k"]),
        ("{{0.k}}", []),
        ("no field", []),
    ],
)
def test_attributes_named_in_a_format_are_told(text: str, read: list[str]) -> None:
    thing, told = _Thing(), Told()
    owners: list[Any] = [(text, ()), (str, (text,))]
    if "{." not in text:  # which ``Formatter`` does not know before Python 3.13
        owners.append((string.Formatter(), (text,)))
    for owner, args in owners:
        method = told.readers.method(owner, "format", owner.format)
        assert method(*args, thing, a=[thing]) == text.format(thing, a=[thing])
        assert told.seen == [("read", name) for name in read]
        told.seen.clear()


def test_errors_of_a_format_are_the_originals() -> None:
    told = Told()
    for text in ("{.x}", "{1.k}", "{a.k}", "{0[j].k}"):
        with pytest.raises((AttributeError, LookupError, TypeError)) as original:
            text.format(_Thing())
        with pytest.raises(original.type, match=r".") as ours:
            told.readers.method(text, "format", text.format)(_Thing())
        assert str(ours.value) == str(original.value)


def test_methods_of_object_are_told_only_for_objects_and_object() -> None:
    told, thing = Told(), _Thing()
    assert "__reduce_ex__" in NAMES
    method = told.readers.method(thing, "__reduce_ex__", thing.__reduce_ex__)
    assert method(2)[2] == vars(thing)
    method = told.readers.method(object, "__reduce_ex__", object.__reduce_ex__)
    assert method(thing, 2)[2] == vars(thing)
    assert told.seen == [("whole", False)] * 2
    own = lambda: 1  # noqa: E731
    assert told.readers.method(thing, "__reduce_ex__", own) is own
