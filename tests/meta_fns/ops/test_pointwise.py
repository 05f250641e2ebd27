"""Pointwise rules against eager: sizes, strides, dtypes and refusals."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

import meta_fns
from guards.sets import sources
from guards.terms import fold
from meta_fns.core.registry import resolve
from meta_fns.ops import pointwise_table
from symshape.dims import Policy
from symshape.tracing.symbolic.env import ShapeEnv
from tests.meta_fns.eager import (
    ALL_DTYPES,
    broadcastable,
    check_call,
    odd_sizes,
    odd_tensor,
    overlapping,
    values,
)
from tests.meta_fns.symbolic import at


def names(rows: tuple[tuple[str, str, str], ...]) -> list[str]:
    found = [name if "." in name else f"{name}.default" for row in rows for name in row[0].split()]
    return [f"aten.{name}" for name in found]


UNARY = [
    n
    for n in names(pointwise_table.UNARY + pointwise_table.LIKE)
    if n not in ("aten.round.decimals", "aten.mvlgamma.default")
]
BINARY = [
    *names(pointwise_table.BINARY + pointwise_table.SCALED),
    "aten.pow.Tensor_Scalar",
    "aten.heaviside.default",
    "aten.lerp.Scalar",
]
BINARY += [
    "aten.pow.Scalar",
    *(f"aten.float_power.{o}" for o in ("Tensor_Tensor", "Tensor_Scalar", "Scalar")),
]
BINARY += ["aten.ldexp.Tensor", "aten.threshold_backward.default"]
TERNARY = [*names(pointwise_table.TERNARY), "aten.lerp.Tensor", "aten.addcdiv.default"]
# gelu_backward goes through oneDNN, which refuses some broadcasts; ldexp computes in dtypes of its
# own.
REFUSES_MORE = {"aten.gelu_backward.default", "aten.ldexp.Tensor"}


def fill(op: Any, operands: list[Any]) -> list[Any]:
    """Operands, then a value for each further argument without a default."""
    args: list[Any] = []
    rest = list(operands)
    for argument in op._schema.arguments:
        kind = str(argument.type)
        if argument.kwarg_only or argument.has_default_value():
            break
        if kind == "Tensor" or (
            kind == "number" and rest and not isinstance(rest[0], torch.Tensor)
        ):
            args.append(rest.pop(0))
        else:
            args.append(1 if kind in ("int", "number") else 0.5)
    return args


@pytest.mark.parametrize("name", [*UNARY, *BINARY, *TERNARY])
def test_dtype(name: str) -> None:
    op = resolve(name)
    tensors = sum(str(a.type) == "Tensor" for a in op._schema.arguments)
    accepted = 0
    for dtype in ALL_DTYPES:
        accepted += check_call(name, *fill(op, [values([2, 3], dtype)] * tensors))
        check_call(name, *fill(op, [values([0, 3], dtype)] * tensors))
        if tensors == 2:
            for other in ALL_DTYPES:
                for sizes in ([3], []):
                    args = fill(op, [values([2, 3], dtype), values(sizes, other)])
                    accepted += check_call(name, *args, refusals=name not in REFUSES_MORE)
    assert accepted


@pytest.mark.parametrize(
    "name", ["add.Tensor", "mul.Tensor", "sub.Tensor", "div.Tensor", "pow.Tensor_Scalar"]
)
def test_python_numbers_promote_last(name: str) -> None:
    name = f"aten.{name}" if "." in name else f"aten.{name}.default"
    for dtype in ALL_DTYPES:
        for number in (2, 2.0, True, 2j, -1):
            for sizes in ([3], []):
                check_call(name, values(sizes, dtype), number)


@pytest.mark.parametrize("name", UNARY)
def test_unary_layout(name: str) -> None:
    rng = random.Random(name)
    op = resolve(name)
    for _ in range(40):
        dtype = rng.choice((torch.float32, torch.float32, torch.int64, torch.complex64))
        check_call(name, *fill(op, [odd_tensor(rng, odd_sizes(rng), dtype)]))


MIXES = (
    *((torch.float32,), (torch.float32, torch.int64), (torch.int64,)),
    *((torch.bool, torch.uint8), (torch.complex64, torch.float32)),
)


@pytest.mark.parametrize("name", [n for n in BINARY + TERNARY if "calar" not in n])
def test_broadcast_layout(name: str) -> None:
    rng = random.Random(name)
    op = resolve(name)
    tensors = sum(str(a.type) == "Tensor" for a in op._schema.arguments)
    for _ in range(60):
        sizes = odd_sizes(rng)
        dtypes = rng.choice(MIXES)
        operands = []
        for i in range(tensors):
            picked = sizes if i == rng.randrange(tensors) else broadcastable(rng, sizes)
            if rng.random() < 0.05:
                picked = odd_sizes(rng)
            operands.append(odd_tensor(rng, picked, rng.choice(dtypes)))
        check_call(name, *fill(op, operands), refusals=name not in REFUSES_MORE)


@pytest.mark.parametrize("name", [n for n in BINARY if "calar" in n or "clamp" in n])
def test_number_layout(name: str) -> None:
    rng = random.Random(name)
    op = resolve(name)
    tensors = sum(str(a.type) == "Tensor" for a in op._schema.arguments)
    for _ in range(60):
        operands = [
            odd_tensor(rng, odd_sizes(rng), rng.choice((torch.float32, torch.int64)))
            for _ in range(tensors)
        ]
        check_call(name, *fill(op, operands))


def test_round_decimals() -> None:
    for dtype in ALL_DTYPES:
        check_call("aten.round.decimals", values([2, 3], dtype).t(), decimals=2)


def test_alpha() -> None:
    for dtype in ALL_DTYPES:
        for alpha in (2, 2.5, True, 2j):
            check_call("aten.add.Tensor", values([3], dtype), values([3], dtype), alpha=alpha)
            check_call("aten.sub.Tensor", values([3], dtype), values([3], dtype), alpha=alpha)


IN_PLACE = [
    "add_.Tensor",
    "mul_.Tensor",
    "div_.Tensor",
    "sub_.Tensor",
    "pow_.Tensor",
    "eq_.Tensor",
    "logical_and_.default",
]
IN_PLACE += [
    "relu_.default",
    "sigmoid_.default",
    "neg_.default",
    "abs_.default",
    "floor_.default",
    "bitwise_not_.default",
]


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place(name: str) -> None:
    rng = random.Random(name)
    op = resolve(f"aten.{name}")
    two = sum(str(a.type) == "Tensor" for a in op._schema.arguments) == 2
    for _ in range(150):
        sizes = odd_sizes(rng)
        operands = [odd_tensor(rng, sizes, rng.choice(ALL_DTYPES))]
        if two:
            operands.append(
                odd_tensor(
                    rng,
                    broadcastable(rng, odd_sizes(rng) if rng.random() < 0.1 else sizes),
                    rng.choice(ALL_DTYPES),
                )
            )
        check_call(op, *operands)


def test_out_variants() -> None:
    rng = random.Random(0)
    for _ in range(200):
        sizes = odd_sizes(rng)
        a, b = (odd_tensor(rng, broadcastable(rng, sizes)) for _ in range(2))
        out = odd_tensor(
            rng,
            sizes if rng.random() < 0.7 else odd_sizes(rng),
            rng.choice((torch.float32, torch.float64, torch.int64)),
        )
        check_call("aten.add.out", a, b, out=out)
        check_call("aten.sin.out", a, out=out)


def test_every_pointwise_overload_has_a_rule() -> None:
    missing = []
    for schema in torch._C._jit_get_all_schemas():
        if not schema.name.startswith("aten::"):
            continue
        packet = getattr(torch.ops.aten, schema.name[6:], None)
        op = getattr(packet, schema.overload_name or "default", None)
        if op is not None and torch.Tag.pointwise in op.tags and not meta_fns.has_rule(op):
            missing.append(str(op))
    assert missing == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["relu", "neg", "mul", "add"])
def test_layout_of_windows(name: str) -> None:
    """Elements that share memory: strides that are equal, or too small for their sizes, order by
    the sizes too.
    """
    rng = random.Random(0)
    for _ in range(1500):
        sizes = odd_sizes(rng)
        tensor = overlapping(rng, sizes)
        more = ()
        if name in ("mul", "add"):
            other = broadcastable(rng, sizes)
            more = (overlapping(rng, other) if rng.random() < 0.7 else odd_tensor(rng, other),)
        check_call(_overload(name, bool(more)), tensor, *more)


def _overload(name: str, binary: bool) -> str:
    return f"aten.{name}.{'Tensor' if binary else 'default'}"


def test_layout_of_windows_by_symbols() -> None:
    """Two dimensions of one stride: which is larger decides, so it is asked."""
    for length in range(3, 12):
        env = ShapeEnv()
        n = env.new_symbol("s0", length, sources.Size("x", 0), Policy.DYNAMIC)
        windows = meta_fns.infer(
            "aten.unfold.default", (meta_fns.TensorSpec.contiguous((n,)), 0, 3, 1)
        )
        result = meta_fns.infer("aten.relu.default", (windows,))
        for other in range(3, 12):
            if all(fold.evaluate(guard.term, {"s0": other}) for guard in env.guards):
                eager = torch.ones(other).unfold(0, 3, 1).relu()
                strides = zip(
                    eager.size(), eager.stride(), at(result.strides, {"s0": other}), strict=True
                )
                assert all(theirs == mine for size, theirs, mine in strides if size != 1)


def test_strides_that_meet_at_the_example() -> None:
    """(2, s3) expanded with s3 = 1: its strides s3 and 1 are equal there, so neither dimension is
    the outer one.
    """
    env = ShapeEnv()
    sizes = tuple(
        env.new_symbol(f"s{d}", size, sources.Size("x", d), Policy.DYNAMIC)
        for d, size in enumerate((2, 2, 1))
    )
    tensor = meta_fns.TensorSpec(sizes, (0, sizes[2], 1))
    result = meta_fns.infer("aten.relu.default", (tensor,))
    eager = torch.ones(1, 2, 1).expand(2, 2, 1).relu()
    assert at(result.strides, {"s0": 2, "s1": 2, "s2": 1}) == eager.stride()
