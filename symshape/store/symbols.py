"""Symbols of a program as JSON: their sources, or their origin and bounds."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from guards.sets.origin import Origin
from guards.sets.sources import Source
from guards.terms import arithmetic
from symshape.dims import Policy
from symshape.graph.program import Slot, Symbol
from symshape.store.constants import Json, exactly, integer_of, label_of, list_of, text_of
from symshape.store.store_errors import EntryError
from symshape.store.terms import TermsReader, TermsWriter

__all__ = ["symbol_from_json", "symbol_to_json"]


def symbol_to_json(symbol: Symbol, slots: Sequence[Slot], terms: TermsWriter) -> Json:
    """Return a symbol as JSON, with its sources by their places among the slots."""
    sources = [each.source for each in slots]
    birth = None if symbol.birth is None else list(attrs.astuple(symbol.birth))
    where = [sources.index(each) for each in symbol.sources]
    bounds = None if symbol.bounds is None else [terms.term(each) for each in symbol.bounds]
    return [symbol.name, symbol.hint, where, symbol.policy.value, birth, symbol.description, bounds]


def symbol_from_json(data: Json, sources: Sequence[Source], terms: TermsReader) -> Symbol:
    """Return a symbol, read from these sources.

    Raises:
        EntryError: it is none.
    """
    name, hint, where, policy, birth, description, bounds = exactly(data, 7)
    if not text_of(name, 64).isidentifier():
        raise EntryError(f"not the name of a symbol: {name}")
    term = arithmetic.symbol(name)
    born = None
    if birth is not None:
        file, line, *texts = exactly(birth, 6)
        born = Origin(text_of(file), integer_of(line), *map(label_of, texts))
    read = tuple(sources[integer_of(each, 0, len(sources))] for each in list_of(where, 1000))
    try:
        chosen = Policy(policy)
    except ValueError as error:
        raise EntryError(f"unknown policy: {str(policy)[:80]}") from error
    known = None if bounds is None else tuple(terms.term(each) for each in list_of(bounds, 2))
    number = None if hint is None else integer_of(hint, -(1 << 62))
    return Symbol(term, number, read, chosen, born, label_of(description), known)
