"""Functions that are answered before C++: shapes, indexing by sizes, resizing, choices, and readers
of data.
"""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import symshape
from symshape import Dim, UnsupportedError
from tests.symshape.eager import agree

R = torch.randn
CUBES = [(R(4, 6, 5),), (R(2, 3, 7),), (R(3, 1, 2),), (R(1, 1, 1),), (R(0, 2, 2),), (R(5, 0, 3),)]


def fixed(traced: symshape.Traced) -> list[str]:
    """Guards that fix one symbol to one value."""
    return [
        str(guard.term)
        for guard in traced.guards
        if str(guard.term).partition(" == ")[0] in traced.symbols
        and str(guard.term).rpartition(" ")[2].isdigit()
    ]


# -- shapes


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.shape,
        lambda x: x.size(),
        lambda x: (x.size(0), x.size(-1), x.size(dim=1), x.shape[-2:]),
        lambda x: (x.stride(), x.stride(0), x.stride(dim=-1)),
        lambda x: (x.dim(), x.ndim, x.ndimension(), x.numel(), x.nelement(), torch.numel(x)),
        lambda x: (x.dtype, x.device, x.layout, x.is_floating_point(), x.itemsize, x.nbytes),
        lambda x: (x.storage_offset(), x.is_contiguous(), x.requires_grad, x.is_leaf, x.is_cuda),
        lambda x: (x.T.shape if x.dim() == 2 else x.mT.shape, x.size()[0] + 1),
        lambda x: x.reshape(shape=(-1,)),
        lambda x: torch.reshape(x, (-1,)),
        lambda x: torch.reshape(input=x, shape=(-1,)),
        lambda x: x.reshape([x.size(0), -1]),
        lambda x: x.reshape(x.size(0), -1, 1),
        lambda x: x.reshape(()) if x.numel() == 1 else x,
        lambda x: torch.flatten(x, 1),
        lambda x: x.flatten(start_dim=1),
        lambda x: torch.flatten(input=x),
        lambda x: (
            torch.is_tensor(x),
            isinstance(x, torch.Tensor),
            hasattr(x, "shape"),
            bool(x.shape),
        ),
    ],
)
def test_shapes(fn: Any) -> None:
    traced, seen = agree(fn, (R(4, 6),), (R(2, 3),), (R(1, 5),), (R(3, 3),))
    assert not fixed(traced)
    assert seen.count("equal") >= 3


def test_a_dimension_that_does_not_exist() -> None:
    for fn in (
        lambda x: x.size(3),
        lambda x: x.stride(-4),
        lambda x: x.shape[2],
        lambda x: torch.flatten(x, 5),
    ):
        with pytest.raises(IndexError):
            symshape.trace(fn, R(2, 3))


