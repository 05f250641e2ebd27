"""What a stand-in for a tensor or a size is not (class 5 of issue 8)."""

from __future__ import annotations

import copy
import decimal
import fractions
import functools
import inspect
import json
import math
import operator
import pickle
import struct
import weakref
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from tests.worlds.world import Call, World, module, on, values, world

STAND_INS = "5 stand-ins"
ON = on(3)
SIZES = [on(4), on(6), on(1), on(0), on(7)]


def _size(fn: Any) -> World:
    """A program that computes with the size of its argument, called with several."""
    return World(lambda x: x.double().sum() + fn(x.shape[0]), SIZES)


def _number(fn: Any, *numbers: int) -> World:
    """A program that computes with an integer argument, called with several."""

    def call(x: Any, k: int) -> Any:
        return x.double() + fn(k)

    return World(call, [Call(lambda k=k: (values(3), k)) for k in numbers or (4, 6, 1, 0, -7)])


@world(STAND_INS)
def type_is_tensor() -> World:
    return World(lambda x: x * 2 if type(x) is torch.Tensor else x * 3, [ON, ON])


@world(STAND_INS)
def class_is_tensor() -> World:
    return World(lambda x: x * 2 if x.__class__ is torch.Tensor else x * 3, [ON, ON])


@world(STAND_INS)
def name_of_the_type() -> World:
    return World(lambda x: x * len(type(x).__name__), [ON, ON])


@world(STAND_INS)
def type_of_a_result() -> World:
    return World(lambda x: x * 2 if type(x + 1) is torch.Tensor else x * 3, [ON, ON])


@world(STAND_INS)
def exact_type_table() -> World:
    table = {torch.Tensor: 2, nn.Parameter: 3}
    return World(lambda x: x * table[type(x)], [ON, Call(lambda: (nn.Parameter(values(3)),))])


@world(STAND_INS)
def argument_is_a_parameter() -> World:
    def fn(x: Any) -> Any:
        return x * 2 if isinstance(x, nn.Parameter) else x * 3

    return World(fn, [Call(lambda: (nn.Parameter(values(3)),)), on(3, grad=True), ON])


@world(STAND_INS)
def weight_is_a_parameter() -> World:
    w = nn.Parameter(values(3))
    return World(lambda x: x * w * (2 if isinstance(w, nn.Parameter) else 3), [ON, ON])


@world(STAND_INS)
def argument_is_a_global() -> World:
    w = values(3)
    return World(lambda x: x * 2 if x is w else x * 3, [ON, Call(lambda: (w,)), ON])


@world(STAND_INS)
def argument_is_a_global_first() -> World:
    w = values(3)
    return World(lambda x: x * 2 if x is w else x * 3, [Call(lambda: (w,)), ON, Call(lambda: (w,))])


@world(STAND_INS)
def identity_of_an_argument() -> World:
    w = values(3)
    known = {id(w): 2}
    return World(lambda x: x * known.get(id(x), 3), [ON, Call(lambda: (w,)), ON])


@world(STAND_INS)
def argument_as_a_dict_key() -> World:
    w = values(3)
    known = {w: 2}
    return World(lambda x: x * known.get(x, 3), [ON, Call(lambda: (w,)), ON])


@world(STAND_INS)
def argument_in_a_weak_dictionary() -> World:
    w = values(3)
    known = torch.utils.weak.WeakTensorKeyDictionary({w: 2})
    return World(lambda x: x * known.get(x, 3), [ON, Call(lambda: (w,)), ON])


@world(STAND_INS)
def weak_reference_to_an_argument() -> World:
    return World(lambda x: x * 2 if weakref.ref(x)() is x else x * 3, [ON, ON])


@world(STAND_INS)
def argument_that_is_the_other() -> World:
    def same() -> tuple[Any, ...]:
        x = values(3)
        return x, x

    apart = Call(lambda: (values(3), values(3)))
    return World(lambda x, y: x * 2 if x is y else x * 3, [apart, Call(same), apart])


