"""Texts as terms: read once, what they require settled, and remembered."""

from __future__ import annotations

from typing import Any

from guards.deciders.linear_refutation import refutes
from guards.domains.interval_arithmetic import EVERYTHING, Pair
from guards.errors import ParseError
from guards.facts.component import Component, divisors
from guards.terms import boolean
from guards.terms.boolean import TRUE
from guards.terms.term import Term, among
from guards.text.reader import Read, read

_CACHE_LIMIT = 4096


class Understood:
    """The meaning of a text.

    Attributes:
        term: the term of the text, which speaks about values at which the text is defined.
        defined: a condition that holds where the text is defined; TRUE unless the term hides a
            divisor of the text.
        holds: the condition that the text is defined and true, read as guards are; of a condition
            only.
    """

    __slots__ = ("defined", "holds", "term")

    def __init__(self, term: Term, defined: Term, holds: Term) -> None:
        self.term = term
        self.defined = defined
        self.holds = holds


_cache: dict[str, Understood] = {}


def understood(text: Any) -> Understood:
    """Return the meaning of a text; :func:`parse` returns its term alone.

    Raises:
        ParseError: the text is not of the accepted language, or is too large.

    >>> found = understood("s % (2*s) == 0")
    >>> found.term, found.defined, found.holds
    (<s == 0>, <s != 0>, <False>)
    """
    found = _cache.get(text)
    if found is None:
        made = read(text)
        for required in made.required:
            if not _certain(required.condition):
                raise required.error
        found = (
            _meant(made, text)
            if made.divisors and made.term.is_bool
            else Understood(made.term, TRUE, made.term)
        )
        if len(_cache) >= _CACHE_LIMIT:
            _cache.clear()
        _cache[text] = found
    return found


def _meant(made: Read, text: str) -> Understood:
    """Return the meaning of a condition that divides by symbols."""
    term = made.term
    if made.plain:
        shown = divisors(term)
        hidden = [divisor for divisor in made.divisors if not among(divisor, shown)]
        defined = boolean.and_(*[boolean.ne(divisor, 0) for divisor in hidden])
        return Understood(term, defined, boolean.and_(term, defined))
    from guards.asking.domain_of_text import DomainReader

    meaning = DomainReader(text).read(made.tree)
    if meaning.holds is term and meaning.fails is boolean.not_(term):
        return Understood(term, TRUE, term)
    return Understood(term, boolean.or_(meaning.holds, meaning.fails), meaning.holds)


def parse(text: Any) -> Term:
    """The term that ``text`` writes.

    Raises:
        ParseError: the text is not of the accepted language, or is too large.

    >>> from guards import parse
    >>> parse("s0 // 8 * 8 == s0"), parse("Eq(Mod(s0, 8), 0) and 1 <= s1 < 2**3")
    (<s0 == 8*(s0//8)>, <s0 % 8 == 0 and s1 >= 1 and s1 <= 7>)
    >>> parse("__import__('os')")
    Traceback (most recent call last):
        ...
    guards.errors.ParseError: the name '__import__' is not allowed at character 1:
    "__import__('os')"
    """
    if not isinstance(text, str):
        raise ParseError(f"a text is needed, not {type(text).__name__}")
    found = _cache.get(text)
    return understood(text).term if found is None else found.term


def forget_texts() -> None:
    """Empty the cache of texts."""
    _cache.clear()


def _certain(condition: Term) -> bool:
    """Return whether linear arithmetic proves that a condition holds for all integers."""
    ranges: dict[Term, Pair] = dict.fromkeys(condition.symbols, EVERYTHING)
    return refutes(Component(ranges), boolean.not_(condition))
