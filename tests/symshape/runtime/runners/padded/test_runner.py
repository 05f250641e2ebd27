"""Programs that serve a range of sizes by one padded program: whole models, stale state, buckets
and budgets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import symshape
from guards import certify
from symshape import events
from symshape.options import Options
from symshape.runtime.padding.buckets import bucket_guards
from symshape.runtime.runners.padded.runner import PaddedRunner
from tests.bench.streams import make
from tests.meta_fns.padding.poison import assert_same, poison
from tests.models import MODELS, Model

Call = Callable[[int, int], tuple[torch.Tensor, ...]]
SIZES = ((6, 23), (5, 17), (2, 9), (6, 24), (5, 18), (2, 12), (5, 21), (2, 10), (6, 19), (2, 11))
"""Batch and length, of two buckets: growing and shrinking, so that what a large call left would
show in a small one.
"""


def _runner(compiled: Any) -> PaddedRunner:
    (entry,) = compiled.entries
    assert isinstance(entry.runner, PaddedRunner)
    return entry.runner


def _poison(compiled: Any, number: int) -> None:
    for entry in compiled.entries:
        if isinstance(entry.runner, PaddedRunner):
            for bucket in entry.runner.buckets:
                for buffer in bucket.buffers:
                    poison(buffer, number)


def _flat(result: Any) -> list[Any]:
    return [
        leaf for leaf in torch.utils._pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)
    ]


def _check(
    model: Callable[..., Any], calls: Sequence[tuple[torch.Tensor, ...]], **options: Any
) -> Any:
    """Calls the padded model with poisoned buffers and compares every call with eager."""
    compiled = symshape.compile(model, dynamic=True, runner="padded", **options)
    fallbacks: list[events.Event] = []
    unsubscribe = events.subscribe(
        lambda e: fallbacks.append(e) if isinstance(e, events.RunnerFallback) else None
    )
    try:
        with torch.no_grad():
            for number, arguments in enumerate(calls):
                _poison(compiled, number)
                got, expected = _flat(compiled(*arguments)), _flat(model(*arguments))
                for place, (mine, theirs) in enumerate(zip(got, expected, strict=True)):
                    assert_same(mine, theirs, f"call {number}, result {place}", tolerance=1e-4)
    finally:
        unsubscribe()
    assert not fallbacks
    return compiled


class Decoder(nn.Module):
    """A Llama-shaped decoder: RMSNorm, rotary embedding, causal attention, SiLU MLP, the last
    token's logits.
    """

    def __init__(self, width: int = 32, heads: int = 4, layers: int = 2, words: int = 50) -> None:
        super().__init__()
        self.heads = heads
        self.words = nn.Embedding(words, width)
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    "qkv": nn.Linear(width, 3 * width, bias=False),
                    "out": nn.Linear(width, width, bias=False),
                    "gate": nn.Linear(width, 2 * width, bias=False),
                    "up": nn.Linear(width, 2 * width, bias=False),
                    "down": nn.Linear(2 * width, width, bias=False),
                }
            )
            for _ in range(layers)
        )
        self.head = nn.Linear(width, words, bias=False)

    def norm(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)

    def rotate(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        half = x.shape[-1] // 2
        return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        batch, length = tokens.shape
        x = self.words(tokens)
        size = x.shape[-1] // self.heads
        device = tokens.device
        steps = 1e4 ** -(torch.arange(0, size, 2, device=device) / size)
        angles = torch.arange(length, device=device)[:, None] * steps
        cos, sin = torch.cat((angles, angles), -1).cos(), torch.cat((angles, angles), -1).sin()
        for layer in self.layers:
            q, k, v = (
                layer["qkv"](self.norm(x))
                .view(batch, length, 3, self.heads, size)
                .permute(2, 0, 3, 1, 4)
                .unbind(0)
            )
            y = F.scaled_dot_product_attention(
                self.rotate(q, cos, sin), self.rotate(k, cos, sin), v, is_causal=True
            )
            x = x + layer["out"](y.transpose(1, 2).reshape(batch, length, -1))
            y = self.norm(x)
            x = x + layer["down"](F.silu(layer["gate"](y)) * layer["up"](y))
        return self.head(self.norm(x[:, -1])), x.mean(1)


class Encoder(nn.Module):
    """A BERT-shaped encoder: attention in both directions, layer norms, and a mean over the
    tokens.
    """

    def __init__(self, width: int = 32, words: int = 50, longest: int = 64) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Embedding(longest, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 64, batch_first=True) for _ in range(2)
        )
        self.register_buffer("positions", torch.arange(longest)[None])

    def forward(
        self, tokens: torch.Tensor, keep: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        batch, length = tokens.shape
        x = self.words(tokens) + self.places(self.positions[:, :length])
        mask = (
            None
            if keep is None
            else x.new_zeros(batch, 1, 1, length).masked_fill(~keep[:, None, None], -1e9)
        )
        for layer in self.layers:
            attention = layer.self_attn
            projected = F.linear(x, attention.in_proj_weight, attention.in_proj_bias)
            q, k, v = projected.view(batch, length, 3, 4, -1).permute(2, 0, 3, 1, 4).unbind(0)
            y = (
                F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
                .transpose(1, 2)
                .reshape(batch, length, -1)
            )
            x = layer.norm1(x + attention.out_proj(y))
            x = layer.norm2(x + layer.linear2(F.gelu(layer.linear1(x))))
        weights = x.new_ones(batch, length) if keep is None else keep.to(x.dtype)
        return x, (x * weights[..., None]).sum(1) / weights.sum(1, keepdim=True)


class Patches(nn.Module):
    """ViT-shaped: a convolution into patches, a class token, attention in both directions."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, 10)
        self.norm = nn.LayerNorm(width)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = self.norm(torch.cat((self.token.expand(x.shape[0], -1, -1), x), 1))
        q, k, v = (
            self.qkv(x).view(x.shape[0], x.shape[1], 3, 4, -1).permute(2, 0, 3, 1, 4).unbind(0)
        )
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)
        out: torch.Tensor = self.out((x + y)[:, 0])
        return out


