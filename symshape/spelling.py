"""Names that a caller misspelled: the nearest one that exists, for messages."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import attrs

T = TypeVar("T")


def nearest(name: str, known: Iterable[str]) -> str:
    """Return `` (did you mean 'x'?)`` for the known name that is nearest; empty if none is near.

    >>> nearest("max_entires", ["max_entries", "memo_size"])
    " (did you mean 'max_entries'?)"
    >>> nearest("colour", ["max_entries", "memo_size"])
    ''
    """
    near = difflib.get_close_matches(name, list(known), 1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def known_names(error: Callable[[str], Exception]) -> Callable[[type[T]], type[T]]:
    """Decorate an attrs class: a keyword argument that is none of its fields raises ``error``, with
    the nearest field's name.
    """

    def decorate(cls: type[T]) -> type[T]:
        decorated: Any = cls
        make = decorated.__init__
        names = [field.name for field in attrs.fields(decorated)]

        @functools.wraps(make)
        def checked(self: T, *args: Any, **kwargs: Any) -> None:
            for name in kwargs:
                if name not in names:
                    raise error(
                        f"{cls.__name__} has no argument {name!r}{nearest(name, names)}; it takes "
                        f"{', '.join(names)}"
                    )
            make(self, *args, **kwargs)

        decorated.__init__ = checked
        return cls

    return decorate
