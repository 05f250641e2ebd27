"""Terms to and from JSON: as text that a person can read, and as steps where text would not give
back the same term.

What is read may come from anywhere: it is checked step by step, with limits on all that could grow.
"""

from __future__ import annotations

from collections.abc import Callable

from guards.asking.reading import parse
from guards.errors import FormatError, GuardsError
from guards.sets.json_checks import Json, array, integer, symbol_name
from guards.terms import arithmetic, boolean, division, extremes
from guards.terms.fold import fold
from guards.terms.printing import python
from guards.terms.term import Op, Term, children, postorder

_BITS = 4096  # of a number
_PRODUCTS = 4096  # summands of a product, multiplied out
_WRITTEN = 200_000  # parts of a term, written out: what is shared counts each time


def term_to_json(term: Term) -> Json:
    """A term as text, or as a list of steps where the text would be read as another term.

    >>> from guards.terms.arithmetic import symbol
    >>> from guards.terms.boolean import eq
    >>> term_to_json(eq(symbol("s0") % 8, 0))
    's0 % 8 == 0'
    """
    if _parts(term) <= _WRITTEN:
        written = python(term)
        try:
            if parse(written) is term:
                return written
        except GuardsError:
            pass
    return _steps(term)


def _parts(term: Term) -> int:
    """Return the number of parts of a term when it is written out, where shared parts count each
    time.
    """
    return fold(term, lambda part, operands: 1 + sum(operands))


def _steps(term: Term) -> Json:
    """Each part of the term as a step that refers to earlier steps by number; the last step is the
    term.
    """
    number: dict[Term, int] = {}
    steps: list[Json] = []
    for part in postorder(term):
        if part.op is Op.CONST or part.op is Op.SYMBOL:
            steps.append([part.op.name.lower(), part.args[0]])
        elif part.op is Op.ADD:
            constant, items = part.args
            steps.append(["add", constant, *([number[m], c] for m, c in items)])
        else:
            steps.append([part.op.name.lower(), *(number[child] for child in children(part))])
        number[part] = len(steps) - 1
    return steps


def term_from_json(data: Json) -> Term:
    """The term of :func:`term_to_json`.

    Raises:
        FormatError: it is no term.

    >>> (
    ...     term_from_json("s0 % 8 == 0"),
    ...     term_from_json([["symbol", "s0"], ["add", -8, [0, 1]], ["le", 1]]),
    ... )
    (<s0 % 8 == 0>, <s0 <= 8>)
    """
    try:
        if isinstance(data, str):
            return parse(data)
        made: list[Term] = []
        for step in array(data, "a term"):
            made.append(_bounded(_step(array(step, "a step of a term"), made)))
        if _parts(made[-1]) > _WRITTEN:
            raise FormatError(f"it has more than {_WRITTEN} parts when written out")
        return made[-1]
    except (GuardsError, ValueError, TypeError, IndexError, ZeroDivisionError) as error:
        raise FormatError(f"not a term: {error}") from error


def _bounded(term: Term) -> Term:
    if term.op is Op.CONST and term.value.bit_length() > _BITS:
        raise FormatError(f"a number of more than {_BITS} bits")
    return term


def _product(*terms: Term) -> Term:
    """A product, unless multiplying it out makes too many summands."""
    summands = 1
    for term in terms:
        constant, items = arithmetic.split(term)
        summands *= max(1, len(items) + bool(constant))
        if summands > _PRODUCTS:
            raise FormatError(f"a product of more than {_PRODUCTS} summands")
    return arithmetic.prod(terms)


_MAKERS: dict[str, tuple[int | None, Callable[..., Term]]] = {
    "mul": (None, _product),
    "floordiv": (2, division.floordiv),
    "mod": (2, division.mod),
    "min": (None, extremes.minimum),
    "max": (None, extremes.maximum),
    "ite": (3, boolean.ite),
    "true": (0, lambda: boolean.TRUE),
    "false": (0, lambda: boolean.FALSE),
    "eq": (1, lambda term: boolean.eq(term, 0)),
    "ne": (1, lambda term: boolean.ne(term, 0)),
    "le": (1, lambda term: boolean.le(term, 0)),
    "and": (None, boolean.and_),
    "or": (None, boolean.or_),
}


def _step(step: list[Json], made: list[Term]) -> Term:
    kind = step[0] if step else None
    if kind == "const" and len(step) == 2:
        return arithmetic.const(integer(step[1], "a constant"))
    if kind == "symbol" and len(step) == 2:
        return arithmetic.symbol(symbol_name(step[1]))
    if kind == "add" and len(step) > 1:
        pairs = [array(pair, "a part of a sum") for pair in step[2:]]
        parts = [arithmetic.mul(_earlier(i, made), integer(c, "a coefficient")) for i, c in pairs]
        return arithmetic.add(integer(step[1], "a constant"), arithmetic.total(parts))
    if not isinstance(kind, str) or kind not in _MAKERS:
        raise FormatError(f"unknown kind of term: {kind!r}")
    count, make = _MAKERS[kind]
    if count is not None and len(step) != count + 1:
        raise FormatError(f"{kind} takes {count} operands, not {len(step) - 1}")
    return make(*(_earlier(index, made) for index in step[1:]))


def _earlier(index: Json, made: list[Term]) -> Term:
    if not 0 <= integer(index, "the number of a step") < len(made):
        raise FormatError(f"step {index} is not an earlier step")
    return made[index]


def condition_from_json(data: Json) -> Term:
    """The condition of :func:`term_to_json`.

    Raises:
        FormatError: it is no condition.

    >>> condition_from_json("s0 % 8")
    Traceback (most recent call last):
    guards.errors.FormatError: a condition is needed, not the integer s0 % 8
    """
    term = term_from_json(data)
    if not term.is_bool:
        raise FormatError(f"a condition is needed, not the integer {term}")
    return term
