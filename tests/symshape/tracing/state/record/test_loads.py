"""Each way to read a name or an attribute leaves a place that sees a change, and none that sees
more.
"""

from __future__ import annotations

import builtins
import decimal
import functools
import importlib.metadata
import importlib.util
import logging
import sys
import types
import warnings
from typing import Any

import pytest
import torch
from torch import nn

import symshape
from symshape import UnsupportedError
from symshape.tracing.state.record import loads
from tests.symshape.tracing.state.recorded import names, recorded, seen

NUMBER: Any = 3
WEIGHT = torch.ones(3)


class Slotted:
    """An object without a dictionary."""

    __slots__ = ("depth", "unread")

    def __init__(self) -> None:
        self.depth, self.unread = 1, 1


class Base:
    """A class with an attribute and a method."""

    width = 1

    def area(self) -> Any:
        return self.width


class Derived(Base):
    """A class that asks its base."""

    def area(self) -> Any:
        return super().area()


@pytest.fixture(autouse=True)
def _as_it_was(monkeypatch: pytest.MonkeyPatch) -> Any:
    yield monkeypatch
    monkeypatch.undo()


def test_globals_and_names_that_stand_for_builtins(monkeypatch: pytest.MonkeyPatch) -> None:
    fn = lambda: max(NUMBER, 1)  # noqa: E731
    assert {"NUMBER", "max"} <= names(recorded(fn))
    assert seen(fn, lambda: monkeypatch.setitem(globals(), "NUMBER", 4))
    assert seen(fn, lambda: monkeypatch.setitem(globals(), "max", min))


def test_a_name_of_builtins_that_somebody_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtins, "of_nobody", 1, raising=False)
    fn = lambda: of_nobody  # type: ignore[name-defined]  # noqa: E731, F821
    assert seen(fn, lambda: monkeypatch.setattr(builtins, "of_nobody", 2))


def test_a_name_that_was_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    def fn() -> int:
        try:
            return nowhere  # type: ignore[name-defined, no-any-return]
        except NameError:
            return 0

    assert seen(fn, lambda: monkeypatch.setitem(globals(), "nowhere", 1))
    monkeypatch.undo()
    assert seen(fn, lambda: monkeypatch.setattr(builtins, "nowhere", 1, raising=False))


def test_modules_that_are_imported_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("own_settings")
    module.scale = 2  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "own_settings", module)

    def whole() -> Any:
        import own_settings

        return own_settings.scale

    def part() -> Any:
        from own_settings import scale

        return scale

    for fn in (whole, part):
        assert seen(fn, lambda: setattr(module, "scale", module.scale + 1))
        assert not seen(fn, lambda: setattr(module, "unread", 1))
        assert seen(
            fn,
            lambda: monkeypatch.setitem(
                sys.modules, "own_settings", types.ModuleType("own_settings")
            ),
        )
        monkeypatch.setitem(sys.modules, "own_settings", module)


def test_slots() -> None:
    thing = Slotted()
    fn = lambda: thing.depth  # noqa: E731
    assert seen(fn, lambda: setattr(thing, "depth", 2))
    assert not seen(fn, lambda: setattr(thing, "unread", 2))
    assert seen(fn, lambda: delattr(thing, "depth"))


def test_a_property_in_the_place_of_what_is_written() -> None:
    class Base:
        width = 1

    class Written(Base):
        pass

    thing = Written()
    fn = lambda: setattr(thing, "width", 2)  # noqa: E731
    assert seen(
        fn, lambda: setattr(Written, "width", property(lambda self: 3, lambda self, value: None))
    )

    class Other(Base):
        pass

    thing = Other()
    assert seen(
        fn, lambda: setattr(Base, "width", property(lambda self: 3, lambda self, value: None))
    )


def test_another_dictionary_of_attributes() -> None:
    thing = Derived()
    thing.width = 2
    assert seen(lambda: thing.width, lambda: setattr(thing, "__dict__", {"width": 3}))


