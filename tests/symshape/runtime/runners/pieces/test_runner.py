"""Programs in pieces: each call compared with eager, and what is told of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import symshape
from symshape import Options, events
from symshape.frontends.dynamo import symshape_backend
from symshape.runtime.pieces import cutting
from symshape.runtime.runners.cuda import capture_faults
from symshape.runtime.runners.cuda.capture import CaptureFailed
from symshape.runtime.runners.exact import cuda_graph
from symshape.runtime.runners.padded import runner as padded
from symshape.runtime.runners.padded.runner import PaddedRunner
from symshape.runtime.runners.pieces.runner import PiecewiseRunner, padded_parts
from tests.fuzz.padded_runners import poison_buffers
from tests.meta_fns.padding.poison import assert_same


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of one op are recorded."""
    monkeypatch.setattr(cutting, "LEAST", 1)


@pytest.fixture(autouse=True)
def _without_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


class Keeping(nn.Module):
    """Two layers, the second of which sees the tokens that the first one keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0)
        self.second = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0)
        self.head = nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> Any:
        y = self.first(x)
        batch, place = (y[..., 0] > 0.05).nonzero(as_tuple=True)
        z = self.second(y[batch, place][None])[0]
        return self.head(z).softmax(-1), batch, y.mean(1)


def _runner(compiled: Any) -> PiecewiseRunner:
    (entry,) = compiled.entries
    assert isinstance(entry.runner, PiecewiseRunner), entry.runner.describe()
    return entry.runner


def check(
    fn: Any,
    calls: list[tuple[Any, ...]],
    *,
    runner: Any = "padded",
    tolerance: float = 1e-4,
    **options: Any,
) -> Any:
    """Each call with poisoned buffers, compared with eager from the same seed, and what is written
    to arguments.
    """
    compiled = symshape.compile(fn, dynamic=True, runner=runner, **options)
    for number, arguments in enumerate(calls):
        mine, theirs = (
            [each.clone() if isinstance(each, torch.Tensor) else each for each in arguments]
            for _ in "ab"
        )
        poison_buffers(compiled, number)
        torch.manual_seed(number)
        got = compiled(*mine)
        torch.manual_seed(number)
        expected = fn(*theirs)
        flat = (torch.utils._pytree.tree_leaves(each) for each in ((got, mine), (expected, theirs)))
        for place, (a, b) in enumerate(zip(*flat, strict=True)):
            assert_same(a, b, f"call {number}, leaf {place}", tolerance=tolerance)
    return compiled


def test_a_model_around_a_count_of_data() -> None:
    torch.manual_seed(0)
    sizes = ((3, 9), (5, 17), (2, 9), (3, 12), (1, 5), (5, 16))
    compiled = check(Keeping().eval(), [(torch.randn(*each, 16),) for each in sizes])
    runner = _runner(compiled)
    assert [stage.runner is not None for stage in runner.stages] == [True, False, True, False]
    first, last = (stage.runner for stage in runner.stages if stage.runner is not None)
    assert isinstance(first, PaddedRunner)
    assert isinstance(last, PaddedRunner)
    assert 1 < len(first.buckets) < len(sizes)
    assert all("u0" in bucket.made.caps for bucket in last.buckets)
    assert compiled.stats().traces == 1


def test_numbers_from_tensors_and_checks(small: None) -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> Any:
        n = x.abs().sum().long().item()
        torch._check(n >= 0)
        torch._check(n <= y.size(0))
        part = y[:n].sin()
        return part.cumsum(0), n, y * x.amax().item(), n * 2

    calls = [(torch.full((k,), 1.0), torch.randn(k + 3)) for k in (2, 5, 3, 9, 4, 7)]
    compiled = check(fn, calls)
    with pytest.raises(RuntimeError, match="<="):
        compiled(torch.full((9,), 2.0), torch.randn(4))


def test_random_numbers_are_eagers(small: None) -> None:
    dropout = nn.Dropout(0.5)

    def fn(x: torch.Tensor) -> Any:
        y = dropout(x.sin() * 2).softmax(-1)
        return torch.multinomial(y + 0.1, 1), y.cos()

    options = symshape.Options(randomness="eager")
    compiled = check(fn, [(torch.randn(k, 6),) for k in (3, 5, 2, 8, 3)], options=options)
    assert len([stage for stage in _runner(compiled).stages if stage.runner is not None]) >= 2


def test_writes_across_pieces(small: None) -> None:
    def fn(cache: torch.Tensor, x: torch.Tensor) -> Any:
        y = x.relu() + 1
        view = y[1:]
        cache[: x.size(0)] += y
        kept = y[y > 1.5]
        view.mul_(2)  # seen through y
        cache.add_(kept.sum())
        return y, view, cache * 2, kept.sin()

    calls = [(torch.zeros(10, 3), torch.randn(k, 3)) for k in (4, 6, 3, 9, 2, 5)]
    compiled = check(fn, calls)
    result = compiled(torch.zeros(10, 3), torch.randn(5, 3))
    assert result[0].untyped_storage().data_ptr() == result[1].untyped_storage().data_ptr()


def test_constants_that_are_returned_or_written_are_made_anew(small: None) -> None:
    def fn(x: torch.Tensor) -> Any:
        table = torch.tensor([1.0, 2.0, 3.0])
        kept = x[x > 0].sin()
        table.add_(kept.sum())
        return table, kept

    compiled = check(fn, [(torch.randn(k),) for k in (4, 7, 3, 5)])
    first = compiled(torch.ones(3))[0]
    second = compiled(torch.ones(3))[0]
    assert torch.equal(first, second)
    assert first.data_ptr() != second.data_ptr()


def test_sizes_of_zero_and_negative_numbers(small: None) -> None:
    def fn(x: torch.Tensor) -> Any:
        kept = x[x > 0]
        n = x.sum().long().item()
        return kept.sin() * 2, x * n, torch.zeros(3) + n

    check(
        fn,
        [
            (torch.full((k,), value),)
            for k, value in ((3, 1.0), (4, -1.0), (2, -1.0), (5, 2.0), (5, -2.0))
        ],
    )


def test_no_pieces_where_gradients_are_recorded() -> None:
    model = Keeping().eval()
    compiled = symshape.compile(model, dynamic=True, runner="padded")
    with torch.enable_grad():
        compiled(torch.randn(2, 9, 16))[0].sum().backward()
    assert model.head.weight.grad is not None
    assert "nonzero.default reads data on the host" in compiled.entries[0].runner.describe()
    assert not isinstance(compiled.entries[0].runner, PiecewiseRunner)


def test_results_may_be_borrowed_and_are_still_right() -> None:
    torch.manual_seed(0)
    options = Options(outputs="borrow", check_borrowed=True)
    check(Keeping().eval(), [(torch.randn(b, 9, 16),) for b in (3, 5, 2)], options=options)


def test_why_it_cannot_be_captured_is_not_looked_for_in_a_capture(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[object] = []
    monkeypatch.setattr(padded, "is_capturing", lambda: True)
    compiled = symshape.compile(lambda x: x.sin().cos(), dynamic=True, runner="padded")
    compiled(torch.randn(3))
    runner = compiled.entries[0].runner
    assert isinstance(runner, PaddedRunner)
    monkeypatch.setattr(runner._splitting, "without_uncaptured", lambda *call: asked.append(call))
    runner._splitting.spoil()
    runner._on_cpu = False  # as on a device, where finding out means recording
    compiled(torch.randn(4))
    assert not asked
    runner._on_cpu = True
    compiled(torch.randn(4))
    assert len(asked) == 1


def test_what_is_told() -> None:
    compiled = symshape.compile(Keeping().eval(), dynamic=True, runner="padded")
    compiled(torch.randn(2, 9, 16))
    told = compiled.report()
    assert "in 3 pieces" in told
    assert "aten.nonzero.default, since it reads data on the host" in told
    assert "piece 1: padded, 1 buckets" in told
    assert "piece 3: padded, 1 buckets" in told
    assert "u0: padded to" in told
    piece = told.partition(
        "  piece 2 runs eagerly:\n    aten.nonzero.default: it reads data on the host"
    )[2]
    line = piece.splitlines()[0]
    assert "test_runner.py:49 in Keeping.forward" in line
    assert "; a mask in place of what is selected (torch.where)" in line
    traced = symshape.trace(Keeping().eval(), torch.randn(2, 9, 16), dynamic=True).padding()
    assert list(traced.pieces) == ["piece 1 of 3", "piece 3 of 3"]
    assert traced.pieces["piece 1 of 3"].padded == ("s0", "s1")
    assert "piece 3 of 3:\n  s2: fixed by the guards\n  u0: padded to" in str(traced)
    assert "as one program:\n  s0: refused by aten.nonzero.default" in str(traced)
    assert str(traced).index("piece 1 of 3:") < str(traced).index(
        "piece 2 of 3 runs eagerly:\n  aten.nonzero"
    )


def test_a_piece_knows_what_conditions_on_sizes_outside_of_it_imply(small: None) -> None:
    """That two sizes equal a third one, which is in another piece, is that they are equal."""

    def fn(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = (x @ w + x).relu()  # both sizes of w are those of x's rows
        rows = y[y.sum(1) > 0]
        return (rows @ w).tanh() @ w

    compiled = check(
        fn, [(torch.randn(n, m), torch.randn(m, m)) for n, m in ((5, 6), (8, 6), (4, 9), (7, 12))]
    )
    last = _last(compiled)
    assert not last.refusals
    assert {"s2", "s3", "u0"} <= last.buckets[0].made.caps.keys()
    assert "s0" not in last.buckets[0].made.caps
    assert "s1" not in last.buckets[0].made.caps


def test_warm_up_and_plans_reach_pieces_whose_sizes_are_known() -> None:
    compiled = symshape.compile(Keeping().eval(), dynamic=True, runner="padded")
    compiled(torch.randn(2, 9, 16))
    warm = compiled.warm_up([{"s0": 5, "s1": 30, "s2": 16}], progress=False)
    assert [each.ready for _, each in warm.made] == [True]
    first = _runner(compiled).stages[0].runner
    assert isinstance(first, PaddedRunner)
    assert {"s0": 5, "s1": 30} in [
        {k: v for k, v in bucket.made.caps.items() if k != "s2"} for bucket in first.buckets
    ]
    assert compiled.settle()


def test_warm_up_reaches_pieces_whose_sizes_data_decide_on_if_they_are_named() -> None:
    compiled = symshape.compile(Keeping().eval(), dynamic=True, runner="padded")
    compiled(torch.randn(2, 9, 16))
    warm = compiled.warm_up([{"s0": 5, "s1": 30, "s2": 16, "u0": 64}], progress=False)
    assert [(each.sizes, each.ready) for _, each in warm.made] == [
        ({"s0": 5, "s1": 30, "s2": 16, "u0": 64}, True)
    ]
    buckets = _last(compiled).buckets
    assert 64 in [bucket.made.caps.get("u0") for bucket in buckets]
    x = torch.randn(5, 28, 16)
    for mine, theirs in zip(compiled(x), compiled.fn(x), strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-4, rtol=1e-4)
    with pytest.raises(
        symshape.InputError, match=r"sizes of s0, s1, s2 \(and, if you like, u0\) are needed"
    ):
        compiled.warm_up([{"s0": 5, "s1": 30, "s2": 16, "u7": 64}], progress=False)


def test_programs_in_pieces_are_stored(tmp_path: Any) -> None:
    model, x = Keeping().eval(), torch.randn(2, 9, 16)
    options = Options(store=tmp_path)
    first = symshape.compile(model, dynamic=True, runner="padded", options=options)
    expected = first(x)
    second = symshape.compile(model, dynamic=True, runner="padded", options=options)
    for mine, theirs in zip(second(x), expected, strict=True):
        assert torch.equal(mine, theirs)
    assert second.stats().traces == 0
    # what is known of it was kept, too
    assert all("u0" in bucket.made.caps for bucket in _last(second).buckets)


def _last(compiled: Any) -> PaddedRunner:
    found = [stage.runner for stage in _runner(compiled).stages if stage.runner is not None][-1]
    assert isinstance(found, PaddedRunner)
    return found


def test_what_cannot_be_captured_is_left_out_from_the_next_call_on(
    small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a device, where an op refuses to be captured: here one is told to."""

    def fail(self: Any, *_: Any) -> Any:
        if any("cos" in str(node.op) for node in self._padded.graph.nodes):
            raise CaptureFailed("cos waits for the device")
        return real(self, *_)

    real = padded.Bucket.call
    monkeypatch.setattr(padded.Bucket, "call", fail)
    monkeypatch.setattr(capture_faults, "uncaptured_op", lambda *_: "aten.cos.default")
    fallbacks: list[events.Event] = []
    unsubscribe = events.subscribe(
        lambda e: fallbacks.append(e) if isinstance(e, events.RunnerFallback) else None
    )
    try:
        limit = symshape.compile(torch.sin)._graphs.limit
        compiled = check(lambda x: x.sin().cos().tan(), [(torch.randn(k),) for k in (3, 5, 8, 4)])
    finally:
        unsubscribe()
    assert len(fallbacks) == 1
    (entry,) = compiled.entries
    assert [each.describe() for _, each in padded_parts(entry.runner, entry.program)] == [
        "padded, 3 buckets"
    ] * 2
    assert "aten.cos.default, since it could not be captured" in entry.runner.describe()
    assert "piece 3: padded" in compiled.report()
    assert compiled._graphs.limit == 2 * limit
    entry.runner.release()
    entry.runner.release()
    assert compiled._graphs.limit == limit
    assert not [
        bucket for _, each in padded_parts(entry.runner, entry.program) for bucket in each.buckets
    ]