# -- indexing by sizes


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x[x.size(0) // 2],
        lambda x: x[:, x.size(1) - 1],
        lambda x: x[..., x.size(2) // 2],
        lambda x: x[x.size(0) - 1, :, None, 1:],
        lambda x: x[None, :, x.size(1) // 2],
        lambda x: x[x.size(0) // 3, x.size(1) // 3, x.size(2) // 3],
        lambda x: x[-x.size(0)],
        lambda x: x[::2, x.size(1) // 2, ...],
        lambda x: x[x.size(0) // 2 :, : x.size(1) - 1],
        lambda x: x[1 : x.size(0)],
        lambda x: x[: -x.size(0) // 2],
    ],
)
def test_indexing_by_sizes_fixes_nothing(fn: Any) -> None:
    traced, seen = agree(fn, *CUBES)
    assert not fixed(traced)
    assert seen.count("equal") >= 4
    symshape.trace(fn, *CUBES[0], dynamic={"x": [Dim("a"), Dim("b"), Dim("c")]})


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x[x.size(0) // 2, torch.tensor([0])],
        lambda x: x[[0, 1]],
        lambda x: x[x > 0],
        lambda x: x[0, ..., -1],
        lambda x: x[True],
        lambda x: x[torch.tensor([True, False, True, False])] if x.size(0) == 4 else x,
        lambda x: x[:, torch.arange(x.size(1)), 0],
    ],
)
def test_other_indices(fn: Any) -> None:
    agree(fn, *CUBES)


def test_an_index_that_depends_on_data() -> None:
    def fn(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        n = i.item()
        torch._check(n >= 0)
        torch._check(n < x.size(0))
        return x[n] + x[n, ...]

    traced, seen = agree(
        fn, (R(4, 2), torch.tensor(3)), (R(9, 5), torch.tensor(0)), (R(1, 1), torch.tensor(0))
    )
    assert set(seen) == {"equal"}
    with pytest.raises(RuntimeError):
        traced(R(4, 2), torch.tensor(4))


def test_an_index_out_of_range() -> None:
    for fn in (
        lambda x: x[x.size(0)],
        lambda x: x[:, -x.size(1) - 1],
        lambda x: x[x.size(0), 0, 0, 0],
    ):
        with pytest.raises((symshape.ProgramError, IndexError)):
            symshape.trace(fn, R(4, 6, 5))


# -- resizing

IMAGES = [(R(1, 2, 4, 6),), (R(2, 3, 7, 3),), (R(3, 1, 2, 2),), (R(1, 1, 3, 8),)]


@pytest.mark.parametrize(
    "options",
    [
        {"scale_factor": 2},
        {"scale_factor": (2, 1.5)},
        {"scale_factor": 2, "mode": "bilinear"},
        {"size": (7, 8), "mode": "bicubic"},
        {"size": 6, "mode": "bilinear", "align_corners": True},
        {"scale_factor": 0.5, "mode": "bilinear", "antialias": True},
        {"size": (5, 5), "mode": "bicubic", "antialias": True},
        {"scale_factor": 2.5, "recompute_scale_factor": True, "mode": "bicubic"},
        {"scale_factor": 2, "mode": "nearest-exact"},
        {"size": 6, "mode": "area"},
        {"scale_factor": 2, "mode": "area"},
    ],
    ids=str,
)
def test_interpolate(options: dict[str, Any]) -> None:
    traced, seen = agree(lambda x: F.interpolate(x, **options), *IMAGES)
    assert seen == ["equal"] * 4
    assert not fixed(traced)


def test_interpolate_to_sizes_of_the_program() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, size=(x.size(2) * 2, x.size(3) + 1), mode="bilinear")

    traced, seen = agree(fn, *IMAGES)
    assert seen == ["equal"] * 4
    assert [str(size) for size in traced.output_specs.sizes] == ["s0", "s1", "2*s2", "s3 + 1"]
    agree(nn.Upsample(scale_factor=2), *IMAGES)
    agree(lambda x: F.interpolate(x, scale_factor=2, mode="linear"), (R(1, 2, 4),), (R(2, 2, 7),))
    agree(
        lambda x: F.interpolate(x, size=(x.size(-1), 3, 4), mode="trilinear"),
        (R(1, 2, 4, 3, 3),),
        (R(2, 2, 7, 2, 2),),
    )


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"size": 3, "scale_factor": 2},
        {"size": (1, 2, 3)},
        {"scale_factor": 2, "mode": "no such"},
        {"size": 4, "align_corners": True},
    ],
    ids=str,
)
def test_interpolate_refuses_what_eager_refuses(options: dict[str, Any]) -> None:
    with pytest.raises((ValueError, NotImplementedError)):
        F.interpolate(R(1, 2, 4, 6), **options)
    with pytest.raises((ValueError, NotImplementedError)):
        symshape.trace(lambda x: F.interpolate(x, **options), R(1, 2, 4, 6))


# -- one_hot keeps its check


def test_one_hot() -> None:
    a = torch.tensor
    _, seen = agree(
        lambda x: F.one_hot(x, 6),
        (a([1, 2]),),
        (a([7]),),
        (torch.zeros(0, dtype=torch.long),),
        (a([3]),),
    )
    assert seen == ["equal", "equal error", "equal", "equal"]
    _, seen = agree(
        lambda x: F.one_hot(x), (a([1, 2]),), (a([7]),), (torch.zeros(0, dtype=torch.long),)
    )
    assert seen == ["equal", "equal", "refused"]


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: F.one_hot(input=x, num_classes=6),
        lambda x: torch.ops.aten.one_hot(x, 6),
        lambda x: torch.ops.aten.one_hot.default(x, 6),
        lambda x: torch._C._nn.one_hot(x, 6),
    ],
)
def test_one_hot_under_other_names(fn: Callable[[torch.Tensor], torch.Tensor]) -> None:
    a = torch.tensor
    _, seen = agree(fn, (a([1, 2]),), (a([7]),), (a([-1, 2, 3]),), (a([3]),))
    assert seen == ["equal", "equal error", "equal error", "equal"]


