"""Programs as people write them, compiled and called at many sizes in turn: each call does what
eager does.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import symshape
from tests.symshape.eager import differences, outcome, shapes

R = torch.randn
Tensor = torch.Tensor
Call = tuple[tuple[Any, ...], dict[str, Any]]
SIZES = [(2, 5, 8), (3, 7, 8), (1, 5, 8), (2, 1, 8), (4, 9, 8), (0, 5, 8), (2, 0, 8), (3, 3, 8)]
ROWS = (4, 6, 1, 0, 9)


def call(*args: Any, **kwargs: Any) -> Call:
    return args, kwargs


BATCHES = [call(R(*sizes)) for sizes in SIZES]
VECTORS = [call(R(n)) for n in ROWS]
PROGRAMS: list[tuple[Callable[..., Any], list[Call], int]] = []


def program(
    calls: list[Call] = BATCHES, traces: int = 99
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a program with its calls, and how often it may be traced for them at most with
    symbols throughout.
    """

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS.append((fn, calls, traces))
        return fn

    return register


# -- loops and lengths


@program()
def recurrent_loop(x: Tensor) -> Any:
    state = torch.zeros(x.size(0), 8)
    states = []
    for t in range(x.size(1)):
        state = torch.tanh(x[:, t] + state * 0.5)
        states.append(state)
    return torch.stack(states, 1) if states else x, state


@program(traces=2)
def pads_to_a_multiple(x: Tensor) -> Any:
    padded = F.pad(x, (0, 0, 0, (8 - x.size(1) % 8) % 8))
    return padded, padded.view(x.size(0), -1, 8, 8).sum(2)


