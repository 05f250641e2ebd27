"""The results of a call, copied from a captured graph's static memory with the same sizes, strides
and sharing.

An output that is an input, or a view of one, is the same view of the call's own input; a parameter
is returned itself. Everything else is copied out.  Outputs that share memory, and outputs that do
not fill theirs (a slice, an expanded tensor), are views of one copy of that memory, as in eager.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from symshape.runtime.padding.result_rows import Row, again, clone, known, leaf
from symshape.runtime.runners.protocol import Unfit

Answer = Callable[[Sequence[Any], Sequence[torch.Tensor]], Any]
"""``answer(leaves, copies)`` returns one output; ``copies`` are this call's copies of shared
memory.
"""


class Outputs:
    """The flat outputs of a program; a call returns those of one replay.

    Args:
        flat: the program's outputs at capture, on static memory.
        inputs: the static input tensors by their position among the leaves.
        lifted: parameters and buffers, which are used in place.
        detached: the indices of outputs that were detached.

    Raises:
        Unfit: an output cannot be reproduced (a view of an input under another dtype).
    """

    def __init__(
        self,
        flat: Sequence[Any],
        inputs: Mapping[int, torch.Tensor],
        lifted: Sequence[torch.Tensor],
        detached: Collection[int] = (),
    ) -> None:
        self._inputs = {_storage(tensor): (position, tensor) for position, tensor in inputs.items()}
        self._lifted = {_storage(tensor) for tensor in lifted}
        self._memories: list[_Memory] = []
        self._answers: list[Answer] = []
        self._repeated: list[tuple[int, int]] = []
        first: dict[int, int] = {}
        sharing: dict[int, list[torch.Tensor]] = {}
        for output in flat:
            if isinstance(output, torch.Tensor):
                sharing.setdefault(_storage(output), []).append(output)
        memories: dict[int, int] = {}
        for position, output in enumerate(flat):
            if (
                isinstance(output, torch.Tensor)
                and first.setdefault(id(output), position) != position
            ):
                self._repeated.append((position, first[id(output)]))
                self._answers.append(partial(_known, None))
            else:
                answer = self._plan(output, sharing, memories)
                self._answers.append(partial(_cut, answer) if position in detached else answer)
        self._flat = list(flat)  # kept alive, so that ids and memory are not reused

    def let_go_of_inputs(self) -> None:
        """Drop the references to the input tensors, which are the caller's own.

        Raises:
            Unfit: an output is one of them, or a view of one.
        """
        if any(
            isinstance(output, torch.Tensor) and _storage(output) in self._inputs
            for output in self._flat
        ):
            raise Unfit("an output is a view of an input")
        self._inputs = {}

    def __call__(self, leaves: Sequence[Any]) -> list[Any]:
        """Return the outputs of a call with these leaves."""
        copies = [memory.copy() for memory in self._memories]
        found = [answer(leaves, copies) for answer in self._answers]
        for position, original in self._repeated:
            found[position] = found[original]
        return found

    def rows(self) -> tuple[Row, ...] | None:
        """Return how each output is made; None if one is a view of an input, or shares memory with
        another.
        """
        if self._memories:
            return None
        originals = dict(self._repeated)
        found: list[Row] = []
        for number, output in enumerate(self._flat):
            if number in originals:
                found.append(again(originals[number]))
            elif not isinstance(output, torch.Tensor) or _storage(output) in self._lifted:
                found.append(known(output))
            elif _storage(output) not in self._inputs:
                found.append(clone(output))
            elif output is self._inputs[_storage(output)][1]:
                found.append(leaf(self._inputs[_storage(output)][0]))
            else:
                return None
        return tuple(found)

    def _plan(
        self, output: Any, sharing: Mapping[int, list[torch.Tensor]], memories: dict[int, int]
    ) -> Answer:
        if not isinstance(output, torch.Tensor):
            return partial(_known, output)
        storage = _storage(output)
        if storage in self._lifted:
            return partial(_known, output)
        if output.is_conj() or output.is_neg():
            raise Unfit("an output is lazily conjugated or negated")
        if storage in self._inputs:
            return self._view_of_input(output, *self._inputs[storage])
        views = sharing[storage]
        if (
            all(view is output for view in views)
            and is_dense(output)
            and not output.storage_offset()
        ):
            return partial(_copied, output)
        if any(view.dtype != output.dtype for view in views):
            raise Unfit("two outputs share memory under different dtypes")
        if storage not in memories:
            memories[storage] = len(self._memories)
            self._memories.append(_Memory(views))
        return partial(
            _view_of_copy,
            memories[storage],
            output.size(),
            output.stride(),
            int(output.storage_offset()),
        )

    def _view_of_input(self, output: torch.Tensor, position: int, static: torch.Tensor) -> Answer:
        if output is static:
            return partial(_leaf, position)
        if output.dtype != static.dtype:
            raise Unfit("an output is a view of an input under another dtype")
        offset = int(output.storage_offset() - static.storage_offset())
        return partial(_view_of_leaf, position, output.size(), output.stride(), offset)


class _Memory:
    """Static memory that several outputs share, or that one does not fill; the part that they reach
    is copied.
    """

    def __init__(self, views: Sequence[torch.Tensor]) -> None:
        view = views[0]
        filled = [each for each in views if each.numel()]
        self._elements = view.untyped_storage().nbytes() // view.element_size()
        self._low = min((each.storage_offset() for each in filled), default=0)
        self._high = max((each.storage_offset() + _extent(each) for each in filled), default=0)
        self._static = view.as_strided((self._high - self._low,), (1,), self._low)

    def copy(self) -> torch.Tensor:
        """Return a copy as large as the original, in which offsets stay the same."""
        made = torch.empty(self._elements, dtype=self._static.dtype, device=self._static.device)
        made[self._low : self._high].copy_(self._static)
        return made


def _extent(tensor: torch.Tensor) -> int:
    return 1 + sum(
        (size - 1) * stride for size, stride in zip(tensor.size(), tensor.stride(), strict=True)
    )


def is_dense(tensor: torch.Tensor) -> bool:
    """Return whether a tensor's elements fill their memory, each exactly once."""
    return bool(torch.ops.aten.is_non_overlapping_and_dense(tensor))


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _cut(answer: Answer, leaves: Sequence[Any], copies: Sequence[torch.Tensor]) -> Any:
    return answer(leaves, copies).detach()


def _known(output: Any, leaves: Sequence[Any], copies: Sequence[torch.Tensor]) -> Any:
    return output


def _copied(
    output: torch.Tensor, leaves: Sequence[Any], copies: Sequence[torch.Tensor]
) -> torch.Tensor:
    return output.clone()


def _leaf(position: int, leaves: Sequence[Any], copies: Sequence[torch.Tensor]) -> Any:
    return leaves[position]


def _view_of_leaf(
    position: int,
    size: Any,
    stride: Any,
    offset: int,
    leaves: Sequence[Any],
    copies: Sequence[torch.Tensor],
) -> torch.Tensor:
    leaf: torch.Tensor = leaves[position]
    return leaf.as_strided(size, stride, leaf.storage_offset() + offset)


def _view_of_copy(
    number: int,
    size: Any,
    stride: Any,
    offset: int,
    leaves: Sequence[Any],
    copies: Sequence[torch.Tensor],
) -> torch.Tensor:
    return copies[number].as_strided(size, stride, offset)
