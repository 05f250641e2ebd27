"""Reinforcement learning, diffusion, graphs."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from tests.symshape.everyday.whole.program import whole


@whole
def actor_critic_categorical():
    pi, vf = (nn.Linear(4, 3), nn.Linear(4, 1))

    def run(obs):
        d = torch.distributions.Categorical(logits=pi(obs))
        a = d.sample()
        return (a, d.log_prob(a), d.entropy().mean(), vf(obs).squeeze(-1))

    return (run, lambda b, n: (torch.randn(b * n, 4),))


@whole
def ppo_update():
    pi, vf = (nn.Linear(4, 3), nn.Linear(4, 1))
    opt = torch.optim.Adam([*pi.parameters(), *vf.parameters()], 0.01)

    def run(obs, act, old, adv, ret):
        adv = (adv - adv.mean()) / (adv.std() + 1e-08)
        d = torch.distributions.Categorical(logits=pi(obs))
        lp = d.log_prob(act)
        ratio = (lp - old).exp()
        loss = (
            -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
            + 0.5 * F.mse_loss(vf(obs).squeeze(-1), ret)
            - 0.01 * d.entropy().mean()
        )
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(pi.parameters(), 0.5)
        opt.step()
        return (loss.detach(), pi.weight.detach().clone())

    return (
        run,
        lambda b, n: (
            torch.randn(b * n, 4),
            torch.randint(3, (b * n,)),
            torch.randn(b * n) - 1,
            torch.randn(b * n),
            torch.randn(b * n),
        ),
    )


@whole
def gae():

    def run(r, v, done, last):
        adv = torch.zeros_like(r)
        g = torch.zeros(r.size(1))
        for t in reversed(range(r.size(0))):
            nv = last if t == r.size(0) - 1 else v[t + 1]
            nd = 1.0 - done[t].float()
            delta = r[t] + 0.99 * nv * nd - v[t]
            adv[t] = g = delta + 0.99 * 0.95 * nd * g
        return (adv, adv + v)

    return (
        run,
        lambda b, n: (torch.randn(n, b), torch.randn(n, b), torch.rand(n, b) > 0.8, torch.randn(b)),
    )


@whole
def dqn_with_replay_tensor():
    q, t = (nn.Linear(4, 3), nn.Linear(4, 3))

    class Buf:
        def __init__(self):
            self.obs = torch.zeros(64, 4)
            self.pos = 0
            self.full = False

        def add(self, o):
            k = o.size(0)
            idx = (torch.arange(k) + self.pos) % 64
            self.obs[idx] = o
            self.pos = (self.pos + k) % 64
            self.full = self.full or self.pos + k >= 64

    buf = Buf()

    def run(o, a, r):
        buf.add(o)
        i = torch.randint(0, 64, (8,))
        batch = buf.obs[i]
        with torch.no_grad():
            target = r + 0.9 * t(o).max(1).values
        loss = F.smooth_l1_loss(q(o).gather(1, a[:, None]).squeeze(1), target)
        return (loss, q(batch).mean(), buf.pos)

    return (run, lambda b, n: (torch.randn(b, 4), torch.randint(3, (b,)), torch.randn(b)))


@whole
def sac_tanh_normal():
    net = nn.Linear(4, 4)

    def run(o):
        mu, ls = net(o).chunk(2, -1)
        std = ls.clamp(-5, 2).exp()
        d = torch.distributions.Normal(mu, std)
        u = d.rsample()
        a = torch.tanh(u)
        return (a, (d.log_prob(u) - torch.log(1 - a.pow(2) + 1e-06)).sum(-1))

    return (run, lambda b, n: (torch.randn(b, 4),))


@whole
def ddpm_training_loss():
    net = nn.Sequential(nn.Linear(9, 16), nn.SiLU(), nn.Linear(16, 8))
    beta = torch.linspace(0.0001, 0.02, 20)
    ac = (1 - beta).cumprod(0)

    def run(x):
        t = torch.randint(0, 20, (x.size(0),))
        noise = torch.randn_like(x)
        a = ac[t].view(-1, *[1] * (x.dim() - 1))
        xt = a.sqrt() * x + (1 - a).sqrt() * noise
        tt = (t.float() / 20).view(-1, 1, 1).expand(-1, x.size(1), 1)
        return F.mse_loss(net(torch.cat([xt, tt], -1)), noise)

    return (run, lambda b, n: (torch.randn(b, n, 8),))


@whole
def ddim_sampling_loop():
    net = nn.Linear(8, 8)
    beta = torch.linspace(0.0001, 0.02, 10)
    ac = (1 - beta).cumprod(0)

    @torch.no_grad()
    def run(x):
        for i in reversed(range(10)):
            eps = net(x)
            a = ac[i]
            ap = ac[i - 1] if i > 0 else torch.tensor(1.0)
            x0 = (x - (1 - a).sqrt() * eps) / a.sqrt()
            x = ap.sqrt() * x0.clamp(-1, 1) + (1 - ap).sqrt() * eps
        return x

    return (run, lambda b, n: (torch.randn(b, n, 8),))


@whole
def classifier_free_guidance():
    net = nn.Linear(8, 8)

    @torch.no_grad()
    def run(x, c, scale, t):
        e = net(torch.cat([x, x]) + torch.cat([c, torch.zeros_like(c)]))
        cond, unc = e.chunk(2)
        half = 4
        freqs = torch.exp(-math.log(10000) * torch.arange(half) / half)
        te = torch.cat([(t * freqs).cos(), (t * freqs).sin()])
        return unc + scale * (cond - unc) + te

    iter([1.0, 3.5, 7.5, 2.0, 4.0, 5.0, 6.0] * 9)
    return (run, lambda b, n: (torch.randn(b, 8), torch.randn(b, 8), 1.0 + b * 0.5, n))


@whole
def gcn_scatter():
    w = nn.Linear(8, 8)

    def run(x, e):
        n = x.size(0)
        loops = torch.arange(n)
        e = torch.cat([e, torch.stack([loops, loops])], 1)
        s, d = e
        deg = torch.zeros(n).scatter_add_(0, d, torch.ones(e.size(1)))
        di = deg.pow(-0.5)
        norm = di[s] * di[d]
        return torch.zeros(n, 8).index_add(0, d, w(x)[s] * norm[:, None])

    return (run, lambda b, n: (torch.randn(b + 2, 8), torch.randint(b + 2, (2, n * 2))))


@whole
def gat_softmax():
    w, a = (nn.Linear(8, 8), nn.Linear(16, 1))

    def run(x, e):
        h = w(x)
        s, d = e
        al = F.leaky_relu(a(torch.cat([h[s], h[d]], -1)).squeeze(-1), 0.2)
        m = torch.full((x.size(0),), -float("inf")).scatter_reduce(0, d, al, "amax")
        ex = (al - m[d]).exp()
        den = torch.zeros(x.size(0)).scatter_add(0, d, ex)
        al = ex / (den[d] + 1e-16)
        return torch.zeros_like(h).index_add(0, d, h[s] * al[:, None])

    return (run, lambda b, n: (torch.randn(b + 2, 8), torch.randint(b + 2, (2, n * 2))))


@whole
def global_pool_by_batch():

    def run(x, batch):
        k = int(batch.max()) + 1
        s = torch.zeros(k, x.size(1)).index_add_(0, batch, x)
        c = torch.bincount(batch, minlength=k).clamp(min=1)
        return s / c[:, None]

    return (run, lambda b, n: (torch.randn(b * n, 8), torch.arange(b).repeat_interleave(n)))
