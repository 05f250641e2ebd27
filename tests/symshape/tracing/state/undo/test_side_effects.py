"""What a program does besides computing tensors: repeated by the graph, or refused; never done once
and lost.
"""

from __future__ import annotations

import functools
import operator
import sys
import threading
import types
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

import symshape
from symshape import UnsupportedError
from tests.symshape.eager import assert_same

Fn = Callable[[torch.Tensor], Any]

COUNTS = [0]
NAMES = {"n": 1}
SEEN: set[int] = set()
LOG: list[str] = []
LOGS: list[list[str]] = [[]]
total = 0
WEIGHT = nn.Parameter(torch.ones(3))
_KINDS: dict[str, Callable[[], torch.Tensor]] = {
    "plain": lambda: torch.ones(3),
    "leaf": lambda: torch.ones(3, requires_grad=True),
    "made by autograd": lambda: torch.ones(3, requires_grad=True) * 2,
    "a view of what autograd made": lambda: (torch.ones(3, requires_grad=True) * 2).view(3),
}


# -- Python's own state


def _counts(x: torch.Tensor) -> torch.Tensor:
    COUNTS[0] += 1
    return x * COUNTS[0]


def _renames(x: torch.Tensor) -> torch.Tensor:
    NAMES["n"] = NAMES["n"] + 1
    return x * NAMES["n"]


def _forgets(x: torch.Tensor) -> torch.Tensor:
    COUNTS.pop()
    return x * len(COUNTS)


def _adds_up(x: torch.Tensor) -> torch.Tensor:
    global total
    total += 1
    return x * total


def _closes_over() -> Fn:
    calls = 0

    def f(x: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        return x * calls

    return f


def _reads_its_log(x: torch.Tensor) -> torch.Tensor:
    COUNTS.append(1)
    return x * len(COUNTS)


def _reads_its_log_by_another_name(x: torch.Tensor) -> torch.Tensor:
    counts = COUNTS
    counts.append(1)
    return x * len(counts)


def _reads_an_inner_log(x: torch.Tensor) -> torch.Tensor:
    LOGS[0].append("called")
    return x * len(LOGS[0])


def _remembers(x: torch.Tensor) -> torch.Tensor:
    NAMES[str(len(NAMES))] = 1
    return x * 2


@pytest.mark.parametrize(
    "fn",
    [
        *(_counts, _renames, _forgets, _adds_up, _closes_over()),
        *(_reads_its_log, _reads_its_log_by_another_name, _reads_an_inner_log, _remembers),
    ],
)
def test_counters_count(fn: Fn) -> None:
    """``trace`` refuses what a graph would not do again, and undoes it; a compiled function does it
    at each call.
    """

    def state() -> Any:
        return list(COUNTS), dict(NAMES), total, [list(each) for each in LOGS]

    def put_back() -> None:
        global total
        COUNTS[:], total, LOGS[0][:] = [0], 0, []
        NAMES.clear()
        NAMES["n"] = 1

    put_back()
    before = state()
    with pytest.raises(UnsupportedError, match="which a compiled graph would not repeat"):
        symshape.trace(fn, torch.ones(3))
    assert state() == before
    if fn is _forgets:
        COUNTS[:] = range(9)
    calls = [torch.ones(n) for n in (3, 3, 4, 4)]
    start = state()
    compiled = symshape.compile(fn, fullgraph=True)
    got = [(compiled(each), state()) for each in calls]
    COUNTS[:], total_then = start[0], start[2]
    put_back()
    COUNTS[:] = start[0]
    assert total_then == total
    if fn.__name__ != "f":  # whose count is its own
        for each, (result, then) in zip(calls, got, strict=True):
            assert torch.equal(fn(each), result)
            assert state() == then
    else:
        assert [float(each[0]) for each, _ in got] == [1, 2, 3, 4]
    put_back()


def _logs(x: torch.Tensor) -> torch.Tensor:
    LOG.append("called")
    SEEN.add(len(SEEN))
    return x * 2


def test_a_set_that_grows_runs_as_it_is_or_is_refused_and_put_back() -> None:
    LOG.clear()
    SEEN.clear()
    with pytest.raises(
        UnsupportedError, match=r"changes SEEN .*which a compiled graph would not repeat"
    ):
        symshape.compile(_logs, fullgraph=True)(torch.ones(2))
    assert LOG == []
    assert set() == SEEN
    compiled = symshape.compile(_logs)
    with pytest.warns(symshape.FallbackWarning, match="SEEN"):
        assert torch.equal(compiled(torch.ones(2)), 2 * torch.ones(2))
    for n in (3, 4):
        assert torch.equal(compiled(torch.ones(n)), 2 * torch.ones(n))
    assert LOG == ["called"] * 3
    assert sorted(SEEN) == [0, 1, 2]


def _default_dtype(x: torch.Tensor) -> torch.Tensor:
    torch.set_default_dtype(torch.float64)
    try:
        return torch.ones(x.shape) + x
    finally:
        torch.set_default_dtype(torch.float32)


def test_another_default_dtype_inside_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="default dtype"):
        symshape.trace(_default_dtype, torch.ones(3))
    assert torch.get_default_dtype() is torch.float32


