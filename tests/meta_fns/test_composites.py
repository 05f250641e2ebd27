"""Composite overloads by name against eager, 0 and 1 among the sizes, and on terms at sampled
values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch

import guards
import meta_fns
from guards.terms.fold import evaluate
from meta_fns import MetaError, TensorSpec
from meta_fns.core.registry import composites

aten = torch.ops.aten
SIZES = (0, 1, 2, 5)
Case = tuple[str, tuple[Any, ...], dict[str, Any]]


def _t(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(sizes, dtype=dtype)


def _matmuls() -> Iterator[Case]:
    for a, b, k in product(SIZES, (1, 3), (0, 1, 4)):
        for left in ((k,), (a, k), (b, a, k), (2, 1, a, k)):
            for right in ((k,), (k, 3), (b, k, a), (1, b, k, 2)):
                yield "aten.matmul.default", (_t(*left), _t(*right)), {}
    yield "aten.matmul.default", (_t(2, 3), _t(4, 5)), {}
    yield "aten.matmul.default", (_t(2, 3), _t(3, 5, dtype=torch.float64)), {}
    yield "aten.matmul.default", (_t(), _t(3)), {}
    yield "aten.matmul.default", (_t(5, 4, 3).mT, _t(5, 2, 4).mT), {}
    for a in SIZES:
        yield "aten.linear.default", (_t(2, a, 4), _t(3, 4), _t(3)), {}
        yield "aten.linear.default", (_t(a, 4), _t(3, 4)), {}
        yield "aten.linear.default", (_t(4), _t(3, 4), _t(3)), {}
        yield "aten.outer.default", (_t(a), _t(3)), {}
    yield "aten.linear.default", (_t(2, 5), _t(3, 4)), {}


def _convolutions() -> Iterator[Case]:
    for n, size, kernel in product((1, 2, 3), (1, 4, 7), (1, 2, 3)):
        weight = _t(6, 2, *[kernel] * n)
        for batch in ((), (0,), (3,)):
            x = _t(*batch, 4, *[size] * n)
            yield f"aten.conv{n}d.default", (x, weight, _t(6)), {"groups": 2, "padding": [1] * n}
            yield (
                f"aten.conv{n}d.default",
                (x, weight),
                {"groups": 2, "stride": [2] * n, "dilation": [2] * n},
            )
            yield f"aten.conv{n}d.padding", (x, weight, _t(6), [1] * n, "same", [1] * n, 2), {}
            yield f"aten.conv{n}d.padding", (x, weight, None, [2] * n, "valid", [1] * n, 2), {}
            overload = "default" if n == 1 else "input"
            yield (
                f"aten.conv_transpose{n}d.{overload}",
                (x, _t(4, 2, *[kernel] * n)),
                {"stride": [2] * n},
            )
    yield (
        "aten.conv2d.default",
        (_t(2, 4, 5, 5).to(memory_format=torch.channels_last), _t(6, 4, 3, 3)),
        {},
    )
    yield "aten.conv2d.default", (_t(2, 4), _t(6, 4, 3, 3)), {}


def _views() -> Iterator[Case]:
    for a, b in product(SIZES, (1, 3)):
        x = _t(a, b, 4)
        for dims in ((0, -1), (1, 2), (0, 0), (2, 1)):
            yield "aten.flatten.using_ints", (x, *dims), {}
            yield "aten.flatten.using_ints", (x.transpose(0, 1), *dims), {}
        yield "aten.ravel.default", (x.mT,), {}
        for start, length in ((0, 1), (1, 2), (-1, 1), (3, 2), (0, 0)):
            yield "aten.narrow.default", (x, 0, start, length), {}
        for chunks in (1, 2, 3, 0):
            yield "aten.chunk.default", (x, chunks, 0), {}
        yield "aten.split.sizes", (x, [1, 3], 2), {}
        yield "aten.split.sizes", (x, [1, 2], 2), {}
        yield "aten.swapaxes.default", (x, 0, -1), {}
        yield "aten.movedim.int", (x, 0, 2), {}
        yield "aten.movedim.intlist", (x, [0, 2], [-1, 0]), {}
        yield "aten.movedim.intlist", (x, [0, 0], [-1, 0]), {}
        yield "aten.expand_as.default", (_t(b, 1), x), {}
        yield "aten.view_as.default", (x, _t(a * b, 4)), {}
        yield "aten.reshape_as.default", (x.mT, _t(a, 4 * b)), {}
    yield "aten.flatten.using_ints", (_t(),), {}
    yield "aten.chunk.default", (_t(), 2), {}


def _others() -> Iterator[Case]:
    for a in SIZES:
        x = _t(a, 4, 6)
        for kind in ("softmax", "log_softmax"):
            yield f"aten.{kind}.int", (x, -1), {}
            yield f"aten.{kind}.int", (x.mT, 1), {"dtype": torch.float64}
        yield "aten.layer_norm.default", (x, [6], _t(6), _t(6)), {}
        yield "aten.layer_norm.default", (x, [5]), {}
        yield "aten.group_norm.default", (x, 2, _t(4), _t(4)), {}
        yield "aten.group_norm.default", (x, 3), {}
        yield "aten.max_pool2d.default", (_t(a, 3, 7, 5), [2, 3], [2], [1]), {}
        yield "aten.max_pool3d.default", (_t(2, 3, 7, 5, 4), [2]), {"ceil_mode": True}
        for name in ("absolute", "arccos", "negative", "fix", "arctan"):
            yield f"aten.{name}.default", (x.mT,), {}
        for name in ("divide", "multiply", "greater", "less_equal", "not_equal"):
            yield f"aten.{name}.Tensor", (x, _t(4, 1)), {}
            yield f"aten.{name}.Scalar", (x, 2), {}
        yield "aten.divide.Tensor_mode", (x, _t(6)), {"rounding_mode": "floor"}
        yield "aten.arctan2.default", (x, _t(6)), {}
        yield "aten.negative_.default", (x,), {}


@pytest.mark.parametrize("cases", [_matmuls, _convolutions, _views, _others])
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
def test_composites_are_as_eager(cases: Callable[[], Iterator[Case]]) -> None:
    wrong, refused = [], 0
    for overload, args, kwargs in cases():
        try:
            expected: Any = meta_fns.core.registry.resolve(overload)(*args, **kwargs)
        except (RuntimeError, IndexError, ValueError):
            refused += 1
            expected = None
        try:
            found = meta_fns.infer(overload, args, kwargs)
        except MetaError as error:
            if expected is not None:
                wrong.append(
                    f"{overload} {[getattr(a, 'shape', a) for a in args]} {kwargs}: {error}"
                )
            continue
        shown = f"{overload} {[getattr(a, 'shape', a) for a in args]} {kwargs}"
        if expected is None:
            wrong.append(f"{shown}: eager refuses")
            continue
        pairs = (
            zip(found, expected, strict=True)
            if isinstance(found, (list, tuple))
            else [(found, expected)]
        )
        for spec, tensor in pairs:
            same = (spec.sizes, spec.strides, spec.dtype) == (
                tuple(tensor.shape),
                tensor.stride(),
                tensor.dtype,
            )
            if not same:
                wrong.append(
                    f"{shown}: {spec} is {tuple(tensor.shape)} strides {tensor.stride()} "
                    f"{tensor.dtype}"
                )
    assert not wrong, "\n".join(wrong[:20]) + f"\n{len(wrong)} in all"
    assert refused > 0 or cases is _others


TERMS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("aten.matmul.default", (("b", "n", "k"), ("k", "m")), {}),
    ("aten.matmul.default", (("b", "n", "k"), ("b", "k", "m")), {}),
    ("aten.linear.default", (("b", "n", "k"), ("m", "k"), ("m",)), {}),
    (
        "aten.conv2d.default",
        (("b", 4, "n", "m"), (6, 4, 3, 3)),
        {"padding": [1, 1], "stride": [2, 2]},
    ),
    ("aten.conv1d.padding", (("b", 4, "n"), (6, 4, 3), None, [1], "same"), {}),
    ("aten.flatten.using_ints", (("b", "n", "m"), 1), {}),
    ("aten.chunk.default", (("b", 6, "m"), 2, 1), {}),
    ("aten.layer_norm.default", (("b", "n", "k"), ["k"]), {}),
    ("aten.cat.default", ([("b", "n"), ("m", "n")],), {}),
    ("aten.view.default", (("b", "n"), ["b*n"]), {}),
    ("aten.add.Tensor", (("b", "n"), ("n",)), {}),
    ("aten.bmm.default", (("b", "n", "k"), ("b", "k", "m")), {}),
]


@pytest.mark.parametrize(
    ("overload", "args", "kwargs"), TERMS, ids=lambda each: each if isinstance(each, str) else ""
)
def test_terms_are_sizes(overload: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """The formulas at sampled sizes that meet what was required are eager's sizes and strides."""

    def made(value: Any, size: Callable[[str], Any], tensor: Callable[..., Any]) -> Any:
        if isinstance(value, tuple):
            return tensor(tuple(size(each) if isinstance(each, str) else each for each in value))
        if isinstance(value, list) and value and not isinstance(value[0], int):
            return [
                made(each, size, tensor) if isinstance(each, tuple) else size(each)
                for each in value
            ]
        return value

    with guards.assuming(ranges=dict.fromkeys("bnkm", (1, None))) as given:
        specs = [made(each, guards.parse, TensorSpec.contiguous) for each in args]
        result = meta_fns.infer(overload, specs, kwargs)
    compared = 0
    for numbers in ((2, 3, 5, 7), (1, 1, 1, 1), (4, 6, 2, 9)):
        values = dict(zip("bnkm", numbers, strict=True))
        if not all(evaluate(condition, values) for condition in given.required):
            continue
        at = partial(_at, values=values)
        real = [made(each, at, torch.ones) for each in args]
        expected = meta_fns.core.registry.resolve(overload)(*real, **kwargs)
        specs_at = [
            (tuple(map(at, each.sizes)), tuple(map(at, each.strides))) for each in _flat(result)
        ]
        assert specs_at == [(tuple(each.shape), each.stride()) for each in _flat(expected)], values
        compared += 1
    assert compared >= 2
    assert all(
        type(size) in (int, guards.Term)
        for each in _flat(result)
        for size in (*each.sizes, *each.strides)
    )


def _at(size: Any, values: dict[str, int]) -> int:
    term = guards.parse(size) if isinstance(size, str) else size
    return term if isinstance(term, int) else int(evaluate(term, values))


def _flat(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (list, tuple)) else [result]


def test_what_terms_require_is_kept_and_what_cannot_be_is_refused() -> None:
    n, k = guards.symbol("n"), guards.symbol("k")
    a, b = TensorSpec.contiguous((n, 8)), TensorSpec.contiguous((k, 3))
    with pytest.raises(guards.Undecided, match="k == 8 is required"):
        meta_fns.infer("aten.matmul.default", (a, b))
    with (
        guards.assuming("k < 8"),
        pytest.raises(meta_fns.ShapeError, match="contracted sizes differ"),
    ):
        meta_fns.infer("aten.matmul.default", (a, b))
    with guards.assuming() as given:
        assert meta_fns.infer("aten.matmul.default", (a, b)).sizes == (n, 3)
    assert given.required == [k == 8]


def test_the_tracer_never_meets_them() -> None:
    assert len(composites()) > 60
    assert not [name for name in composites() if "matmul" in name and meta_fns.has_rule(name)]
