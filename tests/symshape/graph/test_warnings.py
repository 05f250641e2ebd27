"""Warnings of operators reach Python's ``warnings`` from a compiled program, as they do in
eager.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import pytest
import torch

import symshape

MASK = torch.tensor([1, 0, 1], dtype=torch.uint8)
CASES: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], torch.Tensor]] = {
    "std of one": (lambda x: x.std(), torch.ones(1)),
    "var of rows": (lambda x: x.var(0), torch.ones(1, 2)),
    "std and mean": (lambda x: torch.std_mean(x)[0], torch.ones(1)),
    "var and mean": (lambda x: torch.var_mean(x)[0], torch.ones(1)),
    "complex copied to real": (
        lambda x: torch.zeros(3).copy_(x),
        torch.ones(3, dtype=torch.complex64),
    ),
    "complex cast to real": (lambda x: x.to(torch.float32), torch.ones(3, dtype=torch.complex64)),
    "an index of bytes": (lambda x: x[MASK], torch.ones(3)),
    "a condition of bytes": (lambda x: torch.where(MASK, x, x + 1), torch.ones(3)),
}


@pytest.fixture(autouse=True)
def always() -> Iterator[None]:
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(before)


def _told(call: Callable[[], object]) -> list[str]:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        call()
    return [str(each.message) for each in told]


@pytest.mark.parametrize("name", CASES)
def test_warnings_of_ops(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    fn, x = CASES[name]
    expected = _told(lambda: fn(x))
    assert expected, "eager warns of nothing"
    compiled = symshape.compile(fn, fullgraph=True)
    for _ in range(3):
        assert set(_told(lambda: compiled(x))) == set(expected)
    assert "Warning" not in capfd.readouterr().err
    results: list[torch.Tensor] = []
    _told(lambda: results.extend((compiled(x), fn(x))))
    assert torch.equal(*(each.nan_to_num() for each in results))


def test_a_warning_made_an_error_is_raised() -> None:
    compiled = symshape.compile(lambda x: x.std() + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="degrees of freedom"):
            compiled(torch.ones(1))
