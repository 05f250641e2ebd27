"""The autograd histories around a compiled function: those of arguments that no result depends on,
and those that a call without gradients begins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import symshape
from symshape.runtime.runners.gradients.runner import GradientsRunner

WAYS: dict[str, Callable[..., Any]] = {
    "compile": lambda fn: symshape.compile(fn),
    "padded": lambda fn: symshape.compile(fn, runner="padded"),
    "backend": lambda fn: torch.compile(fn, backend="symshape", dynamic=True),
    "padded backend": lambda fn: torch.compile(
        fn, backend="symshape", dynamic=True, options={"runner": "padded"}
    ),
    "programs": lambda fn: torch.compile(
        fn, backend="symshape", dynamic=True, options={"plain_calls": False}
    ),
}
SIZES = (4, 7, 1, 5)
pytestmark = [
    pytest.mark.filterwarnings("ignore::symshape.errors.FallbackWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
]


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Callable[..., Any]:
    torch._dynamo.reset()
    return WAYS[request.param]


# -- arguments that no result depends on
def freed() -> torch.Tensor:
    """Return a tensor whose history was freed: a backward that comes to it raises."""
    made = torch.ones(3, requires_grad=True) ** 2
    made.sum().backward()  # type: ignore[no-untyped-call]
    return made


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, y: x * 2,
        lambda x, y: x * y.detach().sum(),
        lambda x, y: (x.sin(), x.cos() + y.shape[0]),
    ],
)
def test_backward_does_not_go_on_to_what_no_result_depends_on(
    way: Callable[..., Any], fn: Callable[..., Any]
) -> None:
    mine = way(fn)
    for size in SIZES:
        found = []
        for each in (fn, mine):
            x = torch.linspace(0, 1, size, requires_grad=True)
            made = each(x, freed())
            sum(e.sum() for e in ((made,) if isinstance(made, torch.Tensor) else made)).backward()
            found.append(x.grad)
        torch.testing.assert_close(*found)


def test_hooks_of_parameters_that_no_result_depends_on_stay_silent() -> None:
    used, unused = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
    noted = []
    for each in (used, unused):
        each.register_post_accumulate_grad_hook(lambda one: noted.append(one is used))
    fn = lambda x: (x * used, unused.detach() * 1, unused.argmax())  # noqa: E731
    mine = symshape.compile(fn, runner="padded")
    for size in SIZES:
        mine(torch.ones(size, 3))[0].sum().backward()
    assert noted == [True] * len(SIZES)
    runner = mine.entries[-1].runner
    assert isinstance(runner, GradientsRunner)
    assert len(runner.halves) == 2


# -- gradients that are turned on inside of a call without them
weight = nn.Parameter(torch.linspace(-1, 1, 6).view(3, 2))


def turned_on(x: torch.Tensor) -> Any:
    with torch.enable_grad():
        return (x @ weight).exp()


def partly(x: torch.Tensor) -> Any:
    before = x @ weight
    with torch.enable_grad():
        inside = (x @ weight).exp()
    return before, inside, inside * 2


def a_view_behind(x: torch.Tensor) -> Any:
    with torch.enable_grad():
        inside = (x @ weight).exp()
    return inside, inside.t()


def a_write(x: torch.Tensor) -> Any:
    made = torch.zeros(x.shape[0], 2)
    with torch.enable_grad():
        made += x @ weight
    return made, made.view(-1)


def a_whole_backward(x: torch.Tensor) -> Any:
    with torch.enable_grad():
        inner = (x @ weight).exp().sum()
        (slope,) = torch.autograd.grad(inner, weight)
    return slope, inner.detach()


TURNED_ON = [turned_on, partly, a_view_behind, a_write]


@pytest.mark.parametrize(
    ("fn", "around"),
    [
        *((fn, around) for fn in TURNED_ON for around in (torch.no_grad, torch.inference_mode)),
        (a_whole_backward, torch.no_grad),  # inference mode records nothing
    ],
)
def test_gradients_that_are_turned_on_inside(
    way: Callable[..., Any], fn: Callable[..., Any], around: Callable[[], Any]
) -> None:
    mine = way(fn)
    for size in SIZES:
        x, found = torch.linspace(0, 1, size * 3).view(size, 3), []
        for each in (fn, mine):
            with around():
                made = each(x)
            made = (made,) if isinstance(made, torch.Tensor) else made
            recorded = [e.square().sum() for e in made if e.grad_fn is not None]
            weight.grad = None
            if recorded:
                sum(recorded).backward()  # type: ignore[union-attr]
            kinds = [(e.requires_grad, e.is_leaf, e.is_inference()) for e in made]
            found.append((kinds, [e.detach().clone() for e in made], weight.grad))
        assert found[0][0] == found[1][0]
        torch.testing.assert_close(found[0][1:], found[1][1:])


def test_such_a_program_runs_op_by_op_and_says_why() -> None:
    mine = symshape.compile(turned_on, runner="padded")
    for size in SIZES:
        with torch.no_grad():
            mine(torch.ones(size, 3))
    assert "the program turns them on" in mine.entries[-1].runner.describe()


def test_a_step_inside_of_a_call_without_gradients_is_padded() -> None:
    mine = symshape.compile(a_whole_backward, runner="padded")
    for size in SIZES:
        with torch.no_grad():
            mine(torch.ones(size, 3))
    assert mine.entries[-1].runner.describe().startswith("padded")


# -- views that are made without gradients
def views(x: torch.Tensor) -> Any:
    made = (x @ weight).exp()
    with torch.no_grad():
        return made, made.t(), weight[0], made * 2


def test_views_that_are_made_without_gradients(way: Callable[..., Any]) -> None:
    mine = way(views)
    for size in SIZES:
        found = []
        for each in (views, mine):
            made = each(torch.ones(size, 3))
            weight.grad = None
            sum(e.sum() for e in made if e.requires_grad).backward()
            found.append(([(e.requires_grad, e.is_leaf) for e in made], weight.grad))
        assert found[0][0] == found[1][0]
        torch.testing.assert_close(found[0][1], found[1][1])
