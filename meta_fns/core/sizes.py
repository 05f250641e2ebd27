"""Duck typing of sizes: ``int``, torch.SymInt or any object with the symbolic protocol, behind a
few functions.

The protocol of a symbolic size: ``+ - * // %`` and comparisons with ints and each other (an
``int``/``bool`` when the result is constant, or an object that returns it from ``maybe_as_int()``),
``sym_max(other)``, ``sym_min(other)``, ``at_least_one()``.  The protocol of a symbolic condition:
``bool(cond)`` records a guard, ``known()`` never does, ``check(message)`` records a requirement
(False: it can never hold), ``& | ~`` combine without a guard.  A symbolic integer of torch's, of
the tracer's, and a ``guards.Term`` (within ``guards.assuming``) are such sizes.

Only ``if cond:``, ``decide`` and ``check`` record guards or requirements; everything else here is
free of guards. Never use a symbolic size with ``in``, as a dict key, or with ``list.index``: those
call ``==`` and test its truth, which records a guard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import torch

from meta_fns.errors import ShapeError
from meta_fns.torch_internals import guard_or_false, statically_known_true

__all__ = [
    "Cond",
    "Shape",
    "Size",
    "at_least_one",
    "ceil_div",
    "check",
    "clamp_index",
    "decide",
    "empty",
    "known",
    "only_at_run_time",
    "presumed",
    "product",
    "same",
    "same_shape",
    "show",
    "static",
    "sym_max",
    "sym_min",
    "told",
]

Size: TypeAlias = Any
"""An ``int`` or a symbolic integer."""
Cond: TypeAlias = Any
"""A ``bool`` or a symbolic condition."""
Shape: TypeAlias = tuple[Size, ...]

_Message: TypeAlias = str | Callable[[], str]


def static(sizes: Iterable[Size]) -> bool:
    """Return whether every size is a plain ``int``."""
    for size in sizes:  # noqa: SIM110 - a generator is slower
        if type(size) is not int:
            return False
    return True


def known(cond: Cond) -> bool:
    """Return whether ``cond`` is statically provable.  No guard is recorded."""
    if cond is True or cond is False:
        return cond
    if isinstance(cond, torch.SymBool):
        return statically_known_true(cond)
    return bool(cond.known())


def holds_here(cond: Cond) -> bool:
    """Return whether ``cond`` holds at the sizes of this call, to choose which guard to record.

    Return False if that is not known.  No guard is recorded.
    """
    if cond is True or cond is False:
        return cond
    return False if isinstance(cond, torch.SymBool) else cond.hint is True


def only_at_run_time(cond: Cond) -> bool:
    """Return whether only data decide ``cond``; False for torch's own conditions."""
    return not isinstance(cond, (bool, torch.SymBool)) and cond.hint is None and not known(cond)


def presumed(cond: Cond, message: _Message) -> bool:
    """Assume ``cond`` and assert it at run time, if only data decide it; return whether it is
    assumed.

    ``cond`` is no requirement of eager's.  Return False if eager could not run instead when the
    assertion fails.
    """
    presume = getattr(cond, "presume", None)
    return presume is not None and only_at_run_time(cond) and presume(message)


def told(a: Size, b: Size) -> Size:
    """Return the more concrete of two equal sizes: an int, or one that is known before run time."""
    if type(b) is int or (type(a) is not int and getattr(a, "hint", 0) is None):
        return b
    return a


def decide(cond: Cond) -> bool:
    """Return whether ``cond`` holds, with a guard; a condition that is only known at run time
    counts as false.
    """
    if cond is True or cond is False:
        return cond
    if isinstance(cond, torch.SymBool):
        return guard_or_false(cond)
    return bool(cond.guard_or_false())


