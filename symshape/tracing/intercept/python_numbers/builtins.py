"""Replacements for Python's builtins in traced code, which treat a symbolic number as a plain one.

A size of a traced tensor, or an integer argument, is a ``torch.SymInt``, which is no ``int`` to
Python. A program that tests ``isinstance(n, int)`` would take another branch than in eager. So the
names ``isinstance`` and ``type`` in traced code mean functions of ours during the trace. The same
holds for ``len``, ``divmod``, ``max``, ``min``, ``sorted``, ``id`` and ``print``. Code that is not
recorded (see ``state/trusted``) keeps Python's.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from types import GenericAlias
from typing import Any

import torch

from symshape.errors import ProgramError, Reason, UnsupportedError
from symshape.graph.float_terms import float_term
from symshape.torch_internals import dispatch
from symshape.tracing.intercept.exchanges import StandIn, exchanged
from symshape.tracing.intercept.python_numbers.methods import is_of_data
from symshape.tracing.intercept.python_numbers.operators import (
    PLAIN,
    as_integer,
    greatest,
    is_ours,
    is_term,
    least,
    listed_once,
    of_numpy,
    plain_sorted,
    stands_for,
)
from symshape.tracing.symbolic.keys import plain_key
from symshape.tracing.symbolic.nodes.float_node import of_python
from symshape.tracing.symbolic.nodes.texts import plain_print
from symshape.tracing.symbolic.tensors import SymbolicTensor, outward

_isinstance = isinstance
_stand_ins: Collection[int] = ()
"""The ids of the stand-ins for objects among the arguments of the trace."""
_HASHING = (dict.__contains__, set.__contains__, frozenset.__contains__)
_NUMBERS = (int, float, complex, torch.SymInt, torch.SymFloat)
_MOST_COMPARED = 64  # each comparison may leave a guard
_SEQUENCES = (list, tuple, torch.Size)


# -- ``range`` with a symbolic end: a loop over it fixes the number of iterations, not the size
# itself.
class SymbolicRange(Sequence[int]):
    """A ``range`` with a symbolic end and a plain step.

    Args:
        start: as in ``range``.
        stop: likewise.
        step: not 0.
    """

    __slots__ = ("start", "step", "stop")

    def __init__(self, start: Any, stop: Any, step: int) -> None:
        self.start, self.stop, self.step = start, stop, step

    def length(self) -> Any:
        """Return the number of items, as a symbolic integer."""
        distance = self.stop - self.start if self.step > 0 else self.start - self.stop
        return torch.sym_max((distance + abs(self.step) - 1) // abs(self.step), 0)

    def __len__(self) -> int:
        return int(self.length())

    def __iter__(self) -> Iterator[Any]:
        return iter([self.start + i * self.step for i in range(len(self))])

    def __reversed__(self) -> Iterator[Any]:
        return iter([self.start + i * self.step for i in reversed(range(len(self)))])

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self._plain()[index]
        where, length = (
            (index if type(index) is torch.SymInt else operator.index(index)),
            self.length(),
        )
        if where < 0:
            where = where + length
        if where < 0 or where >= length:
            raise IndexError("range object index out of range")
        return self.start + where * self.step

    def __contains__(self, item: Any) -> bool:
        if type(item) not in (int, torch.SymInt):
            return item in self._plain()
        low, high = (self.start, item) if self.step > 0 else (item, self.start)
        ended = item >= self.stop if self.step > 0 else item <= self.stop
        return not (low > high) and not ended and bool((high - low) % abs(self.step) == 0)

    def __bool__(self) -> bool:
        return bool(self.length() > 0)

    def _plain(self) -> range:
        return range(int(self.start), int(self.stop), self.step)

    def __eq__(self, other: object) -> bool:
        return self._plain() == (other._plain() if isinstance(other, SymbolicRange) else other)

    def __hash__(self) -> int:
        return hash(self._plain())

    def __repr__(self) -> str:
        return repr(self._plain())

    def index(self, value: Any, *limits: Any) -> int:
        """Return the position of a number."""
        return self._plain().index(value, *limits)

    def count(self, value: Any) -> int:
        """Return how often a number occurs in the range."""
        return self._plain().count(value)


def plain_range(*args: Any) -> Any:
    """Compute ``range``, either end of which may be symbolic.

    >>> plain_range(1, 6, 2)
    range(1, 6, 2)
    """
    start, stop, step = (
        (0, *args, 1) if len(args) == 1 else (*args, 1)[:3] if len(args) in (2, 3) else (None,) * 3
    )
    ends = (start, stop)
    symbolic = any(
        type(each) is torch.SymInt and is_ours(each) and each.node.has_hint() for each in ends
    )
    if (
        not symbolic
        or type(step) is not int
        or step == 0
        or any(type(e) not in (int, torch.SymInt) for e in ends)
    ):
        return range(*args)
    return SymbolicRange(start, stop, step)


# -- Builtins
def plain_isinstance(value: object, kinds: Any) -> bool:
    """Compute ``isinstance(value, kinds)``; a symbolic number also is an instance of its plain
    number's classes.

    >>> plain_isinstance(3, int), plain_isinstance("3", (int, float))
    (True, False)
    """
    if _isinstance(value, kinds):
        return True
    if type(value) is SymbolicRange:
        return _isinstance(range(0), kinds)
    return type(value) in PLAIN and _isinstance(stands_for(value), kinds)


class _Kind(type):
    """The metaclass of ``PlainType``.

    ``PlainType(n)`` calls our code, and ``isinstance(x, PlainType)`` asks for a class.
    """

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        found = type(*args, **kwargs)
        if len(args) != 1:
            return found
        if found is SymbolicTensor:
            return args[0]._kind
        if found is SymbolicRange:
            return range
        if found is StandIn:
            return type(args[0].original)
        if issubclass(found, ProgramError):
            return args[0].kind
        return type(stands_for(args[0])) if found in PLAIN else found

    def __instancecheck__(cls, instance: Any) -> bool:
        return _isinstance(instance, type)

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is type

    def __hash__(cls) -> int:
        return hash(type)

    def __subclasscheck__(cls, subclass: Any) -> bool:
        return issubclass(subclass, type)


class PlainType(type, metaclass=_Kind):
    """The replacement for ``type``: a symbolic number or tensor has the type of the plain one that
    it stands for.

    >>> PlainType(3) is int, isinstance(int, PlainType)
    (True, True)
    """

    __class_getitem__: Any = classmethod(GenericAlias)


def plain_len(value: Any) -> Any:
    """Compute ``len(value)``; the length of a traced tensor may be symbolic.

    >>> plain_len([1, 2])
    2
    """
    if type(value) is SymbolicTensor and value._spec.sizes:
        return outward(value._spec.sizes[0])
    if type(value) is SymbolicRange:
        return value.length()
    return len(value)


def plain_numel(size: Sequence[Any]) -> Any:
    """Compute ``torch.Size.numel``, which C computes with plain numbers only.

    >>> plain_numel(torch.Size([2, 3]))
    6
    """
    return math.prod(size)


def plain_divmod(a: Any, b: Any) -> Any:
    """Compute ``divmod(a, b)``, either operand of which may be symbolic.

    >>> plain_divmod(7, 3)
    (2, 1)
    """
    return (a // b, a % b) if {type(a), type(b)} & {torch.SymInt, torch.SymFloat} else divmod(a, b)


def _is_inexact(number: Any) -> bool:
    """Return whether a symbolic float is ours and no ratio of integers, so that a guard cannot
    compare it.
    """
    return is_ours(number) and number.node.ratio() is None


def _chosen(name: str, choose: Callable[..., Any]) -> Callable[..., Any]:
    """Return the replacement for ``max`` or ``min``.

    The greatest of several sizes is a term, so no guard fixes which one is the greatest.
    """
    choose_size = {"max": greatest, "min": least}[name]

    def compute(*args: Any, **kwargs: Any) -> Any:
        if len(args) == 1:
            args = (listed_once(args[0]),)
        listed = args[0] if len(args) == 1 and type(args[0]) in _SEQUENCES else args
        if kwargs.keys() <= {"default"} and (len(args) == 1 or not kwargs) and is_term(listed):
            return choose_size(listed)
        kinds = {type(each) for each in args}
        if (
            len(args) < 2
            or kwargs
            or torch.SymFloat not in kinds
            or not kinds <= {float, torch.SymFloat}
        ):
            return choose(*args, **kwargs)
        ours = next(
            (each.node for each in args if type(each) is torch.SymFloat and is_of_data(each)), None
        )
        if ours is None:
            ours = next(
                (each.node for each in args if type(each) is torch.SymFloat and _is_inexact(each)),
                None,
            )
        if ours is None:
            return choose(*args)
        found, *others = (
            each.node if type(each) is torch.SymFloat else ours.wrap_float(each) for each in args
        )
        # in Python's order: of equal numbers, and where one is NaN, the first stays
        for each in others:
            found = getattr(found, f"sym_{name}")(each)
        return torch.SymFloat(found)

    return compute


def contains(container: Any, item: Any) -> bool:
    """Compute ``item in container``. A symbolic integer is compared with the keys: hashing would
    fix its value.

    >>> contains({7, 8}, 7)
    True
    """
    hashing = getattr(type(container), "__contains__", None) in _HASHING
    if hashing and type(item) is tuple:
        item = plain_key(item)
    if not hashing or type(item) is not torch.SymInt or len(container) > _MOST_COMPARED:
        return item in container
    return any(isinstance(each, _NUMBERS) and each == item for each in container)


def plain_id(value: Any) -> int:
    """Compute ``id(value)``. The stand-in of an argument is refused: its id differs from call to
    call.

    >>> plain_id(None) == id(None)
    True
    """
    what = (
        "a tensor"
        if type(value) is SymbolicTensor and value._value in value._tracer.originals
        else ""
    )
    if what or id(value) in _stand_ins:
        raise UnsupportedError(
            f"the function calls id() on {what or 'an object'} among its arguments, and that "
            "number differs from "
            "call to call; identify the argument by a name or a number of your own",
            reason=Reason.IDENTITY,
        )
    return id(value)


def plain_int(*args: Any, **kwargs: Any) -> Any:
    """Compute ``int``; a symbolic number stays symbolic, and the value of a tensor may be symbolic.

    >>> plain_int(2.7), plain_int("11", base=2)
    (2, 3)
    """
    if len(args) != 1 or kwargs:
        return int(*args, **kwargs)
    value = _number_of(args[0])
    if type(value) is torch.SymFloat and is_ours(value):
        return math.trunc(value)
    if type(value) is not torch.SymInt:
        return int(value)
    return torch.SymInt(value.node) if of_numpy(value) else value


def plain_float(*args: Any) -> Any:
    """Compute ``float``; a symbolic number stays symbolic, and the value of a tensor may be
    symbolic.

    >>> plain_float(2), plain_float("2.5")
    (2.0, 2.5)
    """
    if len(args) != 1:
        return float(*args)
    value = _number_of(args[0])
    if type(args[0]) is SymbolicTensor and args[0].requires_grad:
        with dispatch.modes_disabled():
            float(torch.ones((), requires_grad=True))  # warns once, as eager does here
    if type(value) is torch.SymInt and is_ours(value):
        return torch.SymFloat(
            value.node.env.nodes.float_node(float_term("as_float", value.node.sym_float().term))
        )
    if type(value) is not torch.SymFloat:
        return float(value)
    return torch.SymFloat(of_python(value.node)) if is_ours(value) else value


def plain_bool(*args: Any) -> Any:
    """Compute ``bool``. A truth that depends on data stays symbolic: no branch need be taken on it.

    >>> plain_bool(2), plain_bool([])
    (True, False)
    """
    if len(args) != 1:
        return bool(*args)
    value = _item_of(args[0])
    if (
        type(value) in (torch.SymBool, torch.SymInt)
        and is_ours(value)
        and not value.node.has_hint()
    ):
        return value if type(value) is torch.SymBool else value != 0
    return bool(value)


def _item_of(value: Any) -> Any:
    """Return the number or truth in a traced tensor of one element; any other value unchanged."""
    if not _isinstance(value, torch.Tensor) or value.is_complex() or value.numel() != 1:
        return value
    return value.item()


def _number_of(value: Any) -> Any:
    """Return the number in a traced tensor of one element, a truth as an integer; any other value
    unchanged.
    """
    found = _item_of(value)
    is_truth = found is not value and type(found) is torch.SymBool and is_ours(found)
    return as_integer(found) if is_truth else found


def dispatching(dispatch: Callable[[type], Any]) -> Callable[[type], Any]:
    """Return a ``functools.singledispatch`` lookup that takes classes of symbolic values for those
    of plain ones.
    """
    return lambda kind: dispatch(_CLASSES.get(kind, kind))


_CLASSES: dict[type, type] = {**PLAIN, SymbolicTensor: torch.Tensor, SymbolicRange: range}


def plain_map(function: Any, *iterables: Any) -> Any:
    """Compute ``map``, whose function may be ``int`` or ``float``.

    >>> list(plain_map(int, "12"))
    [1, 2]
    """
    return map(CALLED.get(id(function), function), *iterables)


CALLED: dict[int, Any] = {
    id(bool): plain_bool,
    id(int): plain_int,
    id(float): plain_float,
    id(map): plain_map,
    id(range): plain_range,
}
"""Replacements, by ``id``, for classes that traced code calls by their names."""

REPLACED = {
    "id": plain_id,
    "isinstance": plain_isinstance,
    "type": PlainType,
    "len": plain_len,
    "divmod": plain_divmod,
    "max": _chosen("max", max),
    "min": _chosen("min", min),
    "sorted": plain_sorted,
    "print": plain_print,
}
"""Replacements for Python's builtins in traced code, by name."""


@contextmanager
def ids_of_stand_ins_refused(objects: Collection[int]) -> Iterator[None]:
    """Make torch's dictionaries that key tensors by id refuse the stand-ins of arguments.

    Args:
        objects: the ids of stand-ins for objects.
    """
    global _stand_ins
    outer, _stand_ins = _stand_ins, objects
    try:
        with exchanged((torch.utils.weak, "id", plain_id)):
            yield
    finally:
        _stand_ins = outer
