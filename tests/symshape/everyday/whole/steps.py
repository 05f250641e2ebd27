"""Steps of training as they stand in people's scripts: adversaries, averages, agents, penalties,
several optimisers.
"""

from __future__ import annotations

import copy
import math

import torch
import torch.nn.functional as F
from torch import nn

from tests.symshape.everyday.whole.program import data, mlp, whole


def _rows(b, n):
    return (torch.randn(b, 8), torch.randn(b, 4))


@whole
def gan_step():
    g = nn.Sequential(nn.Linear(4, 16), nn.LeakyReLU(0.2), nn.Linear(16, 8), nn.Tanh())
    d = mlp()
    og, od = (torch.optim.Adam(each.parameters(), 0.002, betas=(0.5, 0.999)) for each in (g, d))

    def run(real, z):
        fake = g(z)
        od.zero_grad()
        ld = F.binary_cross_entropy_with_logits(d(real), torch.ones(real.size(0), 1))
        ld = ld + F.binary_cross_entropy_with_logits(d(fake.detach()), torch.zeros(real.size(0), 1))
        ld.backward()
        od.step()
        og.zero_grad()
        lg = F.softplus(-d(fake)).mean()
        lg.backward()
        og.step()
        return (
            ld.detach(),
            lg.detach(),
            [p.detach().clone() for m in (g, d) for p in m.parameters()],
        )

    return (run, _rows)


@whole
def wgan_gp_step():
    d = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.LayerNorm(16), nn.Linear(16, 1))
    opt = torch.optim.RMSprop(d.parameters(), 0.005)

    def run(real, fake):
        a = torch.rand(real.size(0), 1)
        x = (a * real + (1 - a) * fake).requires_grad_(True)
        s = d(x)
        g = torch.autograd.grad(
            s, x, grad_outputs=torch.ones_like(s), create_graph=True, retain_graph=True
        )[0]
        gp = ((g.norm(2, dim=1) - 1) ** 2).mean()
        loss = d(fake).mean() - d(real).mean() + 10 * gp
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.detach(), gp.detach(), [p.detach().clone() for p in d.parameters()]

    return (run, lambda b, n: (torch.randn(b, 8), torch.randn(b, 8)))


@whole
def r1_penalty_returned():
    d = nn.Sequential(nn.Linear(8, 16), nn.Softplus(), nn.Linear(16, 1))

    def run(x):
        x = x.detach().requires_grad_()
        s = d(x)
        (g,) = torch.autograd.grad(s.sum(), x, create_graph=True)
        return F.softplus(-s).mean() + g.square().sum(1).mean()

    return (run, lambda b, n: (torch.randn(b, 8),))


@whole
def adversarial_pgd():
    net = nn.Sequential(nn.Linear(8, 16), nn.Sigmoid(), nn.Linear(16, 3))

    def run(x, y):
        delta = torch.zeros_like(x).uniform_(-0.1, 0.1)
        for _ in range(3):
            delta.requires_grad_(True)
            loss = F.cross_entropy(net(x + delta), y)
            (g,) = torch.autograd.grad(loss, delta)
            delta = (delta.detach() + 0.05 * g.sign()).clamp(-0.1, 0.1)
        return F.cross_entropy(net(x + delta), y), delta

    return (run, lambda b, n: (torch.randn(b, 8), torch.randint(3, (b,))))


@whole
def teacher_student():
    student, teacher = mlp(), mlp().eval().requires_grad_(False)
    opt = torch.optim.SGD(student.parameters(), 0.1, momentum=0.9, nesterov=True)

    def run(x, y):
        with torch.no_grad():
            t = teacher(x)
        s = student(x)
        loss = F.kl_div(
            F.log_softmax(s / 2, 0), F.softmax(t / 2, 0), reduction="batchmean"
        ) * 4 + F.mse_loss(s, y)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(student.parameters(), 0.5)
        opt.step()
        return loss.item(), [p.detach().clone() for p in student.parameters()]

    return (run, data)


@whole
def byol_momentum():
    online = nn.Sequential(
        nn.Linear(8, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4)
    )
    target = copy.deepcopy(online).requires_grad_(False)
    head = nn.Linear(4, 4)
    opt = torch.optim.AdamW([*online.parameters(), *head.parameters()], 0.01)

    def run(a, b):
        with torch.no_grad():
            ta, tb = target(a), target(b)
        loss = (
            4
            - 2
            * (
                F.cosine_similarity(head(online(a)), tb) + F.cosine_similarity(head(online(b)), ta)
            ).mean()
        )
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        with torch.no_grad():
            for p, q in zip(online.parameters(), target.parameters(), strict=True):
                q.lerp_(p, 0.01)
            for p, q in zip(online.buffers(), target.buffers(), strict=True):
                q.copy_(p)
        return loss.detach(), [p.clone() for p in (*target.parameters(), *target.buffers())]

    return (run, lambda b, n: (torch.randn(b + 1, 8), torch.randn(b + 1, 8)))


