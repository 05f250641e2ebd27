"""SMT-LIB means what the set means; LaTeX says every condition."""

from __future__ import annotations

import random

import z3

from guards import GuardSet, latex, smtlib
from tests.guards.making import random_set


def test_smtlib_means_the_same() -> None:
    """Z3 reads the script and finds a point exactly where the box has one; the point satisfies the
    set.
    """
    rng = random.Random(9)
    seen = {True: 0, False: 0}
    for _ in range(60):
        names = ("s0", "s1")
        guards = random_set(rng, names, 3).intersect(GuardSet((), dict.fromkeys(names, (0, 6))))
        points = [
            {"s0": a, "s1": b}
            for a in range(7)
            for b in range(7)
            if guards.holds({"s0": a, "s1": b})
        ]
        solver = z3.Solver()
        solver.from_string(smtlib(guards))
        answer = solver.check()
        assert (answer == z3.sat) == bool(points), smtlib(guards)
        seen[bool(points)] += 1
        if points:
            model = solver.model()
            found = {str(d): model[d].as_long() for d in model.decls() if str(d) in names}
            assert guards.holds(
                {name: found.get(name, guards.ranges[name][0] or 0) for name in names}
            )
    assert min(seen.values()) > 5


def test_latex() -> None:
    assert latex(GuardSet()) == "\\begin{aligned}\n& true\n\\end{aligned}"
    assert latex(GuardSet.read("s0 > s1 // 2")).count("\n") == 2


def test_smtlib_reads_guards_as_total() -> None:
    """Where a guard divides by 0 it does not hold; SMT-LIB's own `mod` by 0 may be anything."""
    script = smtlib(GuardSet.read("s0 % s1 >= 0", ranges={"s1": (0, 0)}))
    solver = z3.Solver()
    solver.from_string(script)
    assert solver.check() == z3.unsat


def test_latex_leaves_out_what_every_size_meets() -> None:
    shown = latex(GuardSet.read("s0 % 8 == 0", ranges={"s0": (0, None), "s1": (-1, 7)}))
    assert r"s_{0} \bmod 8 = 0" in shown
    assert r"s_{0} \geq 0" not in shown
    assert r"s_{1} \geq -1" in shown
    assert r"s_{1} \leq 7" in shown
