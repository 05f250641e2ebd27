"""Handmade lists of caps: geometric ones, and the sizes that vLLM captures."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["geometric", "like_vllm", "thinned"]


def geometric(least: int, greatest: int, count: int) -> tuple[int, ...]:
    """Return at most ``count`` caps from ``least`` to ``greatest``, in a geometric sequence.

    >>> geometric(1, 64, 4)
    (1, 4, 16, 64)
    """
    if count == 1 or least >= greatest:
        return (greatest,)
    least = max(least, 1)
    ratio = (greatest / least) ** (1 / (count - 1))
    found = {min(greatest, -int(-least * ratio**step // 1)) for step in range(count - 1)} | {greatest}
    return tuple(sorted(found))


def like_vllm(greatest: int) -> tuple[int, ...]:
    """Return the sizes that vLLM captures by default, up to ``greatest``: 1, 2, 4, every 8 up to 256, then every 16.

    >>> like_vllm(40)
    (1, 2, 4, 8, 16, 24, 32, 40)
    """
    steps = (1, 2, 4, *range(8, min(greatest, 256) + 1, 8), *range(272, greatest + 1, 16))
    return tuple(sorted({*(step for step in steps if step <= greatest), greatest}))


def thinned(caps: Sequence[int], count: int) -> tuple[int, ...]:
    """Return ``count`` of the caps, evenly spread, the last one among them.

    >>> thinned((1, 2, 4, 8, 16, 24), 3)
    (2, 8, 24)
    """
    if count >= len(caps):
        return tuple(caps)
    return tuple(caps[-(-(step * len(caps)) // count) - 1] for step in range(1, count + 1))