@world(STAND_INS)
def deep_copy_of_an_argument() -> World:
    def fn(x: Any) -> Any:
        y = copy.deepcopy(x)
        return y * 2, torch.autograd.grad((y * x).sum(), x)[0]

    return World(fn, [on(3, grad=True), on(3, grad=True)])


@world(STAND_INS)
def deep_copy_is_a_leaf() -> World:
    def fn(x: Any) -> Any:
        y = copy.deepcopy(x)
        return torch.autograd.grad((y * y).sum(), [y, x], allow_unused=True)

    return World(fn, [on(3, grad=True), on(3, grad=True)])


@world(STAND_INS)
def deep_copy_of_a_module() -> World:
    m = nn.Linear(3, 3)
    return World(lambda x: copy.deepcopy(m)(x), [ON, lambda: nn.init.zeros_(m.weight), ON])


@world(STAND_INS)
def shallow_copy_of_an_argument() -> World:
    def fn(x: Any) -> Any:
        copy.copy(x).add_(1)
        return x * 2

    return World(fn, [ON, ON])


@world(STAND_INS)
def conjugate_asked() -> World:
    def make(conj: bool) -> Call:
        x = values(3, dtype=torch.complex64)
        return Call(lambda: ((x.clone() * 1j).conj() if conj else x.clone() * 1j,))

    return World(lambda x: x * 2 if x.is_conj() else x * 3, [make(False), make(True), make(False)])


@world(STAND_INS)
def conjugate_resolved_and_written() -> World:
    def plain() -> tuple[Any, ...]:
        return (values(3, dtype=torch.complex64) * 1j,)

    def fn(x: Any) -> Any:
        x.resolve_conj().add_(1)
        return x * 2

    return World(fn, [Call(plain), Call(lambda: (plain()[0].conj(),)), Call(plain)])


@world(STAND_INS)
def conjugate_resolved_first() -> World:
    def plain() -> tuple[Any, ...]:
        return (values(3, dtype=torch.complex64) * 1j,)

    def fn(x: Any) -> Any:
        x.resolve_conj().add_(1)
        return x * 2

    return World(fn, [Call(lambda: (plain()[0].conj(),)), Call(plain)])


@world(STAND_INS)
def conjugate_returned() -> World:
    return World(
        lambda x: (x.conj(), x.conj().resolve_conj()),
        [Call(lambda: (values(3, dtype=torch.complex64) * 1j,))] * 2,
    )


@world(STAND_INS)
def negative_view_asked() -> World:
    def negative() -> tuple[Any, ...]:
        return ((values(3, dtype=torch.complex64) * 1j).conj().imag,)

    return World(lambda x: x * 2 if x.is_neg() else x * 3, [ON, Call(negative), ON])


@world(STAND_INS)
def negative_view_resolved_and_written() -> World:
    def negative() -> tuple[Any, ...]:
        return ((values(3, dtype=torch.complex64) * 1j).conj().imag,)

    def fn(x: Any) -> Any:
        x.resolve_neg().add_(1)
        return x * 2

    return World(fn, [ON, Call(negative), ON])


@world(STAND_INS)
def inference_tensor_asked() -> World:
    def inference() -> tuple[Any, ...]:
        with torch.inference_mode():
            return (values(3),)

    return World(lambda x: x * 2 if x.is_inference() else x * 3, [ON, Call(inference), ON])


@world(STAND_INS)
def bytes_of_an_argument() -> World:
    return World(lambda x: x.double() * x.nbytes, SIZES)


@world(STAND_INS)
def element_size_of_an_argument() -> World:
    return World(lambda x: x.double() * x.element_size(), [ON, on(3, dtype=torch.float64)])


@world(STAND_INS)
def text_of_an_argument() -> World:
    return World(lambda x: x * len(str(x)), [ON, Call(lambda: (values(3) / 3,))])


@world(STAND_INS)
def text_of_a_shape() -> World:
    return World(lambda x: x.double() * len(f"{x.shape}"), [on(4), on(6), on(12), on(1)])


@world(STAND_INS)
def shape_compared_with_a_tuple() -> World:
    return World(
        lambda x: x * 2 if x.shape == (3, 2) else x * 3, [on(3, 2), on(4, 2), on(3, 3), on(3, 2)]
    )


