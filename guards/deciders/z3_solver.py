"""The last resort: Z3, with a deterministic limit on its work; the only module that imports it.

Each thread has one solver in a context of its own, made when first needed. The facts of the
component in use stay asserted in it; a question is pushed and popped. What that leaves open is
tried once more from scratch with Z3's solver for nonlinear integers. Limits are counts of Z3's own
steps, so the answer is the same on every machine; a clock stands behind them for the few questions
on which Z3 works without counting: what it measures is the work of this thread, whatever else the
machine does. What Z3 works is charged to the budget of the whole question that is being answered
(:mod:`guards.budget`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from time import thread_time
from typing import TYPE_CHECKING, Any
from weakref import ref

import attrs

from guards.budget import SPENT, current
from guards.deciders.z3_lowering import Lowering, degree, is_linear, more_parts_than
from guards.deciders.z3_translation import Closed, FromZ3
from guards.errors import ArgumentError
from guards.facts.completion import completed, with_defaults
from guards.facts.component import Component
from guards.terms import fold
from guards.terms.term import Term

if TYPE_CHECKING:
    import z3

LIMIT = 400_000  # of Z3's steps for a question in the incremental solver
LIMIT_ALONE = 1_000_000  # and for the second try
LIMIT_TOGETHER = 2_000_000  # and where many are asked of one solver
# ms of this thread: parts of Z3 5 (its Diophantine cuts) count no steps; all others end long before
EMERGENCY = 1_000
# of that time: so much has been worked where Z3's clock, which goes by the wall, has told no lie
NEARLY = 0.9
LAST_RESORT = 64_000  # ms by the wall, on a machine that hardly lets this thread run
STOPPED = 500_000  # steps charged where that clock ended a try
_RENEWED = 1 << 31  # steps after which a context is made anew: Z3 tells no more than 2**32
# degree up to which the incremental solver is asked; beyond, such cuts are what it spends its time
# on
_STEEPEST = 3
_LARGEST = 3_000  # nodes of a formula; larger ones are not sent
# conditions that a component may know: Z3 takes in more of them for seconds, and counts no step
_MOST_FACTS = 500


@attrs.frozen
class Proved:
    """The formula has no solution (its negation holds everywhere)."""


@attrs.frozen
class Refuted:
    """The formula has a solution: ``model`` gives each symbol's value by name."""

    model: dict[str, int]


@attrs.frozen
class Unknown:
    """Z3 did not find out, and why."""

    reason: str


Outcome = Proved | Refuted | Unknown
PROVED = Proved()


class _Meter:
    """The work of Z3 in one context, charged to the question that is open.

    Attributes:
        worked: steps in the context so far.
    """

    __slots__ = ("_idle", "_limited", "worked")

    def __init__(self, context: z3.Context) -> None:
        import z3

        self.worked = 0
        self._idle = z3.Tactic(
            "skip", ctx=context
        ).solver()  # it tells the context's steps, and has none of its own
        # setting a limit takes time
        self._limited: tuple[Callable[[], z3.Solver | None], int] = (lambda: None, 0)

    def check(
        self, solver: z3.Solver, limit: int, *assumptions: z3.BoolRef
    ) -> z3.CheckSatResult | None:
        """Run Z3 within the limit and within the question's budget; return None if the budget is
        used up.
        """
        budget = current()
        if budget is not None:
            if budget.steps <= 0:
                return None
            limit = min(limit, budget.steps)
        if self._limited[1] != limit or self._limited[0]() is not solver:
            solver.set("rlimit", limit)
            self._limited = ref(solver), limit
        before = self.worked
        try:
            started = thread_time()
            found = solver.check(*assumptions)
            stopped = str(found) == "unknown" and "timeout" in solver.reason_unknown()
            wall = EMERGENCY
            while (
                stopped
                and thread_time() - started < NEARLY * EMERGENCY / 1e3
                and wall < LAST_RESORT
            ):
                before = self._steps()  # what an early stop cut off is no work of the question
                wall *= 2
                solver.set("timeout", wall)
                started = thread_time()
                found = solver.check(*assumptions)
                stopped = str(found) == "unknown" and "timeout" in solver.reason_unknown()
            if wall > EMERGENCY:
                solver.set("timeout", EMERGENCY)
        finally:
            self.worked = self._steps()
            if budget is not None:
                budget.steps -= max(self.worked - before, 1)
        if budget is not None and stopped:
            budget.steps -= STOPPED
        return found

    def _steps(self) -> int:
        return int(self._idle.statistics().get_key_value("rlimit count"))


