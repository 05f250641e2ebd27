"""Functions made from generated source, which a debugger can step into and a traceback can show.

The one place that enters generated source into :mod:`linecache`, and takes it out again when its
function dies. What is taken out is the source. The entry's name stays and goes to a function of
later: the garbage collector may run in the middle of ``linecache.checkcache``, which whoever prints
a traceback calls, and which fails at a name that is gone.
"""

from __future__ import annotations

import itertools
import linecache
import sys
import weakref
from collections import defaultdict
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

_serial = itertools.count()
_free: defaultdict[str, list[str]] = defaultdict(list)
"""By label: names of files whose functions are gone."""
_MOST_FREE = 64


def generated_function(
    source: str, name: str, label: str, namespace: dict[str, Any]
) -> FunctionType:
    r"""The function ``name`` that ``source`` defines when it runs in ``namespace``.

    Its file is called ``<label N>``; :mod:`linecache` knows the source for as long as the function
    lives. The source is run as it is: texts of the user must never be part of it.

    >>> double = generated_function("def double(v0):\n    return 2 * v0\n", "double", "example", {})
    >>> double(4), double.__code__.co_filename
    (8, '<example ...>')
    """
    code = _compiled(source)
    filename = _unused_file(label)
    exec(_in_file(code, filename), namespace)
    function = namespace[name]
    assert isinstance(function, FunctionType)
    _tell(filename, source)
    weakref.finalize(function, _forget, filename, label).atexit = False
    return function


def _unused_file(label: str) -> str:
    free = _free[label]
    # no other thread walks the line cache
    if len(free) > _MOST_FREE and len(sys._current_frames()) == 1:
        while len(free) > _MOST_FREE:
            linecache.cache.pop(free.pop(), None)
    try:
        return free.pop()  # at once or not at all: threads and finalizers come between
    except IndexError:
        return f"<{label} {next(_serial)}>"


def _tell(filename: str, source: str) -> None:
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)


def _forget(filename: str, label: str) -> None:
    if filename in linecache.cache:
        _tell(filename, "")
    _free[label].append(filename)


@lru_cache(maxsize=16)
def _compiled(source: str) -> CodeType:
    """The code of a source, which layers and instances of one class have in common."""
    return compile(source, "<generated>", "exec")


def _in_file(code: CodeType, filename: str) -> CodeType:
    """The same code as that of another file."""
    inner = tuple(
        [
            _in_file(each, filename) if isinstance(each, CodeType) else each
            for each in code.co_consts
        ]
    )
    return code.replace(co_filename=filename, co_consts=inner)
