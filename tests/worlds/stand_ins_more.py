"""What a stand-in is not, further members of class 5 of issue 8."""

from __future__ import annotations

import cmath
import collections
import copy
import enum
import functools
import itertools
import math
import numbers
import operator
import statistics
import string
import weakref
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tests.worlds.stand_ins import ON, SIZES, STAND_INS, _number, _size
from tests.worlds.world import Call, World, on, put, values, world


def _complex(*, conj: bool = False) -> Call:
    def make() -> tuple[Any, ...]:
        x = values(3, dtype=torch.complex64) * (1 + 2j)
        return (x.conj().clone() if conj else x,)

    return Call(make)


def _parameter(grad: bool = True) -> Call:
    return Call(lambda: (nn.Parameter(values(3), requires_grad=grad),))


def _tagged(name: str = "k", value: Any = 3, n: int = 3) -> Call:
    def make() -> tuple[Any, ...]:
        x = values(n)
        setattr(x, name, value)
        return (x,)

    return Call(make)


# -- classes


@world(STAND_INS)
def type_by_map() -> World:
    return World(
        lambda x: x * len([each for each in map(type, [x, x + 1]) if each is torch.Tensor]),
        [ON, ON],
    )


@world(STAND_INS)
def type_of_a_view() -> World:
    return World(lambda x: x * 2 if type(x[1:]) is type(x.t()) is torch.Tensor else x * 3, [ON, ON])


@world(STAND_INS)
def type_of_a_parameter_argument() -> World:
    return World(lambda x: x * len(type(x).__name__), [_parameter(False), ON, _parameter(False)])


@world(STAND_INS)
def type_of_a_detached_parameter() -> World:
    return World(lambda x: x * len(type(x.detach()).__name__), [_parameter(), _parameter(False)])


@world(STAND_INS)
def result_of_a_parameter() -> World:
    return World(
        lambda x: x * len(type(x * 2).__name__) + len(type(x.data).__name__),
        [_parameter(False), ON],
    )


@world(STAND_INS)
def parameter_returned() -> World:
    return World(lambda x: (x, x * 2), [_parameter(False), ON, _parameter()])


@world(STAND_INS)
def buffer_argument() -> World:
    call = Call(lambda: (nn.Buffer(values(3)),))
    return World(lambda x: x * 2 if isinstance(x, nn.Buffer) else x * 3, [ON, call, ON])


@world(STAND_INS)
def argument_of_any_class() -> World:
    return World(
        lambda x: x * 2 if isinstance(x, (int, nn.Parameter, list)) else x * 3,
        [ON, _parameter(False), ON],
    )


@world(STAND_INS)
def subclass_asked() -> World:
    return World(
        lambda x: x * 2 if issubclass(type(x), nn.Parameter) else x * 3, [ON, _parameter(False), ON]
    )


@world(STAND_INS)
def class_by_getattr() -> World:
    return World(lambda x: x * len(getattr(x, "__class__").__name__), [ON, _parameter(False)])  # noqa: B009


@world(STAND_INS)
def dispatched_on_a_tensor() -> World:
    @functools.singledispatch
    def by(x: Any) -> int:
        return 2

    by.register(torch.Tensor, lambda x: 3)
    by.register(nn.Parameter, lambda x: 5)
    return World(lambda x: x * by(x), [ON, _parameter(False), ON])


@world(STAND_INS)
def tensor_matched() -> World:
    def fn(x: Any) -> Any:
        match x:
            case nn.Parameter():
                return x * 2
            case torch.Tensor(ndim=1):
                return x * 3
            case _:
                return x * 5

    return World(fn, [ON, _parameter(False), on(2, 2), ON])


@world(STAND_INS)
def parameter_set_on_a_module() -> World:
    def fn(x: Any) -> Any:
        m = nn.Module()
        m.w = x
        return x * (1 + len(list(m.parameters())))

    return World(fn, [ON, _parameter(False), ON])


@world(STAND_INS)
def directory_of_a_tensor() -> World:
    return World(lambda x: x * 2 if "_spec" in dir(x) else x * 3, [ON, ON])


@world(STAND_INS)
def variables_of_a_tensor() -> World:
    return World(lambda x: x * (1 + len(vars(x))), [ON, _tagged()])


