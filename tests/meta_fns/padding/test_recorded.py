"""The poison harness on calls that op_db's samples make: a sample of them here, all of them with
``-m nightly``.
"""

from __future__ import annotations

import warnings

import pytest
import torch

from tests.meta_fns.opdb import record
from tests.meta_fns.padding.poison import poisoned
from tests.meta_fns.padding.recorded import padded_calls

DTYPES = (torch.float32, torch.int64, torch.bool)


def check(first: int, step: int, most: int) -> int:
    torch.set_num_threads(1)
    compared = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = {
            case.name: case
            for case in padded_calls(record(first=first, step=step, most=most, dtypes=DTYPES))
        }
        for case in cases.values():
            try:
                compared += bool(
                    poisoned(case.fn, *case.arguments, samples=6, tolerance=case.tolerance).compared
                )
            except (
                IndexError,
                RuntimeError,
            ):  # data that eager does not look at, since its result is empty
                assert "index" in case.name or "remainder" in case.name
            except AssertionError as error:
                raise AssertionError(f"{case.name}: {error}") from error
    return compared


@pytest.mark.slow
def test_a_sample_of_recorded_calls() -> None:
    assert check(first=4, step=23, most=3) > 30


@pytest.mark.nightly
def test_all_recorded_calls() -> None:
    assert check(first=0, step=1, most=12) > 1500