def test_nothing_is_cut_where_it_is_not_known_what_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Any, *_: Any) -> Any:
        raise CaptureFailed("no")

    monkeypatch.setattr(padded.Bucket, "call", fail)
    compiled = check(lambda x: x.sin().cos(), [(torch.randn(k),) for k in (3, 5, 8)])
    assert compiled.entries[0].runner.describe() == "padded, 0 buckets"
    assert (
        cuda_graph.around_uncaptured(None, compiled.entries[0].program, torch.device("cpu"), (), ())
        is None
    )


def test_an_error_of_a_piece_is_that_of_the_function() -> None:
    """As eager has it: the same type and words, and the calls after it are served."""

    def fn(x: torch.Tensor, index: torch.Tensor) -> Any:
        y = x.sin().cos().tan().exp().abs().sqrt() + 1
        kept = y[y > 1.5]
        return y[index], kept * 2

    compiled = symshape.compile(fn, dynamic=True, runner="padded")
    x, good, bad = torch.randn(5), torch.tensor([0, 4]), torch.tensor([0, 7])
    compiled(x, good)
    with pytest.raises(IndexError) as theirs:
        fn(x, bad)
    with pytest.raises(IndexError) as mine:
        compiled(x, bad)
    assert str(mine.value).split("\n")[0] == str(theirs.value)
    assert torch.equal(compiled(x, good)[0], fn(x, good)[0])


