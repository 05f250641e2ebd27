"""Random numbers of torch's: the same draws, from the same generators, in the same order (class 8
of issue 8).
"""

from __future__ import annotations

import collections
import threading
import types
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.worlds.world import Call, World, on, values, world

RANDOM = "8 random numbers"
ON = on(3)
CALLS = [ON, ON, on(4), on(5), on(3)]


def _generator(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _draws(fn: Any, *, positive: bool = False) -> World:
    if not positive:
        return World(fn, CALLS)
    return World(fn, [Call(lambda n=n: (values(n).abs(),)) for n in (3, 3, 4, 5, 3)])


@world(RANDOM)
def uniform_numbers() -> World:
    return _draws(lambda x: x + torch.rand(x.shape[0]))


@world(RANDOM)
def normal_numbers_like() -> World:
    return _draws(lambda x: x + torch.randn_like(x))


@world(RANDOM)
def integers() -> World:
    return _draws(lambda x: x + torch.randint(0, x.shape[0] + 1, (2, 1)))


@world(RANDOM)
def permutation() -> World:
    return _draws(lambda x: x[torch.randperm(x.shape[0])])


@world(RANDOM)
def bernoulli() -> World:
    return _draws(lambda x: torch.bernoulli(x.sigmoid()) + x.clone().bernoulli_(0.3))


@world(RANDOM)
def multinomial() -> World:
    return _draws(lambda x: torch.multinomial(x, 2, replacement=True), positive=True)


@world(RANDOM)
def in_place_draws() -> World:
    def fn(x: Any) -> Any:
        return (
            x.clone().normal_(),
            x.clone().uniform_(),
            x.clone().exponential_(),
            x.clone().cauchy_(),
        )

    return _draws(fn)


@world(RANDOM)
def more_in_place_draws() -> World:
    def fn(x: Any) -> Any:
        return x.clone().random_(), x.clone().log_normal_(), x.clone().geometric_(0.5)

    return _draws(fn)


@world(RANDOM)
def poisson() -> World:
    return _draws(torch.poisson, positive=True)


@world(RANDOM)
def dropout() -> World:
    m = nn.Dropout(0.5)
    return World(m, [*CALLS, lambda: m.eval(), ON, lambda: m.train(), ON])


@world(RANDOM)
def kinds_of_dropout() -> World:
    def fn(x: Any) -> Any:
        return (
            F.alpha_dropout(x, 0.5, True),
            F.rrelu(x, training=True),
            F.dropout1d(x[None, :, None], 0.5, True),
        )

    return _draws(fn)


@world(RANDOM)
def gumbel_softmax() -> World:
    return _draws(lambda x: F.gumbel_softmax(x, dim=0))


@world(RANDOM)
def distributions() -> World:
    def fn(x: Any) -> Any:
        return (
            torch.distributions.Normal(x, 1.0).rsample()
            + torch.distributions.Uniform(x, x + 1).sample()
        )

    return _draws(fn)


@world(RANDOM)
def draw_that_nobody_uses() -> World:
    def fn(x: Any) -> Any:
        torch.rand(x.shape[0])
        return x * 2

    return _draws(fn)


@world(RANDOM)
def draw_in_one_branch() -> World:
    return _draws(lambda x: x + torch.rand(2)[0] if x.shape[0] > 3 else x * 2)


@world(RANDOM)
def draw_of_nothing() -> World:
    return World(lambda x: x + torch.rand(x.shape[0] - 3).sum(), [ON, on(4), on(6), ON])


@world(RANDOM)
def draws_in_an_order() -> World:
    def fn(x: Any) -> Any:
        a = torch.rand(2)
        b = torch.randn(x.shape[0])
        return b * 2, a + 1

    return _draws(fn)


@world(RANDOM)
def generator_in_a_closure_of_torch() -> World:
    g = _generator()
    return World(lambda x: x + torch.rand(x.shape[0], generator=g), CALLS, g.get_state)


@world(RANDOM)
def generator_in_an_attribute_of_torch() -> World:
    held = types.SimpleNamespace(g=_generator())
    return World(lambda x: x + torch.rand(x.shape[0], generator=held.g), CALLS, held.g.get_state)


@world(RANDOM)
def generator_in_a_slot() -> World:
    class C:
        __slots__ = ("g",)

    c = C()
    c.g = _generator()
    return World(
        lambda x: x + torch.rand(x.shape[0], generator=c.g), CALLS, lambda: c.g.get_state()
    )


@world(RANDOM)
def generator_in_a_deque() -> World:
    gs = collections.deque([_generator()])
    return World(
        lambda x: x + torch.rand(x.shape[0], generator=gs[0]), CALLS, lambda: gs[0].get_state()
    )


@world(RANDOM)
def generator_behind_a_call() -> World:
    g = _generator()

    class C:
        def __call__(self) -> Any:
            return g

    c = C()
    return World(lambda x: x + torch.rand(x.shape[0], generator=c()), CALLS, g.get_state)


@world(RANDOM)
def generator_replaced() -> World:
    gs = [_generator()]
    return World(
        lambda x: x + torch.rand(x.shape[0], generator=gs[0]),
        [ON, lambda: gs.__setitem__(0, _generator(5)), ON],
        lambda: gs[0].get_state(),
    )


@world(RANDOM)
def generator_argument_of_torch() -> World:
    g = _generator()
    return World(
        lambda x, g: x + torch.rand(x.shape[0], generator=g),
        [
            Call(lambda: (values(3), g)),
            Call(lambda: (values(3), g)),
            Call(lambda: (values(4), _generator(9))),
        ],
        g.get_state,
    )


@world(RANDOM)
def generator_made_inside() -> World:
    def fn(x: Any) -> Any:
        return x + torch.rand(x.shape[0], generator=torch.Generator().manual_seed(5))

    return World(fn, CALLS)


@world(RANDOM)
def generator_in_a_slot_seeded_inside() -> World:
    class C:
        __slots__ = ("g",)

    c = C()
    c.g = _generator()

    def fn(x: Any) -> Any:
        c.g.manual_seed(11)
        return x + torch.rand(x.shape[0], generator=c.g)

    return World(fn, CALLS, lambda: c.g.get_state())


@world(RANDOM)
def seeded_inside() -> World:
    def fn(x: Any) -> Any:
        torch.manual_seed(5)
        return x + torch.rand(x.shape[0])

    return _draws(fn)


@world(RANDOM)
def state_forked_inside() -> World:
    def fn(x: Any) -> Any:
        with torch.random.fork_rng():
            y = x + torch.rand(x.shape[0])
        return y + torch.rand(x.shape[0])

    return _draws(fn)


@world(RANDOM)
def state_read_inside() -> World:
    return _draws(lambda x: x + torch.get_rng_state()[:1000].sum())


@world(RANDOM)
def initial_seed_read_inside() -> World:
    return World(lambda x: x * torch.initial_seed(), [ON, lambda: torch.manual_seed(11), ON])


@world(RANDOM)
def refused_after_a_draw() -> World:
    def fn(x: Any) -> Any:
        y = x + torch.rand(x.shape[0])
        return y * 2 if y.sum() > 0 else y * 3

    return _draws(fn)


@world(RANDOM)
def exception_after_a_draw() -> World:
    def fn(x: Any) -> Any:
        torch.rand(x.shape[0])
        raise KeyError("a world")

    return _draws(fn)


@world(RANDOM)
def draw_decides_a_branch() -> World:
    return _draws(lambda x: x * 2 if torch.rand(()).item() < 0.5 else x * 3)


@world(RANDOM)
def thread_draws_from_a_shared_generator() -> World:
    g = _generator()
    drawn: list[Any] = []

    def fn(x: Any) -> Any:
        go.set()
        done.wait(5)
        done.clear()
        return x + torch.rand(x.shape[0], generator=g)

    go, done = threading.Event(), threading.Event()

    def draw() -> None:
        while go.wait(5):
            go.clear()
            if closing:
                return
            drawn.append(torch.rand(1, generator=g))
            done.set()

    closing: list[bool] = []
    thread = threading.Thread(target=draw, daemon=True)
    thread.start()

    def undo() -> None:
        closing.append(True)
        go.set()
        thread.join()

    return World(fn, [ON, ON], lambda: (drawn, g.get_state()), undo=undo)


@world(RANDOM)
def thread_draws_while_a_trace_runs() -> World:
    drawn: list[Any] = []

    class Meddling:
        """Another thread that happens to draw while the function runs."""

        def __bool__(self) -> bool:
            thread = threading.Thread(target=lambda: drawn.append(torch.rand(1)))
            thread.start()
            thread.join()
            return True

    meddling = Meddling()

    def fn(x: Any) -> Any:
        return x + torch.rand(x.shape[0]) if meddling else x

    return World(fn, [ON], lambda: drawn)


@world(RANDOM)
def draws_under_a_checkpoint() -> World:
    from torch.utils.checkpoint import checkpoint

    def inner(x: Any) -> Any:
        return F.dropout(x, 0.5, True)

    def fn(x: Any) -> Any:
        return checkpoint(inner, x, use_reentrant=False)

    return World(fn, [on(3, grad=True), on(3, grad=True)])


@world(RANDOM)
def noise_by_a_parametrization() -> World:
    from torch.nn.utils import parametrize

    class Noise(nn.Module):
        def forward(self, w: torch.Tensor) -> torch.Tensor:
            return w + torch.randn_like(w)

    m = nn.Linear(3, 3)
    parametrize.register_parametrization(m, "weight", Noise())
    return World(m, [ON, ON])


@world(RANDOM, slow=True)
def inductor_draws_what_eager_draws() -> World:
    return World(lambda x: x + torch.rand(x.shape[0]), [ON, ON, on(4), on(5)], runner="inductor")


@world(RANDOM, slow=True)
def inductor_dropout() -> World:
    return World(lambda x: F.dropout(x, 0.5, True), [on(64), on(64), on(65)], runner="inductor")
