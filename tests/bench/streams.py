"""Streams of calls whose sizes differ: the models, the sizes that come, and what an expert's
buckets need to know.

A stream is what a benchmark runs: ``arguments(sizes)`` makes a call of these sizes; ``buckets`` has
what is written by hand for it: the sizes of the bucket, the function that runs in it, and which
part of its results is valid.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import torch
import torch.nn.functional as F
from torch import nn

from tests.bench.report import NotHere

Sizes = tuple[int, ...]
Tensors = tuple[torch.Tensor, ...]
Call = Callable[..., Tensors]
BATCHES = (1, 2, 3, 4, 5, 6, 8)


@attrs.frozen
class Buckets:
    """What an expert writes to pad a model by hand.

    Attributes:
        capped: the sizes of the bucket of a call.
        arguments: buffers of a bucket, given its sizes.
        place: the parts of the buffers, given them and a call's sizes, that the call's arguments
            are copied to.
        finish: what else has to be written to the buffers for a call of some sizes.
        run: the function on the buffers.
        cut: the valid part of its results.
    """

    capped: Callable[[Sizes], Sizes]
    arguments: Callable[[Sizes], Tensors]
    place: Callable[[Tensors, Sizes], Tensors]
    run: Call
    cut: Callable[[Tensors, Sizes], Tensors]
    finish: Callable[[Tensors, Sizes], None] = lambda buffers, sizes: None


@attrs.frozen
class Stream:
    """A model and the calls that it gets.

    Attributes:
        run: the model, or a whole step of training.
        sizes: draws the sizes of a call.
        arguments: makes the arguments of a call.
        buckets: by hand; None where nobody could write them (data decides on sizes), or nobody did.
        near: which of the sizes gives way where sizes are not to repeat.
        trains: whether a call is a step of training, which computes gradients and changes the
            model.
        around: from ``run``, compiled or not, to what a call runs: a step around a loss, say.
    """

    run: Call
    sizes: Callable[[random.Random], Sizes]
    arguments: Callable[[Sizes], Tensors]
    buckets: Buckets | None
    near: int = -1
    trains: bool = False
    around: Callable[[Call], Call] = lambda run: run

    def draw(self, count: int, rng: random.Random, seen: set[Sizes]) -> list[Sizes]:
        """Sizes that are not among those seen, which they join; the number ``near`` of them gives
        way.
        """
        found = []
        for _ in range(count):
            sizes = self.sizes(rng)
            step = 1
            while sizes in seen:
                moved = list(sizes)
                moved[self.near] += step
                sizes = tuple(moved)
            seen.add(sizes)
            found.append(sizes)
        return found


def step_up(value: int) -> int:
    """Two steps for each doubling from 16 on, and every power of two below."""
    power = 1 << max(value - 1, 0).bit_length()
    return power * 3 // 4 if value > 16 and value <= power * 3 // 4 else power


def language_sizes(
    longest: int, middle: float = 4.6, spread: float = 0.9
) -> Callable[[random.Random], Sizes]:
    """Batch and length; lengths are log-normal."""

    def sizes(rng: random.Random) -> Sizes:
        length = round(math.exp(rng.gauss(middle, spread)))
        return rng.choice(BATCHES), min(max(length, 2), longest)

    return sizes


def narrowed(tensors: Tensors, sizes: Sizes) -> Tensors:
    """The first of each tensor, as far as the sizes name dimensions."""
    found = []
    for tensor in tensors:
        for dim, size in enumerate(sizes[: tensor.dim()]):
            tensor = tensor.narrow(dim, 0, size)
        found.append(tensor)
    return tuple(found)


def make(name: str, device: torch.device, *, tiny: bool) -> Stream:
    """The stream of a name.

    Raises: NotHere if a library that it needs is not installed.
    """
    torch.manual_seed(0)
    from tests.bench.training_streams import TRAINING  # it imports from here

    found = (STREAMS | WITHOUT_BUCKETS | TRAINING)[name]
    return found(device, torch.float32 if device.type == "cpu" else torch.bfloat16, tiny)


def transformers() -> Any:
    """Return the library; raise NotHere where it is not installed."""
    try:
        import transformers as found
    except ImportError:
        raise NotHere("needs transformers") from None
    found.logging.set_verbosity_error()
    return found


def llama(device: torch.device, dtype: torch.dtype, tiny: bool) -> Stream:
    """A decoder over whole texts: causal attention, logits of every token."""
    hf = transformers()
    width, layers, words = (32, 2, 64) if tiny else (512, 6, 8192)
    config = hf.LlamaConfig(
        vocab_size=words,
        hidden_size=width,
        intermediate_size=width * 8 // 3,
        num_hidden_layers=layers,
        num_attention_heads=8,
        num_key_value_heads=8 if not tiny else 4,
        max_position_embeddings=2048,
    )
    model = hf.LlamaForCausalLM(config).eval().to(device, dtype)

    def run(tokens: torch.Tensor) -> Tensors:
        return (model(input_ids=tokens, use_cache=False).logits,)

    def arguments(sizes: Sizes) -> Tensors:
        return (torch.randint(0, words, sizes, device=device),)

    def capped(sizes: Sizes) -> Sizes:
        return step_up(sizes[0]), step_up(max(sizes[1], 16))

    return Stream(
        run,
        language_sizes(40 if tiny else 1024),
        arguments,
        Buckets(capped, arguments, narrowed, run, narrowed),
    )


def bert(device: torch.device, dtype: torch.dtype, tiny: bool, *, masked: bool = False) -> Stream:
    """A bidirectional encoder, with or without a padding mask of the user's; by hand, buckets need
    a mask anyway.
    """
    hf = transformers()
    width, layers, words = (32, 2, 64) if tiny else (512, 6, 8192)
    config = hf.BertConfig(
        vocab_size=words,
        hidden_size=width,
        intermediate_size=width * 4,
        num_hidden_layers=layers,
        num_attention_heads=8,
        max_position_embeddings=1024,
    )
    model = hf.BertModel(config, add_pooling_layer=False).eval().to(device, dtype)

    def run(tokens: torch.Tensor, keep: torch.Tensor | None = None) -> Tensors:
        return (model(input_ids=tokens, attention_mask=keep).last_hidden_state,)

    def arguments(sizes: Sizes) -> Tensors:
        tokens = torch.randint(0, words, sizes, device=device)
        if not masked:
            return (tokens,)
        lengths = torch.randint(1, sizes[1] + 1, (sizes[0], 1), device=device)
        return tokens, (torch.arange(sizes[1], device=device) < lengths).long()

    def blank(sizes: Sizes) -> Tensors:
        return tuple(torch.zeros(sizes, dtype=torch.int64, device=device) for _ in range(2))

    def place(buffers: Tensors, sizes: Sizes) -> Tensors:
        return narrowed(buffers if masked else buffers[:1], sizes)

    def finish(buffers: Tensors, sizes: Sizes) -> None:
        keep = buffers[1]
        if not masked:
            keep[:, : sizes[1]].fill_(1)
        keep[:, sizes[1] :].zero_()

    def capped(sizes: Sizes) -> Sizes:
        return step_up(sizes[0]), step_up(max(sizes[1], 16))

    buckets = Buckets(capped, blank, place, run, narrowed, finish)
    return Stream(run, language_sizes(40 if tiny else 512), arguments, buckets)


def masked_bert(device: torch.device, dtype: torch.dtype, tiny: bool) -> Stream:
    """The encoder with a padding mask."""
    return bert(device, dtype, tiny, masked=True)


def vit(device: torch.device, dtype: torch.dtype, tiny: bool) -> Stream:
    """A vision transformer over images of any size; by hand, only the batch can be padded."""
    hf = transformers()
    width, layers, patch = (32, 2, 8) if tiny else (384, 6, 16)
    config = hf.ViTConfig(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        intermediate_size=width * 4,
        image_size=14 * patch,
        patch_size=patch,
    )
    model = hf.ViTModel(config, add_pooling_layer=False).eval().to(device, dtype)

    def run(images: torch.Tensor) -> Tensors:
        return (model(pixel_values=images, interpolate_pos_encoding=True).last_hidden_state,)

    def sizes(rng: random.Random) -> Sizes:
        rows, columns = (rng.randint(2, 5) if tiny else rng.randint(8, 24) for _ in range(2))
        return rows * patch, columns * patch, rng.choice(BATCHES)

    def arguments(sizes: Sizes) -> Tensors:
        return (torch.randn(sizes[2], 3, *sizes[:2], device=device, dtype=dtype),)

    def capped(sizes: Sizes) -> Sizes:
        return sizes[0], sizes[1], step_up(sizes[2])

    def cut(tensors: Tensors, sizes: Sizes) -> Tensors:
        return narrowed(tensors, sizes[2:])

    return Stream(run, sizes, arguments, Buckets(capped, arguments, cut, run, cut))


class Recogniser(nn.Module):
    """Convolutions over time that keep beyond each length silent, a GRU, and scores of characters
    for each frame.
    """

    def __init__(self, bands: int, width: int, layers: int) -> None:
        super().__init__()
        self.first = nn.Conv1d(bands, width, 5, 2, 2)
        self.second = nn.Conv1d(width, width, 5, 2, 2)
        self.gru = nn.GRU(width, width, layers, batch_first=True)
        self.scores = nn.Linear(width, 32)

    def forward(self, sound: torch.Tensor, lengths: torch.Tensor) -> Tensors:
        """``sound`` (batch, bands, frames) and how many frames of each are valid; scores (batch,
        frames / 4, 32).
        """
        for layer in (self.first, self.second):
            sound = layer(sound).relu()
            lengths = (lengths + 1) // 2
            keep = torch.arange(sound.shape[2], device=sound.device) < lengths[:, None]
            sound = sound * keep[:, None]
        frames, _ = self.gru(sound.transpose(1, 2))
        return (F.log_softmax(self.scores(frames).float(), -1) * keep[..., None],)


def speech(device: torch.device, dtype: torch.dtype, tiny: bool) -> Stream:
    """Speech of any length: convolutions and a GRU, with the length of each recording."""
    bands, width, layers = (8, 16, 1) if tiny else (80, 512, 3)
    model = Recogniser(bands, width, layers).eval().to(device, dtype)

    def run(sound: torch.Tensor, lengths: torch.Tensor) -> Tensors:
        found: Tensors = model(sound, lengths)
        return found

    def arguments(sizes: Sizes) -> Tensors:
        lengths = torch.randint(1, sizes[1] + 1, (sizes[0],), device=device)
        return torch.randn(sizes[0], bands, sizes[1], device=device, dtype=dtype), lengths

    def capped(sizes: Sizes) -> Sizes:
        return step_up(sizes[0]), step_up(max(sizes[1], 64))

    def place(buffers: Tensors, sizes: Sizes) -> Tensors:
        return buffers[0][: sizes[0], :, : sizes[1]], buffers[1][: sizes[0]]

    def finish(buffers: Tensors, sizes: Sizes) -> None:
        buffers[0][:, :, sizes[1] :].zero_()

    def cut(tensors: Tensors, sizes: Sizes) -> Tensors:
        return (tensors[0][: sizes[0], : (sizes[1] + 3) // 4],)

    shortest, longest, middle = (8, 24, 2.6) if tiny else (64, 1600, 5.5)

    def sizes(rng: random.Random) -> Sizes:
        frames = round(math.exp(rng.gauss(middle, 0.6)))
        return rng.choice(BATCHES), min(max(frames, shortest), longest)

    return Stream(run, sizes, arguments, Buckets(capped, arguments, place, run, cut, finish))


class Decoder(nn.Module):
    """One step of a decoder: a token a sequence, keys and values of those before; what is new is
    answered.
    """

    def __init__(self, width: int, heads: int, layers: int, words: int) -> None:
        super().__init__()
        self.heads = heads
        self.words = nn.Embedding(words, width)
        self.qkv = nn.ModuleList(nn.Linear(width, 3 * width, bias=False) for _ in range(layers))
        self.out = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(layers))
        self.up = nn.ModuleList(nn.Linear(width, 4 * width, bias=False) for _ in range(layers))
        self.down = nn.ModuleList(nn.Linear(4 * width, width, bias=False) for _ in range(layers))
        self.norms = nn.ModuleList(nn.RMSNorm(width, eps=1e-6) for _ in range(2 * layers + 1))

    def forward(
        self, tokens: torch.Tensor, past: torch.Tensor, mask: torch.Tensor | None = None
    ) -> Tensors:
        """``past`` (layers, 2, batch, heads, length, width); logits and the new (layers, 2, batch,
        heads, 1, width).
        """
        batch = tokens.shape[0]
        x = self.words(tokens)
        new = []
        for i, (qkv, out, up, down) in enumerate(
            zip(self.qkv, self.out, self.up, self.down, strict=True)
        ):
            q, k, v = qkv(self.norms[2 * i](x)).view(batch, 3, self.heads, 1, -1).unbind(1)
            keys, values = torch.cat((past[i, 0], k), 2), torch.cat((past[i, 1], v), 2)
            y = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
            x = x + out(y.reshape(batch, -1))
            x = x + down(F.silu(up(self.norms[2 * i + 1](x))))
            new.append(torch.stack((k, v)))
        return F.linear(self.norms[-1](x), self.words.weight), torch.stack(new)


def decode(device: torch.device, dtype: torch.dtype, tiny: bool) -> Stream:
    """Steps of decoding: requests come and go (the batch), and the cache grows."""
    width, heads, layers, words = (32, 4, 2, 64) if tiny else (512, 8, 6, 8192)
    model = Decoder(width, heads, layers, words).eval().to(device, dtype)

    def run(tokens: torch.Tensor, past: torch.Tensor, mask: torch.Tensor | None = None) -> Tensors:
        found: Tensors = model(tokens, past, mask)
        return found

    def arguments(sizes: Sizes) -> Tensors:
        shape = (layers, 2, sizes[0], heads, sizes[1], width // heads)
        return torch.randint(0, words, sizes[:1], device=device), torch.randn(
            shape, device=device, dtype=dtype
        )

    def blank(sizes: Sizes) -> Tensors:
        return *arguments(sizes), torch.zeros(1, 1, 1, sizes[1] + 1, device=device, dtype=dtype)

    def place(buffers: Tensors, sizes: Sizes) -> Tensors:
        return buffers[0][: sizes[0]], buffers[1][:, :, : sizes[0], :, : sizes[1]]

    def finish(buffers: Tensors, sizes: Sizes) -> None:
        buffers[2].zero_()
        buffers[2][..., sizes[1] : -1].fill_(-math.inf)

    def cut(tensors: Tensors, sizes: Sizes) -> Tensors:
        return tensors[0][: sizes[0]], tensors[1][:, :, : sizes[0]]

    def capped(sizes: Sizes) -> Sizes:
        return step_up(sizes[0]), step_up(max(sizes[1], 64))

    steps = _Growth(20 if tiny else 1000, 4 if tiny else 64)
    return Stream(run, steps, arguments, Buckets(capped, blank, place, run, cut, finish))


class Detector(nn.Module):
    """An encoder over all tokens, and a second stage over those that it finds: how many, data
    decides.
    """

    def __init__(self, width: int, layers: int, words: int) -> None:
        super().__init__()
        kept = torch.ones(words, 1)
        kept[::4] = -1.0
        self.words = nn.Embedding(words, width)
        self.register_buffer("kept", kept)
        self.encoder = nn.ModuleList(Layer(width) for _ in range(layers))
        self.second = nn.ModuleList(Layer(width) for _ in range(layers))
        self.boxes = nn.Linear(width, 5)

    def forward(self, tokens: torch.Tensor) -> Tensors:
        """``tokens`` (batch, length); boxes (found, 5), and where they were found (found, 2)."""
        x = self.words(tokens)
        for layer in self.encoder:
            x = layer(x)
        score = F.embedding(tokens, self.kept)[..., 0] - 1e-3 * x[..., 0].tanh()
        found = (score < 0).nonzero()
        y = x[found[:, 0], found[:, 1]][None]
        for layer in self.second:
            y = layer(y)
        return self.boxes(y[0]), found


class Layer(nn.Module):
    """Bidirectional attention and a feed-forward net, with residuals."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``x`` (batch, length, width)."""
        q, k, v = self.qkv(self.norms[0](x)).unflatten(-1, (3, 8, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        mixed: torch.Tensor = x + self.down(F.gelu(self.up(self.norms[1](x))))
        return mixed


def detect(device: torch.device, dtype: torch.dtype, tiny: bool) -> Stream:
    """A detector of two stages, about a quarter of the tokens in the second."""
    width, layers, words = (32, 2, 64) if tiny else (512, 6, 8192)
    model = Detector(width, layers, words).eval().to(device, dtype)

    def run(tokens: torch.Tensor) -> Tensors:
        found: Tensors = model(tokens)
        return found

    def arguments(sizes: Sizes) -> Tensors:
        return (torch.randint(0, words, sizes, device=device),)

    return Stream(run, language_sizes(40 if tiny else 512), arguments, None)


class _Growth:
    """Batch and cache length from step to step: the cache grows by one, requests come and go; then
    another prompt.
    """

    def __init__(self, longest: int, widest: int) -> None:
        self.longest, self.widest = longest, widest
        self.batch = self.length = 0

    def __call__(self, rng: random.Random) -> Sizes:
        if not self.batch or rng.random() < 0.05:
            self.batch, self.length = rng.randint(1, self.widest), rng.randint(4, self.longest)
        self.length += 1
        self.batch = min(max(self.batch + rng.choice((-2, -1, 0, 0, 1, 2)), 1), self.widest)
        return self.batch, self.length


class MessagePassing(nn.Module):
    """Three rounds of messages over the edges of a batch of graphs, and a mean over the nodes of
    each graph.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(16, width)
        self.rounds = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(3))
        self.last = nn.Linear(width, 1)

    def forward(
        self, nodes: torch.Tensor, edges: torch.Tensor, graph_of: torch.Tensor, graphs: int
    ) -> Tensors:
        """``nodes`` (nodes, 16), ``edges`` (2, edges), ``graph_of`` (nodes,); a number for each
        graph.
        """
        x = self.first(nodes)
        for each in self.rounds:
            sent = torch.zeros_like(x).index_add(0, edges[1], x[edges[0]])
            x = F.relu(each(torch.cat([x, sent], 1)))
        zeros = torch.zeros(graphs, x.shape[1], device=x.device, dtype=x.dtype)
        count = torch.zeros(graphs, device=x.device, dtype=x.dtype).index_add(
            0, graph_of, torch.ones_like(x[:, 0])
        )
        mean = zeros.index_add(0, graph_of, x) / count.clamp(min=1)[:, None]
        return (self.last(mean),)


def graphs(device: torch.device, dtype: torch.dtype, tiny: bool) -> Stream:
    """Batches of graphs: nodes, edges and graphs vary, and the number of graphs is an integer
    argument.
    """
    model = MessagePassing(16 if tiny else 128).eval().to(device)

    def run(
        nodes: torch.Tensor, edges: torch.Tensor, graph_of: torch.Tensor, graphs: int
    ) -> Tensors:
        found: Tensors = model(nodes, edges, graph_of, graphs)
        return found

    def sizes(rng: random.Random) -> Sizes:
        count = rng.randint(2, 4) if tiny else rng.randint(8, 40)
        nodes = sum(rng.randint(10, 50) for _ in range(count))
        return count, nodes, nodes * 2 + rng.randint(0, nodes * 2)

    def arguments(sizes: Sizes) -> Any:
        edges = torch.randint(0, sizes[1], (2, sizes[2]), device=device)
        graph_of = torch.randint(0, sizes[0], (sizes[1],), device=device)
        return torch.randn(sizes[1], 16, device=device), edges, graph_of, sizes[0]

    return Stream(run, sizes, arguments, None)


class UNet(nn.Module):
    """A small U-Net of a diffusion model: residual blocks with group norm, two resolutions,
    attention at the lower.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.enter = nn.Conv2d(4, width, 3, padding=1)
        self.blocks = nn.ModuleList(_Block(width) for _ in range(6))
        self.down, self.up = nn.Conv2d(width, width, 3, 2, 1), nn.Conv2d(width, width, 3, padding=1)
        self.norm, self.qkv, self.out = (
            nn.GroupNorm(8, width),
            nn.Linear(width, 3 * width),
            nn.Linear(width, width),
        )
        self.leave = nn.Conv2d(width, 4, 3, padding=1)

    def forward(self, x: torch.Tensor) -> Tensors:
        """``x`` (batch, 4, rows, columns); the same sizes."""
        x = self.enter(x)
        for block in self.blocks[:2]:
            x = block(x)
        y = self.down(x)
        for block in self.blocks[2:4]:
            y = block(y)
        q, k, v = (
            self.qkv(self.norm(y).flatten(2).transpose(1, 2))
            .unflatten(-1, (3, 4, -1))
            .permute(2, 0, 3, 1, 4)
        )
        mixed = self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        y = y + mixed.transpose(1, 2).unflatten(2, y.shape[2:])
        x = x + self.up(F.interpolate(y, size=x.shape[2:], mode="nearest"))
        for block in self.blocks[4:]:
            x = block(x)
        return (self.leave(x),)


class _Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.GroupNorm(8, width) for _ in range(2))
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x
        for norm, conv in zip(self.norms, self.convs, strict=True):
            y = conv(F.silu(norm(y)))
        return x + y


def unet(device: torch.device, dtype: torch.dtype, tiny: bool) -> Stream:
    """A denoising step at any resolution."""
    model = UNet(16 if tiny else 128).eval().to(device, dtype)

    def run(x: torch.Tensor) -> Tensors:
        found: Tensors = model(x)
        return found

    def sizes(rng: random.Random) -> Sizes:
        rows, columns = (2 * (rng.randint(2, 8) if tiny else rng.randint(8, 48)) for _ in range(2))
        return rows, columns, rng.choice((1, 2, 4))

    def arguments(sizes: Sizes) -> Tensors:
        return (torch.randn(sizes[2], 4, *sizes[:2], device=device, dtype=dtype),)

    return Stream(run, sizes, arguments, None, near=2)


def t5(device: torch.device, dtype: torch.dtype, tiny: bool) -> Stream:
    """An encoder and a decoder, both of varying length."""
    hf = transformers()
    width, layers, words = (32, 2, 64) if tiny else (512, 6, 8192)
    config = hf.T5Config(
        vocab_size=words,
        d_model=width,
        d_ff=4 * width,
        num_layers=layers,
        num_heads=8,
        d_kv=width // 8,
        use_cache=False,
    )
    model = hf.T5ForConditionalGeneration(config).eval().to(device, dtype)

    def run(source: torch.Tensor, target: torch.Tensor) -> Tensors:
        return (model(input_ids=source, decoder_input_ids=target).logits,)

    draw = language_sizes(40 if tiny else 512)

    def sizes(rng: random.Random) -> Sizes:
        batch, length = draw(rng)
        return batch, length, draw(rng)[1]

    def arguments(sizes: Sizes) -> Tensors:
        return tuple(torch.randint(0, words, (sizes[0], each), device=device) for each in sizes[1:])

    return Stream(run, sizes, arguments, None)


def mixtral(device: torch.device, dtype: torch.dtype, tiny: bool) -> Stream:
    """A decoder with experts over whole texts: data decides how many tokens each expert gets."""
    hf = transformers()
    width, layers, words = (32, 2, 64) if tiny else (512, 4, 8192)
    config = hf.MixtralConfig(
        vocab_size=words,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=8,
        num_key_value_heads=4,
        num_local_experts=8,
        num_experts_per_tok=2,
    )
    model = hf.MixtralForCausalLM(config).to(device, dtype).eval()

    def run(tokens: torch.Tensor) -> Tensors:
        return (model(input_ids=tokens, use_cache=False).logits,)

    def arguments(sizes: Sizes) -> Tensors:
        return (torch.randint(0, words, sizes, device=device),)

    return Stream(run, language_sizes(20 if tiny else 512), arguments, None)


STREAMS: dict[str, Callable[[torch.device, torch.dtype, bool], Stream]] = {
    "llama": llama,
    "bert": bert,
    "bert_mask": masked_bert,
    "vit": vit,
    "speech": speech,
    "decode": decode,
    "detect": detect,
}
WITHOUT_BUCKETS: dict[str, Callable[[torch.device, torch.dtype, bool], Stream]] = {
    "graphs": graphs,
    "unet": unet,
    "t5": t5,
    "mixtral": mixtral,
}
"""Streams for which nobody wrote buckets by hand."""


def flat(result: Any) -> Sequence[torch.Tensor]:
    """The tensors of a result."""
    leaves: Sequence[torch.Tensor] = torch.utils._pytree.tree_leaves(result)
    return leaves
