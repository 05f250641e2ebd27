"""Networks as people write them by hand, without transformers: vision in torchvision's manner."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.sweep.judging import Architecture


class Residual(nn.Module):
    """The input and what is made of it."""

    def __init__(self, *inner: nn.Module) -> None:
        super().__init__()
        self.inner = nn.Sequential(*inner)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.inner(x)


class Concatenated(Residual):
    """The input beside what is made of it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, self.inner(x)], 1)


class Scaled(Residual):
    """Squeeze and excite: channels scaled by what is made of their means."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.inner(x.mean((2, 3), keepdim=True))


def conv(a: int, b: int, **options: Any) -> list[nn.Module]:
    return [nn.Conv2d(a, b, 3, padding=1, **options), nn.BatchNorm2d(b), nn.ReLU()]


def head(width: int) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 5)]


def _inverted(a: int, b: int, stride: int) -> nn.Module:
    """A block of MobileNetV3 and EfficientNet."""
    squeeze = Scaled(
        nn.Conv2d(2 * a, a // 2, 1), nn.ReLU(), nn.Conv2d(a // 2, 2 * a, 1), nn.Hardsigmoid()
    )
    wide = [
        nn.Conv2d(a, 2 * a, 1),
        nn.BatchNorm2d(2 * a),
        nn.SiLU(),
        *conv(2 * a, 2 * a, groups=2 * a, stride=stride),
    ]
    block = [*wide, squeeze, nn.Conv2d(2 * a, b, 1), nn.BatchNorm2d(b)]
    return Residual(*block) if stride == 1 and a == b else nn.Sequential(*block)


class UNet(nn.Module):
    """Down and up again, each level beside its equal, whatever the size of the image."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList(
            [nn.Sequential(*conv(3, 8)), nn.Sequential(*conv(8, 16)), nn.Sequential(*conv(16, 32))]
        )
        self.up = nn.ModuleList([nn.ConvTranspose2d(32, 16, 2, 2), nn.ConvTranspose2d(16, 8, 2, 2)])
        self.mix = nn.ModuleList([nn.Sequential(*conv(32, 16)), nn.Sequential(*conv(16, 8))])
        self.out = nn.Conv2d(8, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        levels = []
        for number, block in enumerate(self.down):
            x = block(x if number == 0 else F.max_pool2d(x, 2))
            levels.append(x)
        for up, mix, level in zip(self.up, self.mix, levels[-2::-1], strict=True):
            x = up(x)
            high, wide = level.shape[2] - x.shape[2], level.shape[3] - x.shape[3]
            x = F.pad(x, [wide // 2, wide - wide // 2, high // 2, high - high // 2])
            x = mix(torch.cat([level, x], 1))
        return self.out(x)


class Pyramid(nn.Module):
    """Features of three scales, each with those above it (FPN), and boxes from all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.levels = nn.ModuleList(
            [nn.Sequential(*conv(a, b, stride=2)) for a, b in ((3, 8), (8, 16), (16, 32))]
        )
        self.side = nn.ModuleList([nn.Conv2d(width, 8, 1) for width in (8, 16, 32)])
        self.smooth = nn.Conv2d(8, 8, 3, padding=1)
        self.boxes, self.classes = nn.Conv2d(8, 4, 3, padding=1), nn.Conv2d(8, 5, 3, padding=1)

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        found = []
        for level in self.levels:
            x = level(x)
            found.append(x)
        sides = [side(each) for side, each in zip(self.side, found, strict=True)]
        for i in (1, 0):
            sides[i] = sides[i] + F.interpolate(
                sides[i + 1], size=sides[i].shape[-2:], mode="nearest"
            )
        out = [self.smooth(each) for each in sides]
        boxes = torch.cat([self.boxes(each).flatten(2).transpose(1, 2) for each in out], 1)
        classes = torch.cat([self.classes(each).flatten(2).transpose(1, 2) for each in out], 1)
        best, at = classes.softmax(-1).max(-1)[0].topk(10, dim=1)
        return {
            "boxes": boxes.gather(1, at[..., None].expand(-1, -1, 4)),
            "scores": best,
            "features": out,
        }


class Detr(nn.Module):
    """A transformer that asks features of an image for objects."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(*conv(3, 16, stride=2), *conv(16, 32, stride=2))
        self.row, self.column = nn.Parameter(torch.rand(50, 16)), nn.Parameter(torch.rand(50, 16))
        self.queries = nn.Parameter(torch.rand(6, 32))
        self.transformer = nn.Transformer(32, 4, 1, 1, 64, 0.0, batch_first=True)
        self.classes, self.boxes = nn.Linear(32, 5), nn.Linear(32, 4)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        features = self.backbone(x)
        b, _, h, w = features.shape
        across = self.column[:w].unsqueeze(0).repeat(h, 1, 1)
        down = self.row[:h].unsqueeze(1).repeat(1, w, 1)
        places = torch.cat([across, down], -1).flatten(0, 1)
        found = self.transformer(
            places + features.flatten(2).permute(0, 2, 1), self.queries.expand(b, -1, -1)
        )
        return {"logits": self.classes(found), "boxes": self.boxes(found).sigmoid()}


class Windows(nn.Module):
    """Attention in windows of four by four, shifted in every other layer, on images padded to whole
    windows (Swin).
    """

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 32, 2, 2)
        self.qkv = nn.ModuleList([nn.Linear(32, 96) for _ in range(2)])
        self.out = nn.ModuleList([nn.Linear(32, 32) for _ in range(2)])
        self.merge = nn.Linear(128, 64)

    def _attention(self, x: torch.Tensor, number: int) -> torch.Tensor:
        b, h, w, c = x.shape
        down, right = -h % 4, -w % 4
        x = F.pad(x, (0, 0, 0, right, 0, down))
        high, wide = h + down, w + right
        mask = None
        if number % 2:
            x = torch.roll(x, (-2, -2), (1, 2))
            areas = x.new_zeros(1, high, wide, 1)
            for i, rows in enumerate((slice(0, -4), slice(-4, -2), slice(-2, None))):
                for j, columns in enumerate((slice(0, -4), slice(-4, -2), slice(-2, None))):
                    areas[:, rows, columns] = 3 * i + j
            areas = self._split(areas).squeeze(-1)
            mask = (areas[:, None] != areas[:, :, None]).float() * -100.0
        windows = self._split(x)
        q, k, v = self.qkv[number](windows).view(-1, 16, 3, 4, 8).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / math.sqrt(8)
        if mask is not None:
            scores = (scores.view(b, -1, 4, 16, 16) + mask[None, :, None]).view(-1, 4, 16, 16)
        windows = self.out[number]((scores.softmax(-1) @ v).transpose(1, 2).reshape(-1, 16, c))
        x = (
            windows.view(b, high // 4, wide // 4, 4, 4, c)
            .permute(0, 1, 3, 2, 4, 5)
            .reshape(b, high, wide, c)
        )
        x = torch.roll(x, (2, 2), (1, 2)) if number % 2 else x
        return x[:, :h, :w].contiguous() if down or right else x

    @staticmethod
    def _split(x: torch.Tensor) -> torch.Tensor:
        b, h, w, c = x.shape
        return x.view(b, h // 4, 4, w // 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, c)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).permute(0, 2, 3, 1)
        for number in range(2):
            x = x + self._attention(x, number)
        x = F.pad(x, (0, 0, 0, x.shape[2] % 2, 0, x.shape[1] % 2))
        return self.merge(torch.cat([x[:, i::2, j::2] for i in (0, 1) for j in (0, 1)], -1))


class Points(nn.Module):
    """Clouds of points: a learnt transform, features of each point, their maximum (PointNet)."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = nn.Sequential(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU())
        self.matrix = nn.Linear(16, 9)
        self.each = nn.Sequential(nn.Conv1d(3, 32, 1), nn.BatchNorm1d(32), nn.ReLU())
        self.parts = nn.Conv1d(64, 4, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        turn = self.matrix(self.turn(x).max(2)[0]).view(-1, 3, 3) + torch.eye(3)
        features = self.each(torch.bmm(x.transpose(2, 1), turn).transpose(2, 1))
        whole = torch.max(features, 2, keepdim=True)[0]
        parts = self.parts(torch.cat([features, whole.repeat(1, 1, x.size(2))], 1))
        return F.log_softmax(parts.transpose(2, 1).reshape(-1, 4), -1).view(x.size(0), -1, 4), turn


class Causal(nn.Module):
    """Dilated convolutions that see the past alone: WaveNet's gates, or a TCN's residuals."""

    def __init__(self, gated: bool) -> None:
        super().__init__()
        self.gated = gated
        self.first = nn.Conv1d(1, 16, 1)
        self.layers = nn.ModuleList(
            [nn.Conv1d(16, 32 if gated else 16, 2, dilation=2**i) for i in range(4)]
        )
        self.skips = nn.ModuleList([nn.Conv1d(16, 8, 1) for _ in range(4)])
        self.out = nn.Conv1d(8, 20, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        total: Any = 0
        for i, (layer, skip) in enumerate(zip(self.layers, self.skips, strict=True)):
            y = layer(F.pad(x, (2**i, 0)))
            if self.gated:
                a, b = y.chunk(2, 1)
                y = torch.tanh(a) * torch.sigmoid(b)
            else:
                y = F.relu(y)
            total = total + skip(y)
            x = x + y
        return self.out(F.relu(total))


class Speaking(nn.Module):
    """Text to a spectrogram: convolutions, an LSTM, attention that moves over the text frame by
    frame (Tacotron).
    """

    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(100, 32)
        self.near = nn.Conv1d(32, 32, 5, padding=2)
        self.encoder = nn.LSTM(32, 16, batch_first=True, bidirectional=True)
        self.cell = nn.LSTMCell(40, 32)
        self.frame, self.stop = nn.Linear(64, 8), nn.Linear(64, 1)

    def forward(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        memory, _ = self.encoder(
            F.relu(self.near(self.letters(ids).transpose(1, 2))).transpose(1, 2)
        )
        b = ids.shape[0]
        frame, context = memory.new_zeros(b, 8), memory.new_zeros(b, 32)
        h, c = memory.new_zeros(b, 32), memory.new_zeros(b, 32)
        frames, stops = [], []
        for _ in range(4):
            h, c = self.cell(torch.cat([frame, context], -1), (h, c))
            weights = torch.softmax((memory @ h.unsqueeze(-1)).squeeze(-1), -1)
            context = (weights.unsqueeze(1) @ memory).squeeze(1)
            frame = self.frame(torch.cat([h, context], -1))
            frames.append(frame)
            stops.append(self.stop(torch.cat([h, context], -1)))
        return torch.stack(frames, 1), torch.cat(stops, 1)


class Radiance(nn.Module):
    """Colours along rays: frequencies of places, densities, what shines through (NeRF)."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(39, 32), nn.ReLU(), nn.Linear(32, 4))

    def forward(
        self, origins: torch.Tensor, directions: torch.Tensor, samples: int = 8
    ) -> tuple[torch.Tensor, torch.Tensor]:
        t = torch.linspace(2.0, 6.0, samples)
        places = origins[..., None, :] + directions[..., None, :] * t[:, None]
        waves = places[..., None] * 2.0 ** torch.arange(6)
        features = torch.cat([places, waves.sin().flatten(-2), waves.cos().flatten(-2)], -1)
        found = self.inner(features)
        gaps = torch.cat([t[1:] - t[:-1], torch.tensor([1e10])])
        opaque = 1 - torch.exp(-F.relu(found[..., 3]) * gaps)
        clear = torch.cumprod(
            torch.cat([torch.ones_like(opaque[..., :1]), 1 - opaque + 1e-10], -1), -1
        )[..., :-1]
        weights = opaque * clear
        return (weights[..., None] * found[..., :3].sigmoid()).sum(-2), (weights * t).sum(-1)


class Messages(nn.Module):
    """A graph's nodes: messages along edges, added where they arrive, by degree and by attention
    (GCN, GAT).
    """

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.message, self.update = (
            nn.Linear(8, 16),
            nn.Linear(32, 16),
            nn.GRUCell(16, 16),
        )
        self.score = nn.Linear(32, 1)

    def forward(self, nodes: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        x = self.embed(nodes)
        n = x.size(0)
        source, target = edges
        degree = torch.zeros(n).index_add_(0, target, torch.ones(edges.size(1))).clamp(min=1)
        for _ in range(2):
            pairs = torch.cat([x[source], x[target]], -1)
            weight = torch.exp(self.score(pairs).squeeze(-1))
            total = torch.zeros(n).index_add(0, target, weight)
            message = self.message(pairs) * (weight / total[target])[:, None]
            x = self.update(torch.zeros(n, 16).index_add(0, target, message) / degree[:, None], x)
        return x.scatter_reduce(0, target[:, None].expand(-1, 16), x[source], "amax")


class Codes(nn.Module):
    """An autoencoder whose middle is the nearest of learnt vectors, with gradients straight through
    (VQ-VAE).
    """

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(3, 8, 4, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 4, 2, 1))
        self.codes = nn.Embedding(32, 16)
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(16, 8, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(8, 3, 4, 2, 1)
        )

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        z = self.encoder(x).permute(0, 2, 3, 1).contiguous()
        flat = z.view(-1, 16)
        far = (
            flat.pow(2).sum(1, keepdim=True)
            - 2 * flat @ self.codes.weight.t()
            + self.codes.weight.pow(2).sum(1)
        )
        at = far.argmin(1)
        chosen = F.one_hot(at, 32).float()
        quantised = (chosen @ self.codes.weight).view(z.shape)
        use = chosen.mean(0)
        quantised = z + (quantised - z).detach()
        loss = F.mse_loss(quantised.detach(), z)
        spread = torch.exp(-(use * torch.log(use + 1e-10)).sum())
        return {
            "image": self.decoder(quantised.permute(0, 3, 1, 2)),
            "loss": loss,
            "spread": spread,
        }


class Flow(nn.Module):
    """A density by invertible steps: norms that begin as data are, permutations, affine couplings
    (RealNVP, Glow).
    """

    def __init__(self) -> None:
        super().__init__()
        self.nets = nn.ModuleList(
            [nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 8)) for _ in range(3)]
        )
        self.mix = nn.Parameter(torch.linalg.qr(torch.randn(8, 8))[0])

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        total = x.new_zeros(x.shape[:-1])
        for net in self.nets:
            x = x @ self.mix
            total = total + torch.linalg.slogdet(self.mix)[1]
            a, b = x.chunk(2, -1)
            scale, shift = net(a).chunk(2, -1)
            scale = torch.tanh(scale)
            x = torch.cat([a, b * scale.exp() + shift], -1)
            total = total + scale.sum(-1)
        likely = (
            torch.distributions.Normal(torch.zeros(8), torch.ones(8)).log_prob(x).sum(-1) + total
        )
        return x, likely


class Denoiser(nn.Module):
    """What to take off a noisy image at a time: a UNet with embedded times and attention in its
    middle (diffusion).
    """

    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(32, 32), nn.SiLU(), nn.Linear(32, 32))
        self.first, self.down = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 32, 3, 2, 1)
        self.norm, self.shift = nn.GroupNorm(4, 32), nn.Linear(32, 64)
        self.middle = nn.Conv2d(32, 32, 3, padding=1)
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)
        self.up, self.last = nn.Conv2d(32, 16, 3, padding=1), nn.Conv2d(32, 3, 3, padding=1)

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        rates = torch.exp(-math.log(10000) * torch.arange(16, device=x.device) / 16)
        angles = t[:, None].float() * rates[None]
        scale, shift = self.shift(self.time(torch.cat([angles.sin(), angles.cos()], -1)))[
            ..., None, None
        ].chunk(2, 1)
        top = self.first(x)
        y = self.down(F.silu(top))
        y = y + self.middle(F.silu(self.norm(y) * (1 + scale) + shift))
        b, c, h, w = y.shape
        flat = y.view(b, c, h * w).transpose(1, 2)
        y = y + self.attention(flat, flat, flat, need_weights=False)[0].transpose(1, 2).reshape(
            b, c, h, w
        )
        y = self.up(F.interpolate(y, scale_factor=2.0, mode="nearest"))
        return self.last(torch.cat([y[..., : x.shape[-2], : x.shape[-1]], top], 1))


