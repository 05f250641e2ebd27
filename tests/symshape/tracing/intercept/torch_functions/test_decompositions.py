"""Ops without a rule of ours: custom ops, composites, torch's meta functions; and ops that cannot
be traced.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

import symshape
from symshape import RuntimeAssertionError, UnsupportedError, events
from symshape.graph.steps import Assertion, Node
from tests.symshape.eager import agree, assert_same

R = torch.randn


@torch.library.custom_op("symshape_tests::scaled_sum", mutates_args=())
def scaled_sum(x: torch.Tensor, y: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    return x * scale + y


@scaled_sum.register_fake
def _(x: torch.Tensor, y: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    torch._check(x.shape == y.shape)
    return torch.empty_like(x)


@torch.library.custom_op("symshape_tests::split_half", mutates_args=())
def split_half(x: torch.Tensor) -> list[torch.Tensor]:
    half = x.size(0) // 2
    return [x[:half].clone(), x[half:].clone()]


@split_half.register_fake
def _(x: torch.Tensor) -> list[torch.Tensor]:
    half = x.size(0) // 2
    return [x.new_empty(half, *x.shape[1:]), x.new_empty(x.size(0) - half, *x.shape[1:])]


@torch.library.custom_op("symshape_tests::bump_", mutates_args={"x"})
def bump_(x: torch.Tensor, by: int) -> None:
    x.add_(by)


@bump_.register_fake
def _(x: torch.Tensor, by: int) -> None:
    return None


@torch.library.custom_op("symshape_tests::positives", mutates_args=())
def positives(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0].clone()


@positives.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    found = torch.library.get_ctx().new_dynamic_size(min=0)
    torch._check(found <= x.numel())
    return x.new_empty(found)


@torch.library.custom_op("symshape_tests::doubled_positives", mutates_args=())
def doubled_positives(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0].repeat(2)


@doubled_positives.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty(2 * torch.library.get_ctx().new_dynamic_size())


@torch.library.custom_op("symshape_tests::by_composition", mutates_args=())
def by_composition(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0].clone()


@by_composition.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0].clone()  # a fake implementation that uses a data-dependent op itself


@torch.library.custom_op("symshape_tests::without_fake", mutates_args=())
def without_fake(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@torch.library.custom_op("symshape_tests::wrong_fake", mutates_args=())
def wrong_fake(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@wrong_fake.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    raise KeyError("no such thing")


def fallbacks_of(fn: Any, *args: Any) -> list[tuple[str, str]]:
    seen: list[Any] = []
    unsubscribe = events.subscribe(seen.append)
    try:
        symshape.trace(fn, *args)
    finally:
        unsubscribe()
    return [(event.op, event.how) for event in seen if isinstance(event, events.Fallback)]


PAIRS = [(R(m, n), R(m, n)) for m, n in ((3, 4), (5, 2), (1, 1), (0, 3))]


def test_a_custom_op() -> None:
    traced, seen = agree(lambda x, y: scaled_sum(x, y, 2.0) + 1, *PAIRS, (R(3, 4), R(3, 5)))
    assert seen == ["equal"] * 4 + ["refused"]
    assert [str(node.op) for node in traced.graph.nodes] == [
        "symshape_tests.scaled_sum.default",
        "aten.add.Tensor",
    ]
    assert ("symshape_tests.scaled_sum.default", "register_fake") in fallbacks_of(
        scaled_sum, R(2), R(2)
    )


def test_a_custom_op_with_several_results() -> None:
    traced, seen = agree(
        lambda x: [t * 2 for t in split_half(x)], (R(5, 2),), (R(4, 3),), (R(1, 1),), (R(0, 2),)
    )
    assert set(seen) == {"equal"}
    assert not traced.guards
    assert [str(spec.sizes[0]) for spec in traced.output_specs] == ["s0//2", "s0 - s0//2"]


def test_a_custom_op_that_writes() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        bump_(x[1:], x.size(0))
        return x * 2

    traced, seen = agree(fn, (R(3),), (R(7),), (R(1),))
    assert set(seen) == {"equal"}
    assert traced.graph.mutates_inputs


def test_a_custom_op_whose_size_depends_on_data() -> None:
    traced, seen = agree(lambda x: positives(x) * 2, (R(5),), (R(9),), (-torch.ones(3),), (R(0),))
    assert set(seen) == {"equal"}
    kinds = [type(step) for step in traced.graph.steps]
    assert kinds == [Node, Assertion, Node]  # the check comes after the op that binds its size


def test_the_check_of_a_fake_implementation_is_asserted() -> None:
    @torch.library.custom_op("symshape_tests::at_most_two", mutates_args=())
    def at_most_two(x: torch.Tensor) -> torch.Tensor:
        return x[x > 0].clone()

    @at_most_two.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        found = torch.library.get_ctx().new_dynamic_size()
        torch._check(found <= 2, lambda: "two at most")
        return x.new_empty(found)

    traced = symshape.trace(lambda x: at_most_two(x) + 1, R(3))
    assert traced(torch.tensor([1.0, -1.0, 2.0])).shape == (2,)
    with pytest.raises(RuntimeAssertionError, match="two at most"):
        traced(torch.ones(3))


def test_a_size_that_no_result_shows() -> None:
    with pytest.raises(
        UnsupportedError, match=r"doubled_positives.*return a tensor with such a dimension"
    ):
        symshape.trace(doubled_positives, R(3))


def test_a_fake_implementation_that_is_data_dependent_inside() -> None:
    _, seen = agree(lambda x: by_composition(x) + 1, (R(5),), (R(9),), (-torch.ones(3),))
    assert set(seen) == {"equal"}


def test_an_op_without_a_fake_implementation() -> None:
    words = (
        r"symshape_tests::without_fake .*has no fake implementation.*torch\.library\.register_fake"
    )
    with pytest.raises(UnsupportedError, match=words) as raised:
        symshape.trace(lambda x: without_fake(x) + 1, R(3))
    assert "test_decompositions.py" in str(raised.value)


def test_a_fake_implementation_that_fails() -> None:
    with pytest.raises(
        UnsupportedError, match=r"wrong_fake.*register_fake does not run.*KeyError.*no such thing"
    ):
        symshape.trace(wrong_fake, R(3))


def test_a_custom_op_with_a_gradient() -> None:
    @torch.library.custom_op("symshape_tests::cube", mutates_args=())
    def cube(x: torch.Tensor) -> torch.Tensor:
        return x**3

    cube.register_fake(torch.empty_like)
    cube.register_autograd(
        lambda ctx, gradient: gradient * 3 * ctx.saved_tensors[0] ** 2,
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )
    weight = torch.nn.Parameter(R(3))
    try:
        traced = symshape.trace(lambda x: cube(x * weight).sum(), R(3))
    except UnsupportedError as error:
        assert "gradient" in str(error)  # refused rather than lost  # noqa: PT017
        return
    x = R(3)
    (ours,) = torch.autograd.grad(traced(x), weight)
    (theirs,) = torch.autograd.grad(cube(x * weight).sum(), weight)
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: torch.nn.functional.cosine_similarity(x, x + 1, dim=0),
        lambda x: (
            torch.nn.functional.unfold(x[None, None], 2) if x.size(0) > 1 and x.size(1) > 1 else x
        ),
        lambda x: torch.linalg.norm(x),
        lambda x: torch.logcumsumexp(x, 0),
        lambda x: torch.special.erf(x),
        lambda x: torch.histc(x, 4),
        lambda x: torch.cdist(x, x),
        lambda x: torch.trapezoid(x, dim=0),
        lambda x: torch.vander(x[:, 0]) if x.size(1) else x,
        lambda x: torch.fft.rfft(x.double(), dim=0).real if x.numel() else x,
        lambda x: torch.einsum("ij,kj->ik", x, x),
        lambda x: torch.tensordot(x, x, dims=([1], [1])),
        lambda x: torch.combinations(torch.arange(3.0)) + x.sum(),
        lambda x: torch.block_diag(x, x),
        lambda x: torch.nn.functional.pixel_shuffle(x[None, None].expand(1, 4, -1, -1), 2),
    ],
)
def test_ops_by_whatever_is_registered(fn: Any) -> None:
    try:
        _, seen = agree(fn, (R(4, 3),), (R(2, 5),), (R(1, 1),), (R(6, 2),))
    except UnsupportedError:
        pytest.skip("not covered yet: refused clearly")
    assert seen.count("equal") >= 1


@pytest.mark.parametrize(
    ("fn", "what"),
    [
        (lambda x: x.to_sparse(), "sparse"),
        (lambda x: x.to_sparse() + x, "sparse"),
        (lambda x: torch.nested.nested_tensor([x, x]), "nested"),
        (lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), "quantize"),
        (lambda x: x.to_mkldnn(), "mkldnn"),
        (
            lambda x: torch.cond(x.sum() > 0, lambda x: x[0] + 1, lambda x: x - 1, (x,)),
            "torch.cond",
        ),
    ],
)
def test_what_cannot_be_traced_is_refused_by_us(fn: Any, what: str) -> None:
    with pytest.raises(UnsupportedError, match=what):
        symshape.trace(fn, R(3, 4))


def test_transforms_of_functions() -> None:
    """Vmap and grad take themselves apart into plain ops, or are refused clearly."""
    for fn in (
        lambda x: torch.func.vmap(lambda row: row * 2 + row.sum())(x),
        lambda x: torch.func.grad(lambda y: y.pow(2).sum())(x),
    ):
        try:
            traced = symshape.trace(fn, R(3, 4))
        except UnsupportedError:
            continue
        assert_same(fn, traced, R(3, 4))
        for sizes in ((5, 2), (1, 4)):
            if traced.check(R(sizes)):
                assert_same(fn, traced, R(sizes))


# -- operators of libraries that register kernels for "Meta", and no fake implementation
LIBRARY = torch.library.Library("symshape_tests_meta", "FRAGMENT")


def _registered(schema: str, kernel: Any, meta: Any) -> Any:
    LIBRARY.define(schema)
    name = schema.partition("(")[0]
    LIBRARY.impl(name, kernel, "CPU")
    if meta is not None:
        LIBRARY.impl(name, meta, "Meta")
    return getattr(torch.ops.symshape_tests_meta, name)


def _halves(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x[: x.size(0) // 2] * 2, x[x.size(0) // 2 :].t().clone()


def _first_four(x: torch.Tensor) -> torch.Tensor:
    return (x if x.size(0) < 4 else x[:4]).clone()


def _doubles(x: torch.Tensor) -> None:
    x.mul_(2)


META = {
    "as the argument": _registered(
        "doubled(Tensor x) -> Tensor", lambda x: x * 2, torch.empty_like
    ),
    "on the device of that name": _registered(
        "narrow(Tensor x) -> Tensor",
        lambda x: x[:, :2] * 2,
        lambda x: torch.empty((x.shape[0], 2), device="meta"),
    ),
    "two": _registered("halves(Tensor x) -> (Tensor, Tensor)", _halves, _halves),
    "branching": _registered("first_four(Tensor x) -> Tensor", _first_four, _first_four),
    "writing": _registered("doubles(Tensor(a!) x) -> ()", _doubles, lambda x: None),
}


@pytest.mark.parametrize("name", META)
def test_kernels_for_meta_tensors(name: str) -> None:
    op = META[name]

    def fn(x: torch.Tensor) -> Any:
        y = x * 1
        made = op(y)
        return y, [
            (each + 1, each.device.type)
            for each in (made if isinstance(made, tuple) else [made])
            if made is not None
        ]

    fast = symshape.compile(fn, fullgraph=True, dynamic=True)
    for n in (5, 3, 8, 1, 0):
        x = R(n, 3)
        for one, other in zip(pytree.tree_leaves(fn(x)), pytree.tree_leaves(fast(x)), strict=True):
            assert torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other
    assert fast.stats().traces <= 2


def test_a_kernel_for_meta_tensors_that_does_not_fit() -> None:
    def raises(x: torch.Tensor) -> torch.Tensor:
        raise KeyError("no such thing")

    op = _registered("raises(Tensor x) -> Tensor", lambda x: x * 2, raises)
    with pytest.raises(
        UnsupportedError, match="its meta kernel does not run on symbolic sizes: KeyError"
    ):
        symshape.trace(lambda x: op(x), R(3))
    op = _registered("no_meta(Tensor x) -> Tensor", lambda x: x * 2, None)
    with pytest.raises(UnsupportedError, match=r"::no_meta .*has no fake implementation"):
        symshape.trace(lambda x: op(x), R(3))


# -- lists of tensors


def _in_place(x: torch.Tensor) -> list[torch.Tensor]:
    both = [x.clone(), x[:1].clone()]
    torch._foreach_mul_(both, 2)
    torch._foreach_add_(both, [x, x[:1]], alpha=-0.5)
    torch._foreach_sqrt_(both)
    return both


def _writes_the_argument(x: torch.Tensor) -> torch.Tensor:
    torch._foreach_add_([x], 1)
    return x


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: torch._foreach_add([x, x * 2], 1),
        lambda x: torch._foreach_add([x, x * 2], [x, x], alpha=2),
        lambda x: torch._foreach_mul([x, x * 2], [1.0, 2.0]),
        lambda x: torch._foreach_addcmul([x, x * 2], [x, x], [x, x], [1.0, 2.0]),
        lambda x: torch._foreach_addcdiv([x], [x], [x.abs() + 1], value=0.5),
        lambda x: torch._foreach_lerp([x, x * 2], [x, x], 0.5),
        lambda x: torch._foreach_maximum([x, x * 2], [x * 3, x]),
        lambda x: torch._foreach_norm([x, x * 2]),
        _in_place,
        _writes_the_argument,
    ],
)
def test_foreach_ops_keep_sizes_symbolic(fn: Any) -> None:
    traced, seen = agree(fn, *((torch.randn(n, 3),) for n in (4, 2, 1, 0)))
    assert seen == ["equal"] * 4
    assert not traced.guards
