"""Forward and backward that have to run in buckets of the same capacities, since attention drops
elements.

Only kernels of devices drop elements by a state that they keep.  Here programs without dropout are
tied, so that everything but the state is seen on a CPU; ``tests/gpu`` has the kernels.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from symshape import Options
from symshape.errors import RunnerError
from symshape.graph.program import Program
from symshape.runtime.padding.padded_graph import Refusal
from symshape.runtime.padding.planning import Plan, plan
from symshape.runtime.runners.choice import Order, _tied
from symshape.runtime.runners.cuda.capture import CaptureFailed
from symshape.runtime.runners.gradients import halves
from symshape.runtime.runners.gradients.runner import STEP
from symshape.runtime.runners.padded import bucket_finder, tied_buckets
from symshape.runtime.runners.padded import runner as padded_runner
from symshape.runtime.runners.padded.bucket import Bucket
from symshape.runtime.runners.padded.runner import PaddedRunner
from symshape.runtime.runners.padded.tied_buckets import TiedBuckets
from symshape.runtime.runners.protocol import Unfit
from tests.symshape.runtime.runners.gradients.test_runner import (
    SIZES,
    Encoder,
    compiled,
    divided,
    same_gradients,
    tokens,
)


@pytest.fixture(autouse=True)
def tied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(halves, "_is_tied", lambda graph: True)


def both(fn: Any) -> list[PaddedRunner]:
    found = [each for _, each in divided(fn).halves]
    assert all(isinstance(each, PaddedRunner) for each in found)
    return found  # type: ignore[return-value]


def caps(runner: PaddedRunner) -> list[dict[str, int]]:
    return [{**each.made.exact, **each.made.caps} for each in runner.buckets]


def step(model: Any, given: torch.Tensor) -> None:
    model(given).square().mean().backward()


def twins(**options: Any) -> tuple[Encoder, Any]:
    eager = Encoder()
    return eager, compiled(copy.deepcopy(eager), **options)


def divided_twins() -> tuple[Encoder, Any]:
    """Return an encoder and a compiled one, whose first sizes are known to change."""
    eager, mine = twins()
    step(mine, tokens(3, 5))
    step(mine, tokens(4, 6))
    return eager, mine


def same_step(mine: Any, eager: nn.Module, given: torch.Tensor) -> None:
    """Run a step of both, and compare their gradients."""
    for each in (eager, mine):
        each.zero_grad()
        step(each, given)
    same_gradients(mine, eager)


def test_both_have_buckets_of_the_same_capacities() -> None:
    eager, mine = twins()
    for sizes in SIZES:
        given = tokens(*sizes)
        same_step(mine, eager, given)
    forward, backward = both(mine)
    assert caps(forward) == caps(backward)
    assert len(caps(forward)) > 1


def test_several_calls_before_their_backward() -> None:
    eager, mine = twins()
    for _ in range(2):
        given = [tokens(*sizes) for sizes in SIZES[:4]]
        for each in (eager, mine):
            each.zero_grad()
            losses = [each(one).square().mean() for one in given]
            for loss in (losses[2], losses[0], losses[3] + losses[1]):
                loss.backward()
        same_gradients(mine, eager)


def test_a_call_op_by_op_has_its_backward_op_by_op(monkeypatch: pytest.MonkeyPatch) -> None:
    eager, mine = divided_twins()
    forward, backward = both(mine)
    given = tokens(5, 6)
    monkeypatch.setattr(forward._finder, "find", lambda values: None)
    monkeypatch.setattr(backward.tied, "_aside", lambda bucket: pytest.fail("a bucket"))
    same_step(mine, eager, given)


def test_a_backward_whose_bucket_was_dropped_has_buffers_of_its_own() -> None:
    eager, mine = divided_twins()
    _, backward = both(mine)
    given = tokens(5, 6)
    for each in (eager, mine):
        each.zero_grad()
        loss = each(given).square().mean()
        if each is mine:
            backward._finder.clear()
        loss.backward()
    same_gradients(mine, eager)


def test_a_backward_after_the_release_of_both() -> None:
    eager, mine = divided_twins()
    runner = divided(mine)
    _, backward = both(mine)
    given = tokens(5, 6)
    for each in (eager, mine):
        each.zero_grad()
        loss = each(given).square().mean()
        if each is mine:
            runner.release()
        loss.backward()
    same_gradients(mine, eager)
    assert not backward.buckets


def test_forward_has_no_bucket_where_backward_has_no_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    eager, mine = divided_twins()
    forward, backward = both(mine)
    monkeypatch.setattr(backward._finder, "make", lambda *given: None)
    given = tokens(40, 50)
    same_step(mine, eager, given)
    assert len(caps(forward)) == 1


def test_forward_runs_op_by_op_where_backward_cannot_be_captured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    eager, mine = divided_twins()

    def broken(self: Bucket) -> None:
        raise RuntimeError("an op that cannot be captured")

    monkeypatch.setattr(Bucket, "warm_up", broken)
    for sizes in ((40, 50), (41, 51), (4, 6)):
        given = tokens(*sizes)
        same_step(mine, eager, given)
    forward, backward = both(mine)
    assert not forward.buckets
    assert not backward.buckets


def test_a_backward_that_cannot_have_a_bucket_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    _, mine = divided_twins()
    _, backward = both(mine)

    def failed(bucket: Bucket) -> Bucket:
        raise CaptureFailed("an op that cannot be captured")

    loss = mine(tokens(5, 6)).square().mean()
    backward._finder.clear()
    monkeypatch.setattr(backward.tied, "_aside", failed)
    with pytest.raises(RunnerError, match=r"has to drop .* an op that cannot be captured; compile"):
        loss.backward()


def test_a_backward_for_some_results() -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return (x @ w).tanh(), x.exp() * 2

    mine = compiled(program)
    for rows in (3, 4, 5, 6):
        for used in (slice(0, 1), slice(1, 2), slice(0, 2)):
            x, w = torch.randn(rows, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
            found = [
                torch.autograd.grad(
                    [each.sum() for each in fn(x, w)[used]], (x, w), allow_unused=True
                )
                for fn in (program, mine)
            ]
            for theirs, ours in zip(*found, strict=True):
                assert (theirs is None) == (ours is None)
                if theirs is not None:
                    torch.testing.assert_close(ours, theirs)
    assert len(divided(mine).halves) == 4


def test_both_are_warmed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    eager, mine = divided_twins()
    forward, backward = both(mine)
    assert forward.warm_up(dict.fromkeys(forward._program.positions, 40)).ready
    assert caps(forward) == caps(backward)
    assert all(each.captures for each in backward.buckets)
    monkeypatch.setattr(Bucket, "warm_up", lambda self: pytest.fail("a capture"))
    given = tokens(40, 40)
    same_step(mine, eager, given)


def test_inductors_kernels_are_not_used() -> None:
    _, mine = twins(options=Options(kernels="inductor"))
    for sizes in SIZES[:3]:
        step(mine, tokens(*sizes))
    assert all(runner._kernels is None for runner in both(mine))


def test_exact_graphs_are_refused() -> None:
    with pytest.raises(Unfit, match="only buckets drop the same"):
        _tied("cudagraph", object.__new__(Order), None)


def test_the_ledger_decides_for_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(padded_runner, "PaddedRunner", Patient)
    eager, mine = twins()
    for number in range(60):
        given = tokens(2 + number % 7, 3 + number % 11)
        same_step(mine, eager, given)
    forward, backward = both(mine)
    assert forward.estimates is not None
    assert forward.estimates.times == STEP
    assert backward.estimates is None
    assert forward.buckets
    assert caps(forward) == caps(backward)
    assert any("a bucket up to" in line for line in forward.accounts())


class Pairs(nn.Module):
    """Attention over pairs of views, in rows whose order only the layer before it shows."""

    def __init__(self) -> None:
        super().__init__()
        self.before = nn.Linear(8, 8).requires_grad_(False)
        self.scales = nn.Parameter(torch.randn(3, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pairs, batch, length, width = x.shape
        hidden = self.before(x.reshape(pairs * batch, length, width))
        found = [
            (hidden * scale).view(pairs * batch, length, 2, 4).transpose(1, 2)
            for scale in self.scales
        ]
        mixed = F.scaled_dot_product_attention(*found).transpose(1, 2)
        scaled: torch.Tensor = mixed.reshape(pairs * batch, length, width) * self.scales[0]
        return scaled


def test_no_bucket_where_the_padding_would_be_at_other_places() -> None:
    eager = Pairs()
    mine = compiled(copy.deepcopy(eager))
    for sizes in ((5, 4), (6, 5), (3, 3), (7, 6)):
        given = torch.randn(2, *sizes, 8)
        same_step(mine, eager, given)
    forward, backward = both(mine)
    assert not forward.buckets
    assert not backward.buckets


@pytest.mark.parametrize("patient", [True, False])
def test_capacities_at_which_other_elements_would_be_dropped_have_no_bucket(
    patient: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others keep theirs."""
    if patient:
        monkeypatch.setattr(padded_runner, "PaddedRunner", Patient)
    agrees = tied_buckets.attention_agrees

    def differs_from_16_on(forward: Any, backward: Any) -> bool:
        return agrees(forward, backward) and all(
            cap < 16 for cap in forward[1].region.caps.values()
        )

    monkeypatch.setattr(tied_buckets, "attention_agrees", differs_from_16_on)
    eager, mine = twins()
    for number in range(80):
        same_step(mine, eager, tokens(2 + number % 7, 3 + number % 6 + number % 9 // 4 * 5))
    forward, backward = both(mine)
    assert forward.buckets
    assert caps(forward) == caps(backward)
    assert all(cap < 16 for sizes in caps(forward) for cap in sizes.values())


@pytest.mark.parametrize("patient", [True, False])
def test_what_backward_refuses_forward_pads_no_more(
    patient: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if patient:
        monkeypatch.setattr(padded_runner, "PaddedRunner", Patient)

    def refusing(program: Program, values: Any, refusals: Any, *given: Any, **how: Any) -> Plan:
        if program.name.endswith("backward"):
            why = Refusal("aten::none", "here", "no rule", "", frozenset(("s0",)))
            refusals = {**refusals, "s0": why}
        return plan(program, values, refusals, *given, **how)

    for module in (tied_buckets, bucket_finder):
        monkeypatch.setattr(module, "plan", refusing)
    eager, mine = twins()
    for number in range(60):
        same_step(mine, eager, tokens(2 + number % 2, 3 + number % 11))
    forward, backward = both(mine)
    assert forward.buckets
    assert caps(forward) == caps(backward)
    for runner in (forward, backward):
        assert all(each.made.exact.keys() == {"s0"} for each in runner.buckets)
        assert runner.refusals.keys() == {"s0"}


class Patient(PaddedRunner):
    """A runner whose buckets have to be worth their price, as under ``auto`` on a GPU."""

    def __init__(self, *args: Any, twin: Any = None, **how: Any) -> None:
        how["where_it_pays"] = twin is not None
        super().__init__(*args, twin=twin, **how)


@pytest.mark.parametrize("patient", [True, False])
@pytest.mark.parametrize("most", [1, 2, 3, 5])
def test_too_few_graphs_for_all(patient: bool, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if patient:
        monkeypatch.setattr(padded_runner, "PaddedRunner", Patient)
    eager, mine = twins(options=Options(max_cuda_graphs=most))
    for number in range(60):
        given = [tokens(2 + number % 7, 3 + number % 11), tokens(9 + number % 5, 4)]
        for each in (eager, mine):
            each.zero_grad()
            losses = [each(one).square().mean() for one in given]
            (losses[1] + losses[0]).backward()
        same_gradients(mine, eager)


def test_forwards_buckets_are_made_with_those_of_the_backward_that_runs() -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scores = (x @ w).tanh()
        return scores.square().mean(), scores

    mine = compiled(program, options=Options(max_cuda_graphs=5))
    for number in range(40):
        w = torch.randn(4, 4, requires_grad=True)
        x = torch.randn(2 + number * 3 % 17, 4)
        (theirs,) = torch.autograd.grad(program(x, w)[0], w)
        (ours,) = torch.autograd.grad(mine(x, w)[0], w)
        torch.testing.assert_close(ours, theirs)
    forward, _, loss = both(mine)
    assert forward.twin is loss.tied


def test_what_was_captured_before_loads_nothing() -> None:
    _, mine = divided_twins()
    forward, backward = both(mine)
    backward.buckets[0].loading = 500.0
    assert forward.twin is not None
    assert forward.twin.prepare(forward.buckets[0]) == 0.0


def test_gradients_of_many_at_once_are_refused_after_a_bucket() -> None:
    _, mine = divided_twins()
    made = mine(tokens(4, 6))
    with pytest.raises(RunnerError, match="cannot run in such a bucket"):
        torch.autograd.grad(
            made, list(mine.parameters()), torch.randn(3, *made.shape), is_grads_batched=True
        )


class Scored(nn.Module):
    """A loss, and scores that a backward of their own may start from."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.head = Encoder(), nn.Linear(5, 3)

    def forward(self, given: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.encoder(given)
        return hidden.square().mean(), self.head(hidden)


def two_backwards(mine: Any, eager: nn.Module, given: torch.Tensor) -> None:
    """Run a call with a backward from each result of both, and compare the gradients."""
    for each in (eager, mine):
        each.zero_grad()
        loss, scores = each(given)
        loss.backward(retain_graph=True)
        scores.sin().sum().backward()
    same_gradients(mine, eager)


@pytest.mark.parametrize("gone", [False, True])
def test_a_bucket_that_a_late_backward_cannot_keep(
    gone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    eager = Scored()
    mine = compiled(copy.deepcopy(eager))
    for number in range(5):
        two_backwards(mine, eager, tokens(2 + number % 3, 5))
    late, stored = TiedBuckets._late, TiedBuckets._stored

    def refused(self: TiedBuckets, bucket: Bucket) -> Bucket:
        if not gone:
            raise CaptureFailed("not so late")
        found = stored(self, bucket)
        bucket.drop()  # it made room
        return found

    def refusing(self: TiedBuckets, bucket: Bucket) -> Bucket | None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TiedBuckets, "_stored", refused)
            return late(self, bucket)

    monkeypatch.setattr(TiedBuckets, "_late", refusing)
    for _ in range(4):
        two_backwards(mine, eager, tokens(6, 5))
    forward, *backwards = both(mine)
    for each in backwards:
        assert all(sizes in caps(forward) for sizes in caps(each))


def test_two_backwards_of_each_call_have_a_bucket_each(monkeypatch: pytest.MonkeyPatch) -> None:
    eager = Scored()
    mine = compiled(copy.deepcopy(eager))
    for number in range(5):
        two_backwards(mine, eager, tokens(2 + number % 3, 5))
    made = list[Bucket]()
    start = Bucket.__init__

    def counted(self: Bucket, *given: Any, **how: Any) -> None:
        made.append(self)
        start(self, *given, **how)

    monkeypatch.setattr(Bucket, "__init__", counted)
    for _ in range(10):
        two_backwards(mine, eager, tokens(6, 5))
    assert len(made) == 4  # of forward and of both backwards, and one aside


@pytest.mark.parametrize("most", [7, 8])
@pytest.mark.parametrize("others", [0, 1])
def test_both_are_let_in_and_leave_together(most: int, others: int) -> None:
    eager, mine = twins(options=Options(max_cuda_graphs=most))
    with torch.no_grad():
        for number in range(2 + others):
            mine(tokens(2 + number, 5 + number))
    for number in range(3):
        same_step(mine, eager, tokens(2 + number, 5 + number))
    forward, backward = both(mine)
    for sizes in [(batch, length) for batch in (2, 4, 8) for length in (3, 6, 12, 24)] * 2:
        step(mine, tokens(*sizes))
        assert sorted(map(str, caps(forward))) == sorted(map(str, caps(backward)))
    for _ in range(60):  # sizes that come again and again have a bucket in the end
        step(mine, tokens(48, 2))
    assert any(48 in sizes.values() for sizes in caps(forward))
    same_step(mine, eager, tokens(48, 2))


class TimeFirst(nn.Module):
    """Attention over rows of (length, batch), and a loss on labels of sizes of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(11, 8), nn.Linear(8, 5)
        self.positions, self.attention = nn.Parameter(torch.randn(13, 8)), nn.Linear(8, 24)

    def forward(
        self, given: torch.Tensor, labels: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        batch, length = given.shape
        hidden = self.words(given) + self.positions[:length]
        hidden = hidden.transpose(0, 1).reshape(length * batch, 8)
        heads = self.attention(hidden).view(length, batch, 3, 2, 4).permute(2, 1, 3, 0, 4)
        mixed = F.scaled_dot_product_attention(*heads.unbind(0))
        scores = self.head(hidden + mixed.permute(2, 0, 1, 3).reshape(length * batch, 8))
        return F.cross_entropy(scores, labels.t().reshape(-1)), scores


def test_a_backward_that_could_pad_what_forward_does_not() -> None:
    """The padding of labels is none of the backward's that starts from the scores."""
    eager = TimeFirst()
    mine = compiled(copy.deepcopy(eager))
    for number, sizes in enumerate([(7, 12), (4, 2), (3, 5), (6, 3), (2, 13), (1, 4)] * 2):
        given, labels = tokens(*sizes), tokens(*sizes) % 5
        for each in (eager, mine):
            each.zero_grad()
            loss, scores = each(given, labels)
            (loss + scores.square().mean(), scores.sin().sum(), loss)[number % 3].backward()
        same_gradients(mine, eager)
    forward = both(mine)[0]
    assert forward.buckets


def test_a_result_that_has_nothing_to_do_with_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        halves,
        "_is_tied",
        lambda half: any("tanh" in str(node.op) for node in half.nodes),
    )

    def program(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return F.dropout(x @ w, 0.5).tanh(), (w * w).sum()

    mine = compiled(program, options=Options(randomness="any"))
    for rows in (3, 4, 5, 6):
        x, w = torch.randn(rows, 4), torch.randn(4, 4, requires_grad=True)
        made, norm = mine(x, w)
        (made.sum() + norm).backward()
    w.grad = None
    mine(x, w)[1].backward()
    assert w.grad is not None
    torch.testing.assert_close(w.grad, 2 * w.detach())


def test_a_backward_for_some_results_after_the_release_leaves_nothing() -> None:
    mine = compiled(lambda x, w: ((x @ w).tanh(), x.exp() * 2))
    for rows in (3, 4, 5, 6):
        x, w = torch.randn(rows, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
        first, second = mine(x, w)
        (first.sum() + second.sum()).backward()
    runner = divided(mine)
    first, _ = mine(x, w)
    runner.release()
    first.sum().backward()
    assert not len(runner._store)
