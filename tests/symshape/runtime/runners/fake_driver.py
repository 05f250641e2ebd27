"""A graph on the CPU whose nodes copy, behind functions like the CUDA driver's: what is set is done
at each replay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from ctypes import CFUNCTYPE, POINTER, c_int, c_uint, c_void_p, cast, memmove
from typing import Any

import torch

from symshape.runtime.runners.cuda import launch
from symshape.runtime.runners.cuda.capture import Inside, Recording
from symshape.runtime.runners.cuda.copies_in_graph import Copied

_SET = CFUNCTYPE(c_int, c_void_p, c_void_p, POINTER(Copied), c_void_p)
_ENABLE = CFUNCTYPE(c_int, c_void_p, c_void_p, c_uint)
_LAUNCH = CFUNCTYPE(c_int, c_void_p, c_void_p)


class FakeGraph:
    """Copies to its buffers, runs a program, and copies from its results.

    Args:
        run: the program.
        buffers: what inputs are copied to.
        results: what is copied from, of what the program answered first.
        refuses: whether the driver refuses to set the copy of so many bytes.
        outputs: what the program answered first; each replay writes there.

    Attributes:
        tensors: these outputs.
        copies: what C++ sets the nodes by.
        done: how many copies the replays have made.
        told: how often a node was set, and how often one was turned on or off.
    """

    def __init__(
        self,
        run: Callable[[], Sequence[Any]],
        buffers: Iterable[torch.Tensor],
        results: Iterable[torch.Tensor],
        refuses: Callable[[int], bool] = lambda size: False,
        outputs: Sequence[Any] = (),
    ) -> None:
        self._run = run
        self.tensors = list(outputs)
        self.done, self.told = 0, [0, 0]
        self._before, self._after = (
            [each.data_ptr() for each in buffers],
            [each.data_ptr() for each in results],
        )
        self._set: dict[int, tuple[int, int, int]] = {}
        self._on: dict[int, bool] = {}
        self._nodes = tuple(range(100, 100 + len(self._before) + len(self._after)))
        functions = _driver(self._set, self._on, self.told, refuses)
        addresses = [cast(each, c_void_p).value for each in functions]
        places = (*self._before, *self._after)
        self.copies: Any = launch.COPIES(functions, *addresses, 1, 2, self._nodes, places, -1)

    def replay(self) -> None:
        """What one launch does."""
        first = len(self._before)
        self._copy(self._nodes[:first], self._before, to=True)
        for kept, new in zip(self.tensors, self._run(), strict=True):
            if isinstance(kept, torch.Tensor) and kept is not new:
                kept.copy_(new)
        self._copy(self._nodes[first:], self._after, to=False)

    def _copy(self, nodes: Iterable[int], addresses: Sequence[int], *, to: bool) -> None:
        for node, address in zip(nodes, addresses, strict=True):
            if self._on[node]:
                target, source, size = self._set[node]
                assert address == (target if to else source)
                memmove(target, source, size)
                self.done += 1


def _driver(
    placed: dict[int, tuple[int, int, int]],
    turned: dict[int, bool],
    told: list[int],
    refuses: Callable[[int], bool],
) -> tuple[Any, ...]:
    """The functions, which note what they were told; they hold nothing else alive."""

    def setting(executable: int, node: int, copied: Any, context: int) -> int:
        what = copied.contents
        told[0] += 1
        if (executable, context, what.height, what.depth) != (1, 2, 1, 1) or refuses(what.width):
            return 1
        placed[node] = (what.target.address, what.source.address, what.width)
        return 0

    def enabling(executable: int, node: int, on: int) -> int:
        told[1] += 1
        turned[node] = bool(on)
        return 0

    return _SET(setting), _ENABLE(enabling), _LAUNCH(lambda executable, stream: 1)


def captured_with_copies(refuses: Callable[[int], bool] = lambda size: False) -> Any:
    """In place of ``captured``: as on a device whose graphs make the copies."""

    def captured(
        run: Callable[[], Sequence[Any]],
        device: Any,
        pool: Any,
        *,
        inside: Inside | None = None,
        **more: bool,
    ) -> Recording:
        if inside is None or launch.COPIES is None:
            return Recording(run)
        tensors = [each.clone() if isinstance(each, torch.Tensor) else each for each in run()]
        graph = FakeGraph(run, inside.buffers, inside.results(tensors), refuses, tensors)

        def replay() -> Sequence[Any]:
            graph.copies.turn_off()
            graph.replay()
            return tensors

        return Recording(replay, None, graph.replay, tensors, graph.copies)

    return captured
