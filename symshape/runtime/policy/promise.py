"""The promise on overhead: at every moment, time so far is at most a share above eager's, plus a
second.
"""

from __future__ import annotations

import attrs

__all__ = ["Promise"]

SHARE = 0.2
"""The share of eager's time that may be spent on top of it: .25 is promised, the rest is for
estimates' errors.
"""
GRACE = 900.0
"""The ms that may be spent beyond that share: the promise is a second, the rest is for estimates'
errors.
"""


@attrs.define(eq=False)
class Promise:
    """The total times of one compiled function's calls, for all its programs together.

    Attributes:
        eager: the estimated ms that eager would have taken for the calls so far.
        served: the estimated ms that the calls took as they were served.
        spent: the ms spent on making offers: traces, captures, compilations.
    """

    eager: float = 0.0
    served: float = 0.0
    spent: float = 0.0

    def clear(self) -> None:
        """Forget all calls."""
        self.eager = self.served = self.spent = 0.0

    def call(self, eager: float, served: float, times: int = 1) -> None:
        """Record similar calls: the ms that eager would have taken for one, and the ms that one
        took.
        """
        self.eager += eager * times
        self.served += served * times

    def spend(self, milliseconds: float) -> None:
        """Record the ms of making something."""
        self.spent += milliseconds

    @property
    def room(self) -> float:
        """Return the ms that may be spent now without breaking the promise; negative if it is
        broken already.
        """
        return (1 + SHARE) * self.eager + GRACE - self.served - self.spent

    @property
    def saved(self) -> float:
        """Return the ms that offers have saved so far, without the ms of making them."""
        return self.eager - self.served