@functools.lru_cache
def _table(number: int) -> torch.Tensor:
    return torch.arange(number) * 2.0


def test_no_memo_keeps_symbolic_tensors() -> None:
    _table.cache_clear()
    traced = symshape.trace(lambda x: x + _table(3), torch.ones(3))
    assert torch.equal(_table(3), torch.tensor([0.0, 2.0, 4.0]))
    assert torch.equal(traced(torch.ones(3)), torch.tensor([1.0, 3.0, 5.0]))
    _table.cache_clear()


# -- autograd's state


def _sets(
    attribute: str, value: Callable[[torch.Tensor], Any], of: torch.Tensor | None = None
) -> Fn:
    def f(x: torch.Tensor) -> torch.Tensor:
        setattr(x if of is None else of, attribute, value(x))
        return x * 2

    return f


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x * 2 if x.grad is None else x,
        _sets("grad", torch.ones_like),
        _sets("grad", torch.ones_like, WEIGHT),
        _sets("data", torch.ones_like),
        _sets("data", torch.ones_like, WEIGHT),
        _sets("requires_grad", lambda x: False, WEIGHT),
        lambda x: WEIGHT.requires_grad_(False) * x,
        lambda x: x.requires_grad_(not x.requires_grad) * 2,
        lambda x: x * x._version,
        lambda x: x if x._base is None else x * 2,
        lambda x: x * x.untyped_storage().nbytes(),
        lambda x: x.storage().nbytes() * x,
        lambda x: x * x.is_shared(),
    ],
)
def test_state_of_tensors_around_the_function_is_neither_read_nor_changed(fn: Fn) -> None:
    for make in _KINDS.values():
        x = make()
        with pytest.raises(UnsupportedError):
            symshape.trace(fn, x)
        assert x.requires_grad == make().requires_grad
    assert WEIGHT.grad is None
    assert WEIGHT.requires_grad
    assert torch.equal(WEIGHT.data, torch.ones(3))


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x if x.is_leaf else x * 2,
        lambda x: x if x.grad_fn is None else x * 2,
        lambda x: x.detach_(),
        lambda x: (x * 2).detach_(),
        lambda x: (lambda y: (y.retain_grad(), y)[1])(x * 2),
        lambda x: (lambda y: (y.register_hook(lambda gradient: gradient * 10), y)[1])(x * 2),
    ],
)
def test_what_changes_gradients_without_an_op_is_refused(fn: Fn) -> None:
    for name, make in _KINDS.items():
        if name != "plain":
            with pytest.raises(UnsupportedError):
                symshape.trace(fn, make())


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x if x.is_leaf else x * 2,
        lambda x: x if x.grad_fn is None else x * 2,
        lambda x: x.detach_() + 1,
        lambda x: (
            torch.autograd.grad(
                (x.detach().clone().requires_grad_() ** 2).sum(), x, allow_unused=True
            )
            if x.requires_grad
            else x * 2
        ),
    ],
)
def test_what_asks_about_gradients_works_without_them(fn: Fn) -> None:
    assert_same(fn, symshape.compile(fn), torch.ones(3))


def _gradient_inside(x: torch.Tensor) -> torch.Tensor:
    leaf = x.detach().clone().requires_grad_()
    (leaf**2).sum().backward()
    assert leaf.grad is not None
    assert leaf.is_leaf
    return leaf.grad


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.mul_(2),
        torch.no_grad()(lambda x: x.mul_(2)),
        lambda x: (x.view(-1).mul_(2), x * 1),
        lambda x: x.copy_(x * 3),
        lambda x: x.zero_(),
        lambda x: x[:1].add_(x[1:2]),
        lambda x: (x * 2) if (x * 2).is_leaf else x * 2 + 1,
        lambda x: x * 3 if (x * 2)[:1]._base is None else x * 2,
        lambda x: torch.autograd.grad((x**2).sum(), x)[0] if x.requires_grad else x,
        _gradient_inside,
        lambda x: x,
    ],
)
def test_writing_to_what_autograd_made_equals_eager(fn: Fn, kind: str) -> None:
    def seen(served: Fn) -> list[Any]:
        argument = _KINDS[kind]()
        try:
            found = pytree.tree_leaves((served(argument), argument))
        except RuntimeError as error:
            return [str(error)]
        return [
            (each.tolist(), each.requires_grad, each.grad_fn is None, each.is_leaf)
            for each in found
        ]

    assert seen(symshape.compile(fn)) == seen(fn)