@whole
def moco_queue():
    net = nn.Linear(8, 4)
    queue = F.normalize(torch.randn(32, 4), dim=1)
    at = torch.zeros(1, dtype=torch.long)

    def run(q, k):
        q, k = F.normalize(net(q), dim=1), F.normalize(k, dim=1)
        logits = torch.cat([(q * k).sum(1, keepdim=True), q @ queue.clone().t()], 1) / 0.07
        with torch.no_grad():
            slots = (at + torch.arange(k.size(0))) % 32
            queue.index_copy_(0, slots, k)
            at.add_(k.size(0)).remainder_(32)
        return (
            F.cross_entropy(logits, torch.zeros(q.size(0), dtype=torch.long)),
            queue.clone(),
            at.clone(),
        )

    return (run, lambda b, n: (torch.randn(b, 8), torch.randn(b, 4)))


@whole
def lora_training():
    base = nn.Linear(8, 8).requires_grad_(False)
    a, b_ = nn.Linear(8, 2, bias=False), nn.Linear(2, 8, bias=False)
    nn.init.zeros_(b_.weight)
    opt = torch.optim.AdamW([*a.parameters(), *b_.parameters()], 0.01)

    def run(x):
        loss = (base(x) + b_(F.dropout(a(x), 0.1)) * (16 / 2)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return (
            loss.detach(),
            a.weight.detach().clone(),
            b_.weight.detach().clone(),
            base.weight.grad,
        )

    return (run, lambda b, n: (torch.randn(b, n, 8),))


@whole
def warm_up_by_hand():
    net = mlp()
    opt = torch.optim.AdamW(net.parameters(), 0.01)
    state = {"step": 0}

    def run(x, y):
        state["step"] += 1
        for group in opt.param_groups:
            group["lr"] = (
                0.01
                * min(1.0, state["step"] / 10)
                * (0.5 * (1 + math.cos(math.pi * state["step"] / 100)))
            )
        loss = F.smooth_l1_loss(net(x), y)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
        return loss.detach(), norm, [p.detach().clone() for p in net.parameters()]

    return (run, data)


@whole
def accumulated_in_a_loop():
    net = mlp()
    opt = torch.optim.SGD(net.parameters(), 0.1)

    def run(x, y):
        opt.zero_grad()
        total = 0.0
        for bx, by in zip(x.split(2), y.split(2), strict=True):
            loss = F.mse_loss(net(bx), by, reduction="sum") / x.size(0)
            loss.backward()
            total += loss.detach()
        opt.step()
        return total, [p.detach().clone() for p in net.parameters()]

    return (run, data)


@whole
def sam_step():
    net = mlp()
    opt = torch.optim.SGD(net.parameters(), 0.1)

    def run(x, y):
        F.mse_loss(net(x), y).backward()
        with torch.no_grad():
            norm = torch.stack([p.grad.norm() for p in net.parameters()]).norm()
            steps = [p.grad * (0.05 / (norm + 1e-12)) for p in net.parameters()]
            for p, e in zip(net.parameters(), steps, strict=True):
                p.add_(e)
        opt.zero_grad()
        loss = F.mse_loss(net(x), y)
        loss.backward()
        with torch.no_grad():
            for p, e in zip(net.parameters(), steps, strict=True):
                p.sub_(e)
        opt.step()
        opt.zero_grad()
        return loss.detach(), [p.detach().clone() for p in net.parameters()]

    return (run, data)


@whole
def reinforce_step():
    policy = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3))
    opt = torch.optim.Adam(policy.parameters(), 0.01)

    def run(states, rewards):
        dist = torch.distributions.Categorical(logits=policy(states))
        actions = dist.sample()
        returns = rewards.flip(0).cumsum(0).flip(0)
        returns = (returns - returns.mean()) / (returns.std() + 1e-8)
        loss = -(dist.log_prob(actions) * returns).mean() - 0.01 * dist.entropy().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.detach(), actions, policy[0].weight.detach().clone()

    return (run, lambda b, n: (torch.randn(b + 1, 8), torch.rand(b + 1)))


