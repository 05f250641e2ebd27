"""Memory of an optimizer, kept and during a step: measured on tensors without data, for any
optimizer.

A copy of the optimizer over ``meta`` tensors takes a step, so nothing is computed and nothing large
is allocated.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import torch
from torch.optim.optimizer import Optimizer

from symshape.cost.live_bytes import LiveBytes
from symshape.errors import InputError

MakeOptimizer = Callable[[list[torch.Tensor]], Optimizer]

OPTIMIZERS: Mapping[str, MakeOptimizer] = {
    "adamw": torch.optim.AdamW,
    "adam": torch.optim.Adam,
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
}
"""The optimizers that users may name; ``momentum`` is SGD with momentum."""

_FOREACH_DEVICES = ("cuda", "xpu", "mtia", "privateuseone")
"""Device types on which torch's optimizers use foreach kernels by default (torch 2.11 to 2.13)."""

_REFUSED = ("fused", "capturable")
"""Options that torch's optimizers refuse for meta tensors."""


@attrs.frozen
class OptimizerMemory:
    """Bytes of an optimizer, on the device of its parameters.

    Attributes:
        name: the optimizer's class.
        state: what it keeps from one step to the next.
        transient: the most that a step needs besides parameters, gradients and state.
        first: the requests of the first step: the number of each storage with its bytes, and with 0
            when it is freed.
        later: the requests of each later step.
    """

    name: str
    state: int
    transient: int
    first: tuple[tuple[int, int], ...] = attrs.field(default=(), repr=False, eq=False)
    later: tuple[tuple[int, int], ...] = attrs.field(default=(), repr=False, eq=False)


def optimizer_of(
    optimizer: Optimizer | MakeOptimizer, parameters: Sequence[torch.Tensor]
) -> Optimizer:
    """Return the optimizer itself, or the one that is made for the parameters.

    Raises:
        InputError: it is neither an optimizer nor makes one.
    """
    found: object = optimizer
    if not isinstance(optimizer, Optimizer) and callable(optimizer):
        found = optimizer(list(parameters))
    if not isinstance(found, Optimizer):
        raise InputError(
            f"optimizer={optimizer!r} must be a torch.optim.Optimizer, or a function that makes "
            "one of a list of parameters, such as torch.optim.AdamW"
        )
    return found


def parameters_of(optimizer: Optimizer) -> list[torch.Tensor]:
    """Return the parameters that an optimizer updates, in its order."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def optimizer_memory(optimizer: Optimizer, alignment: int = 1) -> OptimizerMemory:
    """Measure the memory that an optimizer keeps, and that its step needs.

    Each allocation is rounded up to ``alignment`` bytes. The optimizer is not changed.

    >>> import torch
    >>> weights = [torch.ones(1000, requires_grad=True), torch.ones(20, 50, requires_grad=True)]
    >>> optimizer_memory(torch.optim.SGD(weights, lr=0.1, momentum=0.9))
    OptimizerMemory(name='SGD', state=8000, transient=0)

    Raises:
        InputError: its step cannot be taken without data.
    """
    name = type(optimizer).__name__
    stand_in, stands_for = _without_data(optimizer)
    groups = optimizer.param_groups
    fused = any(group.get("fused") for group in groups)
    numbers_too = fused or any(group.get("capturable") for group in groups)

    def counted(storage: torch.UntypedStorage) -> int:
        # the number of the step, which is on the CPU then
        if storage.device.type != "meta" and not numbers_too:
            return 0
        return -(-storage.nbytes() // alignment) * alignment

    held = [*stands_for, *(each.grad for each in stands_for if each.grad is not None)]
    try:
        with LiveBytes(held, counted) as first:
            stand_in.step()
        begun = tuple(first.changes)
        state = _state_bytes(stand_in, counted)
        with LiveBytes([*held, *_tensors(stand_in)], counted) as second:
            stand_in.step()
        again = tuple(second.changes)
    except (RuntimeError, TypeError, NotImplementedError) as error:
        raise InputError(
            f"a step of {name} cannot be run without data ({error}); leave optimizer=… out, and "
            "subtract the optimizer's state from the budget"
        ) from None
    before = sum(
        counted(storage)
        for storage in {t.untyped_storage()._cdata: t.untyped_storage() for t in held}.values()
    )
    most = max(first.peak, second.peak) - before - state
    if fused:
        begun, again = _lasting(begun), _lasting(again)
    return OptimizerMemory(name, state, 0 if fused else max(0, most), begun, again)


def _lasting(changes: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return the requests without those that are freed again."""
    freed = {number for number, size in changes if not size}
    return tuple(each for each in changes if each[0] not in freed)


def _without_data(optimizer: Optimizer) -> tuple[Optimizer, list[torch.Tensor]]:
    """Return a copy over meta tensors with gradients, which steps as the original does; and its
    parameters.
    """
    memo: dict[int, Any] = {}
    parameters: list[torch.Tensor] = []
    for parameter in parameters_of(optimizer):
        found = torch.empty_like(parameter, device="meta").requires_grad_(parameter.requires_grad)
        found.grad = torch.empty_like(found) if parameter.requires_grad else None
        memo[id(parameter)] = found
        parameters.append(found)
    for tensor in _tensors(optimizer):
        number = tensor.dim() == 0  # of the step, which is read while it is taken
        memo[id(tensor)] = (
            torch.ones((), dtype=tensor.dtype)
            if number
            else torch.empty_like(tensor, device="meta")
        )
    kinds = {parameter.device.type for parameter in parameters_of(optimizer)}
    groups = optimizer.param_groups
    refused = [{name: group[name] for name in _REFUSED if group.get(name)} for group in groups]
    try:
        # refused already when it is copied
        for group, taken_out in zip(groups, refused, strict=True):
            group.update(dict.fromkeys(taken_out, False))
        stand_in = copy.deepcopy(optimizer, memo)
    finally:
        for group, taken_out in zip(groups, refused, strict=True):
            group.update(taken_out)
    for group, taken_out in zip(stand_in.param_groups, refused, strict=True):
        at_once = group.get("foreach") is None and kinds <= set(_FOREACH_DEVICES)
        if "foreach" in group and ("fused" in taken_out or at_once):
            group["foreach"] = True
    return stand_in, parameters


def _tensors(optimizer: Optimizer) -> Iterator[torch.Tensor]:
    """Yield the tensors that an optimizer keeps."""
    for state in optimizer.state.values():
        yield from (value for value in state.values() if isinstance(value, torch.Tensor))


def _state_bytes(optimizer: Optimizer, counted: Callable[[torch.UntypedStorage], int]) -> int:
    storages = {
        tensor.untyped_storage()._cdata: tensor.untyped_storage() for tensor in _tensors(optimizer)
    }
    return sum(map(counted, storages.values()))