def test_transforms_of_functions_make_their_own_gradients() -> None:
    def f(x: torch.Tensor) -> Any:
        return torch.func.grad(lambda y: (y**2).sum())(x), torch.vmap(lambda y: y * 2 + 0.5)(x)

    for make in _KINDS.values():
        assert_same(f, symshape.trace(f, make()), torch.ones(5, requires_grad=make().requires_grad))


def test_views_of_what_is_written_to_later_have_their_history() -> None:
    def f(x: torch.Tensor) -> Any:
        views = x.view(-1), x.view(x.shape), x.mT
        x.add_(1)
        return views

    traced = symshape.trace(f, torch.ones(3, 2, requires_grad=True) * 1)
    for served in (f, traced):
        leaf = torch.ones(4, 5, requires_grad=True)
        views = served(leaf * 2)
        assert all(each.requires_grad and each.grad_fn is not None for each in views)
        (gradient,) = torch.autograd.grad(sum((each**2).sum() for each in views), leaf)
        assert torch.equal(gradient, 3 * 2 * 2 * (leaf.detach() * 2 + 1))


def test_gradients_flow_through_writes_to_arguments() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        x.mul_(3)
        return x * x

    traced = symshape.trace(f, torch.ones(2, requires_grad=True) * 1)
    gradients = []
    for served in (f, traced):
        leaf = torch.tensor([1.0, 2.0, 5.0], requires_grad=True)
        gradients.append(torch.autograd.grad(served(leaf * 2).sum(), leaf)[0])
    assert torch.equal(*gradients)


FACTOR = 2


@functools.lru_cache
def remembered(n: int) -> int:
    return n * FACTOR


def test_what_a_memo_answers_is_compared_until_it_is_cleared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    remembered.cache_clear()
    compiled = symshape.compile(lambda x: x + remembered(2), fullgraph=True)
    assert remembered(2) == 4  # the trace finds it there, and sees nothing of what it was made of
    assert compiled(torch.zeros(1)).item() == 4
    monkeypatch.setattr(sys.modules[__name__], "FACTOR", 3)
    assert compiled(torch.zeros(1)).item() == remembered(2) == 4
    remembered.cache_clear()
    assert compiled(torch.zeros(1)).item() == remembered(2) == 6
    remembered.cache_clear()


class _Scaled:
    scale = 2.0


def _write_scale() -> None:
    _Scaled.scale = 3.0


# as trusted as Python's own
_write_scale.__code__ = _write_scale.__code__.replace(co_filename="<frozen write>")


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("held", "write", "said"),
    [
        (Counter[int](), lambda held: held.update([2]), "from nothing to 2: 1"),
        ({"a", "b"}, lambda held: held.clear(), r"from '[ab]', '[ab]' to nothing"),
        (Counter({"a": 1}), lambda held: held.update("b"), "from 'a': 1 to 'a': 1, 'b': 1"),
        (set[int](), lambda held: held.update(range(99)), r"from nothing to [\d, ]{60}\.\.\."),
    ],
)
def test_what_a_container_held_and_holds_is_told(
    held: Any, write: Callable[[Any], None], said: str
) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        write(held)
        return x * 2

    before = held.copy()
    with pytest.raises(UnsupportedError, match=rf"changes held \({said}\)"):
        symshape.compile(fn, fullgraph=True)(torch.ones(3))
    assert held == before


@pytest.mark.usefixtures("alone")
def test_a_class_that_code_not_looked_into_writes_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_Scaled, "scale", 2.0)  # put back afterwards

    def fn(x: torch.Tensor) -> torch.Tensor:
        before = x * _Scaled.scale
        _write_scale()
        return before * _Scaled.scale

    with pytest.raises(UnsupportedError, match=r"changes _Scaled\.scale \(from 2\.0 to 3\.0\)"):
        symshape.compile(fn, fullgraph=True)(torch.ones(3))
    assert _Scaled.scale == 2.0


