"""Containers in the attributes of an object argument: written, stored and returned as in eager."""

from __future__ import annotations

import warnings
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

import symshape


@dataclass
class Buffers:
    scale: Any
    held: Any
    other: Any = None
    more: Any = field(default_factory=list)


def _with_default() -> Any:
    found: Any = defaultdict(list)
    found["n"] = 1.0
    return found


CONTAINERS: dict[str, tuple[Callable[[], Any], Any]] = {
    "ordered": (lambda: OrderedDict(n=1.0), "n"),
    "deque": (lambda: deque([1.0], maxlen=3), 0),
    "with a default": (_with_default, "n"),
    "keys that are tuples": (lambda: {(1, 2): 1.0}, (1, 2)),
    "dictionary": (lambda: {"n": 1.0}, "n"),
    "list": (lambda: [1.0], 0),
}
Program = Callable[[Any, torch.Tensor, Any], Any]


def _item(s: Any, x: torch.Tensor, key: Any) -> Any:
    s.held[key] = x
    return x + s.scale


def _size(s: Any, x: torch.Tensor, key: Any) -> Any:
    s.held[key] = x.shape[0]
    return x + s.scale


def _grown(s: Any, x: torch.Tensor, key: Any) -> Any:
    if isinstance(s.held, dict):
        s.held["new"] = x * 2
    else:
        s.held.append(x * 2)
    return x


def _inside_a_tuple(s: Any, x: torch.Tensor, key: Any) -> Any:
    s.other[0][key] = x
    return x


def _stored_again(s: Any, x: torch.Tensor, key: Any) -> Any:
    s.other = s.held
    return x


def _stored_in_a_list(s: Any, x: torch.Tensor, key: Any) -> Any:
    s.more.append(s.held)
    return x


def _moved(s: Any, x: torch.Tensor, key: Any) -> Any:
    s.other, s.held = s.held, None
    return x


def _returned(s: Any, x: torch.Tensor, key: Any) -> Any:
    s.scale = s.scale + 1
    return [s.held]


def _written_and_dropped(s: Any, x: torch.Tensor, key: Any) -> Any:
    s.held[key] = x
    s.held = None
    return x


def _a_new_one_twice(s: Any, x: torch.Tensor, key: Any) -> Any:
    new = type(s.held)() if not isinstance(s.held, defaultdict) else defaultdict(list)
    s.held, s.other = new, (new, 1)
    return x


WRITES: list[Program] = [
    _item,
    _size,
    _grown,
    _inside_a_tuple,
    _stored_again,
    _stored_in_a_list,
    _moved,
    _returned,
    _written_and_dropped,
    _a_new_one_twice,
]


def _seen(s: Buffers, first: Any, result: Any) -> str:
    """What a user can see: contents, and which of the containers are one object."""
    places = [s.held, s.other, s.other[0] if isinstance(s.other, tuple) else None, *s.more]
    places += result if isinstance(result, list) else []
    same = [[one is other for one in (first, *places)] for other in places if other is not None]
    return f"{s} {first} {same} {result}"


@pytest.mark.parametrize("program", WRITES, ids=lambda each: each.__name__)
@pytest.mark.parametrize("name", CONTAINERS)
def test_a_call_leaves_what_eager_leaves(name: str, program: Program) -> None:
    make, key = CONTAINERS[name]
    compiled = symshape.compile(lambda s, x: program(s, x, key))
    for n in (2, 3, 4, 3):
        found = []
        for fn in (compiled, lambda s, x: program(s, x, key)):
            first = make()
            s = Buffers(torch.ones(1), first, (first, 1) if program is _inside_a_tuple else None)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", symshape.FallbackWarning)
                result = fn(s, torch.arange(float(n)))
            found.append(_seen(s, first, result))
        assert found[0] == found[1]


@pytest.mark.parametrize("name", CONTAINERS)
def test_one_that_is_read_is_served_by_one_program(name: str) -> None:
    make, key = CONTAINERS[name]

    def program(s: Any, x: torch.Tensor) -> torch.Tensor:
        return x * s.held[key] + s.scale

    compiled = symshape.compile(program, fullgraph=True, dynamic=True)
    for n in (2, 3, 4, 3):
        s, x = Buffers(torch.ones(1), make()), torch.arange(float(n))
        assert torch.equal(compiled(s, x), program(s, x))
    assert compiled.stats().traces == 1


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (_item, "changes a deque that an argument holds"),
        (_stored_again, "returns a deque that an argument holds, or stores it"),
        (_a_new_one_twice, "stores the same deque in two places"),
    ],
)
def test_why_it_is_refused(program: Program, words: str) -> None:
    compiled = symshape.compile(lambda s, x: program(s, x, 0), fullgraph=True)
    with pytest.raises(symshape.UnsupportedError, match=words):
        compiled(Buffers(torch.ones(1), deque([1.0])), torch.ones(3))


def _cycle(kind: type) -> Any:
    made: Any = kind()
    if kind is dict:
        made["x"], made["me"] = torch.ones(2), made
    else:
        made += [torch.ones(2), made, made]
    return made


@pytest.mark.parametrize("place", ["itself", "in a tuple", "held"])
@pytest.mark.parametrize("kind", [list, dict, deque])
def test_an_argument_that_contains_itself_runs_eagerly(kind: type, place: str) -> None:
    made = _cycle(kind)
    argument = {"itself": made, "in a tuple": (made, 1), "held": Buffers(torch.ones(1), made)}[
        place
    ]
    compiled = symshape.compile(lambda s, x: x * 2)
    strict = symshape.compile(lambda s, x: x * 2, fullgraph=True)
    for n in (2, 3, 3):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", symshape.FallbackWarning)
            assert torch.equal(compiled(argument, torch.ones(n)), torch.full((n,), 2.0))
        if place != "held":
            with pytest.raises(symshape.InputError, match="contains itself"):
                strict(argument, torch.ones(n))
