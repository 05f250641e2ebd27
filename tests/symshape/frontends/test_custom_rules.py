"""A user's operator with rules of its own: traced at any size, with a known cost, and padded."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import meta_fns
import symshape
from meta_fns.core import registry
from symshape.tracing import op_plans

Tensor = torch.Tensor


@pytest.fixture
def scale() -> Iterator[torch.library.CustomOpDef]:
    """A pointwise operator that ``register_fake`` knows nothing of."""

    @torch.library.custom_op("tests_custom_rules::scale", mutates_args=())
    def scale(x: Tensor, by: float) -> Tensor:
        return (x * by).contiguous()

    yield scale
    registry._rules.pop("tests_custom_rules.scale.default", None)
    registry._by_op.clear()
    op_plans.forget(torch.ops.tests_custom_rules.scale.default)


def register(op: object, **given: object) -> None:
    symshape.register_rule(
        op,
        shape=lambda x, by: x.fresh(),
        cost=lambda call: call.results[0].numel(),
        **given,  # type: ignore[arg-type]
    )


def test_a_registered_operator_is_traced_at_any_size(scale: torch.library.CustomOpDef) -> None:
    register(scale)
    traced = symshape.trace(lambda x: scale(x, 2.0).sum(0), torch.ones(5, 3))
    assert len(traced.guards) == 0
    for rows in (0, 1, 7):
        x = torch.randn(rows, 3)
        assert torch.equal(traced(x), (x * 2.0).sum(0))


def test_rules_registered_after_a_trace_are_used_by_the_next(
    scale: torch.library.CustomOpDef,
) -> None:
    with pytest.raises(symshape.UnsupportedError):
        symshape.trace(lambda x: scale(x, 2.0), torch.ones(5, 3))
    register(scale)
    assert symshape.trace(lambda x: scale(x, 2.0), torch.ones(5, 3))(torch.ones(2, 3)).shape == (
        2,
        3,
    )


def test_rules_reach_an_operator_that_torch_has_looked_up_anew(
    scale: torch.library.CustomOpDef,
) -> None:
    """As when an earlier operator of this name dies late, with torch's entry for the name."""
    with pytest.raises(symshape.UnsupportedError):
        symshape.trace(lambda x: scale(x, 2.0), torch.ones(5, 3))
    delattr(torch.ops.tests_custom_rules, "scale")
    register(scale)
    assert symshape.trace(lambda x: scale(x, 2.0), torch.ones(5, 3)).graph.nodes


def test_its_cost_is_known(scale: torch.library.CustomOpDef) -> None:
    register(scale)
    work = meta_fns.work_of("tests_custom_rules.scale.default", (torch.ones(4, 3), 2.0))
    assert work is not None
    assert (work.flops, work.read, work.written, work.kernels) == (12, 48, 48, 1)
    cost = symshape.trace(lambda x: scale(x, 2.0), torch.ones(5, 3)).cost()
    assert "s0*s1" in str(cost)


def test_it_is_padded(scale: torch.library.CustomOpDef) -> None:
    register(scale, padding="pointwise")
    function = symshape.compile(lambda x: scale(x, 2.0).sum(0), runner="padded")
    for rows in (4, 5, 6, 7, 9, 17):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(function(x), (x * 2.0).sum(0))
    assert "padded" in str(function.report())
    assert function.stats().cuda_graphs > 0


def test_without_a_padding_rule_it_is_not_padded(scale: torch.library.CustomOpDef) -> None:
    register(scale)
    function = symshape.compile(lambda x: scale(x, 2.0).sum(0), runner="padded")
    for rows in (4, 5, 6):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(function(x), (x * 2.0).sum(0))
    assert function.stats().cuda_graphs == 0


def test_a_second_registration_replaces_what_it_gives(scale: torch.library.CustomOpDef) -> None:
    register(scale)
    symshape.register_rule("tests_custom_rules::scale", cost=lambda call: 7)
    row = meta_fns.lookup(torch.ops.tests_custom_rules.scale.default)
    assert row is not None
    work = meta_fns.work_of("tests_custom_rules.scale.default", (torch.ones(4, 3), 2.0))
    assert work is not None
    assert work.flops == 7
    assert meta_fns.infer("tests_custom_rules.scale.default", (torch.ones(4, 3), 2.0)).sizes == (
        4,
        3,
    )


def test_wrong_registrations_say_what_is_wrong(scale: torch.library.CustomOpDef) -> None:
    with pytest.raises(meta_fns.MetaError, match="has no shape rule yet: pass shape="):
        symshape.register_rule(scale, padding="pointwise")
    with pytest.raises(meta_fns.MetaError, match="is an operator of torch"):
        symshape.register_rule(torch.ops.aten.relu.default, shape=lambda x: x)
    with pytest.raises(meta_fns.MetaError, match="no operator 'tests_custom_rules::nothing'"):
        symshape.register_rule("tests_custom_rules::nothing", shape=lambda x: x)
    with pytest.raises(
        meta_fns.MetaError, match=r"an operator of torch\.library or its name is needed, not int"
    ):
        symshape.register_rule(3, shape=lambda x: x)
    with pytest.raises(meta_fns.MetaError, match="a padding rule or 'pointwise', not 'rows'"):
        symshape.register_rule(scale, shape=lambda x, by: x, padding="rows")  # type: ignore[arg-type]
