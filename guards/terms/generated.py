"""Functions made from generated source, which a debugger can step into and a traceback can show.

The one place that enters generated source into :mod:`linecache`, and takes it out again when its function dies.
"""

from __future__ import annotations

import itertools
import linecache
import weakref
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

_serial = itertools.count()


def generated_function(source: str, name: str, label: str, namespace: dict[str, Any]) -> FunctionType:
    r"""The function ``name`` that ``source`` defines when it runs in ``namespace``.

    Its file is called ``<label N>``; :mod:`linecache` knows the source for as long as the function lives. The source is
    run as it is: texts of the user must never be part of it.

    >>> double = generated_function("def double(v0):\n    return 2 * v0\n", "double", "example", {})
    >>> double(4), double.__code__.co_filename
    (8, '<example ...>')
    """
    filename = f"<{label} {next(_serial)}>"
    exec(_in_file(_compiled(source), filename), namespace)
    function = namespace[name]
    assert isinstance(function, FunctionType)
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    weakref.finalize(function, linecache.cache.pop, filename, None).atexit = False
    return function


@lru_cache(maxsize=16)
def _compiled(source: str) -> CodeType:
    """The code of a source, which layers and instances of one class have in common."""
    return compile(source, "<generated>", "exec")


def _in_file(code: CodeType, filename: str) -> CodeType:
    """The same code as that of another file."""
    inner = tuple([_in_file(each, filename) if isinstance(each, CodeType) else each for each in code.co_consts])
    return code.replace(co_filename=filename, co_consts=inner)
