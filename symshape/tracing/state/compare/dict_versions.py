"""Watches that report whether dictionaries were written; thousands are checked in microseconds.

CPython numbers every change of a dictionary (3.11), or calls a watcher at the change (3.12 and
later).  Our own C++ (``compiled``) compares the numbers in one loop, or reads the flag that its
watcher sets.  If that C++ is not built, torch's guard managers are used, built by hand: one guard
for each dictionary, in a tree of managers that are all *tag safe*.  310 dictionaries take 1 µs,
2,410 three or four; with a watcher, any number takes 0.1 µs.

A write is seen whatever code made it.  A write that restores the old value is seen as well, so a
reported write only asks for an exact comparison.

The guard managers' names are private names of torch, checked on 2.11 to 2.13; no other file touches
them.  ``ready`` tries them out on small dictionaries first, and returns False if they are missing
or do not see a change.  From Python 3.12 on, torch's guards do not see that an empty dictionary is
updated.  Without our own C++, everything is compared there.
"""

from __future__ import annotations

import functools
import gc
import itertools
import sys
import sysconfig
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from symshape.tracing.state import compiled

_FAN = 16  # children of one manager; torch searches all of its children for a new one
_SAYS = ["a dictionary was written"]
Written = Callable[[], list[bool]]
"""The function that returns, for each of some dictionaries, whether it was written since they were
noted.
"""


class _World:
    """The holder of all dictionaries as attributes: the root value of the guards (they need weak
    references to it).
    """


class DictWatch:
    """The watch that sees every write into some dictionaries from now on, and keeps them alive.

    Attributes:
        check: ``check(world)`` returns whether none was written; after the first False it stays
            False.
        world: the argument of ``check``.
    """

    __slots__ = ("check", "world")

    def __init__(self, dicts: Sequence[dict[Any, Any]]) -> None:
        self.check: Callable[[dict[str, Any]], bool]
        self.world: dict[str, Any] = {}
        if compiled.VERSIONS is not None:
            self.check = compiled.VERSIONS(tuple(dicts)).unchanged
        else:
            self._of_torch(dicts)

    def _of_torch(self, dicts: Sequence[dict[Any, Any]]) -> None:
        from torch._C._dynamo.guards import RootGuardManager
        from torch._dynamo.guards import GuardManagerType

        kind: Any = GuardManagerType.GUARD_MANAGER
        world = _World()
        world.__dict__.update(_tree(dicts))
        root: Any = RootGuardManager()
        top = root.framelocals_manager(("world", 0), "world", world, kind)
        attributes = top.get_generic_dict_manager("attributes", world.__dict__, kind)
        leaves = set(map(id, dicts))
        self._grow(attributes, world.__dict__, leaves, kind)
        for manager in (attributes, top):
            manager.mark_tag_safe()
        top.mark_tag_safe_root()
        self.check, self.world = root.check, {"world": world}

    def _grow(self, manager: Any, branch: dict[str, Any], leaves: set[int], kind: Any) -> None:
        for key, value in branch.items():
            child = manager.dict_getitem_manager(key, key, value, kind)
            child.add_dict_version_guard(value, _SAYS, None)
            if id(value) not in leaves:
                self._grow(child, value, leaves, kind)
            child.mark_tag_safe()

    def unchanged(self) -> bool:
        """Return whether none of the dictionaries was written."""
        return self.check(self.world)


def _tree(dicts: Sequence[dict[Any, Any]]) -> dict[str, Any]:
    """Return a tree of dictionaries with few keys each, whose leaves are ``dicts``."""
    level: list[Any] = list(dicts)
    while len(level) > _FAN:
        level = [
            dict(zip(map(str, itertools.count()), each, strict=False)) for each in _batches(level)
        ]
    return {str(i): each for i, each in enumerate(level)}


