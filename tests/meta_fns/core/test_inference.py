"""The door to the rules: names, keywords, errors that name the op, and what only the data tells."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import meta_fns
from meta_fns import TensorSpec, infer
from tests.meta_fns.eager import describe

aten = torch.ops.aten


def test_names_and_tensors() -> None:
    a, b = torch.ones(2, 3), torch.ones(3, 4).t().contiguous().t()
    expected = describe(torch.mm(a, b))
    for op in ("aten.mm", "aten.mm.default", "aten::mm", aten.mm.default):
        assert describe(infer(op, (a, b))) == expected
        assert describe(infer(op, [TensorSpec.of(a), TensorSpec.of(b)])) == expected
    joined = infer("aten.cat.default", ([a, a],), {"dim": 1})
    assert describe(joined) == describe(torch.cat([a, a], 1))


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((), {"start": 1, "dim": 1}),
        ((1,), {"end": 3}),
        ((), {"step": 2}),
        ((1, 0), {"step": 2, "end": 4}),
        ((1, 0, 4, 2), {}),
    ],
)
def test_keywords_go_to_their_positions(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    tensor = torch.ones(5, 6)
    given = dict(kwargs)
    found = infer("aten.slice.Tensor", (tensor, *args), kwargs)
    assert describe(found) == describe(aten.slice.Tensor(tensor, *args, **kwargs))
    assert kwargs == given  # the caller's own are left alone


def test_operands_given_by_keyword() -> None:
    """Rules that are made by a table take operands by their position alone."""
    a, b = torch.ones(2, 1), torch.ones(3, dtype=torch.int64)
    for op in (aten.maximum.default, aten.atan2.default):
        assert describe(infer(op, (a,), {"other": b})) == describe(op(a, other=b))
        assert describe(infer(op, (), {"other": b, "self": a})) == describe(op(a, b))


def test_keyword_only_arguments_stay() -> None:
    tensor = torch.ones(2)
    assert (
        infer("aten.sum.default", (), {"self": tensor, "dtype": torch.float64}).dtype
        is torch.float64
    )
    assert infer("aten.add.Tensor", (tensor,), {"other": tensor, "alpha": 2}).sizes == (2,)


def test_errors_name_the_op() -> None:
    with pytest.raises(meta_fns.ShapeError, match=r"^aten\.mm\.default: ") as raised:
        infer("aten.mm", (torch.ones(2, 3), torch.ones(4, 5)))
    assert raised.value.op == "aten.mm.default"
    with pytest.raises(
        meta_fns.DtypeError, match=r"^aten\.bitwise_not\.default: not implemented for torch.float32"
    ):
        infer("aten.bitwise_not.default", (torch.ones(2),))


def test_what_has_no_rule() -> None:
    with pytest.raises(meta_fns.UnsupportedOp, match=r"no operator 'aten\.no_such_op'"):
        infer("aten.no_such_op", ())
    name = next(
        str(op)
        for op in (aten._cudnn_init_dropout_state.default, aten._thnn_fused_gru_cell.default)
        if not meta_fns.has_rule(op)
    )
    with pytest.raises(meta_fns.UnsupportedOp, match="no rule for this operator") as raised:
        infer(name, (torch.ones(2),))
    assert raised.value.op == name


class Unknowns:
    def __init__(self) -> None:
        self.asked: list[tuple[Any, Any]] = []

    def new_size(self, lower: Any, upper: Any) -> int:
        self.asked.append((lower, upper))
        return 4

    def count_of(self, counted: Any, lower: Any, upper: Any) -> int:
        return self.new_size(lower, upper)


def test_what_only_the_data_tells() -> None:
    mask = torch.ones(2, 3)
    with pytest.raises(meta_fns.DataDependentOutput, match=r"^aten\.nonzero\.default: .*pass ctx="):
        infer("aten.nonzero.default", (mask,))
    ctx = Unknowns()
    assert infer("aten.nonzero.default", (mask,), ctx=ctx).sizes == (4, 2)  # type: ignore[arg-type]
    assert ctx.asked == [(0, 6)]
