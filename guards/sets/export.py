"""Guard sets written for others to read, and not read back: SMT-LIB 2 for solvers, LaTeX for
people.
"""

from __future__ import annotations

from guards.domains.interval_arithmetic import SIZES
from guards.facts.definedness import guarded
from guards.regions.satisfiability import range_conditions
from guards.sets.guard_set import GuardSet
from guards.terms.latex_printing import latex
from guards.terms.smtlib_printing import smtlib


def to_smtlib(guards: GuardSet) -> str:
    """The set as an SMT-LIB 2 script that asks whether it can hold.

    >>> print(to_smtlib(GuardSet.read("s0 % 8 == 0", ranges={"s0": (2, None)})))
    (set-logic QF_NIA)
    (declare-const s0 Int)
    (assert (>= s0 2))
    (assert (= (mod s0 8) 0))
    (check-sat)
    <BLANKLINE>
    """
    return smtlib(*(guarded(guard.term) for guard in guards), ranges=guards.ranges)


def to_latex(guards: GuardSet) -> str:
    r"""The conditions of the set as LaTeX lines; trivial ranges of sizes are left out.

    >>> print(to_latex(GuardSet.read("s0 % 8 == 0", ranges={"s0": (2, None)})))
    \begin{aligned}
    & s_{0} \geq 2 \\
    & s_{0} \bmod 8 = 0
    \end{aligned}
    """
    trivial = {condition for name in guards.ranges for condition in range_conditions(name, SIZES)}
    lines = [f"& {latex(guard.term)}" for guard in guards.conditions if guard.term not in trivial]
    return "\n".join([r"\begin{aligned}", " \\\\\n".join(lines) or "& true", r"\end{aligned}"])
