"""Texts as terms: read once, what they require settled, and remembered."""

from __future__ import annotations

from guards.deciders.linear_refutation import refutes
from guards.domains.interval_arithmetic import EVERYTHING, Pair
from guards.facts.component import Component, divisors
from guards.terms import boolean
from guards.terms.term import Term, among
from guards.text.reader import read

_CACHE_LIMIT = 4096


class Understood:
    """The term of a text, and the divisors that its comparison needs to be different from 0 and no longer shows."""

    __slots__ = ("lost", "term")

    def __init__(self, term: Term, lost: tuple[Term, ...]) -> None:
        self.term = term
        self.lost = lost


_cache: dict[str, Understood] = {}


def understood(text: str) -> Understood:
    """What a text says; :func:`parse` answers its term alone.

    Raises:
        ParseError: the text is not of the accepted language, or is too large.

    >>> found = understood("s % (2*s) == 0")
    >>> found.term, found.lost
    (<s == 0>, (<2*s>,))
    """
    found = _cache.get(text)
    if found is None:
        made = read(text)
        for required in made.required:
            if not _certain(required.condition):
                raise required.error
        lost: tuple[Term, ...] = ()
        if made.divisors:
            shown = divisors(made.term)
            lost = tuple([divisor for divisor in made.divisors if not among(divisor, shown)])
        if len(_cache) >= _CACHE_LIMIT:
            _cache.clear()
        found = _cache[text] = Understood(made.term, lost)
    return found


def parse(text: str) -> Term:
    """The term that ``text`` writes.

    Raises:
        ParseError: the text is not of the accepted language, or is too large.

    >>> from guards import parse
    >>> parse("s0 // 8 * 8 == s0"), parse("Eq(Mod(s0, 8), 0) and 1 <= s1 < 2**3")
    (<s0 == 8*(s0//8)>, <s0 % 8 == 0 and s1 >= 1 and s1 <= 7>)
    >>> parse("__import__('os')")
    Traceback (most recent call last):
        ...
    guards.errors.ParseError: the name '__import__' is not allowed at character 1: "__import__('os')"
    """
    found = _cache.get(text)
    return understood(text).term if found is None else found.term


def forget_texts() -> None:
    """Empties the cache of texts."""
    _cache.clear()


def _certain(condition: Term) -> bool:
    """Whether linear arithmetic shows that a condition holds for all integers."""
    ranges: dict[Term, Pair] = dict.fromkeys(condition.symbols, EVERYTHING)
    return refutes(Component(ranges), boolean.not_(condition))