class Spectrum(nn.Module):
    """Layers around a Fourier transform along the length, which cannot be padded; the batch can."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.behind = (
            nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)) for _ in range(2)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.before(x).softmax(-1) * 2
        z = torch.fft.rfft(y, dim=1).abs()
        out: torch.Tensor = self.behind(z).exp().mean(1)
        return out


def test_what_refuses_padding_is_left_out_once_too_many_sizes_are_exact(small: None) -> None:
    torch.manual_seed(0)
    model = Spectrum().eval()
    few = check(model, [(torch.randn(b, 16, 8),) for b in (3, 5, 2, 7, 4)])
    (entry,) = few.entries
    assert entry.runner.describe().startswith("padded, ")
    assert "_fft_r2c" in few.report()
    many = check(
        model,
        [(torch.randn(b, n, 8),) for b, n in zip((3, 5, 2, 7, 4) * 4, range(9, 29), strict=True)],
    )
    (entry,) = many.entries
    assert "aten._fft_r2c.default, since it cannot be padded" in entry.runner.describe()
    first, last = (part for _, part in padded_parts(entry.runner, entry.program))
    assert {"s0", "s1"} <= first.buckets[0].made.caps.keys()
    assert not first.refusals
    assert not last.refusals


def test_a_program_of_which_nothing_is_padded_is_cut_at_once(small: None) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x.relu() * 2 + 1
        return (torch.fft.rfft(y).abs() + 1).sqrt()

    compiled = check(fn, [(torch.randn(n),) for n in (9, 12, 7, 16)])
    (entry,) = compiled.entries
    assert len(list(padded_parts(entry.runner, entry.program))) == 2
    assert list(symshape.trace(fn, torch.randn(9), dynamic=True).padding().pieces) == [
        "piece 1 of 3",
        "piece 3 of 3",
    ]


@torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)
def test_through_torch_compile() -> None:
    """Where Dynamo is told to take counts of data into its graphs."""
    torch._dynamo.reset()
    first, second = (
        nn.Sequential(*[nn.Linear(8, 8) if i % 2 else nn.GELU() for i in range(8)])
        for _ in range(2)
    )

    def fn(x: torch.Tensor) -> Any:
        y = first(x)
        kept = (y[:, 0] > 0.05).nonzero()[:, 0]
        return second(y[kept]).softmax(-1), kept

    compiled: Any = torch.compile(
        fn, backend=symshape_backend, dynamic=True, fullgraph=True, options={"runner": "padded"}
    )
    for n in (9, 17, 12, 30, 9, 11):
        x = torch.randn(n, 8)
        for place, (mine, theirs) in enumerate(zip(compiled(x), fn(x), strict=True)):
            assert_same(mine, theirs, f"{n} rows, result {place}")
    (told,) = [each for each in symshape.backend_report().graphs if "in 3 pieces" in each.runner]
    assert told.stats.fallbacks == 0
    assert "(padded, 3 buckets; padded, " in told.runner
    torch._dynamo.reset()


def test_each_piece_has_room_for_as_many_buckets(small: None) -> None:
    def fn(x: torch.Tensor) -> Any:
        return x.sin()[x.cos() > 0.1].tan()

    compiled = symshape.compile(
        fn, dynamic=True, runner="padded", options=Options(max_cuda_graphs=3)
    )
    for size in (4, 40, 400, 4, 40, 400):
        x = torch.arange(float(size))
        assert_same(compiled(x), fn(x), f"{size}", tolerance=1e-4)
    assert [
        len(part.buckets)
        for _, part in padded_parts(compiled.entries[0].runner, compiled.entries[0].program)
    ] == [3, 3]


def test_offsets_of_what_is_empty_are_eagers(small: None) -> None:
    """A program may ask for them in the next piece."""

    def fn(x: torch.Tensor) -> Any:
        y = x.sin() * 2
        part = y[:, 1:]
        return part[part > 0.1], part.storage_offset(), part.cos()

    check(fn, [(torch.randn(4, k),) for k in (5, 3, 1, 1, 4)])