@pytest.mark.parametrize("maxsize", [None, 8])
def test_a_memo_that_was_cleared_and_filled_again_is_another(maxsize: int | None) -> None:
    """It has as many answers after as many misses as when the program was traced."""
    world = {"factor": 2.0}
    memo = functools.lru_cache(maxsize)(lambda n: n * world["factor"])

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x + memo(3)

    compiled, x = symshape.compile(fn), torch.ones(2)
    for factor in (2.0, 5.0, 7.0):
        world["factor"] = factor
        memo.cache_clear()
        for _ in range(3):
            assert torch.equal(fn(x), x + 3 * factor)
            assert torch.equal(compiled(x), x + 3 * factor)
    assert compiled.stats().hits


def test_a_scaler_of_gradients_keeps_no_notes_of_a_trace_that_failed() -> None:
    """What it notes of each optimiser stands in dictionaries inside of dictionaries; the step
    branches on data.
    """

    def made() -> tuple[Callable[[torch.Tensor], torch.Tensor], nn.Module]:
        model = nn.Linear(3, 3)
        nn.init.eye_(model.weight)
        nn.init.zeros_(model.bias)
        optimiser = torch.optim.SGD(model.parameters(), 0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=16.0)

        def step(x: torch.Tensor) -> torch.Tensor:
            optimiser.zero_grad()
            loss = model(x).square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimiser)
            scaler.update()
            return loss.detach()

        return step, model

    (step, model), (plain, expected) = made(), made()
    compiled = symshape.compile(step)
    for n in (2, 3):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", symshape.FallbackWarning)
            assert torch.equal(compiled(torch.ones(n, 3)), plain(torch.ones(n, 3)))
    assert torch.equal(model.weight, expected.weight)


class Settings:
    def __init__(self) -> None:
        self.gain = 2.0


@pytest.mark.filterwarnings("ignore::symshape.FallbackWarning")
@pytest.mark.parametrize("size", [None, 8])
@pytest.mark.parametrize("make", [Settings, lambda: [2.0]])
def test_an_object_that_a_memo_makes_once_is_not_frozen(
    size: int | None, make: Callable[[], Any]
) -> None:
    settings = functools.lru_cache(size)(lambda: make())

    def gain() -> Any:
        return vars(settings()) if isinstance(settings(), Settings) else settings()

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * next(iter(gain().values() if isinstance(gain(), dict) else gain()))

    x = torch.ones(2)
    compiled = symshape.compile(fn, fullgraph=True)  # the object is made outside of the trace
    for value in (2.0, 5.0, 7.0):
        assert torch.equal(compiled(x), x * value)
        mine = gain()
        mine["gain" if isinstance(mine, dict) else 0] = value + (3 if value == 2 else 2)


@pytest.mark.parametrize("size", [None, 8])
def test_what_a_memo_kept_before_a_trace_stays(size: int | None) -> None:
    table = functools.lru_cache(size)(lambda n: torch.full((2,), float(n)))
    kept = table(2).add_(1)
    compiled = symshape.compile(lambda x: x + table(2) + table(3), fullgraph=True)
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 7.0))
    assert table(2) is kept
    assert type(table(3)) is torch.Tensor


@pytest.mark.parametrize(
    "read", ["it().gain", "getattr(it(), 'ga' + 'in')", "it().__dict__['gain']", "it().many[0]"]
)
@pytest.mark.parametrize("size", [None, 8])
def test_what_a_memo_answers_is_read_like_any_object(size: int | None, read: str) -> None:
    it = functools.lru_cache(size)(Settings)
    it().many = [2.0]  # type: ignore[attr-defined]
    names: dict[str, Any] = {"it": it}
    exec(f"def fn(x):\n    return x * {read}\n", names)
    compiled = symshape.compile(names["fn"], fullgraph=True)
    x = torch.ones(2)
    for value in (2.0, 5.0, 5.0, 7.0):
        it().gain = it().many[0] = value  # type: ignore[attr-defined]
        assert torch.equal(compiled(x), x * value)


class Holder:
    """Two of these may hold one list."""

    last: list[Any]


@pytest.mark.parametrize("replaced", [False, True])
def test_one_list_under_two_names(replaced: bool) -> None:
    def make() -> tuple[Holder, Holder, Any]:
        one, other = Holder(), Holder()
        one.last = other.last = [1.0]

        def step(x: torch.Tensor) -> torch.Tensor:
            if replaced:
                other.last = [x.shape[0] * 0.5, x.sum()]
                one.last = other.last
            else:
                one.last[0] = x.shape[0] * 0.5
            return x + len(other.last)

        return one, other, step

    (one, other, eager), (mine, another, step) = make(), make()
    compiled = symshape.compile(step, fullgraph=True)
    for n in (3, 4, 5, 3):
        assert torch.equal(compiled(torch.ones(n)), eager(torch.ones(n)))
        assert mine.last is another.last
        assert one.last == mine.last
        assert other.last == another.last
    assert compiled.stats().traces <= 3


