"""Guards of Dynamo's own cache: what is read of them says which calls Dynamo compiles again."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import symshape
from guards import GuardSet
from symshape.frontends.exploration.dynamo import read_dynamo, target_of


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    with torch._dynamo.config.patch(recompile_limit=64):
        yield
    torch._dynamo.reset()


class Counting:
    """A backend that counts."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, graph: Any, inputs: Any) -> Callable[..., Any]:
        self.graphs += 1
        return graph.forward


def branching(a: torch.Tensor, b: torch.Tensor, k: int) -> torch.Tensor:
    if a.size(0) + b.size(0) > 4 + k:
        return torch.cat([a, b]) * 2
    if a.size(0) % 3 == 1:
        return a[:1]
    return a.sum() + b.sum()


def _serving(fn: Callable[..., Any], values: dict[str, int]) -> str | None:
    """The first entry whose guards, as they were read, hold."""
    cache = read_dynamo(target_of(fn))  # type: ignore[arg-type]
    known = {name: values[source] for name, source in cache.sources.items()}
    for entry in cache.entries:
        if all(guard.holds(known) for guard in GuardSet(entry.guards)):
            return entry.name
    return None


def test_what_was_read_foretells_what_is_compiled_again() -> None:
    backend = Counting()
    compiled = torch.compile(branching, backend=backend)
    compiled(torch.ones(4), torch.ones(3), 2)
    rng = random.Random(4)
    served = missed = 0
    for _ in range(24):
        a, b, k = (rng.choice((0, 1, 2, rng.randint(0, 30))) for _ in "abk")
        values = {"a.size(0)": a, "b.size(0)": b, "a.stride(0)": 1, "b.stride(0)": 1, "k": k}
        found = _serving(compiled, values)
        before = backend.graphs
        compiled(torch.ones(a), torch.ones(b), k)
        assert (backend.graphs > before) is (found is None), values
        served, missed = served + (found is not None), missed + (found is None)
    assert min(served, missed) > 3


def test_as_a_report() -> None:
    compiled = torch.compile(branching, backend="eager")
    for n in (3, 5, 9):
        compiled(torch.ones(n), torch.ones(n), 2)
    report = symshape.explore(compiled).report
    assert report.kind == "dynamo"
    (space,) = report.spaces
    words = [guard.words for entry in space.entries for guard in entry.guards]
    assert "a.size(0) == 3" in words
    assert "a.size(0) >= 2" in words  # Dynamo's own, for sizes that vary
    assert any("check_no_aliasing" in line for line in space.structure)
    assert "if a.size(0) + b.size(0) > 4 + k:" in {origin.text for origin in report.origins}


def test_a_module() -> None:
    class Double(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    compiled = torch.compile(Double(), backend="eager")
    compiled(torch.ones(3))
    (space,) = symshape.explore(compiled).report.spaces
    assert "x.size(0) == 3" in [guard.words for guard in space.entries[0].guards]


def test_a_module_of_torch() -> None:
    """It runs in a frame that all such modules share; its programs foretell what is compiled
    again.
    """
    backend = Counting()
    layers = [
        torch.nn.Linear(3, 4),
        torch.nn.Linear(3, 9),
        torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU()),
    ]
    compiled = [torch.compile(layer, backend=backend) for layer in layers]
    for each in compiled:
        each(torch.ones(2, 3))
    rng = random.Random(2)
    served = 0
    for number in range(15):
        each, n = compiled[number % 3], rng.choice((0, 2, 7))
        values = {
            "input.size(0)": n,
            "input.size(1)": 3,
            "input.stride(0)": 3,
            "input.stride(1)": 1,
        }
        found = _serving(each, values)
        before = backend.graphs
        each(torch.ones(n, 3))
        assert (backend.graphs > before) is (found is None), (number, n)
        served += found is not None
    assert 3 < served < 15
    report = symshape.explore(compiled[1]).report
    assert "other objects" in report.notes[1]
    assert {slot.source for slot in report.spaces[0].slots} == values.keys()  # and no parameter's


