"""What a program reads becomes a place, once; what it does not read, or made itself, does not."""

from __future__ import annotations

import functools
import gc
import weakref
from typing import Any

import pytest
import torch

from symshape import UnsupportedError
from symshape.errors import Reason
from symshape.tracing.state.instrument.hooks import recorder_of, recording
from symshape.tracing.state.record.places import MISSING, Cell
from tests.symshape.tracing.state.recorded import names, recorded, seen

NUMBER = 3
OTHER = 4
written: Any = 0


class Thing:
    """An object with attributes."""

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


def _helper() -> int:
    return NUMBER


def _unused() -> int:
    return OTHER


def test_a_global_of_a_helper_is_a_place_with_its_value() -> None:
    recorder = recorded(lambda: _helper())
    (place,) = [each for each in recorder.places if each.name == "NUMBER"]
    assert isinstance(place, Cell)
    assert place.owner is globals()
    assert place.value == 3
    assert {"_helper", "_helper.__code__"} <= names(recorder)


def test_only_what_ran_is_a_place() -> None:
    def fn(kind: int) -> int:
        return _helper() if kind else _unused()

    assert "OTHER" not in names(recorded(fn, 1))
    assert "OTHER" in names(recorded(fn, 0))


def test_the_variables_around_a_function_count_when_it_begins() -> None:
    inner, unread = Thing(depth=2, unread=7), 5

    def never() -> int:
        return unread

    def fn() -> int:
        return inner.depth if inner.depth else never()

    found = names(recorded(fn))
    assert {"inner", "inner.depth", "never"} <= found
    assert not {"inner.unread", "unread"} & found


def test_a_changed_variable_around_it_is_seen() -> None:
    number = 1

    def fn() -> int:
        return number

    def change() -> None:
        nonlocal number
        number = 2

    assert seen(fn, change)


def test_a_place_is_noted_once_with_what_was_first_there() -> None:
    recorder = recorder_of(len)
    owner = {"a": 1}
    recorder.place(Cell(owner, "a", 1, "a"))
    recorder.place(Cell(owner, "a", 2, "a"))
    assert [each.value for each in recorder.places] == [1]


def test_what_the_trace_wrote_before_it_read_is_no_place() -> None:
    def fn() -> Any:
        global written
        written = 5
        return written

    try:
        assert "written" not in names(recorded(fn))
    finally:
        globals()["written"] = 0
    assert "written" in names(recorded(lambda: written))


def test_an_absence_is_a_place_unless_the_trace_took_it_away() -> None:
    thing = Thing(there=1)

    def fn() -> bool:
        del thing.there
        return hasattr(thing, "there") or hasattr(thing, "never")

    recorder = recorded(fn)
    absent = {each.name for each in recorder.places if each.value is MISSING}
    assert "thing.never" in absent
    assert "thing.there" not in absent


def test_what_is_made_inside_is_no_place_and_dies() -> None:
    made: list[weakref.ref[Any]] = []

    def fn() -> int:
        thing = Thing(depth=1)
        made.append(weakref.ref(thing))
        thing.depth += 1
        return thing.depth

    recorder = recorder_of(fn)
    with recording(recorder):
        assert fn() == 2
        gc.collect()
        assert made[0]() is None
    of_it = [each for each in recorder.places if "depth" in each.name]
    assert [each.owner.kind for each in of_it] == [Thing]  # that the class says nothing of it


def test_what_was_read_dies_with_the_recording() -> None:
    thing = Thing(depth=1)
    fn = lambda: thing.depth  # noqa: E731, F821
    recorder = recorded(fn)
    gone = weakref.ref(thing)
    del thing, fn
    gc.collect()
    assert gone() is not None
    del recorder
    gc.collect()
    assert gone() is None


def test_a_refusal_stays_though_the_program_catches_it() -> None:
    import time

    def fn() -> float:
        try:
            return time.time()
        except Exception:
            return 0.0

    (refusal,) = recorded(fn).refusals
    assert refusal.text.startswith("calls time.time, whose result symshape cannot see")
    assert refusal.reason is Reason.UNSEEN


