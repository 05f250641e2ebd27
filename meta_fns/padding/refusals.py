"""Why an op cannot be padded."""

from __future__ import annotations

from meta_fns.core.sizes import Size
from meta_fns.errors import MetaError

__all__ = ["Refuse"]


class Refuse(MetaError):
    """This op, called like this, is not known to be right on padded tensors: the exact size is the
    answer.

    A rule raises it, or answers it in the place of one of its results: whoever reads that result is
    refused.

    Attributes:
        remedy: what would make it possible, in words; empty where nothing is known that would.
        sizes: the padded sizes that it concerns; empty for all of those that the op sees.
    """

    def __init__(self, message: str, *sizes: Size, remedy: str = "") -> None:
        super().__init__(message)
        self.remedy = remedy
        self.sizes = sizes
