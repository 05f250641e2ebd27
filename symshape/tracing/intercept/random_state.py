"""A traced function may draw random numbers of torch's; it may not seed, nor draw what is no tensor.

A graph repeats the draws, each from the generator that it was made with.  Seeding, and the numbers that Python's
``random`` and NumPy give, happen outside of the graph: a replay would lose the one and repeat the others for ever.
"""

from __future__ import annotations

import random
import sys
import threading
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from symshape.errors import UnsupportedError

_MARK = 0x5D37_90C4_11F2_8E6B  # a seed that no program has
_MAY_READ = ("torch/utils/checkpoint.py", "torch/_dynamo/")  # they keep the state, or put it back
_REFUSED = frozenset({"manual_seed", "seed", "set_state", "get_state", "initial_seed", "set_offset", "get_offset"})
_SEEDS = (
    "seeds or reads a random generator, which a graph would not do again; do that around the traced function, "
    "or pass a torch.Generator that is seeded outside"
)


def address(generator: torch.Generator) -> int:
    """Which generator it is: torch hands out new objects for one and the same."""
    return generator._cdata  # type: ignore[attr-defined, no-any-return]


class _Watched:
    """Stands for a generator of torch's own: this thread may not seed it or look at its state."""

    def __init__(self, generator: torch.Generator) -> None:
        self._generator = generator
        self._thread = threading.get_ident()

    def __getattr__(self, name: str) -> Any:
        if name in _REFUSED and threading.get_ident() == self._thread:
            asking = sys._getframe(2).f_code.co_filename.replace("\\", "/")
            if not any(each in asking for each in _MAY_READ):
                raise UnsupportedError(f"the function {_SEEDS}")
        return getattr(self._generator, name)


@contextmanager
def _default_generators_watched() -> Iterator[None]:
    places: list[tuple[Any, str, Any]] = [(torch.random, "default_generator", torch.default_generator)]
    if torch.cuda.is_initialized():
        places.append((torch.cuda, "default_generators", torch.cuda.default_generators))
    try:
        for owner, name, found in places:
            watched = tuple(map(_Watched, found)) if isinstance(found, tuple) else _Watched(found)
            setattr(owner, name, watched)
        yield
    finally:
        for owner, name, found in places:
            setattr(owner, name, found)


@contextmanager
def repeatable(name: str, generators: Iterable[torch.Generator], named: Iterable[Any]) -> Iterator[None]:
    """Inside, the function of this name is traced; ``generators`` and ``named`` are what it can reach.

    Raises:
        UnsupportedError: it seeds a generator or reads a generator's state, or draws numbers of Python's or NumPy's.
    """
    others = [(what, read, read()) for what, read in _other_sources(named)]
    given = list(generators)
    shared = threading.active_count() > 1 and sys.getprofile() is None
    with _default_generators_watched(), _left_alone(name, given) if shared else _marked(name, given):
        yield
    changed = [what for what, read, state in others if read() != state]
    if changed:
        raise UnsupportedError(
            f"{name} draws numbers from {changed[0]}, which a graph would repeat for ever; draw them with torch, "
            "or pass them as arguments"
        )


@contextmanager
def _marked(name: str, generators: Sequence[torch.Generator]) -> Iterator[None]:
    """Inside, the generators have a seed that no program has: whoever seeds one changes it."""
    before = [(each, each.get_state()) for each in generators]
    for generator, _ in before:
        generator.manual_seed(_MARK)
    marked = [each.get_state() for each, _ in before]
    try:
        yield
        if any(not torch.equal(each.get_state(), mark) for (each, _), mark in zip(before, marked, strict=True)):
            raise UnsupportedError(f"{name} {_SEEDS}")
    finally:
        for generator, state in before:
            generator.set_state(state)


@contextmanager
def _left_alone(name: str, generators: Sequence[torch.Generator]) -> Iterator[None]:
    """As :func:`_marked` where other threads may draw meanwhile: the calls of this thread are watched instead."""
    ours = set(map(address, generators))
    found: list[tuple[torch.Generator, torch.Tensor]] = []

    def watch(frame: types.FrameType, event: str, called: Any) -> None:
        if event != "c_call" or not isinstance(owner := getattr(called, "__self__", None), torch.Generator):
            return
        file = frame.f_code.co_filename.replace("\\", "/")
        if called.__name__ in _REFUSED and address(owner) in ours and not any(each in file for each in _MAY_READ):
            found.append((owner, owner.get_state()))

    sys.setprofile(watch)
    try:
        yield
        if sys.getprofile() is not watch:
            raise UnsupportedError(f"{name} changes the profile function, so that its seeding cannot be watched")
        sys.setprofile(None)
        if found:
            raise UnsupportedError(f"{name} {_SEEDS}")
    finally:
        sys.setprofile(None)
        for generator, state in reversed(found):  # as it was before it was first seeded
            generator.set_state(state)


def _other_sources(named: Iterable[Any]) -> list[tuple[str, Callable[[], Any]]]:
    """Generators of Python's and NumPy's that the named objects lead to, with what reads their state."""
    numpy = sys.modules.get("numpy")
    found: dict[str, Callable[[], Any]] = {}
    for value in named:
        owner = getattr(value, "__self__", None)
        if value is random or owner is random._inst:
            found["Python's random module"] = random.getstate
        elif numpy is not None and (value is numpy or value is numpy.random or owner is numpy.random.mtrand._rand):
            found["numpy.random"] = lambda: _numpy_state(numpy)
    return list(found.items())


def _numpy_state(numpy: Any) -> tuple[Any, ...]:
    kind, key, *rest = numpy.random.get_state()
    return (kind, key.tobytes(), *rest)
