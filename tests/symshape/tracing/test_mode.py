"""Every op of the thread comes through the mode, and nothing but ops."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import symshape
from symshape import UnsupportedError
from symshape.tracing.mode import is_tracing
from tests.symshape.tracing.looked_at import Found, found_by

R = torch.randn


def test_tracing_is_known_inside_only() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        raise Found(is_tracing())

    assert not is_tracing()
    assert found_by(lambda: symshape.trace(fn, R(3))) is True
    assert not is_tracing()
    inside = symshape.trace(lambda x: x + (1 if is_tracing() else 2), R(3))
    assert torch.equal(inside(torch.zeros(3)), torch.ones(3))
    assert not is_tracing()


def test_ops_that_take_functions_are_refused() -> None:
    def fn(x: torch.Tensor) -> Any:
        return torch.ops.higher_order.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))

    with pytest.raises(UnsupportedError):
        symshape.trace(fn, R(3))
    assert not is_tracing()


def test_factories_and_real_tensors_are_seen_too() -> None:
    weight = R(3)
    traced = symshape.trace(lambda x: torch.zeros(3) + weight + 0 * x, R(3))
    ops = [str(node.op) for node in traced.graph.nodes]
    assert ops == ["aten.zeros.default", "aten.add.Tensor", "aten.mul.Tensor", "aten.add.Tensor"]


WEIGHT = torch.nn.Parameter(R(24, 8))
MASK = R(5, 5) > 0


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: torch.nn.functional.dropout(x * 2, 0.5, training=False) + 1,
        lambda x: torch.nn.functional.dropout(x, 0.0, training=True),
        lambda x: torch.nn.functional.dropout(x, 0.5, training=True),
        lambda x: torch.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=MASK),
        lambda x: torch.nn.functional.prelu(x, WEIGHT[0, 0]),
        lambda x: torch.nn.functional.linear(x.transpose(0, 1), WEIGHT),
        lambda x: torch.nn.functional.linear(x.transpose(0, 1), WEIGHT.reshape(12, 16)[:, :8]),
        lambda x: x.chunk(2)[0] @ WEIGHT.chunk(3)[1].T,
        lambda x: x.reshape(-1, 4).square().clip(0, 1).float_power(2).unflatten(0, (-1, 2)),
        lambda x: torch.stack(
            [torch.linalg.svdvals(x).sum(), torch.linalg.cond(x[:, :4, :4]).sum()]
        ),
        lambda x: torch.stack([x.sum(), torch.cdist(x[0], x[1]).max(), x.std()]).argsort(),
    ],
)
def test_inference_mode_traces_what_no_grad_does(fn: Any) -> None:
    """C++ hands composites over whole there, and views of parameters require gradients all the
    same.
    """
    ops = []
    for mode in (torch.no_grad(), torch.inference_mode()):
        with mode:
            traced = symshape.trace(fn, R(4, 5, 8), dynamic=True)
            ops.append([str(node.op) for node in traced.graph.nodes])
            for size in (4, 3, 7):
                x = R(size, 5, 8)
                if traced.check(x):
                    torch.manual_seed(size)
                    expected = fn(x)
                    torch.manual_seed(size)
                    assert torch.equal(traced(x), expected)
                    assert traced(x).is_inference() == expected.is_inference()
    assert ops[0] == ops[1]


@pytest.mark.parametrize(
    "view", ["reshape", "flatten", "chunk", "T", "view", "unflatten", "detach", "mul"]
)
def test_views_of_parameters_in_inference_mode_require_gradients_as_in_eager(view: str) -> None:
    views: dict[str, Any] = {
        "reshape": lambda: WEIGHT.reshape(12, 16),
        "flatten": WEIGHT.flatten,
        "chunk": lambda: WEIGHT.chunk(2)[0],
        "T": lambda: WEIGHT.T,
        "view": lambda: WEIGHT.view(-1),
        "unflatten": lambda: WEIGHT.unflatten(0, (2, 12)),
        "detach": WEIGHT.detach,
        "mul": lambda: WEIGHT * 2,
    }

    def fn(x: torch.Tensor) -> torch.Tensor:
        made = views[view]()
        raise Found((made.requires_grad, made.is_inference()))

    with torch.inference_mode():
        made = views[view]()
        assert found_by(lambda: symshape.trace(fn, R(3))) == (
            made.requires_grad,
            made.is_inference(),
        )


def test_models_that_were_made_in_inference_mode() -> None:
    with torch.inference_mode():
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LSTM(8, 4)).eval()
    compiled = symshape.compile(model, dynamic=True, fullgraph=True)
    for mode in (torch.no_grad(), torch.inference_mode()):
        with mode:
            for size in (3, 5):
                x = R(size, 2, 8)
                assert torch.equal(compiled(x)[0], model(x)[0])


def _traced_by_make_fx(x: torch.Tensor) -> torch.Tensor:
    from torch.fx.experimental.proxy_tensor import make_fx

    graph: Any = make_fx(lambda y: y.sin() * 2)(torch.ones(3))
    return x + graph(x)


def _linearized(x: torch.Tensor) -> Any:
    value, tangent = torch.func.linearize(lambda y: (y.sin(), y.cos()), x)
    return value, tangent(torch.ones_like(x))


def _fake(x: torch.Tensor) -> torch.Tensor:
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    with FakeTensorMode():
        y = torch.ones(3) * 2
    return x + 1 if isinstance(y, FakeTensor) else x - 1


def _functional(x: torch.Tensor) -> torch.Tensor:
    from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode

    with FunctionalTensorMode():
        y = torch.ones(3) * 2
    return x + 1 if isinstance(y, FunctionalTensor) else x - 1


@pytest.mark.parametrize("fn", [_traced_by_make_fx, _linearized, _fake, _functional])
def test_torchs_own_tracers_see_nothing_of_a_trace_and_are_refused(fn: Any) -> None:
    with pytest.raises(UnsupportedError, match="torch's own tracers"):
        symshape.compile(fn, fullgraph=True)(R(3))
    compiled = symshape.compile(fn)
    for rows in (1, 3, 0, 2):
        x = R(rows, 3)
        with warnings.catch_warnings(action="ignore"):
            torch.testing.assert_close(compiled(x), fn(x))
