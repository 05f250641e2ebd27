"""The rewrite table: one law a row; :mod:`guards.facts.rewriting` applies it under what a component
knows.

Each row states its law as text (``law`` holds wherever ``where`` does); the tests prove every row
from that text and check that ``apply`` agrees with it. A row's ``apply`` returns the rewritten
term, or None when the row does not fit.
"""

from __future__ import annotations

from guards.facts.law import Rule
from guards.facts.laws_of_choice import absorbed, at_border, decided, dominated, selection
from guards.facts.laws_of_division import (
    coarse_quotient,
    coarse_remainder,
    constant_remainder,
    inner_remainder,
    nested_quotient,
    quotient_in_range,
    quotient_of_multiple,
    quotient_of_remainder,
    remainder_in_range,
    remainder_of_multiple,
    remainder_of_remainder,
)
from guards.facts.laws_of_relations import (
    common_factor,
    cross_multiplied,
    equal_remainders,
    without_remainders,
)
from guards.facts.laws_of_sums import (
    fold_remainder,
    one_choice,
    shifted_quotients,
    unfold_remainder,
)
from guards.terms.term import Op

RULES: tuple[Rule, ...] = (
    Rule(
        "quotient of a value in one period",
        Op.FLOORDIV,
        "a // b == k",
        "b > 0 and k*b <= a < (k + 1)*b",
        quotient_in_range,
    ),
    Rule(
        "remainder of a value in one period",
        Op.MOD,
        "a % b == a - k*b",
        "b > 0 and k*b <= a < (k + 1)*b",
        remainder_in_range,
    ),
    Rule(
        "multiples of the divisor come out",
        Op.FLOORDIV,
        "(b*q + r) // b == q + r // b",
        "b != 0",
        quotient_of_multiple,
    ),
    Rule(
        "multiples of the divisor vanish",
        Op.MOD,
        "(b*q + r) % b == r % b",
        "b != 0",
        remainder_of_multiple,
    ),
    Rule(
        "quotient of a quotient",
        Op.FLOORDIV,
        "(a // b) // c == a // (b*c)",
        "b != 0 and c > 0",
        nested_quotient,
    ),
    Rule(
        "quotient of a remainder",
        Op.FLOORDIV,
        "(a % (b*c)) // b == (a // b) % c",
        "b != 0 and c > 0",
        quotient_of_remainder,
    ),
    Rule(
        "remainder of a remainder",
        Op.MOD,
        "(a % (b*c)) % b == a % b",
        "b != 0 and c != 0",
        remainder_of_remainder,
    ),
    Rule(
        "a remainder in a remainder",
        Op.MOD,
        "(m*(a % (b*c)) + r) % b == (m*a + r) % b",
        "b != 0 and c != 0",
        inner_remainder,
    ),
    Rule(
        "fine part of a quotient",
        Op.FLOORDIV,
        "(g*a + r) // (g*m) == a // m",
        "0 <= r < g and m > 0",
        coarse_quotient,
    ),
    Rule(
        "fine part of a remainder",
        Op.MOD,
        "(g*a + r) % (g*m) == g*(a % m) + r",
        "0 <= r < g and m > 0",
        coarse_remainder,
    ),
    Rule("a constant remainder", Op.MOD, "(a*a*a + 5*a) % 6 == 0", "True", constant_remainder),
    Rule("a remainder in disguise", Op.ADD, "a - b*(a // b) == a % b", "b != 0", fold_remainder),
    Rule(
        "a remainder and its quotient",
        Op.ADD,
        "b*(a // b) + a % b == a",
        "b != 0",
        unfold_remainder,
    ),
    Rule(
        "shifted quotients",
        Op.ADD,
        "a // 3 + (a + 1) // 3 + (a + 2) // 3 == a",
        "True",
        shifted_quotients,
    ),
    Rule(
        "choices by one condition",
        Op.ADD,
        "m*(a if c > 0 else b) + n*(d if c > 0 else e) == (m*a + n*d if c > 0 else m*b + n*e)",
        "True",
        one_choice,
    ),
    Rule("an operand of min that never wins", Op.MIN, "min(a, b) == b", "a >= b", dominated),
    Rule("an operand of max that never wins", Op.MAX, "max(a, b) == b", "a <= b", dominated),
    Rule("min absorbs max", Op.MIN, "min(a, max(a, b)) == a", "True", absorbed),
    Rule("max absorbs min", Op.MAX, "max(a, min(a, b)) == a", "True", absorbed),
    Rule("a choice that is known", Op.ITE, "(a if c > 0 else b) == a", "c > 0", decided),
    Rule("a choice that is min", Op.ITE, "(a if a <= b else b) == min(a, b)", "True", selection),
    Rule(
        "a choice at the border",
        Op.ITE,
        "(a if c <= 0 else b) == b",
        "c > 0 or (c == 0 and a == b)",
        at_border,
    ),
    Rule("a quotient at most", Op.LE, "(a // b <= c) == (a - b*c < b)", "b > 0", cross_multiplied),
    Rule(
        "a quotient equal", Op.EQ, "(a // b == c) == (0 <= a - b*c < b)", "b > 0", cross_multiplied
    ),
    Rule(
        "a quotient unequal",
        Op.NE,
        "(a // b != c) == (not 0 <= a - b*c < b)",
        "b > 0",
        cross_multiplied,
    ),
    Rule("a common factor of an order", Op.LE, "(c*a <= c*b) == (a <= b)", "c > 0", common_factor),
    Rule(
        "a common factor of an equation", Op.EQ, "(c*a == c*b) == (a == b)", "c != 0", common_factor
    ),
    Rule(
        "a common factor of a difference",
        Op.NE,
        "(c*a != c*b) == (a != b)",
        "c != 0",
        common_factor,
    ),
    Rule(
        "two remainders equal",
        Op.EQ,
        "(g*(a % m) + k == h*(b % n)) == ((g*a + k - h*b) % (g*m) == 0)",
        "g > 0 and h > 0 and -h < k < g and g*m == h*n and (m > 0 or m < 0 and k == 0 and g == h)",
        equal_remainders,
    ),
    Rule(
        "two remainders unequal",
        Op.NE,
        "(a % m != b % m) == ((a - b) % m != 0)",
        "m != 0",
        equal_remainders,
    ),
    Rule(
        "remainders that cancel",
        Op.EQ,
        "(a % b == a - b*(a // b)) == True",
        "b != 0",
        without_remainders,
    ),
    Rule(
        "remainders that do not cancel",
        Op.NE,
        "(a % b != a - b*(a // b)) == False",
        "b != 0",
        without_remainders,
    ),
    Rule(
        "an order of remainders",
        Op.LE,
        "(a % b <= a - b*(a // b)) == True",
        "b != 0",
        without_remainders,
    ),
)
