"""One frozen set of options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from symshape.errors import InputError


def _positive(instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if type(value) is not int or value < 1:
        raise InputError(f"{attribute.name} must be a positive int, not {value!r}")


def _fraction(instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise InputError(f"{attribute.name} must be a number from 0 to 1, not {value!r}")


@attrs.frozen(kw_only=True)
class Options:
    """How tracing and caching behave.

    Attributes:
        specialize_zero_one: sizes 0 and 1 become constants (PyTorch's habit); off by default.
        duck_shape: input sizes with equal hints share a symbol (PyTorch's habit); off by default.
        max_entries: entries kept by one compiled function; the least recently used leaves first.
        memo_size: exact argument tuples remembered for the quickest look-up.
        max_cuda_graphs: CUDA graphs kept by one compiled function; the least recently used leaves first.  Also padded
            buckets kept by one program; one that has not been used for long leaves.
        verify: the fraction of calls (0 to 1) for which eager runs too and is compared; a difference raises
            :class:`symshape.VerificationError`. 0.01 costs about two eager calls in a hundred.
        minimise_guards: guards that the others imply are dropped (validated by Z3, kept on unknown).
    """

    specialize_zero_one: bool = False
    duck_shape: bool = False
    max_entries: int = attrs.field(default=1024, validator=_positive)
    memo_size: int = attrs.field(default=4096, validator=_positive)
    max_cuda_graphs: int = attrs.field(default=64, validator=_positive)
    minimise_guards: bool = True
    verify: float = attrs.field(default=0.0, validator=_fraction)


def options_of(given: Options | Mapping[str, Any] | None, *others: str) -> Options:
    """The options that a caller gave, as they are or as a dictionary of their fields.

    Args:
        given: what the caller gave; None for the defaults.
        others: names that the caller may give besides, for the message.

    Raises:
        InputError: there is no such option, or its value is not one that it can have.

    >>> options_of({"memo_size": 8}).memo_size
    8
    """
    if isinstance(given, Options):
        return given
    if given is not None and not isinstance(given, Mapping):
        raise InputError(f"options must be a symshape.Options or a dictionary of its fields, not {given!r}")
    names = sorted(field.name for field in attrs.fields(Options))
    unknown = sorted(str(name) for name in given or () if name not in names)
    if unknown:
        raise InputError(f"there is no option {unknown[0]!r}; there are {', '.join((*others, *names))}")
    return Options(**dict(given or {}))