class Speech(nn.Module):
    """Convolutions over time, and a GRU in a loop, which unrolls: the time is exact, the batch is
    padded.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv1d(8, 16, 3, padding=1), nn.Conv1d(16, 16, 3, 2, 1)
        self.given, self.held, self.out = nn.Linear(16, 36), nn.Linear(12, 36), nn.Linear(12, 6)

    def forward(self, sound: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = F.relu(self.second(F.relu(self.first(sound)))).transpose(1, 2)
        state = x.new_zeros(x.shape[0], 12)
        states = []
        for step in x.unbind(1):
            given, held = self.given(step).chunk(3, 1), self.held(state).chunk(3, 1)
            reset, update = (given[0] + held[0]).sigmoid_(), (given[1] + held[1]).sigmoid_()
            new = (given[2] + reset * held[2]).tanh_()
            state = new + update * (state - new)
            states.append(state)
        return self.out(torch.stack(states, 1)).log_softmax(-1), state


class Step(nn.Module):
    """One step of decoding: a cache of keys and values that grows by what is new."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(
        self, x: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        batch, new, _ = x.shape
        q, k, v = self.qkv(x).view(batch, new, 3, 4, 8).permute(2, 0, 3, 1, 4).unbind(0)
        keys, values = torch.cat((keys, k), 2), torch.cat((values, v), 2)
        y = F.scaled_dot_product_attention(q, keys, values)
        return self.out(y.transpose(1, 2).reshape(batch, new, 32)), keys, values


def _tokens(batch: int, length: int) -> torch.Tensor:
    return torch.randint(0, 50, (batch, length))


def _keep(batch: int, length: int) -> torch.Tensor:
    kept = torch.rand(batch, length) < 0.7
    kept[:, 0] = True
    return kept


def _cache(batch: int, length: int) -> tuple[torch.Tensor, ...]:
    return (
        torch.randn(batch, 1, 32),
        torch.randn(batch, 4, length, 8),
        torch.randn(batch, 4, length, 8),
    )


