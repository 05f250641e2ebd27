"""Functions with a memo whose key holds sizes: one trace serves all sizes, and everything is as
eager has it.
"""

from __future__ import annotations

import functools
import math
import random
import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import symshape
from tests.sampling import sampled

Wrapped = Callable[..., Any]
Program = Callable[..., Any]

# -- functions that are wrapped: made from the world around them
WRAPPED: dict[str, Callable[[Any], Wrapped]] = {
    "an integer": lambda w: lambda n, m=1: n * 2 + 1,
    "an integer of state": lambda w: lambda n, m=1: n * w.k,
    "a tuple": lambda w: lambda n, m=1: (n, n // 2, "a", True, None, (n + 1, 2.5)),
    "a float": lambda w: lambda n, m=1: math.sqrt(n) / 2,
    "a list": lambda w: lambda n, m=1: [n, n + w.k],
    "a dictionary": lambda w: lambda n, m=1: {"n": n + 1, "k": [n, 3]},
    "a list from outside": lambda w: lambda n, m=1: (n, w.kept),
    "a branch": lambda w: lambda n, m=1: [n, 1] if n % 2 else [n],
    "a text": lambda w: lambda n, m=1: "odd" if n % 2 else "even",
    "a tensor": lambda w: lambda n, m=1: torch.arange(n) * 2.0,
    "a tensor of the default dtype": lambda w: lambda n, m=1: torch.linspace(0, 1, n),
    "a tensor of state": lambda w: lambda n, m=1: torch.ones(n) * w.k,
    "a tensor of a buffer": lambda w: lambda n, m=1: w.buffer * n,
    "a tensor of a parameter": lambda w: lambda n, m=1: w.parameter * n,
    "two tensors": lambda w: lambda n, m=1: (torch.arange(n).float(), [torch.ones(n)]),
    "a random tensor": lambda w: lambda n, m=1: torch.rand(n),
    "a random number": lambda w: lambda n, m=1: n + w.random.randrange(9),
    "a note": lambda w: lambda n, m=1: w.calls.append(n) or n + 1,
    "an error": lambda w: lambda n, m=1: n if n != 4 else 1 // 0,
}


# -- programs that call it
def _used(answer: Any) -> Any:
    if isinstance(answer, Tensor):
        return answer
    if isinstance(answer, dict):
        return _used(list(answer.values()))
    if isinstance(answer, (list, tuple)):
        return sum(_used(each) for each in answer if each is not None)
    return len(answer) if isinstance(answer, str) else answer


def _caught(made: Wrapped, n: Any) -> Any:
    try:
        return made(n)
    except ZeroDivisionError:
        return 7


def _is_same(x: Tensor, made: Wrapped, w: Any) -> Any:
    one, other = made(x.shape[0]), made(x.shape[0])
    return x * 2 if one is other else x * 3


def _is_known(x: Tensor, made: Wrapped, w: Any) -> Any:
    return x * 2 if made(x.shape[0]) is w.known else x * 3


def _changed(x: Tensor, made: Wrapped, w: Any) -> Any:
    answer = made(x.shape[0])
    if isinstance(answer, list):
        answer.append(1)
    elif isinstance(answer, dict):
        answer["n"] += 1
    elif isinstance(answer, Tensor):
        answer.detach().add_(1)
    return x * _used(answer)


def _kept(x: Tensor, made: Wrapped, w: Any) -> Any:
    w.last = made(x.shape[0])
    return x * 2


def _counted(x: Tensor, made: Wrapped, w: Any) -> Any:
    w.k += 1
    return x * _used(made(x.shape[0]))


def _under_no_grad(x: Tensor, made: Wrapped, w: Any) -> Any:
    with torch.no_grad():
        answer = made(x.shape[0])
    return x * _used(answer)


def _named(x: Tensor, made: Wrapped, w: Any) -> Any:
    return x * len({id(made(x.shape[0])), id(made(x.shape[0]))})


PROGRAMS: dict[str, Program] = {
    "used": lambda x, made, w: x * _used(made(x.shape[0])),
    "used twice": lambda x, made, w: x * _used(made(x.shape[0])) + _used(made(x.shape[0])),
    "of two sizes": lambda x, made, w: x * (_used(made(x.shape[0])) if x.shape[0] > 3 else 2),
    "caught": lambda x, made, w: x * _used(_caught(made, x.shape[0])),
    "returned": lambda x, made, w: (x * 2, made(x.shape[0])),
    "returned inside": lambda x, made, w: [x * 2, {"it": made(x.shape[0])}],
    "is same": _is_same,
    "is known": _is_known,
    "changed": _changed,
    "kept": _kept,
    "counted": _counted,
    "under no_grad": _under_no_grad,
    "named": _named,
    "beside a draw": lambda x, made, w: x * _used(made(x.shape[0])) + torch.rand(1),
    "a number of another type": lambda x, made, w: x * _used(made(x.shape[0] * 1.0)),
    "beside a number": lambda x, made, w: x * _used(made(x.shape[0], 1)),
}


def _world(wrapped: str, size: int | None, typed: bool = False) -> tuple[Any, Any]:
    world = SimpleNamespace(
        k=3,
        calls=[],
        kept=[1, 2],
        last=None,
        known=None,
        buffer=torch.tensor(2.0),
        parameter=torch.nn.Parameter(torch.tensor(2.0)),
        random=random.Random(0),
    )
    return world, functools.lru_cache(size, typed)(WRAPPED[wrapped](world))


def _act(action: str, n: int, made: Any, w: Any) -> None:
    """Something that a program around the compiled function does."""
    try:
        if action == "count":
            w.k += 1
        elif action == "clear":
            made.cache_clear()
        elif action == "call":
            w.known = made(n)
        elif action == "call with a float":
            made(float(n))
            made(float(n), 1.0)
        elif action == "call with a truth":
            made(True, True)
            made(True)
        elif action == "write":
            w.buffer.mul_(2)
            w.parameter.data.mul_(2)
        elif action == "change":
            answer = made(n) if n % 2 else made(n, 1)
            if isinstance(answer, list):
                answer.append(5)
            elif isinstance(answer, dict):
                answer["k"].append(5)
            elif isinstance(answer, Tensor):
                answer.detach().add_(1)
        elif action == "change the data":
            answer = made(n)
            if isinstance(answer, Tensor):
                answer.data.add_(1)
        elif action == "append":
            w.kept.append(4)
    except (ZeroDivisionError, TypeError, RuntimeError):
        pass


ACTIONS: tuple[str, ...] = (
    "",
    "",
    "",
    "count",
    "clear",
    "call",
    "call with a float",
    "call with a truth",
    "write",
    "change",
)
ACTIONS += ("change the data", "append")
Step = tuple[int, str, int, str]


def _steps(rng: random.Random, number: int) -> list[Step]:
    modes = ("", "", "", "", "float64", "no_grad", "inference")
    return [
        (
            rng.choice((1, 2, 3, 4, 5, 6)),
            rng.choice(ACTIONS),
            rng.randrange(1, 6),
            rng.choice(modes),
        )
        for _ in range(number)
    ]


def _shown(value: Any) -> Any:
    if isinstance(value, Tensor):
        with torch.no_grad():
            return value.tolist(), value.dtype, value.requires_grad, value.shape
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [_shown(each) for each in value]
    if isinstance(value, dict):
        return [(key, _shown(each)) for key, each in value.items()]
    return repr(value)


def _lived(
    wrapped: str, program: str, size: int | None, steps: list[Step], compiled: bool, typed: bool
) -> Iterator[Any]:
    world, made = _world(wrapped, size, typed)
    body = PROGRAMS[program]
    fn = lambda x: body(x, made, world)  # noqa: E731
    run = symshape.compile(fn) if compiled else fn
    torch.manual_seed(3)
    for n, action, other, mode in steps:
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64 if mode == "float64" else torch.float32)
        try:
            with (
                torch.set_grad_enabled(mode != "no_grad"),
                torch.inference_mode(mode == "inference"),
            ):
                _act(action, other, made, world)
                try:
                    found = _shown(run(torch.arange(1.0, n + 1)))
                except (ZeroDivisionError, RuntimeError, TypeError) as error:
                    found = type(error)
        finally:
            torch.set_default_dtype(before)
        seen = (
            world.k,
            world.calls,
            world.kept,
            world.buffer,
            world.last,
            world.random.getstate()[1][-1],
        )
        yield found, _shown(list(seen))
    for n in range(1, 7):
        try:
            yield _shown(made(n))
        except (ZeroDivisionError, TypeError) as error:
            yield type(error)


