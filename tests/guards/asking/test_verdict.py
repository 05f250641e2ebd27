"""Verdicts: which model is shown, and that they are values."""

from __future__ import annotations

import attrs
import pytest

from guards.asking.verdict import Verdict


def test_the_model_is_where_it_fails_before_where_it_holds() -> None:
    fails, holds = {"x": 1}, {"x": 2}
    assert Verdict(None, "points", fails, holds).model is fails
    assert Verdict(None, "unknown", None, holds).model is holds
    assert Verdict(True, "linear").model is None


def test_verdicts_are_values() -> None:
    verdict = Verdict(True, "linear", reason="always")
    assert verdict == Verdict(True, "linear", reason="always")
    assert verdict != Verdict(True, "z3", reason="always")
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        verdict.value = False  # type: ignore[misc]
