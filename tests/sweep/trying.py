"""Tries architectures, several at once where that is wanted: processes of their own, which find
them by name.
"""

from __future__ import annotations

import functools
import multiprocessing
from collections.abc import Iterator, Sequence

import torch

from tests.sweep.architectures import architectures
from tests.sweep.heads import heads
from tests.sweep.judging import Architecture, Asked, Row, judge
from tests.sweep.nets import nets

_FRESH = 12  # architectures that a process tries


def every() -> Iterator[Architecture]:
    """All architectures."""
    yield from architectures()
    yield from heads()
    yield from nets()


def rows_of(name: str, ways: Sequence[str], asked: Asked) -> list[Row]:
    """One architecture in the ways that it is called; kernels of a device compute in the precision
    of the dtype.
    """
    torch.set_num_threads(1)
    if asked.device != "cpu":
        torch.backends.cudnn.allow_tf32 = False
    it = named()[name]
    rows: list[Row] = []
    for way in (*it.ways, "training"):
        if not ways or way in ways:
            rows.append(judge(it, way, asked))
            if rows[-1].outcome == "not built":
                break
    return rows


@functools.cache
def named() -> dict[str, Architecture]:
    """All architectures, by name."""
    return {each.name: each for each in every()}


def rows_of_all(
    names: Sequence[str], ways: Sequence[str], asked: Asked, jobs: int
) -> Iterator[Row]:
    """The rows of all, each as it is done; processes are made anew now and then, as a device that
    failed stays so.
    """
    work = functools.partial(rows_of, ways=ways, asked=asked)
    if jobs == 1:
        for name in names:
            yield from work(name)
        return
    with multiprocessing.get_context("spawn").Pool(jobs, maxtasksperchild=_FRESH) as pool:
        for rows in pool.imap_unordered(work, names):
            yield from rows
