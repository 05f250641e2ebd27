"""Objects among the arguments, and numbers that modules keep."""

from __future__ import annotations

import collections
import dataclasses
import types

import attrs
import torch
from torch import Tensor, nn

from tests.symshape.everyday.whole.program import whole


@dataclasses.dataclass
class Batch:
    x: Tensor
    mask: Tensor
    k: int = 2


@dataclasses.dataclass(frozen=True)
class Conf:
    scale: float
    heads: int


@dataclasses.dataclass
class Nested:
    batch: Batch
    conf: Conf
    extra: dict
    name: str = "n"


@whole
def dataclass_argument():
    l = nn.Linear(8, 8)
    return (
        lambda b: (l(b.x) * b.mask[..., None]).sum(1) * b.k,
        lambda b, n: (Batch(torch.randn(b, n, 8), torch.rand(b, n)),),
    )


@whole
def dataclass_nested():

    def run(s):
        return s.batch.x * s.conf.scale * s.batch.k + s.extra["bias"] + (1 if s.name == "n" else 2)

    return (
        run,
        lambda b, n: (
            Nested(
                Batch(torch.randn(b, n), torch.rand(b, n)), Conf(0.5, 2), {"bias": torch.randn(n)}
            ),
        ),
    )


@whole
def dataclass_written():

    def run(b):
        b.x = b.x * 2
        b.k += 1
        return b.x.sum() * b.k

    return (run, lambda b, n: (Batch(torch.randn(b, n), torch.rand(b, n)),))


@whole
def dataclass_returned():

    def run(b):
        return Batch(b.x * 2, b.mask, b.k + 1)

    return (run, lambda b, n: (Batch(torch.randn(b, n), torch.rand(b, n)),))


@whole
def dataclass_replaced():

    def run(b):
        return dataclasses.replace(b, x=b.x * 2)

    return (run, lambda b, n: (Batch(torch.randn(b, n), torch.rand(b, n)),))


@whole
def simple_namespace():
    return (
        lambda s: s.x * s.scale + s.n,
        lambda b, n: (types.SimpleNamespace(x=torch.randn(b, n), scale=2.0, n=n),),
    )


class Obj:
    def __init__(self, x, n):
        self.x, self.n = (x, n)

    def doubled(self):
        return self.x * 2

    @property
    def size(self):
        return self.x.size(0)


@whole
def plain_object():
    return (lambda o: o.doubled() * o.n + o.size, lambda b, n: (Obj(torch.randn(b, n), 3),))


class Slotted:
    __slots__ = ("n", "x")

    def __init__(self, x, n):
        self.x, self.n = (x, n)


@whole
def slotted_object():
    return (lambda o: o.x * o.n, lambda b, n: (Slotted(torch.randn(b, n), 3),))


@attrs.define
class At:
    x: Tensor
    k: int


@whole
def attrs_argument():
    return (lambda o: o.x * o.k, lambda b, n: (At(torch.randn(b, n), 3),))


@whole
def named_tuple_argument():
    NT = collections.namedtuple("NT", "x k")
    return (lambda o: NT(o.x * o.k, o.k + 1), lambda b, n: (NT(torch.randn(b, n), 3),))


@whole
def model_output_argument():
    from transformers.modeling_outputs import BaseModelOutput

    return (
        lambda o: o.last_hidden_state * 2 + (0 if o.hidden_states is None else 1),
        lambda b, n: (BaseModelOutput(last_hidden_state=torch.randn(b, n, 4)),),
    )


@whole
def lora_scale():

    class L(nn.Module):
        def __init__(self):
            super().__init__()
            self.b, self.u, self.d = (
                nn.Linear(8, 8),
                nn.Linear(8, 2, bias=False),
                nn.Linear(2, 8, bias=False),
            )
            self.lora_scale = 1.0

        def forward(self, x):
            return self.b(x) + self.lora_scale * self.d(self.u(x))

    net = L()
    it = [1.0, 0.5, 0.25, 0.75, 0.1, 0.3]
    st = {"i": 0}

    def make(b, n):
        net.lora_scale = it[st["i"] % 6]
        st["i"] += 1
        return (torch.randn(b, 8),)

    return (net, make)
