"""Functions of torch and Python that are replaced while the process runs (``torch.relu = mine``):
seen at each call.

A trace calls torch's own Python code (``torch.nn.functional.relu`` calls ``torch.relu``), whose
look-ups are not recorded.  Tracing itself calls functions of torch and Python, too.  So a program
is right only while these functions are the originals, and is made, stored and served only then.
While one of them is replaced, calls run eagerly.

The originals are those of the moment when this module is imported.  Before the first trace, what
libraries have put there when they were imported counts as original, too (PyG: ``torch.select``).
Of other classes of torch and Python (distributions …), the originals are those of the moment when
a traced program first uses one.  The dictionaries that hold them are watched as a whole: each call
asks one question (0.05 µs) of our own C++ (see ``compiled``), or of torch (some 3 µs).

Not counted: new names, submodules, plain values, functions that only show or pickle something, and
what symshape and Dynamo put there themselves.
"""

from __future__ import annotations

import builtins
import functools
import gc
import sys
import types
from collections.abc import Callable, Mapping
from operator import is_
from typing import Any

import attrs
import torch
import torch.func
import torch.nn.init
import torch.utils.checkpoint

from symshape import forks
from symshape.errors import Problem, Reason, UnsupportedError
from symshape.tracing.state import compiled
from symshape.tracing.state.instrument.trusted_code import is_made, is_of_machinery, words
from symshape.tracing.state.record.places import MISSING, PLAIN
from symshape.user_code import is_library, is_torchs

_MODULES = words(
    "torch.nn.functional torch.functional torch.nn.init torch.overrides torch.utils.checkpoint "
    "torch.special torch.linalg torch.fft torch.autograd torch.random torch.func torch._tensor "
    "torch._VF torch.nn._reduction torch._C torch._C._nn math operator"
)
"""The names of the modules whose functions torch's own code, or tracing itself, looks up."""
_CLASSES = (torch.Tensor, torch.nn.Parameter, torch.nn.Module)
_UNCOUNTED = frozenset(
    words(
        "__repr__ __str__ __format__ __dir__ __doc__ __module__ __annotations__ __dict__ "
        "__weakref__ __reduce__ __reduce_ex__ __setstate__ __getstate__ __init_subclass__ "
        "__subclasshook__ __static_attributes__ __firstlineno__"
    )
)
"""The attributes of classes that compute nothing."""
_OF_CALLS = frozenset(words("__call__ _wrapped_call_impl _call_impl __getattr__ forward __init__"))
"""The methods of ``torch.nn.Module`` that a trace records itself, or that do not run in a call."""
_UNCOUNTED_BUILTINS = frozenset(
    words(
        "print input open help exit quit copyright credits license breakpoint _ __import__ "
        "__build_class__"
    )
)
"""The names of builtins that programs replace to write elsewhere, and that no program may call."""
_UNCOUNTED_OF_TORCH = frozenset(words("compile save load set_printoptions Storage"))
"""The functions of torch that programs replace and that compute nothing in a call; ``Storage``: the
default dtype's.
"""
_HEAP_TYPE = 1 << 9
_MOST = 256  # modules and classes that are watched
_OURS = ("symshape", "torch._dynamo")