@pytest.mark.parametrize("serves", [True, False])
def test_telling_is_refused_only_where_a_graph_serves(
    serves: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    def fn() -> None:
        print("told")

    if serves:
        with pytest.raises(UnsupportedError, match="the program prints"):
            recorded(fn)
    else:
        recorded(fn, serves=False)
    assert capsys.readouterr().out == ("" if serves else "told\n")


def test_arguments_that_are_no_tensors_are_looked_at() -> None:
    thing = Thing(depth=2)
    assert "argument0.depth" in names(recorded(lambda thing: thing.depth, thing))


def test_an_argument_is_not_kept_alive_by_what_was_read_of_it() -> None:
    thing = Thing(depth=2)
    recorder = recorded(lambda thing: type(thing), thing)
    (place,) = [each for each in recorder.places if each.name == "the class of argument0"]
    del recorder
    assert place.holds()  # type: ignore[union-attr]
    thing.__class__ = type("Other", (Thing,), {})
    assert not place.holds()  # type: ignore[union-attr]
    gone = weakref.ref(thing)
    del thing
    gc.collect()
    assert gone() is None
    assert not place.holds()  # type: ignore[union-attr]


def test_partials_of_methods() -> None:
    class Model:
        def __init__(self) -> None:
            self.gain = 2

        def run(self, shift: int, *, scale: int) -> int:
            return shift * scale * self.gain

    model = Model()
    fn = functools.partial(model.run, 1, scale=2)
    recorder = recorded(fn)
    assert any(each.owner is vars(model) and each.key == "gain" for each in recorder.places)
    assert seen(fn, lambda: fn.keywords.update(scale=3))
    assert seen(fn, lambda: setattr(model, "gain", 3))
    assert not seen(fn, lambda: setattr(Model, "run", None))  # the bound method has its function
    assert seen(
        fn,
        lambda: setattr(fn.func.__func__, "__code__", (lambda self, shift, *, scale: 0).__code__),
    )


@pytest.mark.usefixtures("alone")
def test_what_a_load_has_told_is_told_again_after_a_write() -> None:
    inner = Thing(depth=2)
    recorder = recorder_of(lambda: None)
    known: list[bool] = []

    def note() -> None:
        known.append((id(inner), "depth") in recorder.told)

    note.__code__ = note.__code__.replace(co_filename="<frozen note>")  # as trusted as Python's own

    def fn() -> int:
        before = inner.depth + inner.depth
        note()
        inner.depth = 3
        note()
        return before

    recorder = recorder_of(fn)
    with recording(recorder):
        assert fn() == 4
    assert known == [True, False]
    assert (id(inner), "depth") in recorder.stored


class Kind:
    """A class of which a method is exchanged while it is recorded."""

    def step(self) -> int:
        """What is read at first."""
        return NUMBER


def _other_step(self: Kind) -> int:
    return OTHER


def test_a_method_that_is_exchanged_tells_what_the_new_one_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Kind, "step", Kind.step)  # put back afterwards
    owner = Kind()

    def fn() -> int:
        first = owner.step() + owner.step()
        Kind.step = _other_step  # type: ignore[method-assign]
        return first + owner.step()

    recorder = recorder_of(fn)
    with recording(recorder):
        assert fn() == 2 * NUMBER + OTHER
    assert {"NUMBER", "OTHER"} <= names(recorder)


def test_a_submodule_that_a_method_of_modules_adds_is_looked_into() -> None:
    outer = torch.nn.Sequential(torch.nn.Identity())
    added = torch.nn.Linear(2, 2)

    def fn() -> Any:
        first = outer.training, hasattr(outer, "more")
        outer.register_module("more", added)
        return *first, outer.more.weight

    recorder = recorder_of(fn)
    with recording(recorder):
        assert fn() == (True, False, added.weight)
    assert id(added.weight) in recorder.known