class Ladder(nn.Module):
    """An encoder with latent draws, and the divergence of what it draws from (VAE)."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(8, 8), nn.Linear(4, 8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, spread = self.encoder(x).chunk(2, -1)
        z = mean + torch.randn_like(mean) * torch.exp(0.5 * spread)
        return self.decoder(z), -0.5 * (1 + spread - mean**2 - spread.exp()).sum(-1).mean()


class Mixer(nn.Module):
    """State space by a convolution as long as the sequence, by way of its spectrum (S4, Hyena)."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.out = nn.Embedding(100, 16), nn.Linear(16, 100)
        self.a, self.b = nn.Parameter(torch.rand(16, 4)), nn.Parameter(torch.rand(16, 4))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids).transpose(1, 2)
        n = x.shape[-1]
        kernel = (self.b[..., None] * torch.exp(-self.a[..., None] * torch.arange(n))).sum(1)
        spectrum = torch.fft.rfft(x, n=2 * n) * torch.fft.rfft(kernel, n=2 * n)
        return self.out(torch.fft.irfft(spectrum, n=2 * n)[..., :n].transpose(1, 2))


Call = Callable[[int, int], Mapping[str, Any]]


def _square(b: int, n: int) -> dict[str, Any]:
    return {"input": torch.randn(b, 3, 4 * n, 4 * n)}