@world(STAND_INS)
def shape_as_a_key() -> World:
    known = {(3, 2): 2, (4, 2): 5}
    return World(lambda x: x * known.get(tuple(x.shape), 3), [on(3, 2), on(4, 2), on(3, 3)])


@world(STAND_INS)
def type_of_a_shape() -> World:
    return World(lambda x: x * 2 if type(x.shape) is torch.Size else x * 3, [ON, on(4), on(5)])


@world(STAND_INS)
def shape_returned() -> World:
    return World(lambda x: (x.shape, x.shape[0], [x.numel()], x.stride()), [ON, on(4), on(5)])


@world(STAND_INS)
def type_of_a_size() -> World:
    return _size(lambda k: 2 if type(k) is int else 3)


@world(STAND_INS)
def size_is_an_int() -> World:
    return _size(lambda k: 2 if isinstance(k, int) else 3)


@world(STAND_INS)
def rounded_to_tens() -> World:
    return _number(lambda k: round(k, -1), 14, 26, 35, 45, -7)


@world(STAND_INS)
def rounded_quotient() -> World:
    return _number(lambda k: round(k / 4), 14, 26, 6, 10, -6)


@world(STAND_INS)
def truncated_quotient_of_a_large_number() -> World:
    return _number(lambda k: int(k / 7) % 1000, 5, 9, 2**53 + 1, 2**60 + 3, 7 * 2**54 + 5)


@world(STAND_INS)
def large_number_as_a_float() -> World:
    return _number(lambda k: 2 if float(k) == k else 3, 5, 9, 2**53 + 1, 2**60, 2**60 + 1)


@world(STAND_INS)
def large_number_compared_with_a_float() -> World:
    return _number(lambda k: 2 if k * 1.0 > k - 1 else 3, 5, 9, 2**54, 2**60)


@world(STAND_INS)
def large_number_overflows() -> World:
    return _number(lambda k: k * k % 7, 5, 9, 2**33, 2**62)


@world(STAND_INS)
def number_beyond_64_bits() -> World:
    return _number(lambda k: k % 11, 5, 9, 2**64 + 3, 2**70)


