"""Recurrent nets, attention layers and scans."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tests.symshape.everyday.program import Arguments, Made, everyday, rows

Tensor = torch.Tensor
KIND = "recurrent"


def _steps_first(b: int, n: int) -> Arguments:
    return (torch.randn(n, b, 8),)


def _net(net: nn.Module, *, training: bool = False) -> Callable[..., Any]:
    """The net as a program; without gradients in evaluation."""
    net.train(training)
    return net if training else torch.no_grad()(net.forward)


@everyday(KIND)
def lstm() -> Made:
    return _net(nn.LSTM(8, 6)), _steps_first


@everyday(KIND)
def lstm_batch_first() -> Made:
    return _net(nn.LSTM(8, 6, batch_first=True)), rows


@everyday(KIND)
def lstm_training() -> Made:
    return _net(nn.LSTM(8, 6, batch_first=True), training=True), rows


@everyday(KIND)
def lstm_of_two_layers_both_ways() -> Made:
    return _net(nn.LSTM(8, 6, num_layers=2, bidirectional=True, batch_first=True)), rows


@everyday(KIND)
def lstm_of_two_layers_both_ways_training() -> Made:
    return _net(
        nn.LSTM(8, 6, num_layers=2, bidirectional=True, dropout=0.5), training=True
    ), _steps_first


@everyday(KIND)
def lstm_projected() -> Made:
    return _net(nn.LSTM(8, 6, proj_size=4, num_layers=2, bidirectional=True)), _steps_first


@everyday(KIND)
def lstm_with_states() -> Made:
    def states(b: int, n: int) -> Arguments:
        return torch.randn(b, n, 8), (torch.randn(1, b, 6), torch.randn(1, b, 6))

    return _net(nn.LSTM(8, 6, batch_first=True)), states


@everyday(KIND)
def lstm_of_one_sequence() -> Made:
    return _net(nn.LSTM(8, 6)), lambda b, n: (torch.randn(n, 8),)


@everyday(KIND)
def lstm_of_doubles() -> Made:
    return _net(nn.LSTM(8, 6).double()), lambda b, n: (torch.randn(n, b, 8, dtype=torch.double),)


@everyday(KIND)
def gru() -> Made:
    return _net(nn.GRU(8, 6)), _steps_first


@everyday(KIND)
def gru_training() -> Made:
    return _net(nn.GRU(8, 6, batch_first=True), training=True), rows


@everyday(KIND)
def gru_of_two_layers_both_ways() -> Made:
    return _net(nn.GRU(8, 6, num_layers=2, bidirectional=True, batch_first=True, dropout=0.5)), rows


@everyday(KIND)
def gru_without_bias() -> Made:
    return _net(nn.GRU(8, 6, bias=False)), _steps_first


@everyday(KIND)
def rnn_tanh() -> Made:
    return _net(nn.RNN(8, 6, batch_first=True)), rows


@everyday(KIND)
def rnn_relu_both_ways_training() -> Made:
    return _net(nn.RNN(8, 6, nonlinearity="relu", bidirectional=True), training=True), _steps_first


@everyday(KIND)
def lstm_cell() -> Made:
    return _net(nn.LSTMCell(8, 6)), lambda b, n: (
        torch.randn(b, 8),
        (torch.randn(b, 6), torch.randn(b, 6)),
    )


@everyday(KIND)
def lstm_cell_training() -> Made:
    return _net(nn.LSTMCell(8, 6), training=True), lambda b, n: (torch.randn(b, 8),)


@everyday(KIND)
def gru_cell() -> Made:
    return _net(nn.GRUCell(8, 6)), lambda b, n: (torch.randn(b, 8), torch.randn(b, 6))


@everyday(KIND)
def gru_cell_training() -> Made:
    return _net(nn.GRUCell(8, 6), training=True), lambda b, n: (torch.randn(b, 8),)


@everyday(KIND)
def rnn_cell() -> Made:
    return _net(nn.RNNCell(8, 6)), lambda b, n: (torch.randn(b, 8), torch.randn(b, 6))


@everyday(KIND)
def rnn_cell_relu() -> Made:
    return _net(nn.RNNCell(8, 6, nonlinearity="relu")), lambda b, n: (torch.randn(b, 8),)


@everyday(KIND, "b")
def gru_cell_in_a_loop() -> Made:
    cell = nn.GRUCell(8, 6)

    def run(x: Tensor) -> Tensor:
        state = x.new_zeros(x.size(0), 6)
        for t in range(x.size(1)):
            state = cell(x[:, t], state)
        return state

    return torch.no_grad()(run), rows


@everyday(KIND)
def encoder_and_classes() -> Made:
    embed, net, head = (
        nn.Embedding(20, 8),
        nn.LSTM(8, 6, batch_first=True, bidirectional=True),
        nn.Linear(12, 3),
    )

    def run(ids: Tensor) -> Tensor:
        found, _ = net(embed(ids))
        return head(found[:, -1])

    return torch.no_grad()(run), lambda b, n: (torch.randint(20, (b, n)),)


def _lengths(b: int, n: int) -> Tensor:
    return torch.tensor([n, *(1 + (i * 2) % n for i in range(b - 1))]).sort(descending=True).values


@everyday(KIND)
def packed() -> Made:
    def run(x: Tensor, lengths: Tensor) -> Any:
        return pack_padded_sequence(x, lengths, batch_first=True).data * 2

    return run, lambda b, n: (torch.randn(b, n, 8), _lengths(b, n))


@everyday(KIND)
def packed_and_padded() -> Made:
    def run(x: Tensor, lengths: Tensor) -> Any:
        return pad_packed_sequence(
            pack_padded_sequence(x, lengths, batch_first=True), batch_first=True
        )

    return run, lambda b, n: (torch.randn(b, n, 8), _lengths(b, n))


def _through(net: nn.Module, *, ordered: bool) -> Callable[..., Any]:
    def run(x: Tensor, lengths: Tensor) -> Any:
        found, states = net(
            pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=ordered)
        )
        padded, again = pad_packed_sequence(found, batch_first=True, total_length=x.size(1))
        return padded + 1, again, states

    return run


@everyday(KIND)
def lstm_of_packed() -> Made:
    run = torch.no_grad()(_through(nn.LSTM(8, 6, batch_first=True), ordered=True))
    return run, lambda b, n: (torch.randn(b, n, 8), _lengths(b, n))


@everyday(KIND)
def gru_of_packed_in_any_order_training() -> Made:
    run = _through(nn.GRU(8, 6, batch_first=True, bidirectional=True), ordered=False)
    return run, lambda b, n: (torch.randn(b, n, 8), _lengths(b, n).flip(0))


@everyday(KIND)
def padded_from_a_list() -> Made:
    def run(x: Tensor, y: Tensor) -> Tensor:
        return nn.utils.rnn.pad_sequence([x, y], batch_first=True)

    return run, lambda b, n: (torch.randn(b, 8), torch.randn(b + n, 8))


@everyday(KIND)
def attention() -> Made:
    net = nn.MultiheadAttention(8, 2, batch_first=True)
    net.eval()
    return torch.no_grad()(lambda x: net(x, x, x)), rows


@everyday(KIND)
def attention_without_weights() -> Made:
    net = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    return torch.no_grad()(lambda x: net(x, x, x, need_weights=False)[0]), rows


@everyday(KIND)
def attention_with_padding_mask() -> Made:
    net = nn.MultiheadAttention(8, 2, batch_first=True).eval()

    def make(b: int, n: int) -> Arguments:
        return torch.randn(b, n, 8), torch.arange(n) >= _lengths(b, n)[:, None]

    return torch.no_grad()(lambda x, mask: net(x, x, x, key_padding_mask=mask)), make


@everyday(KIND)
def attention_across_training() -> Made:
    net = nn.MultiheadAttention(8, 2, kdim=4, vdim=4, add_bias_kv=True, add_zero_attn=True)
    return lambda x, y: net(x, y, y), lambda b, n: (torch.randn(n, b, 8), torch.randn(n + 2, b, 4))


@everyday(KIND)
def transformer_layer() -> Made:
    return _net(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)), rows


@everyday(KIND)
def transformer_layer_training() -> Made:
    return _net(nn.TransformerEncoderLayer(8, 2, 16, norm_first=True), training=True), _steps_first


@everyday(KIND)
def transformer_encoder() -> Made:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return _net(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)), rows


@everyday(KIND)
def transformer_encoder_with_causal_mask() -> Made:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    net = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()

    def run(x: Tensor) -> Tensor:
        return net(
            x, mask=nn.Transformer.generate_square_subsequent_mask(x.size(1)), is_causal=True
        )

    return torch.no_grad()(run), rows


@everyday(KIND)
def transformer_decoder_with_a_mask() -> Made:
    layer = nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    net = nn.TransformerDecoder(layer, 1)

    def run(x: Tensor) -> Tensor:
        return net(x, x, tgt_mask=nn.Transformer.generate_square_subsequent_mask(x.size(1)))

    return run, rows


@everyday(KIND)
def transformer() -> Made:
    net = nn.Transformer(8, 2, 1, 1, 16, batch_first=True).eval()
    return torch.no_grad()(net.forward), lambda b, n: (
        torch.randn(b, n, 8),
        torch.randn(b, n + 2, 8),
    )


@everyday(KIND)
def cond_on_a_size() -> Made:
    def run(x: Tensor) -> Tensor:
        return torch.cond(x.size(0) > 1, lambda t: t * 2, lambda t: t + 1, (x,))

    return run, rows


@everyday(KIND)
def cond_on_data() -> Made:
    def run(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda t: t * 2, lambda t: t + 1, (x,))

    return run, rows


@everyday(KIND)
def scan() -> Made:
    from torch._higher_order_ops.scan import scan as torch_scan

    def run(x: Tensor) -> Any:
        return torch_scan(
            lambda carry, each: (carry + each, carry * each), torch.zeros_like(x[0]), x, dim=0
        )

    return run, rows


@everyday(KIND)
def associative_scan() -> Made:
    from torch._higher_order_ops.associative_scan import associative_scan as torch_scan

    return lambda x: torch_scan(lambda a, b: a + b, x, dim=1, combine_mode="generic"), rows
