"""Recipes of training: optimisers, accumulation, checkpoints, functional calls, gradients of
gradients.
"""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import nn

from tests.symshape.everyday.whole.program import PROGRAMS, data, mlp, whole


@whole
def ema_of_weights():
    net = mlp()
    ema = torch.optim.swa_utils.AveragedModel(
        net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
    )
    opt = torch.optim.SGD(net.parameters(), 0.1)

    def run(x, y):
        opt.zero_grad()
        l = F.mse_loss(net(x), y)
        l.backward()
        opt.step()
        ema.update_parameters(net)
        return (l.detach(), [p.detach().clone() for p in ema.parameters()])

    return (run, data)


@whole
def ema_by_hand():

    net = mlp()
    avg = copy.deepcopy(net).requires_grad_(False)
    opt = torch.optim.AdamW(net.parameters(), 0.01)

    def run(x, y):
        opt.zero_grad(set_to_none=True)
        l = F.mse_loss(net(x), y)
        l.backward()
        opt.step()
        with torch.no_grad():
            for a, p in zip(avg.parameters(), net.parameters(), strict=False):
                a.mul_(0.99).add_(p, alpha=0.01)
        return (l.detach(), [p.clone() for p in avg.parameters()])

    return (run, data)


@whole
def gradient_accumulation():
    net = mlp()
    opt = torch.optim.AdamW(net.parameters(), 0.01)
    st = {"i": 0}

    def run(x, y):
        l = F.mse_loss(net(x), y) / 2
        l.backward()
        st["i"] += 1
        if st["i"] % 2 == 0:
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            opt.zero_grad()
        return (l.detach(), net[0].weight.detach().clone())

    return (run, data)


@whole
def grad_scaler_cpu():
    net = mlp()
    opt = torch.optim.SGD(net.parameters(), 0.1)
    sc = torch.amp.GradScaler("cpu", init_scale=16.0)

    def run(x, y):
        opt.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            l = F.mse_loss(net(x), y.bfloat16())
        sc.scale(l).backward()
        sc.step(opt)
        sc.update()
        return (l.detach(), net[0].weight.detach().clone())

    return (run, data)


@whole
def checkpointed_blocks():
    from torch.utils.checkpoint import checkpoint

    net = nn.ModuleList(
        [nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Dropout(0.1)) for _ in range(3)]
    )

    def run(x):
        for m in net:
            x = x + checkpoint(m, x, use_reentrant=False)
        return x

    return (run, lambda b, n: (torch.randn(b, n, 8, requires_grad=True),))


@whole
def checkpoint_sequential_():
    from torch.utils.checkpoint import checkpoint_sequential

    net = nn.Sequential(*[nn.Linear(8, 8) for _ in range(4)])
    return (
        lambda x: checkpoint_sequential(net, 2, x, use_reentrant=False),
        lambda b, n: (torch.randn(b, n, 8, requires_grad=True),),
    )


@whole
def custom_function():

    class Clip(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, k):
            ctx.save_for_backward(x)
            ctx.k = k
            return x.clamp(-k, k)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return (g * (x.abs() <= ctx.k), None)

    w = nn.Linear(8, 8)
    return (lambda x: Clip.apply(w(x), 0.5).sum(), lambda b, n: (torch.randn(b, n, 8),))


@whole
def gradient_reversal():

    class R(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, a):
            ctx.a = a
            return x.view_as(x)

        @staticmethod
        def backward(ctx, g):
            return (g.neg() * ctx.a, None)

    w = nn.Linear(8, 2)
    return (lambda x: w(R.apply(x, 0.3)), lambda b, n: (torch.randn(b, 8, requires_grad=True),))


@whole
def hooks_on_modules():
    net = mlp()
    net[0].register_forward_hook(lambda m, i, o: o * 2)
    net[2].register_forward_pre_hook(lambda m, i: (i[0] + 1,))
    return (net, lambda b, n: (torch.randn(b, 8),))


@whole
def hook_collects_features():
    net = mlp()
    feats = {}
    net[1].register_forward_hook(lambda m, i, o: feats.__setitem__("relu", o))

    def run(x):
        y = net(x)
        return (y, feats["relu"])

    return (run, lambda b, n: (torch.randn(b, 8),))


@whole
def parametrized():

    class Sym(nn.Module):
        def forward(self, w):
            return w.triu() + w.triu(1).transpose(-1, -2)

    l = nn.Linear(8, 8)
    nn.utils.parametrize.register_parametrization(l, "weight", Sym())
    return (l, lambda b, n: (torch.randn(b, 8),))