@world(STAND_INS)
def module_of_the_class() -> World:
    return World(lambda x: x * len(type(x).__module__), [ON, ON])


# -- attributes


@world(STAND_INS)
def attribute_asked_for() -> World:
    return World(lambda x: x * 2 if hasattr(x, "k") else x * 3, [ON, _tagged(), ON])


@world(STAND_INS)
def attribute_by_getattr() -> World:
    return World(
        lambda x: x * getattr(x, "k", 2), [_tagged(), _tagged(value=5), ON, _tagged(value=3.0)]
    )


@world(STAND_INS)
def attribute_of_one_of_two() -> World:
    def two(a: int, b: int) -> Call:
        def make() -> tuple[Any, ...]:
            x, y = values(3), values(3)
            x.k, y.k = a, b  # type: ignore[attr-defined]
            return x, y

        return Call(make)

    return World(lambda x, y: x * y.k, [two(2, 3), two(4, 3), two(2, 5), two(4, 5)])


@world(STAND_INS)
def attribute_of_a_nested_argument() -> World:
    def nested(k: int) -> Call:
        return Call(lambda: ([_tagged(value=k).make()[0], values(2)],))

    return World(lambda xs: xs[0] * xs[0].k, [nested(2), nested(3), nested(2)])


@world(STAND_INS)
def attribute_holds_a_tensor() -> World:
    return World(
        lambda x: x * x.k, [Call(lambda k=k: _tagged(value=values(3) * k).make()) for k in (2, 3)]
    )


@world(STAND_INS)
def attribute_holds_a_list() -> World:
    return World(lambda x: x * x.k[0], [_tagged(value=[2]), _tagged(value=[3])])


@world(STAND_INS)
def attribute_of_other_sizes() -> World:
    return World(
        lambda x: x * x.k, [_tagged(n=3), _tagged(n=4), _tagged(n=5), _tagged(value=4, n=5)]
    )


@world(STAND_INS)
def attribute_lost_on_the_way() -> World:
    return World(
        lambda x: x * getattr(x + 1, "k", 2) + getattr(x.view(-1), "k", 5), [_tagged(), ON]
    )


@world(STAND_INS)
def attribute_kept_by_writing() -> World:
    return World(lambda x: x.mul_(2) * getattr(x.add_(1), "k", 2), [_tagged(), ON])


@world(STAND_INS)
def attribute_set_on_an_argument() -> World:
    def fn(x: Any) -> Any:
        x.k = 3
        return x * 2

    return World(fn, [ON, ON])


@world(STAND_INS)
def attribute_set_on_a_result() -> World:
    def fn(x: Any) -> Any:
        y = x * 2
        y.k = 3
        return y

    return World(fn, [ON, ON])


@world(STAND_INS)
def attribute_set_and_read() -> World:
    def fn(x: Any) -> Any:
        y = x * 2
        y.k = x.shape[0]
        return (y * y.k).sum()

    return World(fn, [ON, on(4), on(5)])


@world(STAND_INS)
def attribute_deleted() -> World:
    def fn(x: Any) -> Any:
        del x.k
        return x * 2

    return World(fn, [_tagged(), _tagged()])


@world(STAND_INS)
def names_of_dimensions() -> World:
    def named() -> tuple[Any, ...]:
        return (values(3).refine_names("n"),)

    return World(lambda x: x * 2 if x.names == ("n",) else x * 3, [ON, Call(named), ON])


# -- identity


@world(STAND_INS)
def argument_in_a_set_of_its_own() -> World:
    return World(lambda x, y: x * len({x, y}), [Call(lambda: (values(3), values(3)))] * 2)


@world(STAND_INS)
def result_in_a_set_of_its_own() -> World:
    return World(lambda x: x * len({x + 1, x + 2}), [ON, ON])


@world(STAND_INS)
def result_as_a_key() -> World:
    def fn(x: Any) -> Any:
        y = x + 1
        known = {y: 2}
        return x * known[y]

    return World(fn, [ON, ON])


@world(STAND_INS)
def argument_memoised() -> World:
    w = values(3)
    by = functools.lru_cache(lambda x: 2 if x is w else 3)
    return World(lambda x: x * by(x), [ON, Call(lambda: (w,)), ON])


