"""What programs read and write outside: few traces, right values, and an end where no program can
follow.
"""

from __future__ import annotations

import copy
import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import symshape
from symshape import UnsupportedError
from symshape.runtime.variables import _SHORTEST, Layout
from tests.symshape.tracing.state.instrument.test_stores import another_thread
from tests.worlds.world import look

X = torch.arange(6.0).reshape(2, 3)


class Attention(nn.Module):
    """Attention with a cache of keys and values in plain attributes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.keys: Any = None
        self.values: Any = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        if self.keys is not None:
            k, v = torch.cat([self.keys, k], 1), torch.cat([self.values, v], 1)
        self.keys, self.values = k, v
        return x + torch.softmax(q @ k.transpose(1, 2), -1) @ v


class Decoder(nn.Module):
    def __init__(self, layers: int = 3, width: int = 8) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Attention(width) for _ in range(layers))
        self.position = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(self.position, self.position + x.shape[1])
        x = x + positions[:, None]
        for layer in self.layers:
            x = layer(x)
        self.position += x.shape[1]
        return x

    def clear(self) -> None:
        self.position = 0
        for layer in self.layers:
            layer.keys = layer.values = None


@pytest.mark.parametrize("runner", ["eager", "auto"])
def test_a_cache_of_keys_and_values_in_attributes(runner: Any) -> None:
    """Twenty steps in two traces, and none more for other prompts of other lengths."""
    torch.manual_seed(0)
    model = Decoder().eval()
    eager = copy.deepcopy(model)
    compiled = symshape.compile(model, fullgraph=True, runner=runner)
    traces = []
    with torch.no_grad():
        for prompt in (5, 9, 7):
            model.clear()
            eager.clear()
            for step in range(20):
                x = torch.randn(2, prompt if step == 0 else 1, 8)
                assert torch.allclose(compiled(x), eager(x), atol=1e-6)
                assert model.position == eager.position
                for one, other in zip(model.layers, eager.layers, strict=True):
                    assert torch.allclose(one.keys, other.keys, atol=1e-6)
                    assert one.values.shape == other.values.shape
            traces.append(compiled.stats().traces)
    assert traces[0] <= 3
    assert traces == [
        3,
        4,
        4,
    ]  # what is cut from one tensor lies otherwise; the length of the second prompt is a symbol
    assert compiled.stats().fallbacks == 0


def _owner(**names: Any) -> Any:
    class Owner:
        pass

    owner = Owner()
    vars(owner).update(names)
    return owner


def test_a_counter_is_traced_twice() -> None:
    owner = _owner(calls=0)

    def fn(x: torch.Tensor) -> torch.Tensor:
        owner.calls += 1
        return x * owner.calls

    compiled = symshape.compile(fn, fullgraph=True)
    for number in range(1, 50):
        assert torch.equal(compiled(X), X * number)
    assert owner.calls == 49
    assert compiled.stats().traces == 2


def test_what_is_only_written_is_traced_once() -> None:
    owner = _owner(last=None)

    def fn(x: torch.Tensor) -> torch.Tensor:
        owner.last = x + 1
        return x * 2

    compiled = symshape.compile(fn, fullgraph=True, dynamic=True)
    for n in (3, 3, 4, 5):
        compiled(torch.ones(n))
        assert torch.equal(owner.last, torch.ones(n) + 1)
    assert compiled.stats().traces == 1


def _turns(owner: Any, x: torch.Tensor) -> torch.Tensor:
    owner.value += 0.5
    return x * owner.value


def _grows(owner: Any, x: torch.Tensor) -> torch.Tensor:
    owner.value.append(x.sum())
    return x + len(owner.value)


def _fixes(owner: Any, x: torch.Tensor) -> torch.Tensor:
    owner.value += 1
    return x + sum(range(owner.value))


def test_a_float_that_turns_at_every_call_is_followed() -> None:
    owner, other = _owner(value=0.0), _owner(value=0.0)
    compiled = symshape.compile(lambda x: _turns(owner, x), fullgraph=True)
    for _ in range(20):
        assert torch.equal(compiled(X), _turns(other, X))
        assert owner.value == other.value
    assert compiled.stats().traces == 2


@pytest.mark.parametrize(("write", "value"), [(_grows, []), (_fixes, 0)])
def test_what_no_program_can_follow_is_given_up(write: Callable[..., Any], value: Any) -> None:
    """Right in every call; traced at a part of them only, and refused by name where that was asked
    for.
    """
    owner, other = _owner(value=copy.copy(value)), _owner(value=copy.copy(value))
    compiled = symshape.compile(lambda x: write(owner, x), fullgraph=True)
    for _ in range(9):
        assert torch.equal(compiled(X), write(other, X))
    with pytest.raises(
        UnsupportedError, match=r"^the program reads and writes .*value.* changes at every call"
    ):
        compiled(X)
    assert look(owner) == look(other)  # refused before anything happened
    falling = symshape.compile(lambda x: write(owner, x))

    def many() -> None:
        for _ in range(60):
            expected = write(other, X)
            assert torch.equal(falling(X), expected)

    with pytest.warns(symshape.FallbackWarning, match=r"reads and writes .*value"):
        many()
    assert look(owner) == look(other)
    stats = falling.stats()
    assert stats.fallbacks > 40
    assert stats.traces <= 12


def test_what_grows_is_named_and_not_a_counter_beside_it() -> None:
    owner = _owner(steps=0, losses=[])

    def step(x: torch.Tensor) -> torch.Tensor:
        owner.steps += 1
        owner.losses.append(x.sum())
        return x * owner.steps

    compiled = symshape.compile(step)

    def many() -> None:
        for _ in range(20):
            compiled(X)

    with pytest.warns(
        symshape.FallbackWarning, match=r"reads and writes [^,]*losses\[\d+\], which changes"
    ):
        many()


def test_what_was_given_up_is_tried_again_after_a_while() -> None:
    """A list that grows at each call, and then no longer."""
    owner = _owner(value=[], grows=True)

    def fn(x: torch.Tensor) -> torch.Tensor:
        if owner.grows:
            owner.value.append(1)
        return x + len(owner.value)

    def many() -> None:
        for i in range(30):
            assert torch.equal(compiled(X), X + i + 1)

    compiled = symshape.compile(fn)
    with pytest.warns(symshape.FallbackWarning, match=r"reads and writes .*value"):
        many()
    traces = compiled.stats().traces
    owner.grows = False
    for _ in range(_SHORTEST + 5):
        assert torch.equal(compiled(X), X + 30)
    assert 0 < compiled.stats().traces - traces <= 2
    fallbacks = compiled.stats().fallbacks
    compiled(X)
    assert compiled.stats().fallbacks == fallbacks


def test_entries_that_know_less_serve_no_call() -> None:
    """A call with an integer looks like one without it that has a counter: they are told apart."""
    owner = _owner(calls=3)

    def fn(x: torch.Tensor, k: int = 0) -> torch.Tensor:
        if k:
            return x * k
        owner.calls += 1
        return x + owner.calls

    compiled = symshape.compile(fn, fullgraph=True)
    assert torch.equal(compiled(X, 3), X * 3)
    for calls in (4, 5, 6):
        assert torch.equal(compiled(X), X + calls)
        assert torch.equal(compiled(X, 3), X * 3)
        assert torch.equal(compiled(X, calls), X * calls)


def test_two_functions_share_a_place() -> None:
    owner = _owner(h=torch.zeros(2, 3), n=0)

    def fill(x: torch.Tensor) -> torch.Tensor:
        owner.h, owner.n = x * 2, owner.n + 1
        return x

    def read(x: torch.Tensor) -> torch.Tensor:
        return x + owner.h * owner.n

    filling, reading = (
        symshape.compile(fill, fullgraph=True),
        symshape.compile(read, fullgraph=True),
    )
    for number in range(1, 9):
        filling(X + number)
        assert torch.equal(reading(X), X + (X + number) * 2 * number)
    assert reading.stats().traces <= 3


def test_another_thread_waits_for_the_trace() -> None:
    """While a trace has stand-ins in the world, a call in another thread reads what was there
    before.
    """
    import types

    from tests.symshape.tracing.state.instrument.test_stores import _pause

    slow = [False]

    def pause() -> None:
        if slow[0]:
            _pause()

    pause.__code__ = pause.__code__.replace(co_filename="<frozen pause>")
    owner = _owner(h=torch.ones(2, 3))
    names = {"owner": owner, "pause": pause, "__builtins__": __builtins__}
    code = compile(
        "def fn(x):\n    h = owner.h\n    pause()\n    owner.h = h + x\n    return owner.h * 2",
        "<fn>",
        "exec",
    )
    exec(code, names)
    fn = types.FunctionType(names["fn"].__code__, names)
    compiled = symshape.compile(fn, fullgraph=True)
    for _ in range(3):
        compiled(X)
    got: list[Any] = []

    def other() -> None:
        thread = threading.Thread(target=lambda: got.append(compiled(X)))
        thread.start()
        thread.join(0.3)
        got.append(thread)

    slow[0] = True
    before = owner.h.clone()
    with another_thread(other):
        mine = compiled(X.to(torch.float64)[:1])  # new: traced, with stand-ins
    slow[0] = False
    got[0].join() if isinstance(got[0], threading.Thread) else None
    results = [each for each in got if isinstance(each, torch.Tensor)]
    assert len(results) == 1
    assert type(owner.h) is torch.Tensor
    # one after the other, or both from what was there before, as without symshape
    first, second = X.to(torch.float64)[:1], X
    possible = [before + first, before + second, before + first + second]
    assert any(torch.equal(owner.h, each) for each in possible)
    for each in (mine, results[0]):
        assert any(torch.equal(each, 2 * one) for one in possible)


def test_a_copy_starts_anew() -> None:
    model = Decoder(1)
    compiled = symshape.compile(model)
    compiled(torch.ones(1, 2, 8))
    for layer in model.layers:
        # which a copy asks for
        layer.keys, layer.values = (layer.keys.detach(), layer.values.detach())
    copied = copy.deepcopy(compiled)
    copied(torch.ones(1, 1, 8))
    assert copied.fn.position == 3
    assert model.position == 2


def test_what_a_variable_is_read_from_may_be_gone_when_there_are_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The program was made a part of calls whose gradients are not there: it raised IndexError for
    each.
    """

    @symshape.compile
    def step(model: nn.Linear, x: torch.Tensor) -> torch.Tensor:
        model.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        return loss.detach()

    def add(layout: Layout, *args: Any) -> None:
        gc.collect()
        plain(layout, *args)

    model = nn.Linear(3, 2)
    for n in (3, 4, 5):
        step(model, torch.ones(n, 3))
    plain = Layout.add
    monkeypatch.setattr(Layout, "add", add)
    held: list[Any] = [model.weight, model.bias]
    held.append(held)  # until garbage is collected
    gc.disable()
    try:
        del model, held
        for _ in range(3):
            other, x = nn.Linear(3, 2), torch.rand(3, 3)
            assert torch.equal(step(other, x), other(x).square().sum().detach())
            assert other.weight.grad is not None
    finally:
        gc.enable()