@whole
def functional_calls():
    net = mlp()
    params = dict(net.named_parameters())

    def run(x, y):
        fast = {k: v.detach().requires_grad_() for k, v in params.items()}
        l = F.mse_loss(torch.func.functional_call(net, fast, (x,)), y)
        g = torch.autograd.grad(l, list(fast.values()))
        fast = {k: v - 0.1 * d for (k, v), d in zip(fast.items(), g, strict=False)}
        return F.mse_loss(torch.func.functional_call(net, fast, (x,)), y)

    return (run, data)


@whole
def maml_second_order():
    net = mlp()
    [k for k, _ in net.named_parameters()]

    def run(x, y):
        ps = dict(net.named_parameters())
        l = F.mse_loss(torch.func.functional_call(net, ps, (x,)), y)
        g = torch.autograd.grad(l, list(ps.values()), create_graph=True)
        fast = {k: v - 0.1 * d for (k, v), d in zip(ps.items(), g, strict=False)}
        return F.mse_loss(torch.func.functional_call(net, fast, (x,)), y)

    return (run, data)


@whole
def vmapped_ensemble():
    nets = [mlp() for _ in range(3)]
    params, buffers = torch.func.stack_module_state(nets)
    base = nets[0]

    def run(x):
        return torch.vmap(
            lambda p, b, x: torch.func.functional_call(base, (p, b), (x,)), in_dims=(0, 0, None)
        )(params, buffers, x)

    return (run, lambda b, n: (torch.randn(b, 8),))


@whole
def per_sample_gradients():
    net = mlp()
    params = {k: v.detach() for k, v in net.named_parameters()}

    def loss(p, x, y):
        return F.mse_loss(torch.func.functional_call(net, p, (x[None],)), y[None])

    return (
        lambda x, y: torch.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(params, x, y),
        data,
    )


@whole
def jacobians_and_hessians():
    def f(x):
        return (x.sin() * x).sum()

    return (
        lambda x: (
            torch.func.hessian(f)(x),
            torch.func.jacrev(torch.tanh)(x),
            torch.func.jacfwd(torch.exp)(x),
        ),
        lambda b, n: (torch.randn(n),),
    )


@whole
def gradient_penalty():
    d = mlp()

    def run(r, f):
        a = torch.rand(r.size(0), 1)
        x = (a * r + (1 - a) * f).requires_grad_()
        g = torch.autograd.grad(d(x).sum(), x, create_graph=True)[0]
        return ((g.norm(2, dim=1) - 1) ** 2).mean()

    return (run, lambda b, n: (torch.randn(b, 8), torch.randn(b, 8)))


def _opt(make):

    def build():
        net = mlp()
        opt = make(net)

        def run(x, y):
            opt.zero_grad()
            l = F.mse_loss(net(x), y)
            l.backward()
            opt.step()
            return (l.detach(), [p.detach().clone() for p in net.parameters()])

        return (run, data)

    return build


for _name, _m in {
    "adagrad": lambda n: torch.optim.Adagrad(n.parameters(), 0.1),
    "rmsprop": lambda n: torch.optim.RMSprop(n.parameters(), 0.01, centered=True, momentum=0.9),
    "adafactor": lambda n: torch.optim.Adafactor(n.parameters(), 0.01),
    "adadelta": lambda n: torch.optim.Adadelta(n.parameters()),
    "adamax": lambda n: torch.optim.Adamax(n.parameters()),
    "rprop": lambda n: torch.optim.Rprop(n.parameters()),
    "nadam": lambda n: torch.optim.NAdam(n.parameters()),
    "asgd": lambda n: torch.optim.ASGD(n.parameters()),
    "muon": lambda n: torch.optim.Muon([p for p in n.parameters() if p.dim() == 2], 0.01),
    "groups": lambda n: torch.optim.AdamW(
        [
            {"params": n[0].parameters(), "lr": 0.001, "weight_decay": 0.0},
            {"params": n[2].parameters()},
        ],
        0.01,
    ),
}.items():
    PROGRAMS["optim_" + _name] = _opt(_m)


@whole
def optim_lbfgs():
    net = nn.Linear(8, 1)
    opt = torch.optim.LBFGS(net.parameters(), max_iter=4)

    def run(x, y):

        def closure():
            opt.zero_grad()
            l = F.mse_loss(net(x), y)
            l.backward()
            return l

        return (opt.step(closure).detach(), net.weight.detach().clone())

    return (run, data)
