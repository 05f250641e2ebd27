"""Streams on a simulated clock: never far behind eager, close to hindsight, and a broken policy is
caught.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import pytest

from symshape.runtime.policy import ledger
from symshape.runtime.policy.ledger import Offer
from symshape.runtime.policy.promise import Promise
from symshape.runtime.policy.size_offers import SizeOffers
from tests.bench.simulated_streams import ADVERSARY, MACHINES, Outcome, play

PLAYED = [
    *(
        (machine, traffic)
        for machine in ("llama", "bert", "large")
        for traffic in ("log-normal", "once", ADVERSARY)
    ),
    ("llama", "bimodal"),
    ("llama", "drift"),
    ("graphs", "four sizes"),
]


def _played() -> list[Outcome]:
    return [
        play(MACHINES[machine], traffic, 500, seed)
        for machine, traffic in PLAYED
        for seed in range(2)
    ]


def _faults(outcomes: list[Outcome]) -> list[str]:
    """Which promises do not hold."""
    behind = max(each.behind for each in outcomes)
    worst = max(each.total / each.hindsight for each in outcomes)
    mean = statistics.mean(each.total / each.hindsight for each in outcomes)
    found = [f"{behind:.0f} ms above 1.25 of eager's time"] if behind > 1000 else []
    found += [f"{worst:.2f} of hindsight at worst"] if worst > 2.6 else []
    return found + ([f"{mean:.2f} of hindsight in the mean"] if mean > 1.08 else [])


def test_the_promises_hold() -> None:
    assert _faults(_played()) == []


def _without_a_price(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ledger, "EARLY", 0.0)


def _without_the_promise(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Promise, "room", property(lambda self: 1e9))


def _without_credit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Offer, "add", lambda self, gain, clock: None)


def _without_nesting(patch: pytest.MonkeyPatch) -> None:
    ask = SizeOffers.ask

    def finest(
        self: SizeOffers, sizes: Any, covering: Any, wanted: Any, widest: Any = None, times: int = 1
    ) -> Any:
        return ask(self, sizes, covering, list(wanted)[-1:], None, times)

    patch.setattr(SizeOffers, "ask", finest)
    _without_sharing(patch)


def _without_sharing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SizeOffers, "_shared", lambda self, sizes, own, exact: [])


@pytest.mark.slow
@pytest.mark.parametrize(
    "broken",
    [_without_a_price, _without_the_promise, _without_credit, _without_nesting, _without_sharing],
)
def test_a_broken_policy_is_caught(
    broken: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)
    assert _faults(_played())


def test_small_functions_make_little() -> None:
    found = [play(MACHINES["small"], "log-normal", 3000, seed) for seed in range(3)]
    assert max(each.buckets for each in found) <= 3
