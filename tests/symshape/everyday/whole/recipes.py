"""Recipes of training and decoding as people write them: scalers, adapters, queues, codebooks,
caches of their own.
"""

from __future__ import annotations

import collections
import copy
import enum

import torch
import torch.nn.functional as F
from torch import nn

from tests.symshape.everyday.whole.program import data, mlp, whole


@whole
def grad_scaler_with_clipping():
    net = mlp()
    opt = torch.optim.AdamW(net.parameters(), 0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=16.0, growth_interval=2)

    def run(x, y):
        opt.zero_grad()
        loss = F.mse_loss(net(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        scaler.step(opt)
        scaler.update()
        return loss.detach(), net[0].weight.detach().clone(), scaler.state_dict()["scale"]

    return run, data


@whole
def lion_optimiser():
    class Lion(torch.optim.Optimizer):
        def __init__(self, params, lr=1e-2, betas=(0.9, 0.99), decay=0.01):
            super().__init__(params, {"lr": lr, "betas": betas, "decay": decay})

        @torch.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is None:
                        continue
                    state = self.state[p]
                    if "m" not in state:
                        state["m"] = torch.zeros_like(p)
                    one, two = group["betas"]
                    p.mul_(1 - group["lr"] * group["decay"])
                    p.add_((state["m"] * one + p.grad * (1 - one)).sign_(), alpha=-group["lr"])
                    state["m"].mul_(two).add_(p.grad, alpha=1 - two)

    net = mlp()
    opt = Lion(net.parameters())

    def run(x, y):
        opt.zero_grad()
        loss = F.mse_loss(net(x), y)
        loss.backward()
        opt.step()
        return loss.detach(), [p.detach().clone() for p in net.parameters()]

    return run, data


@whole
def optimisers_in_backward():
    net = mlp()
    opts = {p: torch.optim.SGD([p], 0.1) for p in net.parameters()}

    def stepped(p):
        opts[p].step()
        opts[p].zero_grad()

    for p in net.parameters():
        p.register_post_accumulate_grad_hook(stepped)

    def run(x, y):
        loss = F.mse_loss(net(x), y)
        loss.backward()
        return loss.detach(), net[0].weight.detach().clone()

    return run, data


@whole
def lookahead_weights():
    net = mlp()
    opt = torch.optim.SGD(net.parameters(), 0.1)
    slow = [p.detach().clone() for p in net.parameters()]
    state = {"k": 0}

    def run(x, y):
        opt.zero_grad()
        loss = F.mse_loss(net(x), y)
        loss.backward()
        opt.step()
        state["k"] += 1
        if state["k"] % 3 == 0:
            with torch.no_grad():
                for s, p in zip(slow, net.parameters(), strict=True):
                    s.lerp_(p, 0.5)
                    p.copy_(s)
        return loss.detach(), [s.clone() for s in slow]

    return run, data


@whole
def queue_with_pointer():
    class Queue(nn.Module):
        def __init__(self):
            super().__init__()
            self.encode = nn.Linear(8, 4)
            self.register_buffer("queue", torch.randn(12, 4))
            self.at = 0

        def forward(self, x):
            keys = self.encode(x)
            out = keys @ self.queue.clone().T
            with torch.no_grad():
                n = keys.shape[0]
                self.queue[(torch.arange(n) + self.at) % 12] = keys
                self.at = (self.at + n) % 12
            return out

    return Queue(), lambda b, n: (torch.randn(b, 8),)


@whole
def codebook_by_averages():
    class Codebook(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("codes", torch.randn(6, 4))
            self.register_buffer("sizes", torch.zeros(6))
            self.register_buffer("sums", self.codes.clone())

        def forward(self, x):
            flat = x.reshape(-1, 4)
            found = torch.cdist(flat, self.codes).argmin(1)
            quantised = self.codes[found].view_as(x)
            with torch.no_grad():
                chosen = F.one_hot(found, 6).type_as(flat)
                self.sizes.mul_(0.9).add_(chosen.sum(0), alpha=0.1)
                self.sums.mul_(0.9).add_(chosen.T @ flat, alpha=0.1)
                total = self.sizes.sum()
                self.codes.copy_(
                    self.sums / ((self.sizes + 1e-5) / (total + 6e-5) * total).unsqueeze(1)
                )
            return x + (quantised - x).detach(), F.mse_loss(x, quantised.detach())

    return Codebook(), lambda b, n: (torch.randn(b, n, 4, requires_grad=True),)


@whole
def lora_merged_at_every_other_call():
    class Adapter(nn.Module):
        def __init__(self):
            super().__init__()
            self.base = nn.Linear(8, 8).requires_grad_(False)
            self.down, self.up = nn.Parameter(torch.randn(2, 8)), nn.Parameter(torch.randn(8, 2))
            self.merged = False

        def turn(self):
            change = 0.5 * (self.up @ self.down).detach()
            self.base.weight.data += -change if self.merged else change
            self.merged = not self.merged

        def forward(self, x):
            y = self.base(x)
            return y if self.merged else y + (x @ self.down.T @ self.up.T) * 0.5

    adapter = Adapter()

    def make(b, n):
        adapter.turn()
        return (torch.randn(b, 8),)

    return adapter, make


class _Cache:
    """Keys and values as people keep them."""

    def __init__(self):
        self.k = self.v = None
        self.seen = 0

    def update(self, k, v):
        self.k = k if self.k is None else torch.cat([self.k, k], 1)
        self.v = v if self.v is None else torch.cat([self.v, v], 1)
        self.seen += k.shape[1]
        return self.k, self.v


@whole
def cache_of_ones_own():
    qkv = nn.Linear(8, 24)
    cache = _Cache()

    def run(x, cache):
        q, k, v = qkv(x).chunk(3, -1)
        k, v = cache.update(k, v)
        return F.scaled_dot_product_attention(q, k, v)

    return torch.no_grad()(run), lambda b, n: (torch.randn(2, n, 8), cache)


@whole
def answer_of_ones_own():
    class Answer:
        def __init__(self, logits, state):
            self.logits, self.state, self.steps = logits, state, logits.shape[1]

    net = nn.Linear(8, 5)

    def run(x):
        y = net(x)
        return Answer(y, {"last": y[:, -1], "shape": y.shape})

    return run, lambda b, n: (torch.randn(b, n, 8),)


@whole
def metrics_flushed():
    net = mlp()
    meter = type("Meter", (), {})()
    meter.sums = collections.defaultdict(list)

    def run(x, y):
        loss = F.mse_loss(net(x), y)
        meter.sums["loss"].append(loss.detach())
        meter.sums["rows"].append(x.shape[0])
        if len(meter.sums["loss"]) == 3:
            mean = torch.stack(meter.sums["loss"]).mean() * sum(meter.sums["rows"])
            meter.sums = collections.defaultdict(list)
            return loss, mean
        return loss, None

    return run, data


class _Stage(enum.Enum):
    WARM = 1
    FULL = 2


@whole
def curriculum_by_stages():
    net = mlp()
    plan = type("Plan", (), {})()
    plan.stage, plan.seen = _Stage.WARM, 0

    def run(x, y):
        plan.seen += x.shape[0]
        if plan.stage is _Stage.WARM and plan.seen > 8:
            plan.stage = _Stage.FULL
        loss = F.mse_loss(net(x), y)
        return loss * (0.1 if plan.stage is _Stage.WARM else 1.0), {"stage": plan.stage}

    return run, data


@whole
def teacher_updated_by_copies():
    student = mlp()
    teacher = copy.deepcopy(student).requires_grad_(False)
    opt = torch.optim.SGD(student.parameters(), 0.1)

    def run(x, _):
        with torch.no_grad():
            target = teacher(x)
        opt.zero_grad()
        loss = F.smooth_l1_loss(student(x + 0.1 * torch.randn_like(x)), target)
        loss.backward()
        opt.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(teacher.parameters()), list(student.parameters()), 0.1)
        return loss.detach(), [p.clone() for p in teacher.parameters()]

    return run, data


@whole
def rollout_buffer():
    class Buffer:
        def __init__(self, capacity=10):
            self.seen, self.rewards = torch.zeros(capacity, 8), torch.zeros(capacity)
            self.capacity, self.at, self.filled = capacity, 0, 0

        def add(self, seen, rewards):
            k = seen.shape[0]
            places = (self.at + torch.arange(k)) % self.capacity
            self.seen[places], self.rewards[places] = seen, rewards
            self.at = (self.at + k) % self.capacity
            self.filled = min(self.filled + k, self.capacity)

        def sample(self, count):
            places = torch.randint(0, self.filled, (count,))
            return self.seen[places], self.rewards[places]

    net, buffer = mlp(), Buffer()

    def run(x, y):
        buffer.add(x, y.squeeze(-1))
        seen, rewards = buffer.sample(4)
        return F.mse_loss(net(seen).squeeze(-1), rewards)

    return run, data


@whole
def running_normaliser():
    class Normaliser:
        def __init__(self):
            self.mean, self.var, self.count = torch.zeros(8), torch.ones(8), 1e-4

        def __call__(self, x):
            n = x.shape[0]
            mean, var = x.mean(0), x.var(0, unbiased=False)
            change, total = mean - self.mean, self.count + n
            self.mean = self.mean + change * n / total
            self.var = (
                self.var * self.count + var * n + change**2 * self.count * n / total
            ) / total
            self.count = total
            return (x - self.mean) / torch.sqrt(self.var + 1e-8)

    normalise, net = Normaliser(), mlp()
    return lambda x: net(normalise(x)), lambda b, n: (torch.randn(b, 8),)


@whole
def gated_graph():
    class Graph(nn.Module):
        def __init__(self):
            super().__init__()
            self.message, self.update = nn.Linear(8, 4), nn.GRUCell(4, 4)

        def forward(self, x, edges):
            source, target = edges
            sent = F.relu(self.message(torch.cat([x[source], x[target]], -1)))
            found = torch.zeros_like(x).index_add_(0, target, sent)
            degree = (
                torch.zeros(x.shape[0])
                .scatter_add_(0, target, torch.ones(target.shape[0]))
                .clamp_(min=1)
            )
            return self.update(found / degree[:, None], x)

    return Graph(), lambda b, n: (torch.randn(b + 1, 4), torch.randint(0, b + 1, (2, 2 * n)))


@whole
def streaming_convolution():
    class Stream(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.rest = nn.Conv1d(2, 2, 5), None

        def forward(self, x):
            rest = x.new_zeros(x.shape[0], 2, 4) if self.rest is None else self.rest
            x = torch.cat([rest, x], -1)
            self.rest = x[..., -4:].detach()
            return self.conv(x)

    return Stream(), lambda b, n: (torch.randn(2, 2, n),)
