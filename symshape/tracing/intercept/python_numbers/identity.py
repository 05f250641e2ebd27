"""Object identity and class of stand-ins: the functions for ``is``, ``__class__`` and ``match`` in
traced code.

Python answers these without asking the objects, so the interpreter of traced code has to call these
functions instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from symshape.calls.constant_keys import PLAIN, IdentityKey, constant_parts
from symshape.calls.questions import Question
from symshape.errors import ProgramError, Reason, UnsupportedError
from symshape.tracing.intercept.python_numbers.builtins import PlainType
from symshape.tracing.symbolic.tensors import SymbolicTensor, Trace

_NUMBERS: dict[type, type] = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
_STAND_INS = frozenset((SymbolicTensor, *_NUMBERS))
_type = type  # in traced code the name `type` means ours
_ONE_OBJECT = range(-5, 257)  # integers of which Python keeps one object each


class Identity:
    """The answers to ``is`` in one traced program.

    Args:
        trace: records the questions about arguments.
        leaves: the call's own leaves, constants unchanged.
    """

    def __init__(self, trace: Trace, leaves: Sequence[Any]) -> None:
        self._trace = trace
        self._positions: dict[int, int] = {}
        # constants that are guarded by their parts, not by identity
        for position, leaf in enumerate(leaves):
            kind = _type(leaf)
            if (
                kind not in PLAIN
                and not isinstance(leaf, torch.Tensor)
                and constant_parts(leaf) is not None
            ):
                self._positions.setdefault(id(leaf), position)
        self._kept = tuple(leaves)  # so that the ids stay valid

    def is_same(self, a: Any, b: Any) -> bool:
        """Return ``a is b`` as eager finds it; an answer that depends on the call becomes a part of
        its key.

        Raises:
            UnsupportedError: Python says nothing about it (whether two equal large integers are one
                object).
        """
        if b is None or a is None:
            return a is b
        one, other = _type(a), _type(b)
        if one in _NUMBERS or other in _NUMBERS:
            return self._same_number(a, b)
        if a is b:
            return True
        if one is SymbolicTensor or other is SymbolicTensor:
            return self._same_tensor(a, b)
        for mine, its in ((a, b), (b, a)):
            position = self._positions.get(id(mine))
            if position is not None:
                return bool(self._trace.note(Question(position, "is", IdentityKey(its)), mine))
        return False

    def _same_tensor(self, a: Any, b: Any) -> bool:
        stand_in, other = (a, b) if _type(a) is SymbolicTensor else (b, a)
        if _type(other) is SymbolicTensor:
            # At other sizes ``contiguous`` may return one of them for the other.
            stand_in._tracer.looked_at.update((stand_in._value, other._value))
            return False  # a tensor that is passed twice has one stand-in
        if not isinstance(other, torch.Tensor):
            return False
        if stand_in._value not in self._trace.originals:
            return False  # made by the program: no object outside can be it
        return bool(self._trace.ask(stand_in, "is", IdentityKey(other)))

    @staticmethod
    def _same_number(a: Any, b: Any) -> bool:
        kinds = [_NUMBERS.get(_type(each), _type(each)) for each in (a, b)]
        if kinds[0] is not kinds[1]:
            return False
        if kinds[0] is bool:
            return bool(a) is bool(b)
        if kinds[0] is int:
            one, other = int(a), int(b)  # a guard fixes them
            if one != other or one in _ONE_OBJECT:
                return one == other
        elif float(a) != float(b):
            return False
        raise UnsupportedError(
            "the program compares two equal numbers with `is`, whose answer Python does not "
            "define; compare them with ==",
            reason=Reason.NUMBERS,
        )


def class_of(value: Any) -> Any:
    """Return ``value.__class__``; for a symbolic number, the class of the number that it stands
    for, and for an error of sizes the class of eager's.

    >>> class_of(3) is int
    True
    """
    stands_in = _type(value) in _STAND_INS or isinstance(value, ProgramError)
    return PlainType(value) if stands_in else value.__class__


def subject_of(value: Any) -> Any:
    """Return the subject that a class pattern of ``match`` tests: for a symbolic number, the
    number, fixed by a guard.

    >>> subject_of("a")
    'a'
    """
    kind = _NUMBERS.get(_type(value))
    return value if kind is None else kind(value)
