"""Decoding, sampling, augmenting, counting: what stands around models in people's scripts."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from tests.symshape.everyday.whole.program import whole


@whole
def greedy_decode_with_cache():
    e, q, k, v, o = nn.Embedding(20, 8), *(nn.Linear(8, 8) for _ in range(3)), nn.Linear(8, 20)

    @torch.no_grad()
    def run(ids):
        x = e(ids)
        keys, values = k(x), v(x)
        out = ids
        token = ids[:, -1:]
        for _ in range(4):
            h = F.scaled_dot_product_attention(q(e(token)), keys, values)
            token = o(h).argmax(-1)
            out = torch.cat([out, token], 1)
            keys, values = torch.cat([keys, k(e(token))], 1), torch.cat([values, v(e(token))], 1)
        return out

    return (run, lambda b, n: (torch.randint(20, (b, n)),))


@whole
def static_cache_decode():
    q, k, v = (nn.Linear(8, 8) for _ in range(3))
    cache = torch.zeros(2, 8, 16, 8)

    @torch.no_grad()
    def run(x, at):
        b, n = x.shape[:2]
        cache[0, :b, at : at + n], cache[1, :b, at : at + n] = k(x), v(x)
        mask = torch.arange(16)[None] <= torch.arange(at, at + n)[:, None]
        return F.scaled_dot_product_attention(q(x), cache[0, :b], cache[1, :b], attn_mask=mask)

    return (run, lambda b, n: (torch.randn(b, n, 8), b))


@whole
def beam_search_step():
    def run(scores, logits, beams):
        b, k, v = logits.shape
        total = (scores[..., None] + logits.log_softmax(-1)).view(b, k * v)
        best, index = total.topk(k, dim=-1)
        source, token = index // v, index % v
        beams = beams.gather(1, source[..., None].expand(-1, -1, beams.size(2)))
        return best, torch.cat([beams, token[..., None]], -1)

    return (
        run,
        lambda b, n: (torch.randn(b, 3), torch.randn(b, 3, 11), torch.randint(11, (b, 3, n))),
    )


@whole
def nucleus_and_penalty():
    def run(logits, seen):
        score = logits.gather(1, seen)
        logits = logits.scatter(1, seen, torch.where(score < 0, score * 1.2, score / 1.2))
        s, i = (logits / 0.8).sort(descending=True)
        drop = s.softmax(-1).cumsum(-1) > 0.9
        drop[:, 1:] = drop[:, :-1].clone()
        drop[:, 0] = False
        logits = logits.masked_fill(drop.scatter(1, i, drop), -torch.inf)
        return torch.multinomial(logits.softmax(-1), 1)

    return (run, lambda b, n: (torch.randn(b, 30), torch.randint(30, (b, n))))


@whole
def speculative_accept():
    def run(draft, target, tokens):
        p = target.softmax(-1).gather(-1, tokens[..., None])[..., 0]
        q = draft.softmax(-1).gather(-1, tokens[..., None])[..., 0]
        accepted = torch.rand_like(p) < (p / q).clamp(max=1)
        count = accepted.long().cumprod(1).sum(1)
        return torch.where(torch.arange(tokens.size(1)) < count[:, None], tokens, -1), count

    return (
        run,
        lambda b, n: (torch.randn(b, n, 9), torch.randn(b, n, 9), torch.randint(9, (b, n))),
    )


@whole
def topk_routing_with_capacity():
    gate = nn.Linear(8, 4)
    up, down = nn.Parameter(torch.randn(4, 8, 16) / 4), nn.Parameter(torch.randn(4, 16, 8) / 4)

    def run(x):
        flat = x.reshape(-1, 8)
        capacity = max(2, flat.size(0) // 2)
        w, e = gate(flat).softmax(-1).topk(2, dim=-1)
        hot = F.one_hot(e, 4).transpose(0, 1).reshape(-1, 4)
        place = (hot.cumsum(0) - 1) * hot
        keep = (place < capacity) & hot.bool()
        slot = (place * hot).sum(-1)
        table = torch.zeros(4, capacity + 1, 8)
        expert = e.t().reshape(-1)
        slot = torch.where(keep.any(-1), slot, capacity)
        table = table.index_put((expert, slot), flat.repeat(2, 1))
        h = torch.bmm(F.gelu(torch.bmm(table, up)), down)
        out = h[expert, slot] * w.t().reshape(-1, 1) * keep.any(-1)[:, None]
        return out.view(2, -1, 8).sum(0).view_as(x), gate(flat).softmax(-1).mean(0).var()

    return (run, lambda b, n: (torch.randn(b, n, 8, requires_grad=True),))


@whole
def diffusion_with_schedule():
    betas = torch.linspace(1e-4, 0.02, 50)
    alphas = (1 - betas).cumprod(0)
    net = nn.Sequential(nn.Linear(9, 16), nn.SiLU(), nn.Linear(16, 8))
    opt = torch.optim.AdamW(net.parameters(), 0.01)

    def run(x):
        t = torch.randint(0, 50, (x.size(0),))
        noise = torch.randn_like(x)
        a = alphas[t][:, None]
        noisy = a.sqrt() * x + (1 - a).sqrt() * noise
        snr = a / (1 - a)
        loss = F.mse_loss(
            net(torch.cat([noisy, t[:, None] / 50], 1)), noise, reduction="none"
        ).mean(1)
        loss = (loss * snr[:, 0].clamp(max=5) / snr[:, 0]).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.detach(), net[0].weight.detach().clone()

    return (run, lambda b, n: (torch.randn(b, 8),))


@whole
def flow_matching_euler():
    net = nn.Sequential(nn.Linear(9, 16), nn.SiLU(), nn.Linear(16, 8))

    @torch.no_grad()
    def run(x):
        for i in range(4):
            t = torch.full((x.size(0), 1), i / 4)
            x = x + net(torch.cat([x, t], 1)) / 4
        return x

    return (run, lambda b, n: (torch.randn(b, 8),))


@whole
def nerf_importance_sampling():
    def run(bins, weights):
        w = weights + 1e-5
        pdf = w / w.sum(-1, keepdim=True)
        cdf = torch.cat([torch.zeros_like(pdf[..., :1]), pdf.cumsum(-1)], -1)
        u = torch.rand(*cdf.shape[:-1], 6)
        i = torch.searchsorted(cdf.detach(), u, right=True)
        below, above = (i - 1).clamp(min=0), i.clamp(max=cdf.size(-1) - 1)
        c0, c1 = cdf.gather(-1, below), cdf.gather(-1, above)
        b0, b1 = bins.gather(-1, below), bins.gather(-1, above)
        span = torch.where(c1 - c0 < 1e-5, torch.ones_like(c0), c1 - c0)
        return (b0 + (u - c0) / span * (b1 - b0)).sort(-1).values

    def make(b, n):
        return torch.linspace(0, 1, n + 1).expand(b, n + 1), torch.rand(b, n, requires_grad=True)

    return (run, make)


@whole
def volume_rendering():
    net = nn.Linear(3 * 2 * 4, 4)

    def run(o, d):
        t = torch.linspace(0.1, 2, 8)
        p = o[:, None] + d[:, None] * t[:, None]
        f = p[..., None] * (2.0 ** torch.arange(4)) * math.pi
        h = net(torch.cat([f.sin(), f.cos()], -1).flatten(-2))
        dt = torch.cat([t.diff(), torch.tensor([1e10])])
        alpha = 1 - torch.exp(-F.relu(h[..., 3]) * dt)
        trans = torch.cumprod(torch.cat([torch.ones(o.size(0), 1), 1 - alpha + 1e-10], -1), -1)[
            :, :-1
        ]
        w = alpha * trans
        return (w[..., None] * h[..., :3].sigmoid()).sum(1), (w * t).sum(1)

    return (run, lambda b, n: (torch.randn(b * n, 3), F.normalize(torch.randn(b * n, 3), dim=-1)))


@whole
def message_passing():
    lin, att = nn.Linear(8, 8), nn.Linear(16, 1)

    def run(x, edges):
        src, dst = edges
        h = lin(x)
        score = F.leaky_relu(att(torch.cat([h[src], h[dst]], 1)))[:, 0]
        top = torch.full((x.size(0),), -1e9).scatter_reduce(0, dst, score, "amax")
        e = (score - top[dst]).exp()
        norm = torch.zeros(x.size(0)).scatter_add(0, dst, e)[dst]
        out = torch.zeros_like(h).index_add(0, dst, h[src] * (e / norm)[:, None])
        degree = torch.bincount(dst, minlength=x.size(0))
        return out / degree.clamp(min=1).sqrt()[:, None]

    return (run, lambda b, n: (torch.randn(n, 8), torch.randint(n, (2, 3 * b))))


@whole
def random_crop_of_a_batch():
    def run(x):
        i = torch.randint(0, x.size(-2) - 15, (1,)).item()
        j = torch.randint(0, x.size(-1) - 15, (1,)).item()
        return x[..., i : i + 16, j : j + 16] * 2

    return (run, lambda b, n: (torch.randn(b, 3, n + 20, n + 22),))


@whole
def flips_and_jitter():
    def run(x):
        b = x.size(0)
        x = torch.where(torch.rand(b, 1, 1, 1) < 0.5, x.flip(-1), x)
        x = x * (1 + 0.2 * (torch.rand(b, 1, 1, 1) - 0.5)) + 0.1 * torch.randn(b, 1, 1, 1)
        grey = (x * torch.tensor([0.299, 0.587, 0.114]).view(3, 1, 1)).sum(1, keepdim=True)
        x = torch.lerp(grey, x, 0.7).clamp(-3, 3)
        mean, std = x.mean((2, 3), keepdim=True), x.std((2, 3), keepdim=True)
        return (x - mean) / (std + 1e-6)

    return (run, lambda b, n: (torch.randn(b, 3, n + 8, n + 9),))


@whole
def cutmix_boxes():
    def run(x, y):
        b, _, h, w = x.shape
        lam = torch.rand(())
        cy, cx = (torch.rand(()) * h).long(), (torch.rand(()) * w).long()
        dh, dw = (h * (1 - lam).sqrt() / 2).long(), (w * (1 - lam).sqrt() / 2).long()
        rows, columns = torch.arange(h), torch.arange(w)
        inside = ((rows - cy).abs() <= dh)[:, None] & ((columns - cx).abs() <= dw)[None]
        order = torch.randperm(b)
        lam = 1 - inside.float().mean()
        return torch.where(inside, x[order], x), lam * y + (1 - lam) * y[order]

    return (run, lambda b, n: (torch.randn(b, 3, n + 8, n + 9), torch.rand(b, 4)))


@whole
def crop_by_contents():
    def run(x):
        rows, columns = (x > 1).any(1).nonzero()[:, 0], (x > 1).any(0).nonzero()[:, 0]
        return x[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]

    return (run, lambda b, n: (torch.randn(b + 8, n + 8),))


@whole
def nms_loop_by_mask():
    def run(boxes, scores):
        order = scores.argsort(descending=True)
        boxes = boxes[order]
        low, high = (
            torch.maximum(boxes[:, None, :2], boxes[None, :, :2]),
            torch.minimum(boxes[:, None, 2:], boxes[None, :, 2:]),
        )
        inter = (high - low).clamp(min=0).prod(-1)
        area = (boxes[:, 2:] - boxes[:, :2]).prod(-1)
        iou = inter / (area[:, None] + area[None] - inter)
        keep = torch.ones(boxes.size(0), dtype=torch.bool)
        for i in range(boxes.size(0)):
            keep = keep & ~((iou[i] > 0.4) & (torch.arange(boxes.size(0)) > i) & keep[i])
        return order[keep]

    def make(b, n):
        low = torch.rand(n + 3, 2)
        return torch.cat([low, low + torch.rand(n + 3, 2) + 0.1], 1), torch.rand(n + 3)

    return (run, make)


@whole
def jagged_mean_pooling():
    e = nn.EmbeddingBag(30, 8, mode="mean")

    def run(ids, lengths):
        offsets = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)[:-1]])
        return e(ids, offsets)

    def make(b, n):
        lengths = torch.randint(1, n, (b,))
        return torch.randint(30, (int(lengths.sum()),)), lengths

    return (run, make)


@whole
def packed_by_mask():
    net = nn.Linear(8, 8)

    def run(x, lengths):
        mask = torch.arange(x.size(1)) < lengths[:, None]
        packed = net(x[mask])
        out = torch.zeros_like(x)
        out[mask] = packed
        return out.sum(1) / lengths[:, None], packed.size(0)

    return (
        run,
        lambda b, n: (torch.randn(b, n, 8, requires_grad=True), torch.randint(1, n + 1, (b,))),
    )


@whole
def varlen_attention_blocks():
    def run(x, ids):
        mask = ids[:, None] == ids[None]
        mask = mask & torch.ones_like(mask).tril()
        return F.scaled_dot_product_attention(
            x[None, None], x[None, None], x[None, None], attn_mask=mask
        )[0, 0]

    def make(b, n):
        return torch.randn(b * n, 8, requires_grad=True), torch.arange(b).repeat_interleave(n)

    return (run, make)


@whole
def confusion_and_f1():
    def run(logits, y):
        p = logits.argmax(-1)
        m = torch.bincount(y * 4 + p, minlength=16).view(4, 4).float()
        tp = m.diag()
        precision, recall = tp / m.sum(0).clamp(min=1), tp / m.sum(1).clamp(min=1)
        return (
            m,
            2 * precision * recall / (precision + recall).clamp(min=1e-8),
            (logits.topk(2).indices == y[:, None]).any(1).float().mean(),
        )

    return (run, lambda b, n: (torch.randn(b * n, 4), torch.randint(4, (b * n,))))


@whole
def calibration_and_auc():
    def run(p, y):
        h = torch.histc(p, bins=10, min=0, max=1)
        bucket = torch.bucketize(p, torch.linspace(0, 1, 11)[1:-1])
        mean = torch.zeros(10).index_add_(0, bucket, p) / h.clamp(min=1)
        hits = torch.zeros(10).scatter_add_(0, bucket, y) / h.clamp(min=1)
        order = p.argsort(descending=True)
        tps, fps = y[order].cumsum(0), (1 - y[order]).cumsum(0)
        auc = torch.trapezoid(tps / tps[-1].clamp(min=1), fps / fps[-1].clamp(min=1))
        return ((mean - hits).abs() * h / p.numel()).sum(), auc

    return (run, lambda b, n: (torch.rand(b * n), (torch.rand(b * n) > 0.5).float()))


@whole
def unique_and_counts():
    def run(ids):
        values, back, counts = torch.unique(ids, return_inverse=True, return_counts=True)
        idf = torch.log(ids.numel() / counts.float())
        return values, idf[back], counts

    return (run, lambda b, n: (torch.randint(9, (b * n,)),))


@whole
def quantile_losses():
    net = nn.Linear(8, 3)
    levels = torch.tensor([0.1, 0.5, 0.9])

    def run(x, y):
        error = y - net(x)
        pinball = torch.maximum(levels * error, (levels - 1) * error).mean()
        q = torch.quantile(error.detach(), 0.5, dim=0)
        return pinball + F.huber_loss(net(x), y.expand(-1, 3), delta=0.5), q

    return (run, lambda b, n: (torch.randn(b, 8), torch.randn(b, 1)))


@whole
def windows_with_lags():
    gru, head = nn.GRU(3, 8, batch_first=True), nn.Linear(8, 1)

    def run(series):
        windows = series.unfold(1, 4, 1)
        lags = torch.stack(
            [windows, windows.roll(1, -1), windows - windows.mean(-1, keepdim=True)], -1
        )
        out, _ = gru(lags.flatten(0, 1))
        return head(out[:, -1]).view(series.size(0), -1)

    return (run, lambda b, n: (torch.randn(b, n + 6, requires_grad=True),))


@whole
def gathered_negatives():
    net = nn.Linear(8, 4)

    def run(x, y):
        z = F.normalize(net(x), dim=1)
        sim = z @ z.t()
        n = x.size(0)
        off = ~torch.eye(n, dtype=torch.bool)
        sim = sim[off].view(n, n - 1) / 0.1
        same = (y[:, None] == y[None])[off].view(n, n - 1)
        log_p = sim - sim.logsumexp(1, keepdim=True)
        return -(log_p * same).sum(1).div(same.sum(1).clamp(min=1)).mean()

    return (run, lambda b, n: (torch.randn(b + 2, 8), torch.randint(2, (b + 2,))))


@whole
def ctc_with_lengths():
    net = nn.Linear(8, 6)

    def run(x, lengths, targets, target_lengths):
        return F.ctc_loss(
            net(x).log_softmax(-1).transpose(0, 1),
            targets,
            lengths,
            target_lengths,
            zero_infinity=True,
        )

    def make(b, n):
        lengths = torch.randint(n + 6, n + 9, (b,))
        return (
            torch.randn(b, n + 8, 8),
            lengths,
            torch.randint(1, 6, (b, 3)),
            torch.randint(1, 4, (b,)),
        )

    return (run, make)


@whole
def dropout_path_and_tokens():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.mlp = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 8))
            self.scale = nn.Parameter(torch.full((8,), 0.1))

        def forward(self, x):
            keep = torch.bernoulli(torch.full((x.size(0), 1, 1), 0.8)) / 0.8
            x = x + self.scale * self.mlp(F.layer_norm(x, (8,))) * keep
            order = torch.rand(x.shape[:2]).argsort(1)[:, : x.size(1) // 2]
            return x.gather(1, order[..., None].expand(-1, -1, 8))

    return (Block(), lambda b, n: (torch.randn(b, n, 8, requires_grad=True),))