def check(cond: Cond, message: _Message) -> None:
    """Require ``cond``: eager refuses the call if it is false.

    Raises: ShapeError if it is false (symbolic conditions record a guard or a run-time assertion
        instead of raising later).
    """
    if cond is True:
        return
    if cond is False:
        raise ShapeError(message if isinstance(message, str) else message())
    if isinstance(cond, torch.SymBool):
        try:
            torch._check(cond, message if callable(message) else lambda: message)  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            raise ShapeError(message if isinstance(message, str) else message()) from error
        return
    if cond.check(message) is False:
        raise ShapeError(message if isinstance(message, str) else message())


def same(a: Size, b: Size) -> bool:
    """Return whether two sizes are the same object or provably equal; False means unknown or
    unequal.

    No guard is recorded.
    """
    if a is b:
        return True
    if type(a) is int and type(b) is int:
        return a == b
    return known(a == b)


def sym_max(a: Size, b: Size) -> Size:
    """Return the larger of two sizes, without a guard."""
    if type(a) is int:
        if type(b) is int:
            return a if a >= b else b
        a, b = b, a
    if isinstance(a, torch.SymInt):
        return torch.sym_max(a, b)  # type: ignore[no-untyped-call]
    return a.sym_max(b)


def sym_min(a: Size, b: Size) -> Size:
    """Return the smaller of two sizes, without a guard."""
    if type(a) is int:
        if type(b) is int:
            return a if a <= b else b
        a, b = b, a
    if isinstance(a, torch.SymInt):
        return torch.sym_min(a, b)  # type: ignore[no-untyped-call]
    return a.sym_min(b)


def at_least_one(n: Size) -> Size:
    """Return ``max(n, 1)``, the factor by which a dimension of size ``n`` multiplies the strides
    before it.
    """
    if type(n) is int:
        return n if n > 0 else 1
    if isinstance(n, torch.SymInt):
        return n if statically_known_true(n >= 1) else torch.sym_max(n, 1)  # type: ignore[no-untyped-call]
    return n.at_least_one()


def product(sizes: Iterable[Size]) -> Size:
    """Return the product of the sizes (1 for none), ints multiplied first."""
    number = 1
    term: Size = None
    for size in sizes:
        if type(size) is int:
            number *= size
        else:
            term = size if term is None else term * size
    if term is None:
        return number
    return term if number == 1 else term * number


def ceil_div(a: Size, b: Size) -> Size:
    """Return ``a / b`` rounded up, for ``b > 0``."""
    return -(-a // b) if type(a) is int and type(b) is int else (a + (b - 1)) // b


def clamp_index(index: Size, size: Size) -> Size:
    """Return a slice bound as eager clamps it into ``[0, size]``, in the simplest form that is
    provable.

    A negative bound counts from the end.  A guard is recorded only for a sign that is neither
    provable nor decided by data.
    """
    if type(index) is int and type(size) is int:
        if index < 0:
            index += size
        return 0 if index < 0 else (size if index > size else index)
    if index is size:
        return size
    if type(index) is int:
        if index == 0:
            return 0
        if index >= _HUGE:
            return size
    if not known(index >= 0):
        negative = index < 0
        if only_at_run_time(negative):
            index = negative.sym_ite(sym_max(index + size, 0), index)
        elif known(negative) or negative:
            index = sym_max(index + size, 0)
    if known(index <= size):
        return index
    return size if known(index >= size) else sym_min(index, size)


_HUGE = 2**62


def empty(sizes: Iterable[Size]) -> bool:
    """Return whether one of the sizes is the int 0.

    Kernels of such tensors never run, so eager does not refuse their dtypes.
    """
    for size in sizes:  # noqa: SIM110 - a generator is slower
        if type(size) is int and size == 0:
            return True
    return False


def show(sizes: Iterable[Size]) -> str:
    """Return sizes as text for messages: ``(s0, 3)``."""
    items = [str(size) for size in sizes]
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


def same_shape(a: Sequence[Size], b: Sequence[Size]) -> bool:
    """Return whether two shapes are provably equal.  No guard is recorded."""
    if a is b:
        return True
    if len(a) != len(b):
        return False
    for left, right in zip(a, b, strict=True):
        if left is not right and not same(left, right):
            return False
    return True