WHOLE: tuple[tuple[str, Callable[[], nn.Module], Call, int], ...] = (
    ("decoder", Decoder, lambda b, n: (_tokens(b, n),), 2),
    ("encoder", Encoder, lambda b, n: (_tokens(b, n),), 2),
    ("encoder with a mask", Encoder, lambda b, n: (_tokens(b, n), _keep(b, n)), 4),
    ("patches", Patches, lambda b, n: (torch.randn(b, 3, 12 + n, 8 + 4 * n),), 3),
    (
        "speech, its convolutions",
        lambda: nn.Sequential(nn.Conv1d(8, 16, 3, padding=1), nn.ReLU(), nn.Conv1d(16, 8, 5, 2, 2)),
        lambda b, n: (torch.randn(b, 8, n),),
        2,
    ),
    ("step", Step, _cache, 5),
)


@pytest.mark.parametrize(
    ("make", "call", "padded"), [row[1:] for row in WHOLE], ids=[row[0] for row in WHOLE]
)
def test_whole_models(make: Callable[[], nn.Module], call: Call, padded: int) -> None:
    torch.manual_seed(0)
    compiled = _check(make().eval(), [call(*sizes) for sizes in SIZES])
    runner = _runner(compiled)
    assert not runner.refusals.keys() - {"s2"}, runner.padding()
    assert len(runner.padding().padded) >= padded, runner.padding()
    assert compiled.stats().traces == 1
    assert len(runner.buckets) <= 5


def test_speech_keeps_its_time_exact() -> None:
    torch.manual_seed(0)
    model = Speech().eval()
    compiled = symshape.compile(model, dynamic={"sound": {0: "batch"}}, runner="padded")
    with torch.no_grad():
        for number, batch in enumerate((3, 4, 2, 7, 5, 8)):
            sound = torch.randn(batch, 8, 20)
            _poison(compiled, number)
            for mine, theirs in zip(compiled(sound), model(sound), strict=True):
                assert_same(mine, theirs, f"batch {batch}", tolerance=1e-4)
    assert _runner(compiled).padding().padded == ("batch",)


def test_writes_in_place_to_what_is_the_programs_own() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = torch.zeros_like(x).add_(x).mul_(2)
        z = x.sum(1, keepdim=True).clone()
        z.copy_(z * 2).clamp_(-1, 1)
        return y.exp_() + z

    compiled = _check(program, [(torch.randn(n, 4),) for n in (5, 6, 3, 8, 2)])
    assert set(_runner(compiled).padding().padded) == {"s0", "s1"}


def test_a_write_that_another_tensor_shows_is_refused() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y.split(2, 1)[0].add_(1)
        return y.sum(1)

    compiled = _check(program, [(torch.randn(n, 4),) for n in (5, 6)])
    refusal = _runner(compiled).refusals["s0"]
    assert "put back" in refusal.reason


# --- results --------------------------------------------------------------------------------------


def test_results_lie_and_alias_as_in_eager() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> Any:
        z = x @ y
        return (
            x,
            x.t(),
            x[1:],
            z.t(),
            z.shape[0] + 1,
            z.sum(1, keepdim=True).expand(-1, 3),
            (z * 2)[:, 1:],
        )

    compiled = symshape.compile(program, dynamic=True, runner="padded")
    with torch.no_grad():
        for n, k, m in ((5, 7, 9), (6, 8, 10), (4, 5, 11)):
            x, y = torch.randn(n, k), torch.randn(k, m)
            got, expected = compiled(x, y), program(x, y)
            assert got[0] is x
            assert got[1].data_ptr() == x.data_ptr()
            assert got[2].data_ptr() == x[1:].data_ptr()
            assert got[4] == n + 1
            for mine, theirs in zip(_flat(got), _flat(expected), strict=True):
                assert_same(mine, theirs, f"{n}, {k}, {m}")
                assert mine.stride() == theirs.stride()
                assert mine.storage_offset() == theirs.storage_offset()
    assert _runner(compiled).buckets


def test_results_are_the_callers_own() -> None:
    compiled = symshape.compile(lambda x: x + 1, dynamic=True, runner="padded")
    first = compiled(torch.zeros(7))
    compiled(torch.ones(8))
    assert (first == 1).all()


