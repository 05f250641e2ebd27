"""``symshape.trace_training``: forward, loss and backward as one program, and the memory of a
training step.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import attrs
import torch
from torch.optim.optimizer import Optimizer

from guards.terms import arithmetic
from symshape.calls.policies import Dynamic
from symshape.cost.liveness import GRADIENTS, OPTIMIZER, moments, storage_bytes
from symshape.cost.optimizers import MakeOptimizer, optimizer_memory, optimizer_of, parameters_of
from symshape.cost.peak_memory import PeakMemory, rounding
from symshape.errors import InputError
from symshape.frontends.trace import Traced, check_call, trace
from symshape.graph.program import Program
from symshape.graph.steps import values_in
from symshape.options import Options

Loss = Callable[[Any], torch.Tensor]


class TracedTraining(Traced):
    """A traced training step: the loss and the gradients of the parameters, with the optimizer's
    state.

    Attributes:
        optimizer: the optimizer whose state and step count in the memory; None for none.
        accumulated: gradients stay from one step to the next, and are added to.
    """

    def __init__(
        self,
        traced: Traced,
        optimizer: Optimizer | None,
        accumulated: bool,
        module: torch.nn.Module | None = None,
    ) -> None:
        super().__init__(traced._fn, traced.program)
        self._module = module or traced._module
        self.optimizer = optimizer
        self.accumulated = accumulated

    def peak_memory(self, *, schedule: str = "eager", alignment: int | None = None) -> PeakMemory:
        """Return the peak memory of a training step, in bytes, as a formula of its sizes.

        It counts parameters, inputs, tensors saved for backward, gradients, the optimizer's state
        and its step.

        Args:
            schedule: ``eager``: tensors live as long as the step's own variables and autograd hold
                them; ``graph``: they are freed after their last use, as a compiled step does.
            alignment: allocations are rounded up to a multiple of this, as an allocator does
                (CUDA's: 512).

        Raises:
            InputError: the alignment is not a positive integer, there is no such schedule, or the
                optimizer's step cannot be taken without data.
        """
        return _training_memory(
            self.program,
            self.optimizer,
            accumulated=self.accumulated,
            schedule=schedule,
            alignment=alignment,
        )


def trace_training(
    fn: Callable[..., Any],
    *args: Any,
    loss: Loss | None = None,
    optimizer: Optimizer | MakeOptimizer | None = None,
    parameters: Iterable[torch.Tensor] | None = None,
    accumulated: bool = False,
    dynamic: Dynamic = None,
    options: Options | None = None,
    **kwargs: Any,
) -> TracedTraining:
    """Trace a training step: forward, loss and backward; nothing is computed, and no gradient is
    written.

    Args:
        fn: a module, or a function that runs one.
        *args: an example call.
        loss: computes the loss from the result.  Without it the result is the loss, or has it as
            ``.loss``.
        optimizer: an optimizer, or a function that makes one (such as ``torch.optim.AdamW``); its
            state and its step count in the memory.
        parameters: the tensors to differentiate.  Without them the optimizer's, or the module's
            that require gradients.
        accumulated: whether gradients stay from one step to the next (gradient accumulation),
            instead of being set to None.
        dynamic: as for :func:`symshape.trace`.
        options: as for :func:`symshape.trace`.
        **kwargs: the example call's keyword arguments.

    The optimizer's step counts as code that follows in the same function, while that function's
    variables live.

    Raises:
        InputError: there is no loss or no parameter, or as :func:`symshape.trace` says; so do its
            other errors.

    >>> import torch, symshape
    >>> model = torch.nn.Linear(8, 1)
    >>> step = symshape.trace_training(
    ...     model,
    ...     torch.ones(4, 8),
    ...     loss=torch.mean,
    ...     optimizer=torch.optim.AdamW,
    ...     dynamic={"input": {0: "batch"}},
    ... )
    >>> at = step.peak_memory().at(batch=1000)
    >>> (
    ...     at.parameters,
    ...     at.gradients,
    ...     at.optimizer,
    ...     at.total == step.peak_memory().total.at(batch=1000),
    ... )
    (36, 36, 72, True)
    """
    if not callable(fn):
        raise InputError(
            f"symshape.trace_training needs a function or a module, not a {type(fn).__name__}"
        )
    check_call(fn, args, kwargs)
    wanted = _parameters(fn, optimizer, parameters)
    found = None if optimizer is None else optimizer_of(optimizer, wanted)
    with torch.enable_grad():
        return TracedTraining(
            trace(_step(fn, loss, wanted), *args, dynamic=dynamic, options=options, **kwargs),
            found,
            accumulated,
            fn if isinstance(fn, torch.nn.Module) else None,
        )


def _parameters(
    fn: Callable[..., Any], optimizer: Any, parameters: Iterable[torch.Tensor] | None
) -> list[torch.Tensor]:
    """Return the tensors whose gradients are made, each once.

    Raises:
        InputError: there is none.
    """
    if parameters is not None:
        given: Iterable[torch.Tensor] = parameters
    elif isinstance(optimizer, Optimizer):
        given = parameters_of(optimizer)
    else:
        given = fn.parameters() if isinstance(fn, torch.nn.Module) else ()
    found = list({id(each): each for each in given if each.requires_grad}.values())
    if not found:
        raise InputError(
            "there is no parameter to train: pass parameters=model.parameters(), or an optimizer "
            "of them (only parameters that require gradients count)"
        )
    return found


def _step(
    fn: Callable[..., Any], loss: Loss | None, parameters: list[torch.Tensor]
) -> Callable[..., Any]:
    """Return the step as a function with the name and parameters of ``fn``."""

    def step(*args: Any, **kwargs: Any) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        result = fn(*args, **kwargs)
        found = loss_of(result) if loss is None else _single(loss(result))
        gradients = torch.autograd.grad(found, parameters, allow_unused=True)
        return found.detach(), gradients

    target: Any = fn.forward if isinstance(fn, torch.nn.Module) else fn
    step.__signature__ = inspect.signature(target)  # type: ignore[attr-defined]
    step.__name__ = step.__qualname__ = getattr(fn, "__name__", type(fn).__name__)
    return step


def _single(found: Any) -> torch.Tensor:
    if not isinstance(found, torch.Tensor) or any(size != 1 for size in found.shape):
        what = _described(found, found)
        raise InputError(
            f"loss=… returns {what}, which is not one number; pass a function that returns a "
            "scalar, such as loss=torch.mean"
        )
    return found


def _described(found: Any, result: Any) -> str:
    return (
        f"a tensor of {found.dim()} dimensions"
        if isinstance(found, torch.Tensor)
        else type(result).__name__
    )


def loss_of(
    result: Any, advice: str = "pass loss=…, a function that computes one from the result"
) -> torch.Tensor:
    """Return the loss that a result is, or has as ``.loss``.

    Raises:
        InputError: it is none; the message ends with the advice.
    """
    found = result if isinstance(result, torch.Tensor) else getattr(result, "loss", None)
    if not isinstance(found, torch.Tensor) or found.dim():
        what = _described(found, result)
        raise InputError(
            f"the result ({what}) is not a scalar loss and has no attribute .loss; {advice}"
        )
    return found


def _training_memory(
    program: Program,
    optimizer: Optimizer | None,
    *,
    accumulated: bool,
    schedule: str,
    alignment: int | None,
) -> PeakMemory:
    """Return the peak of a program that returns a loss and gradients, followed by the optimizer's
    step.

    Args:
        program: forward and backward.
        optimizer: whose state is there from the start, and whose step comes last; None for none.
        accumulated: gradients are there from the start, and what backward makes is added to them.
        schedule: who holds tensors, as for :class:`PeakMemory`.
        alignment: allocations are rounded up to a multiple of this.

    Raises:
        InputError: the alignment or the schedule is malformed, or the optimizer's memory cannot be
            known.
    """
    rounded = rounding(alignment, schedule)
    results = list(values_in(program.graph.outputs))
    gradients = results[1:]
    found = list(moments(program.graph, rounded, schedule, gradients, accumulated=accumulated))
    if accumulated:
        storages = {id(each.storage): each for each in gradients}
        there = arithmetic.total(rounded(storage_bytes(each)) for each in storages.values())
        found = [each.plus(GRADIENTS, there) for each in found]
    if optimizer is not None:
        memory = optimizer_memory(optimizer, alignment or 1)
        found = [each.plus(OPTIMIZER, memory.state) for each in found]
        last = found[-1].plus(OPTIMIZER, memory.transient)
        found.append(attrs.evolve(last, node=None, place=f"{memory.name}.step()"))
    return PeakMemory.among(program, found)