@world(STAND_INS)
def argument_in_a_weak_set() -> World:
    w = values(3)
    known = weakref.WeakSet([w])
    return World(lambda x: x * 2 if x in known else x * 3, [ON, Call(lambda: (w,)), ON])


@world(STAND_INS)
def argument_by_weak_reference() -> World:
    w = values(3)
    known = {weakref.ref(w): 2}
    return World(lambda x: x * known.get(weakref.ref(x), 3), [ON, Call(lambda: (w,)), ON])


@world(STAND_INS)
def identities_of_arguments_compared() -> World:
    def same() -> tuple[Any, ...]:
        x = values(3)
        return x, x

    apart = Call(lambda: (values(3), values(3)))
    return World(lambda x, y: x * 2 if id(x) == id(y) else x * 3, [apart, Call(same), apart])


@world(STAND_INS)
def identities_of_results_compared() -> World:
    return World(lambda x: x * 2 if id(x + 1) == id(x) else x * 3, [ON, ON])


@world(STAND_INS)
def argument_returned_in_place() -> World:
    return World(lambda x: x * 2 if x.add_(1) is x else x * 3, [ON, ON])


@world(STAND_INS)
def argument_is_contiguous_itself() -> World:
    turned = Call(lambda: (values(2, 3).t(),))
    return World(
        lambda x: x * 2 if x.contiguous() is x else x * 3, [on(3, 2), turned, on(4, 2), on(3, 1)]
    )


@world(STAND_INS)
def argument_converted_is_itself() -> World:
    return World(
        lambda x: x.double() * 2 if x.float() is x else x.double() * 3,
        [ON, on(3, dtype=torch.float64), ON],
    )


@world(STAND_INS)
def argument_in_a_list_of_its_own() -> World:
    return World(lambda x: x * 2 if any(each is x for each in [x + 1, x]) else x * 3, [ON, ON])


@world(STAND_INS)
def hash_of_an_argument() -> World:
    return World(lambda x: x * 2 if hash(x) == hash(x) else x * 3, [ON, ON])


# -- what a tensor is


@world(STAND_INS)
def deep_copy_without_gradients() -> World:
    def fn(x: Any) -> Any:
        y = copy.deepcopy(x)
        y.add_(1)
        return x * 2, y

    return World(
        fn, [ON, on(4), on(0), Call(lambda: (values(2, 3).t(),)), Call(lambda: (values(4)[1:],))]
    )


@world(STAND_INS)
def deep_copy_of_two_views() -> World:
    def fn(x: Any) -> Any:
        a, b = copy.deepcopy([x, x[:2]])
        a.add_(1)
        return b * 2

    return World(fn, [ON, on(4)])


@world(STAND_INS)
def deep_copy_of_a_result() -> World:
    return World(lambda x: copy.deepcopy(x * 2), [ON, on(4), on(3, grad=True)])


@world(STAND_INS)
def deep_copy_of_an_expanded() -> World:
    return World(lambda x: copy.deepcopy(x.expand(2, 3)), [ON, ON])


@world(STAND_INS)
def deep_copy_with_attributes() -> World:
    return World(lambda x: x * getattr(copy.deepcopy(x), "k", 2), [ON, _tagged(), ON])


@world(STAND_INS)
def deep_copy_of_a_parameter() -> World:
    return World(lambda x: x * len(type(copy.deepcopy(x)).__name__), [_parameter(False), ON])


@world(STAND_INS)
def deep_copy_of_a_size() -> World:
    return _size(lambda k: copy.deepcopy(k) * 2 + copy.copy(k))


@world(STAND_INS)
def deep_copy_of_a_shape() -> World:
    return World(lambda x: x.double() * copy.deepcopy(x.shape)[0], SIZES)


@world(STAND_INS)
def conjugate_of_a_conjugate() -> World:
    def fn(x: Any) -> Any:
        y = x.conj()
        return (
            y.is_conj(),
            y.conj().is_conj(),
            y.t().is_conj(),
            (y * 2).is_conj(),
            y.clone().is_conj(),
            y.conj() * 2,
        )

    return World(fn, [_complex(), _complex(conj=True)])


