"""Random numbers of padded programs where the same ones are needed twice: checkpoints, and
backward's masks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import symshape
from symshape import Options
from symshape.frontends.dynamo import symshape_backend
from symshape.frontends.exploration.programs import of_program
from symshape.runtime.runners.padded.runner import PaddedRunner
from symshape.runtime.runners.pieces.runner import PiecewiseRunner
from symshape.runtime.runners.randomness import draws_any, repeats_draws

SIZES = [(50, 7), (60, 11), (33, 9), (70, 20)]
Call = Callable[[torch.Tensor], torch.Tensor]


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def _body(x: torch.Tensor) -> torch.Tensor:
    return F.dropout(x.exp().sqrt() + 1, 0.5) * 2


class _Again(torch.autograd.Function):
    """A checkpoint of nobody's library: keeps the random state, and computes forward again in
    backward.
    """

    @staticmethod
    def forward(ctx: Any, run: Call, x: torch.Tensor) -> torch.Tensor:
        ctx.run, ctx.random = run, torch.get_rng_state()
        ctx.save_for_backward(x)
        with torch.no_grad():
            return run(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.set_rng_state(ctx.random)
            again = x.detach().requires_grad_()
            ctx.run(again).backward(gradient)
        return None, again.grad


def _reentrant(run: Call, x: torch.Tensor) -> torch.Tensor:
    return checkpoint(run, x, use_reentrant=True)  # type: ignore[no-any-return]


def _with_hooks(run: Call, x: torch.Tensor) -> torch.Tensor:
    return checkpoint(run, x, use_reentrant=False)  # type: ignore[no-any-return]


def _by_hand(run: Call, x: torch.Tensor) -> torch.Tensor:
    return _Again.apply(run, x)  # type: ignore[no-any-return,no-untyped-call]


def _compiled(fn: Call) -> Call:
    compiled = symshape.compile(fn, dynamic=True, runner="padded")
    compiled(torch.zeros(90, 30))  # programs of many sizes are there
    return compiled


def _backend(fn: Call) -> Call:
    run: Call = torch.compile(
        fn, backend=symshape_backend, dynamic=True, options={"runner": "padded"}
    )
    with torch.no_grad():
        run(torch.zeros(90, 30))
    return run


@pytest.mark.parametrize("made", [_compiled, _backend])
@pytest.mark.parametrize("kept", [_reentrant, _with_hooks, _by_hand])
def test_a_checkpoint_around_a_call_drops_the_same_twice(
    made: Callable[[Call], Call], kept: Callable[[Call, torch.Tensor], torch.Tensor]
) -> None:
    run = made(_body)
    for sizes in SIZES:
        x = torch.zeros(sizes, requires_grad=True)
        y = kept(run, x)
        y.sum().backward()  # type: ignore[no-untyped-call]
        assert torch.equal(y != 0, x.grad != 0)
        assert 0.3 < (y != 0).float().mean() < 0.7


@pytest.mark.parametrize("kept", [_reentrant, _with_hooks])
def test_a_checkpoint_inside_a_step_drops_the_same_twice(
    kept: Callable[[Call, torch.Tensor], torch.Tensor],
) -> None:
    def step(x: torch.Tensor) -> Any:
        x = x.detach().requires_grad_()
        y = kept(_body, x)
        y.sum().backward()  # type: ignore[no-untyped-call]
        return y.detach(), x.grad

    compiled = symshape.compile(step, dynamic=True, runner="padded")
    for sizes in SIZES:
        y, gradient = compiled(torch.zeros(sizes))
        assert torch.equal(y != 0, gradient != 0)
    assert compiled.stats().fallbacks == 0


def test_programs_that_put_states_back_have_eagers_numbers() -> None:
    def step(x: torch.Tensor) -> Any:
        x = x.detach().requires_grad_()
        y = _reentrant(_body, x)
        y.sum().backward()  # type: ignore[no-untyped-call]
        return y.detach()

    assert not draws_any(symshape.trace(step, torch.zeros(5, 3)).program, Options())
    program = symshape.trace(_body, torch.zeros(5, 3)).program
    assert draws_any(program, Options())
    assert not draws_any(program, Options(randomness="eager"))


def test_programs_that_exchange_tensors_with_other_processes_have_eagers_numbers() -> None:
    program = symshape.trace(_body, torch.zeros(5, 3)).program
    made = program.graph.nodes[-1]
    sent = attrs.evolve(
        made, op=torch.ops._c10d_functional.wait_tensor.default, args=made.outputs, kwargs={}
    )
    graph = attrs.evolve(program.graph, steps=(*program.graph.steps, sent))
    assert not draws_any(attrs.evolve(program, graph=graph), Options())


def test_a_step_drops_by_one_mask_in_forward_and_backward() -> None:
    """In one padded program, at sizes of many buckets; masks of two calls differ."""

    def step(x: torch.Tensor) -> Any:
        x = x.detach().requires_grad_()
        y = _body(x)
        y.sum().backward()  # type: ignore[no-untyped-call]
        return y.detach(), x.grad

    compiled = symshape.compile(step, dynamic=True, runner="padded", fullgraph=True)
    for sizes in SIZES:
        x = torch.zeros(sizes)
        (y, gradient), (other, _) = compiled(x), compiled(x)
        assert torch.equal(y != 0, gradient != 0)
        assert not torch.equal(y, other)
    (entry,) = compiled.entries
    assert isinstance(entry.runner, PaddedRunner)
    assert entry.runner.instead is None


def test_forward_and_backward_of_the_backend_drop_by_one_mask() -> None:
    run = torch.compile(_body, backend=symshape_backend, dynamic=True, options={"runner": "padded"})
    for sizes in SIZES:
        x = torch.zeros(sizes, requires_grad=True)
        y = run(x)
        y.sum().backward()
        assert torch.equal(y != 0, x.grad != 0)


def _attends(q: torch.Tensor) -> Any:
    """Attention whose values are a unit matrix: its results are the weights that were not
    dropped.
    """
    q = q.detach().requires_grad_()
    value = torch.eye(q.shape[2], requires_grad=True).expand(*q.shape[:2], -1, -1)
    value.retain_grad()
    weights = F.scaled_dot_product_attention(q, q.detach(), value, dropout_p=0.5)
    weights.sum().backward()  # type: ignore[no-untyped-call]
    assert value.grad is not None
    return weights.detach(), value.grad


def test_attention_drops_by_one_mask_in_forward_and_backward() -> None:
    """The gradient of a value is the sum of the weights that its key was given."""
    compiled = symshape.compile(_attends, dynamic=True, runner="padded")
    for batch, length in ((2, 5), (3, 9), (2, 12), (1, 7)):
        weights, gradient = compiled(torch.randn(batch, 4, length, 8))
        torch.testing.assert_close(weights.sum(2)[..., None].expand_as(gradient), gradient)
        assert 0.2 < (weights == 0).float().mean() < 0.8


def test_a_call_of_many_pieces_still_follows_the_seed() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = F.dropout((x.sin() + 1).exp(), 0.5).cos().tanh().exp()
        return torch.multinomial(y.softmax(-1), 1) + F.dropout(
            ((y.sin() + 1).exp().cos()), 0.5
        ).sum(-1, keepdim=True)

    compiled = symshape.compile(fn, dynamic=True, runner="padded")
    x = torch.randn(20, 6)
    compiled(x)
    torch.manual_seed(3)
    first, second = compiled(x), compiled(x)
    torch.manual_seed(3)
    assert torch.equal(compiled(x), first)
    assert torch.equal(compiled(x), second)
    (entry,) = compiled.entries
    assert isinstance(getattr(entry.runner, "instead", None) or entry.runner, PiecewiseRunner)


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_shares_of_none_and_all_are_exact(p: float) -> None:
    compiled = symshape.compile(lambda x: F.dropout(x.exp(), p), dynamic=True, runner="padded")
    for sizes in SIZES:
        x = torch.randn(sizes)
        x[0, 0] = torch.nan
        torch.testing.assert_close(compiled(x), F.dropout(x.exp(), p), equal_nan=True)


def test_nan_stays_or_is_dropped_as_in_eager() -> None:
    """A dropped NaN is NaN in eager, since 0 * NaN is."""
    compiled = symshape.compile(lambda x: F.dropout(x.exp(), 0.5), dynamic=True, runner="padded")
    for sizes in SIZES:
        x = torch.full(sizes, torch.nan)
        assert compiled(x).isnan().all()
        assert F.dropout(x, 0.5).isnan().all()


def test_generators_of_the_users_give_eagers_numbers() -> None:
    own = torch.Generator()
    compiled = symshape.compile(
        lambda x: x.exp() + torch.rand(x.shape[0], x.shape[1], generator=own),
        dynamic=True,
        runner="padded",
    )
    for sizes in SIZES:
        x = torch.randn(sizes)
        own.manual_seed(5)
        mine = compiled(x)
        own.manual_seed(5)
        torch.testing.assert_close(mine, x.exp() + torch.rand(*sizes, generator=own))


@pytest.mark.filterwarnings("ignore::symshape.errors.FallbackWarning")
def test_a_seed_inside_gives_eagers_numbers() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(11)
        return F.dropout(x.exp(), 0.5)

    compiled = symshape.compile(fn, dynamic=True, runner="padded")
    for sizes in SIZES:
        x = torch.randn(sizes)
        assert torch.equal(compiled(x), fn(x))


def test_a_fork_of_the_random_state_around_calls() -> None:
    """Numbers drawn inside are forgotten outside, and the same state gives the same numbers
    again.
    """
    compiled = symshape.compile(_body, dynamic=True, runner="padded")
    x = torch.zeros(40, 9)
    compiled(x)
    with torch.random.fork_rng(devices=[]):
        first = compiled(x)
    assert torch.equal(compiled(x), first)


def test_random_orders_stay_orders_of_the_true_size() -> None:
    compiled = symshape.compile(
        lambda x: x.exp()[torch.randperm(x.shape[0])], dynamic=True, runner="padded"
    )
    for n in (6, 7, 11, 30):
        x = torch.randn(n, 3)
        torch.testing.assert_close(compiled(x).sort(0)[0], x.exp().sort(0)[0])


def test_where_draws_are_repeated() -> None:
    assert not repeats_draws()
    found = []

    def run(x: torch.Tensor) -> torch.Tensor:
        found.append(repeats_draws())
        return x.sin()

    for kept in (_reentrant, _with_hooks, _by_hand):
        kept(run, torch.ones(2, requires_grad=True)).sum().backward()  # type: ignore[no-untyped-call]
    assert found == [True] * 6


def test_making_a_bucket_draws_nothing() -> None:
    """As warming up does: a later run from the same seed has the same numbers."""
    compiled = symshape.compile(_body, dynamic=True, runner="padded")
    compiled(torch.zeros(5, 3))
    (entry,) = compiled.entries
    torch.manual_seed(2)
    before = torch.get_rng_state()
    assert isinstance(entry.runner, PaddedRunner)
    assert entry.runner.warm_up(dict.fromkeys(entry.program.symbols, 200)).ready
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("randomness", ["any", "eager"])
def test_verification_compares_the_graph_where_the_program_draws_its_own_numbers(
    randomness: Any,
) -> None:
    options = Options(verify=1.0, randomness=randomness)
    compiled = symshape.compile(_body, dynamic=True, runner="padded", options=options)
    run = torch.compile(
        _body,
        backend=symshape_backend,
        dynamic=True,
        options={"runner": "padded", "verify": 1.0, "randomness": randomness},
    )
    for sizes in SIZES:
        x = torch.randn(sizes)
        for each in (compiled, run):
            torch.manual_seed(4)
            mine = each(x)
            torch.manual_seed(4)
            assert torch.equal(mine, _body(x))
    assert compiled.stats().verified == len(SIZES)


def test_forecasts_and_pages_pad_what_draws_as_runners_do() -> None:
    traced = symshape.trace(_body, torch.ones(5, 3), dynamic={"x": {0: "n"}})
    assert symshape.plan(traced, traffic={(8,): 3, (5,): 2}).graph_memory() is not None
    shown = of_program(traced.program)
    assert shown is not None
    assert not shown.refused


class CompiledFunction(torch.autograd.Function):
    """A checkpoint in a module whose name begins like ours, with the name of AOTAutograd's
    function.
    """

    __module__ = "symshape_users"

    @staticmethod
    def forward(ctx: Any, run: Call, x: torch.Tensor) -> torch.Tensor:
        ctx.run = run
        ctx.save_for_backward(x)
        return run(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        ctx.run(ctx.saved_tensors[0])
        return None, gradient


def test_only_our_own_modules_run_no_forward_twice() -> None:
    found = []

    def run(x: torch.Tensor) -> torch.Tensor:
        found.append(repeats_draws())
        return x.sin()

    CompiledFunction.apply(run, torch.ones(2, requires_grad=True)).sum().backward()  # type: ignore[no-untyped-call]
    assert found == [True, True]