@program(traces=3)
def copies_into_a_multiple(x: Tensor) -> Any:
    whole = x.new_zeros(x.size(0), (x.size(1) + 7) // 8 * 8, 8)
    whole[:, : x.size(1)] = x
    return whole


@program(traces=4)
def pads_if_need_be(x: Tensor) -> Any:
    if x.size(1) % 8:
        x = F.pad(x, (0, 0, 0, 8 - x.size(1) % 8), value=-1)
    return x.unflatten(1, (-1, 8)).amax(2)


@program()
def doubles_up_to_a_power_of_two(x: Tensor) -> Any:
    n = 1
    while n < x.size(1):
        n *= 2
    return F.pad(x, (0, 0, 0, n - x.size(1)))


@program()
def halves_recursively(x: Tensor) -> Any:
    def halve(t: Tensor, depth: int) -> Tensor:
        half = t.size(1) // 2
        return (
            t
            if depth == 0 or half == 0
            else halve(t[:, :half], depth - 1) + halve(t[:, -half:], depth - 1)
        )

    return halve(x, 2)


@program()
def generates(x: Tensor) -> Any:
    def parts() -> Iterator[Tensor]:
        for i in range(min(x.size(1), 3)):
            yield x[:, i] * i

    return sum(parts(), torch.zeros(x.size(0), 8))


@program(traces=3)
def writes_at_computed_places(x: Tensor) -> Any:
    n = x.size(1)
    y = torch.zeros(x.size(0), n + 2, 8)
    y[:, 1:-1] = x
    y[:, 0] = 3
    y[..., -1] += 1
    y[:, n] = 9
    y[:, n - n] *= 2
    return y


@program()
def slices_by_ratios(x: Tensor) -> Any:
    n = x.size(1)
    return (
        x[:, : math.ceil(n / 2)],
        x[:, n // 3 : -1],
        x[:, ::2],
        x[:, -3:-1],
        *x.split([n // 2, n - n // 2], 1),
    )


@program(traces=4)
def computes_with_sizes(x: Tensor) -> Any:
    n = x.size(1)
    numbers = (
        n // 2,
        n % 3,
        -n,
        abs(n - 4),
        divmod(n, 3),
        min(n, 4),
        max(n, 4),
        n**2,
        n / 2,
        len(x),
        sum(x.shape),
    )
    return x * n, x / max(n, 1), x + (n > 2), x * (n / 2), numbers


@program()
def spells_sizes(x: Tensor) -> Any:
    return (
        {f"{x.size(0)}x{x.size(1)}": x * 2, "shape": str(tuple(x.shape))},
        x.shape,
        list(x.shape),
        x.numel(),
    )


@program()
def matches_shapes(x: Tensor) -> Any:
    match x.shape:
        case (1, n, _):
            return x * n
        case (b, 1, _):
            return x - b
        case _:
            return x


# -- attention and positions


@program(traces=3)
def causal_attention(x: Tensor) -> Any:
    n = x.shape[1]
    allowed = torch.ones(n, n, dtype=torch.bool).tril()
    return (x @ x.mT).masked_fill(~allowed, -1e9).softmax(-1) @ x


@program()
def causal_attention_by_einsum(x: Tensor) -> Any:
    mask = torch.full((x.size(1),) * 2, float("-inf")).triu(1)
    scores = torch.einsum("bid,bjd->bij", x, x) / math.sqrt(x.size(-1)) + mask
    return scores.softmax(-1) @ x


@program()
def attention_of_heads(x: Tensor) -> Any:
    b, n, d = x.shape
    heads = x.view(b, n, 2, d // 2).transpose(1, 2)
    return (
        F.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
        .transpose(1, 2)
        .reshape(b, n, d)
    )


@program()
def attention_in_a_window(x: Tensor) -> Any:
    i = torch.arange(x.size(1))
    near = (i[:, None] - i[None]).abs() <= 2
    return torch.where(near, x @ x.mT, torch.tensor(-1e9)).softmax(-1)


@program(traces=3)
def rotates(x: Tensor) -> Any:
    n, d = x.shape[1:]
    angles = torch.outer(torch.arange(n).float(), 1 / 100 ** (torch.arange(0, d, 2).float() / d))
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.stack(
        (even * angles.cos() - odd * angles.sin(), even * angles.sin() + odd * angles.cos()), -1
    ).flatten(-2)


@program(traces=3)
def sinusoids(x: Tensor) -> Any:
    n, d = x.shape[1:]
    steps = torch.arange(n)[:, None] * torch.exp(torch.arange(0, d, 2) * (-math.log(1e4) / d))
    table = torch.zeros(n, d)
    table[:, 0::2], table[:, 1::2] = steps.sin(), steps.cos()
    return x + table


@program([call(R(2, n, 4), R(2, 1, 4)) for n in (3, 4, 0, 1, 9)])
def grows_a_cache(cache: Tensor, new: Tensor) -> Any:
    both = torch.cat([cache, new], 1)
    return (new @ both.mT).softmax(-1) @ both, both, both.size(1)


@program(
    [
        call(R(2, 16, 4), R(2, n, 4), at)
        for n, at in ((3, 0), (1, 3), (1, 4), (2, 5), (0, 7), (1, 15))
    ]
)
def fills_a_cache(cache: Tensor, new: Tensor, at: int) -> Any:
    cache[:, at : at + new.size(1)] = new
    return cache[:, : at + new.size(1)].sum(1)


# -- sampling, masks, gathering


@program([call(R(3, n)) for n in (10, 20, 5, 4, 50)])
def samples_of_the_top(logits: Tensor) -> Any:
    least = logits.topk(min(5, logits.size(-1)), -1)[0][:, -1:]
    chances = logits.masked_fill(logits < least, float("-inf")).softmax(-1)
    return torch.multinomial(chances, 1), chances


@program([call(R(3, n)) for n in (10, 20, 5, 1)])
def keeps_the_nucleus(logits: Tensor, share: float = 0.9) -> Any:
    ordered, index = logits.sort(descending=True, dim=-1)
    beyond = ordered.softmax(-1).cumsum(-1) > share
    beyond[..., 1:] = beyond[..., :-1].clone()
    beyond[..., 0] = False
    return logits.masked_fill(beyond.scatter(1, index, beyond), -float("inf"))


@program(
    [
        call(torch.randint(0, 9, (b, n)), torch.randint(0, 2, (b, n)))
        for b, n in ((2, 5), (3, 6), (1, 1), (3, 9))
    ]
)
def pools_by_a_mask(ids: Tensor, mask: Tensor) -> Any:
    weights = mask.unsqueeze(-1).float()
    return (torch.arange(27.0).view(9, 3)[ids] * weights).sum(1) / weights.sum(1).clamp(min=1e-9)


@program([call(R(n, 3)) for n in ROWS])
def selects_by_a_mask(x: Tensor) -> Any:
    kept = x[x[:, 0] > 0]
    y = x.clone()
    y[y > 0] = 0
    y[y[:, 1] < -1] += 5
    return kept, kept.sum(0), kept.size(0), y, torch.where(x > 0)[0].shape


@program([call(R(n, 3), torch.randint(0, 4, (n,))) for n in ROWS])
def means_of_groups(x: Tensor, groups: Tensor) -> Any:
    counts = torch.zeros(4).scatter_add_(0, groups, torch.ones(x.size(0)))
    return torch.zeros(4, 3).index_add_(0, groups, x) / counts.clamp(min=1)[:, None]


@program([call(R(n, 5), torch.randint(0, 5, (n,))) for n in (4, 6, 1, 9)])
def scores(logits: Tensor, target: Tensor) -> Any:
    return F.cross_entropy(logits, target), -logits.log_softmax(-1).gather(
        1, target[:, None]
    ).mean()


@program([call(R(3, n, 4), torch.tensor([1, n, max(n - 1, 1)])) for n in (5, 7, 2, 9, 1)])
def reads_the_last_of_each(x: Tensor, lengths: Tensor) -> Any:
    inside = torch.arange(x.size(1))[None] < lengths[:, None]
    last = x.gather(1, (lengths - 1).view(-1, 1, 1).expand(-1, 1, 4)).squeeze(1)
    return (x * inside[..., None]).sum(1), last, x[torch.arange(3), lengths - 1]


@program()
def draws(x: Tensor) -> Any:
    return (
        x + torch.rand_like(x),
        F.dropout(x, 0.5),
        torch.randn(x.size(1)),
        torch.randperm(x.size(1)),
    )


# -- layouts, views, writes


@program([*BATCHES, *(call(args[0].transpose(0, 1)) for args, _ in BATCHES)])
def tells_layouts(x: Tensor) -> Any:
    return (
        x.reshape(-1),
        x.contiguous(),
        x * 2,
        x.is_contiguous(),
        x.transpose(0, 1).stride(),
        x.mT.reshape(x.shape) + 1,
    )


@program([call(R(n, 1).expand(n, 4)) for n in (3, 5, 1, 0)] + [call(R(3, 4))])
def copies_what_is_expanded(x: Tensor) -> Any:
    return x + 1, x.clone(), x.sum(), x.reshape(-1), x.contiguous() is x


@program([call(R(10)[n:].view(-1)) for n in (0, 1, 2, 5)])
def reads_offsets(x: Tensor) -> Any:
    return x.storage_offset(), x[1:].storage_offset(), x.add_(1)


@program()
def returns_views_of_arguments(x: Tensor) -> Any:
    return x.view(-1), x[:, 1:], x.transpose(0, 1), x, x[..., 0], x.detach(), x.to(x.dtype) is x


@program()
def writes_to_arguments(x: Tensor) -> Any:
    x.add_(1)
    x[:, :1].mul_(2)
    flat = x.view(-1)
    return flat.relu_()


def _twice(n: int) -> Call:
    tensor = R(n, 3)
    return call(tensor, tensor)


def _overlapping(n: int, start: int) -> Call:
    tensor = R(n, 3)
    return call(tensor, tensor[start:])


@program([*map(_twice, (3, 4, 5)), call(R(3, 3), R(3, 3))])
def writes_to_one_of_two(a: Tensor, b: Tensor) -> Any:
    a.add_(1)
    return b * 2, a is b


@program([_overlapping(n, start) for start in (1, 0) for n in (3, 4, 5)] + [call(R(4, 3), R(3, 3))])
def writes_under_another(a: Tensor, b: Tensor) -> Any:
    b.mul_(2)
    a.add_(1)
    return b * 2, a


@program()
def returns_one_tensor_often(x: Tensor) -> Any:
    y = x * 2
    return y, y, [y[:1]], {"y": y, "flat": y.view(-1)}


@program(
    [
        call(R(b, 3, h, w).to(memory_format=torch.channels_last))
        for b, h, w in ((2, 8, 8), (1, 8, 9), (3, 5, 5))
    ]
)
def keeps_channels_last(x: Tensor) -> Any:
    return (
        x * 2,
        x.mean((2, 3)),
        F.conv2d(x, torch.ones(4, 3, 1, 1)),
        x.permute(0, 2, 3, 1).reshape(-1, 3),
    )


@program([call(R(b, 3, h, w)) for b, h, w in ((2, 8, 8), (1, 8, 16), (2, 16, 4), (3, 4, 4))])
def cuts_into_patches(x: Tensor) -> Any:
    b, c, h, w = x.shape
    return (
        x.reshape(b, c, h // 4, 4, w // 4, 4)
        .permute(0, 2, 4, 1, 3, 5)
        .reshape(b, (h // 4) * (w // 4), -1)
    )


# -- arguments and results of all kinds


class Answer(NamedTuple):
    value: Tensor
    length: int


@program()
def answers_by_name(x: Tensor) -> Any:
    return Answer(x * 2, x.size(1))


@program([call({"a": args[0], "b": [args[0] * 2, (1, None, "k")]}) for args, _ in BATCHES])
def takes_nested_arguments(d: dict[str, Any]) -> Any:
    return {"sum": d["a"] + d["b"][0], "rest": (d["b"][1],), "lengths": [d["a"].shape[1]]}


@program(
    [
        call(x=args[0], scale=scale)
        for (args, _), scale in zip(BATCHES, itertools.cycle((1.0, 2.0, 0.5)))
    ]
)
def takes_keywords(x: Tensor, *, scale: float = 1.0, bias: Tensor | None = None) -> Any:
    return x * scale if bias is None else x * scale + bias


@program(
    [call(args[0], k) for (args, _), k in zip(BATCHES * 2, itertools.cycle((1, 2, 3, 0, -1, 7, 5)))]
)
def takes_integers(x: Tensor, k: int) -> Any:
    return x[:, :k].sum(1), x * k, k + 1


@program(
    [
        call(args[0], k)
        for (args, _), k in zip(
            BATCHES * 2, itertools.cycle((True, False, None, 1.5, "ab", 2, -0.0))
        )
    ]
)
def takes_anything(x: Tensor, k: Any) -> Any:
    if k is None:
        return x
    if isinstance(k, bool):
        return x + 1 if k else x - 1
    return x * len(k) if isinstance(k, str) else x * k


@program(
    [
        call(args[0].to(dtype))
        for args, _ in BATCHES[:3]
        for dtype in (torch.float32, torch.int64, torch.bool)
    ]
)
def branches_on_dtypes(x: Tensor) -> Any:
    if x.dtype == torch.bool:
        return x.any(1)
    return x.mean(1) if x.is_floating_point() else x.float().mean(1)


@program([call(*[R(n, 2)] * k) for n in (3, 5) for k in (1, 2, 3, 2)])
def takes_any_number(*each: Tensor) -> Any:
    return sum(each), len(each)


@program([call({key: R(3) for key in keys}) for keys in ("ab", "ba", "abc", "a")])
def takes_mappings(d: dict[str, Tensor]) -> Any:
    return {key: value * i for i, (key, value) in enumerate(d.items())}


@program(
    [call(R(n, 4), R(m, 4)) for n, m in ((5, 5), (3, 3), (1, 3), (2, 1), (0, 1), (7, 7), (1, 1))]
)
def broadcasts(a: Tensor, b: Tensor) -> Any:
    return a + b, torch.where(a > b, a, b), torch.broadcast_tensors(a, b)[0] * 2


@program(VECTORS)
def computes_with_vectors(x: Tensor) -> Any:
    return (
        x @ x,
        x.outer(x),
        x.softmax(0),
        x.cumsum(0),
        x.flip(0),
        x.view(-1, 1),
        x.logcumsumexp(0),
        len(x),
    )


# -- modes, state, nesting


@program()
def casts_automatically(x: Tensor) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x.mT
    return y, x @ x.mT


@program([call(args[0].clone().requires_grad_()) for args, _ in BATCHES])
def stops_gradients(x: Tensor) -> Any:
    with torch.no_grad():
        mean = x.mean()
    with torch.inference_mode():
        plain = x * 2
    y = (x - mean) * 2
    y.mul_(0.5)
    return y, mean, plain


@program([call(args[0].clone().requires_grad_()) for args, _ in BATCHES])
def takes_gradients(x: Tensor) -> Any:
    return torch.autograd.grad((x.sin() * x).sum(), x)[0]


SCALE, WEIGHT = torch.arange(8.0), torch.ones(8)
CONFIG = {"power": 2, "act": "gelu"}
inner = symshape.compile(lambda x: x * 2 if x.size(1) > 3 else x)


@program()
def reads_what_is_around(x: Tensor, weight: Tensor = WEIGHT, act: Any = lambda t: t.relu()) -> Any:
    return (
        act(x) * weight,
        getattr(F, str(CONFIG["act"]))(x * SCALE) ** CONFIG["power"],
        inner(x) + 1,
    )


@program()
def catches(x: Tensor) -> Any:
    found = []
    try:
        if x.size(0) == 0:
            raise KeyError(x.size(1))
        found.append(x.view(x.size(0), -1, 5))
    except (KeyError, RuntimeError):
        found.append(x.flatten(1))
    finally:
        found.append(x + 1)
    return found


@program()
def refuses(x: Tensor) -> Any:
    if x.size(1) < 2:
        raise ValueError(f"too short: {x.size(1)}")
    assert x.size(-1) == 8, f"not {x.shape}"
    return x * 2


@program()
def manages_contexts(x: Tensor) -> Any:
    @contextlib.contextmanager
    def rows() -> Iterator[int]:
        yield x.size(1)

    with rows() as n:
        return (
            x * n,
            functools.partial(torch.sum, dim=1)(x),
            [t.sum() for t in sorted([x, x[:1]], key=torch.numel)],
        )


@program()
def updates_foreach(x: Tensor) -> Any:
    torch._foreach_mul_([x], 0.9)
    torch._foreach_add_([x], [x * 2], alpha=-0.1)
    return torch._foreach_norm([x, x[:1]]), x


class Block(nn.Module):
    """Linear, norm, dropout, a running mean in a buffer, a mask cut to size, and an embedding of
    positions.
    """

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm, self.drop = nn.Linear(8, 8), nn.LayerNorm(8), nn.Dropout(0.3)
        self.embed = nn.Embedding(16, 8)
        self.register_buffer("mean", torch.zeros(8))
        self.register_buffer("mask", torch.ones(16, 16).tril().bool())

    def forward(self, x: Tensor) -> Tensor:
        n = x.size(1)
        y = self.drop(self.norm(self.linear(x)))
        with torch.no_grad():
            self.mean.mul_(0.9).add_(y.sum((0, 1)), alpha=0.1)
        y = (y @ y.mT).masked_fill(~self.mask[:n, :n], -1e4).softmax(-1) @ y
        return y + self.embed(torch.arange(len(x[0]) if len(x) else n)) + self.mean


def _modules() -> list[Any]:
    torch.manual_seed(0)
    encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    plain = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.LayerNorm(4), nn.Linear(4, 2))
    return [Block(), Block().eval(), encoder, plain, nn.GRU(8, 6, batch_first=True)]


def _hold_to_eager(
    fn: Callable[..., Any], calls: list[Call], dynamic: bool | None
) -> symshape.Compiled:
    """Compiles it and compares each call with the original's on copies, twice; its state too, if it
    has any.
    """
    original = copy.deepcopy(fn) if isinstance(fn, nn.Module) else fn
    compiled = symshape.compile(fn, dynamic=dynamic, runner="eager")
    for args, kwargs in calls * 2:
        expected, got = outcome(original, args, kwargs), outcome(compiled, args, kwargs)
        where = f"for {shapes(args, kwargs)}"
        if isinstance(expected, Exception) or isinstance(got, Exception):
            assert type(got) in (type(expected), symshape.ProgramError), (
                f"{where}: expected {expected!r}, got {got!r}"
            )
            continue
        found = differences(expected, got)
        assert not found, f"{where}:\n" + "\n".join(found)
        if isinstance(fn, nn.Module):
            both = zip(original.state_dict().items(), fn.state_dict().items(), strict=True)  # type: ignore[union-attr]
            assert all(torch.equal(a, b) for (_, a), (_, b) in both), where
    return compiled  # type: ignore[no-any-return]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize(
    ("fn", "calls", "traces"), PROGRAMS, ids=[fn.__name__ for fn, _, _ in PROGRAMS]
)
def test_a_program_equals_eager(
    fn: Callable[..., Any], calls: list[Call], traces: int, dynamic: bool | None
) -> None:
    compiled = _hold_to_eager(fn, calls, dynamic)
    if dynamic:
        assert compiled.stats().traces <= traces


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("module", _modules(), ids=lambda module: type(module).__name__)
def test_a_module_equals_eager(module: nn.Module, dynamic: bool | None) -> None:
    _hold_to_eager(copy.deepcopy(module), BATCHES[:5], dynamic)


@pytest.mark.parametrize(
    ("fn", "calls"), [each[:2] for each in PROGRAMS], ids=[fn.__name__ for fn, _, _ in PROGRAMS]
)
def test_gradients_equal_eager(fn: Callable[..., Any], calls: list[Call]) -> None:
    """Of every floating-point argument, made by autograd or not, where eager has gradients at
    all.
    """

    def gradients(served: Callable[..., Any], args: Any, kwargs: Any, leaf: bool) -> Any:
        wanted: list[Tensor] = []

        def ask(each: Any) -> Any:
            if not isinstance(each, Tensor) or not each.is_floating_point():
                return each
            wanted.append(each.detach().clone().requires_grad_())
            return wanted[-1] if leaf else wanted[-1] * 1

        args, kwargs = torch.utils._pytree.tree_map(ask, (args, kwargs))
        torch.manual_seed(0)
        try:
            results = torch.utils._pytree.tree_leaves(served(*args, **kwargs))
            used = [
                each.double().square().sum()
                for each in results
                if isinstance(each, Tensor) and each.requires_grad
            ]
            found = torch.autograd.grad(sum(used), wanted, allow_unused=True) if used else []
        except (RuntimeError, ValueError):
            return "refused"
        return [None if each is None else each.nan_to_num(7.0).tolist() for each in found]

    for leaf in (True, False):
        compiled = symshape.compile(fn, runner="eager")
        for args, kwargs in calls:
            assert gradients(compiled, args, kwargs, leaf) == gradients(fn, args, kwargs, leaf), (
                shapes(args, kwargs)
            )
