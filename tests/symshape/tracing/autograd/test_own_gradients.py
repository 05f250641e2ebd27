"""What a program tells autograd itself: gradients of its own, tensors that are to require
gradients.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import symshape
from symshape import UnsupportedError

R = torch.randn
SEEN: list[int] = []
SCALE = {"by": 2.0}


class Clip(torch.autograd.Function):
    """Its gradient is three times what it is."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, most: float) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.most = most
        return x.clamp(-most, most)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        return gradient * (x.abs() <= ctx.most) * 3, None


clip = Clip.apply


class SetUp(torch.autograd.Function):
    @staticmethod
    def forward(x: torch.Tensor, by: int = 2) -> Any:  # type: ignore[override]
        return x * by, x.sum()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.by = inputs[1]
        ctx.save_for_backward(output[0])
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, _: Any) -> Any:  # type: ignore[override]
        return gradient * ctx.by * ctx.saved_tensors[0], None


class Hidden(torch.autograd.Function):
    """Saves what it does not return."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        h = (x @ weight).tanh()
        ctx.save_for_backward(h, x, weight)
        return h * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:  # type: ignore[override]
        h, x, weight = ctx.saved_tensors
        gradient = gradient * (1 - h * h)
        return gradient @ weight.t(), x.t() @ gradient * 5


class View(torch.autograd.Function):
    """Its gradient depends on what the shape is given as."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
        ctx.shape, ctx.by = x.shape, 3 if isinstance(shape, torch.Size) else 4
        return x.view(shape)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:  # type: ignore[override]
        return gradient.view(ctx.shape) * ctx.by, None


