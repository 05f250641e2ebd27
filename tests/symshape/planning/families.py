"""Traffic that plans are made for: a recorded trace, the project's stream, and three made-up
families.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from symshape import Traffic
from symshape.exploring.traffic import bundled_requests


def azure() -> Traffic:
    """The prompts of the bundled sample of Azure's trace, 2,000 calls."""
    return Traffic.of([request.context_tokens for request in bundled_requests()], ("length",))


def lognormal(calls: int) -> Traffic:
    """Batches of a few sizes, log-normal lengths."""
    rng = random.Random(0)
    sizes = [
        (rng.choice((1, 2, 3, 4, 5, 6, 8)), int(rng.lognormvariate(4.6, 0.9))) for _ in range(calls)
    ]
    return Traffic.of(
        [(batch, min(1024, max(2, length))) for batch, length in sizes], ("batch", "length")
    )


def bimodal(calls: int) -> Traffic:
    """Short and long requests, little between."""
    rng = random.Random(1)
    return Traffic.of(
        [max(1, int(rng.gauss(*rng.choice(((128, 20), (1500, 200)))))) for _ in range(calls)],
        ("length",),
    )


def heavy_tail(calls: int) -> Traffic:
    """Mostly short requests, a few very long ones."""
    rng = random.Random(2)
    return Traffic.of(
        [min(32_768, int(64 * rng.paretovariate(1.1))) for _ in range(calls)], ("length",)
    )


def correlated(calls: int) -> Traffic:
    """Long requests come in small batches."""
    rng = random.Random(3)
    lengths = [min(2048, max(8, int(rng.lognormvariate(5, 1)))) for _ in range(calls)]
    return Traffic.of(
        [(max(1, min(16, 2048 // n - rng.randint(0, 2))), n) for n in lengths], ("batch", "length")
    )


FAMILIES: Mapping[str, Callable[[int], Traffic]] = {
    "azure": lambda calls: azure(),
    "log-normal": lognormal,
    "bimodal": bimodal,
    "heavy tail": heavy_tail,
    "correlated": correlated,
}
"""By name: so many calls (Azure's are as many as were recorded)."""
