"""Guard sets as regions: minimising 300 guards against plain Z3, certificates, points, and the
generated check.

The 300 guards are of the kind that a transformer leaves: a few conditions on batch and sequence,
asked again by each layer in another form, some implied by others.  The peer, in the same run, is
what one would write without this package: one Z3 solver, and for each guard the question whether
the rest implies it.  A denser set of unrelated guards, of which many are needed, is the hard case.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from time import perf_counter

import z3

from guards import GuardSet, certify, compile_check
from guards.terms.arithmetic import symbol
from guards.terms.boolean import eq, ge, gt, le, ne
from guards.terms.division import floordiv, mod
from guards.terms.extremes import maximum
from guards.terms.term import Term
from tests.bench.report import Report, bench_parser
from tests.bench.timing import measure_together

S0, S1, S2 = (symbol(f"s{index}") for index in range(3))


def of_a_transformer(layers: int) -> GuardSet:
    """Twelve guards a layer on batch s0, sequence s1 and past s2."""
    terms: list[Term] = []
    for layer in range(layers):
        terms += [
            ge(S0 * S1, 1),
            ne(S0 * S1 * 768, 0),
            le(S1, 1024),
            gt(S0 * S1 * 768, layer),
            ne(S1, 1),
        ]
        terms += [
            ge(S1, 1 + layer % 3),
            ne(S0, 0),
            le(S0 * S1 * 64, 64 * 1024 * S0),
            ge(S0 + S1, 2),
        ]
        terms += [eq(mod(S1 + S2, 8), 0), ge(floordiv(S1 + S2 + 7, 8), 1), le(S2, 4096 - S1)]
    return GuardSet(terms, {"s0": (1, 64)})


def of_chance(count: int, seed: int) -> GuardSet:
    """Unrelated guards on ten symbols."""
    rng = random.Random(seed)
    symbols = [symbol(f"s{index}") for index in range(10)]
    terms: list[Term] = []
    for _ in range(count):
        a, b, c = (rng.choice(symbols) for _ in range(3))
        number = rng.randint(2, 500)
        choices = (
            le(a, b + number),
            ge(a, number % 40),
            ge(a + b, number % 9),
            eq(mod(a, 4), 0),
            ne(a, number % 3),
        )
        terms.append(
            rng.choice([*choices, le(floordiv(a, 2) + c, b + 200), le(maximum(a, b), c + 1000)])
        )
    return GuardSet(terms)


def minimise_by_z3(guards: GuardSet) -> int:
    """How many guards are left when Z3 alone is asked, guard by guard, whether the rest implies
    it.
    """
    names = {name: z3.Int(name) for name in guards.ranges}
    scope = {**names, "min": z3.Int, "max": lambda *parts: _extreme(parts)}
    # Z3's / and Python's // agree on positive divisors
    texts = [guard.text().replace("//", "/") for guard in guards]
    lowered = [eval(text, {}, scope) for text in texts]
    solver = z3.Solver()
    solver.set("rlimit", 2_000_000)
    for name, (low, high) in guards.ranges.items():
        solver.add(
            *([names[name] >= low] if low is not None else []),
            *([names[name] <= high] if high is not None else []),
        )
    kept = list(range(len(lowered)))
    for index in range(len(lowered)):
        rest = [other for other in kept if other != index]
        solver.push()
        solver.add(*(lowered[other] for other in rest), z3.Not(lowered[index]))
        if solver.check() == z3.unsat:
            kept = rest
        solver.pop()
    return len(kept)


def _extreme(parts: Sequence[z3.ArithRef]) -> z3.ArithRef:
    result = parts[0]
    for part in parts[1:]:
        result = z3.If(result >= part, result, part)
    return result


def buckets(count: int) -> list[GuardSet]:
    """Disjoint buckets of eight sizes."""
    return [GuardSet([gt(S0, 8 * index), le(S0, 8 * index + 8)]) for index in range(count)]


def main(argv: Sequence[str] | None = None) -> Report:
    """Measures; asserts that minimised sets mean the same."""
    args = bench_parser(__doc__).parse_args(argv)
    report = Report("guard_sets", device=args.device)
    layers, count = (3, 12) if args.smoke else (25, 300)
    columns = ("kept, ours", "kept, Z3", "ours s", "Z3 s")
    table = report.table(
        f"minimising {12 * layers} guards of a transformer, {count} of chance", "guards", *columns
    )
    GuardSet.read("s0 * s1 > 2", "s0 * s1 > 1 + s0 - s0").minimise()  # the first question loads Z3
    seconds = {}
    for name, guards in (
        ("transformer", of_a_transformer(layers)),
        ("chance", of_chance(count, args.seed)),
    ):
        start = perf_counter()
        small = guards.minimise()
        middle = perf_counter()
        theirs = minimise_by_z3(guards)
        table.row(name, len(small), theirs, middle - start, perf_counter() - middle)
        seconds[name] = middle - start
        assert small.implies(guards) is True
    report.goal("minimising 300 guards of a transformer, s", seconds["transformer"], at_most=1.0)
    certificates(report, 32 if args.smoke else 1000)
    checks(report, 10 if args.smoke else 200)
    return report


def certificates(report: Report, count: int) -> None:
    """Proofs that buckets leave no gap, and a gap found."""
    table = report.table(f"certificates over {count} buckets", "question", "answer", "parts", "s")
    entries = buckets(count)
    for question, served in (
        ("no gap", entries),
        ("one bucket gone", entries[: count // 2] + entries[count // 2 + 1 :]),
    ):
        start = perf_counter()
        found = certify({"s0": (1, 8 * count)}, served)
        table.row(question, str(found.covered), found.parts, perf_counter() - start)
        assert found.covered is (question == "no gap")


def checks(report: Report, samples: int) -> None:
    """The generated check, and looking for points."""
    guards = of_a_transformer(25).minimise()
    check = compile_check(guards, ["s0", "s1", "s2"])
    values = guards.sample(1)[0]
    ordered = tuple(values[name] for name in ("s0", "s1", "s2"))
    calls = {
        "generated check": lambda: check.check(ordered),
        "GuardSet.holds": lambda: guards.holds(values),
        "compile_check": lambda: compile_check(guards, ["s0", "s1", "s2"]),
        "20 samples": lambda: guards.sample(20),
    }
    table = report.table(f"a minimised set of {len(guards)} guards", "what", "median µs", "p99 µs")
    for what, time in measure_together(calls, samples=samples).items():
        table.row(what, time.median, time.p99)
