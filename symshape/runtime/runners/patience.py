"""When sizes are worth a CUDA graph of their own, if nobody asked for one."""

from __future__ import annotations

__all__ = ["Patience"]

_MOST_SIZES = 4096


class Patience:
    """Sizes whose calls have taken as long as a capture does: then it is paid for, if they go on coming.

    What a capture takes is known from the last one; before there was one, sizes that come again are worth it.  (Whoever
    waits so long never loses more than twice what knowing the future would have saved.)

    >>> patience = Patience()
    >>> patience.over((8,)), patience.over((8,))  # ms of an eager call are noted in between
    (False, True)
    >>> patience.captured(20.0); patience.over((9,)); patience.took((9,), 12.0); patience.over((9,))
    False
    False
    >>> patience.took((9,), 12.0); patience.over((9,))
    True
    """

    def __init__(self) -> None:
        self._capture: float | None = None  # ms
        self._spent: dict[tuple[int, ...], float] = {}  # ms of eager calls by their sizes

    def over(self, sizes: tuple[int, ...]) -> bool:
        """Whether a call of these sizes is to be captured."""
        spent = self._spent.get(sizes)
        if spent is None:
            if len(self._spent) >= _MOST_SIZES:
                self._spent.clear()
            self._spent[sizes] = 0.0
            return False
        return self._capture is None or spent >= self._capture

    def took(self, sizes: tuple[int, ...], milliseconds: float) -> None:
        """Notes what an eager call of these sizes took the host."""
        if sizes in self._spent:
            self._spent[sizes] += milliseconds

    def captured(self, milliseconds: float) -> None:
        """Notes what a capture took."""
        self._capture = milliseconds