def _oblong(b: int, n: int) -> dict[str, Any]:
    return {"x": torch.randn(b, 3, 2 * n + 16, 4 * n + 16)}


def _sound(b: int, n: int) -> dict[str, Any]:
    return {"x": torch.randn(b, 1, 4 * n)}


def _graph(b: int, n: int) -> dict[str, Any]:
    return {"nodes": torch.randn(b + 4, 8), "edges": torch.randint(0, b + 4, (2, n))}


def _rays(b: int, n: int) -> dict[str, Any]:
    return {"origins": torch.randn(b, n, 3), "directions": torch.randn(b, n, 3)}


def _noisy(b: int, n: int) -> dict[str, Any]:
    return {"x": torch.randn(b, 3, 4 * n, 4 * n), "t": torch.randint(0, 1000, (b,))}


def _ids(b: int, n: int) -> dict[str, Any]:
    return {"ids": torch.randint(0, 100, (b, n))}


def _vision() -> dict[str, Callable[[], nn.Module]]:
    squeeze = Scaled(nn.Conv2d(8, 8, 1), nn.Sigmoid())
    shuffle = [nn.Conv2d(8, 8, 1, groups=2), nn.ChannelShuffle(2), *conv(8, 8, groups=8)]
    up = [nn.MaxPool2d(2), *conv(8, 8), nn.ConvTranspose2d(8, 8, 2, 2)]
    dense = [
        Concatenated(nn.BatchNorm2d(8 + 4 * i), nn.ReLU(), nn.Conv2d(8 + 4 * i, 4, 3, padding=1))
        for i in range(3)
    ]
    made: dict[str, list[nn.Module]] = {
        "alexnet": [*conv(3, 8, stride=2), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 5)],
        "vgg": [*conv(3, 8), nn.MaxPool2d(2), *conv(8, 8), nn.MaxPool2d(2), *head(8)],
        "resnet of blocks": [*conv(3, 8), Residual(*conv(8, 8)), *conv(8, 8, stride=2), *head(8)],
        "densenet": [*conv(3, 8), *dense, nn.AvgPool2d(2), *head(20)],
        "mobilenet": [
            *conv(3, 8),
            *conv(8, 8, groups=8),
            nn.Conv2d(8, 8, 1),
            nn.Hardswish(),
            *head(8),
        ],
        "mobilenet v3": [
            *conv(3, 8, stride=2),
            _inverted(8, 8, 1),
            _inverted(8, 12, 2),
            nn.Hardswish(),
            *head(12),
        ],
        "squeeze and excite": [*conv(3, 8), squeeze, *head(8)],
        "shufflenet": [*conv(3, 8), *shuffle, *head(8)],
        "unet of blocks": [*conv(3, 8), Concatenated(*up), nn.Conv2d(16, 2, 1)],
        "fcn": [
            *conv(3, 8, stride=2),
            nn.Conv2d(8, 5, 1),
            nn.Upsample(scale_factor=2, mode="bilinear"),
        ],
        "superresolution": [*conv(3, 8), nn.Conv2d(8, 12, 1), nn.PixelShuffle(2)],
    }
    return {name: lambda layers=layers: nn.Sequential(*layers) for name, layers in made.items()}  # type: ignore[misc]