@world(STAND_INS)
def conjugate_resolved_is_written() -> World:
    def fn(x: Any) -> Any:
        y = x.conj()
        y.resolve_conj().add_(1)
        x.resolve_conj().mul_(2)
        return x * 2, y

    return World(fn, [_complex(), _complex(conj=True)])


@world(STAND_INS)
def parts_of_a_conjugate() -> World:
    return World(
        lambda x: (x.conj().real * 2, x.conj().imag * 3), [_complex(), _complex(conj=True)]
    )


@world(STAND_INS)
def parts_of_a_complex() -> World:
    return World(
        lambda x: (x.real * 2, x.imag * 3, x.imag.is_neg(), x.angle()),
        [_complex(), _complex(conj=True)],
    )


@world(STAND_INS)
def adjoint_asked() -> World:
    call = Call(lambda: (values(2, 3, dtype=torch.complex64) * 1j,))
    return World(lambda x: (x.mH.is_conj(), x.mH @ x, x.adjoint().resolve_conj()), [call, call])


@world(STAND_INS)
def conjugate_written_into() -> World:
    def fn(x: Any) -> Any:
        x.conj().mul_(1j)
        return x * 2

    return World(fn, [_complex(), _complex(conj=True)])


@world(STAND_INS)
def physical_conjugate() -> World:
    return World(
        lambda x: (torch.conj_physical(x), x.conj().conj_physical()),
        [_complex(), _complex(conj=True)],
    )


@world(STAND_INS)
def conjugate_of_a_real() -> World:
    return World(lambda x: x * 2 if x.conj() is x and not x.is_conj() else x * 3, [ON, ON])


@world(STAND_INS)
def inference_of_a_view() -> World:
    def inference() -> tuple[Any, ...]:
        with torch.inference_mode():
            return (values(3),)

    def fn(x: Any) -> Any:
        return x * 2 if x[1:].is_inference() else x * 3 if (x + 1).is_inference() else x * 5

    return World(fn, [ON, Call(inference), ON])


@world(STAND_INS)
def inference_by_function() -> World:
    def inference() -> tuple[Any, ...]:
        with torch.inference_mode():
            return (values(3),)

    return World(
        lambda x: x * 2 if torch.is_inference(x) else x * 3, [Call(inference), ON, Call(inference)]
    )


@world(STAND_INS)
def inference_of_a_weight() -> World:
    w = values(3)
    return World(lambda x: x * w * (2 if w.is_inference() else 3), [ON, ON])


@world(STAND_INS)
def view_asked() -> World:
    return World(
        lambda x: x * 2 if x._is_view() else x * 3, [ON, Call(lambda: (values(4)[1:],)), ON]
    )


@world(STAND_INS)
def version_asked() -> World:
    def written() -> tuple[Any, ...]:
        return (values(3).add_(0),)

    return World(lambda x: x * (1 + x._version), [ON, Call(written)])


@world(STAND_INS)
def kind_of_memory_asked() -> World:
    def fn(x: Any) -> Any:
        flags = (
            x.is_pinned(),
            x.is_shared(),
            x.is_quantized,
            x.is_sparse,
            x.is_cuda,
            x.is_meta,
            x.is_nested,
        )
        return x * (1 + sum(flags))

    return World(fn, [ON, Call(lambda: (values(3).share_memory_(),))])


@world(STAND_INS)
def kind_of_numbers_asked() -> World:
    def fn(x: Any) -> Any:
        flags = (
            x.is_floating_point(),
            x.is_complex(),
            x.is_signed(),
            torch.is_tensor(x),
            torch.is_nonzero(x.sum() * 0 + 1),
        )
        return x * (1 + sum(flags))

    return World(fn, [ON, on(3, dtype=torch.int32), ON])


@world(STAND_INS)
def bytes_of_its_storage() -> World:
    return World(lambda x: x * x.untyped_storage().nbytes(), [ON, Call(lambda: (values(5)[:3],))])


@world(STAND_INS)
def length_of_a_tensor() -> World:
    return World(
        lambda x: x.double() * (len(x) + x.__len__() + len(list(x))), [on(4), on(6), on(1), on(7)]
    )


@world(STAND_INS)
def names_of_its_class() -> World:
    return World(
        lambda x: x * len(x.type()) + len(str(x.dtype)) + len(str(x.device)),
        [ON, on(3, dtype=torch.float64)],
    )