def _loss(net: nn.Module, params: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    return torch.func.functional_call(net, params, (x[None],)).square().sum()


@pytest.mark.parametrize("refused", [False, True])
def test_parameters_that_torch_exchanges_are_put_back(refused: bool) -> None:
    """Of a module whose parts nobody had looked at by then; also by a trace that is refused."""
    net = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.Tanh(), nn.Linear(4, 2)))
    before = list(net.parameters())
    params = {name: each.detach() * 2 for name, each in net.named_parameters()}

    def program(x: torch.Tensor) -> Any:
        each = torch.vmap(torch.func.grad(functools.partial(_loss, net)), in_dims=(None, 0))(
            params, x
        )
        plain = torch.func.functional_call(net, params, (x,))
        return (each, plain) if not refused or plain.sum() > 1e9 else (plain, each)

    compiled = symshape.compile(program, fullgraph=not refused)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n in (2, 3, 4):
            x = torch.randn(n, 3)
            torch.testing.assert_close(compiled(x), program(x))
            assert all(map(operator.is_, net.parameters(), before))
    assert refused or compiled.stats().traces <= 2


def test_what_torch_exchanged_before_anybody_looked_is_refused() -> None:
    net = nn.Sequential(nn.Linear(3, 2))
    params = {name: each.detach() * 2 for name, each in net.named_parameters()}
    before = list(net.parameters())
    exchanging = types.MethodType(torch.func.functional_call, net)
    compiled = symshape.compile(lambda x, p: exchanging(p, x), fullgraph=True)
    with pytest.raises(UnsupportedError, match="exchanged inside of torch"):
        compiled(torch.ones(2, 3), params)
    assert all(map(operator.is_, net.parameters(), before))


def test_what_torch_exchanges_for_a_partial_function_is_put_back() -> None:
    net = nn.Sequential(nn.Linear(3, 2))
    params = {name: each.detach() * 2 for name, each in net.named_parameters()}
    before = list(net.parameters())
    exchanging = functools.partial(torch.func.functional_call)
    compiled = symshape.compile(lambda x, p: exchanging(net, p, x), fullgraph=True)
    for n in (2, 3, 4):
        x = torch.randn(n, 3)
        assert torch.equal(compiled(x, params), torch.func.functional_call(net, params, x))
    assert compiled.stats().traces == 2
    assert all(map(operator.is_, net.parameters(), before))


def test_parameters_that_torch_exchanges_while_another_thread_runs() -> None:
    net = nn.Sequential(nn.Linear(3, 2))
    done = threading.Event()
    other = threading.Thread(target=done.wait)
    other.start()
    try:

        def program(x: torch.Tensor) -> torch.Tensor:
            doubled = {name: each * 2 for name, each in net.named_parameters()}
            return torch.func.functional_call(net, doubled, (x,))

        compiled = symshape.compile(program, fullgraph=True)
        for n in (2, 3):
            x = torch.ones(n, 3)
            torch.testing.assert_close(compiled(x), program(x))
    finally:
        done.set()
        other.join()


def test_what_was_written_before_the_dictionary_behind_it_was_read_is_put_back() -> None:
    class Held:
        def __init__(self) -> None:
            self.a, self.by = torch.ones(3), 2

    held = Held()

    def fn(x: torch.Tensor) -> torch.Tensor:
        held.a = held.a + x.sum()
        held.__dict__["by"] = 7
        torch.set_grad_enabled(False)
        return x * held.by

    try:
        with pytest.raises(UnsupportedError, match="modes"):
            symshape.trace(fn, torch.ones(3))
    finally:
        torch.set_grad_enabled(True)
    assert type(held.a) is torch.Tensor
    assert torch.equal(held.a, torch.ones(3))
    assert held.by == 2


def test_what_torch_notes_on_a_mode_of_the_users_is_no_effect() -> None:
    """At the first call of its method, which a process has once for each class."""

    class Twice(TorchDispatchMode):
        def __torch_dispatch__(
            self, fn: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = fn(*args, **(kwargs or {}))
            return result * 2 if fn is torch.ops.aten.relu.default else result

    def fn(x: torch.Tensor) -> torch.Tensor:
        with Twice():
            return torch.relu(x)

    x = torch.randn(5)
    assert torch.equal(symshape.trace(fn, torch.ones(3), dynamic=True)(x), fn(x))
