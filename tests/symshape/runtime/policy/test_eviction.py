"""Credit of what was made: launches count their uses in line, and come to the same as
``Credit.use``.
"""

from __future__ import annotations

import attrs
import pytest
import torch

import symshape
from symshape.runtime.policy.eviction import Credit
from symshape.runtime.policy.ledger import HALF_LIFE


def test_credit_fades_with_the_calls() -> None:
    credit = Credit()
    credit.begin(8.0, 2.0, 10)
    assert credit.now(10) == 8.0
    assert credit.now(10 + HALF_LIFE) == pytest.approx(4.0)
    credit.use(10 + HALF_LIFE)
    assert credit.now(10 + HALF_LIFE) == pytest.approx(6.0)


def test_a_launch_counts_a_use() -> None:
    compiled = symshape.compile(lambda x: x * 2, dynamic=True, runner="padded")
    x = torch.ones(5)
    compiled(x)
    (bucket,) = compiled.entries[0].runner.buckets
    twin = attrs.evolve(bucket.lease.credit)
    for _ in range(5):
        compiled(x)
        twin.use(compiled._graphs.clock)
    assert bucket.lease.credit.amount == pytest.approx(twin.amount, rel=1e-12)
    assert bucket.lease.credit.last_used == twin.last_used