@world(STAND_INS)
def result_same_size() -> World:
    return World(
        lambda x, y: x * 2 if x.is_same_size(y) else x * 3,
        [Call(lambda n=n: (values(3), values(n))) for n in (3, 1)],
    )


@world(STAND_INS)
def set_to_another() -> World:
    return World(
        lambda x, y: x * 2 if x.is_set_to(y) else x * 3, [Call(lambda: (values(3), values(3)))] * 2
    )


@world(STAND_INS)
def shape_of_a_class() -> World:
    def fn(x: Any) -> Any:
        s = x.shape
        return x.double() * (s.numel() + s.index(s[0]) + s.count(s[-1]) + len(s) + hash(s) % 7)

    return World(fn, [on(4, 2), on(6, 2), on(1, 2)])


@world(STAND_INS)
def shape_added_and_sliced() -> World:
    return World(
        lambda x: (
            (*x.shape, 1),
            x.shape + x.shape,
            x.shape[1:],
            2 * x.shape,
            (1, *x.shape),
            x.size()[::-1],
        ),
        [on(4, 2), on(6, 2), on(1, 2)],
    )


@world(STAND_INS)
def shape_unpacked_into_a_tuple() -> World:
    point = collections.namedtuple("point", "n m")
    return World(
        lambda x: x.double() * point(*x.shape).n + sum(tuple(x.shape)),
        [on(4, 2), on(6, 2), on(1, 2)],
    )


# -- numbers


@world(STAND_INS)
def rounded_number() -> World:
    return _number(lambda k: round(k) + round(k, 2) + round(k, None) + round(k, 0), 14, 26, 35)


@world(STAND_INS)
def rounded_to_hundreds() -> World:
    return _number(lambda k: round(k, -2) + k.__round__(-1), 149, 150, 250, -50)


@world(STAND_INS)
def rounded_by_a_number() -> World:
    return _number(lambda k: round(12345, -k) if k < 4 else k, 1, 2, 3, 5)


@world(STAND_INS)
def parts_of_a_number() -> World:
    return _number(
        lambda k: (
            k.real
            + k.imag
            + k.numerator * k.denominator
            + k.conjugate()
            + sum(k.as_integer_ratio())
        ),
        4,
        9,
        -7,
    )


@world(STAND_INS)
def quotient_is_whole() -> World:
    return _number(lambda k: 2 if (k / 4).is_integer() else 3, 4, 6, 8, 2**53 + 1, 2**60 + 4)


@world(STAND_INS)
def quotient_as_hexadecimal() -> World:
    return _number(lambda k: len((k / 3).hex()), 4, 6, 9)


@world(STAND_INS)
def quotients_compared() -> World:
    return _number(lambda k: 2 if k / 3 < (k + 1) / 3 else 3, 5, 9, 2**54, 2**62)


@world(STAND_INS)
def floor_of_a_large_quotient() -> World:
    return _number(
        lambda k: (math.floor(k / 7) + math.ceil(k / 3)) % 1000, 5, 9, 2**53 + 3, 2**60 + 3
    )


@world(STAND_INS)
def large_number_against_a_constant() -> World:
    return _number(lambda k: 2 if k == 2.0**53 else 3 if k > 1e15 else 5, 5, 9, 2**53, 2**53 + 1)


@world(STAND_INS)
def large_number_times_a_float() -> World:
    return _number(lambda k: int(k * 1.5) % 1000, 5, 9, 2**53 + 1, 2**54 + 3)


@world(STAND_INS)
def large_number_in_a_tensor() -> World:
    return World(
        lambda x, k: x + torch.tensor(k) % 1000,
        [Call(lambda k=k: (values(3), k)) for k in (5, 9, 2**53 + 1, 2**62 + 1)],
    )


@world(STAND_INS)
def large_number_scales() -> World:
    return _number(lambda k: k * 2.0, 5, 9, 2**53 + 1, 2**60 + 1)


@world(STAND_INS)
def large_number_read_from_data() -> World:
    def fn(x: Any) -> Any:
        n = x.sum().item()
        return x * (int(n / 7) % 1000)

    return World(fn, [Call(lambda k=k: (torch.tensor([k]),)) for k in (15, 70, 2**60 + 3)])