# -- the first argument by its name


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: torch.kron(input=x, other=x),
        lambda x: torch.cov(input=x),
        lambda x: torch.corrcoef(input=x),
        lambda x: torch.gradient(input=x)[0],
        lambda x: torch.take_along_dim(input=x, indices=x.argsort(1), dim=1),
        lambda x: torch.flatten(input=x, end_dim=1) + x.size(0),
        lambda x: F.linear(input=x, weight=torch.ones(2, 4)),
        lambda x: F.max_pool1d(input=x, kernel_size=2),
        lambda x: torch.where(condition=x > 0, input=x, other=-x),
    ],
)
def test_an_input_that_is_named(fn: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Sizes stay symbolic, as where it is not named."""
    _, seen = agree(fn, (R(5, 4),), (R(6, 4),), (R(3, 4),))
    assert seen == ["equal"] * 3


# -- readers


def test_what_reads_the_data_of_an_argument_is_refused() -> None:
    for fn, what in ((lambda x: x.numpy(), "numpy"), (lambda x: x.data_ptr(), "data_ptr")):
        with pytest.raises(UnsupportedError, match=what):
            symshape.trace(fn, R(3))


def test_attention_flags_that_depend_on_sizes() -> None:
    def fn(q: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, q, q, is_causal=q.size(-2) > 1)

    _, seen = agree(fn, (R(2, 3, 4, 8),), (R(1, 3, 7, 8),), (R(2, 3, 1, 8),))
    assert seen == ["equal", "equal", "refused"]
    assert F.scaled_dot_product_attention.__name__ == "scaled_dot_product_attention"


# -- strides and offsets as a program reads them


LAYOUTS = [
    (R(4, 3),),
    (R(1, 3),),
    (R(2, 1),),
    (R(1, 1),),
    (R(0, 3),),
    (R(2, 0),),
    (R(3, 4).t(),),
    (R(4, 1).t(),),
    (torch.empty_strided((1, 4), (7, 1)).fill_(1),),
]


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: (x * 2).stride(),
        lambda x: (x.clone().stride(), x.clone().stride(0), x.clone().stride(-1)),
        lambda x: x.expand(2, *x.shape).clone().stride(0),
        lambda x: x.t().contiguous().stride(),
        lambda x: (x.sum(0, keepdim=True).stride(), x.sum(1, keepdim=True).stride(0)),
        lambda x: torch.cat([x, x], 1).stride(),
        lambda x: (x.t() * 2)[1:].storage_offset(),
        lambda x: x.clone()[:, 1:].storage_offset(),
        lambda x: (x.t().stride(), x[:, 1:].stride(), x[1:].storage_offset(), x.detach().stride(0)),
    ],
)
def test_strides_and_offsets_are_those_of_eager(fn: Any) -> None:
    for first in LAYOUTS:
        agree(fn, first, *LAYOUTS)
    compiled = symshape.compile(fn)
    for call in LAYOUTS:
        assert compiled(*call) == fn(*call)


def test_a_view_that_picks_and_orders_needs_no_question_for_its_strides() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.transpose(0, 1)[2:].stride(0) == 1 else x

    traced, seen = agree(f, *LAYOUTS[:3])
    assert seen == ["equal"] * 3
    assert not traced.guards


def test_branching_on_a_stride_that_is_an_accident_is_refused() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if (x * 2).stride(1) == 1 else x

    agree(f, *LAYOUTS[:1])
    with pytest.raises(symshape.DataDependentError, match="by accident"):
        symshape.trace(f, R(2, 1))
    with pytest.raises(IndexError):
        symshape.trace(lambda x: (x * 2).stride(2), R(2, 3))


# -- writing by a symbolic index


@pytest.mark.parametrize(
    ("index", "value"),
    [
        (lambda n: (slice(None), n - 1), lambda x: 5.0),
        (lambda n: (slice(None), n - 1), lambda x: True),
        (lambda n: (slice(None), n - 1), lambda x: x[:, 0]),
        (lambda n: (slice(None), n - 1), lambda x: x[None, :, 0]),
        (lambda n: (slice(None), n - 1), lambda x: x[:1, :1]),
        (lambda n: (slice(None), n - 1), lambda x: x.double()[:, 0]),
        (lambda n: (..., n // 2, None), lambda x: torch.tensor(3)),
        (lambda n: n - n, lambda x: x[0]),
        (lambda n: (slice(1, None), n - 1), lambda x: 2),
    ],
)
def test_writing_by_a_size_keeps_it_symbolic(index: Any, value: Any) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y[index(x.size(1))] = value(x)
        return y

    traced, seen = agree(f, (R(4, 3),), (R(2, 5),), (R(1, 1),), (R(3, 1),))
    assert not fixed(traced)
    assert seen[:2] == ["equal", "equal"]


def test_augmented_assignment_by_a_size() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        n = x.size(1)
        x[:, n - 1] += 2
        x[n - 1 :] *= 2
        return x

    traced, seen = agree(f, (R(4, 3),), (R(2, 5),), (R(1, 1),))
    assert not fixed(traced)
    assert seen == ["equal"] * 3


def test_writing_by_a_size_out_of_range_is_refused_as_in_eager() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y[x.size(1), 0] = 1
        return y

    _traced, seen = agree(f, (R(4, 3),), (R(3, 3),), (R(9, 2),))
    assert seen == ["equal", "refused", "equal"]


# -- len and data


def test_len_keeps_the_size_symbolic() -> None:
    traced, seen = agree(
        lambda x: x * len(x) + len(x.shape) + len([1, 2]), (R(4, 3),), (R(1, 3),), (R(0, 2),)
    )
    assert seen == ["equal"] * 3
    assert not traced.guards
    traced, seen = agree(lambda x: [x[i] for i in range(len(x))], (R(4, 3),), (R(1, 3),))
    assert seen == ["equal", "refused"]
    with pytest.raises(TypeError, match="0-d"):
        symshape.trace(lambda x: x * len(x), R(()))


def test_writes_through_data_are_hidden_from_autograd_as_in_eager() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x * 2
        z = y * y
        y.data.mul_(3)
        y.detach()
        return z, y

    for n in (3, 5):
        x = R(n, requires_grad=True)
        ours = symshape.trace(f, R(4, requires_grad=True))(x)
        assert torch.equal(
            torch.autograd.grad(ours[0].sum(), x)[0], torch.autograd.grad(f(x)[0].sum(), x)[0]
        )


# -- integers that may be -1


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, n: x.reshape(n, -1),
        lambda x, n: x.reshape(n),
        lambda x, n: x.view(2, n),
        lambda x, n: x.reshape(n, 3, 2),
        lambda x, n: x[:, None].expand(4, n, 3),
        lambda x, n: torch.broadcast_to(x, (n, 3)),
        lambda x, n: x.unflatten(0, (2, n)),
    ],
)
def test_a_size_that_may_be_minus_one_is_asked_about(fn: Any) -> None:
    calls = [(R(4, 3), n) for n in (2, -1, 12, 6, 4, 1, 0, -2)]
    served = 0
    for first in calls:
        try:
            fn(*first)
        except RuntimeError:
            continue
        agree(fn, first, *calls, dynamic=True)
        served += 1
    assert served >= 2


# -- what a stand-in is not


def _complex(n: int) -> torch.Tensor:
    return torch.arange(n).to(torch.complex64) * (1 + 2j)


def test_lazy_conjugates_are_followed() -> None:
    def fn(x: torch.Tensor) -> Any:
        y = x.conj()
        flags = (
            x.is_conj(),
            y.is_conj(),
            torch.is_conj(y.conj()),
            y[1:].is_conj(),
            (y + 1).is_conj(),
            y.is_neg(),
        )
        y.resolve_conj().add_(1)  # a copy
        x.resolve_conj().mul_(2)  # x itself
        return flags, y, y.resolve_conj().is_conj(), x.resolve_neg()

    fast = symshape.compile(fn)
    for n in (3, 4, 5):
        x, other = _complex(n), _complex(n)
        flags, y, resolved, same = fn(x)
        found = fast(other)
        assert found[0] == flags
        assert found[2] is resolved is False
        assert torch.equal(found[1], y)
        assert found[1].is_conj()
        assert torch.equal(other, x)
        assert torch.equal(found[3], same)


def test_parts_of_a_lazy_conjugate_are_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"resolve_conj\(\)"):
        symshape.trace(lambda x: x.conj().imag, _complex(3))


def test_inference_tensors_are_told_apart() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * (2 if x[1:].is_inference() else 3) + (x + 1).is_inference()

    fast = symshape.compile(fn)
    with torch.inference_mode():
        inference = torch.ones(3)
    for x in (torch.ones(3), inference, torch.ones(3), inference):
        assert torch.equal(fast(x), fn(x))
    assert fast.stats().traces == 2
    with torch.inference_mode():  # what the trace asks for itself is no question of the program's
        assert not symshape.trace(lambda x: x[1:] * 2, torch.ones(3)).program.questions


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda x: id(x), "id()"),
        (lambda x: hash(x), "as a key"),
        (lambda x: {x: 1}, "as a key"),
        (lambda x: x._is_view(), "is a view"),
        (lambda x: setattr(x, "k", 1), "sets the attribute k"),
        (lambda x: delattr(x, "k"), "deletes the attribute k"),
        (lambda x: vars(x), "all attributes"),
        (lambda x: copy.deepcopy(x.expand(2, 3)), "view of a larger one"),
        (lambda x: copy.deepcopy([x, x[:2]]), "shares memory"),
    ],
)
def test_what_differs_from_call_to_call_is_refused(ask: Any, message: str) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        ask(x)
        return x * 2

    x = torch.ones(3)
    with pytest.raises(UnsupportedError, match=re.escape(message)):
        symshape.trace(fn, x)
    assert not x.__dict__


def test_a_result_of_the_programs_own_may_be_all_that() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        y.k = 3  # type: ignore[attr-defined]
        return x * (y.k + {y: 2}[y] + (id(y) == id(x + 1)))  # type: ignore[attr-defined]

    assert torch.equal(symshape.trace(fn, torch.ones(3))(torch.ones(3)), fn(torch.ones(3)))


def test_deep_copies() -> None:
    def fn(x: torch.Tensor) -> Any:
        y = copy.deepcopy(x)
        y.add_(1)
        return x, y

    fast = symshape.compile(fn)
    for x in (torch.ones(3), torch.ones(4), torch.arange(6.0).view(2, 3)):
        for got, expected in zip(fast(x), fn(x), strict=True):
            assert torch.equal(got, expected)
            assert got.stride() == expected.stride()
    with pytest.raises(UnsupportedError, match="requires gradients"):
        symshape.trace(fn, torch.ones(3, requires_grad=True))


def test_large_numbers_in_tensors() -> None:
    def fn(x: torch.Tensor, k: int) -> Any:
        return (
            torch.tensor(k),
            torch.tensor([k, 1]),
            torch.as_tensor(k),
            x.new_tensor([k], dtype=torch.int64),
        )

    fast = symshape.compile(fn, dynamic=True)
    for k in (5, 2**31, 2**53 + 1):
        for got, expected in zip(fast(torch.ones(1), k), fn(torch.ones(1), k), strict=True):
            assert torch.equal(got, expected)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: torch.matmul(x, x.t(), out=x.new_empty(x.size(0), x.size(0))),
        lambda x: torch.matmul(x, x.t(), out=None),
        lambda x: torch.matmul(
            x.expand(2, -1, -1), x.t(), out=x.new_empty(2, x.size(0), x.size(0))
        ),
        lambda x: (
            torch.matmul(x, x.t(), out=(made := x.new_empty(x.size(0), x.size(0)))),
            made * 2,
        ),
    ],
)
def test_results_written_into_a_tensor(fn: Any) -> None:
    """Our own composites write into none: ``torch.matmul(out=...)`` was a TypeError."""
    assert agree(fn, (R(4, 6),), (R(2, 3),), (R(1, 5),), (R(3, 3),))[1].count("equal") >= 3


def test_those_whose_sizes_it_fixes() -> None:
    agree(
        lambda x: torch.kron(x, x[:1], out=x.new_empty(x.size(0), x.size(1) ** 2)),
        (R(4, 6),),
        (R(4, 6),),
    )
    agree(
        lambda x: torch.take_along_dim(x, x.argsort(1), 1, out=torch.empty_like(x)),
        (R(4, 6),),
        (R(4, 6),),
    )


def test_requiring_gradients_by_keyword() -> None:
    def fn(x: torch.Tensor) -> Any:
        y = (x * 2).requires_grad_(requires_grad=True)
        return y.detach().requires_grad_(requires_grad=False), torch.autograd.grad(
            y.square().sum(), y
        )

    agree(fn, (R(4, 6),), (R(2, 3),), (R(1, 5),))


def test_how_an_empty_result_lies_is_not_asked() -> None:
    """The strides of an empty tensor are an accident, which formulas do not follow; those of
    arguments are known.
    """

    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        return y + 1 if y.is_contiguous(memory_format=torch.channels_last) else y - 1

    empty = torch.zeros(1).expand(1, 1, 0, 2)
    with pytest.raises(UnsupportedError, match="for an empty tensor the sizes do not tell"):
        symshape.trace(fn, empty, dynamic=True)
    traced, seen = agree(
        fn,
        (R(2, 3, 4, 5),),
        (R(2, 3, 4, 5).to(memory_format=torch.channels_last),),
        (R(2, 1, 4, 1),),
    )
    assert seen.count("equal") >= 1
    assert not traced.check(empty)
    agree(lambda x: x.is_contiguous(memory_format=torch.channels_last), (empty,), (R(2, 3, 4, 5),))


LAST, LAST_3D = torch.channels_last, torch.channels_last_3d


@pytest.mark.parametrize(
    ("program", "rank"),
    [
        (lambda x: (x + 1).contiguous(memory_format=LAST), 4),
        (lambda x: (x + x.sum()).contiguous(memory_format=LAST) * 1, 4),
        (lambda x: x.relu().contiguous(memory_format=LAST).transpose(1, 2), 4),
        (lambda x: (x * 2.0).contiguous(memory_format=LAST_3D), 5),
        (lambda x: torch.where(x > 0, x, 1.0).contiguous(memory_format=LAST), 4),
    ],
)
def test_strides_of_empty_tensors_after_copies_into_channels_last(program: Any, rank: int) -> None:
    def strides(x: torch.Tensor) -> Any:
        return program(x).stride()

    compiled = symshape.compile(strides, dynamic=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", symshape.FallbackWarning)
        for sizes in [(2, 3, 2, 3), (2, 1, 1, 0), (0, 1, 0, 0), (0, 1, 0, 1), (2, 2, 1, 0)]:
            x = torch.zeros((*sizes, 2)[:rank])
            for each in (x, x.transpose(1, 3)):
                assert compiled(each) == strides(each)
