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
    """The layouts and the values of the last result, without the last bits, which fused kernels have of their own."""
    return pytree.tree_map_only(torch.Tensor, lambda t: (t.shape, t.stride(), (t * 1e3).round()), results[-1])


def _pairs(fn: Any, *sizes: tuple[int, int]) -> World:
    return World(fn, [Call(lambda a=a, b=b: (values(a), values(b))) for a, b in sizes], messages=True)


@world(SMALLER)
def message_of_a_check() -> World:
    def fn(x: Any, y: Any) -> Any:
        torch._check(x.shape[0] == y.shape[0], lambda: f"size mismatch: {x.shape[0]} != {y.shape[0]}")
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

    sizes = [Call(lambda k=k, n=n: (torch.full((n,), k),)) for k, n in ((2, 3), (2, 4), (-2, 3), (-2, 5))]
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
    return World(lambda x: m(x, x, x)[0], [on(2, 3, 4), on(2, 5, 4), on(3, 5, 4)], view=_to_three_digits)


@world(SMALLER)
def multihead_attention_in_eval_without_gradients() -> World:
    m = nn.MultiheadAttention(4, 2).eval().requires_grad_(False)
    return World(lambda x: m(x, x, x), [on(2, 3, 4), on(2, 5, 4), on(3, 5, 4)], view=_to_three_digits)


@world(SMALLER)
def encoder_layer_in_eval() -> World:
    m = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval().requires_grad_(False)
    return World(m, [on(2, 3, 4), on(2, 5, 4), on(1, 5, 4)], view=_to_three_digits)


@world(SMALLER)
def max_pool_with_ceil_mode() -> World:
    return World(
        lambda x: F.max_pool1d(x, 2, ceil_mode=True), [on(1, 2, 5), on(1, 2, 6), on(2, 3, 7), on(1, 1, 3), on(2, 2, 2)]
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

    return World(m, [last(2, 2, 3, 3), last(2, 2, 4, 3), last(1, 2, 3, 1), last(1, 2, 1, 1)], view=_to_three_digits)


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
