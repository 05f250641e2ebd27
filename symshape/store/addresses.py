"""Addresses of a function's entries: from its name, the options of its traces, and the
environment.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch


class Addresses:
    """The addresses of one compiled function.

    Args:
        fn: the function.
        said: what the caller said of its traces.

    Attributes:
        name: module and qualified name.
    """

    def __init__(self, fn: Callable[..., Any], said: Sequence[Any]) -> None:
        self.name = _named(fn)
        self._is = [self.name, list(said)]
        self._last: tuple[Mapping[str, Any], str] | None = None

    def among(self, surroundings: Mapping[str, Any]) -> str:
        """Return the address in an environment (``environment.environment``)."""
        known = self._last
        if known is None or known[0] != surroundings:
            address = hashlib.sha256(text_of([self._is, surroundings]).encode()).hexdigest()[:32]
            known = self._last = surroundings, address
        return known[1]


def text_of(data: Any) -> str:
    """Return data as JSON in one canonical form."""
    return json.dumps(data, sort_keys=True)


def _named(fn: Callable[..., Any]) -> list[str]:
    """Return the names of a function, for a look-up; its code and all that it reads are compared
    later.
    """
    while isinstance(fn, functools.partial):
        fn = fn.func
    kind: Any = (
        type(fn) if isinstance(fn, torch.nn.Module) or not hasattr(fn, "__qualname__") else fn
    )
    return [str(getattr(kind, "__module__", "")), str(kind.__qualname__)]
