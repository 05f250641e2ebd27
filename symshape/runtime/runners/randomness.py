"""The programs and calls that need eager's random numbers: checkpoints draw forward's numbers again
in backward.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from types import CodeType, FrameType

from torch.autograd import Function

from symshape.graph.program import Program
from symshape.graph.steps import COLLECTIVES, Node, Step
from symshape.options import Options
from symshape.torch_internals.autograd import current_node, top_saving_hooks
from symshape.tracing.autograd.checkpoint_rng import keeps_state

__all__ = ["draws_any", "repeats_draws"]

_OWN = ("torch._functorch", "symshape")
"""The packages whose autograd functions never run forward twice."""
_MOST_KNOWN = 65536

_known: dict[int, tuple[CodeType, bool]] = {}
"""For code that was seen in a frame, by its id: the code, and whether it is the forward of an
autograd function.
"""


def draws_any(program: Program, options: Options) -> bool:
    """Return whether padded programs may draw other numbers than eager.

    False where the same numbers are needed twice, from one state at capacities that may differ: for
    a program that sets the state of a generator back, and for one that exchanges tensors with other
    processes, which may have to drop the same elements.
    """
    return options.randomness == "any" and not any(map(_needs_eagers, program.graph.steps))


def _needs_eagers(step: Step) -> bool:
    exchanges = isinstance(step, Node) and getattr(step.op, "namespace", "") == COLLECTIVES
    return exchanges or keeps_state(step)


def repeats_draws() -> bool:
    """Return whether this call may run twice from the same random state: a checkpoint's forward, or
    its recomputation.

    Saved-tensor hooks mark checkpoints that are not reentrant.  Reentrant ones, of any library, run
    inside the forward of an autograd function, and again in its backward.
    """
    if top_saving_hooks(True) is not None:
        return True
    node = current_node()
    if node is not None and not _is_own(getattr(type(node), "_forward_cls", object)):
        return True
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        known = _known.get(id(code))
        if _is_forward(code) if known is None else known[1]:
            return True
        frame = frame.f_back
    return False


def _is_forward(code: CodeType) -> bool:
    """Return whether code is the forward of an autograd function that is not ours, and remember the
    answer.
    """
    found = any(code is getattr(each, "__code__", None) for each in _forwards(Function))
    if len(_known) >= _MOST_KNOWN:
        _known.clear()
    _known[id(code)] = code, found
    return found


def _is_own(kind: type) -> bool:
    """Return whether a class is of one of ``_OWN``: its autograd functions never run forward
    twice.
    """
    return f"{kind.__module__}.".startswith(tuple(f"{each}." for each in _OWN))


def _forwards(of: type) -> Iterator[object]:
    """Yield the forward of each autograd function that is not ours."""
    subclasses: list[type] = type.__subclasses__(of)
    for each in subclasses:
        if not _is_own(each):
            forward = inspect.getattr_static(each, "forward", None)
            yield getattr(forward, "__func__", forward)
        yield from _forwards(each)