class _Solver(threading.local):
    """The solver of this thread and the component whose facts it holds."""

    def __init__(self) -> None:
        self.context: z3.Context | None = None
        self.meter: _Meter | None = None
        self.solver: z3.Solver | None = None
        self.component: Component | None = None
        self.lowering: Lowering | None = None
        self.facts: list[Any] = []
        self.degree = 1

    def use(self, component: Component) -> None:
        import z3

        if self.meter is not None and self.meter.worked > _RENEWED:
            self.__init__()  # type: ignore[misc]
        if self.solver is None:
            self.context = z3.Context()
            self.meter = _Meter(self.context)
            self.solver = z3.SimpleSolver(ctx=self.context)
            self.solver.set("timeout", EMERGENCY)
            self.solver.push()
        elif self.component is component:
            return
        self.solver.pop()
        self.solver.push()
        assert self.context is not None
        self.component = component
        self.lowering = Lowering(z3, self.context, component)
        self.facts = []
        self.degree = 1
        for fact in component.stated():
            self.degree = max(self.degree, degree(fact))
            self.facts += self.constraints(fact)
        self.solver.add(*self.facts)

    def constraints(self, formula: Term) -> list[Any]:
        assert self.lowering is not None
        lowered, definitions = self.lowering.lower(formula)
        return [*definitions, lowered]

    def alone(self, constraints: list[Any]) -> tuple[str, Any]:
        import z3

        solver = z3.SolverFor("QF_NIA", ctx=self.context)
        solver.set("timeout", EMERGENCY)
        solver.add(*self.facts, *constraints)
        return _run(solver, LIMIT_ALONE)


_here = _Solver()
_LIMITS = {
    "canceled": "the limit on Z3's work was reached",
    "timeout": "the limit on Z3's time was reached",
}


def _run(solver: z3.Solver, limit: int) -> tuple[str, Any]:
    import z3

    assert _here.meter is not None
    try:
        status = _here.meter.check(solver, limit)
    except z3.Z3Exception as error:
        return "unknown", str(error)
    if status is None:
        return "unknown", SPENT
    if status == z3.unsat:
        return "unsat", None
    if status == z3.sat:
        return "sat", solver.model()
    reason = solver.reason_unknown()
    return "unknown", next((said for word, said in _LIMITS.items() if word in reason), reason)


def solve_formula(component: Component, formula: Term) -> Outcome:
    """Decide whether a formula has a solution in the component: :class:`Proved` means that there is
    none.

    >>> from guards.terms.arithmetic import symbol
    >>> from guards.terms.boolean import lt
    >>> from guards.facts.facts import Facts
    >>> x = symbol("x")
    >>> (
    ...     solve_formula(Facts().component(x), lt(x % 3, 0)),
    ...     solve_formula(Facts().component(x), lt(x % 3, 1)).model,
    ... )
    (Proved(), {'x': 0})
    """
    import z3

    if more_parts_than(_LARGEST, formula):
        return Unknown(f"a formula of more than {_LARGEST} parts")
    if len(component.rows) + len(component.residue) > _MOST_FACTS:
        return Unknown(f"more than {_MOST_FACTS} facts that depend on each other")
    try:
        _here.use(component)
        solver = _here.solver
        assert solver is not None
        constraints = _here.constraints(formula)
        if max(degree(formula), _here.degree) <= _STEEPEST:
            solver.push()
            try:
                solver.add(*constraints)
                status, found = _run(solver, LIMIT)
                model = None if status != "sat" else _values(component, formula, found)
            finally:
                solver.pop()
            if status == "unsat":
                return PROVED
            if model is not None:
                return Refuted(model)
        status, found = _here.alone(constraints)
        if status == "unsat":
            return PROVED
        if status == "sat":
            model = _values(component, formula, found)
            return (
                Unknown("the solution found does not satisfy all assumptions")
                if model is None
                else Refuted(model)
            )
        return Unknown(str(found))
    except z3.Z3Exception as error:
        _here.__init__()  # type: ignore[misc]
        return Unknown(f"Z3 failed: {error}")


