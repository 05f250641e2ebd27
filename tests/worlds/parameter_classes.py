"""Parameters of classes of the user's own: with attributes and methods, which change between
calls.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.worlds.world import World, on, put, values, world

CLASSES = "18 classes of parameters"
ON = on(3)
ROWS = [on(n, 3) for n in (2, 4, 5, 2)]


def _own() -> type[Any]:
    """A class of its own for each world."""

    class Weight(nn.Parameter):
        scale = 2.0

        @property
        def rows(self) -> int:
            return self.shape[0]

        def load(self, value: torch.Tensor) -> None:
            self.data.copy_(value)

        def applied(self, x: torch.Tensor) -> Any:
            return x * self

    return Weight


@world(CLASSES)
def in_a_module() -> World:
    kind, layer = _own(), nn.Linear(3, 3)
    layer.weight = kind(layer.weight.detach())
    return World(layer, [*ROWS, lambda: layer.weight.load(torch.ones(3, 3)), *ROWS])


@world(CLASSES)
def exchanged_for_a_plain_one_and_back() -> World:
    kind, layer = _own(), nn.Linear(3, 3)
    layer.weight = kind(values(3, 3))
    plain, other = nn.Parameter(values(3, 3) * 2), kind(values(3, 3) * 3)
    return World(layer, [*ROWS, put(layer, weight=plain), *ROWS, put(layer, weight=other), *ROWS])


@world(CLASSES)
def trained() -> World:
    kind, layer = _own(), nn.Linear(3, 1)
    layer.weight = kind(values(1, 3))
    optimiser = torch.optim.SGD(layer.parameters(), 0.1, momentum=0.9)

    def fn(x: Any) -> Any:
        optimiser.zero_grad()
        loss = F.mse_loss(layer(x), x[:, :1])
        loss.backward()
        optimiser.step()
        return loss.detach()

    return World(fn, ROWS, lambda: (layer, optimiser.state_dict()["state"]))


@world(CLASSES)
def attribute_of_the_class() -> World:
    kind = _own()
    w = kind(values(3))
    return World(lambda x: x * w.scale + w.rows, [ON, put(kind, scale=5.0), ON, ON])


@world(CLASSES)
def attribute_of_the_parameter() -> World:
    w = _own()(values(3))
    return World(
        lambda x: x * w.scale, [ON, put(w, scale=5.0), ON, lambda: delattr(w, "scale"), ON]
    )


@world(CLASSES)
def method_exchanged() -> World:
    kind = _own()
    w = kind(values(3))
    return World(lambda x: w.applied(x), [ON, put(kind, applied=lambda self, x: x + self), ON])


@world(CLASSES)
def method_of_a_class_between() -> World:
    kind = _own()
    below = type("Below", (kind,), {})
    w = below(values(3))
    return World(lambda x: w.applied(x), [ON, put(below, applied=lambda self, x: x - self), ON])


@world(CLASSES)
def operator_learnt() -> World:
    kind = _own()
    w = kind(values(3))
    return World(lambda x: w * x, [ON, put(kind, __mul__=lambda self, x: torch.add(self, x)), ON])


@world(CLASSES)
def property_of_tensors_learnt() -> World:
    kind = _own()
    w = kind(values(2, 3))
    return World(
        lambda x: w.mT @ x[:2], [ON, put(kind, mT=property(lambda self: self.detach().t() * 2)), ON]
    )


@world(CLASSES)
def answers_for_functions_from_then_on() -> World:
    kind = _own()
    w = kind(values(3))

    def learnt(_: Any, function: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            made = function(*args, **(kwargs or {}))
            return made + 1 if function is torch.mul else made

    return World(
        lambda x: torch.mul(x, w).detach(),
        [ON, put(kind, __torch_function__=classmethod(learnt)), ON],
    )


@world(CLASSES)
def returned_itself() -> World:
    w = _own()(values(3, 3))
    return World(
        lambda x: (w, w.T, isinstance(w, nn.Parameter), type(w).__name__, x * w), ROWS[:1] * 2
    )


@world(CLASSES)
def written_to() -> World:
    w = _own()(values(3))

    def fn(x: Any) -> Any:
        with torch.no_grad():
            w.mul_(0.5)
            w[0] = x[0, 0]
        return x * w

    return World(fn, ROWS, lambda: w)