@whole
def ddpg_soft_update():
    actor, critic = nn.Sequential(nn.Linear(8, 2), nn.Tanh()), nn.Linear(10, 1)
    actor_t, critic_t = copy.deepcopy(actor), copy.deepcopy(critic)
    oa, oc = torch.optim.Adam(actor.parameters(), 0.01), torch.optim.Adam(critic.parameters(), 0.01)

    def run(s, a, r, s2, done):
        with torch.no_grad():
            q2 = critic_t(torch.cat([s2, actor_t(s2)], 1))
            target = r + 0.99 * (1 - done) * q2
        lc = F.mse_loss(critic(torch.cat([s, a], 1)), target)
        oc.zero_grad()
        lc.backward()
        oc.step()
        la = -critic(torch.cat([s, actor(s)], 1)).mean()
        oa.zero_grad()
        la.backward()
        oa.step()
        for m, t in ((actor, actor_t), (critic, critic_t)):
            for p, q in zip(m.parameters(), t.parameters(), strict=True):
                q.data.copy_(0.005 * p.data + 0.995 * q.data)
        return (
            lc.detach(),
            la.detach(),
            [p.detach().clone() for m in (actor, critic_t) for p in m.parameters()],
        )

    def make(b, n):
        return (
            torch.randn(b, 8),
            torch.rand(b, 2),
            torch.rand(b, 1),
            torch.randn(b, 8),
            (torch.rand(b, 1) > 0.8).float(),
        )

    return (run, make)


class _StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, levels):
        return (x * levels).round() / levels

    @staticmethod
    def backward(ctx, g):
        return g, None


class _FusedLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, target):
        p = logits.softmax(-1)
        ctx.save_for_backward(p, target)
        return -p.gather(-1, target[:, None]).squeeze(-1).log().mean(), p.argmax(-1)

    @staticmethod
    def backward(ctx, g, _):
        p, target = ctx.saved_tensors
        p = p.clone()
        p[torch.arange(p.size(0)), target] -= 1
        return p * (g / p.size(0)), None


@whole
def quantised_training():
    net = nn.Linear(8, 8)
    opt = torch.optim.SGD(net.parameters(), 0.1)

    def run(x):
        w = _StraightThrough.apply(net.weight, 16)
        loss = F.linear(_StraightThrough.apply(x, 32.0), w, net.bias).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.detach(), net.weight.detach().clone()

    return (run, lambda b, n: (torch.randn(b, n, 8),))


@whole
def quantised_forward():
    net = nn.Linear(8, 8)
    return (
        lambda x: _StraightThrough.apply(net(_StraightThrough.apply(x, 4)), x.size(1)).sum(-1),
        lambda b, n: (torch.randn(b, n, 8, requires_grad=True),),
    )


@whole
def fused_loss_function():
    net = nn.Linear(8, 5)

    def run(x, y):
        loss, found = _FusedLoss.apply(net(x), y)
        return loss, (found == y).float().mean()

    return (run, lambda b, n: (torch.randn(b, 8), torch.randint(5, (b,))))


@whole
def implicit_meta_gradient():
    net = nn.Linear(8, 1)
    log_lr = nn.Parameter(torch.tensor(-2.0))

    def run(x, y):
        w = net.weight
        for _ in range(2):
            (g,) = torch.autograd.grad(
                F.mse_loss(torch.sigmoid(x @ w.t()), y), w, create_graph=True
            )
            w = w - log_lr.exp() * g
        return F.mse_loss(x @ w.t(), y)

    return (run, data)


@whole
def physics_informed():
    net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
    opt = torch.optim.Adam(net.parameters(), 0.01)

    def run(points):
        points = points.clone().requires_grad_(True)
        u = net(points)
        du = torch.autograd.grad(u.sum(), points, create_graph=True)[0]
        d2 = torch.autograd.grad(du[:, 0].sum(), points, create_graph=True)[0][:, 0]
        loss = (du[:, 1] - 0.1 * d2 + u[:, 0] * du[:, 0]).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.detach(), [p.detach().clone() for p in net.parameters()]

    return (run, lambda b, n: (torch.rand(b + n, 2),))


@whole
def elastic_weights():
    net = mlp()
    anchor = [p.detach().clone() for p in net.parameters()]
    fisher = [torch.rand_like(p) for p in net.parameters()]

    def run(x, y):
        pairs = zip(net.parameters(), anchor, fisher, strict=True)
        return F.mse_loss(net(x), y) + 0.4 * sum((f * (p - a) ** 2).sum() for p, a, f in pairs)

    return (run, data)
