"""Masks of torch's own transformers: whether one is causal is a hint; no branch depends on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import symshape

_SIZES = ((2, 5), (3, 4), (1, 7), (4, 1), (3, 2))


def _causal(x: Tensor) -> Tensor:
    return nn.Transformer.generate_square_subsequent_mask(x.size(1))


_MASKS: dict[str, Callable[[Tensor], Tensor]] = {
    "causal": _causal,
    "causal, of booleans": lambda x: _causal(x) < 0,
    "a window": lambda x: _causal(x) + torch.where(_causal(x).t() < 0, -1.0, 0.0),
    "a window, of booleans": lambda x: torch.ones(x.size(1), x.size(1)).bool().triu(2),
    "one a row": lambda x: _causal(x).expand(x.size(0) * 2, -1, -1),
}


def _layers(kind: str) -> tuple[nn.Module, Callable[[nn.Module, Tensor, Tensor], Tensor]]:
    if kind == "encoder":
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        net: Any = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        return net, lambda net, x, mask: net(x, mask=mask)
    if kind == "decoder":
        part = nn.TransformerDecoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        return nn.TransformerDecoder(part, 2), lambda net, x, mask: net(x, x, tgt_mask=mask)
    net = nn.Transformer(8, 2, 1, 1, 16, dropout=0.1, batch_first=True)
    return net, lambda net, x, mask: net(x, x, src_mask=mask, tgt_mask=mask)


@pytest.mark.parametrize(
    ("kind", "mask", "given"),
    [
        *(("encoder", mask, True) for mask in _MASKS),
        *(("decoder", mask, False) for mask in _MASKS),
        ("decoder", "causal", True),
        ("both", "causal", False),
    ],
)
def test_a_mask_is_used_as_it_is(kind: str, mask: str, given: bool) -> None:
    torch.manual_seed(0)
    (net, call), make = _layers(kind), _MASKS[mask]
    fn = (lambda x, m: call(net, x, m)) if given else (lambda x: call(net, x, make(x)))
    fast = symshape.compile(fn, fullgraph=True)
    for rows, length in _SIZES:
        x = torch.randn(rows, length, 8)
        args, results = (x, make(x)) if given else (x,), []
        for each in (fn, fast):
            torch.manual_seed(rows)
            net.zero_grad()
            y = each(*args)
            y.square().sum().backward()
            gradients = [p.grad for p in net.parameters()]
            results.append((y.detach(), *[g.clone() for g in gradients if g is not None]))
        torch.testing.assert_close(*results)
    assert fast.stats().traces <= 4


class _Custom(nn.TransformerEncoderLayer):
    """A layer that takes the hint for the mask."""

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        return src.cumsum(1) if is_causal else src.sum(1, keepdim=True).expand_as(src)


@pytest.mark.filterwarnings("ignore:.*cannot be traced:symshape.FallbackWarning")
def test_a_layer_of_the_users_own_gets_the_answer() -> None:
    layer = _Custom(8, 2, 16, batch_first=True)
    net = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    for fn in (
        lambda x, m: net(x, mask=m),
        lambda x, m: net(x, mask=_causal(x)),
    ):
        fast = symshape.compile(fn)
        for length in (5, 3, 4):
            x = torch.randn(2, length, 8)
            for mask in (_causal(x), torch.zeros(length, length)):
                torch.testing.assert_close(fast(x, mask), fn(x, mask))
