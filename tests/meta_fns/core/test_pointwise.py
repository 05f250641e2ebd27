"""Makers of pointwise rules: kinds of promotion, dtypes, the order and number of operands."""

from __future__ import annotations

import random

import pytest
import torch

from meta_fns import DtypeError, TensorSpec
from meta_fns.core import pointwise
from tests.meta_fns.eager import ALL_DTYPES, describe, odd_sizes, odd_tensor

KINDS = {  # an eager op of each kind
    "same": torch.relu,
    "float": torch.sin,
    "bool": torch.isnan,
    "real": torch.abs,
    "angle": torch.angle,
    "double": lambda x: torch.float_power(x, 2),
}


@pytest.mark.parametrize("kind", KINDS)
def test_kinds(kind: str) -> None:
    rng = random.Random(kind)
    op = KINDS[kind]
    accepted = 0
    for dtype in ALL_DTYPES:
        if (kind in ("same", "real") and dtype is torch.bool) or (
            kind == "same" and dtype.is_complex
        ):
            continue  # these have no kernel
        for _ in range(40):
            tensor = odd_tensor(rng, odd_sizes(rng), dtype)
            try:
                expected = op(tensor)
            except RuntimeError:
                continue
            made = pointwise.unary(kind, "buihfc")
            if kind == "double":
                made = pointwise.nary(1, kind, "buihfcz")
            assert describe(made(TensorSpec.of(tensor))) == describe(expected), (
                kind,
                describe(tensor),
            )
            accepted += 1
    assert accepted > 200


def test_letters() -> None:
    letters = "".join(pointwise.DTYPES)
    everything = [dtype for dtypes in pointwise.DTYPES.values() for dtype in dtypes]
    assert len(everything) == len(set(everything))
    assert pointwise.accepted(letters) == set(everything)
    assert pointwise.accepted("bf") == {torch.bool, torch.float32, torch.float64}
    with pytest.raises(KeyError):
        pointwise.accepted("q")


@pytest.mark.parametrize(
    "made",
    [pointwise.unary("same", "f"), pointwise.like("same", "f"), pointwise.nary(1, "same", "f")],
)
def test_other_dtypes_are_refused(made: object) -> None:
    assert callable(made)
    assert made(TensorSpec.contiguous((2,))).dtype is torch.float32
    with pytest.raises(DtypeError, match=r"not implemented for torch\.int64"):
        made(TensorSpec.contiguous((2,), torch.int64))


def test_like_keeps_the_layout_of_empty_like() -> None:
    rng = random.Random(0)
    made = pointwise.like("float", "buihfc")
    for _ in range(300):
        tensor = odd_tensor(rng, odd_sizes(rng), torch.int64)
        assert describe(made(TensorSpec.of(tensor))) == describe(
            torch.empty_like(tensor, dtype=torch.float32)
        )


def test_order_of_operands() -> None:
    """The first operand that tells dimensions apart decides the layout: which that is, ``order``
    says.
    """
    turned, plain = TensorSpec((2, 3), (1, 2)), TensorSpec((2, 3), (6, 2))
    assert pointwise.nary(2, "same", "f")(turned, plain).strides == (1, 2)
    assert pointwise.nary(2, "same", "f", order=(1, 0))(turned, plain).strides == (3, 1)


def test_what_follows_the_operands_is_passed_over() -> None:
    spec = TensorSpec.contiguous((2, 3))
    made = pointwise.nary(2, "same", "buihfc")
    assert made(spec, 2.5, "tanh", alpha=object()).sizes == (2, 3)
    assert made(spec, 2j).dtype is torch.complex64
    assert made(2, spec.with_(dtype=torch.int32)).dtype is torch.int32
