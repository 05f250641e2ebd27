"""Conditions that may divide by zero, against an evaluation of their text that knows three values.

A text is true, false or undefined at each point of a small box. Divisors may be 0 anywhere: below
``and``, ``or``, ``not``, choices, ``min`` and ``max``. A guard set holds exactly where its texts
are true; sets made of it, and code, tapes and JSON, say so too. A witness of ``decide`` is a point
at which the text is defined. A simplified term is equal wherever the term is defined; only a
condition may be undefined where it was false.
"""

from __future__ import annotations

import ast
import operator
import random
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

from guards.asking.assumptions import facts_from
from guards.asking.queries import decide
from guards.asking.reading import parse
from guards.asking.simplification import bounds, simplify
from guards.dispatch.tree import Tree
from guards.errors import Contradiction, ParseError
from guards.sets.codegen import compile_check
from guards.sets.guard_set import GuardSet
from guards.sets.serialize import from_json, to_json
from guards.terms.fold import evaluate
from guards.terms.tape import Tape, run_tape
from guards.terms.term import Term
from tests.fuzz.harness import Counterexample, Outcome, run_fuzzer

NAMES = ("p", "q")
LOW, HIGH = -3, 4
BOX = [
    dict(zip(NAMES, values, strict=True))
    for values in product(range(LOW, HIGH + 1), repeat=len(NAMES))
]
Point = Mapping[str, int]
Value = Any  # an int, a bool, or None: undefined

# -- texts -----------------------------------------------------------------------------------------


def integer(rng: random.Random, depth: int) -> str:
    """Return the text of an integer, most of which divide by symbols."""
    if depth <= 0:
        return rng.choice([*NAMES, *NAMES, str(rng.randint(-2, 5))])
    a, b = integer(rng, depth - 1), integer(rng, depth - 1)
    kind = rng.randrange(14)
    if kind < 6:
        divisor = rng.choice([rng.choice(NAMES), rng.choice(NAMES), f"({b})"])
        return f"({a}) {rng.choice(['//', '%'])} {divisor}"
    if kind < 8:
        return f"({a} {rng.choice(['+', '-', '*'])} ({b}))"
    if kind < 10:
        return f"{rng.choice(['min', 'max'])}({a}, {b})"
    if kind < 13:
        return f"({a} if {condition(rng, depth - 1)} else {b})"
    name = rng.choice(["truncdiv", "truncmod", "ceildiv", "FloorDiv", "Mod"])
    return f"{name}({a}, {rng.choice(NAMES)})"


def condition(rng: random.Random, depth: int) -> str:
    """Return the text of a condition."""
    kind = rng.randrange(10)
    if depth <= 0 or kind < 5:
        a, b = integer(rng, depth), integer(rng, depth - 1)
        if rng.random() < 0.15:
            b = a
        return f"{a} {rng.choice(['==', '!=', '<=', '<', '>=', '>'])} {b}"
    a, b = condition(rng, depth - 1), condition(rng, depth - 1)
    if kind < 8:
        return f"({a}) {rng.choice(['and', 'or'])} ({b})"
    if kind == 8:
        return f"not ({a})"
    return f"(({a}) if {condition(rng, depth - 1)} else ({b}))"


# -- the oracle ------------------------------------------------------------------------------------

