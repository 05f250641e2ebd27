"""Formulas as JSON: each integer term once, in a table that everything else refers to."""

from __future__ import annotations

from typing import Any

from guards.errors import GuardsError
from guards.sets.json_terms import term_from_json, term_to_json
from guards.terms.term import Term
from symshape.graph.float_terms import FUNCTIONS, FloatTerm
from symshape.store.constants import Json, from_json, integer_of, list_of, text_of, to_json
from symshape.store.store_errors import EntryError

_DEEPEST = 64


class TermsWriter:
    """The table while it is written.

    Attributes:
        written: the terms as JSON.
    """

    def __init__(self) -> None:
        self.written: list[Json] = []
        self._numbers: dict[Term, int] = {}

    def term(self, term: Term) -> int:
        """Return the number of a term."""
        found = self._numbers.get(term)
        if found is None:
            found = self._numbers[term] = len(self.written)
            self.written.append(term_to_json(term))
        return found

    def float_term(self, value: FloatTerm) -> Json:
        """Return a float term as JSON."""
        if value.op == "symbol":
            return ["symbol", value.symbol]
        return [value.op, *map(self._operand, value.args)]

    def _operand(self, value: Any) -> Json:
        if isinstance(value, FloatTerm):
            return {"float_term": self.float_term(value)}
        return {"term": self.term(value)} if isinstance(value, Term) else to_json(value)

    def number(self, value: Any) -> Json:
        """Return a size, or another number of a program, as JSON: plain, a term, or a float
        term.
        """
        if isinstance(value, Term):
            return {"term": self.term(value)}
        if isinstance(value, FloatTerm):
            return {"float_term": self.float_term(value)}
        term = getattr(value, "term", None)
        return {"term": self.term(term)} if isinstance(term, Term) else to_json(value)


class TermsReader:
    """The table while it is read.

    Raises:
        EntryError: (all methods) it is none, or there is no such term.
    """

    def __init__(self, data: Json) -> None:
        try:
            self._terms = [term_from_json(each) for each in list_of(data)]
        except GuardsError as error:
            raise EntryError(f"a formula is wrong: {error}") from error

    def term(self, number: Json) -> Term:
        """Return the term of a number."""
        return self._terms[integer_of(number, 0, len(self._terms))]

    def float_term(self, data: Json, depth: int = 0) -> FloatTerm:
        """Return a float term."""
        op, *args = list_of(data, 8)
        if depth > _DEEPEST or not args:
            raise EntryError("a float term that is nested too deeply, or empty")
        if op == "symbol":
            return FloatTerm("symbol", (), text_of(args[0], 64))
        if type(op) is not str or op not in FUNCTIONS:
            raise EntryError(f"unknown function of floats: {str(op)[:80]}")
        found = tuple(self._operand(each, depth + 1) for each in args)
        if len(found) != FUNCTIONS[op][1].count("{"):
            raise EntryError(f"{op} of {len(found)} numbers")
        return FloatTerm(op, found)

    def _operand(self, data: Json, depth: int) -> Any:
        if type(data) is dict and data.keys() == {"float_term"}:
            return self.float_term(data["float_term"], depth)
        if type(data) is dict and data.keys() == {"term"}:
            return self.term(data["term"])
        value = from_json(data)
        if type(value) is not float and type(value) is not int:
            raise EntryError(f"not a number: {str(data)[:80]}")
        return value

    def tagged(self, tag: str, inner: Json) -> Any:
        """Return the value under the tags ``term`` and ``float_term``, for
        ``constants.from_json``.
        """
        if tag == "term":
            return self.term(inner)
        if tag == "float_term":
            return self.float_term(inner)
        raise EntryError(f"unknown kind of value: {str(tag)[:80]}")
