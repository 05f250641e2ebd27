"""Cost rules on calls that op_db's samples make: never an error, never negative, traffic that fits
the results.
"""

from __future__ import annotations

from collections import Counter

import pytest
import torch

import meta_fns
from meta_fns import TensorSpec
from meta_fns.core.cost_rule import nbytes
from tests.meta_fns.cost.test_rules import WITHOUT
from tests.meta_fns.opdb import Call, record

STEP = 9  # prime to the number of OpInfos of any family
UNPRICED = {name for names in WITHOUT for name in names.split()} | {
    "_fft_c2c",
    "_fft_r2c",
    "_fft_c2r",
}


@pytest.fixture(scope="module")
def calls() -> list[Call]:
    torch.set_num_threads(1)
    return record(first=2, step=STEP, most=6)


@pytest.mark.slow
def test_every_call_has_a_cost(calls: list[Call]) -> None:
    seen: Counter[str] = Counter()
    for call in calls:
        try:
            work = meta_fns.work_of(call.op, call.args, call.kwargs)
        except meta_fns.MetaError:
            # what the result is depends on data, or eager refuses too: tests of the shape rules
            continue
        if work is None:
            name = str(call.op).split(".")[1]
            assert name in UNPRICED or meta_fns.lookup(call.op) is None, call
            continue
        for number in (work.flops, work.read, work.written):
            assert type(number) is int, call
            assert number >= 0, call
        assert work.kernels > 0 or work.family == "view", call
        seen[work.family] += 1
    assert len(seen) > 10
    assert sum(seen.values()) > 500


def test_functional_ops_write_their_results(calls: list[Call]) -> None:
    """Once each; a sort in so many passes, and what is scattered on top of the copy."""
    checked = 0
    for call in calls:
        known = meta_fns.aliasing(call.op)
        try:
            work = meta_fns.work_of(call.op, call.args, call.kwargs)
            if work is None or work.family in ("view", "sort") or not known.is_functional:
                continue
            results = meta_fns.infer(call.op, call.args, call.kwargs)
        except meta_fns.MetaError:
            continue
        specs = results if isinstance(results, (tuple, list)) else [results]
        wanted = sum(nbytes(each) for each in specs if isinstance(each, TensorSpec))
        name = str(call.op)
        scatters = any(word in name for word in ("index_", "scatter", "put"))
        assert work.written >= wanted if scatters else work.written == wanted, call
        checked += 1
    assert checked > 500
