"""Random numbers in a traced function: torch's ops may draw; seeding, Python's and NumPy's
generators are refused.

A graph repeats the draws of ops, each from its generator. Seeding and numbers from Python's
``random`` or NumPy happen outside the graph. A replay would lose the seeding and repeat those
numbers for ever.
"""

from __future__ import annotations

import random
import sys
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, Protocol

import torch

from symshape.calls.generator_states import state_of
from symshape.errors import Reason, UnsupportedError
from symshape.tracing.intercept.exchanges import exchanged

_MARK = 0x5D37_90C4_11F2_8E6B  # a seed that no program uses
_CHECKPOINTS = "torch/utils/checkpoint.py"
# these files save and restore the state
_MAY_READ = (_CHECKPOINTS, "torch/_dynamo/", "calls/generator_states.py")
# frames between a checkpoint's `fork_rng` and the generator
_ON_THE_WAY = ("torch/random.py", "/contextlib.py")
_REFUSED = frozenset(
    {"manual_seed", "seed", "set_state", "get_state", "initial_seed", "set_offset", "get_offset"}
)
_SEEDS = (
    "seeds or reads a random generator, which a compiled graph would not repeat; do that outside "
    "the function, or pass a torch.Generator that is seeded outside"
)


def address(generator: torch.Generator) -> int:
    """Return the address of the generator: torch hands out several objects for the same one."""
    return generator._cdata  # type: ignore[attr-defined, no-any-return]


class States(Protocol):
    """The generator states that checkpoints save and restore."""

    def keep(self, generator: torch.Generator) -> torch.Tensor:
        """Return a placeholder for the state that the generator has here."""

    def put_back(self, generator: torch.Generator, state: torch.Tensor) -> None:
        """Restore the saved state of a generator."""


class _Watched:
    """A proxy for one of torch's generators; this thread may not seed it or read its state, except
    in checkpoints.
    """

    def __init__(self, generator: torch.Generator, states: States) -> None:
        self._generator = generator
        self._states = states
        self._thread = threading.get_ident()

    def __getattr__(self, name: str) -> Any:
        if name in _REFUSED and threading.get_ident() == self._thread:
            frame = sys._getframe(2)
            if name in ("get_state", "set_state") and _CHECKPOINTS in _asking(frame):
                return partial(
                    self._states.keep if name == "get_state" else self._states.put_back,
                    self._generator,
                )
            if not any(each in _file_of(frame) for each in _MAY_READ):
                raise UnsupportedError(f"the function {_SEEDS}", reason=Reason.SEEDING)
        return getattr(self._generator, name)


def _asking(frame: types.FrameType) -> str:
    """Return the file that asks a generator for something, past torch's own helper functions."""
    while _file_of(frame).endswith(_ON_THE_WAY) and frame.f_back is not None:
        frame = frame.f_back
    return _file_of(frame)


def _file_of(frame: types.FrameType) -> str:
    return frame.f_code.co_filename.replace("\\", "/")


def _default_generators_watched(states: States) -> AbstractContextManager[None]:
    of = partial(_Watched, states=states)
    places = [(torch.random, "default_generator", of(torch.default_generator))]
    if torch.cuda.is_initialized():
        watched: Any = tuple(map(of, torch.cuda.default_generators))
        places.append((torch.cuda, "default_generators", watched))
    return exchanged(*places)


class Draws:
    """The random draws of a traced function, which must be made by operations that the graph
    repeats.

    Each generator that the function can reach gets a seed that no program uses during the trace, so
    that seeding shows as a change of state. If other threads run, which may draw meanwhile, a
    profile function watches this thread's calls instead.

    Args:
        name: the function's name, for messages.

    Attributes:
        known: the addresses of the generators that existed before the trace.
    """

    def __init__(self, name: str) -> None:
        self.known = {address(torch.default_generator)}
        self._name = name
        self._marked: list[tuple[torch.Generator, torch.Tensor, torch.Tensor]] = []
        self._watched: set[int] = set()
        self._seeded: list[tuple[torch.Generator, torch.Tensor]] = []
        self._shared = threading.active_count() > 1 and sys.getprofile() is None

    def watch(self, generator: torch.Generator) -> None:
        """Watch a generator that the function can reach: only operations may draw from it, and
        nothing may seed it.
        """
        found = address(generator)
        if found in self._watched:
            return
        self._watched.add(found)
        self.known.add(found)
        if self._shared:
            sys.setprofile(self._profile)
            return
        state = state_of(generator)
        generator.manual_seed(_MARK)
        self._marked.append((generator, state, state_of(generator)))

    def _profile(self, frame: types.FrameType, event: str, called: Any) -> None:
        if event != "c_call" or not isinstance(
            owner := getattr(called, "__self__", None), torch.Generator
        ):
            return
        file = _file_of(frame)
        seeding = called.__name__ in _REFUSED and address(owner) in self._watched
        if seeding and not any(each in file for each in _MAY_READ):
            self._seeded.append((owner, state_of(owner)))

    @contextmanager
    def watched(self, states: States) -> Iterator[None]:
        """Watch all generators while the function is traced inside; ``states`` are those that its
        checkpoints keep.

        Raises:
            UnsupportedError: it seeds a generator or reads a generator's state, or draws numbers of
                Python's or NumPy's.
        """
        others = [(what, read, read()) for what, read in _other_sources()]
        changed: list[str] = []
        try:
            with _default_generators_watched(states):
                yield
            changed = [what for what, read, state in others if read() != state]
            if self._shared and self._watched and sys.getprofile() != self._profile:
                raise UnsupportedError(
                    f"{self._name} changes the profile function (sys.setprofile), by which "
                    "symshape watches for seeding; set it outside the function",
                    reason=Reason.STATE,
                )
            touched = any(not torch.equal(state_of(each), mark) for each, _, mark in self._marked)
            if touched or self._seeded:
                raise UnsupportedError(f"{self._name} {_SEEDS}", reason=Reason.SEEDING)
        finally:
            if self._shared and self._watched:
                sys.setprofile(None)
            self.put_back()
        if changed:
            raise UnsupportedError(
                f"{self._name} draws numbers from {changed[0]}, and a compiled graph would reuse "
                "the same numbers in every call; draw them with torch, or pass them as arguments",
                reason=Reason.RANDOM_NUMBERS,
            )

    def put_back(self) -> None:
        """Restore the states that the generators had before the trace."""
        for generator, state, _ in self._marked:
            generator.set_state(state)
        for generator, state in reversed(self._seeded):  # to the state before the first seeding
            generator.set_state(state)


def _other_sources() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the generators of Python and NumPy: a name for messages, and a reader of the state."""
    yield "Python's random module", random.getstate
    numpy = sys.modules.get("numpy")
    if numpy is not None and "numpy.random" in sys.modules:
        yield "numpy.random", lambda: _numpy_state(numpy)


def _numpy_state(numpy: Any) -> tuple[Any, ...]:
    kind, key, *rest = numpy.random.get_state()
    return (kind, key.tobytes(), *rest)