def test_parameters_that_change_are_seen() -> None:
    linear = nn.Linear(4, 4)
    compiled = symshape.compile(lambda x: linear(x), dynamic=True, runner="padded")
    with torch.no_grad():
        x = torch.randn(5, 4)
        assert_same(compiled(x), linear(x), "before")
        linear.weight.mul_(2)
        assert_same(compiled(x), linear(x), "after")


# --- what cannot be padded ------------------------------------------------------------------------


def test_a_refusal_names_op_line_and_reason() -> None:
    compiled = symshape.compile(lambda x: torch.renorm(x, 2, 0, 1.0), dynamic=True, runner="padded")
    seen: list[events.PaddingRefused] = []
    unsubscribe = events.subscribe(
        lambda e: seen.append(e) if isinstance(e, events.PaddingRefused) else None
    )
    try:
        x = torch.randn(4, 5)
        assert_same(compiled(x), torch.renorm(x, 2, 0, 1.0), "renorm")
    finally:
        unsubscribe()
    assert {each.symbol for each in seen} == {"s0", "s1"}
    assert "aten.renorm.default" in compiled.report()
    assert "test_runner.py" in compiled.report()
    assert "padding rule" in compiled.report()


def test_only_the_refused_symbols_are_exact() -> None:
    model = nn.BatchNorm1d(4).eval()

    def program(x: torch.Tensor) -> torch.Tensor:
        pieces = (model(x) * 2).view(-1, 4, x.shape[2]).split(2, 2)
        return pieces[0].sum(0)

    compiled = _check(program, [(torch.randn(n, 4, 5),) for n in (3, 6, 5, 7)])
    padding = _runner(compiled).padding()
    assert "s0" in padding.padded
    refusal = padding.symbols["s2"].refusal
    assert refusal is None or refusal.op == "aten.split.Tensor"


def _dropout(x: torch.Tensor) -> torch.Tensor:
    return F.dropout(x, 0.5)


def _counts(x: torch.Tensor) -> torch.Tensor:
    return x.nonzero()


@pytest.mark.parametrize(("fn", "why"), [(_dropout, "random"), (_counts, "host")])
def test_programs_that_cannot_be_run_again(fn: Callable[..., Any], why: str) -> None:
    seen: list[events.RunnerFallback] = []
    unsubscribe = events.subscribe(
        lambda e: seen.append(e) if isinstance(e, events.RunnerFallback) else None
    )
    try:
        options = Options(randomness="eager")
        compiled = symshape.compile(fn, dynamic=True, runner="padded", options=options)
        assert compiled(torch.ones(5)).shape == fn(torch.ones(5)).shape
    finally:
        unsubscribe()
    assert [why in each.reason for each in seen] == [True]


def test_gradients_of_the_caller() -> None:
    linear = nn.Linear(4, 4)
    compiled = symshape.compile(lambda x: linear(x), dynamic=True, runner="padded")
    compiled(torch.ones(3, 4)).sum().backward()
    assert linear.weight.grad is not None
    assert compiled.entries[0].runner_name == "padded"
    assert "and backward (padded" in compiled.report()


# --- buckets --------------------------------------------------------------------------------------


def test_a_bucket_lies_within_the_guards() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x + y).view(-1, 2) if x.shape[0] <= 50 else x

    compiled = _check(program, [(torch.randn(n), torch.randn(n)) for n in (10, 12, 48, 50, 20)])
    program_ = compiled.entries[0].program
    assert len(program_.guards) >= 2
    smaller = []
    for bucket in _runner(compiled).buckets:
        guards = bucket_guards(program_.guards, bucket.made.exact, bucket.made.caps)
        assert certify(guards, [program_.guards]).covered is True
        smaller.append(certify(program_.guards, [guards]).covered is False)
    assert any(smaller), "the certificate tells a bucket from its entry"


def test_few_buckets_never_thrash() -> None:
    made: list[events.BucketMade] = []
    unsubscribe = events.subscribe(
        lambda e: made.append(e) if isinstance(e, events.BucketMade) else None
    )
    try:
        compiled = symshape.compile(
            lambda x: x.softmax(0),
            dynamic=True,
            runner="padded",
            options=Options(max_cuda_graphs=3),
        )
        for _ in range(4):
            for n in (3, 6, 12, 24, 48, 96, 5, 11):
                x = torch.randn(n)
                assert_same(compiled(x), x.softmax(0), f"{n}")
    finally:
        unsubscribe()
    assert len(_runner(compiled).buckets) == 3
    assert len(made) == 3, "a bucket in use is not given up"


