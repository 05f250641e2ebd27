"""The integers of a compiled function's calls that change between calls, and the policy of a trace
for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from guards.sets.sources import IntArg, Size, Source, StorageOffset
from symshape.calls.arguments import CONTIGUOUS, Call, LeafKey, TensorKey, sources_of
from symshape.calls.policies import Dynamic, changing_with_records, policies
from symshape.calls.variables import Gradient, OutputReference
from symshape.dims import Dim, Policy
from symshape.graph.program import Program
from symshape.runtime.variables import AskAgain, paths_of_variables

History = Mapping[Source, Any]
"""The one value of each source so far; ``_CHANGED`` for more than one."""

_CHANGED = object()


class Changing:
    """The history of the integers in one function's calls.

    Args:
        fn: the function.
        dynamic: the user's declaration of sizes.
    """

    def __init__(self, fn: Callable[..., Any], dynamic: Dynamic) -> None:
        self._fn = fn
        self._dynamic = dynamic
        self._history: History = {}
        self._parameters: set[torch.Size] = set()
        self._written: set[tuple[int | None, ...]] = set()

    def policies(
        self, call: Call, values: Sequence[int]
    ) -> tuple[dict[Source, Dim | Policy], History]:
        """Return the policies for a trace, and the history to keep if the trace succeeds.

        The integers of variables are expected to change. Tensors of a parameter's shape (gradients,
        the state of an optimizer) are expected to stay until they do change: three symbols and
        guards for each parameter would double the time of a trace.

        Raises:
            AskAgain: since the call was read, its flattening has changed: a second object of a
                class has appeared.
        """
        if len(sources_of(call)) != len(values):
            raise AskAgain
        wanted, history = self._of_arguments(call, values)
        if self._dynamic is not False:
            of_variables = paths_of_variables(call)
            kept = of_variables & self._of_parameters_shapes(call)
            for each, value in zip(sources_of(call), values, strict=True):
                if isinstance(each, (Size, IntArg)) and each.arg in of_variables:
                    if history.setdefault(each, value) != value:
                        history[each] = _CHANGED
                    if each.arg not in kept or history[each] is _CHANGED:
                        wanted.setdefault(each, Policy.AUTO)
        return wanted, history

    def learn(self, history: History, program: Program | None = None) -> None:
        """Store the history after a trace that succeeded; without a program, after a call that ran
        eagerly.
        """
        self._history = history
        if program is None:
            return
        self._parameters.update(
            each.shape for each in program.lifted_tensors if isinstance(each, torch.nn.Parameter)
        )
        places = (
            leaf.position
            for each in program.writes
            for leaf in each.leaves
            if type(leaf) is OutputReference
        )
        for spec in (getattr(program.graph.outputs[place], "spec", None) for place in places):
            pattern = tuple(
                each if isinstance(each, int) else None for each in getattr(spec, "sizes", ())
            )
            # one that fixes no size would fit each parameter
            if None in pattern and set(pattern) != {None}:
                self._written.add(pattern)

    def stay(self, gradients: Iterable[Gradient]) -> None:
        """Expect places with the shapes of these gradients to keep their sizes."""
        owners = (each.owner() for each in gradients)
        self._parameters.update(owner.shape for owner in owners if owner is not None)

    def clear(self) -> None:
        """Forget the history."""
        self._history = {}
        self._parameters.clear()
        self._written.clear()

    def _of_parameters_shapes(self, call: Call) -> set[str]:
        """Return the paths of a call's tensors with the shape of a parameter, unless a program
        writes such shapes.
        """
        pairs = zip(call.paths, call.leaves, strict=True)
        found = ((path, leaf.shape) for path, leaf in pairs if isinstance(leaf, torch.Tensor))
        return {
            path
            for path, shape in found
            if shape in self._parameters and not self._is_written(shape)
        }

    def _is_written(self, shape: torch.Size) -> bool:
        """Return whether a program writes tensors of this shape whose sizes vary."""
        return any(
            len(pattern) == len(shape)
            and all(each in (None, size) for each, size in zip(pattern, shape, strict=True))
            for pattern in self._written
        )

    def _of_arguments(
        self, call: Call, values: Sequence[int]
    ) -> tuple[dict[Source, Dim | Policy], dict[Source, Any]]:
        history: dict[Source, Any] = dict(self._history)
        if self._dynamic is not None:
            return policies(self._fn, call, self._dynamic, Policy.STATIC), history
        wanted: dict[Source, Dim | Policy] = {}
        if call.has_records:  # a cache: it grows from call to call
            wanted = dict.fromkeys(changing_with_records(call), Policy.AUTO)
        # An offset of 0 at first: a slice of a larger tensor at another place changes it.
        begin = [
            StorageOffset(path)
            for path, key in zip(call.paths, call.keys, strict=True)
            if _is_contiguous(key)
        ]
        for source, value in (
            *zip(sources_of(call), values, strict=True),
            *((each, 0) for each in begin),
        ):
            if history.setdefault(source, value) != value:
                history[source] = _CHANGED
            if history[source] is _CHANGED and source not in begin:
                wanted[source] = Policy.AUTO
        wanted.update(policies(self._fn, call, None, Policy.STATIC))
        return wanted, history


def changed_sizes(call: Call, history: History) -> tuple[int, ...]:
    """Return the places, among the integers of a call, of sizes and integer arguments that have
    changed.
    """
    return tuple(
        place
        for place, source in enumerate(sources_of(call))
        if isinstance(source, (Size, IntArg)) and history.get(source) is _CHANGED
    )


def on_device(call: Call) -> bool:
    """Return whether a tensor of a call is on a CUDA device."""
    return any(type(key) is TensorKey and key.device.type == "cuda" for key in call.keys)


def _is_contiguous(key: LeafKey) -> bool:
    return type(key) is TensorKey and key.layout is CONTIGUOUS