@attrs.frozen(eq=False)
class _Watched:
    """One dictionary of functions, with its original contents.

    Attributes:
        name: the name of the module or class, for people.
        owner: the module or class.
        entries: its dictionary.
        originals: the functions in it that count.
        inherited: what is found elsewhere, as in the bases of a class: another entry under such a
            name counts.
    """

    name: str
    owner: Any
    entries: Mapping[str, Any]
    originals: dict[str, Any]
    inherited: Mapping[str, Any] = attrs.field(factory=dict)

    @classmethod
    def of_module(cls, module: Any, uncounted: frozenset[str] = frozenset()) -> _Watched:
        """Return the functions of a module."""
        entries = vars(module)
        found = {
            key: value
            for key, value in entries.items()
            if _counts(key, value) and key not in uncounted
        }
        elsewhere = entries.get("vf")  # of torch._VF: where it looks up what it does not hold
        inherited = {
            key: getattr(elsewhere, key) for key in dir(elsewhere) if not key.startswith("__")
        }
        return cls(module.__name__, module, entries, found, inherited)

    @classmethod
    def of_class(cls, kind: type, uncounted: frozenset[str] = frozenset()) -> _Watched:
        """Return the functions of a class."""
        entries = next((each for each in gc.get_referents(kind.__dict__) if type(each) is dict), {})
        uncounted |= _UNCOUNTED
        named = {key: value for key, value in entries.items() if key not in uncounted}
        found = {
            key: value
            for key, value in named.items()
            if _is_function(value) and not _is_ours(value)
        }
        inherited = {"__getattr__": MISSING}
        for each in reversed(kind.__mro__[1:]):
            inherited |= each.__dict__
        inherited = {
            key: value
            for key, value in inherited.items()
            if key not in uncounted and key not in entries
        }
        return cls(
            f"{kind.__module__.removesuffix('._tensor')}.{kind.__qualname__}",
            kind,
            entries,
            found,
            inherited,
        )

    def replaced(self, before: frozenset[str]) -> frozenset[str]:
        """Return the names of the replaced functions; ``before``: those of the last time.

        While symshape itself has put something there, what was found before still holds.
        """
        entries, originals, inherited = self.entries, self.originals, self.inherited
        found = set[str]()
        if not all(map(is_, map(entries.get, originals), originals.values())):
            for key, then in originals.items():
                now = entries.get(key, MISSING)
                if now is not then and (
                    key in before if _is_ours(now) else not _is_wrapped_by_torch(now, then)
                ):
                    found.add(key)
        for key in inherited.keys() & entries.keys():
            then, now = inherited[key], entries[key]
            if then is not now and then != now and (key in before or not _is_ours(now)):
                found.add(key)
        return frozenset(found)

    def accept_libraries(self) -> None:
        """Take functions of installed libraries, which stand there now, for the originals."""
        for key, then in self.originals.items():
            now = self.entries.get(key)
            if now is not None and now is not then and _is_of_a_library(now, then):
                self.originals[key] = now

    def counts(self, key: str) -> bool:
        """Return whether a new value under this name would count."""
        return key in self.originals or key in self.inherited


def _is_function(value: Any) -> bool:
    return callable(value) or hasattr(type(value), "__get__")


def _counts(key: str, value: Any) -> bool:
    is_note = key.startswith("__") and key.endswith("__")
    return not is_note and not isinstance(value, (types.ModuleType, *PLAIN)) and _is_function(value)


def _is_ours(value: Any) -> bool:
    """Return whether a function is one that symshape or Dynamo puts in the place of one of
    torch's.
    """
    while isinstance(value, (functools.partial, staticmethod, classmethod)):
        value = value.func if isinstance(value, functools.partial) else value.__func__
    return str(getattr(value, "__module__", "")).startswith(_OURS)


def _is_of_a_library(value: Any, original: Any) -> bool:
    """Return whether a function comes from an installed library, as do all that it wraps before the
    original.

    Torch does not count: it replaces functions for a while only (``torch.export``: ``math.pow``).
    """
    while value is not None and value is not original:
        code = getattr(value, "__code__", None)
        file = "" if code is None else code.co_filename
        if not is_library(file) or is_torchs(file):
            return False
        value = getattr(value, "__wrapped__", None)
    return True


def _is_wrapped_by_torch(value: Any, original: Any) -> bool:
    """Return whether a function of torch calls the original, and does no more
    (``torch._disable_dynamo``).
    """
    code = getattr(value, "__code__", None)
    return (
        code is not None
        and getattr(value, "__wrapped__", None) is original
        and "/torch/_" in code.co_filename
    )


_watched = [
    _Watched.of_module(torch, _UNCOUNTED_OF_TORCH),
    *(_Watched.of_module(sys.modules[each]) for each in _MODULES if each in sys.modules),
    _Watched.of_module(builtins, _UNCOUNTED_BUILTINS),
    *(
        _Watched.of_class(each, _OF_CALLS if each is torch.nn.Module else frozenset())
        for each in _CLASSES
    ),
]
_by_owner = {id(each.owner): each for each in _watched}
_dicts: tuple[Any, ...] = tuple(each.entries for each in _watched)
_wanted: dict[int, type] = {}
_lock = forks.lock()
_found: list[frozenset[str]] = [frozenset()] * len(_watched)
_said = ""
_begun = False


