"""Texts of errors, and layouts that only some kernels give (class 11 of issue 8)."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils import _pytree as pytree

from tests.worlds.world import Call, World, on, put, values, world

SMALLER = "11 messages and layouts"


def _to_three_digits(results: list[Any]) -> Any:
    """The layouts and the values of the last result, without the last bits, which fused kernels
    have of their own.
    """
    return pytree.tree_map_only(
        torch.Tensor, lambda t: (t.shape, t.stride(), (t * 1e3).round()), results[-1]
    )


def _pairs(fn: Any, *sizes: tuple[int, int]) -> World:
    return World(
        fn, [Call(lambda a=a, b=b: (values(a), values(b))) for a, b in sizes], messages=True
    )


@world(SMALLER)
def message_of_a_check() -> World:
    def fn(x: Any, y: Any) -> Any:
        torch._check(
            x.shape[0] == y.shape[0], lambda: f"size mismatch: {x.shape[0]} != {y.shape[0]}"
        )
        return x + y

    return _pairs(fn, (4, 4), (6, 6), (4, 5), (7, 3))


@world(SMALLER)
def message_of_a_check_made_before() -> World:
    def fn(x: Any, y: Any) -> Any:
        message = f"size mismatch: {x.shape[0]} != {y.shape[0]}"
        torch._check(x.shape[0] == y.shape[0], lambda: message)
        return x + y

    return _pairs(fn, (4, 4), (6, 6), (4, 5), (7, 3))


@world(SMALLER)
def message_of_a_check_with_state() -> World:
    names = ["first"]

    def fn(x: Any, y: Any) -> Any:
        torch._check(x.shape[0] == y.shape[0], lambda: f"{names[0]} does not fit")
        return x + y

    made = _pairs(fn, (4, 4), (6, 6), (4, 5))
    again = Call(lambda: (values(3), values(5)))
    return World(fn, [*made.steps, lambda: names.__setitem__(0, "second"), again], messages=True)


@world(SMALLER)
def message_of_a_check_of_values() -> World:
    def fn(x: Any) -> Any:
        n = int(x.sum().item())
        torch._check(n >= 0, lambda: f"{n} of {x.shape[0]} is negative")
        return x * 2

    sizes = [
        Call(lambda k=k, n=n: (torch.full((n,), k),)) for k, n in ((2, 3), (2, 4), (-2, 3), (-2, 5))
    ]
    return World(fn, sizes, messages=True)


@world(SMALLER)
def message_of_an_assert() -> World:
    def fn(x: Any, y: Any) -> Any:
        assert x.shape[0] == y.shape[0], f"{x.shape[0]} and {y.shape[0]}"
        return x + y

    return _pairs(fn, (4, 4), (6, 6), (4, 5), (7, 3))


@world(SMALLER)
def message_of_an_exception() -> World:
    def fn(x: Any, y: Any) -> Any:
        if x.shape[0] > y.shape[0]:
            raise ValueError(f"{x.shape[0]} is more than {y.shape[0]}")
        return x.sum() + y.sum()

    return _pairs(fn, (4, 4), (6, 6), (5, 4), (7, 3))


@world(SMALLER)
def message_with_state() -> World:
    class Error(Exception):
        pass

    class C:
        limit = 4

    c = C()

    def fn(x: Any) -> Any:
        if x.shape[0] > c.limit:
            raise Error(f"more than {c.limit}")
        return x * 2

    return World(fn, [on(3), on(4), on(5), put(c, limit=5), on(5), on(6)], messages=True)


@world(SMALLER)
def message_of_an_operator() -> World:
    return _pairs(lambda x, y: x + y, (4, 4), (6, 6), (4, 5), (1, 3))


@world(SMALLER)
def message_of_a_matrix_product() -> World:
    m = nn.Linear(3, 2)
    return World(m, [on(2, 3), on(4, 3), on(2, 4)], messages=True)


@world(SMALLER)
def warning_becomes_an_error() -> World:
    def fn(x: Any) -> Any:
        import warnings

        warnings.warn("a world", stacklevel=1)
        return x * 2

    return World(fn, [on(3), lambda: __import__("warnings").simplefilter("error"), on(3)])


@world(SMALLER)
def exception_caught_inside() -> World:
    def fn(x: Any) -> Any:
        try:
            return x + torch.ones(4)
        except RuntimeError:
            return x * 3

    return World(fn, [on(4), on(5), on(6), on(1), on(4)])


@world(SMALLER)
def multihead_attention_in_eval() -> World:
    m = nn.MultiheadAttention(4, 2, batch_first=True).eval()
    return World(
        lambda x: m(x, x, x)[0], [on(2, 3, 4), on(2, 5, 4), on(3, 5, 4)], view=_to_three_digits
    )


@world(SMALLER)
def multihead_attention_in_eval_without_gradients() -> World:
    m = nn.MultiheadAttention(4, 2).eval().requires_grad_(False)
    return World(
        lambda x: m(x, x, x), [on(2, 3, 4), on(2, 5, 4), on(3, 5, 4)], view=_to_three_digits
    )


@world(SMALLER)
def encoder_layer_in_eval() -> World:
    m = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval().requires_grad_(False)
    return World(m, [on(2, 3, 4), on(2, 5, 4), on(1, 5, 4)], view=_to_three_digits)


@world(SMALLER)
def max_pool_with_ceil_mode() -> World:
    return World(
        lambda x: F.max_pool1d(x, 2, ceil_mode=True),
        [on(1, 2, 5), on(1, 2, 6), on(2, 3, 7), on(1, 1, 3), on(2, 2, 2)],
    )


@world(SMALLER)
def max_pool_without_gradients() -> World:
    def fn(x: Any) -> Any:
        with torch.no_grad():
            return F.max_pool1d(x, 3, 2, 1, ceil_mode=True)

    return World(fn, [on(1, 2, 5), on(1, 2, 6), on(2, 3, 7), on(1, 1, 3)])


@world(SMALLER)
def group_norm_of_channels_last() -> World:
    m = nn.GroupNorm(1, 2)

    def last(*sizes: int) -> Call:
        return Call(lambda: (values(*sizes).to(memory_format=torch.channels_last),))

    return World(m, [last(2, 2, 3, 3), last(2, 2, 4, 3), last(1, 2, 3, 1)], view=_to_three_digits)


@world(SMALLER)
def convolution_of_channels_last() -> World:
    m = nn.Conv2d(2, 3, 1)

    def last(*sizes: int) -> Call:
        return Call(lambda: (values(*sizes).to(memory_format=torch.channels_last),))

    return World(
        m,
        [last(2, 2, 3, 3), last(2, 2, 4, 3), last(1, 2, 3, 1), last(1, 2, 1, 1)],
        view=_to_three_digits,
    )


@world(SMALLER)
def lstm_batch_first() -> World:
    m = nn.LSTM(3, 2, batch_first=True)
    return World(m, [on(2, 4, 3), on(2, 5, 3), on(1, 5, 3)], view=_to_three_digits)


@world(SMALLER)
def scaled_dot_product_attention() -> World:
    def fn(x: Any) -> Any:
        q = x.view(x.shape[0], x.shape[1], 2, 2).transpose(1, 2)
        return F.scaled_dot_product_attention(q, q, q)

    return World(fn, [on(2, 3, 4), on(2, 5, 4), on(1, 5, 4)], view=_to_three_digits)


@world(SMALLER)
def message_of_a_check_of_a_count() -> World:
    def fn(x: Any) -> Any:
        n = x.nonzero().shape[0]
        torch._check(n > 1, lambda: f"only {n} of {x.shape[0]:03d}, {n / x.shape[0]:.2f}")
        return x * 2

    sizes = [
        Call(lambda k=k, n=n: (torch.arange(n) * k,))
        for k, n in ((1, 3), (1, 4), (0, 3), (0, 5), (1, 2))
    ]
    return World(fn, sizes, messages=True)


@world(SMALLER)
def message_of_a_check_that_holds_is_never_made() -> World:
    made: list[int] = []

    def fn(x: Any) -> Any:
        n = x.sum().item()
        torch._check(n >= 0, lambda: f"{int(n)} {list(range(n))}")
        return x * 2

    return World(
        fn, [Call(lambda n=n: (torch.ones(n, dtype=torch.int64),)) for n in (3, 4, 5)], lambda: made
    )


@world(SMALLER)
def message_with_a_condition() -> World:
    def fn(x: Any) -> Any:
        n = x.sum().item()
        torch._check(n >= 0, lambda: "many" if n < -5 else "few")
        return x * 2

    return World(
        fn, [Call(lambda k=k: (torch.full((3,), k),)) for k in (2, 3, -1, -7)], messages=True
    )


@world(SMALLER)
def check_of_an_index() -> World:
    def fn(x: Any) -> Any:
        n = x.sum().item()
        torch._check_index(n >= 0, lambda: f"{n} is no index")
        return x * 2

    return World(
        fn, [Call(lambda k=k: (torch.full((3,), k),)) for k in (2, 3, -1, -7)], messages=True
    )


@world(SMALLER)
def check_of_a_value_of_a_size() -> World:
    def fn(x: Any, y: Any) -> Any:
        torch._check_value(
            x.shape[0] <= y.shape[0], lambda: f"{x.shape[0]} is more than {y.shape[0]}"
        )
        return x.sum() + y.sum()

    return _pairs(fn, (4, 4), (4, 6), (6, 5), (7, 3))


@world(SMALLER)
def message_of_a_key_error() -> World:
    def fn(x: Any) -> Any:
        return x * {3: 2, 4: 3}[x.shape[0]]

    return World(fn, [on(3), on(4), on(5), on(6)], messages=True)


@world(SMALLER)
def message_of_an_index_error() -> World:
    def fn(x: Any) -> Any:
        return x * [2, 3, 4, 5][x.shape[0]]

    return World(fn, [on(3), on(2), on(5), on(6)], messages=True)


@world(SMALLER)
def message_of_a_reshape() -> World:
    return World(lambda x: x.view(2, -1) * 2, [on(4), on(6), on(5), on(7)], messages=True)


@world(SMALLER)
def message_with_a_dtype() -> World:
    def fn(x: Any) -> Any:
        if x.shape[0] % 2:
            raise TypeError(f"{x.dtype} of {tuple(x.shape)} on {x.device}: {x.shape}")
        return x * 2

    return World(fn, [on(4), on(6), on(5), on(7)], messages=True)


@world(SMALLER)
def adaptive_pools() -> World:
    def fn(x: Any) -> Any:
        return (
            F.adaptive_avg_pool1d(x, 2),
            F.adaptive_max_pool1d(x, 1),
            F.avg_pool1d(x, 2, ceil_mode=True),
        )

    return World(fn, [on(1, 2, 5), on(1, 2, 6), on(2, 3, 7), on(1, 1, 3)], view=_to_three_digits)


@world(SMALLER)
def max_pool_of_other_layouts() -> World:
    def last(*sizes: int) -> Call:
        return Call(lambda: (values(*sizes).transpose(1, 2),))

    return World(
        lambda x: F.max_pool1d(x, 2, ceil_mode=True),
        [last(2, 5, 3), last(2, 6, 3), last(1, 7, 1), last(1, 3, 2)],
    )


@world(SMALLER)
def max_pool_2d_with_ceil_mode() -> World:
    def last(*sizes: int) -> Call:
        return Call(lambda: (values(*sizes).to(memory_format=torch.channels_last),))

    pool = nn.MaxPool2d(3, 2, 1, ceil_mode=True, return_indices=True)
    return World(pool, [on(1, 2, 5, 6), on(1, 2, 6, 7), last(2, 3, 7, 7), last(1, 1, 3, 4)])


@world(SMALLER)
def multihead_attention_with_masks() -> World:
    m = nn.MultiheadAttention(4, 2, batch_first=True).eval().requires_grad_(False)

    def fn(x: Any) -> Any:
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        return (
            m(x, x, x, attn_mask=mask),
            m(x, x, x, need_weights=False),
            m(x, x, x, average_attn_weights=False),
        )

    return World(fn, [on(2, 3, 4), on(2, 5, 4), on(3, 5, 4), on(1, 1, 4)], view=_to_three_digits)


@world(SMALLER)
def multihead_attention_of_other_values() -> World:
    m = nn.MultiheadAttention(4, 2, kdim=3, vdim=5, batch_first=True).eval()
    calls = [
        Call(lambda n=n: (values(2, n, 4), values(2, n + 1, 3), values(2, n + 1, 5)))
        for n in (2, 3, 5, 1)
    ]
    return World(m, calls, view=_to_three_digits)


@world(SMALLER)
def encoder_in_eval() -> World:
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    m = nn.TransformerEncoder(layer, 2).eval().requires_grad_(False)
    return World(m, [on(2, 3, 4), on(2, 5, 4), on(1, 5, 4)], view=_to_three_digits)


@world(SMALLER)
def recurrent_modules() -> World:
    gru, rnn = nn.GRU(3, 2, bidirectional=True), nn.RNN(3, 2, num_layers=2, batch_first=True)
    return World(
        lambda x: (gru(x), rnn(x)), [on(4, 2, 3), on(5, 2, 3), on(5, 1, 3)], view=_to_three_digits
    )


@world(SMALLER)
def layouts_of_products() -> World:
    def fn(x: Any) -> Any:
        return (
            x @ x.mT,
            torch.einsum("bij,bkj->bik", x, x),
            F.linear(x, x[0]),
            torch.bmm(x, x.transpose(1, 2)).mT,
        )

    return World(fn, [on(2, 3, 4), on(2, 5, 4), on(3, 1, 4), on(1, 1, 1)], view=_to_three_digits)


@world(SMALLER)
def layouts_of_reductions() -> World:
    def fn(x: Any) -> Any:
        return (
            x.sum((0, 2), keepdim=True),
            x.amax(1),
            x.mT.cumsum(1),
            x.sort(1),
            x.mT.topk(1),
            x.permute(2, 0, 1) * 2,
        )

    return World(fn, [on(2, 3, 4), on(2, 5, 4), on(3, 1, 4), on(1, 1, 1)], view=_to_three_digits)