def _generator() -> nn.Module:
    up = [nn.ConvTranspose2d(8, 8, 4, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU()]
    return nn.Sequential(*up, nn.ConvTranspose2d(8, 3, 4, 2, 1, bias=False), nn.Tanh())


def _critic() -> nn.Module:
    norm = torch.nn.utils.parametrizations.spectral_norm
    return nn.Sequential(
        norm(nn.Conv2d(3, 8, 4, 2, 1)), nn.LeakyReLU(0.2), norm(nn.Conv2d(8, 1, 4, 1, 0))
    )


BY_HAND: dict[str, tuple[Callable[[], nn.Module], Call]] = {
    "unet": (UNet, _oblong),
    "feature pyramid": (Pyramid, _oblong),
    "detr by hand": (Detr, _oblong),
    "shifted windows": (Windows, _oblong),
    "pointnet": (Points, lambda b, n: {"x": torch.randn(b, 3, n)}),
    "gan generator": (_generator, lambda b, n: {"input": torch.randn(b, 8, n, n)}),
    "gan critic": (_critic, _square),
    "wavenet": (lambda: Causal(gated=True), _sound),
    "tcn": (lambda: Causal(gated=False), _sound),
    "tacotron": (Speaking, _ids),
    "nerf": (Radiance, _rays),
    "graph network": (Messages, _graph),
    "vq-vae": (Codes, lambda b, n: {"x": torch.randn(b, 3, 4 * n, 4 * n)}),
    "vae": (Ladder, lambda b, n: {"x": torch.randn(b, n, 8)}),
    "normalising flow": (Flow, lambda b, n: {"x": torch.randn(b, n, 8)}),
    "denoiser": (Denoiser, _noisy),
    "long convolution": (Mixer, _ids),
}


def nets() -> Iterator[Architecture]:
    """All of them."""
    for name, make in _vision().items():
        yield Architecture(name, lambda make=make: make().eval(), {"plain": _square})  # type: ignore[misc]
    for name, (make, call) in BY_HAND.items():
        yield Architecture(name, lambda make=make: make().eval(), {"plain": call})  # type: ignore[misc]
