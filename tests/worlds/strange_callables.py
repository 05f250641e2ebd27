"""Functions and modules of unusual kinds: right, or refused with an error of ours (class 9 of issue
8).
"""

from __future__ import annotations

import copy
import functools
import pickle
from typing import Any

import torch
import torch._dynamo
import torch.nn.functional as F
from torch import nn

import symshape
from tests.worlds.world import Call, World, on, values, world

STRANGE = "9 crashes"
GRAD = Call(lambda: (values(2, 3).requires_grad_(),))


def _by_torch(fn: Any) -> Any:
    # it knows the code of a world that was lived before, whose names are gone
    torch._dynamo.reset()
    return torch.compile(fn, backend="eager")


def _linear() -> nn.Linear:
    made = nn.Linear(3, 3)
    with torch.no_grad():
        made.weight.copy_(values(3, 3))
    return made


@world(STRANGE)
def script_module() -> World:
    return World(torch.jit.script(_linear()), [on(2, 3), on(4, 3)])


@world(STRANGE)
def script_module_inside() -> World:
    m = torch.jit.script(_linear())
    return World(lambda x: m(x) + 1, [on(2, 3), on(4, 3)])


@world(STRANGE)
def module_of_jit_trace() -> World:
    return World(torch.jit.trace(_linear(), values(2, 3)), [on(2, 3), on(4, 3)])


@world(STRANGE)
def script_function_inside() -> World:
    @torch.jit.script
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    return World(lambda x: double(x) + 1, [on(2, 3), on(4, 3)])


@world(STRANGE)
def compiled_by_torch_module() -> World:
    return World(_by_torch(_linear()), [on(2, 3), on(4, 3)])


@world(STRANGE)
def compiled_by_torch_function() -> World:
    return World(_by_torch(lambda x: x * x.shape[0]), [on(2, 3), on(4, 3)])


@world(STRANGE)
def compiled_by_torch_inside() -> World:
    m = _by_torch(_linear())
    return World(lambda x: m(x) + 1, [on(2, 3), on(4, 3)])


@world(STRANGE)
def module_that_compiles_itself() -> World:
    torch._dynamo.reset()
    m = _linear()
    m.compile(backend="eager")
    return World(m, [on(2, 3), on(4, 3)])


@world(STRANGE)
def compiled_by_us_inside() -> World:
    m = symshape.compile(_linear())
    return World(lambda x: m(x) + 1, [on(2, 3), on(4, 3)])


def _vmapped(fn: Any, randomness: str) -> World:
    return World(lambda x: torch.vmap(fn, randomness=randomness)(x), [on(2, 3), on(2, 3), on(4, 3)])


@world(STRANGE)
def vmap_draws_different_numbers() -> World:
    return _vmapped(lambda y: y + torch.rand(3), "different")


@world(STRANGE)
def vmap_draws_the_same_numbers() -> World:
    return _vmapped(lambda y: y + torch.rand(3), "same")


@world(STRANGE)
def vmap_may_not_draw() -> World:
    return _vmapped(lambda y: y + torch.rand(3), "error")


@world(STRANGE)
def vmap_of_dropout() -> World:
    return _vmapped(lambda y: F.dropout(y, 0.5), "different")


@world(STRANGE)
def vmap_of_dropout_alike() -> World:
    return _vmapped(lambda y: F.dropout(y, 0.5), "same")


@world(STRANGE)
def vmap_draws_like() -> World:
    return _vmapped(torch.randn_like, "different")


@world(STRANGE)
def lazy_linear() -> World:
    return World(nn.LazyLinear(4), [on(2, 3), on(4, 3)])


@world(STRANGE)
def lazy_modules_inside() -> World:
    return World(nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d()), [on(2, 3), on(4, 3)])


@world(STRANGE)
def roll_of_an_empty_batch_in_channels_last() -> World:
    def at(n: int) -> Call:
        return Call(lambda: (values(n, 3, 2, 2).contiguous(memory_format=torch.channels_last),))

    return World(lambda x: torch.roll(x, 1, 2), [at(0), at(2), at(0), at(3)])


@world(STRANGE)
def deep_copy_of_a_compiled_module() -> World:
    m = copy.deepcopy(symshape.compile(_linear()))
    return World(lambda x: m(x), [on(2, 3), lambda: m.fn.weight.data.zero_(), on(2, 3)])


@world(STRANGE)
def pickle_of_a_compiled_module() -> World:
    m = pickle.loads(pickle.dumps(symshape.compile(_linear())))
    return World(lambda x: m(x), [on(2, 3), on(4, 3)])


@world(STRANGE)
def deep_copy_of_a_holder() -> World:
    class Holder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = symshape.compile(_linear())

        def forward(self, x: Any) -> Any:
            return self.inner(x) * 2

    held = Holder()
    held(values(2, 3))
    return World(copy.deepcopy(held), [on(2, 3), on(4, 3)])


@world(STRANGE)
def partial_of_a_partial() -> World:
    return World(
        functools.partial(functools.partial(torch.add, alpha=2), values(3)), [on(3), on(2, 3)]
    )


@world(STRANGE)
def bound_method_of_a_tensor() -> World:
    w = values(2, 3)
    return World(w.add, [on(2, 3), on(1, 3)])


@world(STRANGE)
def generator_function() -> World:
    def fn(x: Any) -> Any:
        yield x * 2

    return World(fn, [on(3)], view=lambda results: [list(each) for each in results[-1:]])


@world(STRANGE)
def detached_and_told_to_require_gradients() -> World:
    return World(lambda x: x.detach().requires_grad_(), [on(2, 3), GRAD])


@world(STRANGE)
def view_detached_and_told_to_require_gradients() -> World:
    def fn(x: Any) -> Any:
        y = x.view(-1).detach()
        y.requires_grad = True
        return y

    return World(fn, [on(2, 3), GRAD])


@world(STRANGE)
def views_without_gradients() -> World:
    def fn(x: Any) -> Any:
        with torch.no_grad():
            return x.view(-1), x.detach(), x.data, x[0], x

    return World(fn, [on(2, 3), GRAD, on(4, 3)])