def _compare(
    wrapped: str, program: str, size: int | None, steps: list[Step], typed: bool = False
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mine = list(_lived(wrapped, program, size, steps, compiled=True, typed=typed))
        its = list(_lived(wrapped, program, size, steps, compiled=False, typed=typed))
    for number, (one, other) in enumerate(zip(mine, its, strict=True)):
        assert repr(one) == repr(other), (number, steps[: number + 1])


@pytest.mark.parametrize(
    ("wrapped", "program"), sampled(WRAPPED, PROGRAMS, every=4, others=pytest.mark.slow)
)
def test_everything_is_as_in_eager(wrapped: str, program: str) -> None:
    rng = random.Random(f"{wrapped} {program}")
    start = [(n, "", 1, "") for n in rng.choice(((3, 4, 5, 3), (5, 1, 2), ()))]
    _compare(wrapped, program, rng.choice((None, 128)), [*start, *_steps(rng, 9)])
    _compare(wrapped, program, 128, [*start, *_steps(rng, 4)], typed=True)


# -- one trace for all sizes
SIZES = (3, 4, 5, 6, 7, 3, 8, 4, 9, 10, 11, 12)
TRACED: tuple[str, ...] = (
    "an integer",
    "an integer of state",
    "a tuple",
    "a float",
    "a list",
    "a dictionary",
    "a list from outside",
)
TRACED += ("a tensor", "a tensor of the default dtype", "a tensor of state", "two tensors")


@pytest.mark.parametrize("program", ["used", "used twice", "beside a draw"])
@pytest.mark.parametrize("wrapped", TRACED)
@pytest.mark.parametrize(("size", "typed"), [(None, False), (128, False), (128, True)])
def test_one_trace_serves_all_sizes(
    wrapped: str, program: str, size: int | None, typed: bool
) -> None:
    world, made = _world(wrapped, size, typed)
    its_world, its_made = _world(wrapped, size, typed)
    compiled = symshape.compile(lambda x: PROGRAMS[program](x, made, world), fullgraph=True)
    for n in SIZES:
        x = torch.arange(1.0, n + 1)
        torch.manual_seed(0)
        found = compiled(x)
        torch.manual_seed(0)
        assert _shown(found) == _shown(PROGRAMS[program](x, its_made, its_world))
    # data of a tensor cannot be compared
    assert compiled.stats().traces <= (3 if "tensor" in wrapped else 2)
    assert made.cache_info().misses == its_made.cache_info().misses == len(set(SIZES))
    assert made.cache_info().currsize == its_made.cache_info().currsize


_KINDS: dict[str, tuple[Any, ...]] = {
    "an integer and a float": (2, 2.0),
    "an integer and a bool": (1, True),
    "in tuples": ((1, 2), (1.0, 2)),
    "in a tuple and a Size": ((1, 2), torch.Size((1, 2))),
    "of other values": (2, 3.0),
    "of other lengths": ((1,), (1, 2)),
    "nothing and a dtype": (None, torch.float32),
}


def _kind_of(n: Any, k: Any = 0) -> Any:
    return n * (
        len(repr(k)) if not isinstance(k, tuple) else sum(len(repr(each)) for each in (type(k), *k))
    )


@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("kinds", _KINDS)
def test_equal_arguments_of_different_classes_have_one_answer(
    kinds: str, named: bool, typed: bool
) -> None:
    one, other = _KINDS[kinds]
    expected, made = (functools.lru_cache(None, typed)(_kind_of) for _ in range(2))

    def program(memo: Any, x: Tensor) -> Any:
        n = x.shape[0]
        return x * (
            memo(n, k=one) * 100 + memo(n, k=other)
            if named
            else memo(n, one) * 100 + memo(n, other)
        )

    compiled = symshape.compile(lambda x: program(made, x), fullgraph=True)
    for n in SIZES:
        assert torch.equal(compiled(torch.ones(n)), program(expected, torch.ones(n)))
    if kinds.startswith(("of", "nothing")) or (typed and "in" not in kinds.split()):
        assert compiled.stats().traces == 2


class Recipe:
    def __init__(self, names: str) -> None:
        self.order = [names.index(each) for each in sorted(names)]


def _library() -> Any:
    """As einops does it: a recipe from one memo is in the key of another, whose answer holds lists
    and a dictionary.
    """

    @functools.lru_cache(256)
    def recipe(names: str) -> Recipe:
        return Recipe(names)

    @functools.lru_cache(1024)
    def sizes(it: Recipe, shape: tuple[int, ...], named: tuple[tuple[str, int], ...]) -> Any:
        known = dict(named)
        return [shape[0] * known["h"], *shape[1:]], it.order, {0: shape[1] // known["h"]}, None

    def arranged(x: Tensor, names: str, **named: int) -> Any:
        shape, order, added, _ = sizes(recipe(names), x.shape, tuple(named.items()))
        return x.permute(order).unsqueeze(0) * added[0] + shape[0]

    return arranged, recipe, sizes


def test_keys_with_objects_and_answers_with_containers() -> None:
    arranged, recipe, sizes = _library()
    expected, _, its_sizes = _library()
    compiled = symshape.compile(lambda x: arranged(x, "bad", h=2), fullgraph=True)
    for n in SIZES:
        x = torch.rand(n, 2 * n, 3)
        assert torch.equal(compiled(x), expected(x, "bad", h=2))
    assert compiled.stats().traces == 2
    assert recipe.cache_info().currsize == 1
    assert sizes.cache_info().misses == its_sizes.cache_info().misses
    assert type(sizes(recipe("bad"), torch.Size((3, 6, 3)), (("h", 2),))[0][0]) is int


def test_methods_with_a_memo() -> None:
    class Scaled(torch.nn.Module):
        @functools.lru_cache  # noqa: B019
        def scale(self, n: int, *, by: int = 2) -> int:
            return n * by

        def forward(self, x: Tensor) -> Tensor:
            return x * self.scale(x.shape[0], by=3)

    compiled: Any = symshape.compile(Scaled(), fullgraph=True)
    for n in SIZES:
        assert torch.equal(compiled(torch.ones(n)), torch.full((n,), 3.0 * n))
    assert compiled.stats().traces == 2
    assert Scaled.scale.cache_info().currsize == len(set(SIZES))


def test_what_a_memo_answered_before_is_compared_at_each_call() -> None:
    world = SimpleNamespace(k=3)
    made = functools.cache(lambda n, m: [n, world.k])
    compiled = symshape.compile(lambda x: x * made(x.shape[0], 1)[1])
    for n in (3, 4, 5):
        compiled(torch.ones(n))
    made(8, True)[1] = 50
    made(9.0, 1.0).append(7)  # an equal key
    world.k = 4
    for n, expected in ((3, 3), (4, 3), (5, 3), (6, 4), (8, 50), (9, 3)):
        assert compiled(torch.ones(n)).tolist() == [expected] * n
    assert made(6, 1) == [6, 4]
    assert repr(made(9, 1)) == "[9.0, 3, 7]"


def test_the_counts_of_a_memo_are_not_read() -> None:
    made = functools.cache(lambda n: n + 1)
    compiled = symshape.compile(
        lambda x: x * made(x.shape[0]) + made.cache_info().currsize, fullgraph=True
    )
    with pytest.raises(symshape.UnsupportedError, match="cache_info"):
        compiled(torch.ones(3))


@pytest.mark.parametrize("pattern", ["b (h d) t -> b h t d", "b ... -> ... b", "b d t -> (b t) d"])
def test_einops(pattern: str) -> None:
    einops = pytest.importorskip("einops")
    given = {"h": 2} if "h" in pattern else {}
    fn: Any = lambda x: einops.rearrange(x, pattern, **given)  # noqa: E731
    compiled = symshape.compile(fn, fullgraph=True)
    for n in SIZES:
        x = torch.rand(n, 2 * n, 3)
        assert torch.equal(compiled(x), fn(x))
    assert compiled.stats().traces <= 2


@pytest.mark.parametrize("write", ["data", "detach"])
def test_tensors_that_somebody_else_got_from_the_memo(write: str) -> None:
    inner = functools.cache(lambda n: torch.ones(n))
    made = functools.cache(lambda n: inner(n + 1)[:n] * 2)
    compiled = symshape.compile(lambda x: x * made(x.shape[0]), fullgraph=True)
    for _ in range(2):
        for n in (3, 4, 5, 6, 7):
            assert compiled(torch.ones(n)).tolist() == [2.0] * n
    assert compiled.stats().traces == 3
    got = made(5)
    (got.data if write == "data" else got.detach()).add_(1)
    inner(8).add_(4)  # is read no more for a size of 7
    for n, expected in ((5, 3.0), (7, 2.0), (4, 2.0)):
        assert compiled(torch.ones(n)).tolist() == [expected] * n


def test_programs_that_fill_memos_are_verified() -> None:
    made = functools.cache(lambda n: n * 2)
    compiled = symshape.compile(lambda x: x * made(x.shape[0]), options=symshape.Options(verify=1))
    for n in SIZES:
        assert torch.equal(compiled(torch.ones(n)), torch.full((n,), 2.0 * n))
    assert compiled.stats().verified > 2


def test_a_dictionary_of_the_program_as_a_memo_is_told_of_lru_cache() -> None:
    """Any code may fill the dictionary, so its keys are numbers: a program for each."""
    table: dict[int, torch.Tensor] = {}

    def made(n: int) -> torch.Tensor:
        if n not in table:
            table[n] = torch.arange(n).float()
        return table[n]

    by_hand = symshape.compile(lambda x: x + made(x.shape[0]))
    cached = functools.cache(lambda n: torch.arange(n).float())
    by_python = symshape.compile(lambda x: x + cached(x.shape[0]))

    def call(fn: Any) -> None:
        for n in range(3, 20):
            assert torch.equal(fn(torch.ones(n)), torch.ones(n) + torch.arange(n))

    with pytest.warns(symshape.FallbackWarning, match=r"for a memo use\s+functools.lru_cache"):
        call(by_hand)
    call(by_python)
    assert (by_python.stats().traces, by_python.stats().fallbacks) == (2, 0)
