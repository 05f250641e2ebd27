"""Recorded traffic as a stream of shapes: requests, put together into batches as a server would.

>>> requests = bundled_requests(3)
>>> [request.context_tokens for request in requests]
[374, 396, 879]
>>> [str(batch) for batch in batches(requests, window_s=0.5)]
['1 x 374', '2 x 879']
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from datetime import datetime
from importlib import resources

import attrs

from symshape.errors import InputError

SAMPLE = "azure_llm_conversation_sample.csv"
ATTRIBUTION = (
    "Azure Public Dataset (Microsoft, CC-BY 4.0), LLM inference trace, conversation, 2023-11-16"
)


@attrs.frozen
class Request:
    """One request: its arrival time (seconds after the first), and the lengths of prompt and answer
    (tokens).
    """

    arrival_s: float
    context_tokens: int
    generated_tokens: int


@attrs.frozen
class Batch:
    """Requests served together: the length of each, in order of arrival.  Shorter ones are padded
    to the longest.
    """

    lengths: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of requests."""
        return len(self.lengths)

    @property
    def longest(self) -> int:
        """The length that all are padded to."""
        return max(self.lengths)

    def __str__(self) -> str:
        return f"{self.size} x {self.longest}"


def read_requests(lines: Iterable[str], count: int | None = None) -> tuple[Request, ...]:
    """Return the first ``count`` requests of a trace in the format of the Azure Public Dataset (CSV
    with a header).

    Raises:
        InputError: a column is missing, or a row cannot be read.
    """
    found: list[Request] = []
    first: datetime | None = None
    for number, row in enumerate(csv.DictReader(lines), 2):
        if count is not None and len(found) >= count:
            break
        try:
            # its seventh decimal is more than Python reads
            arrival = datetime.fromisoformat(row["TIMESTAMP"][:26])
            first = first or arrival
            tokens = int(row["ContextTokens"]), int(row["GeneratedTokens"])
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"line {number} of the trace cannot be read: {error!r}") from None
        found.append(Request((arrival - first).total_seconds(), *tokens))
    return tuple(found)


def bundled_requests(count: int | None = None) -> tuple[Request, ...]:
    """Return the first ``count`` requests of the sample that ships with symshape (2,000).

    See ``symshape/data/README.md``.
    """
    with resources.files("symshape.data").joinpath(SAMPLE).open(encoding="utf-8") as lines:
        return read_requests(lines, count)


def batches(
    requests: Sequence[Request], *, window_s: float, max_batch: int = 8, longest: int | None = None
) -> tuple[Batch, ...]:
    """Group requests into batches: a batch takes the requests within ``window_s`` seconds of its
    first one.

    Args:
        requests: in order of arrival.
        window_s: how long a batch stays open, in seconds.
        max_batch: a full batch is closed at once.
        longest: lengths are scaled so that the longest request has this many tokens (rounded up);
            None leaves them.

    Raises:
        InputError: a window or a bound that is not positive.
    """
    if window_s <= 0 or max_batch < 1 or (longest is not None and longest < 1):
        raise InputError(
            f"window_s={window_s}, max_batch={max_batch} and longest={longest} must be positive"
        )
    most = max((request.context_tokens for request in requests), default=0)
    groups: list[list[int]] = []
    opened = 0.0
    for request in requests:
        length = max(request.context_tokens, 1)
        if longest is not None:
            length = -(-length * longest // most) if most else 1
        if not groups or request.arrival_s - opened > window_s or len(groups[-1]) == max_batch:
            groups.append([])
            opened = request.arrival_s
        groups[-1].append(length)
    return tuple(Batch(tuple(group)) for group in groups)