def test_a_bucket_that_nobody_uses_makes_room() -> None:
    compiled = symshape.compile(
        lambda x: x * 2, dynamic=True, runner="padded", options=Options(max_cuda_graphs=2)
    )
    for n in (3, 6, *[100] * 40):
        assert compiled(torch.ones(n)).sum() == 2 * n
    assert {cap for each in _runner(compiled).buckets for cap in each.made.caps.values()} == {
        6,
        128,
    }


def test_a_released_runner_still_serves() -> None:
    compiled = symshape.compile(lambda x: x * 2, dynamic=True, runner="padded")
    compiled(torch.ones(3))
    runner = _runner(compiled)
    runner.release()
    assert runner.buckets == ()
    assert runner.run([torch.ones(4)], (4,))[0].sum() == 8
    assert runner.buckets == ()


def test_threads_share_buckets() -> None:
    from concurrent.futures import ThreadPoolExecutor

    compiled = symshape.compile(lambda x: x.cumsum(0), dynamic=True, runner="padded")
    tensors = [torch.randn(2 + n % 13) for n in range(200)]
    compiled(tensors[0])
    with ThreadPoolExecutor(4) as pool:
        for mine, x in zip(pool.map(compiled, tensors), tensors, strict=True):
            assert_same(mine, x.cumsum(0), f"{x.shape}")


def test_sizes_changed_in_place_are_refused() -> None:
    compiled = _check(
        lambda x: (x * 2).unsqueeze_(0) + 1, [(torch.randn(n, n + 1),) for n in (4, 5, 4)]
    )
    assert "in place" in _runner(compiled).refusals["s0"].reason


def test_an_index_that_eager_refuses_is_refused() -> None:
    compiled = symshape.compile(lambda x, i: x[i], dynamic=True, runner="padded")
    x = torch.arange(5.0)
    assert compiled(x, torch.tensor([4, -5])).tolist() == [4.0, 0.0]
    for wrong in (5, -6):
        with pytest.raises(
            IndexError, match=f"index {wrong} is out of bounds for dimension 0 with size 5"
        ):
            compiled(x, torch.tensor([0, wrong]))
    assert len(_runner(compiled).buckets) == 1


REAL = ("gpt2", "llama", "llama, mask", "bert", "vit")


@pytest.mark.slow
@pytest.mark.parametrize(
    "model", [each for each in MODELS if each.name in REAL], ids=lambda model: model.name
)
def test_real_architectures(model: Model) -> None:
    pytest.importorskip("transformers")
    module = model.build()
    torch.manual_seed(0)
    calls = [model.call(*sizes) for sizes in ((6, 23), (5, 17), (6, 24), (2, 11), (5, 19))]
    names = list(calls[0])
    compiled = _check(
        lambda *given: module(**dict(zip(names, given, strict=True))),
        [(*call.values(),) for call in calls],
    )
    padded = _runner(compiled).padding().padded
    assert "s0" in padded
    assert "s1" in padded or model.name == "vit", "images have one size there"
    assert len(_runner(compiled).buckets) <= 2


def test_ops_that_read_strides_are_refused() -> None:
    compiled = symshape.compile(
        lambda x: x.as_strided(x.shape, x.stride()) * 2,
        dynamic={"x": {0: None, 1: None}},
        runner="padded",
    )
    for _ in range(2):
        x = torch.randn(3, 8)[:, ::2]
        assert_same(compiled(x), x * 2, "strided")

    def program(x: torch.Tensor, y: torch.Tensor) -> Any:
        return x.as_strided((3, 4), (8, 2)) * 2, y * 2

    mixed = _check(program, [(torch.randn(3, 8)[:, ::2], torch.randn(n)) for n in (5, 6, 4)])
    for entry in mixed.entries:
        refusals = entry.runner.refusals if isinstance(entry.runner, PaddedRunner) else {}
        assert all("memory" in each.reason for each in refusals.values())


