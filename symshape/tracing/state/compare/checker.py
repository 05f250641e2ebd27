"""Check that the places a program read still hold their values, in a time that hardly grows with
their number.

Most places are items of dictionaries that are never written: attributes, parameters, submodules,
globals, members of classes.  Those dictionaries are watched as wholes (``dict_versions``).  The
other places are compared one by one (``comparison``): places in dictionaries that are written (a
counter, the globals of a script), and the bases of the classes.

When a watch reports a write, everything is compared for some checks, which show the dictionaries
that are written often.  The quiet dictionaries are watched again afterwards.  The number of those
checks grows each time, so that watching never costs more than it saves.  If nothing can watch
dictionaries (neither our own loop nor torch's guards are available), everything is compared each
time.
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import attrs

from symshape.tracing.state.compare import dict_versions
from symshape.tracing.state.compare.generated_check import UNREADABLE, Comparison, Hooks, Places
from symshape.tracing.state.record.dictionary_reads import dicts_of_classes
from symshape.tracing.state.record.places import Attribute

_WORTH = 40  # places in dictionaries; with fewer, comparing is as quick as watching
# checks in a row that hold, before the first watch: it costs as much as some hundred comparisons
_FIRST_WAIT = 8
_LONGER = 4  # factor: the next wait after a watch was dropped
_LONGEST_WAIT = 4096  # checks


@attrs.frozen(eq=False)
class _Watched:
    """The watch over the quiet dictionaries, and the comparison of the other places, which asks the
    watch first.
    """

    watch: dict_versions.DictWatch
    others: Comparison


class Checker:
    """The check that all places hold their old values; any number of threads may call it.

    The answer is exact: False if any place differs, True if none does, whatever happened in
    between.

    Attributes:
        quick: a quick check whose True is exact; if it returns False or raises one of
            ``UNREADABLE``, call the checker.
    """

    __slots__ = (
        "_dicts",
        "_left",
        "_lock",
        "_noted",
        "_places",
        "_wait",
        "_watched",
        "_whole",
        "quick",
    )

    def __init__(self, places: Places) -> None:
        self._places = places
        self._dicts = _dicts(places)
        self._whole = Comparison(places, lasting=not self._dicts)
        self._watched: _Watched | None = None
        self._noted: dict_versions.Written | None = None  # since halfway through the wait
        self._wait = self._left = _FIRST_WAIT
        self._lock = threading.Lock()
        # bool() is a no
        self.quick: Callable[[], bool] = bool if self._dicts else self._whole.quick
        # tried out once a process: now, beside a trace, not in a later call
        if self._dicts and dict_versions.ready():
            dict_versions.sees_classes()

    def __call__(self) -> bool:
        """Return whether all places hold their old values."""
        if self._whole.still_differs():
            if self._dicts and self._lock.acquire(blocking=False):
                self._left, self._noted = self._wait, None
                self._lock.release()
            return False
        try:
            if self.quick():
                return True
        except UNREADABLE:
            pass
        if not self._dicts or not self._lock.acquire(blocking=False):
            return self._compare()
        try:
            return self._look()
        finally:
            self._lock.release()

    def _compare(self) -> bool:
        try:
            if self._whole.quick():
                return True
        except UNREADABLE:
            pass
        return self._whole.holds()

    def _look(self) -> bool:
        """Return the exact answer after the quick check said no; only one thread at a time may call
        this.
        """
        watched = self._watched
        if watched is not None:
            if watched.watch.unchanged():
                return watched.others.holds()
            self._drop()
        if not self._compare():
            self._left, self._noted = self._wait, None
            return False
        self._left -= 1
        if self._left == self._wait // 2:
            if dict_versions.ready():
                self._noted = dict_versions.noted(self._dicts)
            else:
                self._left = self._wait
        return self._watch(self._noted) if self._noted is not None and self._left <= 0 else True

    def _drop(self) -> None:
        self._watched = self._noted = None
        self.quick = bool
        self._wait = self._left = min(self._wait * _LONGER, _LONGEST_WAIT)

    def _watch(self, written: dict_versions.Written) -> bool:
        """Watch the dictionaries that were not written lately; return whether all places hold under
        the new watch.
        """
        quiet = [
            each
            for each, was_written in zip(self._dicts, written(), strict=True)
            if not was_written
        ]
        if not dict_versions.sees_classes():
            of_classes = {
                id(each) for place in self._places.cells for each in dicts_of_classes(place)
            }
            quiet = [each for each in quiet if id(each) not in of_classes]
        if 2 * len(quiet) < len(self._dicts):
            self._drop()
            return True
        watch = dict_versions.DictWatch(quiet)
        chosen = set(map(id, quiet))
        rest = self._places.with_owners(lambda place: not _says_all(_watchable(place), chosen))
        rest = attrs.evolve(rest, cells=[*rest.cells, *_bases_of(self._places, rest)])
        others = Comparison(rest, (watch.check, watch.world))
        # what holds now was so when the watch began, or was written since and the watch saw it
        if not self._compare():
            self._left, self._noted = self._wait, None
            return False
        self._watched, self.quick = _Watched(watch, others), others.quick
        return True


def _watchable(place: Any) -> tuple[dict[Any, Any], ...]:
    """Return the dictionaries whose versions say everything about a place; none if a version does
    not say enough.

    The order of an OrderedDict can change without a new version.  Other subclasses may have
    look-ups of their own.
    """
    owner = place.owner
    if type(owner) is dict:
        return (owner,)
    if type(owner) is OrderedDict:
        ordered = len(place.functions) > 1 if type(place) is Hooks else hasattr(place, "items")
        if not ordered:
            return (owner,)
    return dicts_of_classes(place)


def _says_all(dicts: tuple[dict[Any, Any], ...], watched: set[int]) -> bool:
    return bool(dicts) and all(id(each) in watched for each in dicts)


def _bases_of(places: Places, rest: Places) -> list[Attribute]:
    """Return the bases of the classes whose attributes are watched: bases can change without a
    dictionary write.
    """
    left = set(map(id, rest.cells))
    watched = [
        each for each in places.cells if isinstance(each, Attribute) and id(each) not in left
    ]
    known = {id(each.owner) for each in rest.cells if each.key == "__mro__"}
    found = {id(each.owner): each for each in watched if id(each.owner) not in known}
    return [
        Attribute(each.owner, "__mro__", each.owner.__mro__, each.name) for each in found.values()
    ]


def _dicts(places: Places) -> list[dict[Any, Any]]:
    """Return the dictionaries to watch; none if there are too few places in them to be worth a
    watch.
    """
    owned = itertools.chain(places.cells, places.containers, places.tables, places.hooks)
    found: dict[int, dict[Any, Any]] = {}
    number = 0
    for place in owned:
        owner = place.owner
        if type(owner) is dict:
            found[id(owner)] = owner
            number += 1
            continue
        for each in _watchable(place):
            found[id(each)] = each
            number += 1
    return list(found.values()) if number >= _WORTH else []
