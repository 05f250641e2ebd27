"""What a program stores, told from what another thread writes while it is traced."""

from __future__ import annotations

import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn

import symshape
from symshape import UnsupportedError
from symshape.tracing.state.instrument.stores import is_alone
from tests.worlds.world import module

_THERE, _DONE = threading.Event(), threading.Event()


class Pause:
    """Asks the other thread for its write, and waits for it: its code is not looked into."""

    def __repr__(self) -> str:
        raise AssertionError("nobody looks")


def _pause() -> None:
    _THERE.set()
    assert _DONE.wait(60)


# as trusted as Python's own
_pause.__code__ = _pause.__code__.replace(co_filename="<frozen pause>")


@contextmanager
def another_thread(write: Callable[[], object]) -> Iterator[None]:
    """Inside, another thread writes once, when the traced function pauses."""
    _THERE.clear()
    _DONE.clear()
    trouble: list[BaseException] = []

    def run() -> None:
        try:
            assert _THERE.wait(60)
            write()
        except BaseException as error:
            trouble.append(error)
        finally:
            _DONE.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    assert not trouble


class Owner:
    read = 1
    other = 1


def _world() -> types.SimpleNamespace:
    source = (
        "K = OTHER = 1\ndef fn(x):\n    y = x * K * owner.read * part.read * lib.K\n    "
        "pause()\n    return y"
    )
    lib = module("K = OTHER = 1")
    owner, part = Owner(), nn.Identity()
    part.read = part.other = 1  # type: ignore[assignment]
    made = module(source, pause=_pause, owner=owner, part=part, lib=lib)
    return types.SimpleNamespace(fn=made.fn, globals=made, lib=lib, owner=owner, part=part)


OWNERS = ("globals", "lib", "owner", "part")


def _set(world: Any, owner: str, read: bool, value: Any) -> None:
    names = ("K", "OTHER") if owner in ("globals", "lib") else ("read", "other")
    setattr(getattr(world, owner), names[0 if read else 1], value)


@pytest.mark.parametrize("owner", OWNERS)
def test_what_another_thread_writes_stays_and_is_no_reason_to_refuse(owner: str) -> None:
    world = _world()
    compiled = symshape.compile(world.fn, fullgraph=True)
    with another_thread(lambda: _set(world, owner, False, 2)):
        assert torch.equal(compiled(torch.ones(3)), torch.ones(3))
    assert 2 in vars(getattr(world, owner)).values()
    _DONE.set()
    compiled(torch.ones(3))
    assert compiled.stats().traces == 1


@pytest.mark.parametrize("owner", OWNERS)
def test_what_another_thread_writes_is_never_answered_stale(owner: str) -> None:
    """What the trace had read changes before the trace ends: refused, and right from then on."""
    world = _world()
    compiled = symshape.compile(world.fn, fullgraph=True)
    with (
        another_thread(lambda: _set(world, owner, True, 3)),
        pytest.raises(UnsupportedError, match="another thread"),
    ):
        compiled(torch.ones(3))
    _DONE.set()
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(3)), 3 * torch.ones(3))
    _set(world, owner, True, 5)
    assert torch.equal(compiled(torch.ones(3)), 5 * torch.ones(3))


def test_a_value_that_is_there_and_back_again() -> None:
    """Read, changed, read, and changed back: no program may hold both."""
    source = (
        "K = 1\ndef fn(x):\n    y = x * K\n    pause()\n    y = y + K\n    back()\n    return y"
    )
    made = module(source, pause=_pause)
    made.__dict__["back"] = types.FunctionType(_back.__code__, {"made": made})
    compiled = symshape.compile(made.fn, fullgraph=True)
    with (
        another_thread(lambda: setattr(made, "K", 2)),
        pytest.raises(UnsupportedError, match="another thread"),
    ):
        compiled(torch.ones(3))
    _DONE.set()
    made.K = 1
    assert torch.equal(compiled(torch.ones(3)), 2 * torch.ones(3))


def _back() -> None:
    made.K = 1  # type: ignore[name-defined]  # noqa: F821


_back.__code__ = _back.__code__.replace(co_filename="<frozen back>")


_WRITES = {
    "a global": "global K\n    K = 2",
    "a deleted global": "global K\n    del K",
    "an attribute of a module": "lib.K = 2",
    "an attribute": "owner.read = 2",
    "a deleted attribute": "del owner.own",
    "an attribute of a torch module": "part.read = 2",
    "a buffer": "part.register_buffer('b', None)",
    "a flag by a method": "part.train(False)",
    "setattr": "setattr(owner, 'read', 2)",
    "object.__setattr__": "object.__setattr__(owner, 'read', 2)",
    "an attribute of a class": "type(owner).read = 2",
    "a slot": "slotted.k = 2",
    "vars": "vars(owner)['read'] = 2",
    "cached": "owner.cached",
}


class _Slotted:
    __slots__ = ("k",)


@pytest.mark.parametrize("what", _WRITES)
def test_a_programs_own_writes_are_seen_beside_another_thread(what: str) -> None:
    """Each write leaves the world as eager would, by whatever way, and never a call without it."""
    import functools

    class C:
        read = 1

        @functools.cached_property
        def cached(self) -> int:
            return 7

    owner, part, lib, slotted = C(), nn.Identity(), module("K = 1"), _Slotted()
    owner.own = slotted.k = part.read = 1  # type: ignore[attr-defined,assignment]
    names = {"owner": owner, "part": part, "lib": lib, "slotted": slotted}
    made = module(
        f"K = 1\ndef fn(x):\n    {_WRITES[what]}\n    pause()\n    return x * 2",
        pause=_pause,
        **names,
    )

    def look() -> Any:
        found = (vars(owner), C.read, lib.K, slotted.k, made.__dict__.get("K"))
        return repr((*found, part.read, part.training, list(part._buffers)))

    before = look()
    seen: list[str] = []
    compiled = symshape.compile(made.fn, fullgraph=True)
    with another_thread(lambda: None):
        try:
            compiled(torch.ones(3))
            seen.append(look())
        except UnsupportedError:
            assert look() == before
    if what != "a deleted attribute" and what != "a deleted global":
        made.fn(torch.ones(3))
        assert not seen or seen[0] == look()


def test_alone() -> None:
    """No other thread: also what nobody notes is the program's."""
    with another_thread(lambda: None):
        assert not is_alone()
        _THERE.set()
