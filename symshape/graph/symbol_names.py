"""The names of the symbols in the parts of a graph: numbers, metadata, steps."""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import Any

from guards.terms.term import Term
from meta_fns import TensorSpec
from symshape.graph.float_terms import FloatTerm
from symshape.graph.steps import Assertion, Step

_NONE = frozenset[str]()
_INTEGER = frozenset((int,))

__all__ = ["names_in", "names_of_spec", "names_of_step"]


def names_in(numbers: Iterable[Any]) -> set[str]:
    """Return the symbols, of integers and of floats, in terms, symbolic numbers and float terms."""
    found: set[str] = set()
    for each in numbers:
        kind = type(each)
        if kind is int:  # most are
            continue
        number = each if kind is Term or kind is FloatTerm else getattr(each, "term", None)
        if type(number) is Term:
            found.update([symbol.name for symbol in number.symbols])
        elif type(number) is FloatTerm:
            found |= number.unbacked() | {symbol.name for symbol in number.symbols()}
    return found


def names_of_spec(spec: TensorSpec) -> Set[str]:
    """Return the symbols in the sizes, the strides and the storage offset of a tensor."""
    numbers = (*spec.sizes, *spec.strides, spec.storage_offset)
    return _NONE if _INTEGER.issuperset(map(type, numbers)) else names_in(numbers)


def names_of_step(step: Step) -> set[str]:
    """Return the symbols that a step needs to run: in its numbers and, for an assertion, in its
    text.
    """
    if isinstance(step, Assertion):
        return {symbol.name for symbol in step.guard.term.symbols} | step.message.names()
    return names_in(step.numbers)
