"""Tensors in many forms: complex, sorted, folded, sparse, spectra."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.symshape.everyday.whole.program import img, whole


@whole
def rearranged_by_hand():

    def run(x):
        b, c, h, w = x.shape
        p = (
            x[:, :, : h // 4 * 4, : w // 4 * 4]
            .reshape(b, c, h // 4, 4, w // 4, 4)
            .permute(0, 2, 4, 3, 5, 1)
            .reshape(b, h // 4 * (w // 4), -1)
        )
        return (p, torch.einsum("bnd,bmd->bnm", p, p))

    return (run, img)


@whole
def complex_numbers():

    def run(x):
        z = torch.fft.fft2(torch.complex(x, x.roll(1, -1)))
        return (z.abs(), z.angle(), torch.fft.ifft2(z * z.conj()).real, torch.view_as_real(z))

    return (run, lambda b, n: (torch.randn(b, n),))


@whole
def quantise_helpers():

    def run(x):
        s = x.abs().amax(-1, keepdim=True) / 127
        q = (x / s).round().clamp(-128, 127).to(torch.int8)
        return (q, q.float() * s)

    return (run, lambda b, n: (torch.randn(b, n),))


@whole
def int8_matmul():
    w = torch.randint(-8, 8, (8, 8), dtype=torch.int8)
    ws = torch.rand(8)

    def run(x):
        s = x.abs().max() / 127
        q = (x / s).round().to(torch.int8)
        return (q.int() @ w.int().t()).float() * s * ws

    return (run, lambda b, n: (torch.randn(b, 8),))


@whole
def sorted_top_k_median():

    def run(x):
        return (
            x.sort(-1),
            x.topk(min(3, x.size(-1)), -1).indices,
            x.median(-1),
            x.kthvalue(2).values,
            x.quantile(0.3, dim=-1),
            torch.unique(x.round(), sorted=True),
        )

    return (run, lambda b, n: (torch.randn(b, n),))


@whole
def histogram_and_buckets():
    e = torch.linspace(-2, 2, 9)

    def run(x):
        i = torch.bucketize(x, e)
        return (
            i,
            torch.bincount(i.flatten(), minlength=10),
            torch.searchsorted(e, x),
            torch.histc(x, 8, -2, 2),
        )

    return (run, lambda b, n: (torch.randn(b, n),))


@whole
def unfold_fold():

    def run(x):
        u = F.unfold(x, 3, padding=1, stride=2)
        _b, _, h, w = x.shape
        y = F.fold(u, (h, w), 3, padding=1, stride=2)
        return (u, y, x.unfold(2, 3, 1).mean(-1))

    return (run, img)


@whole
def spatial_transformer():
    loc = nn.Linear(3, 6)

    def run(x):
        th = loc(x.mean((2, 3))).view(-1, 2, 3)
        g = F.affine_grid(th, x.size(), align_corners=False)
        return F.grid_sample(x, g, padding_mode="border", align_corners=False)

    return (run, img)


@whole
def sparse_inputs():

    def run(x, w):
        return torch.sparse.mm(x, w)

    return (run, lambda b, n: (torch.eye(b + 2).to_sparse(), torch.randn(b + 2, n)))


@whole
def sparse_made_inside():

    def run(i, v, w):
        s = torch.sparse_coo_tensor(i, v, (w.size(0), w.size(0)))
        return torch.sparse.mm(s, w)

    return (run, lambda b, n: (torch.randint(b + 2, (2, n)), torch.randn(n), torch.randn(b + 2, 4)))


@whole
def stft_round_trip():
    w = torch.hann_window(16)

    def run(x):
        s = torch.stft(x, 16, 4, window=w, return_complex=True)
        return torch.istft(s * 0.5, 16, 4, window=w, length=x.size(-1))

    return (run, lambda b, n: (torch.randn(b, 40 + 4 * n),))


@whole
def griffin_lim():
    w = torch.hann_window(16)

    def run(mag):
        ang = torch.ones_like(mag) + 0j
        for _ in range(3):
            x = torch.istft(mag * ang, 16, 4, window=w)
            s = torch.stft(x, 16, 4, window=w, return_complex=True)
            ang = s / (s.abs() + 1e-08)
        return torch.istft(mag * ang, 16, 4, window=w)

    return (run, lambda b, n: (torch.rand(b, 9, 10 + n),))


@whole
def mel_spectrogram():
    w, fb = (torch.hann_window(16), torch.rand(9, 5))

    def run(x):
        s = (
            torch.stft(
                x,
                16,
                8,
                window=w,
                center=True,
                pad_mode="reflect",
                normalized=False,
                onesided=True,
                return_complex=True,
            )
            .abs()
            .pow(2)
        )
        m = torch.matmul(s.transpose(-1, -2), fb).transpose(-1, -2)
        db = 10 * torch.log10(m.clamp(min=1e-10))
        return torch.maximum(db, db.amax((-2, -1), keepdim=True) - 80)

    return (run, lambda b, n: (torch.randn(b, 40 + 4 * n),))