def test_data_that_eager_refuses_or_does_not_look_at() -> None:
    compiled = symshape.compile(lambda x, y: x % y, dynamic=True, runner="padded")
    zero = torch.tensor(0)
    assert compiled(torch.arange(5), torch.tensor(3)).tolist() == [0, 1, 2, 0, 1]
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        compiled(torch.arange(6), zero)
    assert compiled(torch.arange(0), zero).shape == (0,)
    assert compiled(torch.arange(4), torch.tensor(2)).tolist() == [0, 1, 0, 1]


def _branches(x: torch.Tensor) -> torch.Tensor:
    return x.softmax(0).cumsum(0) if x.shape[0] % 2 else x.flip(1).mean(0)


@settings(max_examples=12, deadline=None)
@given(
    st.integers(1, 4),
    st.lists(st.sampled_from((1, 2, 3, 5, 8, 13, 20, 21, 33, 54, 90, 91)), min_size=1, max_size=60),
)
def test_any_stream_of_sizes_is_right_within_the_budget(limit: int, stream: list[int]) -> None:
    """Two entries share the budget; how many buckets are made is bounded by the number of calls,
    not of sizes.
    """
    compiled = symshape.compile(
        _branches,
        dynamic={"x": {0: "rows"}},
        runner="padded",
        options=Options(max_cuda_graphs=limit),
    )
    made: list[events.Event] = []
    unsubscribe = events.subscribe(
        lambda e: made.append(e) if isinstance(e, events.BucketMade) else None
    )
    try:
        for number, rows in enumerate(stream):
            _poison(compiled, number)
            x = torch.randn(rows, 3)
            assert_same(compiled(x), _branches(x), f"{rows} rows", tolerance=1e-5)
            kept = [each for entry in compiled.entries for each in entry.runner.buckets]
            assert len(kept) == len(compiled._graphs) <= limit
    finally:
        unsubscribe()
    assert len(made) <= limit + len(stream) // 8


@pytest.mark.parametrize(
    ("fn", "reason"),
    [
        (lambda x: x.sort(1)[1], "which of equal elements sort puts first"),
        (lambda x: x.argsort(1), "which of equal elements sort puts first"),
        (lambda x: x.topk(2, 1)[1], "which of equal elements topk puts first"),
        (lambda x: x.topk(2, 1, sorted=False)[0], "order of an unsorted topk"),
        (lambda x: x.median(1)[1], "which of equal elements median answers"),
    ],
)
def test_positions_of_equals_are_eagers(fn: Callable[..., Any], reason: str) -> None:
    compiled = symshape.compile(fn, dynamic=True, runner="padded")
    torch.manual_seed(0)
    for rows in (40, 33, 37):
        x = torch.randint(0, 3, (rows, 41 + rows)).float()
        assert torch.equal(compiled(x), fn(x))
    report = compiled.report()
    assert "s0: padded to" in report, "only the dimension that is put in order keeps its exact size"
    assert f"s1: refused by aten.{reason.split()[-1]}" in report or reason in report
    assert "test_runner.py" in report


def test_values_in_order_are_padded() -> None:
    compiled = symshape.compile(
        lambda x: (x.sort(1)[0], x.topk(2, 1)[0], x.median(1)[0]), dynamic=True, runner="padded"
    )
    for columns in (30, 25, 27):
        x = torch.randint(0, 3, (4, columns)).float()
        _same = zip(compiled(x), (x.sort(1)[0], x.topk(2, 1)[0], x.median(1)[0]), strict=True)
        assert all(torch.equal(mine, theirs) for mine, theirs in _same)
    assert "refused" not in compiled.report()


def test_a_state_that_is_not_known_names_its_layer() -> None:
    layer = nn.LSTM(3, 4, batch_first=True)
    compiled = symshape.compile(lambda x: layer(x)[1][1], dynamic=True, runner="padded")
    with torch.no_grad():
        compiled(torch.randn(2, 5, 3))
    assert "aten.lstm.input: the last c of lstm is that at the capacity" in compiled.report()