_RELATIONS: dict[type[ast.cmpop], Callable[[Value, Value], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_ARITHMETIC: dict[type[ast.operator], Callable[[Value, Value], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def _truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) is (b < 0) else -1)


_FUNCTIONS: dict[str, Callable[..., int]] = {
    "min": min,
    "max": max,
    "truncdiv": _truncated,
    "truncmod": lambda a, b: a - b * _truncated(a, b),
    "ceildiv": lambda a, b: -(-a // b),
    "FloorDiv": operator.floordiv,
    "Mod": operator.mod,
}


def meaning(node: ast.expr, point: Point) -> Value:
    """Return the value of a text at a point; None where the text is undefined."""
    if isinstance(node, ast.BoolOp):
        stop = isinstance(node.op, ast.Or)
        values = [meaning(part, point) for part in node.values]
        return stop if stop in values else None if None in values else not stop
    if isinstance(node, ast.IfExp):
        test = meaning(node.test, point)
        return None if test is None else meaning(node.body if test else node.orelse, point)
    if isinstance(node, ast.Name):
        return point[node.id]
    if isinstance(node, ast.Constant):
        return node.value
    make, parts = _made_of(node)
    operands = [meaning(part, point) for part in parts]
    try:
        return None if None in operands else make(*operands)
    except ZeroDivisionError:
        return None


def _made_of(node: ast.expr) -> tuple[Callable[..., Value], Sequence[ast.expr]]:
    if isinstance(node, ast.UnaryOp):
        return (operator.not_ if isinstance(node.op, ast.Not) else operator.neg), [node.operand]
    if isinstance(node, ast.BinOp):
        return _ARITHMETIC[type(node.op)], [node.left, node.right]
    if isinstance(node, ast.Compare):
        return _RELATIONS[type(node.ops[0])], [node.left, *node.comparators]
    assert isinstance(node, ast.Call)
    assert isinstance(node.func, ast.Name)
    return _FUNCTIONS[node.func.id], node.args


def truths(text: str) -> list[Value]:
    """Return the value of a text at each point of the box."""
    tree = ast.parse(text.strip(), mode="eval").body
    return [meaning(tree, point) for point in BOX]


# -- the cases -------------------------------------------------------------------------------------

RANGES = dict.fromkeys(NAMES, (LOW, HIGH))


def case(rng: random.Random) -> str:
    """One set, one question, or one term to simplify."""
    text = condition(rng, rng.choice([1, 2, 2, 3]))
    try:
        parse(text)
    except (ParseError, ZeroDivisionError):
        return "not readable"
    return rng.choice([as_set, as_set, as_question, as_term])(rng, text)


def check(what: str, text: str, found: Callable[[Point], Value], wanted: Sequence[Value]) -> None:
    """Compare the values of something that was made of a text with those that are wanted."""
    for point, value in zip(BOX, wanted, strict=True):
        if found(point) is not value:
            raise Counterexample(
                f"{what} of {text!r} is {found(point)} at {dict(point)}, should be {value}"
            )


def as_set(rng: random.Random, text: str) -> str:
    """The set of a text, its complement, and what is made of both."""
    inside = [value is True for value in truths(text)]
    outside = [not value for value in inside]
    wide: Any = dict.fromkeys(NAMES, (None, None))
    guards = GuardSet(text, ranges=wide)
    check("the set", text, guards.holds, inside)
    complement = guards.negate()
    check("the complement", text, complement.holds, outside)
    if rng.random() < 0.3:
        check("the complement of the complement", text, complement.negate().holds, inside)
    for made, wanted, what in (
        (guards, inside, "the set"),
        (complement, outside, "the complement"),
    ):
        compiled = compile_check(made, NAMES)
        check(
            f"the check of {what}",
            text,
            lambda point: compiled.check(tuple(point.values())),  # noqa: B023
            wanted,
        )
        check(
            f"explain of {what}",
            text,
            lambda point: not compiled.explain(tuple(point.values())),  # noqa: B023
            wanted,
        )
        check(f"JSON of {what}", text, from_json(to_json(made)).holds, wanted)
        tape = Tape(NAMES)
        registers = [tape.add(guard.term) for guard in made.guards]

        def by_tape(point: Point) -> bool:
            found = run_tape(tape.steps, tuple(point.values()))  # noqa: B023
            return all(found[register] is True for register in registers)  # noqa: B023

        check(f"the tape of {what}", text, by_tape, wanted)
    _tree(text, guards, complement, inside)
    _relations(rng, text, guards, inside)
    return "set, never undefined" if None not in truths(text) else "set"


def _tree(text: str, guards: GuardSet, complement: GuardSet, inside: Sequence[bool]) -> None:
    tree: Tree[bool] = Tree(NAMES)
    tree.insert(complement, False)
    tree.insert(guards, True)
    check("the tree", text, lambda point: tree.lookup(tuple(point.values())), inside)


def _relations(rng: random.Random, text: str, guards: GuardSet, inside: Sequence[bool]) -> None:
    boxed = GuardSet(guards.guards, ranges=RANGES)
    other = GuardSet(condition_of_case(rng), ranges=RANGES)
    there = [other.holds(point) for point in BOX]
    pairs = list(zip(inside, there, strict=True))
    for found, wanted, what in (
        (boxed.is_satisfiable(), any(inside), "is_satisfiable"),
        (boxed.implies(other), all(b for a, b in pairs if a), "implies"),
        (other.implies(boxed), all(a for a, b in pairs if b), "is implied by"),
        (boxed.disjoint(other), not any(a and b for a, b in pairs), "disjoint"),
    ):
        if found is not None and found is not wanted:
            raise Counterexample(
                f"{what} of {text!r} and {other} is {found}, by trying all points {wanted}"
            )
    both = GuardSet(*boxed.guards, *other.guards, ranges=RANGES)
    check(
        "the minimised set", f"{text}, {other}", both.minimise().holds, [a and b for a, b in pairs]
    )
    check(
        "the difference",
        f"{text}, {other}",
        boxed.difference(other).holds,
        [a and not b for a, b in pairs],
    )
    name = rng.choice(NAMES)
    shadow = {point[name] for point, value in zip(BOX, inside, strict=True) if value}
    projected = boxed.project(name)
    said = {value for value in range(LOW, HIGH + 1) if projected.guard_set.holds({name: value})}
    if not shadow <= said or (projected.exact and shadow != said):
        raise Counterexample(f"project({name!r}) of {text!r} is {said}, should be {shadow}")
    for point in boxed.sample(3, seed=rng.randrange(9)):
        if not inside[BOX.index(point)]:
            raise Counterexample(f"sample of {text!r} gives {point}, where it does not hold")


def condition_of_case(rng: random.Random) -> str:
    """Return the text of a condition that can be read."""
    while True:
        text = condition(rng, 1)
        try:
            parse(text)
        except (ParseError, ZeroDivisionError):
            continue
        return text


def as_question(rng: random.Random, text: str) -> str:
    """The verdict on a text, with or without an assumption."""
    assumed = condition_of_case(rng) if rng.random() < 0.5 else "p == p"
    values = [v for v, known in zip(truths(text), truths(assumed), strict=True) if known is True]
    points = [point for point, known in zip(BOX, truths(assumed), strict=True) if known is True]
    asked = f"decide({text!r}, ranges={RANGES}, assume=[{assumed!r}])"
    try:
        verdict = decide(text, ranges=RANGES, assume=[assumed])
    except Contradiction:
        if points:
            raise Counterexample(
                f"{asked} says that nothing satisfies the assumption; {points[0]} does"
            ) from None
        return "contradictory"
    if verdict.value is not None and (not verdict.value) in values:
        raise Counterexample(
            f"{asked} is {verdict}, but at {points[values.index(not verdict.value)]} it is not"
        )
    for point, value in ((verdict.fails, False), (verdict.holds, True)):
        if point is not None:
            full = {name: point.get(name, 0) for name in NAMES}
            names = sorted(point)
            if not any(
                v is value and all(p[n] == full[n] for n in names)
                for p, v in zip(points, values, strict=True)
            ):
                raise Counterexample(f"{asked}: the witness {point} for {value} is none")
    return "question" if verdict.value is None else "question, settled"


def as_term(rng: random.Random, text: str) -> str:
    """A term, simplified under an assumption, and the bounds of an integer."""
    assumed = rng.choice([condition_of_case(rng), "p >= 0 and q >= 0", "p == p"])
    if rng.random() < 0.5:
        text = f"({rng.choice(['p', 'q'])} != 0) {rng.choice(['and', 'or'])} ({text})"
    try:
        facts = facts_from(RANGES, [assumed])
    except Contradiction:
        return "contradictory"
    allowed = [point for point, known in zip(BOX, truths(assumed), strict=True) if known is True]
    term = parse(text)
    simple = simplify(term, facts)
    for point in allowed:
        wanted, found = value_of(term, point), value_of(simple, point)
        # what is false may become undefined
        right = found is not True if wanted is False else found == wanted
        if wanted is not None and not right:
            raise Counterexample(
                f"simplify({text!r}) under {assumed!r} is {simple}: wrong at {point}"
            )
    number = integer(rng, 2)
    try:
        low, high = bounds(number, ranges=RANGES, assume=[assumed])
    except (ParseError, ZeroDivisionError):
        return "term"
    for point in allowed:
        value = value_of(parse(number), point)
        limits = [None if bound is None else value_of(bound, point) for bound in (low, high)]
        if value is not None and any(
            b is not None and (value < b if side == 0 else value > b)
            for side, b in enumerate(limits)
        ):
            raise Counterexample(
                f"bounds({number!r}) under {assumed!r} are {(low, high)}: wrong at {point}"
            )
    return "term"


def value_of(term: Term, point: Point) -> Value:
    """Return the value of a term; None where it is undefined."""
    try:
        return evaluate(term, point)
    except ZeroDivisionError:
        return None


def main(argv: Sequence[str] | None = None) -> Outcome:
    """Run the fuzzer."""
    seen = ("set", "question", "question, settled", "term")
    return run_fuzzer("definedness", __doc__, argv, case, count=20_000, smoke=200, must_see=seen)
