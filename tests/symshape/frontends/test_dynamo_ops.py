"""Whatever ``aot_eager`` runs, the backend runs: higher-order operators, effects, data-dependent
sizes, dropout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.nn.attention.flex_attention import flex_attention
from torch.utils.checkpoint import checkpoint

from symshape.frontends import dynamo
from symshape.frontends.dynamo import symshape_backend

Tensor = torch.Tensor


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    dynamo.alive.clear()
    with torch._dynamo.config.patch(
        capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True
    ):
        yield
    torch._dynamo.reset()


class Doubled(torch.autograd.Function):
    """Its backward is not that of what it computes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return gradient * x.cos() * 2


def positive(x: Tensor) -> Tensor:
    return x @ x.T + torch.eye(x.size(0))


def dropped(x: Tensor) -> Tensor:
    return functional.dropout(x.relu(), 0.5)


def loop(x: Tensor) -> Tensor:
    result: Tensor = torch._higher_order_ops.while_loop(
        lambda i, a: i < 4, lambda i, a: (i + 1, a * 1.5), (torch.tensor(0), x)
    )[1]
    return result


def of_other_sizes(x: Tensor) -> Tensor:
    heads, rest = torch.cond(
        x.sum() > 0, lambda a: (a[:2] * 2, a.sin()), lambda a: (a * 3, a.cos()), (x,)
    )
    return heads.sum(0) * rest + x.new_zeros(heads.size(0)).sum()


def in_examples(x: Tensor) -> Tensor:
    down = x.sum() > 0
    result: Tensor = torch.vmap(lambda row: torch.cond(down, torch.sin, torch.cos, (row,)))(x)
    return result


def in_a_dual_level(x: Tensor) -> Tensor:
    with torch.autograd.forward_ad.dual_level():
        result: Tensor = torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))
    return result


def under_autocast(x: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        result: Tensor = torch.cond(x.sum() > 0, torch.sin, torch.cos, (x @ LINEAR.weight,))
    return result.float()


LINEAR = torch.nn.Linear(4, 4)


def scaled(score: Tensor, *indices: Tensor) -> Tensor:
    return score * 2


PROGRAMS: dict[str, Callable[[Tensor], Tensor]] = {
    "inv": lambda x: torch.linalg.inv(positive(x)),
    "solve": lambda x: torch.linalg.solve(positive(x), x),
    "cholesky": lambda x: torch.linalg.cholesky(positive(x)),
    "cond": lambda x: torch.cond(x.sum() > 0, lambda a: a.sin(), lambda a: a.cos() * 2, (x,)),
    "cond_of_found": lambda x: torch.cond(
        x.sum() > 0, lambda a: a[a > 0] * 2, lambda a: a[a < 0] * 3, (x,)
    ),
    "checkpoint": lambda x: checkpoint(dropped, x, use_reentrant=False) * 2,
    "dropout": lambda x: functional.dropout(x, 0.3) + torch.rand(x.size(0), 1),
    "autograd_function": lambda x: Doubled.apply(x) * 2,
    "floats": lambda x: (
        x / x.size(0) ** 0.5 + torch.arange(x.size(0)).unsqueeze(1) * (x.size(0) / 3)
    ),
    "strided": lambda x: x.as_strided((x.size(0), 2), (4, 2), 1) * 2,
    "formulas": lambda x: x.new_zeros(max(x.size(0), 5), x.size(0) // 2 + 1) + x.mean(),
}
WITHOUT_GRADIENTS: dict[str, Callable[[Tensor], Tensor]] = {
    "while_loop": loop,
    "cond_of_other_sizes": of_other_sizes,
    "cond_in_a_dual_level": in_a_dual_level,
    "flex_attention": lambda x: flex_attention(
        *[x.repeat(1, 4, 4, 4)[:1] * i for i in (1, 2, 3)], score_mod=scaled
    ),
    "item": lambda x: x * x.sum().item(),
    "found": lambda x: x[x > 0] * 2,
    "written": lambda x: (x.add_(1), x.t() * 2)[1],
}


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore:.*should not be instantiated:DeprecationWarning"
)  # Dynamo does so itself
@pytest.mark.filterwarnings(
    "ignore:flex_attention called without torch.compile"
)  # by the eager side
@pytest.mark.parametrize("name", [*PROGRAMS, *WITHOUT_GRADIENTS])
def test_equal_to_eager_by_one_program(name: str) -> None:
    program = (PROGRAMS | WITHOUT_GRADIENTS)[name]
    compiled = torch.compile(
        program, backend=symshape_backend, dynamic=True, options={"runner": "eager"}
    )
    for n in (5, 7, 6):
        x = torch.randn(n, 4, requires_grad=name in PROGRAMS)
        y = x.detach().clone().requires_grad_(x.requires_grad)
        results = []
        for fn, argument in ((compiled, x), (program, y)):
            torch.manual_seed(n)
            result = fn(argument)
            gradient = (
                torch.autograd.grad(result.pow(2).sum(), argument) if argument.requires_grad else ()
            )
            results.append((result, *gradient))
        torch.testing.assert_close(results[0], results[1])
    graphs = [each.stats() for each in dynamo.alive if each.calls]
    assert [(each.traces, each.fallbacks) for each in graphs] == [(1, 0)] * (
        2 if name in PROGRAMS else 1
    )


@pytest.mark.parametrize("program", [in_examples, in_a_dual_level, under_autocast])
def test_what_a_refused_graph_entered_is_left(program: Callable[[Tensor], Tensor]) -> None:
    """The graph enters by one node and leaves by another; a first look at it stops in between, at
    the cond.
    """
    compiled = torch.compile(program, backend=symshape_backend)
    with torch.no_grad():
        compiled(torch.rand(3, 4))
    assert torch._C._functorch.get_dynamic_layer_stack_depth() == 0
    with torch.autograd.forward_ad.dual_level():  # there is one at most
        pass
    x = torch.rand(3, 4)
    found = []
    for _ in range(2):  # casts of weights live as long as the outermost autocast
        with torch.autocast("cpu", torch.bfloat16):
            found.append(LINEAR(x))
        with torch.no_grad():
            LINEAR.weight.add_(1)
    assert not torch.equal(*found)


def test_an_embedding_that_renormalises_its_weights() -> None:
    torch.manual_seed(0)
    ours, theirs = (torch.nn.Embedding(20, 4, max_norm=1.0) for _ in range(2))
    theirs.load_state_dict(ours.state_dict())
    compiled = torch.compile(ours, backend=symshape_backend, dynamic=True)
    for n in (5, 7, 6):
        torch.testing.assert_close(compiled(torch.arange(n)), theirs(torch.arange(n)))
    torch.testing.assert_close(ours.weight, theirs.weight)


def test_what_does_not_hold_of_data_is_an_error() -> None:
    def f(x: Tensor) -> Tensor:
        n = x.sum().int().item()
        torch._check(n >= 2)
        return x.new_zeros(n)

    compiled = torch.compile(f, backend=symshape_backend, dynamic=True, fullgraph=True)
    assert compiled(torch.ones(3)).shape == (3,)
    with pytest.raises(RuntimeError, match="u0 >= 2"):
        compiled(torch.zeros(3))