def test_class_attributes_and_what_hides_them(monkeypatch: pytest.MonkeyPatch) -> None:
    thing = Derived()
    fn = lambda: thing.area()  # noqa: E731
    assert seen(fn, lambda: setattr(thing, "width", 2))
    del thing.width
    assert seen(fn, lambda: monkeypatch.setattr(Base, "width", 2))
    assert seen(fn, lambda: monkeypatch.setattr(Derived, "width", 3, raising=False))
    assert seen(fn, lambda: monkeypatch.setattr(Base, "area", lambda self: 0))
    assert seen(
        lambda: Derived.width, lambda: monkeypatch.setattr(Derived, "width", 4, raising=False)
    )


def test_properties_that_are_read_and_set() -> None:
    store = {"read": 1, "set": 1}

    class Thing:
        @property
        def level(self) -> int:
            return store["read"]

        @level.setter
        def level(self, value: int) -> None:
            self.kept = value * store["set"]

    thing = Thing()

    def sets() -> int:
        other = Thing()
        other.level = 3
        return other.kept

    assert seen(lambda: thing.level, lambda: store.update(read=2))
    assert seen(sets, lambda: store.update(set=2))


def test_parameters_buffers_submodules_and_nothing_else() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.1))
    fn = lambda: (model[0].weight, model[1].p)  # noqa: E731
    found = names(recorded(fn))
    assert any(name.endswith("weight") for name in found)
    assert not [name for name in found if name.endswith(("bias", ".training"))]
    assert not seen(fn, lambda: model.eval())
    assert not seen(fn, lambda: setattr(model[0], "bias", None))
    assert seen(fn, lambda: setattr(model[1], "p", 0.2))
    assert seen(fn, lambda: setattr(model[0], "weight", nn.Parameter(torch.zeros(2, 2))))


def test_walks_over_a_tree_see_what_is_added_to_it() -> None:
    for walk in ("modules", "parameters", "state_dict", "buffers"):
        model = nn.Sequential(nn.Sequential(nn.Linear(2, 2)))
        fn = lambda: list(getattr(model, walk)())  # noqa: B023, E731
        assert seen(fn, lambda: model[0].append(nn.Linear(2, 2))), walk  # noqa: B023


