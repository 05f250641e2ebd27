"""Fork safety: a fork waits until no other thread is in the middle of a trace or of a change.

The child of ``os.fork`` has one thread. A lock that another thread held stays locked there for
ever. Changes that the other thread had made for a while (functions with other code, torch's flags,
the collector's thresholds) stay in place. So the locks of this package are made here, and a fork
takes all of them first; ``cached_property`` has none. ``subprocess`` does not use this.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
import weakref
from functools import partial
from itertools import count, repeat, takewhile
from operator import attrgetter, methodcaller
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

LONGEST = 600.0
"""The longest wait of a fork, in seconds; after it the fork proceeds, and its child gets new locks.
"""
_SHORT, _PAUSE = 0.1, 0.001

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property as cached_property
else:

    class cached_property(functools.cached_property):
        """A ``functools.cached_property`` without a lock, as from Python 3.12 on.

        Before, all instances of a class share one lock, which a child of ``os.fork`` finds taken
        where another thread was computing. Two threads may compute the same value here.
        """

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            if instance is None or self.attrname is None:
                return super().__get__(instance, owner)
            values = instance.__dict__
            if self.attrname in values:
                return values[self.attrname]
            found = values[self.attrname] = self.func(instance)
            return found


_numbers = count()
_made: dict[tuple[int, int], weakref.ref[threading.RLock]] = {}


_bottom = SimpleNamespace(release=partial(bool, True))
"""The entry below the locks that a thread took: releasing stops where a release returns True."""


class _Taken(threading.local):
    """The locks that the forking thread took; the last one is released first."""

    def __init__(self) -> None:
        self.locks: list[threading.RLock | SimpleNamespace] = [_bottom]


_taken = _Taken()
_let_go = partial(
    any,
    map(
        methodcaller("release"), map(methodcaller("pop"), map(attrgetter("locks"), repeat(_taken)))
    ),
)
"""Releases what the calling thread took, and what lies below.  All of it is in C: a signal that
came while the system forked has its handler run at the next bytecode, and one that raises before
the first release would leave all taken.
"""


def lock(*, outer: int = 0) -> threading.RLock:
    """Return a reentrant lock that no other thread holds in a child of this process.

    Args:
        outer: the larger, the earlier a fork takes it: locks inside which others are waited for
            come first.
    """
    made, place = threading.RLock(), (-outer, next(_numbers))
    _made[place] = weakref.ref(made, lambda _: _made.pop(place, None))
    return made


def _in_order() -> list[threading.RLock]:
    return [
        made
        for _, reference in sorted(_made.copy().items(), key=_place)
        if (made := reference()) is not None
    ]


def _place(item: tuple[tuple[int, int], object]) -> tuple[int, int]:
    return item[0]


def _take_all() -> None:
    """Take all locks; take none if another thread holds one for too long, or if an interrupt ends
    the wait.
    """
    end = time.monotonic() + LONGEST
    take = methodcaller("acquire", timeout=_SHORT)
    try:
        while True:
            locks = _in_order()
            _taken.locks[:] = [_bottom]
            # in C: no interrupt comes between a lock and its being noted
            _taken.locks += takewhile(take, locks)
            if len(_taken.locks) == len(locks) + 1:
                return
            _let_go()
            if time.monotonic() > end:
                break
            time.sleep(_PAUSE)
    except BaseException:
        _let_go()
        _taken.locks[:] = [_bottom]
        raise
    _taken.locks[:] = [_bottom]


def _let_go_in_child() -> None:
    if len(_taken.locks) > 1:
        _let_go()
        return
    for each in _in_order():
        each._at_fork_reinit()  # type: ignore[attr-defined]


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(before=_take_all, after_in_parent=_let_go, after_in_child=_let_go_in_child)
