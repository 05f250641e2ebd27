"""Exchanges of what a call dispatches through: classes, dictionaries, methods of ``nn.Module``,
parts of partials.
"""

from __future__ import annotations

import collections
import functools
import types
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.worlds.world import World, on, put, values, world

DISPATCH = "1 what calls dispatch through"
CALLS = [on(2, 3), on(4, 3)]


class _Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(values(3))
        self.k = 2.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight * self.k


class _Shifted(_Scaled):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.k


def _plus_one(call: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, *args, **kwargs: call(self, *args, **kwargs) + 1


def _changed(
    fn: Any, change: Callable[[], object], undo: Callable[[], object] | None = None
) -> World:
    return World(fn, [*CALLS, change, *CALLS], undo=undo)


def _of_module(name: str, value: Any) -> World:
    """A name of ``nn.Module`` gets another value; its undo puts back what stood there."""
    before = nn.Module.__dict__.get(name)

    def undo() -> None:
        if before is not None:
            setattr(nn.Module, name, before)
        elif name in nn.Module.__dict__:
            delattr(nn.Module, name)

    return _changed(
        nn.Sequential(nn.LeakyReLU(0.1), _Scaled()), put(nn.Module, **{name: value}), undo
    )


# -- classes and dictionaries of objects
@world(DISPATCH)
def class_of_a_module_of_torch() -> World:
    m = nn.Sequential(nn.GELU(), _Scaled())
    return _changed(m, put(m[0], __class__=nn.ReLU))


@world(DISPATCH)
def class_of_the_root() -> World:
    class Other(nn.Sequential):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x - 1

    m = nn.Sequential(nn.GELU(), _Scaled())
    return _changed(m, put(m, __class__=Other))


@world(DISPATCH)
def class_of_a_module_list() -> World:
    class Other(nn.ModuleList):
        def __getitem__(self, index: Any) -> Any:
            return nn.ReLU()

    kept = nn.ModuleList([_Scaled()])
    return _changed(lambda x: kept[0](x), put(kept, __class__=Other))


@world(DISPATCH)
def class_of_a_parametrization() -> World:
    class Times(nn.Module):
        def forward(self, weight: torch.Tensor) -> torch.Tensor:
            return weight * 2

    class Plus(nn.Module):
        def forward(self, weight: torch.Tensor) -> torch.Tensor:
            return weight + 1

    m = _Scaled()
    nn.utils.parametrize.register_parametrization(m, "weight", Times())
    return _changed(m, put(m.parametrizations.weight[0], __class__=Plus))  # type: ignore[union-attr,index]


@world(DISPATCH)
def class_of_a_distribution() -> World:
    class Other(torch.distributions.Normal):
        def log_prob(self, value: torch.Tensor) -> torch.Tensor:
            return value

    d = torch.distributions.Normal(torch.zeros(3), torch.ones(3))
    return _changed(lambda x: d.log_prob(x), put(d, __class__=Other))


@world(DISPATCH)
def class_of_a_dictionary_of_python() -> World:
    class Other(collections.UserDict[str, float]):
        def __getitem__(self, key: str) -> float:
            return 5.0

    d = collections.UserDict(a=2.0)
    return _changed(lambda x: x * d["a"], put(d, __class__=Other))


@world(DISPATCH)
def class_of_a_parameter() -> World:
    class Other(nn.Parameter):
        @classmethod
        def __torch_function__(
            cls, func: Any, kinds: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            with torch._C.DisableTorchFunctionSubclass():
                found = func(*args, **(kwargs or {}))
                return found * 0 if func is F.linear else found

    m = nn.Linear(3, 3)
    with torch.no_grad():
        m.weight.copy_(values(3, 3))
        m.bias.zero_()
    return _changed(m, put(m.weight, __class__=Other))


@world(DISPATCH)
def class_of_a_class() -> World:
    class Meta(type):
        k = property(lambda cls: 2.0)

    class Other(type):
        k = property(lambda cls: 5.0)

    class Holder(metaclass=Meta):
        pass

    return _changed(lambda x: x * Holder.k, put(Holder, __class__=Other))


@world(DISPATCH)
def class_of_a_python_module() -> World:
    class Other(types.ModuleType):
        k = property(lambda module: 5.0)

    holder: Any = types.ModuleType("a_holder")
    holder.k = 2.0
    return _changed(lambda x: x * holder.k, put(holder, __class__=Other))


@world(DISPATCH)
def dictionary_of_a_module_of_torch() -> World:
    m = nn.Sequential(nn.LeakyReLU(0.1))
    return _changed(m, lambda: setattr(m[0], "__dict__", m[0].__dict__ | {"negative_slope": 7.0}))


@world(DISPATCH)
def dictionary_of_a_module_with_other_parameters() -> World:
    m = nn.Sequential(nn.Linear(3, 3))
    with torch.no_grad():
        m[0].weight.copy_(values(3, 3))
        m[0].bias.zero_()

    def change() -> None:
        others = {name: nn.Parameter(each.detach() * 2) for name, each in m[0]._parameters.items()}  # type: ignore[union-attr]
        m[0].__dict__ = m[0].__dict__ | {"_parameters": others}

    return _changed(m, change)


@world(DISPATCH)
def table_of_parameters() -> World:
    m = nn.Sequential(_Scaled())
    return _changed(m, put(m[0], _parameters={"weight": nn.Parameter(values(3) * 3)}))


@world(DISPATCH)
def table_of_submodules() -> World:
    m = nn.Sequential(nn.Sequential(_Scaled()))
    return _changed(m, put(m[0], _modules={"0": nn.ReLU()}))


@world(DISPATCH)
def table_of_hooks() -> World:
    m = nn.Sequential(_Scaled())
    hooks = collections.OrderedDict({1: lambda module, args, result: result + 1})
    return _changed(m, put(m[0], _forward_hooks=hooks))


@world(DISPATCH)
def state_of_a_module_set() -> World:
    m, other = nn.Sequential(_Scaled()), _Scaled()
    other.k = 5.0
    return _changed(m, lambda: m[0].__setstate__(dict(vars(other))))


@world(DISPATCH)
def dictionary_of_a_distribution() -> World:
    d = torch.distributions.Normal(torch.zeros(3), torch.ones(3), validate_args=False)
    return _changed(
        lambda x: d.log_prob(x), lambda: setattr(d, "__dict__", vars(d) | {"loc": torch.ones(3)})
    )


@world(DISPATCH)
def dictionary_of_an_optimizer() -> World:
    p = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([p], lr=0.1)

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        (p * x).sum().backward()
        optimizer.step()
        return p.detach().clone()

    def change() -> None:
        groups = [optimizer.param_groups[0] | {"lr": 0.5}]
        optimizer.__dict__ = vars(optimizer) | {"param_groups": groups}

    return _changed(step, change)


@world(DISPATCH)
def dictionary_of_a_tensor() -> World:
    w: Any = torch.ones(3)
    w.k = 2.0
    return _changed(lambda x: x * w.k, put(w, __dict__={"k": 5.0}))


@world(DISPATCH)
def dictionary_of_a_function() -> World:
    def f(x: torch.Tensor) -> Any:
        return x * f.k  # type: ignore[attr-defined]

    f.k = 2.0  # type: ignore[attr-defined]
    return _changed(lambda x: f(x), put(f, __dict__={"k": 5.0}))


# -- what nn.Module calls
@world(DISPATCH)
def call_impl_of_nn_module() -> World:
    return _of_module("_call_impl", _plus_one(nn.Module._call_impl))


@world(DISPATCH)
def call_of_nn_module() -> World:
    return _of_module("__call__", _plus_one(nn.Module.__call__))


@world(DISPATCH)
def getattr_of_nn_module() -> World:
    before = nn.Module.__getattr__
    return _of_module(
        "__getattr__",
        lambda self, name: before(self, name) * 2 if name == "weight" else before(self, name),
    )


@world(DISPATCH)
def getattribute_of_nn_module() -> World:
    def found(self: Any, name: str) -> Any:
        value = object.__getattribute__(self, name)
        return value * 2 if name == "negative_slope" else value

    return _of_module("__getattribute__", found)


@world(DISPATCH)
def call_impl_of_a_class_of_torch() -> World:
    m = nn.Sequential(nn.ReLU())
    change = put(nn.ReLU, _call_impl=_plus_one(nn.Module._call_impl))
    return _changed(
        m, change, lambda: "_call_impl" in vars(nn.ReLU) and delattr(nn.ReLU, "_call_impl")
    )


@world(DISPATCH)
def call_impl_of_a_class() -> World:
    class Mine(nn.ReLU):
        pass

    return _changed(nn.Sequential(Mine()), put(Mine, _call_impl=_plus_one(nn.Module._call_impl)))


@world(DISPATCH)
def call_impl_of_an_object() -> World:
    m = nn.Sequential(_Scaled())
    return _changed(m, put(m[0], _call_impl=lambda *args: m[0].forward(*args) + 1))


@world(DISPATCH)
def code_of_call_impl() -> World:
    before = nn.Module._call_impl.__code__
    other = (lambda self, *args, **kwargs: self.forward(*args, **kwargs) + 1).__code__
    undo = put(nn.Module._call_impl, __code__=before)
    return _changed(nn.Sequential(_Scaled()), put(nn.Module._call_impl, __code__=other), undo)


@world(DISPATCH)
def code_of_a_forward_of_torch() -> World:
    before, other = nn.GELU.forward.__code__, (lambda self, x: x + 1).__code__
    undo = put(nn.GELU.forward, __code__=before)
    return _changed(nn.Sequential(nn.GELU()), put(nn.GELU.forward, __code__=other), undo)


# -- the parts of partials and descriptors
def _partial(
    parts: tuple[Any, ...], function: Callable[..., Any], *args: Any, **kwargs: Any
) -> World:
    p = functools.partial(function, *args, **kwargs)
    return _changed(lambda x: p(x), lambda: p.__setstate__(parts))


@world(DISPATCH)
def function_of_a_partial() -> World:
    return _partial((torch.neg, (), {}, None), torch.relu)


@world(DISPATCH)
def function_of_a_partial_of_python() -> World:
    return _partial((lambda x: x * 3, (), {}, None), lambda x: x * 2)


@world(DISPATCH)
def arguments_of_a_partial() -> World:
    return _partial((torch.mul, (4.0,), {}, None), torch.mul, 3.0)


@world(DISPATCH)
def keywords_of_a_partial() -> World:
    return _partial((torch.add, (), {"other": 5.0}, None), torch.add, other=2.0)


@world(DISPATCH)
def partial_that_is_compiled() -> World:
    p = functools.partial(torch.relu)
    return _changed(p, lambda: p.__setstate__((torch.neg, (), {}, None)))


@world(DISPATCH)
def function_of_a_partial_method() -> World:
    class Holder:
        def f(self, x: torch.Tensor, k: float) -> torch.Tensor:
            return x * k

        g = functools.partialmethod(f, k=2.0)

    a = Holder()
    return _changed(lambda x: a.g(x), put(vars(Holder)["g"], func=lambda self, x, k: x + k))


@world(DISPATCH)
def keywords_of_a_partial_method() -> World:
    class Holder:
        def f(self, x: torch.Tensor, k: float) -> torch.Tensor:
            return x * k

        g = functools.partialmethod(f, k=2.0)

    a = Holder()
    return _changed(lambda x: a.g(x), put(vars(Holder)["g"], keywords={"k": 5.0}))


@world(DISPATCH)
def dispatcher_of_a_method() -> World:
    class Holder:
        @functools.singledispatchmethod
        def f(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    a = Holder()
    other = functools.singledispatch(lambda self, x: x + 1)
    return _changed(lambda x: a.f(x), put(vars(Holder)["f"], dispatcher=other))


@world(DISPATCH)
def function_of_a_cached_property() -> World:
    class Holder:
        @functools.cached_property
        def k(self) -> float:
            return 2.0

    return _changed(lambda x: x * Holder().k, put(vars(Holder)["k"], func=lambda self: 5.0))


@world(DISPATCH)
def function_of_a_static_method() -> World:
    class Holder:
        @staticmethod
        def f(x: torch.Tensor) -> torch.Tensor:
            return F.relu(x)

    return _changed(lambda x: Holder.f(x), lambda: vars(Holder)["f"].__init__(lambda x: x + 1))


@world(DISPATCH)
def getter_of_a_property() -> World:
    class Holder:
        @property
        def k(self) -> float:
            return 2.0

    a = Holder()
    return _changed(lambda x: x * a.k, lambda: vars(Holder)["k"].__init__(lambda self: 5.0))
