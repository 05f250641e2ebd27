"""Functions, modules and hooks that change between calls (class 1 of issue 8)."""

from __future__ import annotations

import functools
import operator
import types
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrize

from tests.worlds.world import Call, World, item, module, on, put, values, world

STATE = "1 functions, modules, hooks"
ON = on(3)


class _Act(nn.Module):
    def __init__(self, act: Any = F.relu) -> None:
        super().__init__()
        self.act = act

    def forward(self, x: torch.Tensor) -> Any:
        return self.act(x)


def _fresh() -> type[_Act]:
    """A class of its own for each world, so that patching it stays there."""

    class Fresh(_Act):
        def helper(self, x: torch.Tensor) -> Any:
            return x * 2

        def forward(self, x: torch.Tensor) -> Any:
            return self.act(self.helper(x))

    return Fresh


@world(STATE)
def function_in_module_attribute() -> World:
    m = _Act()
    return World(m, [ON, put(m, act=torch.tanh), ON])


@world(STATE)
def builtin_in_module_attribute() -> World:
    class M(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return self.op(x, 2.0)

    m = M()
    m.op = operator.add
    return World(m, [ON, put(m, op=operator.sub), ON])


@world(STATE)
def function_in_global() -> World:
    m = module("ACT = F.relu\ndef fn(x): return ACT(x)")
    return World(m.fn, [ON, put(m, ACT=torch.tanh), ON])


@world(STATE)
def builtin_in_global() -> World:
    m = module("PICK = max\ndef fn(x): return x * PICK(2, 3)")
    return World(m.fn, [ON, put(m, PICK=min), ON])


@world(STATE)
def function_in_closure() -> World:
    act = F.relu

    def change() -> None:
        nonlocal act
        act = torch.tanh

    return World(lambda x: act(x), [ON, change, ON])


@world(STATE)
def function_two_closures_deep() -> World:
    act: Any = F.relu

    def outer() -> Any:
        def inner(x: torch.Tensor) -> Any:
            return act(x)

        return inner

    def change() -> None:
        nonlocal act
        act = torch.tanh

    made = outer()
    return World(lambda x: made(x) + 1, [ON, change, ON])


@world(STATE)
def function_in_dispatch_table() -> World:
    table = {"act": F.relu}
    return World(lambda x: table["act"](x), [ON, item(table, "act", torch.tanh), ON])


@world(STATE)
def function_in_list() -> World:
    acts = [F.relu, torch.sigmoid]
    return World(lambda x: acts[0](x), [ON, item(acts, 0, torch.tanh), ON])


@world(STATE)
def function_in_tuple_in_list() -> World:
    acts = [(F.relu, 1)]

    def fn(x: torch.Tensor) -> Any:
        for act, _ in acts:
            x = act(x)
        return x

    return World(fn, [ON, item(acts, 0, (torch.tanh, 1)), ON])


@world(STATE)
def forward_patched_on_instance() -> World:
    m = _fresh()()
    return World(
        m, [ON, lambda: setattr(m, "forward", types.MethodType(lambda self, x: x * 5, m)), ON]
    )


@world(STATE)
def forward_of_child_patched_on_instance() -> World:
    m = nn.Sequential(_fresh()())
    return World(m, [ON, lambda: setattr(m[0], "forward", lambda x: x * 5), ON])


@world(STATE)
def forward_patched_on_class() -> World:
    kind = _fresh()
    return World(kind(), [ON, put(kind, forward=lambda self, x: x * 5), ON])


@world(STATE)
def forward_of_child_patched_on_class() -> World:
    kind = _fresh()
    return World(nn.Sequential(kind()), [ON, put(kind, forward=lambda self, x: x * 5), ON])


@world(STATE)
def call_patched_on_module_class() -> World:
    kind = _fresh()
    inner = kind()
    return World(lambda x: inner(x), [ON, put(kind, __call__=lambda self, x: x * 5), ON])


@world(STATE)
def helper_method_patched_on_class() -> World:
    kind = _fresh()
    return World(kind(), [ON, put(kind, helper=lambda self, x: x * 5), ON])


@world(STATE)
def helper_method_patched_on_instance() -> World:
    m = _fresh()()
    return World(m, [ON, put(m, helper=lambda x: x * 5), ON])


@world(STATE)
def method_overridden_in_subclass_later() -> World:
    class Base:
        def scale(self, x: Any) -> Any:
            return x * 2

    class Derived(Base):
        pass

    d = Derived()
    return World(
        lambda x: d.scale(x), [ON, lambda: setattr(Derived, "scale", lambda self, x: x * 3), ON]
    )


@world(STATE)
def library_forward_patched_on_instance() -> World:
    m = nn.Sequential(nn.ReLU())
    return World(m, [ON, lambda: setattr(m[0], "forward", torch.tanh), ON])


@world(STATE)
def forward_hook_added() -> World:
    m = _Act()
    return World(m, [ON, lambda: m.register_forward_hook(lambda mod, args, out: out + 1), ON])


@world(STATE)
def forward_pre_hook_added_to_child() -> World:
    m = nn.Sequential(nn.ReLU(), nn.Tanh())
    return World(
        m, [ON, lambda: m[1].register_forward_pre_hook(lambda mod, args: (args[0] + 1,)), ON]
    )


@world(STATE)
def hook_replaced() -> World:
    m = _Act()
    handle = [m.register_forward_hook(lambda mod, args, out: out + 1)]

    def change() -> None:
        handle[0].remove()
        m.register_forward_hook(lambda mod, args, out: out - 1)

    return World(m, [ON, change, ON])


@world(STATE)
def hook_reads_closure() -> World:
    m, by = _Act(), [2.0]
    m.register_forward_hook(lambda mod, args, out: out * by[0])
    return World(m, [ON, item(by, 0, 3.0), ON])


@world(STATE)
def hook_reads_global() -> World:
    m, source = _Act(), module("BY = 2.0\ndef hook(mod, args, out): return out * BY")
    m.register_forward_hook(source.hook)
    return World(m, [ON, put(source, BY=3.0), ON])


@world(STATE)
def hook_object_with_state() -> World:
    class Hook:
        by = 2.0

        def __call__(self, mod: Any, args: Any, out: Any) -> Any:
            return out * self.by

    m, hook = nn.Sequential(nn.ReLU()), Hook()
    m[0].register_forward_hook(hook)
    return World(m, [ON, put(hook, by=3.0), ON])


@world(STATE)
def hook_of_child_reads_module_attribute() -> World:
    m = nn.Sequential(nn.ReLU())
    m.by = 2.0
    m[0].register_forward_hook(lambda mod, args, out: out * m.by)
    return World(lambda x: m[0](x), [ON, put(m, by=3.0), ON])


@world(STATE)
def global_forward_hook_added() -> World:
    m = _Act()
    register = nn.modules.module.register_module_forward_hook
    return World(m, [ON, lambda: register(lambda mod, args, out: out + 1), ON])


@world(STATE)
def global_forward_pre_hook_added() -> World:
    m = nn.Sequential(nn.ReLU())
    register = nn.modules.module.register_module_forward_pre_hook
    return World(m, [ON, lambda: register(lambda mod, args: (args[0] + 1,)), ON])


@world(STATE)
def global_hook_reads_closure() -> World:
    m, by = nn.Linear(3, 3), [2.0]
    nn.modules.module.register_module_forward_hook(lambda mod, args, out: out * by[0])
    return World(m, [ON, item(by, 0, 3.0), ON])


@world(STATE)
def tensor_hook_on_parameter() -> World:
    w = nn.Parameter(values(3))

    def fn(x: torch.Tensor) -> Any:
        return torch.autograd.grad((w * x).sum(), w)[0]

    return World(fn, [ON, lambda: w.register_hook(lambda g: g * 2), ON])


@world(STATE)
def hook_on_an_argument() -> World:
    def hooked() -> tuple[Any, ...]:
        x = values(3).requires_grad_()
        x.register_hook(lambda g: g * 2)
        return (x,)

    def fn(x: torch.Tensor) -> Any:
        return torch.autograd.grad((x * x).sum(), x)[0]

    return World(fn, [on(3, grad=True), Call(hooked), on(3, grad=True)])


@world(STATE)
def state_dict_hook_is_no_reason_to_fail() -> World:
    m = _Act()
    return World(m, [ON, lambda: m.register_load_state_dict_post_hook(lambda *_: None), ON])


@world(STATE)
def defaults_of_the_function() -> World:
    m = module("def fn(x, k=2): return x * k")
    return World(m.fn, [ON, put(m.fn, __defaults__=(3,)), ON])


@world(STATE)
def defaults_of_a_helper() -> World:
    m = module("def by(x, k=2): return x * k\ndef fn(x): return by(x)")
    return World(m.fn, [ON, put(m.by, __defaults__=(3,)), ON])


@world(STATE)
def keyword_defaults_of_a_helper() -> World:
    m = module("def by(x, *, k=2): return x * k\ndef fn(x): return by(x)")
    return World(m.fn, [ON, put(m.by, __kwdefaults__={"k": 3}), ON])


@world(STATE)
def mutable_default_changed() -> World:
    m = module("def fn(x, ks=[2]): return x * ks[0]")
    return World(m.fn, [ON, lambda: item(m.fn.__defaults__[0], 0, 3)(), ON])


@world(STATE)
def code_of_the_function() -> World:
    m = module("def other(x): return x * 3\ndef fn(x): return x * 2")
    return World(m.fn, [ON, put(m.fn, __code__=m.other.__code__), ON])


@world(STATE)
def code_of_a_helper() -> World:
    m = module("def other(x): return x * 3\ndef by(x): return x * 2\ndef fn(x): return by(x)")
    return World(m.fn, [ON, put(m.by, __code__=m.other.__code__), ON])


@world(STATE)
def attribute_of_a_helper_function() -> World:
    m = module("def by(x): return x * by.k\nby.k = 2\ndef fn(x): return by(x)")
    return World(m.fn, [ON, put(m.by, k=3), ON])


@world(STATE)
def attribute_of_the_function_itself() -> World:
    m = module("def fn(x): return x * fn.k\nfn.k = 2")
    return World(m.fn, [ON, put(m.fn, k=3), ON])


@world(STATE)
def keywords_of_a_partial() -> World:
    by = functools.partial(lambda x, k: x * k, k=2)
    return World(lambda x: by(x), [ON, lambda: by.keywords.update(k=3), ON])


@world(STATE)
def keywords_of_the_partial_itself() -> World:
    by = functools.partial(lambda x, k: x * k, k=2)
    return World(by, [ON, lambda: by.keywords.update(k=3), ON])


@world(STATE)
def partial_in_global_replaced() -> World:
    m = module("def by(x, k): return x * k\ndef fn(x): return P(x)", P=None)
    m.P = functools.partial(m.by, k=2)
    return World(m.fn, [ON, lambda: setattr(m, "P", functools.partial(m.by, k=3)), ON])


@world(STATE)
def partial_holds_a_list() -> World:
    ks = [2]
    by = functools.partial(lambda ks, x: x * ks[0], ks)
    return World(by, [ON, item(ks, 0, 3), ON])


@world(STATE)
def class_based_decorator() -> World:
    class Scaled:
        def __init__(self, fn: Any) -> None:
            self.fn, self.k = fn, 2

        def __call__(self, x: Any) -> Any:
            return self.fn(x) * self.k

    made = Scaled(lambda x: x + 1)
    return World(lambda x: made(x), [ON, put(made, k=3), ON])


@world(STATE)
def decorator_with_a_switch() -> World:
    switch = {"on": True}

    def decorated(fn: Any) -> Any:
        @functools.wraps(fn)
        def wrapper(x: Any) -> Any:
            return fn(x) if switch["on"] else x

        return wrapper

    return World(decorated(lambda x: x * 2), [ON, item(switch, "on", False), ON])


@world(STATE)
def singledispatch_gains_an_implementation() -> World:
    @functools.singledispatch
    def by(x: Any) -> Any:
        return x * 2

    return World(lambda x: by(x), [ON, lambda: by.register(torch.Tensor, lambda x: x * 3), ON])


@world(STATE)
def bound_method_of_another_object() -> World:
    class Other:
        k = 2

        def by(self, x: Any) -> Any:
            return x * self.k

    other = Other()
    by = other.by
    return World(lambda x: by(x), [ON, put(other, k=3), ON])


@world(STATE)
def builtin_bound_method_in_global() -> World:
    table = {"k": 2}
    get = table.get
    return World(lambda x: x * get("k"), [ON, item(table, "k", 3), ON])


@world(STATE)
def static_method_replaced() -> World:
    class C:
        @staticmethod
        def by(x: Any) -> Any:
            return x * 2

    return World(
        lambda x: C.by(x), [ON, lambda: setattr(C, "by", staticmethod(lambda x: x * 3)), ON]
    )


@world(STATE)
def class_method_reads_its_class() -> World:
    class C:
        k = 2

        @classmethod
        def by(cls, x: Any) -> Any:
            return x * cls.k

    c = C()
    return World(lambda x: c.by(x), [ON, put(C, k=3), ON])


@world(STATE)
def memoised_helper_cleared() -> World:
    k = [2]

    @functools.lru_cache
    def factor() -> int:
        return k[0]

    def change() -> None:
        k[0] = 3
        factor.cache_clear()

    return World(lambda x: x * factor(), [ON, change, ON])


@world(STATE)
def mode_of_a_library_module() -> World:
    m = nn.Upsample(scale_factor=2, mode="nearest")
    return World(m, [on(1, 1, 3), put(m, mode="linear"), on(1, 1, 3)])


@world(STATE)
def eps_of_a_library_module() -> World:
    m = nn.LayerNorm(3)
    return World(m, [ON, put(m, eps=0.5), ON])


@world(STATE)
def shape_of_a_library_module() -> World:
    m = nn.LayerNorm(3, elementwise_affine=False)
    return World(m, [on(1, 3), put(m, normalized_shape=(1, 3)), on(2, 1, 3)])


@world(STATE)
def private_attribute_of_a_library_module() -> World:
    m = nn.Conv1d(1, 1, 1, padding=1, padding_mode="circular")
    return World(m, [on(1, 1, 4), put(m, _reversed_padding_repeated_twice=[2, 2]), on(1, 1, 4)])


@world(STATE)
def flag_of_batch_norm() -> World:
    m = nn.BatchNorm1d(3)
    return World(m, [on(4, 3), put(m, momentum=0.5), on(4, 3)], lambda: m.running_mean)


@world(STATE)
def parametrization_registered() -> World:
    m = nn.Linear(3, 3)

    class Double(nn.Module):
        def forward(self, w: torch.Tensor) -> torch.Tensor:
            return w * 2

    return World(m, [ON, lambda: parametrize.register_parametrization(m, "weight", Double()), ON])


@world(STATE)
def state_of_a_parametrization() -> World:
    class By(nn.Module):
        k = 2.0

        def forward(self, w: torch.Tensor) -> torch.Tensor:
            return w * self.k

    m, by = nn.Linear(3, 3), By()
    parametrize.register_parametrization(m, "weight", by)
    return World(m, [ON, put(by, k=3.0), ON])


@world(STATE)
def child_replaced_in_sequential() -> World:
    m = nn.Sequential(nn.ReLU(), nn.Tanh())
    return World(m, [ON, lambda: item(m, 0, nn.Sigmoid())(), ON])


@world(STATE)
def child_appended_to_list() -> World:
    m = nn.ModuleList([nn.ReLU()])

    def fn(x: torch.Tensor) -> Any:
        for each in m:
            x = each(x)
        return x

    return World(fn, [ON, lambda: m.append(nn.Tanh()), ON])


@world(STATE)
def modules_in_a_plain_list() -> World:
    class M(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return self.parts[0](x)

    m = M()
    m.parts = [nn.ReLU()]
    return World(m, [ON, lambda: item(m.parts, 0, nn.Tanh())(), ON])


@world(STATE)
def class_of_a_module_assigned() -> World:
    class Other(_Act):
        def forward(self, x: torch.Tensor) -> Any:
            return x * 5

    m = _Act()
    return World(m, [ON, put(m, __class__=Other), ON])


@world(STATE)
def attribute_of_a_parameter() -> World:
    w = nn.Parameter(values(3))
    w.k = 2
    return World(lambda x: x * w * w.k, [ON, put(w, k=3), ON])


@world(STATE)
def attribute_of_a_buffer_appears() -> World:
    m = nn.BatchNorm1d(3, affine=False)

    def fn(x: torch.Tensor) -> Any:
        return x * getattr(m.running_mean, "k", 2)

    return World(fn, [ON, lambda: setattr(m.running_mean, "k", 3), ON])


@world(STATE)
def gradient_of_a_parameter_read() -> World:
    w = nn.Parameter(values(3))

    def fn(x: torch.Tensor) -> Any:
        return x if w.grad is None else x + w.grad

    return World(fn, [ON, lambda: setattr(w, "grad", torch.ones(3)), ON])


@world(STATE)
def requires_grad_of_a_parameter_read() -> World:
    w = nn.Parameter(values(3))
    return World(
        lambda x: x * (2 if w.requires_grad else 3), [ON, lambda: w.requires_grad_(False), ON]
    )


@world(STATE)
def flags_of_torch_read() -> World:
    def fn(x: torch.Tensor) -> Any:
        return x * (2 if torch.are_deterministic_algorithms_enabled() else 3)

    return World(fn, [ON, lambda: torch.use_deterministic_algorithms(True), ON])


@world(STATE)
def number_of_threads_read() -> World:
    return World(lambda x: x * torch.get_num_threads(), [ON, lambda: torch.set_num_threads(3), ON])


@world(STATE)
def torch_backend_flag_read() -> World:
    before = torch.backends.cudnn.benchmark
    return World(
        lambda x: x * (2 if torch.backends.cudnn.benchmark else 3),
        [
            ON,
            lambda: torch._C._set_cudnn_benchmark(not before),
            ON,
        ],  # torch's own test helpers forbid the property
        undo=lambda: torch._C._set_cudnn_benchmark(before),
    )


@world(STATE)
def anomaly_mode_read() -> World:
    return World(
        lambda x: x * (2 if torch.is_anomaly_enabled() else 3),
        [ON, lambda: torch.autograd.set_detect_anomaly(True), ON],
        undo=lambda: torch.autograd.set_detect_anomaly(False),
    )


@world(STATE)
def default_dtype_changed() -> World:
    return World(
        lambda x: torch.zeros(3) + 1, [ON, lambda: torch.set_default_dtype(torch.float64), ON]
    )


@world(STATE)
def custom_autograd_function_patched() -> World:
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
            return g * 2

    def change() -> None:
        Twice.forward = staticmethod(lambda ctx, x: x * 3)

    return World(lambda x: Twice.apply(x), [ON, change, ON])
