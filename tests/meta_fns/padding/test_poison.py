"""Every padding rule against eager, its padding poisoned; and rules made wrong on purpose, which
have to be caught.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import attrs
import pytest
import torch
import torch.nn.functional as F

import symshape
from meta_fns.core import registry
from meta_fns.padding import (
    axes,
    index_writes,
    losses,
    matmul,
    reductions,
    repairs,
    rows,
    sorting,
    symbolic_scalars,
    transformer_layers,
    views,
)
from meta_fns.padding.padded import Padded, apply
from symshape.runtime.padding.versions import Versions
from tests.meta_fns.padding.cases import CASES, ELEMENTWISE, Case, attend
from tests.meta_fns.padding.cases_gradients import GRADIENTS
from tests.meta_fns.padding.cases_numbers import NUMBERS
from tests.meta_fns.padding.cases_rearranging import REARRANGING
from tests.meta_fns.padding.cases_rows import LAYER, ROWS_AND_WINDOWS
from tests.meta_fns.padding.cases_writing import WRITING
from tests.meta_fns.padding.poison import Arg, floats, ints, poisoned

EVERY = (*CASES, *WRITING, *GRADIENTS, *REARRANGING, *NUMBERS, *ROWS_AND_WINDOWS, *ELEMENTWISE)
REFUSING = {"slice from a size": {"s0", "s2"}}
"""Symbols that are rightly refused, by case."""
NOT_RUN = {
    **dict.fromkeys(
        (
            "aten._scaled_dot_product_flash_attention.default",
            "aten._scaled_dot_product_efficient_attention.default",
            "aten._scaled_dot_product_cudnn_attention.default",
            "aten._scaled_dot_product_fused_attention_overrideable.default",
            "aten._cudnn_rnn.default",
            "aten._scaled_dot_product_flash_attention_backward.default",
            "aten._scaled_dot_product_efficient_attention_backward.default",
            "aten._scaled_dot_product_cudnn_attention_backward.default",
        ),
        "runs on devices only: test_transform and test_attention_on_device in symshape run what is "
        "around it",
    ),
    **dict.fromkeys(
        (
            *("aten.cudnn_batch_norm.default", "aten.cudnn_grid_sampler.default"),
            *("aten._thnn_fused_gru_cell.default", "aten._thnn_fused_lstm_cell.default"),
        ),
        "runs on devices only: tests/gpu/test_padded_modules.py",
    ),
    **dict.fromkeys(
        (
            "aten.lift.default",
            "aten.lift_fresh.default",
            "aten._fw_primal.default",
            "aten._neg_view.default",
        ),
        "no program calls it; the same rule as alias",
    ),
    **dict.fromkeys(
        (
            *(
                "aten.resolve_conj.default",
                "aten.resolve_neg.default",
                "aten.numpy_T.default",
                "aten.reshape.default",
            ),
            *(
                "aten.__and__.Scalar",
                "aten.__and__.Tensor",
                "aten.__or__.Scalar",
                "aten.__or__.Tensor",
            ),
            *(
                "aten.__xor__.Scalar",
                "aten.__xor__.Tensor",
                "aten.max.other",
                "aten.min.other",
                "aten.isfinite.default",
            ),
            *(
                "aten.clip.Tensor",
                "aten.clip.default",
                "aten.multiply.Tensor",
                "aten.true_divide.Tensor",
            ),
            *("aten.float_power.Tensor_Scalar", "aten.float_power.Tensor_Tensor"),
            *(
                "aten.subtract.Scalar",
                "aten.subtract.Tensor",
                "aten.square.default",
                "aten.relu6.default",
            ),
            *("aten.selu.default", "aten._fused_rms_norm.default"),
        ),
        "decomposed on the CPU before it is seen",
    ),
    **dict.fromkeys(
        ("aten.round.decimals", "aten.gelu_backward.default"), "elementwise like its neighbours"
    ),
    **dict.fromkeys(
        (
            "aten.concat.default",
            "aten.concatenate.default",
            "aten.swapaxes.default",
            "aten.swapdims.default",
        ),
        "another name of an op that is run",
    ),
    **dict.fromkeys(
        ("aten.convolution_overrideable.default", "aten.convolution_backward_overrideable.default"),
        "for devices that come from elsewhere",
    ),
    **dict.fromkeys(
        (
            *("aten.avg_pool3d_backward.default", "aten._adaptive_avg_pool3d_backward.default"),
            *(
                "aten.upsample_nearest1d_backward.default",
                "aten.upsample_nearest3d_backward.default",
            ),
            *(
                "aten.upsample_linear1d_backward.default",
                "aten.upsample_trilinear3d_backward.default",
            ),
            *(f"aten._upsample_nearest_exact{n}d_backward.default" for n in (1, 2, 3)),
        ),
        "the same rule as in two dimensions",
    ),
    "aten._fused_rms_norm_backward.default": (
        "the rule of layer norm; on the CPU it is decomposed before it is seen"
    ),
    **dict.fromkeys(
        (
            *(
                "aten.rand.default",
                "aten.randn.default",
                "aten.rand_like.default",
                "aten.randn_like.default",
            ),
            *(
                "aten.randint.default",
                "aten.randint.low",
                "aten.randint_like.default",
                "aten.randint_like.low_dtype",
            ),
            *(
                "aten.bernoulli.default",
                "aten.bernoulli.p",
                "aten.uniform.default",
                "aten.exponential.default",
            ),
            "aten.native_dropout.default",
        ),
        "it draws random numbers: see test_padded_randomness.py",
    ),
}
"""Overloads with a padding rule that no case calls, and why."""


@pytest.mark.parametrize("case", EVERY, ids=lambda case: case.name)
def test_padding_never_shows(case: Case) -> None:
    outcome = poisoned(case.fn, *case.arguments, tolerance=case.tolerance)
    assert outcome.plan.refusals.keys() == REFUSING.get(case.name, set()), outcome.plan.refusals
    assert outcome.plan.caps
    assert outcome.compared >= 4, "eager refused nearly all sizes: the case says too little"


def _traced(case: Case) -> set[str]:
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        graph = symshape.trace(
            case.fn, *(arg.make(arg.sizes, generator) for arg in case.arguments)
        ).graph
    return {str(node.op) for node in graph.nodes}


@pytest.mark.slow
def test_every_padding_rule_is_run() -> None:
    called = set().union(*map(_traced, EVERY))
    rules = {rule.overload for rule in registry.rules() if rule.padding is not None}
    assert rules - called == NOT_RUN.keys()


# --- mutations ------------------------------------------------------------------------------------

Patch = Callable[[pytest.MonkeyPatch], None]


def _softmax_padded_with_zero(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(reductions.IDENTITIES, "_softmax", lambda dtype: 0)


def _mean_divided_by_the_capacity(patch: pytest.MonkeyPatch) -> None:
    def count(emit: Any, reduced: Any) -> Any:
        return emit.size(math.prod(map(axes.capacity_of, reduced)))

    patch.setattr(reductions, "count", count)


def _argmax_without_a_mask(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reductions, "_neutral", lambda emit, x, dims: x)


def _argmax_of_ints_masked_with_zero(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(reductions.IDENTITIES, "argmax", lambda dtype: 0)


def _cumsum_that_runs_backwards(patch: pytest.MonkeyPatch) -> None:
    def backwards(emit: Any, self: Padded, dim: int, **kwargs: Any) -> Padded:
        flip = torch.ops.aten.flip.default
        flipped = self.with_(tensor=emit.call(flip, self.tensor, [dim]))
        return Padded(emit.call(flip, apply(emit, flipped, dim, **kwargs), [dim]), self.axes)

    _replace(patch, "aten.cumsum.default", backwards)


def _flip_as_if_elementwise(patch: pytest.MonkeyPatch) -> None:
    _replace(
        patch,
        "aten.flip.default",
        lambda emit, self, dims: Padded(apply(emit, self, dims), self.axes),
    )


def _contraction_of_garbage(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(matmul, "contracted", lambda emit, a, b: (a, b))


def _contraction_with_one_side_zero(patch: pytest.MonkeyPatch) -> None:
    def contracted(emit: Any, a: Padded, b: Padded) -> tuple[Padded, Padded]:
        return repairs.masked(emit, a, 0), b

    patch.setattr(matmul, "contracted", contracted)


def _fill_that_is_not_so(patch: pytest.MonkeyPatch) -> None:
    from meta_fns.padding.fills import ZERO

    _replace(patch, "aten.add.Tensor", lambda emit, a, b: Padded(apply(emit, a, b), a.axes, ZERO))


def _last_of_the_capacity(patch: pytest.MonkeyPatch) -> None:
    def select(emit: Any, self: Padded, dim: int, index: Any) -> Padded:
        return Padded(apply(emit, self, dim, index), (*self.axes[:dim], *self.axes[dim + 1 :]))

    _replace(patch, "aten.select.int", select)


def _index_without_a_mask(patch: pytest.MonkeyPatch) -> None:
    from meta_fns.padding import indexing

    patch.setattr(indexing, "index_in", lambda emit, index, axis, *, wraps: index)


def _attention_without_a_mask(patch: pytest.MonkeyPatch) -> None:
    from meta_fns.padding import attention

    patch.setattr(
        attention, "added_for_keys", lambda emit, query, keys, given: given and given.tensor
    )


def _attention_to_garbage_values(patch: pytest.MonkeyPatch) -> None:
    from meta_fns.padding import attention

    patch.setattr(attention, "prepared", lambda emit, query, key, value, causal: (key, value))


def _cat_with_a_gap(patch: pytest.MonkeyPatch) -> None:
    from meta_fns.padding import joining

    patch.setattr(joining, "_closed", lambda emit, tensor, dim, along: tensor)


def _convolution_of_garbage(patch: pytest.MonkeyPatch) -> None:
    from meta_fns.padding import convolution

    patch.setattr(convolution, "masked", lambda emit, x, value, dims: x)


def _division_by_garbage(patch: pytest.MonkeyPatch) -> None:
    from meta_fns.padding import pointwise

    patch.setattr(pointwise, "masked", lambda emit, x, value: x)


def _writes_of_padding(patch: pytest.MonkeyPatch) -> None:
    def target(emit: Any, index: Padded, size: Any, *, wraps: bool) -> Padded:
        return repairs.masked(emit, index, 0)

    patch.setattr(index_writes, "_target", target)


def _slices_written_to_the_capacity(patch: pytest.MonkeyPatch) -> None:
    whole = index_writes._chosen

    def chosen(emit: Any, x: Padded, src: Padded, dim: int, inside: Any, place: Any) -> Padded:
        inside = emit.call(torch.ops.aten.ge.Scalar, place, 0)
        return whole(emit, x, src, dim, inside, place)

    patch.setattr(index_writes, "_chosen", chosen)


def _views_that_do_not_show_writes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Versions, "_put_back", lambda self, node, base, part: self._now[base])


def _sort_padded_with_zero(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sorting, "lowest", lambda dtype: 0)


def _order_that_takes_padding_first(patch: pytest.MonkeyPatch) -> None:
    def topk(emit: Any, self: Padded, k: Any, dim: int = -1, *rest: Any) -> Any:
        filled = repairs.masked(emit, self, repairs.highest(self.dtype), {dim})
        made = emit.call(torch.ops.aten.topk.default, filled.tensor, k, dim, *rest)
        return tuple(Padded(each, (self.axes[0], (k,))) for each in made)

    _replace(patch, "aten.topk.default", topk)


def _turned_round_the_capacity(patch: pytest.MonkeyPatch) -> None:
    _replace(
        patch,
        "aten.roll.default",
        lambda emit, self, *rest: self.with_(tensor=apply(emit, self, *rest)),
    )


def _mirrored_at_the_capacity(patch: pytest.MonkeyPatch) -> None:
    def mirrored(emit: Any, self: Padded, padding: Any) -> Padded:
        return Padded(
            apply(emit, self, padding),
            tuple(axes.normal((size,)) for size in emit.results[0].sizes),
        )

    _replace(patch, "aten.reflection_pad1d.default", mirrored)


def _resampled_by_the_capacity(patch: pytest.MonkeyPatch) -> None:
    def upsample(emit: Any, self: Padded, output_size: Any, *rest: Any) -> Padded:
        made = emit.call(emit.op, self.tensor, list(map(axes.capacity, output_size)), *rest)
        return Padded(made, tuple(axes.normal((size,)) for size in emit.results[0].sizes))

    _replace(patch, "aten.upsample_bilinear2d.default", upsample)


def _variance_of_the_capacity(patch: pytest.MonkeyPatch) -> None:
    def counted(emit: Any, reduced: Any) -> Any:
        return emit.size(math.prod(map(axes.capacity_of, reduced)))

    patch.setattr(reductions, "count", counted)


def _norm_of_garbage(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reductions, "masked", lambda emit, x, value, dims: x)


def _loss_of_padding(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(losses, "masked", lambda emit, x, value: repairs.masked(emit, x, 0))


def _margin_beyond_garbage(patch: pytest.MonkeyPatch) -> None:
    from meta_fns.padding import joining

    patch.setattr(joining, "masked", lambda emit, x, value, dims: x)


def _view_of_the_capacities(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(views, "relaid", lambda emit, x, dim, axis: x)


def _replace(patch: pytest.MonkeyPatch, overload: str, padding: Callable[..., Any]) -> None:
    patch.setitem(
        registry._rules, overload, attrs.evolve(registry._rules[overload], padding=padding)
    )
    registry._by_op.clear()


def _written_through(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y[:, 1:].add_(1)
    return y.sum(1)


def _middle_of_the_capacity(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sorting, "prefix", lambda axis: axes.capacity_of(axis))


def _mean_without_what_follows_infinity(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reductions, "_after_infinity", lambda emit, x, dims: repairs.number(emit, 0, x))


def _layers_without_a_mask(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(transformer_layers, "is_padded", lambda axis: False)


def _distances_of_garbage(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rows, "masked", lambda emit, x, value, dims: x)


def _numbers_of_the_capacity(patch: pytest.MonkeyPatch) -> None:
    made = symbolic_scalars.at_run_time
    patch.setattr(
        symbolic_scalars,
        "at_run_time",
        lambda emit, size, dtype: made(emit, axes.capacity(size), dtype),
    )


MUTATIONS: tuple[tuple[Patch, Callable[..., Any], tuple[Arg, ...]], ...] = (
    (_softmax_padded_with_zero, lambda x: x.softmax(1), (floats(3, 4),)),
    (_mean_divided_by_the_capacity, lambda x: x.mean(1), (floats(3, 4),)),
    (_argmax_without_a_mask, lambda x: x.argmax(1), (floats(3, 4),)),
    (_argmax_of_ints_masked_with_zero, lambda x: x.argmax(1), (ints(3, 4, low=-9, high=-1),)),
    (_cumsum_that_runs_backwards, lambda x: x.cumsum(1), (floats(3, 4),)),
    (_flip_as_if_elementwise, lambda x: x.flip(0), (floats(3, 4),)),
    (_contraction_of_garbage, lambda a, b: a @ b, (floats(3, 4), floats(4, 5))),
    (_contraction_with_one_side_zero, lambda a, b: a @ b, (floats(3, 4), floats(4, 5))),
    (_fill_that_is_not_so, lambda a: (a + 1).sum(1), (floats(3, 4),)),
    (_last_of_the_capacity, lambda x: x[:, -1] * 1, (floats(3, 4),)),
    (_index_without_a_mask, lambda w, i: w[i] * 1, (floats(5, 3), ints(4, low=-1, high=1))),
    (_attention_without_a_mask, lambda x: attend(x, x * 2), (floats(2, 2, 5, 8, static=(3,)),)),
    (_attention_to_garbage_values, lambda x: attend(x, x * 2), (floats(2, 2, 5, 8, static=(3,)),)),
    (_cat_with_a_gap, lambda a, b: torch.cat([a, b]), (floats(3), floats(4))),
    (
        _convolution_of_garbage,
        lambda x: torch.conv1d(x, torch.ones(2, 3, 3), padding=1),
        (floats(2, 3, 9, static=(1,)),),
    ),
    (
        _writes_of_padding,
        lambda c, i, x: c.index_add(0, i, x),
        (floats(9, 3), ints(4, high=1), floats(4, 3)),
    ),
    (
        _slices_written_to_the_capacity,
        lambda c, x: torch.slice_scatter(c, x, 1, 0, x.shape[1]),
        (floats(3, 9), floats(3, 4)),
    ),
    (_views_that_do_not_show_writes, _written_through, (floats(5, 4),)),
    (_sort_padded_with_zero, lambda x: x.sort(1, descending=True)[0], (floats(3, 5),)),
    (_order_that_takes_padding_first, lambda x: x.topk(2, 1)[0], (floats(3, 5),)),
    (_turned_round_the_capacity, lambda x: x.roll(1, 1), (floats(3, 5),)),
    (_mirrored_at_the_capacity, lambda x: F.pad(x, (2, 1), mode="reflect"), (floats(2, 3, 5),)),
    (
        _resampled_by_the_capacity,
        lambda x, y: F.interpolate(x, size=y.shape, mode="bilinear"),
        (floats(2, 3, 4, 5), floats(6, 7)),
    ),
    (_middle_of_the_capacity, lambda x: x.median(1)[0], (floats(3, 5),)),
    (
        _mean_without_what_follows_infinity,
        lambda x: torch.var_mean(torch.where(x > 0.5, math.inf, x), 1),
        (floats(3, 5),),
    ),
    (_layers_without_a_mask, lambda x: LAYER(x), (floats(2, 5, 8, static=(2,)),)),
    (_distances_of_garbage, lambda x, y: torch.cdist(x, y, p=1.0), (floats(5, 3), floats(7, 3))),
    (
        _numbers_of_the_capacity,
        lambda x: x.clamp(max=x.shape[1] * 0.1) + x % x.shape[0],
        (floats(3, 5),),
    ),
    (_variance_of_the_capacity, lambda x: x.var(1), (floats(3, 5),)),
    (_norm_of_garbage, lambda x: torch.linalg.vector_norm(x, dim=1), (floats(3, 5),)),
    (
        _loss_of_padding,
        lambda x, y: F.cross_entropy(x, y, ignore_index=1),
        (floats(3, 5, static=(1,)), ints(3, high=5)),
    ),
    (_margin_beyond_garbage, lambda x: F.pad(x, (1, 2), value=3.0), (floats(3, 4),)),
    (_view_of_the_capacities, lambda x: x.reshape(x.shape[1], x.shape[0]) * 1, (floats(3, 8),)),
    (_division_by_garbage, lambda x, y: x // y, (ints(3, 4, high=50), ints(3, 4, low=1))),
)


@pytest.mark.parametrize(
    ("patch", "fn", "arguments"), MUTATIONS, ids=lambda x: getattr(x, "__name__", None)
)
def test_a_wrong_rule_is_caught(
    patch: Patch,
    fn: Callable[..., Any],
    arguments: tuple[Arg, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if patch is not _flip_as_if_elementwise:
        assert poisoned(fn, *arguments).compared, "the rule as it is passes"
    patch(monkeypatch)
    try:
        with pytest.raises((AssertionError, RuntimeError, IndexError)):
            poisoned(fn, *arguments)
    finally:
        monkeypatch.undo()
        registry._by_op.clear()


def test_an_op_without_a_rule_refuses_by_name() -> None:
    outcome = poisoned(lambda x: torch.renorm(x, 2, 0, 1.0), floats(3, 4))
    assert outcome.plan.padded is None
    refusal = outcome.plan.refusals["s0"]
    assert refusal.op == "aten.renorm.default"
    assert "padding rule" in refusal.reason
    assert "test_poison.py" in refusal.where
