"""An event for each purchase says what was made, what that took, and why."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import symshape
from symshape import events
from symshape.runtime.policy.estimates import Estimates
from symshape.runtime.policy.ledger import Ledger
from symshape.runtime.policy.size_offers import SizeOffers


@pytest.fixture
def bought() -> Iterator[list[events.Bought]]:
    found: list[events.Bought] = []
    unsubscribe = events.subscribe(
        lambda each: found.append(each) if isinstance(each, events.Bought) else None
    )
    yield found
    unsubscribe()


def _offers() -> SizeOffers:
    estimates = Estimates(floor=0.1, rate=0.0, price=50.0)
    estimates.eager_host.saw(10.0)
    return SizeOffers(Ledger(), estimates, lambda caps: 1.0, "a bucket up to {}".format)


def test_a_bucket_is_bought_once_with_its_credit_and_price(bought: list[events.Bought]) -> None:
    offers = _offers()
    for _ in range(20):
        if offers.ask((3,), (), [(4,)], widest=(4,)).makes is not None:
            break
    offers.bought((4,), 60.0)
    [event] = bought
    assert (event.what, event.milliseconds) == ("a bucket up to (4,)", 60.0)
    assert "50 ms were expected" in event.reason


def test_what_the_user_has_made_is_no_purchase(bought: list[events.Bought]) -> None:
    _offers().bought((4,), 60.0)
    assert not bought


def test_a_trace_says_why(bought: list[events.Bought]) -> None:
    compiled = symshape.compile(
        lambda x: x * hash(x.shape[0]), options=symshape.Options(free_traces=3)
    )
    for size in range(2, 6):
        compiled(torch.ones(size))
    assert [each.what.split(" of ")[0] for each in bought] == [
        f"program {number}" for number in range(4)
    ]
    assert "first traces" in bought[0].reason
    assert "need no credit" in bought[2].reason
    assert all(each.milliseconds > 0 for each in bought)