@world(STAND_INS)
def number_is_integral() -> World:
    return _number(lambda k: 2 if isinstance(k, numbers.Integral) else 3, 4, 9, 1)


@world(STAND_INS)
def number_is_one() -> World:
    return _number(lambda k: 2 if any(k is each for each in (1, 7)) else 3, 4, 9, 1)


@world(STAND_INS)
def comparison_is_true() -> World:
    return _number(lambda k: 2 if (k > 5) is True else 3, 4, 9, 1, 7)


@world(STAND_INS)
def comparison_as_a_number() -> World:
    return _number(lambda k: (k > 5) + (k > 3) * 2 + int(k == 4), 4, 9, 1, 7)


@world(STAND_INS)
def comparison_as_an_index() -> World:
    return _number(lambda k: [20, 30][k > 5], 4, 9, 1, 7)


@world(STAND_INS)
def comparisons_combined() -> World:
    return _number(lambda k: ((k > 5) & (k < 8)) | (not k), 4, 9, 1, 7, 0)


@world(STAND_INS)
def comparison_as_text() -> World:
    return _number(lambda k: len(str(k > 5)) + len(f"{k > 5}") + len(repr(k == 4)), 4, 9, 1, 7)


@world(STAND_INS)
def number_formatted_otherwise() -> World:
    return _number(
        lambda k: (
            len("%d" % k)  # noqa: UP031
            + len("{:,}".format(k))  # noqa: UP032
            + len(string.Template("$k").substitute(k=k))
            + len(f"{k!r:>4}")
        ),
        4,
        99999,
        1,
    )


@world(STAND_INS)
def quotient_formatted() -> World:
    return _number(
        lambda k: len(f"{k / 3:.3f}") + len(f"{k / 2}") + len("%g" % (k / 7)), 4, 99999, 1
    )


@world(STAND_INS)
def number_to_another_base() -> World:
    return _number(lambda k: len(bin(k)) + len(hex(k)) + len(oct(k)) + ord(chr(k + 65)), 4, 900, 1)


@world(STAND_INS)
def number_in_bytes() -> World:
    return _number(lambda k: sum(bytes(k)) + len(bytes([k, 1])) + bytearray(k + 1)[0], 4, 9, 1)


@world(STAND_INS)
def number_in_statistics() -> World:
    return _number(lambda k: statistics.median([k, 3, 7]) + statistics.mean([k, 3, 7]), 4, 9, 1)


@world(STAND_INS)
def number_in_itertools() -> World:
    return _number(
        lambda k: (
            len(list(itertools.islice(itertools.count(), k))) + len(list(itertools.repeat(1, k)))
        ),
        4,
        9,
        1,
    )


@world(STAND_INS)
def number_in_more_math() -> World:
    return _number(
        lambda k: (
            math.pow(k, 2)
            + math.fsum([k, 0.5])
            + math.hypot(k, 1)
            + math.copysign(1, k)
            + math.lcm(k, 4)
            + math.fabs(k)
        ),
        4,
        9,
        1,
    )


@world(STAND_INS)
def number_in_complex_math() -> World:
    return _number(lambda k: cmath.sqrt(k).real + abs(k * 1j) + (k + 1j).imag, 4, 9, 1)


@world(STAND_INS)
def number_in_numpy() -> World:
    return _number(
        lambda k: float(np.sqrt(k)) + np.arange(k).sum() + np.zeros((k, 2)).size, 4, 9, 1
    )


@world(STAND_INS)
def number_as_a_numpy_number() -> World:
    return _number(lambda k: np.int64(k) + np.float32(k) + np.asarray([k, 1]).sum(), 4, 9, 1)


@world(STAND_INS)
def number_makes_an_enum() -> World:
    kind = enum.IntEnum("kind", "A B C D")
    return _number(lambda k: kind(k).value * 2 + len(kind(k).name), 1, 2, 3)


@world(STAND_INS)
def number_counted() -> World:
    return _number(lambda k: collections.Counter([k, 1])[1], 4, 9, 1)


@world(STAND_INS)
def number_in_a_list() -> World:
    return _number(lambda k: [1, 4, 9].index(k) + [1, 4, k].count(4), 4, 9, 1)


