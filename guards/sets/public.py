"""The public functions that accept texts, terms, guards and guard sets, with ``ranges`` and
``assume``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, overload

from guards.asking import simplification
from guards.asking.arguments import (
    Stated,
    checked_ranges,
    described,
    listed,
    symbols_of_sets,
    term_of,
)
from guards.asking.assumptions import check_names, facts_from, holding, pair_of
from guards.domains.interval_arithmetic import SIZES, Pair, meet
from guards.errors import ArgumentError
from guards.facts.definedness import guarded, partial, total
from guards.facts.facts import Facts
from guards.regions.satisfiability import range_conditions
from guards.sets.guard import Guard
from guards.sets.guard_set import GuardSet, as_set
from guards.terms import latex_printing, smtlib_printing
from guards.terms.term import Op, Term, postorder

Bounds = tuple[Term | None, Term | None]


def _facts(given: Stated, ranges: object, assume: object, facts: Facts | None) -> Facts:
    """Return the facts of ``ranges`` and ``assume``, or those given in their place."""
    assumed = listed(assume)
    named = checked_ranges(ranges)
    if facts is not None:
        if named or assumed:
            raise ArgumentError("give facts, or ranges and assume, not both")
        if type(facts) is not Facts:
            raise ArgumentError(f"facts are of the class Facts, not {described(facts)}")
        return facts
    if named and not isinstance(given, GuardSet):
        check_names(named, (given, *assumed))
    return facts_from({**symbols_of_sets([given, *assumed]), **named}, assumed)


@overload
def simplify(
    given: GuardSet,
    facts: Facts | None = None,
    *,
    ranges: Mapping[str, Pair] | None = None,
    assume: Any = (),
) -> GuardSet: ...


@overload
def simplify(
    given: str | Term | Guard,
    facts: Facts | None = None,
    *,
    ranges: Mapping[str, Pair] | None = None,
    assume: Any = (),
) -> Term: ...


def simplify(
    given: Stated,
    facts: Facts | None = None,
    *,
    ranges: Mapping[str, Pair] | None = None,
    assume: Any = (),
) -> Term | GuardSet:
    """Return a term that is equal wherever the given one is defined and the assumptions hold, and
    no larger.

    A condition may become undefined where it was false: neither holds there. Of a guard set, each
    guard is simplified under the ranges of the set; the set holds at the same values then.

    Raises:
        ArgumentError: an argument is of a type that is not taken.
        ParseError: a text cannot be read.
        Contradiction: nothing satisfies the assumptions.
        RangeError: a range is empty, is no pair, or is for a name that is not mentioned.

    >>> (
    ...     simplify("max(1, s0)", ranges={"s0": (1, None)}),
    ...     simplify("s0 // 8 * 8", assume="s0 % 8 == 0"),
    ... )
    (<s0>, <s0>)
    >>> simplify(GuardSet("max(s0, 3) > s1", ranges={"s0": (4, 8)}))
    GuardSet('s0 > s1', ranges={'s0': (4, 8)})
    """
    known = _facts(given, ranges, assume, facts)
    if not isinstance(given, GuardSet):
        return simplification.simplify(term_of(given, "simplify"), known)
    under = (
        facts_from({**given.ranges, **checked_ranges(ranges)}, listed(assume))
        if facts is None
        else known
    )
    guards = []
    for guard in given.guards:
        short = simplification.simplify(total(guard.term, under), under)
        if short.op is not Op.TRUE:
            guards.append(Guard(short, guard.origin))
    return GuardSet(guards, ranges=given.ranges)


@overload
def bounds(
    given: GuardSet,
    *,
    ranges: Mapping[str, Pair] | None = None,
    assume: Any = (),
    facts: Facts | None = None,
) -> dict[str, Bounds]: ...


@overload
def bounds(
    given: str | Term | int,
    *,
    ranges: Mapping[str, Pair] | None = None,
    assume: Any = (),
    facts: Facts | None = None,
) -> Bounds: ...


def bounds(
    given: Stated,
    *,
    ranges: Mapping[str, Pair] | None = None,
    assume: Any = (),
    facts: Facts | None = None,
) -> Bounds | dict[str, Bounds]:
    """Return the least and the greatest value of an integer that could be proven, as terms; None
    for no bound.

    A bound is a number where there is one, and otherwise a term in other symbols that an assumption
    gives. Of a guard set, the bounds of each of its symbols come by name.

    Raises:
        ArgumentError: an argument is of a type that is not taken, or ``given`` is a condition.
        ParseError: a text cannot be read, or is a condition.

    >>> (
    ...     bounds("s0 - s0 // 8 * 8"),
    ...     bounds("u0", assume=["u0 <= s0 * s1"]),
    ...     bounds("a", assume=["a >= b + 8"]),
    ... )
    ((<0>, <7>), (<0>, <s0*s1>), (<8>, None))
    >>> bounds(GuardSet("s0 > 2", "s1 < s0", ranges={"s0": (0, 9)}))
    {'s0': (<3>, <9>), 's1': (<0>, <8>)}
    """
    if isinstance(given, GuardSet):
        assumed = (given, *listed(assume))
        under = _facts(given, ranges, assumed if facts is None else assume, facts)
        return {name: simplification.bounds(name, facts=under) for name in given.symbols}
    term = given if isinstance(given, str) else term_of(given, "bounds")
    if isinstance(term, Term) and term.is_bool:
        raise ArgumentError(f"bounds are those of an integer, not of the condition {term}")
    if isinstance(term, str):
        simplification.integer_of(term)
    known = _facts_of_integer(term, ranges, assume, facts)
    return simplification.bounds(term, facts=known)


def _facts_of_integer(
    given: str | Term, ranges: object, assume: object, facts: Facts | None
) -> Facts:
    if facts is not None:
        return _facts(given, ranges, assume, facts)
    assumed = listed(assume)
    named = checked_ranges(ranges)
    if named:
        text = f"({given}) == 0" if isinstance(given, str) else given.eq(0)
        check_names(named, (text, *assumed))
    return facts_from({**symbols_of_sets(assumed), **named}, assumed)


def latex(given: Stated, *, ranges: Mapping[str, Pair] | None = None, assume: Any = ()) -> str:
    r"""Return a formula as LaTeX; of a guard set, and of a condition with ranges or assumptions,
    one line for each.

    Very large parts are left out, as ``\ldots``.

    Raises:
        ArgumentError: an argument is of a type that is not taken.
        ParseError: a text cannot be read.

    >>> print(latex("s0 // 8 + 1 <= min(s1, 4)"))
    \left\lfloor \frac{s_{0}}{8} \right\rfloor < \min\left(4, s_{1}\right)
    >>> print(latex("s0 > 2", ranges={"s0": (0, 8)}))
    \begin{aligned}
    & s_{0} \leq 8 \\
    & s_{0} \geq 3
    \end{aligned}
    """
    assumed, named = listed(assume), checked_ranges(ranges)
    if isinstance(given, GuardSet) or named or assumed:
        return _aligned(_combined(given, named, assumed))
    if isinstance(given, Guard):
        return latex_printing.latex(given.term)
    return latex_printing.latex(term_of(given, "latex"))


def _aligned(guards: GuardSet) -> str:
    """Return the conditions of a set as LaTeX lines; trivial ranges of sizes are left out."""
    trivial = {condition for name in guards.ranges for condition in range_conditions(name, SIZES)}
    lines = [
        f"& {latex_printing.latex(guard.term)}"
        for guard in guards.conditions
        if guard.term not in trivial
    ]
    return "\n".join([r"\begin{aligned}", " \\\\\n".join(lines) or "& true", r"\end{aligned}"])


def smtlib(*given: Stated, ranges: Mapping[str, Pair] | None = None, assume: Any = ()) -> str:
    """Return an SMT-LIB 2 script that asks whether the conditions can hold together.

    Symbols absent from ``ranges`` are sizes (>= 0). What divides by zero does not hold.

    Raises:
        ArgumentError: an argument is of a type that is not taken, or is an integer.
        ParseError: a text cannot be read, or is an integer.

    >>> print(smtlib("s0 % 8 == 0", ranges={"s0": (2, None)}))
    (set-logic QF_NIA)
    (declare-const s0 Int)
    (assert (>= s0 2))
    (assert (= (mod s0 8) 0))
    (check-sat)
    <BLANKLINE>
    """
    assumed, named = listed(assume), checked_ranges(ranges)
    stated = [*given, *assumed]
    if named:
        check_names(named, stated)
    limits: dict[str, Pair] = {}
    formulas: list[Term] = []
    for each in stated:
        if isinstance(each, GuardSet):
            for name, pair in each.ranges.items():
                limits[name] = meet(limits.get(name, pair), pair)
            formulas += [guarded(guard.term) for guard in each.guards]
        else:
            condition = holding(each)
            plain = Op.EQ <= condition.op <= Op.LE and not _chooses(condition)
            formulas.append(condition if plain else guarded(condition))
    limits |= {name: pair_of(name, pair) for name, pair in named.items()}
    return smtlib_printing.smtlib(*formulas, ranges=limits)


def _chooses(condition: Term) -> bool:
    return partial(condition) and any(part.op is Op.ITE for part in postorder(condition))


def implies(
    first: Stated, second: Stated, *, ranges: Mapping[str, Pair] | None = None, assume: Any = ()
) -> bool | None:
    """Return whether ``second`` holds wherever ``first`` does; None where neither was found out.

    Raises:
        ArgumentError: an argument is of a type that is not taken.
        ParseError: a text cannot be read, or is an integer.

    >>> (
    ...     implies("s0 > 3", "s0 + s1 > 2"),
    ...     implies("s0 > s1", "s0 > 4", assume="s1 >= 4"),
    ...     implies("s0 > 3", "s0 > 4"),
    ... )
    (True, True, False)
    """
    return _combined(first, checked_ranges(ranges), listed(assume), "implies").implies(second)


def holds(
    condition: Stated,
    values: Mapping[str, int],
    *,
    ranges: Mapping[str, Pair] | None = None,
    assume: Any = (),
) -> bool:
    """Return whether a condition is defined and true at values that are within ``ranges`` and
    satisfy ``assume``.

    Raises:
        ArgumentError: an argument is of a type that is not taken.
        Missing: a symbol has no value.

    >>> holds("s0 % s1 == 0", {"s0": 8, "s1": 2}), holds("s0 % s1 == 0", {"s0": 8, "s1": 0})
    (True, False)
    >>> (
    ...     holds("s0 > 2", {"s0": 8}, ranges={"s0": (0, 4)}),
    ...     holds("s0 > 2", {"s0": 8}, assume="s0 % 3 == 0"),
    ... )
    (False, False)
    """
    named, assumed = checked_ranges(ranges), listed(assume)
    within = GuardSet(ranges={name: pair_of(name, pair) for name, pair in named.items()}).holds(
        values
    )
    return all([within, *(_holds(each, values) for each in (condition, *assumed))])


def _holds(condition: Stated, values: Mapping[str, int]) -> bool:
    if isinstance(condition, GuardSet):
        return condition.holds(values)
    return Guard(holding(condition)).holds(values)


def _combined(
    given: Stated, named: Mapping[str, Any], assumed: tuple[Stated, ...], function: str = "latex"
) -> GuardSet:
    """Return the set of a condition, of ranges and of assumptions."""
    if isinstance(given, str | Term | bool):
        check_names(named, (holding(given), *assumed))
    texts = [each for each in assumed if not isinstance(each, GuardSet)]
    first = as_set(given, function)
    limits = {
        name: pair_of(name, named[name]) if name in named else pair
        for name, pair in first.ranges.items()
    }
    if isinstance(given, GuardSet):
        limits = {name: meet(pair, first.ranges[name]) for name, pair in limits.items()}
    rest = {name: pair for name, pair in named.items() if name not in limits}
    made = GuardSet(*first.guards, *texts, ranges={**limits, **rest})
    for each in assumed:
        if isinstance(each, GuardSet):
            made = made & each
    return made
