"""Programs that read every kind of thing, and what a recording notes of them, as text: for
``test_reads.py``.

Run as a script with ``python`` or ``compiled`` it prints that, noted by the one or the other.
"""

from __future__ import annotations

import contextlib
import functools
import json
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

if __name__ == "__main__" and sys.argv[1:] == ["python"]:
    sys.modules["symshape.tracing.state.compiled_reads"] = None  # type: ignore[assignment]

import torch

from symshape.tracing.state.instrument import hooks
from symshape.tracing.state.instrument.hooks import recorder_of, recording
from symshape.tracing.state.undo import side_effects

NUMBER = 3
TABLE: dict[str, Any] = {"a": 1, "b": [1, 2]}
count = 0


class Parent:
    """With a method that a super call finds."""

    shared = 1

    def method(self) -> int:
        return self.shared


class Thing(Parent):
    """With a property, a cached one, and attributes."""

    def __init__(self) -> None:
        self.plain, self.other, self.inner = 1, "text", [1, 2]

    @property
    def double(self) -> int:
        return self.plain * 2

    @functools.cached_property
    def cached(self) -> int:
        return self.plain + 1

    def method(self) -> int:
        return super().method() + len(self.inner)

    def __getattr__(self, name: str) -> Any:
        if name == "late":
            return 5
        raise AttributeError(name)


class Slotted:
    """Without a dictionary."""

    __slots__ = ("a", "b")

    def __init__(self) -> None:
        self.a = 1


class Own(dict[str, Any]):
    """A dictionary of attributes that is no plain one."""


class Net(torch.nn.Module):
    """With a parameter, a buffer, submodules, one of them under None, a hook and a plain
    attribute.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first, self.layers = (
            torch.nn.Linear(3, 3),
            torch.nn.ModuleList([torch.nn.ReLU(), torch.nn.Linear(3, 3)]),
        )
        self.scale = torch.nn.Parameter(torch.ones(3))
        self.register_buffer("offset", torch.zeros(3))
        self.register_parameter("bias", None)
        self.flag = True
        self.layers[1].register_forward_pre_hook(lambda module, args: None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x) * self.scale + self.offset
        if self.flag and self.training and self.bias is None:
            for layer in self.layers:
                x = layer(x)
        return x if hasattr(self, "nothing") else x + NUMBER


THING, SLOTTED, NET = Thing(), Slotted(), Net()
SPACE = types.SimpleNamespace(a=1, b=THING)
TENSOR = torch.zeros(2)


def _attributes() -> Any:
    return (
        THING.plain,
        THING.double,
        THING.cached,
        THING.method(),
        THING.late,
        SPACE.a,
        SPACE.b.other,
    )  # type: ignore[attr-defined]


def _missing() -> Any:
    found = [getattr(THING, "nothing", None), hasattr(SLOTTED, "b"), hasattr(NET, "absent")]
    with contextlib.suppress(AttributeError):
        found.append(SPACE.nothing)
    with contextlib.suppress(NameError):
        found.append(nothing_of_the_kind)  # type: ignore[name-defined]  # noqa: F821
    return found


def _slots() -> Any:
    SLOTTED.b = 2  # type: ignore[attr-defined]
    return SLOTTED.a, SLOTTED.b  # type: ignore[attr-defined]


def _writes() -> Any:
    global count
    count += NUMBER
    THING.new = 1  # type: ignore[attr-defined]
    THING.plain = THING.plain + THING.new  # type: ignore[attr-defined]
    NET.flag = not NET.flag
    NET.first.extra = [NUMBER]  # type: ignore[assignment]
    del THING.new  # type: ignore[attr-defined]
    return count, THING.plain, NET.flag, NET.first.extra


def _module() -> Any:
    return NET(torch.zeros(2, 3))


def _walk() -> Any:
    return (
        [name for name, _ in NET.named_parameters()],
        NET.layers[1].weight.shape,
        TENSOR.shape,
        TENSOR.dim(),
    )


def _modules_of_python() -> Any:
    return (
        torch.nn.functional.relu(TENSOR),
        types.SimpleNamespace(a=1).a,
        TABLE["b"],
        __name__,
        abs(NUMBER),
    )


def _strange() -> Any:
    made: Any = types.FunctionType(_attributes.__code__, globals(), "made")
    return (
        made(),
        vars(THING).get("plain"),
        THING.__dict__.keys(),
        THING.__class__,
        type(NET).__name__,
    )


PROGRAMS: tuple[Callable[[], Any], ...] = (
    _attributes,
    _missing,
    _slots,
    _writes,
    _module,
    _walk,
    _modules_of_python,
    _strange,
)


def noted() -> Iterator[list[str]]:
    """For each program: what it was refused for, the places and containers, what it changed, and
    what was kept.
    """
    for fn in PROGRAMS:
        for alone in (True, False):
            recorder = recorder_of(fn)
            error = ""
            try:
                with recording(recorder):
                    recorder.alone = alone
                    fn()
            except Exception as raised:
                error = f"{type(raised).__name__}: {raised}"
            places = [
                f"{type(each).__name__} {each.name} {_shown(each.value)}"
                for each in recorder.places
            ]
            containers = [f"{each.name} {len(each.items)}" for each in recorder.containers]
            spaces = [
                f"{each.name} {each.own} {each.open} {len(each.before)}"
                for each in recorder.namespaces.values()
            ]
            sizes = [
                len(each)
                for each in (recorder.seen, recorder.told, recorder.known, recorder.pinned)
            ]
            changes = side_effects.undo(recorder)
            told = [each.text for each in (*changes.changes, *changes.problems)]
            yield [fn.__name__, error, *places, *containers, *spaces, str(sizes), *told]


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, (int, str, type(None))) else type(value).__name__


if __name__ == "__main__":
    assert (hooks.HOOKS.load_attr is hooks._load_attr) is (sys.argv[1:] == ["python"])
    print(json.dumps(list(noted())))
