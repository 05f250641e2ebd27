"""The source of a symbol's value at run time, in the words of the user's program.

``arg`` is the path of the argument as the user would write it: ``x``, ``kwargs['mask']``,
``batch[0].ids``.  A mapping from the name of a symbol to its source turns ``s0`` into ``x.size(0)``
in every sentence that this package writes.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs


@attrs.frozen
class Size:
    """The size of one dimension of a tensor argument.

    >>> Size("x", 0).text()
    'x.size(0)'
    """

    arg: str
    dim: int

    def text(self) -> str:
        """The source as an expression of the user's program."""
        return f"{self.arg}.size({self.dim})"


@attrs.frozen
class Stride:
    """The stride of one dimension of a tensor argument, in elements.

    >>> Stride("kwargs['mask']", 1).text()
    "kwargs['mask'].stride(1)"
    """

    arg: str
    dim: int

    def text(self) -> str:
        """The source as an expression of the user's program."""
        return f"{self.arg}.stride({self.dim})"


@attrs.frozen
class StorageOffset:
    """The storage offset of a tensor argument, in elements.

    >>> StorageOffset("x").text()
    'x.storage_offset()'
    """

    arg: str

    def text(self) -> str:
        """The source as an expression of the user's program."""
        return f"{self.arg}.storage_offset()"


@attrs.frozen
class IntArg:
    """An argument that is an integer itself.

    >>> IntArg("k").text()
    'k'
    """

    arg: str

    def text(self) -> str:
        """The source as an expression of the user's program."""
        return self.arg


Source = Size | Stride | StorageOffset | IntArg


def spelled(sources: Mapping[str, Source | str]) -> dict[str, str]:
    """The text of each source, by symbol: what :func:`guards.terms.printing.text` takes as names.

    >>> spelled({"s0": Size("x", 0), "s1": "my_own_name"})
    {'s0': 'x.size(0)', 's1': 'my_own_name'}
    """
    return {
        name: source if isinstance(source, str) else source.text()
        for name, source in sources.items()
    }
