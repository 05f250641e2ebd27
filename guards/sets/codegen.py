"""Guard sets as Python code: the check and the explanation, written from the same conditions.

A debugger steps into the generated source and a traceback shows it (:mod:`guards.terms.generated`).
Values arrive as one sequence; the names of symbols never reach the source (a slot is ``v0``,
``v1``, ...).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FunctionType

import attrs

from guards.asking.arguments import described
from guards.domains.interval_arithmetic import meet
from guards.domains.linear_form import bounded_by
from guards.errors import ArgumentError, GuardsError
from guards.facts.definedness import chooses_by_partial, guarded, partial
from guards.sets.guard import Guard, Violation, violation
from guards.sets.guard_set import GuardSet, as_set
from guards.terms.generated import generated_function
from guards.terms.printing import python
from guards.terms.straight_line import StraightLine, once
from guards.terms.term import Op, Term, same_form


def source_function(source: str, name: str, kind: str) -> FunctionType:
    """The function ``name`` of ``source``, which may call ``_defined`` and ``_once``."""
    return generated_function(source, name, f"guards {kind}", {"_defined": _defined, "_once": once})


def _defined(test: Callable[[], bool]) -> bool:
    try:
        return test()
    except ZeroDivisionError:
        return False


def condition_source(term: Term, names: Mapping[str, str]) -> str:
    """A condition as a Python expression; an undefined relation may raise ZeroDivisionError, but
    not inside ``or``.

    >>> from guards.terms.arithmetic import symbol
    >>> from guards.terms.boolean import eq, or_
    >>> n, d = symbol("n"), symbol("d")
    >>> condition_source(or_(eq(d, 0), eq(n % d, 0)), {"n": "v0", "d": "v1"})
    '(v1 == 0 or _defined(lambda: v0 % v1 == 0))'
    """
    if term.op is Op.AND and partial(term):
        return "(" + " and ".join(condition_source(part, names) for part in term.args) + ")"
    if term.op is Op.OR and partial(term):
        parts = [
            f"_defined(lambda: {condition_source(p, names)})" if partial(p) else python(p, names)
            for p in term.args
        ]
        return "(" + " or ".join(parts) + ")"
    if chooses_by_partial(term):
        return f"({python(guarded(term), names)})"
    return f"({python(term, names)})" if term.op is Op.OR else python(term, names)


class Writer:
    """Writes conditions; what is nested too deeply for Python's parser, or too large, is computed
    in steps before.

    Attributes:
        steps: the statements to run before what was written is evaluated; any of them may divide by
            0 if a condition that was written does.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names
        self._line = StraightLine(names)
        self.steps = self._line.steps

    def condition(self, term: Term, *, reached: bool = True) -> str:
        """A condition as a Python expression, as :func:`condition_source` writes it.

        ``reached`` as :meth:`guards.terms.straight_line.StraightLine.expression` takes it.
        """
        if self._line.small(term):
            return condition_source(term, self.names)
        if term.op is Op.AND and partial(term):
            return (
                "("
                + " and ".join(self.condition(part, reached=reached) for part in term.args)
                + ")"
            )
        if term.op is Op.OR and partial(term):
            parts = [
                f"_defined(lambda: {self.condition(part, reached=False)})"
                if partial(part)
                else self.condition(part)
                for part in term.args
            ]
            return f"({' or '.join(parts)})"
        written = guarded(term) if chooses_by_partial(term) else term
        return f"({self._line.expression(written, reached=reached)})"


@attrs.frozen(eq=False, weakref_slot=True)
class Check:
    """The compiled form of a guard set for values that arrive in a fixed order.

    Attributes:
        guard_set: what is checked.
        slots: the symbols, in the order of the values.
        source: the generated source of both functions.
        check: ``check(values) -> bool``: whether all conditions hold.  A plain function: the hot
            path.
    """

    guard_set: GuardSet
    slots: tuple[str, ...]
    source: str = attrs.field(repr=False)
    check: Callable[[Sequence[int]], bool] = attrs.field(repr=False)
    _failing: Callable[[Sequence[int]], tuple[int, ...]] = attrs.field(repr=False)

    def explain(
        self, values: Sequence[int], names: Mapping[str, str] | None = None
    ) -> tuple[Violation, ...]:
        """The conditions that fail at ``values``: empty exactly when ``check(values)`` is true."""
        conditions = self.guard_set.conditions
        known = dict(zip(self.slots, values, strict=True))
        return tuple(violation(conditions[index], known, names) for index in self._failing(values))


