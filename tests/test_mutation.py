"""The mutation driver: its targets exist, and what it draws changes the program."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.discovery import REPOSITORY
from tests.mutation.__main__ import Target, equivalents, mutants, reason_to_survive, targets
from tests.mutation.sampling import meaning


@pytest.mark.parametrize("target", targets(), ids=lambda target: target.name)
def test_targets_exist(target: Target) -> None:
    for pattern in target.modules:
        assert list(REPOSITORY.glob(pattern)), pattern
        for module in REPOSITORY.glob(pattern):
            tests = target.tests_of(REPOSITORY, str(module.relative_to(REPOSITORY)))
            assert [each for each in tests if each.startswith("tests/")]


def test_a_namesake_comes_first() -> None:
    target = Target("linear", ["guards/deciders/linear.py"], ["tests/guards/asking/test_*.py"])
    assert (
        target.tests_of(REPOSITORY, "guards/deciders/linear.py")[0]
        == "tests/guards/deciders/test_linear.py"
    )


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"there is no tests/nowhere\.py"):
        Target("a", ["guards/*.py"], ["tests/nowhere.py"]).tests_of(REPOSITORY, "guards/errors.py")
    with pytest.raises(SystemExit, match=r"there is no guards/\*\.py"):
        list(mutants(tmp_path, Target("a", ["guards/*.py"], []), 1, 0))


def test_equivalent_mutants_change_a_line_that_is_there() -> None:
    """A row whose line was edited since says nothing any more: it has to go, or be looked at
    again.
    """
    known = equivalents()
    assert known
    for (path, was, became), why in known.items():
        source = (REPOSITORY / path).read_text(encoding="utf-8")
        assert was in map(str.strip, source.splitlines()), (path, was)
        assert was != became
        assert why
        diff = f"-        {was}\n+        {became}"
        assert reason_to_survive(path, diff, known) == why
        assert reason_to_survive(path, f"{diff}\n+ more", known) is None
        assert reason_to_survive("guards/errors.py", diff, known) is None


def test_annotations_and_docstrings_mean_nothing() -> None:
    one = 'def f(x: int | None) -> int:\n    """One."""\n    y: int = x\n    return y\n'
    other = 'def f(x: int & None) -> str:\n    """Two."""\n    y: bool = x\n    return y\n'
    assert meaning(one) == meaning(other)
    assert meaning(one) != meaning(one.replace("return y", "return x"))
    assert meaning("def f(:") is None


def test_samples_are_repeated() -> None:
    pytest.importorskip("cosmic_ray", reason="make mutation has it in an environment of its own")
    target = Target("interval", ["guards/domains/interval.py"], [])
    one, two = (list(mutants(REPOSITORY, target, 4, 1)) for _ in range(2))
    assert one == two
    assert len({mutant.diff for mutant in one}) == 4
