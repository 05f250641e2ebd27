"""What else people bring: losses, clustering, geometry, state in modules."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.symshape.everyday.whole.program import data, img, mlp, whole


@whole
def mixture_of_experts():

    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.g = nn.Linear(8, 3)
            self.e = nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])

        def forward(self, x):
            f = x.view(-1, 8)
            w, i = self.g(f).softmax(-1).topk(2)
            out = torch.zeros_like(f)
            for k, e in enumerate(self.e):
                t, pos = torch.where(i == k)
                out.index_add_(0, t, e(f[t]) * w[t, pos, None])
            return out.view_as(x)

    return (M(), lambda b, n: (torch.randn(b, n, 8),))


@whole
def info_nce():

    def run(a, b_):
        a, b_ = (F.normalize(a, dim=-1), F.normalize(b_, dim=-1))
        l = a @ b_.t() / 0.07
        y = torch.arange(a.size(0))
        return (F.cross_entropy(l, y) + F.cross_entropy(l.t(), y)) / 2

    return (run, lambda b, n: (torch.randn(b, 8, requires_grad=True), torch.randn(b, 8)))


@whole
def triplet_mining():

    def run(e, y):
        d = torch.cdist(e, e)
        s = y[:, None] == y[None]
        hp = (d * s).max(1).values
        hn = d.masked_fill(s, 1000000000.0).min(1).values
        return F.relu(hp - hn + 0.2).mean()

    return (run, lambda b, n: (torch.randn(b * 2, 8), torch.arange(b).repeat(2)))


@whole
def focal_dice():

    def run(x, y):
        p = x.sigmoid()
        ce = F.binary_cross_entropy_with_logits(x, y, reduction="none")
        pt = p * y + (1 - p) * (1 - y)
        return (
            (ce * (1 - pt) ** 2).mean()
            + 1
            - (2 * (p * y).sum((1, 2)) + 1) / (p.sum((1, 2)) + y.sum((1, 2)) + 1)
        )

    return (run, lambda b, n: (torch.randn(b, n, n + 1), (torch.rand(b, n, n + 1) > 0.5).float()))


@whole
def kmeans():

    def run(x):
        c = x[:3].clone()
        for _ in range(4):
            a = torch.cdist(x, c).argmin(1)
            oh = F.one_hot(a, 3).float()
            c = oh.t() @ x / oh.sum(0).clamp(min=1)[:, None]
        return (c, a)

    return (run, lambda b, n: (torch.randn(b * n, 4),))


@whole
def mixup():

    def run(x, y):
        lam = torch.distributions.Beta(torch.tensor(1.0), torch.tensor(1.0)).sample()
        i = torch.randperm(x.size(0))
        return (lam * x + (1 - lam) * x[i], y, y[i])

    return (run, lambda b, n: (torch.randn(b, n), torch.randint(4, (b,))))


@whole
def random_crop_flip():

    def run(x):
        i = torch.randint(0, 5, (1,)).item()
        x = x[:, :, i : i + 8, i : i + 8]
        return torch.where(torch.rand(x.size(0), 1, 1, 1) > 0.5, x.flip(-1), x)

    return (run, img)


@whole
def normal_mixture_loss():
    net = nn.Linear(4, 9)

    def run(x, y):
        l, m, s = net(x).chunk(3, -1)
        d = torch.distributions.MixtureSameFamily(
            torch.distributions.Categorical(logits=l),
            torch.distributions.Normal(m, F.softplus(s) + 0.001),
        )
        return -d.log_prob(y).mean()

    return (run, lambda b, n: (torch.randn(b, 4), torch.randn(b)))


@whole
def dirichlet_gamma_kl():

    def run(x):
        p, q = (
            torch.distributions.Dirichlet(x.exp()),
            torch.distributions.Dirichlet(torch.ones_like(x)),
        )
        return (
            torch.distributions.kl_divergence(p, q),
            torch.distributions.LogNormal(x, 1.0).log_prob(x.exp()),
        )

    return (run, lambda b, n: (torch.randn(b, n),))


@whole
def transformed_flow():

    def run(x):
        D = torch.distributions
        d = D.TransformedDistribution(
            D.Normal(torch.zeros(x.size(-1)), 1.0),
            [D.transforms.AffineTransform(1.0, 2.0), D.transforms.SigmoidTransform()],
        )
        return d.log_prob(x.sigmoid())

    return (run, lambda b, n: (torch.randn(b, n),))


@whole
def running_statistics():

    class R(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(8))
            self.register_buffer("var", torch.ones(8))
            self.register_buffer("count", torch.tensor(0.0001))

        def forward(self, x):
            if self.training:
                bm, bv, bc = (x.mean(0), x.var(0), x.shape[0])
                d = bm - self.mean
                t = self.count + bc
                self.mean = self.mean + d * bc / t
                self.var = (self.var * self.count + bv * bc + d**2 * self.count * bc / t) / t
                self.count = t
            return (x - self.mean) / torch.sqrt(self.var + 1e-05)

    return (R(), lambda b, n: (torch.randn(b, 8),))


@whole
def kv_cache_by_hand():

    class A(nn.Module):
        def __init__(self):
            super().__init__()
            self.p = nn.Linear(8, 24)
            self.k = self.v = None

        def forward(self, x):
            q, k, v = self.p(x).chunk(3, -1)
            if self.k is not None and self.k.size(0) == x.size(0):
                k, v = (torch.cat([self.k, k], 1), torch.cat([self.v, v], 1))
            self.k, self.v = (k.detach(), v.detach())
            return F.scaled_dot_product_attention(q, k, v)

    return (A(), lambda b, n: (torch.randn(2, 1, 8),))


@whole
def time_series_windows():

    def run(x):
        w = x.unfold(1, 4, 2)
        return (
            w.mean(-1),
            w.std(-1),
            torch.diff(x, dim=1),
            x.cumsum(1),
            F.conv1d(x[:, None], torch.ones(1, 1, 3) / 3, padding=1),
        )

    return (run, lambda b, n: (torch.randn(b, n + 6),))


@whole
def nerf_rendering():
    net = nn.Sequential(nn.Linear(27, 16), nn.ReLU(), nn.Linear(16, 4))

    def run(o, d):
        t = torch.linspace(2, 6, 8).expand(o.size(0), 8)
        t = t + torch.rand(t.shape) * 0.5
        p = o[:, None] + d[:, None] * t[..., None]
        e = torch.cat([p] + [f(2.0**i * p) for i in range(4) for f in (torch.sin, torch.cos)], -1)
        r = net(e)
        a = 1 - torch.exp(-F.relu(r[..., 3]) * 0.5)
        w = a * torch.cumprod(torch.cat([torch.ones(a.size(0), 1), 1 - a + 1e-10], 1), 1)[:, :-1]
        return ((w[..., None] * r[..., :3].sigmoid()).sum(1), w.sum(1))

    return (run, lambda b, n: (torch.randn(b * n, 3), torch.randn(b * n, 3)))


@whole
def quaternions():

    def run(q):
        w, x, y, z = F.normalize(q, dim=-1).unbind(-1)
        return torch.stack(
            [
                1 - 2 * (y * y + z * z),
                2 * (x * y - z * w),
                2 * (x * z + y * w),
                2 * (x * y + z * w),
                1 - 2 * (x * x + z * z),
                2 * (y * z - x * w),
                2 * (x * z - y * w),
                2 * (y * z + x * w),
                1 - 2 * (x * x + y * y),
            ],
            -1,
        ).reshape((*q.shape[:-1], 3, 3))

    return (run, lambda b, n: (torch.randn(b, n, 4),))


@whole
def sinkhorn():

    def run(c):
        u = torch.zeros(c.size(0))
        v = torch.zeros(c.size(1))
        for _ in range(5):
            u = -torch.logsumexp(-c + v[None], 1)
            v = -torch.logsumexp(-c + u[:, None], 0)
        return torch.exp(u[:, None] + v[None] - c)

    return (run, lambda b, n: (torch.rand(b + 1, n + 1),))


@whole
def least_squares_and_svd():

    def run(x, y):
        return (
            torch.linalg.lstsq(x, y).solution,
            torch.linalg.svdvals(x),
            torch.linalg.qr(x)[1].abs(),
            torch.linalg.pinv(x),
            torch.linalg.matrix_rank(x),
        )

    return (run, lambda b, n: (torch.randn(b + 8, 4), torch.randn(b + 8, 2)))


@whole
def lazy_module():
    return (
        nn.Sequential(nn.LazyLinear(6), nn.ReLU(), nn.LazyLinear(2)),
        lambda b, n: (torch.randn(b, 8),),
    )


@whole
def weights_tied():

    class T(nn.Module):
        def __init__(self):
            super().__init__()
            self.e = nn.Embedding(20, 8)
            self.h = nn.Linear(8, 20, bias=False)
            self.h.weight = self.e.weight

        def forward(self, i):
            return self.h(self.e(i))

    return (T(), lambda b, n: (torch.randint(20, (b, n)),))


@whole
def tcn_causal():

    class C(nn.Module):
        def __init__(self):
            super().__init__()
            self.c = nn.ModuleList(
                [
                    nn.utils.parametrizations.weight_norm(nn.Conv1d(4, 4, 3, dilation=2**i))
                    for i in range(3)
                ]
            )

        def forward(self, x):
            for i, c in enumerate(self.c):
                x = x + F.relu(c(F.pad(x, (2 * 2**i, 0))))
            return x

    return (C(), lambda b, n: (torch.randn(b, 4, n),))


@whole
def pointnet():
    net = nn.Sequential(nn.Conv1d(3, 8, 1), nn.BatchNorm1d(8), nn.ReLU())

    def run(p):
        i = torch.cdist(p, p).topk(2, largest=False).indices
        g = torch.gather(
            p.unsqueeze(1).expand(-1, p.size(1), -1, -1), 2, i[..., None].expand(-1, -1, -1, 3)
        )
        return (net(p.transpose(1, 2)).max(-1).values, g.mean(2))

    return (run, lambda b, n: (torch.randn(b, n + 2, 3),))


@whole
def deformable_offsets():
    off = nn.Conv2d(3, 2, 3, padding=1)

    def run(x):
        _b, _c, h, w = x.shape
        yy, xx = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        base = torch.stack([xx, yy], -1).float()
        g = base + off(x).permute(0, 2, 3, 1)
        g = 2 * g / torch.tensor([w - 1, h - 1]) - 1
        return F.grid_sample(x, g, align_corners=True)

    return (run, img)


@whole
def siamese_dict_batch():
    net = mlp()

    def run(batch):
        return {
            "loss": (net(batch["a"]) - net(batch["b"])).abs().mean(),
            "n": batch["a"].size(0),
            "name": batch["name"],
        }

    return (run, lambda b, n: ({"a": torch.randn(b, 8), "b": torch.randn(b, 8), "name": "x"},))


@whole
def double_backward_norm():
    net = mlp()

    def run(x, y):
        l = F.mse_loss(net(x), y)
        gs = torch.autograd.grad(l, net.parameters(), create_graph=True)
        return l + 0.1 * sum(g.pow(2).sum() for g in gs)

    return (run, data)


@whole
def linear_attention_scan():

    def run(q, k, v):
        s = torch.zeros(q.size(0), 4, 4)
        out = []
        for t in range(q.size(1)):
            s = s * 0.9 + k[:, t, :, None] * v[:, t, None]
            out.append((q[:, t, None] @ s).squeeze(1))
        return torch.stack(out, 1)

    return (run, lambda b, n: tuple(torch.randn(b, n, 4) for _ in range(3)))


@whole
def lstm_step_state():

    class L(nn.Module):
        def __init__(self):
            super().__init__()
            self.c = nn.LSTMCell(4, 4)
            self.state = None

        def forward(self, x):
            if self.state is None or self.state[0].size(0) != x.size(0):
                self.state = (x.new_zeros(x.size(0), 4), x.new_zeros(x.size(0), 4))
            h, c = self.c(x, self.state)
            self.state = (h.detach(), c.detach())
            return h

    return (L(), lambda b, n: (torch.randn(b, 4),))


@whole
def early_exit_on_size():
    net = nn.Linear(8, 8)

    def run(x):
        if x.size(0) > 4:
            x = x[:4]
        while x.size(1) > 8:
            x = x[:, ::2]
        return net(x.mean(1))

    return (run, lambda b, n: (torch.randn(b, n, 8),))


@whole
def chunked_processing():
    net = nn.Linear(8, 8)

    def run(x):
        return (
            torch.cat([net(c) for c in x.split(2, 0)]),
            torch.cat([c.sum(0, keepdim=True) for c in torch.chunk(x, 2)]),
        )

    return (run, lambda b, n: (torch.randn(b, 8),))


@whole
def attention_bias_alibi():

    def run(q, k, v):
        h = q.size(1)
        sl = torch.tensor([2 ** (-8 * (i + 1) / h) for i in range(h)])
        n = q.size(2)
        pos = torch.arange(n)
        bias = (pos[None] - pos[:, None]).clamp(max=0)[None] * sl[:, None, None]
        return F.scaled_dot_product_attention(
            q, k, v, attn_mask=bias + torch.full((n, n), -float("inf")).triu(1)
        )

    return (run, lambda b, n: tuple(torch.randn(b, 2, n, 4) for _ in range(3)))