def compile_check(guard_set: GuardSet, slots: Sequence[str]) -> Check:
    """Generate the check and the explanation of a guard set.

    ``slots`` names the symbols in the order in which their values arrive; it may name more than the
    set speaks about.

    >>> check = compile_check(GuardSet.read("s0 + s1 > 2", ranges={"s0": (0, 64)}), ["s0", "s1"])
    >>> check.check((2, 1)), check.check((1, 1)), check.check((65, 1))
    (True, False, False)
    >>> [v.text for v in check.explain((1, 1))]
    ['s0 + s1 > 2, but s0 = 1 and s1 = 1']

    Raises:
        GuardsError: the set speaks about a symbol that has no slot, or a slot is named twice.
    """
    guard_set = as_set(guard_set, "compile_check")
    names = slot_names(slots)
    slots = tuple(slots)
    require_slots(guard_set, slots)
    source = _source(guard_set.conditions, slots, names)
    failing = source_function(source, "failing", "check")
    return Check(guard_set, slots, source, failing.__globals__["check"], failing)


def slot_names(slots: Sequence[str]) -> dict[str, str]:
    """The local variable of each slot.

    Raises:
        GuardsError: a slot is named twice.
    """
    if isinstance(slots, str) or not isinstance(slots, Sequence):
        raise ArgumentError(
            f"slots are the names of symbols in the order of their values, not {described(slots)}"
        )
    names = {name: f"v{index}" for index, name in enumerate(slots)}
    for name in names:
        if not isinstance(name, str):
            raise ArgumentError(f"a slot is the name of a symbol, not {described(name)}")
    if len(names) != len(slots):
        raise GuardsError(f"a slot is named twice: {', '.join(slots)}")
    return names


def require_slots(guard_set: GuardSet, slots: Iterable[str]) -> None:
    """Check that every symbol of a set has a slot.

    Raises:
        GuardsError: one has none.
    """
    missing = sorted(set(guard_set.symbols) - set(slots))
    if missing:
        raise GuardsError(
            f"no slot gives the value of {', '.join(missing)}; the slots are: "
            f"{', '.join(slots) or 'none'}"
        )


def _source(conditions: Sequence[Guard], slots: Sequence[str], names: Mapping[str, str]) -> str:
    writer = Writer(names)
    used = {s.name for guard in conditions for s in guard.term.symbols}
    written = [writer.condition(guard.term) for guard in conditions]
    undefined = [partial(guard.term) for guard in conditions]
    opening = [f"    {line}" for line in _unpacking(slots, names, used)]
    needed = [
        line
        for line, guard in zip(written, conditions, strict=True)
        if not _implied(guard.term, conditions)
    ]
    body = [
        *writer.steps,
        "return (",
        *(f"    {'and ' if i else ''}{line}" for i, line in enumerate(needed)),
        ")",
    ]
    if not needed:
        body = ["return True"]
    if any(undefined):
        body = [
            "try:",
            *(f"    {line}" for line in body),
            "except ZeroDivisionError:",
            "    return False",
        ]
    lines = ["def check(values):", *opening, *(f"    {line}" for line in body), ""]
    lines += ["", "def failing(values):", *opening, "    failed = []"]
    if any(undefined):
        lines += [*(f"    {line}" for line in _explained_apart(conditions, names))]
    else:
        lines += [f"    {step}" for step in writer.steps]
        lines += [
            f"    if not ({line}): failed.append({index})" for index, line in enumerate(written)
        ]
    lines += ["    return tuple(failed)", ""]
    return "\n".join(lines)


def _explained_apart(conditions: Sequence[Guard], names: Mapping[str, str]) -> list[str]:
    """The tests of ``failing``, each with steps of its own: one that is undefined must not hide the
    others.
    """
    lines = []
    for index, guard in enumerate(conditions):
        writer = Writer(names)
        test = writer.condition(guard.term)
        block = [*writer.steps, f"if not ({test}): failed.append({index})"]
        if partial(guard.term):
            block = [
                "try:",
                *(f"    {b}" for b in block),
                "except ZeroDivisionError:",
                f"    failed.append({index})",
            ]
        lines += block
    return lines


def _unpacking(slots: Sequence[str], names: Mapping[str, str], used: set[str]) -> list[str]:
    if not used:
        return []
    if 2 * len(used) >= len(slots):
        return [f"{', '.join(names[slot] for slot in slots)}, = values"]
    return [f"{names[slot]} = values[{index}]" for index, slot in enumerate(slots) if slot in used]


def _implied(term: Term, conditions: Sequence[Guard]) -> bool:
    """Return whether ``term``, a bound of a single symbol, is implied by a tighter condition of the
    check.
    """
    bound = bounded_by(term) if term.op is Op.LE else None
    if bound is None or len(bound[0]) > 1 or bound[0][0][0].op is not Op.SYMBOL:
        return False
    form, (low, high) = bound
    for guard in conditions:
        if guard.term is term or form[0][0] not in guard.term.symbols:
            continue
        found = bounded_by(guard.term)
        if found is None or not same_form(found[0], form):
            continue
        least, most = found[1]
        if guard.term.op is Op.EQ:  # least and most are the value
            if meet(found[1], (low, high)) == found[1]:
                return True
        elif (low is not None and least is not None and least > low) or (
            high is not None and most is not None and most < high
        ):
            return True
    return False
