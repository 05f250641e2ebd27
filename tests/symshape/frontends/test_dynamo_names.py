"""Graphs of Dynamo's in the user's words: what torch wraps keeps its name, and the reasons say what
they mean.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import symshape
from symshape.frontends import dynamo
from symshape.frontends.dynamo import symshape_backend
from symshape.frontends.dynamo_names import in_user_words, refused_by_torch

Tensor = torch.Tensor


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    dynamo.alive.clear()
    yield
    torch._dynamo.reset()


PROGRAMS = {"runner": "eager"}
"""Else a graph that asks for gradients runs as Dynamo made it."""


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.fc(x)
        return result


@torch.no_grad()
def frozen(first: Tensor, *others: Tensor, scale: Tensor) -> Tensor:
    return first * scale + others[0]


def scaled(x: Tensor, factor: int) -> Tensor:
    return x * factor


def rows(n: int) -> Tensor:
    return torch.ones(n, 4)


WRAPPED: dict[str, tuple[Callable[..., Any], Callable[[int], Any], str, set[str]]] = {
    "sequential": (
        torch.nn.Sequential(torch.nn.Linear(4, 3)),
        lambda n: ((rows(n),), {}),
        "Sequential.forward",
        {"self.0.weight", "self.0.bias", "input.size(0)", "input"},
    ),
    "by_keyword": (
        torch.nn.Sequential(torch.nn.Linear(4, 3)),
        lambda n: ((), {"input": rows(n)}),
        "Sequential.forward",
        {"self.0.weight", "self.0.bias", "input.size(0)", "input"},
    ),
    "decorated": (
        frozen,
        lambda n: ((rows(n), rows(n)), {"scale": rows(n)}),
        "frozen",
        {"first", "first.size(0)", "others[0]", "scale"},
    ),
    "partial": (
        functools.partial(scaled, factor=3),
        lambda n: ((rows(n),), {}),
        "scaled",
        {"x", "x.size(0)"},
    ),
    "own": (
        Net(),
        lambda n: ((rows(n),), {}),
        "Net.forward",
        {"self.fc.weight", "self.fc.bias", "x.size(0)", "x"},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WRAPPED)
def test_what_torch_wraps_has_the_users_names(name: str) -> None:
    fn, call, function, paths = WRAPPED[name]
    compiled = torch.compile(fn, backend=symshape_backend, options=PROGRAMS)
    for n in (3, 5):
        args, kwargs = call(n)
        torch.testing.assert_close(compiled(*args, **kwargs), fn(*args, **kwargs))
    graphs = [each for each in symshape.backend_report().graphs if each.origin.part != "backward"]
    assert {each.origin.function for each in graphs} == {function}
    assert (
        graphs[1]
        .sizes[0]
        .endswith(" = " + next(path for path in sorted(paths) if path.endswith(".size(0)")))
    )
    assert "args[" not in graphs[1].origin.reason
    (last,) = (
        each
        for each in dynamo.alive
        if each.origin.number == "0/1" and each.origin.part != "backward"
    )
    (entry,) = last.entries
    assert set(entry.program.call.paths) == paths


def test_a_comparison_is_said_not_to_hold() -> None:
    compiled = torch.compile(lambda x: x * 2, backend=symshape_backend)
    for n in (3, 4, 1):
        compiled(torch.ones(n))
    reasons = [each.origin.reason for each in symshape.backend_report().graphs]
    assert reasons[0] == ""
    assert reasons[1].endswith("expected 3, actual 4")
    assert reasons[2].endswith("x.size(0) did not hold")


def test_places() -> None:
    assert (
        in_user_words("L['self']._modules['fc']._parameters['weight'].size()[0]")
        == "self.fc.weight.size(0)"
    )
    assert in_user_words("L['args'][1].stride()[0]", frozen) == "others[0].stride(0)"
    assert in_user_words("L['kwargs']['other']", len) == "kwargs['other']"


def test_torchs_refusal_is_one_sentence_with_the_users_line() -> None:
    error = RuntimeError(
        "Cannot do\n  this. Current state:\n  a=1\n\nWhile executing %x : [num_users=1]\nOriginal "
        "traceback:\n"
        f'  File "{__file__}", line 17, in fn\n'
    )
    text = str(refused_by_torch(error))
    assert text.startswith(
        "torch's AOTAutograd refuses the graph with RuntimeError: Cannot do this (at "
    )
    assert "test_dynamo_names.py:17 in fn" in text
    assert "%x" not in text


def test_what_forward_kept_is_said_to_be_that() -> None:
    compiled = torch.compile(
        lambda x, w: (x @ w).sin() * 2, backend=symshape_backend, dynamic=True, options=PROGRAMS
    )
    compiled(rows(3), torch.ones(4, 2, requires_grad=True)).sum().backward()
    (backward,) = (each for each in dynamo.alive if each.origin.part == "backward")
    paths = backward.entries[0].program.call.paths
    assert {each for each in paths if "size" not in each} == {
        "x",
        "what forward kept of mm",
        "the gradient of result 0",
    }
