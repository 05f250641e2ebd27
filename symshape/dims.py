"""Dimension policies: the caller's statements on sizes, and their spelling in ``dynamic=...``.

>>> Dim("batch", min=1, max=64, multiple_of=8)
Dim('batch', min=1, max=64, multiple_of=8)
"""

from __future__ import annotations

import keyword
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import attrs

from symshape.errors import DimError
from symshape.spelling import known_names


class Policy(Enum):
    """The policy for one size: what tracing may do with it."""

    STATIC = "static"
    """The size is a constant of the program."""
    AUTO = "auto"
    """A symbol; the program may specialise it."""
    DYNAMIC = "dynamic"
    """A symbol; an error if the program specialises it."""
    UNBACKED = "unbacked"
    """A symbol without a hint: the program may not even ask."""


def _check_bound(instance: Dim, attribute: attrs.Attribute[Any], value: Any) -> None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise DimError(f"Dim({instance.name!r}): {attribute.name} must be an int, not {value!r}")


@known_names(DimError)
@attrs.frozen(repr=False)
class Dim:
    """A named dynamic dimension.  Two dimensions with the same name are the same symbol.

    Attributes:
        name: an identifier; it becomes the symbol's name.
        min, max: inclusive bounds in elements; ``max=None`` is unbounded.
        multiple_of: the size is a multiple of this.
        policy: :attr:`Policy.DYNAMIC` unless said otherwise.

    Raises:
        DimError: the name is no identifier, the bounds are not integers, or no size fits them.
    """

    name: str
    min: int = attrs.field(default=0, validator=_check_bound)
    max: int | None = attrs.field(default=None, validator=_check_bound)
    multiple_of: int = attrs.field(default=1, validator=_check_bound)
    policy: Policy = Policy.DYNAMIC

    def __attrs_post_init__(self) -> None:
        name: Any = self.name
        if not isinstance(name, str) or not name.isidentifier() or name.startswith("_"):
            raise DimError(
                "a Dim's name must be an identifier without a leading underscore, not "
                f"{self.name!r}"
            )
        if keyword.iskeyword(self.name) or self.name in ("min", "max"):
            raise DimError(
                f"{self.name!r} means something else in a guard; choose another name for this Dim"
            )
        if self.min < 0:
            raise DimError(f"Dim({self.name!r}): a size is never negative, but min={self.min}")
        if self.multiple_of < 1:
            raise DimError(
                f"Dim({self.name!r}): multiple_of must be at least 1, not {self.multiple_of}"
            )
        first = -(-self.min // self.multiple_of) * self.multiple_of
        if self.max is not None and first > self.max:
            raise DimError(
                f"{self!r}: no size fits (the first multiple of {self.multiple_of} is {first})"
            )

    def __repr__(self) -> str:
        extra = "".join(
            f", {name}={value!r}"
            for name, value, default in (
                ("min", self.min, 0),
                ("max", self.max, None),
                ("multiple_of", self.multiple_of, 1),
            )
            if value != default
        )
        return f"Dim({self.name!r}{extra})"


def normalize(value: object, where: str, size: int) -> Dim | Policy:
    """Return the ``Dim`` or ``Policy`` for one dimension's spelling; torch.export's hints are
    accepted too.

    Args:
        value: the spelling.
        where: names the dimension in messages.
        size: the dimension's size in the call.

    Raises:
        DimError: ``value`` means nothing here, or is another size than the call's.
    """
    if isinstance(value, (Dim, Policy)):
        return value
    if value is None or value is False:
        return Policy.STATIC
    if value is True:
        return Policy.DYNAMIC
    if isinstance(value, int):
        if value != size:
            raise DimError(
                f"{where} is {size} in this call, but is declared to be {value}; call with that "
                "size, or declare what may vary: None is a constant of any size, a name a symbol"
            )
        return Policy.STATIC  # torch.export: an int says that the size is static
    if isinstance(value, str):
        if value in Policy._value2member_map_:
            return Policy(value)
        return Dim(value)
    return _from_export(value, where)


def _from_export(value: object, where: str) -> Dim | Policy:
    # torch.export.Dim.AUTO / DYNAMIC / STATIC
    kind = getattr(getattr(value, "type", None), "name", None)
    if kind in ("AUTO", "DYNAMIC", "STATIC"):
        return Policy[kind]
    name, low, high = (getattr(value, key, None) for key in ("__name__", "min", "max"))
    root = getattr(getattr(value, "root", None), "__name__", None)
    if root is not None:
        raise DimError(
            f"{where}: {name} is derived from {root}, and a Dim here is a size of its own; give it "
            "another name: where the program needs the two to hang together, a guard says how"
        )
    if isinstance(name, str) and isinstance(low, int):
        limit = high if isinstance(high, int) and high < 2**62 else None
        return Dim(name, min=low, max=limit)
    raise DimError(f"{where}: expected a Dim, a policy, a string, an int or None, not {value!r}")


def per_dimension(spec: object, shape: Sequence[int], where: str) -> dict[int, Dim | Policy]:
    """Return a policy for each dimension of a tensor, from a mapping, a sequence, or one policy for
    all.

    Raises:
        DimError: a dimension that does not exist, a sequence of the wrong length, or a constant
            that is not the tensor's size.
    """
    ndim = len(shape)
    if spec is None:
        return {}
    if isinstance(spec, Mapping):
        found: dict[int, Dim | Policy] = {}
        for key, value in spec.items():
            if not isinstance(key, int) or not -ndim <= key < ndim:
                raise DimError(f"{where} has {ndim} dimension(s), so there is no dimension {key!r}")
            found[key % ndim] = normalize(value, f"{where}.size({key})", shape[key])
        return found
    if isinstance(spec, Sequence) and not isinstance(spec, str):
        if len(spec) != ndim:
            raise DimError(f"{where} has {ndim} dimension(s), but {len(spec)} were described")
        return {d: normalize(value, f"{where}.size({d})", shape[d]) for d, value in enumerate(spec)}
    return {d: normalize(spec, f"{where}.size({d})", shape[d]) for d in range(ndim)}