class Scaled(torch.autograd.Function):
    """Reads what changes between calls, and draws."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.by = torch.rand_like(x) * SCALE["by"]
        return x * ctx.by

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return gradient * ctx.by * 10


def _same(gradient: Callable[[Any, torch.Tensor], torch.Tensor], name: str) -> Any:
    """The class of a function that is as its ``forward``, and whose gradient is ten times what it
    is.
    """
    return type(
        name,
        (torch.autograd.Function,),
        {"forward": gradient, "backward": staticmethod(lambda ctx, g: g * 10)},
    )


class Module(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return clip(self.linear(x), 0.5)  # type: ignore[no-any-return, no-untyped-call]


MODULE = Module()
WEIGHT = MODULE.linear.weight


def _agree(fn: Callable[..., Any], traces: int = 2) -> Any:
    compiled: Any = symshape.compile(fn, fullgraph=True)
    for rows in (3, 4, 5, 2):
        seen = []
        given = R(rows, 8)
        for served in (compiled, fn):
            MODULE.zero_grad()
            x = given.clone().requires_grad_()
            torch.manual_seed(rows)
            results = served(x)
            results = results if isinstance(results, tuple) else (results,)
            tracked = [each for each in results if each.requires_grad]
            sum(each.square().sum() for each in tracked).backward()  # type: ignore[union-attr]
            gradients = [each.grad for each in (x, *MODULE.parameters(), *results) if each.is_leaf]
            flags = [(each.requires_grad, each.is_leaf) for each in results]
            seen.append((flags, [each.detach() for each in results], gradients, torch.rand(1)))
        assert seen[0][0] == seen[1][0]
        torch.testing.assert_close(seen[0][1:], seen[1][1:], rtol=0, atol=0)
    own = symshape.compiled_of(compiled) if isinstance(compiled, nn.Module) else compiled
    assert own.stats().traces == traces
    return own


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: Clip.apply(x @ WEIGHT, 0.5) + clip(x, 0.1),
        lambda x: Clip.apply(x, 1 / x.size(0)),
        lambda x: SetUp.apply(x @ WEIGHT, 3)[0] * SetUp.apply(x)[0],
        *(
            [lambda x: SetUp.apply(x, by=4)] if torch.__version__ >= "2.13" else []
        ),  # which takes names
        lambda x: Clip.apply(Hidden.apply(Clip.apply(x, 0.9), WEIGHT), 0.5),
        lambda x: View.apply(x @ WEIGHT, (x.size(0) * 2, 4)),
        lambda x: View.apply(x @ WEIGHT, torch.Size((x.size(0) * 2, 4))),
        lambda x: View.apply(x @ WEIGHT, x.shape),
        lambda x: Scaled.apply(x),
        lambda x: _same(lambda ctx, x: x, "Same").apply(x * 2),
        MODULE,
    ],
)
def test_gradients_of_its_own(fn: Callable[..., Any]) -> None:
    found = _agree(fn)
    assert any("apply" in str(node.op) for node in found.entries[0].program.graph.nodes)


def test_what_a_function_reads_is_guarded() -> None:
    compiled = symshape.compile(lambda x: Scaled.apply(x), fullgraph=True)
    x = R(3, 8, requires_grad=True)
    for by in (2.0, 3.0, 2.0):
        SCALE["by"] = by
        torch.manual_seed(0)
        found = torch.autograd.grad(compiled(x).sum(), x)[0]
        torch.manual_seed(0)
        assert torch.equal(found, torch.rand(3, 8) * by * 10)


def test_gradients_of_gradients() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        (found,) = torch.autograd.grad(
            Clip.apply(x @ WEIGHT, 0.5).square().sum(), x, create_graph=True
        )
        return found.square().sum()

    _agree(fn)


def test_without_need_the_ops_stay() -> None:
    """A backward inside needs no call of the function: its ops and those of its backward are the
    graph's.
    """
    x = R(3, 8, requires_grad=True)
    traced = symshape.trace(lambda x: torch.autograd.grad(Clip.apply(x, 0.5).sum(), x)[0], x)
    assert not any("apply" in str(node.op) for node in traced.graph.nodes)
    with torch.no_grad():
        assert "apply" not in str(symshape.trace(lambda x: Clip.apply(x, 0.5), R(3)).graph)


def _written_to(ctx: Any, x: torch.Tensor) -> torch.Tensor:
    ctx.mark_dirty(x)
    return x.mul_(2)


def _counted(ctx: Any, x: torch.Tensor) -> torch.Tensor:
    SEEN.append(1)
    return x * 2


@pytest.mark.parametrize(
    ("forward", "why"),
    [
        (_written_to, "did not make"),
        (_counted, "writing to what is outside"),
        (lambda ctx, x: x * x.sum().item(), "reads data"),
        (lambda ctx, x: WEIGHT.data.add_(1).sum() * x, "writes to tensors"),
    ],
)
def test_what_cannot_be_called_again_is_refused(forward: Any, why: str) -> None:
    own = _same(forward, "Own")
    with pytest.raises(UnsupportedError, match=f"Own.*{why}"):
        symshape.trace(lambda x: own.apply(x * 1), R(3, 8, requires_grad=True))
    assert not SEEN


def test_under_autocast_it_is_refused() -> None:
    def fn(x: torch.Tensor) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return Clip.apply(x @ WEIGHT, 0.5)

    with pytest.raises(UnsupportedError, match=r"Clip.*autocast"):
        symshape.trace(fn, R(3, 8))


def test_an_object_among_its_arguments_is_refused() -> None:
    own = type(
        "Own",
        (torch.autograd.Function,),
        {
            "forward": lambda ctx, x, module: module(x),
            "backward": staticmethod(lambda ctx, g: (g, None)),
        },
    )
    with pytest.raises(UnsupportedError, match=r"Own.*given a Module"):
        symshape.trace(lambda x: own.apply(x, MODULE), R(3, 8, requires_grad=True))  # type: ignore[attr-defined]


class Ways(enum.IntEnum):
    ONE = 1


def test_an_enumeration_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"Clip.*given a Ways"):
        symshape.trace(lambda x: Clip.apply(x, Ways.ONE), R(3, 8, requires_grad=True))


def test_reports_of_such_programs() -> None:
    traced = symshape.trace(lambda x: Clip.apply(x @ WEIGHT, 0.5), R(3, 8))
    assert "Clip.apply(v2, 0.5)" in str(traced.graph)
    assert "Clip.apply" in str(traced.padding())
    assert "Clip.apply" in str(traced.cost())
    assert "Clip.apply" in traced.report()


def test_what_a_function_saved_may_be_needed_inside() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = Hidden.apply(x, WEIGHT)
        return y + torch.autograd.grad(y.sum(), x, retain_graph=True)[0]  # type: ignore[no-any-return]

    with pytest.raises(UnsupportedError, match=r"Hidden.*saves tensors of its own"):
        symshape.trace(fn, R(3, 8, requires_grad=True))


# -- requires_grad_()


def _penalty(x: torch.Tensor) -> torch.Tensor:
    x = (x.detach() * 2).requires_grad_()
    (found,) = torch.autograd.grad((x @ WEIGHT).sigmoid().sum(), x, create_graph=True)
    return (found.norm(2, dim=1) - 1).square().mean()


def _inner_step(x: torch.Tensor) -> torch.Tensor:
    fast = WEIGHT.detach().requires_grad_()
    (found,) = torch.autograd.grad((x.detach() @ fast).square().sum(), fast)
    return x.detach() @ (fast - 0.1 * found)


@pytest.mark.parametrize(
    "fn",
    [
        _penalty,
        _inner_step,
        lambda x: x.detach().clone().requires_grad_(),
        lambda x: x.detach().requires_grad_(),
        lambda x: (x.detach() + 1).requires_grad_() * 2,
        lambda x: x + torch.zeros(x.size(0), 8, requires_grad=True),
    ],
)
def test_tensors_made_to_require_gradients(fn: Callable[..., Any]) -> None:
    _agree(fn)


def test_only_where_it_is_needed() -> None:
    def told(fn: Callable[[torch.Tensor], torch.Tensor]) -> bool:
        return "requires_grad_" in [
            str(node.op) for node in symshape.trace(fn, R(3, 8)).graph.nodes
        ]

    assert told(_penalty)
    assert not told(lambda x: _penalty(x).detach())


def test_a_leaf_with_a_gradient_is_refused() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_()
        x.square().sum().backward()
        return x

    with pytest.raises(UnsupportedError, match="has a gradient"):
        symshape.trace(fn, R(3, 8))


def test_a_constant_that_requires_gradients_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="constant"):
        symshape.trace(lambda x: x * torch.tensor([0.5], requires_grad=True), R(3, 8))


@pytest.mark.parametrize("runner", ["inductor", "padded", "cudagraph"])
@pytest.mark.parametrize("fn", [_penalty, MODULE.forward])
def test_other_runners_leave_it_to_eager(runner: Any, fn: Any) -> None:
    compiled = symshape.compile(fn, runner=runner)
    for rows in (3, 4, 5):
        x = R(rows, 8, requires_grad=True)
        found, wanted = (
            torch.autograd.grad(served(x).sum(), WEIGHT)[0] for served in (compiled, fn)
        )
        assert torch.equal(found, wanted)


# -- custom operators


@torch.library.custom_op("symshape_own_histories::twice", mutates_args=())
def twice(x: torch.Tensor, by: float = 2.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Two results, of which both have gradients."""
    return x * by, x + by


@twice.register_fake
def _(x: torch.Tensor, by: float = 2.0) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(x), torch.empty_like(x)


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(inputs[0])
    ctx.by = inputs[1]


def _gradients(ctx: Any, first: torch.Tensor, second: torch.Tensor) -> Any:
    return first * ctx.saved_tensors[0] * ctx.by + second * 7, None


twice.register_autograd(_gradients, setup_context=_save)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: twice(x @ WEIGHT),
        lambda x: twice(twice(x, 3.0)[0], by=0.5)[1] * x,
        lambda x: Clip.apply(twice(x)[0], 0.5),
        lambda x: torch.no_grad()(twice)(x)[0] * x,
        lambda x: torch.autograd.grad(twice(x)[0].square().sum(), x, create_graph=True)[0],
        _same(lambda ctx, x: twice(x)[0] * 1, "Around").apply,
    ],
)
def test_gradients_of_custom_operators(fn: Callable[..., Any]) -> None:
    """The operator in the graph calls the function that it was given for them."""
    _agree(fn)
