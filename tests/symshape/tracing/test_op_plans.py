"""What is looked up of an op."""

from __future__ import annotations

import torch

from symshape.tracing.op_plans import plan_of

R = torch.randn


aten = torch.ops.aten


def test_plans() -> None:
    add, written, view = (
        plan_of(aten.add.Tensor),
        plan_of(aten.add_.Tensor),
        plan_of(aten.view.default),
    )
    assert plan_of(aten.add.Tensor) is add
    assert add.rule is not None
    assert (add.same_as[:1], add.mutated, add.is_view) in (((None,), (), False), ((), (), False))
    assert (written.same_as[0], written.mutated) == (0, (0,))
    assert written.names[:2] == ("self", "other")
    assert view.is_view
    assert view.view_of[0] == 0
    assert not view.keeps_strides
    assert plan_of(aten.t.default).keeps_strides
    assert plan_of(aten.nonzero.default).data_dependent
    assert not add.data_dependent


def test_an_op_without_a_rule() -> None:
    with torch.library._scoped_library("symshape_plans", "DEF") as library:
        library.define("ruleless(Tensor x) -> Tensor")
        found = plan_of(torch.ops.symshape_plans.ruleless.default)
    assert found.rule is None
    assert found.rule_name == ""
