"""Text: masks, attention, search, losses, recurrent nets."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from tests.symshape.everyday.whole.program import whole


@whole
def padded_batch_with_masks():
    emb = nn.Embedding(50, 8, padding_idx=0)

    def run(ids):
        mask = ids != 0
        h = emb(ids)
        mean = (h * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)
        last = h[torch.arange(ids.size(0)), mask.long().sum(1) - 1]
        return torch.cat(
            [mean, last, h.masked_fill(~mask[..., None], -1000000000.0).max(1).values], -1
        )

    def make(b, n):
        ids = torch.randint(1, 50, (b, n))
        for i in range(b):
            ids[i, max(1, n - i) :] = 0
        return (ids,)

    return (run, make)


@whole
def collate_by_hand():

    def run(*rows):
        n = max(r.size(0) for r in rows)
        out = rows[0].new_zeros(len(rows), n)
        for i, r in enumerate(rows):
            out[i, : r.size(0)] = r
        return (out, torch.tensor([r.size(0) for r in rows]))

    return (run, lambda b, n: tuple(torch.randn(n + i) for i in range(3)))


@whole
def causal_gpt_block():

    class Blk(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln1, self.ln2, self.qkv, self.o, self.m = (
                nn.LayerNorm(16),
                nn.LayerNorm(16),
                nn.Linear(16, 48),
                nn.Linear(16, 16),
                nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16)),
            )
            self.register_buffer("tri", torch.tril(torch.ones(32, 32)).view(1, 1, 32, 32))

        def forward(self, x):
            B, T, C = x.size()
            q, k, v = self.qkv(self.ln1(x)).split(C, dim=2)
            q, k, v = (t.view(B, T, 2, C // 2).transpose(1, 2) for t in (q, k, v))
            att = q @ k.transpose(-2, -1) * (1.0 / math.sqrt(k.size(-1)))
            att = att.masked_fill(self.tri[:, :, :T, :T] == 0, float("-inf")).softmax(-1)
            x = x + self.o((att @ v).transpose(1, 2).contiguous().view(B, T, C))
            return x + self.m(self.ln2(x))

    return (Blk(), lambda b, n: (torch.randn(b, n, 16),))


@whole
def rotary_and_rmsnorm():

    class R(nn.Module):
        def __init__(self):
            super().__init__()
            self.q = nn.Linear(16, 16)
            self.w = nn.Parameter(torch.ones(16))
            self.register_buffer("f", 1.0 / 10000 ** (torch.arange(0, 8, 2).float() / 8))

        def forward(self, x, start=0):
            x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-06) * self.w
            q = self.q(x).view(x.size(0), x.size(1), 2, 8)
            t = torch.arange(start, start + x.size(1))
            fr = torch.outer(t.float(), self.f)
            c = torch.polar(torch.ones_like(fr), fr)
            qc = torch.view_as_complex(q.reshape(*q.shape[:-1], -1, 2))
            return torch.view_as_real(qc * c[None, :, None]).flatten(3)

    return (R(), lambda b, n: (torch.randn(b, n, 16),))


@whole
def beam_search_by_hand():
    emb, head = (nn.Embedding(12, 8), nn.Linear(8, 12))

    @torch.no_grad()
    def run(start):
        B, K, V = (start.size(0), 3, 12)
        scores = torch.zeros(B, 1)
        seqs = start[:, None, None]
        for _ in range(4):
            lp = F.log_softmax(head(emb(seqs[..., -1])), -1)
            total = (scores[..., None] + lp).flatten(1)
            scores, idx = total.topk(K, 1)
            beam, tok = (idx // V, idx % V)
            seqs = torch.cat(
                [seqs.gather(1, beam[..., None].expand(-1, -1, seqs.size(-1))), tok[..., None]], -1
            )
        return (seqs, scores)

    return (run, lambda b, n: (torch.randint(12, (b,)),))


@whole
def top_k_top_p_sampling():

    def run(logits):
        v, _ = torch.topk(logits, 5)
        logits = logits.masked_fill(logits < v[:, [-1]], -float("inf"))
        s, i = torch.sort(logits, descending=True)
        cum = s.softmax(-1).cumsum(-1)
        rem = cum > 0.9
        rem[..., 1:] = rem[..., :-1].clone()
        rem[..., 0] = False
        logits = logits.masked_fill(rem.scatter(1, i, rem), -float("inf"))
        return torch.multinomial(logits.softmax(-1), 1)

    return (run, lambda b, n: (torch.randn(b, n + 6),))


@whole
def label_smoothed_ce():

    def run(x, y):
        lp = F.log_softmax(x, -1)
        nll = -lp.gather(-1, y[..., None]).squeeze(-1)
        sm = -lp.mean(-1)
        mask = y.ne(0)
        loss = (0.9 * nll + 0.1 * sm)[mask]
        return (
            loss.sum() / mask.sum(),
            F.cross_entropy(x.flatten(0, 1), y.flatten(), ignore_index=0, label_smoothing=0.1),
        )

    return (
        run,
        lambda b, n: (torch.randn(b, n, 9, requires_grad=True), torch.randint(0, 9, (b, n))),
    )


@whole
def word2vec_negative_sampling():
    u, v = (nn.Embedding(30, 8), nn.Embedding(30, 8))

    def run(c, p, neg):
        pos = F.logsigmoid((u(c) * v(p)).sum(-1))
        ng = F.logsigmoid(-(v(neg) @ u(c).unsqueeze(-1)).squeeze(-1)).sum(-1)
        return -(pos + ng).mean()

    return (
        run,
        lambda b, n: (torch.randint(30, (b,)), torch.randint(30, (b,)), torch.randint(30, (b, n))),
    )


@whole
def crf_forward_loop():
    tr = nn.Parameter(torch.randn(5, 5))

    def run(em, mask):
        alpha = em[:, 0]
        for t in range(1, em.size(1)):
            nxt = torch.logsumexp(alpha[:, :, None] + tr + em[:, t, None, :], 1)
            alpha = torch.where(mask[:, t, None], nxt, alpha)
        return torch.logsumexp(alpha, 1)

    return (run, lambda b, n: (torch.randn(b, n, 5), torch.ones(b, n, dtype=torch.bool)))


@whole
def seq2seq_attention_gru():

    class S(nn.Module):
        def __init__(self):
            super().__init__()
            self.enc, self.cell, self.out = (
                nn.GRU(8, 8, batch_first=True),
                nn.GRUCell(16, 8),
                nn.Linear(8, 6),
            )

        def forward(self, x, steps):
            m, h = self.enc(x)
            h = h[-1]
            ys = []
            for _ in range(steps):
                a = (m @ h.unsqueeze(-1)).squeeze(-1).softmax(-1)
                c = (a.unsqueeze(1) @ m).squeeze(1)
                h = self.cell(torch.cat([c, h], -1), h)
                ys.append(self.out(h))
            return torch.stack(ys, 1)

    return (S(), lambda b, n: (torch.randn(b, n, 8), 3))


@whole
def packed_lstm():
    lstm = nn.LSTM(8, 6, bidirectional=True, batch_first=True)

    def run(x, lengths):
        p = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        o, (h, _c) = lstm(p)
        o, l = nn.utils.rnn.pad_packed_sequence(o, batch_first=True)
        return (o, h, l)

    return (run, lambda b, n: (torch.randn(b, n, 8), torch.tensor([n] + [max(1, n - 1)] * (b - 1))))


@whole
def ctc():
    net = nn.Linear(8, 6)

    def run(x, y, xl, yl):
        return F.ctc_loss(net(x).log_softmax(-1).transpose(0, 1), y, xl, yl, zero_infinity=True)

    return (
        run,
        lambda b, n: (
            torch.randn(b, 2 * n, 8),
            torch.randint(1, 6, (b, n)),
            torch.full((b,), 2 * n),
            torch.full((b,), n // 2),
        ),
    )