@world(STAND_INS)
def negative_number_divided() -> World:
    return _number(lambda k: k // 4 * 100 + k % 4 * 10 + math.trunc(k / 4), 5, 9, -5, -9)


@world(STAND_INS)
def number_shifted_and_masked() -> World:
    return _number(lambda k: (k >> 1) + (k << 2) + (k & 6) + (k | 1) + (k ^ 3) + ~k, 5, 9, -5, 64)


@world(STAND_INS)
def number_of_bits() -> World:
    return _number(lambda k: k.bit_length() * 10 + k.bit_count(), 5, 9, 64, 0)


@world(STAND_INS)
def number_as_an_index() -> World:
    return _number(lambda k: [10, 20, 30, 40][k], 1, 2, 3, -1)


@world(STAND_INS)
def number_repeats_a_list() -> World:
    return _number(lambda k: sum([3] * k), 1, 2, 3, 0)


@world(STAND_INS)
def number_repeats_a_text() -> World:
    return _number(lambda k: len("ab" * k), 1, 2, 3, 0)


@world(STAND_INS)
def number_as_a_key() -> World:
    return _number(lambda k: {4: 2, 6: 5}.get(k, 7))


@world(STAND_INS)
def number_in_a_set() -> World:
    return _number(lambda k: 2 if k in {4, 1} else 3)


@world(STAND_INS)
def number_hashed() -> World:
    return _number(lambda k: hash((k, 1)) % 1009)


@world(STAND_INS)
def number_matched() -> World:
    def fn(k: int) -> int:
        match k:
            case 4:
                return 2
            case int() if k > 5:
                return 3
            case _:
                return 5

    return _number(fn)


@world(STAND_INS)
def number_to_a_power() -> World:
    return _number(lambda k: k**2 + 2**k + k**0.5, 1, 2, 3, 4)


@world(STAND_INS)
def number_to_a_modular_power() -> World:
    return _number(lambda k: pow(k, 3, 7) + pow(k, -1, 7), 1, 2, 3, 4)


@world(STAND_INS)
def number_in_math() -> World:
    return _number(
        lambda k: math.gcd(k, 6) + math.isqrt(k) + math.factorial(k) + math.comb(k, 2), 1, 2, 3, 4
    )


@world(STAND_INS)
def logarithm_of_a_number() -> World:
    return _number(lambda k: math.log2(k) + math.ceil(math.log(k, 3)), 1, 2, 3, 9)


@world(STAND_INS)
def number_as_a_fraction() -> World:
    return _number(lambda k: float(fractions.Fraction(k, 3)), 1, 2, 3, 9)


@world(STAND_INS)
def number_as_a_decimal() -> World:
    return _number(lambda k: float(decimal.Decimal(k) / 3), 1, 2, 3, 9)


@world(STAND_INS)
def number_as_a_complex() -> World:
    return _number(lambda k: complex(k, 1).real, 1, 2, 3, 9)


@world(STAND_INS)
def number_as_json() -> World:
    return _number(lambda k: len(json.dumps({"k": k})), 1, 22, 333)


@world(STAND_INS)
def number_packed() -> World:
    return _number(lambda k: sum(struct.pack("<i", k)) + sum(k.to_bytes(4, "little")), 1, 2, 3000)


@world(STAND_INS)
def number_pickled() -> World:
    return _number(lambda k: pickle.loads(pickle.dumps(k)) + 1, 1, 2, 3)


@world(STAND_INS)
def number_formatted() -> World:
    return _number(lambda k: len(f"{k:05d}") + len(f"{k:x}") + len(str(k)), 1, 22, 3333)


@world(STAND_INS)
def numbers_sorted() -> World:
    return _number(lambda k: sorted([k, 3, 5])[1] + max([k, 4], key=lambda v: -v), 1, 4, 9)


@world(STAND_INS)
def slice_indices_of_a_number() -> World:
    return _size(lambda k: sum(slice(None, 5, 2).indices(k)))


@world(STAND_INS)
def number_in_a_range() -> World:
    return _number(lambda k: sum(range(k)) + (2 if 3 in range(k) else 0), 1, 4, 9)


@world(STAND_INS)
def number_by_operator_index() -> World:
    return _number(lambda k: operator.index(k) + operator.mul(k, 2), 1, 4, 9)


@world(STAND_INS)
def number_is_itself() -> World:
    return _number(lambda k: 2 if k is int(k) else 3, 1, 4, 9)


@world(STAND_INS)
def number_dispatched_on() -> World:
    @functools.singledispatch
    def by(k: Any) -> int:
        return 2

    by.register(int, lambda k: 3)
    return _number(by, 1, 4, 9)


@world(STAND_INS)
def number_memoised() -> World:
    @functools.lru_cache
    def by(k: int) -> int:
        return k * 3

    return _number(by, 1, 4, 9, 4)


@world(STAND_INS)
def float_compared_exactly() -> World:
    return World(
        lambda x, k: x * 2 if k * 3 == 0.3 else x * 3,
        [
            Call(lambda: (values(3), 0.1)),
            Call(lambda: (values(3), 0.09999999999999999)),
            Call(lambda: (values(3), 0.1)),
        ],
    )


@world(STAND_INS)
def mode_of_the_users_applied_once() -> World:
    class Twice(TorchFunctionMode):
        def __torch_function__(
            self, fn: Any, kinds: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = fn(*args, **(kwargs or {}))
            return result * 2 if fn is torch.relu else result

    def fn(x: Any) -> Any:
        with Twice():
            return torch.relu(x)

    return World(fn, [ON, ON])


@world(STAND_INS)
def mode_of_the_users_around_the_calls() -> World:
    class Twice(TorchFunctionMode):
        def __torch_function__(
            self, fn: Any, kinds: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = fn(*args, **(kwargs or {}))
            return result * 2 if fn is torch.relu else result

    mode, entered = Twice(), [False]

    def enter() -> None:
        mode.__enter__()
        entered[0] = True

    def leave() -> None:
        if entered.pop():
            mode.__exit__(None, None, None)
        entered.append(False)

    return World(lambda x: torch.relu(x), [enter, ON, ON, leave, ON], undo=leave)


@world(STAND_INS)
def dispatch_mode_of_the_users() -> World:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Twice(TorchDispatchMode):
        def __torch_dispatch__(
            self, fn: Any, kinds: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = fn(*args, **(kwargs or {}))
            return result * 2 if fn is torch.ops.aten.relu.default else result

    def fn(x: Any) -> Any:
        with Twice():
            return torch.relu(x)

    return World(fn, [ON, ON])


@world(STAND_INS)
def subclass_of_tensor() -> World:
    class Tagged(torch.Tensor):
        @classmethod
        def __torch_function__(cls, fn: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = super().__torch_function__(fn, kinds, args, kwargs or {})
            return result * 2 if fn is torch.relu else result

    return World(lambda x: torch.relu(x), [ON, Call(lambda: (values(3).as_subclass(Tagged),)), ON])


@world(STAND_INS)
def signature_of_the_function() -> World:
    m = module("import inspect\ndef fn(x, k=2): return x * len(inspect.signature(fn).parameters)")
    return World(m.fn, [ON, ON])


@world(STAND_INS)
def source_of_the_function() -> World:
    m = module("def fn(x): return x * len(inspect.getsource(fn))", inspect=inspect)
    return World(m.fn, [ON, ON])


@world(STAND_INS)
def function_calls_itself() -> World:
    m = module("def fn(x, n=3): return x if n == 0 else fn(x * 2, n - 1)")
    return World(m.fn, [ON, on(4), ON])


@world(STAND_INS)
def tensor_as_a_truth() -> World:
    return World(
        lambda x: x * 2 if x.sum() > 0 else x * 3, [ON, Call(lambda: (-values(3) * 4,)), ON]
    )


@world(STAND_INS)
def tensor_as_a_number() -> World:
    return World(lambda x: x * x.sum().item(), [ON, Call(lambda: (values(3) * 4,))])


@world(STAND_INS)
def tensor_as_a_list() -> World:
    return World(lambda x: x * sum(x.tolist()), [ON, Call(lambda: (values(3) * 4,))])


@world(STAND_INS)
def tensor_as_numpy() -> World:
    return World(lambda x: x * float(x.numpy().sum()), [ON, Call(lambda: (values(3) * 4,))])


@world(STAND_INS)
def tensor_unpacked() -> World:
    def fn(x: Any) -> Any:
        a, *rest = x
        return a + sum(rest)

    return World(fn, [ON, on(4), on(5), on(1)])


@world(STAND_INS)
def tensor_contains_a_number() -> World:
    return World(lambda x: x * 2 if 0.75 in x else x * 3, [ON, Call(lambda: (values(3) * 4,))])


@world(STAND_INS)
def tensor_pickled() -> World:
    return World(lambda x: pickle.loads(pickle.dumps(x)) * 2, [ON, Call(lambda: (values(3) * 4,))])


@world(STAND_INS)
def tensor_hashed_by_its_bytes() -> World:
    return World(
        lambda x: x * len(set(bytes(x.untyped_storage()))), [ON, Call(lambda: (values(3) * 4,))]
    )


@world(STAND_INS)
def gradient_function_named() -> World:
    def fn(x: Any) -> Any:
        return x * len(type((x * 2).grad_fn).__name__)

    return World(fn, [on(3, grad=True), on(3, grad=True)])


@world(STAND_INS)
def argument_has_a_gradient_function() -> World:
    def fn(x: Any) -> Any:
        return x * (2 if x.grad_fn is None else 3)

    return World(fn, [on(3, grad=True), Call(lambda: (values(3).requires_grad_() * 1,))])


@world(STAND_INS)
def gradient_of_an_argument_read() -> World:
    def with_gradient() -> tuple[Any, ...]:
        x = values(3).requires_grad_()
        x.grad = torch.ones(3)
        return (x,)

    def fn(x: Any) -> Any:
        return x * 2 if x.grad is None else x.grad * x

    return World(fn, [on(3, grad=True), Call(with_gradient), on(3, grad=True)])
