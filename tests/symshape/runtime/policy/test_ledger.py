"""Offers are made once calls have paid for them, and never beyond the promise."""

from __future__ import annotations

import pytest

from symshape.runtime.policy.ledger import EARLY, LONGEST_REST, Ledger, Offer, Quote
from symshape.runtime.policy.promise import GRACE, SHARE, Promise


def _calls(
    ledger: Ledger, eager: float, offered: dict[str, tuple[Offer, float]], most: int = 10_000
) -> tuple[int, str]:
    """Calls until something is to be made, and what."""
    for number in range(1, most):
        decision = ledger.call(
            [Quote(ledger.eager, eager), *[Quote(*each) for each in offered.values()]]
        )
        if decision.makes is not None:
            return number, next(
                name for name, (offer, _) in offered.items() if offer is decision.makes
            )
    return most, ""


def test_an_offer_is_made_when_calls_have_paid_its_part() -> None:
    number, _ = _calls(Ledger(), 10.0, {"bucket": (Offer("bucket", 100.0), 2.0)})
    assert number == pytest.approx(EARLY * 100 / 8, abs=1.5)


def test_what_saves_nothing_is_never_made() -> None:
    assert _calls(Ledger(), 10.0, {"bucket": (Offer("bucket", 1.0), 10.0)}) == (10_000, "")
    assert _calls(Ledger(), 10.0, {"bucket": (Offer("bucket", 1.0), 9.9)}) == (10_000, ""), (
        "within the error"
    )


def test_the_cheapest_offer_that_is_made_serves() -> None:
    ledger = Ledger()
    wide, fine = Offer("wide", 1.0, made=True), Offer("fine", 1.0, made=True)
    decision = ledger.call([Quote(ledger.eager, 10.0), Quote(wide, 4.0), Quote(fine, 2.0)])
    assert decision.serves.offer is fine
    assert fine.calls == 1
    assert fine.saved == 8.0


def test_a_finer_offer_is_credited_with_what_it_saves_beyond_what_serves() -> None:
    ledger = Ledger()
    wide, fine = Offer("wide", 1.0, made=True), Offer("fine", 100.0)
    ledger.call([Quote(ledger.eager, 10.0), Quote(wide, 4.0), Quote(fine, 2.0)], times=3)
    assert fine.credit == pytest.approx(6.0)


def test_nothing_is_made_beyond_the_promise() -> None:
    ledger = Ledger()
    price = 10 * GRACE
    number, _ = _calls(ledger, 10.0, {"bucket": (Offer("bucket", price), 0.1)})
    assert number == pytest.approx((price - GRACE) / (SHARE * 10.0), rel=0.05), (
        "eager's time has to grow first"
    )


def test_what_was_spent_on_traces_counts() -> None:
    promise = Promise()
    promise.spend(2 * GRACE)
    assert promise.room < 0
    number, _ = _calls(Ledger(promise), 10.0, {"bucket": (Offer("bucket", 1.0), 0.1)})
    assert number > GRACE / (SHARE * 10.0)


def test_credit_fades() -> None:
    ledger = Ledger()
    offer = Offer("bucket", 1e6)
    ledger.call([Quote(ledger.eager, 10.0), Quote(offer, 2.0)])
    ledger.call([Quote(ledger.eager, 10.0)], times=20_000)
    ledger.call([Quote(ledger.eager, 10.0), Quote(offer, 2.0)])
    assert offer.credit == pytest.approx(8.0, rel=0.01)


def test_calls_that_repeat_are_asked_about_more_and_more_seldom() -> None:
    ledger, times, rests = Ledger(), 1, []
    for _ in range(10):
        times = ledger.call([Quote(ledger.eager, 10.0)], times).rest
        rests.append(times)
    assert rests[:3] == [2, 4, 8]
    assert rests[-1] == LONGEST_REST


def test_a_failure_makes_an_offer_dearer() -> None:
    ledger, offer = Ledger(), Offer("bucket", 10.0, credit=10.0)
    ledger.failed(offer, 3.0)
    assert (offer.credit, offer.price, ledger.promise.spent) == (0.0, 40.0, 3.0)


def test_what_finds_no_room_waits_for_twice_its_credit() -> None:
    ledger, offer = Ledger(), Offer("bucket", 10.0, credit=20.0)
    ledger.failed(offer, dearer=False)
    assert (offer.credit, offer.price, offer.due) == (20.0, 10.0, 40.0)
    number, _ = _calls(ledger, 10.0, {"bucket": (offer, 8.0)})
    assert number == pytest.approx(10, abs=1.5)


def test_an_offer_says_what_it_is() -> None:
    assert str(Offer("a bucket", 10.0, credit=4.0)) == "a bucket: not made, 4 of 10 ms of credit"
    assert (
        str(Offer("a bucket", 10.0, made=True, calls=3, saved=7.0))
        == "a bucket: made in 10 ms, 3 calls, 7 ms saved"
    )
