from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

TORCH: str

def class_version(kind: type, /) -> int: ...

class Maker:
    def __new__(
        cls,
        otherwise: Callable[[Sequence[Any], Mapping[str, Any]], Hashable | None],
        nest: type,
        taken: type,
        float_leaf: type,
        varying_float: type,
        parameter: type,
        as_they_are: frozenset[type],
        constant: Callable[[Any], Hashable | None],
        /,
    ) -> Maker: ...
    def __call__(self, leaves: Sequence[Any], kwargs: Mapping[str, Any], /) -> Hashable | None: ...
