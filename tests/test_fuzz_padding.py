"""The lines that the padding fuzzer draws beside the common ones: each of them runs."""

from __future__ import annotations

import itertools
import random
import warnings

import pytest
import torch

from tests.fuzz import fuzz_padding
from tests.fuzz.padded_lines import PADDED_LINES, G
from tests.fuzz.programs import SPACE, T

SHAPES = (
    *((3,), (3, 3), (4, 3), (2, 3, 3), (2, 3, 4)),
    *((3, 2, 4, 4), (2, 3, 4, 4), (2, 2, 4, 4, 4), (2, 4, 1)),
)
DIMS = ((0, -1), (-1, 0), (1, 0))


def _runs(line: str) -> bool:
    for sizes, (d, e) in itertools.product(SHAPES, DIMS):
        for others in (sizes, sizes[1:], (3,), (3, 3)):
            text = line.format(a="a", b="b", d=d, e=e, n="a.size(0)", m="b.numel()")
            try:
                found = eval(text, {**SPACE, "a": T(*sizes), "b": T(*others)})
            except (IndexError, RuntimeError, TypeError, ValueError):
                continue  # these sizes do not fit
            return isinstance(found, torch.Tensor)
    return False


def test_each_line_runs_for_some_sizes() -> None:
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        assert [line for line in PADDED_LINES if not _runs(line)] == []


def test_a_gradient() -> None:
    x = torch.tensor([1.0, 2.0])
    with torch.no_grad():
        assert G(lambda x: 3 * x, x).tolist() == [18.0, 36.0]


@pytest.mark.slow
def test_some_programs() -> None:
    seen = {fuzz_padding.case(random.Random(f"lines {number}")) for number in range(30)}
    assert "padded" in seen
