"""The check that runs in a browser answers what the Python check answers, for every condition and
point.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from guards import GuardSet, parse
from guards.facts.definedness import satisfied
from guards.terms.tape import Tape, number
from tests.symshape.exploring.javascript import run_script

FREE = dict.fromkeys("nmk", (None, None))
SETS = [
    GuardSet.read(*texts, ranges=FREE)
    for texts in (
        ("n > 2", "n + m <= 64", "m != 1"),
        ("n // 8 * 8 == n", "m % 4 == 3"),
        ("n // -3 <= m", "n % -7 == -2"),
        ("(n - m) // 5 != k", "(n - m) % 5 <= 2"),
        ("(n - m) // (k - 2) <= 1", "(n + m) % (k + 1) == 0"),
        ("m == 0 or n % m == 0",),
        ("m != 0 and n // m < 5",),
        ("k == 3 or (n % m == 1 and m // k >= 0)", "n >= m or n % k == 0"),
        ("min(n, m, k) >= 0", "max(n, m) < 100"),
        ("(n if n > m else m // k) >= 2",),
        ("(3 if n % 2 == 1 else 4) >= m % 6",),
        ("n * m * k <= 4096", "n * n >= m"),
        ("n * m * k * n * m <= 10000000000000000000000",),
        ("9007199254740993 * n <= 9007199254740993 * m + 1",),
        ("n * 4611686018427387904 // 3 % 1000 != k",),
        ("n // (m * m + 1) == k // (m * m + 1)",),
        ("(n + 7) // 8 * 8 >= m", "(n + 7) // 8 * 8 - n <= k"),
        ("n == m", "m == k"),
        ("n & 7 == 3", "n >> 2 <= m"),
        ("n % (m - k) == 0 or n // (k - m) >= 0",),
    )
]
BODY = """
return data.map(({tape, registers, points}) => {
  const made = new Tape(tape);
  return points.map((point) => {
    const r = made.run(point.map((value) => (typeof value === "number" ? value : BigInt(value))));
    return registers.map((each) => (isTrue(r[each]) ? "1" : "0")).join("");
  }).join(" ");
});
"""


def _points(rng: random.Random, count: int) -> list[tuple[int, int, int]]:
    def one() -> int:
        return rng.choice(
            (
                rng.randint(-5, 5),
                rng.randint(-200, 200),
                rng.randint(-(2**31), 2**31),
                2**53 + rng.randint(-3, 3),
                rng.randint(-(10**30), 10**30),
            )
        )

    def small() -> int:
        return rng.randint(-9, 9)

    return [tuple(rng.choice((one, small))() for _ in "nmk") for _ in range(count)]  # type: ignore[misc]


@pytest.mark.parametrize("count", [250, pytest.param(5000, marks=pytest.mark.nightly)])
def test_equals_the_python_check(tmp_path: Path, count: int) -> None:
    assert len(SETS) == 20
    rng = random.Random(12)
    asked, wanted = [], []
    for guard_set in SETS:
        tape = Tape("nmk")
        registers = [tape.add(guard.term) for guard in guard_set]
        points = _points(rng, count)
        wanted.append(
            " ".join(
                "".join(
                    "01"[satisfied(guard.term, dict(zip("nmk", point, strict=True)))]
                    for guard in guard_set
                )
                for point in points
            )
        )
        asked.append(
            {
                "tape": {"steps": tape.steps, "exact": tape.exact_up_to()},
                "registers": registers,
                "points": [[number(value) for value in point] for point in points],
            }
        )
    found = run_script(tmp_path, ("tape",), BODY, asked)
    for guard_set, ours, theirs in zip(SETS, found, wanted, strict=True):
        assert ours == theirs, guard_set
    both = [set(each.replace(" ", "")) for each in wanted]
    assert sum(len(each) == 2 for each in both) >= 18, (
        "points at which the conditions hold, and at which they fail"
    )


def test_doubles_and_bigints_agree(tmp_path: Path) -> None:
    """The same tape run both ways at the same points, where both are allowed."""
    tape = Tape("nmk")
    term = parse("(n - m) // (k - 2) * 7 + (n - m) % (k - 2) - min(n, k // 3)")
    tape.add(term)
    rng = random.Random(3)
    points = [[rng.randint(-99, 99) for _ in "nmk"] for _ in range(500)]
    body = """
    const made = new Tape(data.tape);
    return data.points.map((point) => {
      const one = Array.from(made.runDoubles(point), (v) => (v === v ? String(v + 0) : "none"));
      const two = made.runBig(point.map(BigInt)).map((v) => (v === null ? "none" : String(v)));
      return one.join() === two.join();
    });
    """
    record = {"steps": tape.steps, "exact": tape.exact_up_to()}
    assert all(run_script(tmp_path, ("tape",), body, {"tape": record, "points": points}))
