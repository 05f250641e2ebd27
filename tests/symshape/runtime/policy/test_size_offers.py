"""Which bucket is made for calls of several sizes."""

from __future__ import annotations

from symshape.runtime.policy.estimates import Estimates
from symshape.runtime.policy.ledger import Ledger
from symshape.runtime.policy.nesting import octave_up
from symshape.runtime.policy.size_offers import MOST_COARSE, Caps, SizeOffers


def _offers(price: float = 50.0) -> SizeOffers:
    estimates = Estimates(floor=0.1, rate=0.0, price=price)
    estimates.eager_host.saw(10.0)
    return SizeOffers(Ledger(), estimates, lambda caps: 1.0)


def _ask(offers: SizeOffers, sizes: Caps, exact: tuple[int, ...] = ()) -> Caps | None:
    return offers.ask(sizes, (), [tuple(map(octave_up, sizes))], exact=exact).makes


def test_calls_of_smaller_sizes_credit_a_bucket_that_holds_them() -> None:
    offers = _offers()
    assert _ask(offers, (8, 8)) is None
    made = [_ask(offers, sizes) for sizes in ((1, 8), (8, 1), (2, 4), (4, 2), (2, 2), (1, 1))]
    assert (8, 8) in made


def test_calls_with_other_exact_sizes_do_not() -> None:
    offers = _offers()
    assert all(_ask(offers, (8, exact), (exact,)) is None for exact in (1, 2, 4, 8, 16, 32, 64))


def test_a_bucket_that_is_made_is_credited_no_more_and_others_keep_half_of_theirs() -> None:
    offers = _offers(price=1000.0)
    for sizes in ((8, 8), (2, 2), (2, 2), (1, 16)):
        _ask(offers, sizes)
    before = {each.words: each.credit for each in offers.offers}
    offers.bought((8, 8), 50.0)
    after = {each.words: each.credit for each in offers.offers if not each.made}
    assert after["(2, 2)"] == 0.0
    assert 0.0 < after["(2, 16)"] == before["(2, 16)"] / 2
    assert "(8, 8)" not in after


def test_what_is_remembered_is_bounded() -> None:
    offers = _offers(price=1e9)
    for number in range(3 * MOST_COARSE):
        _ask(offers, (2 ** (number % 90), number), (number // 2,))
    assert len(offers._coarse) <= MOST_COARSE
    assert all(len(each) <= MOST_COARSE for each in offers._coarse.values())


def test_a_bucket_that_costs_more_is_made_later() -> None:
    asked = {}
    for more in (0.0, 200.0):
        offers = _offers()
        asks = (offers.ask((1,), (), [(1,)], dearer=lambda caps, ms=more: ms) for _ in range(100))
        asked[more] = next(at for at, each in enumerate(asks) if each.makes is not None)
    assert asked[0.0] < asked[200.0]