def _batches(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    return (values[i : i + _FAN] for i in range(0, len(values), _FAN))


def noted(dicts: Sequence[dict[Any, Any]]) -> Written:
    """Return a function that says of each dictionary whether it was written since now; it takes 0.1
    µs a dictionary.
    """
    if compiled.VERSIONS is not None:
        written: Written = compiled.VERSIONS(tuple(dicts)).written
        return written
    from torch._C._dynamo.guards import dict_version

    numbers = list(map(dict_version, dicts))
    return lambda: [
        dict_version(each) != number for each, number in zip(dicts, numbers, strict=True)
    ]


def ready() -> bool:
    """Return whether writes can be watched in this process now.

    Without our own C++ loop, torch's guards are needed, and so is ``torch._dynamo``.  Importing it
    takes seconds and 70 MB, so this module does not import it: others do (transformers,
    torch.compile and the optimisers of torch). Until then the answer is False.
    """
    return (compiled.VERSIONS is not None or "torch._dynamo.guards" in sys.modules) and _works()


@functools.cache
def _works() -> bool:
    """Return whether each kind of write is seen, and nothing else; tried out once a process."""
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return False
    try:
        seen = all(map(_sees, _WRITES)) and all(map(_sees_filled, (dict, OrderedDict)))
        return seen and not _sees(lambda owner, attributes: (owner.a, attributes.get("b")))
    except Exception:  # torch's private names may differ in any way
        return False


@functools.cache
def sees_classes() -> bool:
    """Return whether writes to classes are seen, in the dictionaries behind them."""
    return all(map(_sees_in_class, _WRITES_TO_CLASSES))


def _sees_in_class(write: Callable[[Any], Any]) -> bool:
    class Base:
        a: Any = 19

    class Derived(Base):
        pass

    (attributes,) = (each for each in gc.get_referents(Base.__dict__) if type(each) is dict)
    for _ in range(20):  # so that the interpreter specialises
        _ = (Derived.a, Derived().a)
    written = noted([attributes])
    watch = DictWatch([{"other": 1}, attributes])
    if any(written()) or not (watch.unchanged() and watch.unchanged()):
        return False
    write(Base)
    return not watch.unchanged() and written() == [True]


def _sees(write: Callable[[Any, Any], Any]) -> bool:
    found = set()
    for kind in (dict, OrderedDict):
        owner: Any = _World()
        for value in range(20):  # so that the interpreter specialises
            owner.a = value
        attributes: Any = owner.__dict__ if kind is dict else kind(a=19)
        watched = [{"other": 1}, attributes]
        written = noted(watched)
        watch = DictWatch(watched)
        if any(written()) or not (watch.unchanged() and watch.unchanged() and watch.unchanged()):
            return False
        write(owner if kind is dict else _Items(attributes), attributes)
        found.add(not watch.unchanged() and not watch.unchanged() and written() == [False, True])
    return found == {True}


def _sees_filled(kind: type[dict[Any, Any]]) -> bool:
    """Return whether an update of an empty dictionary is seen; CPython 3.12 reports it as a
    copy.
    """
    empty = kind()
    watch = DictWatch([{"other": 1}, empty])
    if not (watch.unchanged() and watch.unchanged()):
        return False
    empty.update({"a": 1})
    return not watch.unchanged()


class _Items:
    """The object whose attribute writes go into a dictionary."""

    def __init__(self, items: Any) -> None:
        object.__setattr__(self, "items", items)

    def __setattr__(self, name: str, value: Any) -> None:
        self.items[name] = value

    def __getattr__(self, name: str) -> Any:
        return self.items[name]

    def __delattr__(self, name: str) -> None:
        del self.items[name]


def _there_and_back(owner: Any, _: Any) -> None:
    value, owner.a = owner.a, None
    owner.a = value


_WRITES_TO_CLASSES: tuple[Callable[[Any], Any], ...] = (
    lambda kind: setattr(kind, "a", None),
    lambda kind: setattr(kind, "b", 1),
    lambda kind: delattr(kind, "a"),
    lambda kind: _there_and_back(kind, None),
    lambda kind: type.__setattr__(kind, "__getattr__", lambda self, name: None),
)
_WRITES: tuple[Callable[[Any, Any], Any], ...] = (
    lambda owner, _: setattr(owner, "a", None),
    lambda owner, _: setattr(owner, "b", 1),
    lambda owner, _: delattr(owner, "a"),
    _there_and_back,
    lambda _, attributes: attributes.clear(),
    lambda _, attributes: attributes.update(c=1),
    lambda _, attributes: attributes.setdefault("d", 1),
    lambda _, attributes: attributes.pop("a"),
    lambda _, attributes: attributes.popitem(),
    lambda _, attributes: attributes.__ior__({"e": 1}),
)