@world(STAND_INS)
def number_as_an_attribute_name() -> World:
    class C:
        k4, k9, k1 = 2, 3, 5

    return _number(lambda k: getattr(C, f"k{k}"), 4, 9, 1)


@world(STAND_INS)
def number_in_place() -> World:
    def fn(k: int) -> int:
        k += 1
        k <<= 2
        k ^= 5
        k //= 3
        k **= 2
        return k

    return _number(fn, 4, 9, 1, -7)


@world(STAND_INS)
def number_divided_with_remainder() -> World:
    return _number(
        lambda k: sum(divmod(k, 3)) + sum(divmod(100, k)) + k % -3 + -k // 2 + k.__divmod__(4)[1],
        4,
        9,
        -7,
    )


@world(STAND_INS)
def number_called_by_name() -> World:
    return _number(
        lambda k: (
            k.__add__(1) + k.__rsub__(2) + k.__neg__() + k.__abs__() + k.__index__() + k.__pos__()
        ),
        4,
        9,
        -7,
    )


@world(STAND_INS)
def number_by_operators() -> World:
    return _number(
        lambda k: (
            operator.add(k, 1)
            + operator.floordiv(k, 2)
            + operator.pow(k, 2)
            + operator.truth(k)
            + operator.neg(k)
        ),
        4,
        9,
        -7,
    )


@world(STAND_INS)
def truth_of_a_number() -> World:
    return _number(lambda k: 2 if k else 3, 4, 0, 9, -1)


@world(STAND_INS)
def number_to_a_negative_power() -> World:
    return _number(lambda k: k**-1 + 2.0**k + k**1.5 + 2**-k, 4, 9, 1)


@world(STAND_INS)
def number_or_another() -> World:
    return _number(
        lambda k: (k or 5) + (k and 7) + min(k, 3, 8) + max([k, 6]) + sum([k, k], k), 4, 0, 9, -1
    )


@world(STAND_INS)
def number_in_a_slice() -> World:
    return _number(
        lambda k: sum(list(range(20))[k : k * 2 : 2]) + len("abcdefgh"[:k]) + len("abcdefgh"[-k:]),
        4,
        2,
        1,
    )


@world(STAND_INS)
def number_bounds_a_loop() -> World:
    def fn(k: int) -> int:
        found = 0
        while k > 1:
            k = k // 2 if k % 2 == 0 else 3 * k + 1
            found += 1
        return found

    return _number(fn, 4, 6, 7, 1)


# -- modes


class _Twice(TorchFunctionMode):
    def __torch_function__(self, fn: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = fn(*args, **(kwargs or {}))
        return result * 2 if fn is torch.relu else result


class _TwiceBelow(TorchDispatchMode):
    def __torch_dispatch__(self, fn: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = fn(*args, **(kwargs or {}))
        return result * 2 if fn is torch.ops.aten.relu.default else result


def _around(mode: Any, fn: Any = torch.relu, call: Call = ON) -> World:
    entered = [False]

    def enter() -> None:
        mode.__enter__()
        entered[0] = True

    def leave() -> None:
        if entered[0]:
            mode.__exit__(None, None, None)
        entered[0] = False

    return World(lambda x: fn(x), [call, enter, call, call, leave, call], undo=leave)


@world(STAND_INS)
def dispatch_mode_of_the_users_around_the_calls() -> World:
    return _around(_TwiceBelow())


@world(STAND_INS)
def default_device_around_the_calls() -> World:
    return _around(torch.device("cpu"), lambda x: x + torch.ones(3))


@world(STAND_INS)
def mode_by_a_decorator() -> World:
    def fn(x: Any) -> Any:
        with _Twice(), _Twice():
            return torch.relu(x) + torch.relu(x * 2)

    return World(fn, [ON, on(4), on(5)])


@world(STAND_INS)
def mode_held_outside() -> World:
    class Times(TorchFunctionMode):
        k = 2

        def __torch_function__(
            self, fn: Any, kinds: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = fn(*args, **(kwargs or {}))
            return result * self.k if fn is torch.relu else result

    mode = Times()

    def fn(x: Any) -> Any:
        with mode:
            return torch.relu(x)

    return World(fn, [ON, put(mode, k=3), ON])
