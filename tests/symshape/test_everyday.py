"""Programs of every day: each traces, is right at five shapes, and keeps the sizes dynamic that it
does not look at.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import torch

from tests.sampling import sampled
from tests.symshape.everyday import program as _program
from tests.symshape.everyday.known import KNOWN, KNOWN_IN_INFERENCE
from tests.symshape.everyday.program import PROGRAMS, Program, judge

_NO_PROGRAMS = ("__init__", "known", "program")

for _each in sorted(Path(_program.__file__).parent.glob("*.py")):
    if _each.stem not in _NO_PROGRAMS:
        importlib.import_module(f"{_program.__package__}.{_each.stem}")


@pytest.mark.parametrize("name", PROGRAMS)
def test_right_and_dynamic(name: str) -> None:
    _check(PROGRAMS[name], inference=False)


@pytest.mark.parametrize("name", sampled(PROGRAMS, every=3))
def test_right_and_dynamic_in_inference_mode(name: str) -> None:
    """C++ hands composites over whole there."""
    _check(PROGRAMS[name], inference=True)


def _check(program: Program, inference: bool) -> None:
    verdict = judge(program, around=torch.inference_mode) if inference else judge(program)
    known = (KNOWN | KNOWN_IN_INFERENCE if inference else KNOWN).get(str(program))
    if known is None:
        assert verdict.outcome == program.keeps, verdict.detail
    else:
        assert verdict.outcome != program.keeps, "it is right now: take its row out of known.py"
        assert verdict.outcome == known.outcome, (
            f"known as {known.outcome}, now {verdict.outcome}: {verdict.detail}"
        )


@pytest.mark.parametrize("name", sampled(PROGRAMS, every=2))
def test_never_wrong_under_autocast(name: str) -> None:
    """More is refused and fixed there: recurrent cells are decomposed, kernels that cast inside
    have no node.
    """
    verdict = judge(PROGRAMS[name], around=lambda: torch.autocast("cpu", torch.bfloat16))
    assert verdict.outcome != "wrong", verdict.detail


def test_known_ones_are_programs_and_none_is_wrong() -> None:
    for known in (KNOWN, KNOWN_IN_INFERENCE):
        assert PROGRAMS.keys() >= known.keys(), (
            f"no such programs: {known.keys() - PROGRAMS.keys()}"
        )
        assert all(each.outcome != "wrong" and each.reason for each in known.values())


def test_there_are_many() -> None:
    assert len(PROGRAMS) >= 120