def test_attributes_of_tensors_and_methods_that_somebody_exchanges(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fn = lambda: getattr(WEIGHT, "mark", 0)  # noqa: E731
    assert seen(fn, lambda: setattr(WEIGHT, "mark", 1))
    del WEIGHT.mark  # type: ignore[attr-defined]
    assert seen(
        lambda: WEIGHT.relu(), lambda: monkeypatch.setattr(torch.Tensor, "relu", torch.Tensor.abs)
    )


def test_attributes_of_functions() -> None:
    def counted() -> int:
        return 1

    fn = lambda: getattr(counted, "level", 0)  # noqa: E731
    assert seen(fn, lambda: setattr(counted, "level", 1))
    assert seen(fn, lambda: setattr(counted, "level", 2))


def test_all_attributes_of_an_object() -> None:
    thing = types.SimpleNamespace(a=1)
    assert seen(lambda: len(vars(thing)), lambda: setattr(thing, "b", 1))
    assert seen(lambda: len(dir(thing)), lambda: setattr(thing, "c", 1))
    assert seen(lambda: len(thing.__dict__), lambda: setattr(thing, "d", 1))


def test_flags_of_torch_and_the_context_of_decimal() -> None:
    before = torch.backends.cudnn.benchmark
    try:
        assert seen(
            lambda: torch.backends.cudnn.benchmark,
            lambda: torch._C._set_cudnn_benchmark(
                not before
            ),  # torch's own test helpers forbid the property
        )
    finally:
        torch._C._set_cudnn_benchmark(before)
    with decimal.localcontext() as context:
        assert seen(lambda: decimal.Decimal(1) / 3, lambda: setattr(context, "prec", 3))


@pytest.mark.parametrize(
    "key", ["__name__", "__qualname__", "__module__", "__doc__", "__annotations__"]
)
def test_what_functions_say_of_themselves(key: str) -> None:
    def told(x: int) -> int:
        """A text."""
        return x

    assert seen(
        lambda: getattr(told, key),
        lambda: setattr(told, key, {"x": str} if "annot" in key else "other"),
    )
    assert not seen(lambda: getattr(told, key), lambda: setattr(told, "__kwdefaults__", None))


def test_flags_of_parts_of_torch_backends() -> None:
    before = torch.backends.cuda.matmul.allow_tf32
    try:
        assert seen(
            lambda: torch.backends.cuda.matmul.allow_tf32,
            lambda: setattr(torch.backends.cuda.matmul, "allow_tf32", not before),
        )
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


# kept: torch 2.11 asks operators that it saw once
FIRST_TIME = torch.library.Library("symshape_first_time", "DEF")


def test_an_operator_that_is_asked_for_for_the_first_time_is_no_change() -> None:
    for name in ("one", "other"):
        FIRST_TIME.define(f"{name}(Tensor x) -> Tensor")
        FIRST_TIME.impl(name, lambda x: x * 2, "CompositeImplicitAutograd")

    def program(x: torch.Tensor) -> torch.Tensor:
        ops = torch.ops.symshape_first_time
        return ops.one(x) + ops.other(x)  # type: ignore[no-any-return]

    f = symshape.compile(program, fullgraph=True)
    assert torch.equal(f(torch.ones(3)), torch.full((3,), 4.0))


@functools.lru_cache
def _memo() -> int:
    return 1


@pytest.mark.parametrize(
    ("fn", "match"),
    [
        (lambda: _memo.cache_info(), "cache_info of the lru_cache of _memo"),
        (lambda: Base.__subclasses__(), r"Base\.__subclasses__"),
        (lambda: torch.set_num_threads(1), r"torch\.set_num_threads"),
        (lambda: types.__dict__, "lists the names of the module types"),
        (lambda: sys.stdout.write("x"), "writes to the screen"),
        (lambda: warnings.warn("x", stacklevel=1), "warns"),
        (
            lambda: logging.getLogger("x").info("y"),
            "writes to a log, or reads the settings of logging",
        ),
    ],
)
def test_what_is_refused_by_name(fn: Any, match: str) -> None:
    with pytest.raises(UnsupportedError, match=match):
        recorded(fn)


def test_a_look_up_after_a_class_is_told_once_until_a_class_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Base:
        def scale(self) -> int:
            return 2

    class Child(Base):
        def scale(self) -> int:
            return super().scale() + 1

    child, plain, told = Child(), Base.scale, []
    entry = loads.class_entry
    monkeypatch.setattr(loads, "class_entry", lambda *args: told.append(args[2]) or entry(*args))

    def often(x: torch.Tensor) -> torch.Tensor:
        return x * (child.scale() + child.scale() + child.scale())

    compiled = symshape.compile(often)
    assert torch.equal(compiled(torch.ones(3)), 9 * torch.ones(3))
    assert told.count("scale") == 1
    monkeypatch.setattr(Base, "scale", lambda self: 10)
    # what was told once is still compared
    assert torch.equal(compiled(torch.ones(3)), 33 * torch.ones(3))

    def between(x: torch.Tensor) -> torch.Tensor:
        first = child.scale()
        Base.scale = lambda self: 5  # type: ignore[method-assign]
        second = child.scale()
        Base.scale = plain  # type: ignore[method-assign]
        return x * first * second

    monkeypatch.setattr(Base, "scale", plain)
    for _ in range(2):
        assert torch.equal(symshape.compile(between)(torch.ones(3)), between(torch.ones(3)))


def test_names_of_a_module_that_the_program_writes_between_two_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = types.ModuleType("settings")
    settings.factor = 2  # type: ignore[attr-defined]

    def fn(x: torch.Tensor) -> torch.Tensor:
        first = settings.factor + settings.factor
        settings.factor = 7  # type: ignore[attr-defined]
        second = settings.factor
        settings.factor = 2  # type: ignore[attr-defined]
        return x * first * second

    compiled = symshape.compile(fn)
    for value in (2, 3):
        settings.factor = value  # type: ignore[attr-defined]
        wanted = fn(torch.ones(3))
        settings.factor = value  # type: ignore[attr-defined]
        assert torch.equal(compiled(torch.ones(3)), wanted)


# -- names that are listed, and modules that are missing
class _Listed(Base):
    """A class whose names a program lists."""


_MODULE = nn.Module()
_MODULE.register_buffer("kept", torch.ones(1))


def _a_missing_module(x: Any) -> Any:
    try:
        import missing_of_symshape  # type: ignore[import-not-found]
    except ImportError:
        return x * 3
    return x * missing_of_symshape.scale


def _a_missing_submodule(x: Any) -> Any:
    try:
        import xml.missing_of_symshape as module  # type: ignore[import-not-found]
    except ImportError:
        return x * 3
    return x * module.scale


def _a_missing_name(x: Any) -> Any:
    try:
        from tests.symshape.tracing.state.recorded import missing  # type: ignore[attr-defined]
    except ImportError:
        return x * 3
    return x * missing


def _named(name: str, **attributes: Any) -> types.ModuleType:
    made = types.ModuleType(name)
    vars(made).update(attributes)
    return made


@pytest.mark.parametrize(
    ("fn", "change"),
    [
        (
            lambda x: x * len(dir(_Listed)),
            lambda patch: patch.setattr(_Listed, "more", 1, raising=False),
        ),
        (
            lambda x: x * len(dir(_Listed)),
            lambda patch: patch.setattr(Base, "more", 1, raising=False),
        ),
        (
            _a_missing_module,
            lambda patch: patch.setitem(
                sys.modules, "missing_of_symshape", _named("missing_of_symshape", scale=2)
            ),
        ),
        (
            _a_missing_submodule,
            lambda patch: patch.setitem(
                sys.modules, "xml.missing_of_symshape", _named("xml.missing_of_symshape", scale=2)
            ),
        ),
        (
            _a_missing_name,
            lambda patch: patch.setattr(
                sys.modules["tests.symshape.tracing.state.recorded"], "missing", 2, raising=False
            ),
        ),
        (
            lambda x: x * len(_MODULE.state_dict()),
            lambda patch: patch.setattr(_MODULE, "_non_persistent_buffers_set", {"kept"}),
        ),
        (
            lambda x: x * (1 + len(_MODULE.state_dict())),
            lambda patch: _MODULE._non_persistent_buffers_set.add("kept"),
        ),
        (
            lambda x: x * sys.get_int_max_str_digits(),
            lambda patch: sys.set_int_max_str_digits(5000),
        ),
    ],
)
def test_what_is_listed_or_missing_is_compared(
    fn: Any, change: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled, x = symshape.compile(fn, fullgraph=True), torch.ones(1)
    before = fn(x)
    assert torch.equal(compiled(x), before)
    assert torch.equal(compiled(x), before)
    assert compiled.stats().traces == 1
    change(monkeypatch)
    try:
        after = fn(x)
        assert not torch.equal(after, before)
        assert torch.equal(compiled(x), after)
    finally:
        _MODULE._non_persistent_buffers_set.discard("kept")
        sys.set_int_max_str_digits(_DIGITS)


_DIGITS = sys.get_int_max_str_digits()


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x * (2 if importlib.util.find_spec("missing_of_symshape") else 3),
        lambda x: x * len(importlib.metadata.version("torch")),
        lambda x: (sys.set_int_max_str_digits(5000), x)[1],
    ],
)
def test_questions_about_what_is_installed_are_refused(fn: Any) -> None:
    x = torch.ones(1)
    with pytest.raises(UnsupportedError):
        symshape.compile(fn, fullgraph=True)(x)
    with pytest.warns(symshape.FallbackWarning):
        assert torch.equal(symshape.compile(fn)(x), fn(x))
    sys.set_int_max_str_digits(_DIGITS)