@pytest.mark.parametrize(
    "fn",
    [lambda x: x / x.shape[1], lambda x: x * (1 / x.shape[1]), lambda x: x * x.shape[0] ** 0.5],
)
def test_fractions_of_sizes(fn: Callable[..., Any]) -> None:
    compiled = symshape.compile(fn, dynamic=True, runner="padded")
    for dtype in (torch.float32, torch.bfloat16):
        for columns in (30, 25, 27):
            x = torch.randn(4, columns).to(dtype)
            assert_same(compiled(x), fn(x), f"{columns}")
    assert "refused" not in compiled.report()


def test_a_fraction_that_python_refuses_is_refused() -> None:
    compiled = symshape.compile(lambda x: x.sum() * (1 / x.shape[1]), dynamic=True, runner="padded")
    for columns in (30, 25):
        x = torch.randn(4, columns)
        assert_same(compiled(x), x.sum() * (1 / columns), f"{columns}", tolerance=1e-4)
    with pytest.raises(ZeroDivisionError):
        compiled(torch.ones(4, 0))


def test_a_size_that_the_guards_know_to_be_one() -> None:
    """Views between a dimension of that size and none: nothing is moved."""
    stream = make("speech", torch.device("cpu"), tiny=True)
    compiled = symshape.compile(stream.run, dynamic=True, runner="padded")
    fallbacks: list[events.Event] = []
    unsubscribe = events.subscribe(
        lambda e: fallbacks.append(e) if isinstance(e, events.RunnerFallback) else None
    )
    try:
        with torch.no_grad():
            for number, sizes in enumerate(((4, 20), (1, 24), (1, 17), (1, 9), (3, 12))):
                for entry in compiled.entries:
                    for bucket in entry.runner.buckets:
                        for buffer in bucket.buffers:
                            poison(buffer, number)
                given = stream.arguments(sizes)
                for mine, theirs in zip(compiled(*given), stream.run(*given), strict=True):
                    assert_same(mine, theirs, str(sizes))
    finally:
        unsubscribe()
    assert not fallbacks


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_under_a_transform_ops_run_as_they_are() -> None:
    """A tensor of jvp's does not say that the one inside it requires gradients, which a copy into a
    buffer lost.
    """

    def fn(x: torch.Tensor) -> torch.Tensor:
        return (x @ weight).relu().sin() + x.shape[0]

    weight = torch.randn(4, 3)
    compiled = symshape.compile(fn, runner="padded")
    for n in (3, 5, 6):
        x = torch.randn(n, 4, requires_grad=True)
        for around in (
            lambda f, x: torch.func.jvp(f, (x,), (x * 2,)),
            lambda f, x: (torch.func.functionalize(f)(x),),
            lambda f, x: (torch.vmap(f)(torch.stack([x, x])),),
            lambda f, x: (torch.func.grad(lambda y: f(y).sum())(x),),
        ):
            for got, expected in zip(around(compiled, x), around(fn, x), strict=True):
                torch.testing.assert_close(got, expected)
                assert got.requires_grad == expected.requires_grad
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), fn(x))


def test_under_autocast() -> None:
    """Its casts are in the graph, so it is off while that runs: cdist stays in float32 with all
    that is inside.
    """
    layers = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0), nn.Linear(16, 4)

    def model(x: torch.Tensor) -> Any:
        y = layers[0](x * 2)
        z = layers[1](y).softmax(1)
        return y.mean(1), torch.cdist(x, x).amax(-1), torch.cat([z, x[..., :4]], -1)

    compiled = symshape.compile(model, dynamic=True, runner="padded", fullgraph=True)
    for layer in layers:
        layer.train()
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        for number, (batch, length) in enumerate(SIZES):
            x = torch.randn(batch, length, 16)
            _poison(compiled, number)
            for got, expected in zip(_flat(compiled(x)), _flat(model(x)), strict=True):
                assert got.dtype == expected.dtype
                torch.testing.assert_close(got, expected, atol=2e-2, rtol=2e-2)
            assert torch.is_autocast_enabled("cpu")
        assert torch.equal(_flat(compiled(x))[1], _flat(model(x))[1])
    assert len(_runner(compiled).buckets) < len(SIZES)
