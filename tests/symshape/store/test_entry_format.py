"""Programs as files and back: the same graph, guards and source of the runner; hostile files
refused or harmless.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

import symshape
from symshape.calls.arguments import flatten_call, values_of
from symshape.calls.modes import modes
from symshape.graph.program import Program
from symshape.store.entry_format import EntryBody, read_header, to_bytes
from symshape.store.entry_text import checked, show
from symshape.store.environment import environment
from symshape.store.store_errors import Differs, EntryError, NotStorable

SCALE = 1.5
ADDRESS = "0" * 32


class _Module(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(4, 3)
        self.register_buffer("steps", torch.arange(3.0))
        self.k = 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.inner(x)) * self.k + self.steps


def _reshaped(x: torch.Tensor) -> Any:
    return {"a": x.reshape(x.shape[1], -1), "n": x.shape[0] * 2, "s": x.mean() / x.shape[0]}


def _selected(x: torch.Tensor) -> torch.Tensor:
    found = x[x > 0]
    torch._check(found.shape[0] >= 1, lambda: f"none of {x.shape[0]}")
    return found.sum() + found.shape[0]


def _constants(x: torch.Tensor) -> torch.Tensor:
    return (
        (x * SCALE + torch.tensor([1.0, 2.0, 3.0, 4.0])).to(torch.float64).clamp(max=float("inf"))
    )


def _branch(x: torch.Tensor, k: int) -> torch.Tensor:
    with torch.no_grad():
        y = x * k
    return y if x.shape[0] > 2 else y - 1


CASES: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (_Module(), (torch.ones(5, 4),)),
    (_reshaped, (torch.ones(6, 4),)),
    (_selected, (torch.linspace(-1, 1, 9),)),
    (_constants, (torch.ones(3, 4),)),
    (_branch, (torch.ones(3, 4), 7)),
    (
        torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2)),
        (torch.ones(2, 1, 5, 6),),
    ),
]


def _program(fn: Callable[..., Any], args: tuple[Any, ...]) -> Program:
    made = symshape.compile(fn, dynamic=True, fullgraph=True)
    made(*args)
    found = made if isinstance(made, symshape.Compiled) else symshape.compiled_of(made)
    return found.entries[-1].program


def _written(fn: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Program, bytes]:
    program = _program(fn, args)
    return program, to_bytes(program, fn, flatten_call(fn, args, {}), ADDRESS, environment())


@pytest.mark.parametrize(
    ("fn", "args"), CASES, ids=lambda each: getattr(each, "__name__", type(each).__name__)
)
def test_there_and_back(fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
    program, content = _written(fn, args)
    call = flatten_call(fn, args, {})
    read = EntryBody(read_header(content))
    values = values_of(call.leaves, call.keys)
    assert read.admits(values)
    again = read.program(fn, call, modes())
    assert str(again.graph) == str(program.graph)
    assert [each.text() for each in again.guards] == [each.text() for each in program.guards]
    assert [each.text() for each in again.slot_guards()] == [
        each.text() for each in program.slot_guards()
    ]
    assert again.state.unchanged()
    assert list(again.state.changes()) == []
    assert {each.name for each in again.state.places} == {
        each.name for each in program.state.places
    }
    torch.manual_seed(0)
    one = again.run(call.leaves, values)
    torch.manual_seed(0)
    torch.testing.assert_close(one, program.run(call.leaves, values), rtol=0, atol=0)
    assert to_bytes(again, fn, call, ADDRESS, environment()) == content


def test_guards_are_asked() -> None:
    _, content = _written(_branch, (torch.ones(3, 4), 7))
    read = EntryBody(read_header(content))
    assert read.admits((30, 4, 7))
    assert not read.admits((2, 4, 7))
    assert not read.admits((3, 4))


def _refused(fn: Callable[..., Any], *args: Any) -> str:
    with pytest.raises(NotStorable) as raised:
        _written(fn, args)
    return str(raised.value)


class _Counter(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x + self.calls


def test_what_cannot_be_stored_says_so() -> None:
    generator = torch.Generator()
    assert "writes outside its arguments (calls)" in _refused(_Counter(), torch.ones(2))
    assert "Generator, whose content cannot be seen" in _refused(
        lambda x: x + torch.rand(x.shape, generator=generator), torch.ones(2)
    )
    assert "creates a set" in _refused(lambda x: x * len({1, x.dim()}), torch.ones(2))
    assert "may call id()" in _refused(lambda x: x * (id(x.dtype) > 0), torch.ones(2))


@torch.library.custom_op("symshape_store_test::twice", mutates_args=())
def _twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@_twice.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def test_custom_operators_are_refused_by_name() -> None:
    assert "cannot be seen" in _refused(lambda x: _twice(x) + 1, torch.ones(2))
    assert "the operator symshape_store_test.twice.default" in _refused(
        lambda x: torch.ops.symshape_store_test.twice(x) + 1, torch.ones(2)
    )


# -- hostile files


def _served(content: bytes) -> Any:
    """What becomes of a file: the reason why it is refused, or a result."""
    fn, args = CASES[4]
    call = flatten_call(fn, args, {})
    try:
        read = EntryBody(read_header(content))
        if not read.admits(values_of(call.leaves, call.keys)):
            return "other sizes"
        return read.program(fn, call, modes())
    except (EntryError, Differs) as error:
        return str(error)
    except Exception as error:
        return f"{type(error).__name__}: {error}"  # the keeper takes these for a damaged file


def _changed(content: bytes, change: Callable[[dict[str, Any]], None]) -> bytes:
    header, body, _ = content.split(b"\n")
    data = json.loads(body)
    change(data)
    return b"\n".join((header, json.dumps(data).encode(), b""))


def test_a_damaged_file_is_refused() -> None:
    _, content = _written(*CASES[4])
    read_header(content, read_header(content).digest)
    for damaged in (
        content[:-1],
        content[:50],
        b"",
        b"\x00" * 100,
        content.replace(b"mul", b"div", 1),
        b"\n\n",
    ):
        with pytest.raises(EntryError):
            read_header(damaged, read_header(content).digest)


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        (("graph", "ops", 0), "from_file.default", "unknown operator"),
        (("graph", "ops", 0), "__class__.__mro__", "unknown operator"),
        (("graph", "ops", 0), "mul.Tensor) or exit(", "unknown operator"),
        (("graph", "steps", 0, "op"), 99, "an integer from 0"),
        (("graph", "steps", 0, "location"), -1, "an integer from 0"),
        (("graph", "steps", 0, "args"), [{"value": 1}, 1], "read before it is made"),
        (("graph", "steps", 0, "args"), [{"value": 0}, 1, 2, 3, 4], "takes no such arguments"),
        (("graph", "steps", 0, "kwargs"), {"x); exit(": 1}, "takes no such arguments"),
        (("graph", "steps", 0, "outputs"), [0], "made twice"),
        (("graph", "outputs"), [{"value": 99}], "an integer from 0"),
        (("graph", "outputs"), [{"value": 1}, 3], "number of leaves differs"),
        (("graph", "inputs"), [[7, "x", 0]], "an integer from 0"),
        (("graph", "output_tree"), ["os:system", None, []], "is not a container"),
        (("graph", "output_tree"), ["builtins:eval", None, []], "is not a container"),
        (("graph", "values", 0, 3), 99, "an integer from 0"),
        (("graph", "specs", 0, 3), "torch.os", "not a dtype"),
        (("terms", 0), "__import__('os')", "formula is wrong"),
        (("terms", 0), "2 ** 10 ** 10", "formula is wrong"),
        (("conditions",), "{}", "guards that are wrong"),
        (("checks", 0, 1), "eval", "unknown kind of step"),
        (("checks", 0, 3), {"object": 5}, "not what it was|the function"),
        (("slots",), [0, 0, 0], "other sizes"),
        (("symbols", 0, 0), "s 0", "not the name of a symbol"),
        (("more",), 1, "an object with"),
    ],
)
def test_hostile_pieces_are_refused(path: tuple[Any, ...], value: Any, reason: str) -> None:
    def change(data: Any) -> None:
        for key in path[:-1]:
            data = data[key]
        data[path[-1]] = value

    _, content = _written(*CASES[4])
    found = _served(_changed(content, change))
    assert isinstance(found, str)
    assert re.search(reason, found), found


def test_nothing_is_run_by_random_damage() -> None:
    """Files damaged anywhere are refused, or are programs of operators with rules: nothing else can
    come of them.
    """
    _, content = _written(*CASES[4])
    rng = random.Random(0)
    refused = 0
    for _ in range(300):
        data = bytearray(content)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.choice(b'{}[]",:0123456789abcx\n-')
        refused += isinstance(_served(bytes(data)), str)
    assert refused > 200


def test_a_result_of_a_class_that_is_not_imported_is_no_damage() -> None:
    """``symshape cache verify`` runs without the program's libraries."""
    _, content = _written(*CASES[4])
    other = read_header(
        _changed(
            content, lambda data: data["graph"].update(output_tree=["nowhere:Output", None, []])
        )
    )
    checked(other)
    assert "cannot be shown here: nowhere:Output" in show(
        _changed(
            content, lambda data: data["graph"].update(output_tree=["nowhere:Output", None, []])
        )
    )
    with pytest.raises(EntryError, match="read before"):
        checked(
            read_header(
                _changed(
                    content, lambda data: data["graph"]["steps"][0].update(args=[{"value": 1}, 1])
                )
            )
        )