def test_module_compile() -> None:
    class Scaled(torch.nn.Module):
        def __init__(self, size: int) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(size))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.scale

    one, other = Scaled(4), Scaled(5)
    for module, size in ((one, 4), (other, 5)):
        module.compile(backend="eager")
        module(torch.ones(3, size))
    for module, size in ((one, 4), (other, 5)):
        (space,) = symshape.explore(module).report.spaces
        (entry,) = space.entries
        assert f"x.size(1) == {size}" in [guard.words for guard in entry.guards]
    with pytest.raises(symshape.InputError, match="not a Scaled"):
        symshape.explore(Scaled(3))


def test_a_function_of_torch_and_a_method() -> None:
    relu = torch.compile(torch.nn.functional.relu, backend="eager")
    relu(torch.ones(3))
    (space,) = symshape.explore(relu).report.spaces
    assert "input.size(0) == 3" in [guard.words for guard in space.entries[0].guards]

    class Holder:
        def double(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    double = torch.compile(Holder().double, backend="eager")
    double(torch.ones(6))
    (space,) = symshape.explore(double).report.spaces
    assert "x.size(0) == 6" in [guard.words for guard in space.entries[0].guards]


def test_guards_that_only_some_entries_have_say_so() -> None:
    """And a number of no integer's is nothing to turn."""

    def scaled(x: torch.Tensor, scale: float) -> torch.Tensor:
        return x * scale

    compiled = torch.compile(scaled, backend="eager")
    for n, scale in ((9, 1.0), (7, 1.0), (7, 2.0)):
        compiled(torch.ones(n), scale)
    report = symshape.explore(compiled)
    (space,) = report.report.spaces
    assert repr(report).startswith("<Exploration of Dynamo's programs of ")
    assert [line for line in space.structure if line.startswith("L['scale'] == 1.0  (only 0/")]
    assert "scale" not in {slot.source for slot in space.slots}


def test_lines_that_dynamo_does_not_know() -> None:
    compiled = torch.compile(lambda x, y: x * y, backend="eager", dynamic=True)
    compiled(torch.ones(70, 5), torch.ones(70, 5))
    report = symshape.explore(compiled).report
    texts = {origin.text for origin in report.origins if not origin.place}
    assert any(text.startswith("duck sizing: the sizes were both 70 ") for text in texts), texts
    assert not any("file a bug" in text for text in texts)
    assert not any("lambda_guard" in origin.asked for origin in report.origins)


def test_a_map_begins_at_small_sizes() -> None:
    """Also where one size is large: the others stay small."""

    def long_only(x: torch.Tensor) -> torch.Tensor:
        return x[:, :300] if x.size(1) > 300 else x * 2

    compiled = torch.compile(long_only, backend="eager", dynamic=True)
    compiled(torch.ones(5, 400))
    (space,) = symshape.explore(compiled).report.spaces
    start = {slot.source: slot.start for slot in space.slots}
    assert start["x.size(0)"] <= 16
    assert 300 < start["x.size(1)"] <= 4096


def test_arguments_of_a_wrapped_function_have_its_names() -> None:
    def wrap(fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def inner(*args: Any, **kwargs: Any) -> Any:
            return fn(*args, **kwargs)

        return inner

    compiled = torch.compile(wrap(lambda ids, mask: ids * mask), backend="eager", dynamic=True)
    compiled(torch.ones(3, 5), mask=torch.ones(3, 5))
    (space,) = symshape.explore(compiled).report.spaces
    assert {"ids.size(0)", "mask.size(0)"} <= {slot.source for slot in space.slots}

    def own(kwargs: dict[str, torch.Tensor]) -> torch.Tensor:
        return kwargs["ids"] * 2

    compiled = torch.compile(own, backend="eager", dynamic=True)
    compiled({"ids": torch.ones(3, 5)})
    (space,) = symshape.explore(compiled).report.spaces
    assert "kwargs['ids'].size(0)" in {slot.source for slot in space.slots}


def test_nothing_was_compiled() -> None:
    with pytest.raises(symshape.InputError, match="call it once"):
        symshape.explore(torch.compile(lambda x: x, backend="eager"))
    layer = torch.nn.Linear(3, 4)
    layer.compile(backend="eager")  # of which Dynamo compiles nothing
    layer(torch.ones(2, 3))
    with pytest.raises(symshape.InputError, match=r"nothing after module\.compile"):
        symshape.explore(layer)