def _never(_: Any) -> bool:
    return False


def _watch() -> tuple[Callable[[Any], bool], Callable[[], list[bool]]]:
    """Return a function that returns whether nothing was written since now, and one that says which
    were written.
    """
    if compiled.WATCHES is not None:
        watch = compiled.WATCHES(_dicts)
        return watch.unchanged, watch.written
    dicts = _dicts
    try:
        from torch._C._dynamo.guards import dict_version
    except ImportError:  # everything is compared at each call
        return _never, lambda: [True] * len(dicts)
    numbers = list(map(dict_version, dicts))

    def written() -> list[bool]:
        return [now != then for now, then in zip(map(dict_version, dicts), numbers, strict=True)]

    return lambda _: not any(written()), written


_unchanged, _written = _watch()
quiet: Callable[[Any], bool] = _unchanged
"""``quiet(None)`` returns whether every function is the original; if not, :func:`replaced` gives
the exact answer.

The name is bound again after each write: look it up in this module.
"""


def replaced() -> str:
    """Return the name of a function of torch or Python that is replaced now; empty if all are the
    originals.
    """
    if quiet(None):
        return ""
    begin()
    with _lock:
        if not _unchanged(None):
            _ask_again()
        return _said


def begin() -> None:
    """Take what libraries have put there for the originals, before the first program of the process
    is made or read from a store.
    """
    global _begun
    with _lock:
        if not _begun:
            _begun = True
            for each in _watched:
                each.accept_libraries()


def watch(kind: type) -> None:
    """Watch a class of torch or Python that a program uses, and its bases, from the next
    :func:`settle` on.
    """
    for each in kind.__mro__:
        known = id(each) in _by_owner or len(_watched) >= _MOST
        name = each.__module__  # symbolic numbers are of ``torch`` itself, and are traced with
        is_theirs = name.startswith("torch.") or (name != "torch" and is_of_machinery(each))
        if not known and each.__flags__ & _HEAP_TYPE and is_theirs and not is_made(each):
            _wanted[id(each)] = each


def settle() -> None:
    """Begin to watch the classes that programs use; called outside of traces, which put functions
    of their own there.

    From now on, the present functions of these classes count as the originals.
    """
    global _dicts
    begin()
    if not _wanted:
        return
    with _lock:
        while _wanted:
            key, kind = _wanted.popitem()
            if key not in _by_owner:
                found = _Watched.of_class(kind)
                _dicts = (*_dicts, found.entries)
                _watched.append(found)
                _found.append(frozenset())
                _by_owner[key] = found
        _ask_again()


def _ask_again() -> None:
    """Watch all dictionaries anew, and compare all that were written since they were last
    watched.
    """
    global _unchanged, _written, _said, quiet
    written = _written()
    _unchanged, _written = _watch()  # before the comparison, so that later writes are seen
    names = []
    for number, each in enumerate(_watched):
        if number >= len(written) or written[number]:
            _found[number] = each.replaced(_found[number])
        names += [f"{each.name}.{key}" for key in _found[number]]
    _said = min(names, default="")
    quiet = _never if _said else _unchanged


def refusal() -> UnsupportedError | None:
    """Return why no program can be made or serve now; None if no function is replaced."""
    name = replaced()
    if not name:
        return None
    return UnsupportedError(
        f"{name} is not torch's or Python's own function any more, and torch's own code may call "
        "it: calls run eagerly "
        "until the original is back; give your function a name of its own, and call that (if a "
        "library did it: import that before the first compiled call)",
        reason=Reason.REPLACED,
    )


def refuse_if_replaced() -> None:
    """Raise an UnsupportedError if a function of torch or Python is replaced by another one."""
    settle()
    refused = refusal()
    if refused is not None:
        raise refused


def of_write(owner: Any, key: str) -> Problem | None:
    """Return the problem with a program that replaces a function that counts; None for any other
    write.
    """
    found = _by_owner.get(id(owner))
    if found is None or not found.counts(key):
        return None
    text = (
        f"replaces {found.name}.{key}, which torch's own code may call; do that outside the "
        "function"
    )
    return Problem(text, Reason.REPLACED)