def _values(component: Component, formula: Term, model: Any) -> dict[str, int] | None:
    """The model in the component's own symbols, if it satisfies all that was assumed."""
    free: dict[str, int] = {}
    for declaration in model.decls():
        value = model[declaration]
        if hasattr(value, "as_long"):
            free[declaration.name()] = value.as_long()
    values = completed(component, with_defaults(component, free))
    try:
        if values is None or not fold.evaluate(formula, values):
            return None
    except (ZeroDivisionError, KeyError):
        return None
    return {
        symbol.name: values[symbol.name]
        for symbol in sorted(component.symbols, key=lambda s: s.order)
    }


# -- many questions about the same conditions ------------------------------------------------------


class Together:
    """One solver for many questions about the same conditions; it keeps what it learns.

    ``always`` holds throughout, of ``switched`` what each question chooses.  The context is its
    own, so that no answer depends on what was asked elsewhere.

    >>> from guards.terms.arithmetic import symbol
    >>> from guards.terms.boolean import ge
    >>> a, b = symbol("a"), symbol("b")
    >>> asked = Together([ge(b, 3)], [ge(a, b)])
    >>> asked.implies([0], ge(a, 2)), asked.implies([], ge(a, 2))
    (True, False)
    """

    def __init__(self, always: Sequence[Term], switched: Sequence[Term] = ()) -> None:
        import z3

        self._context = z3.Context()
        linear = all(map(is_linear, (*always, *switched)))
        self._solver = (
            z3.SolverFor("QF_LIA", ctx=self._context)
            if linear
            else z3.SimpleSolver(ctx=self._context)
        )
        self._meter = _Meter(self._context)
        self._solver.set("timeout", EMERGENCY)
        self._lowering = Lowering(z3, self._context, None)
        self._on = [z3.Bool(f"on!{index}", self._context) for index in range(len(switched))]
        self._off = {c: z3.Bool(f"off!{index}", self._context) for index, c in enumerate(switched)}
        for condition in always:
            self._solver.add(*self._lowered(condition))
        for condition, on in zip(switched, self._on, strict=True):
            lowered, *definitions = self._lowered(condition)
            self._solver.add(*definitions, z3.Implies(on, lowered))
            self._solver.add(z3.Implies(self._off[condition], z3.Not(lowered)))

    def _lowered(self, condition: Term) -> list[Any]:
        lowered, definitions = self._lowering.lower(condition)
        return [lowered, *definitions]

    def implies(self, chosen: Iterable[int], condition: Term) -> bool | None:
        """Return whether the conditions numbered ``chosen`` imply another one; None if Z3 could not
        decide.
        """
        import z3

        on = [self._on[index] for index in chosen]
        off = self._off.get(condition)
        try:
            if off is not None:
                found = self._meter.check(self._solver, LIMIT_TOGETHER, *on, off)
            else:
                lowered, *definitions = self._lowered(condition)
                self._solver.push()
                try:
                    self._solver.add(*definitions, z3.Not(lowered))
                    found = self._meter.check(self._solver, LIMIT_TOGETHER, *on)
                finally:
                    self._solver.pop()
        except z3.Z3Exception:
            return None
        return True if found == z3.unsat else False if found == z3.sat else None


# -- expressions of Z3's as terms, and the other way round -----------------------------------------


def to_z3(term: Term, context: Any = None) -> Any:
    """A term as a Z3 expression over ``Int`` constants of its symbols' names, ``//`` and ``%`` as
    in Python.

    What a range would say (sizes are 0 or more) is not part of it. ``context`` is a ``z3.Context``,
    if not Z3's own.

    >>> from guards import from_z3, parse, to_z3
    >>> to_z3(parse("s0 // 8 < s1"))
    s1*-1 + s0/8 + 1 <= 0
    >>> from_z3(to_z3(parse("s0 // 8 < s1"))) is parse("s0 // 8 < s1")
    True
    """
    if type(term) is not Term:
        raise ArgumentError(
            f"to_z3 takes a term, not {type(term).__name__}: read a text by guards.parse"
        )
    import z3

    return Closed(z3, context, None).lower(term)[0]


def from_z3(expression: Any) -> Term:
    """A Z3 expression of integers, or a condition on them, as a term.

    Raises:
        ParseError: it is of another sort (reals, bit vectors, arrays ...), or holds what has no
            counterpart.

    >>> import z3
    >>> from guards import from_z3
    >>> s, t = z3.Ints("s t")
    >>> from_z3(z3.And(s / 8 * 8 == s, z3.Not(s % 2 > t))), from_z3(s % -3)
    (<s == 8*(s//8) and s % 2 <= t>, <s % 3>)
    """
    import z3

    return FromZ3(z3).made(expression)
