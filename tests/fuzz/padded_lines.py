"""Lines of random programs that call ops with padding rules which the common lines do not call.

``{a}`` and ``{b}`` are tensors, ``{d}`` and ``{e}`` dimensions of ``{a}``, ``{n}`` and ``{m}``
integers: see :mod:`tests.fuzz.programs`.  ``G(fn, x)`` is the gradient of ``fn`` at ``x``.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

__all__ = ["PADDED_LINES", "G"]


def G(fn: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """Return the gradient of the sum of squares of ``fn(x)``."""
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        (found,) = torch.autograd.grad(fn(leaf).square().sum(), leaf)
    return found


_REDUCTIONS = """
{a}.amin({d})
{a}.argmin({d})
{a}.argmax()
{a}.flatten(0, 1).argmin(0)
{a}.any({d})
{a}.any(({d}, {e}))
{a}.all(({d}, {e}))
{a}.all()
{a}.any()
{a}.max({d})[0]
{a}.max({d})[1]
{a}.min({d})[1]
{a}.flatten(0, 1).max(0)[1]
{a}.max()
{a}.min()
{a}.mean()
{a}.mean(({d}, {e}))
{a}.prod()
{a}.nansum({d})
{a}.count_nonzero({d})
{a}.count_nonzero()
{a}.std({d})
{a}.std(({d}, {e}), correction=0)
{a}.var(correction=2)
torch.var_mean({a}, {d})[1]
torch.std_mean({a}, {d})[0]
{a}.median()
{a}.nanmedian()
{a}.nanmedian({d})[0]
{a}.cummax({d})[0]
{a}.cummax({d})[1]
{a}.cummin({d})[1]
{a}.flatten(0, 1).cummax(0)[1]
{a}.logcumsumexp({d})
{a}.flip({d}).cumsum({d}).flip({d})
{a}.flip({d}).cummax({d})[1]
torch.linalg.vector_norm({a}, float('inf'), {d})
torch.linalg.vector_norm({a}, -1, {d})
torch.linalg.vector_norm({a}, 0)
{a}.norm(3, {d})
{a}.norm(1)
torch.logsumexp({a}, ({d}, {e}))
{a}.masked_fill({a} > 0, float('-inf')).log_softmax({d})
{a}.masked_fill({a} > -9, float('-inf')).softmax({d})
torch.where({a} > 0, {a}, float('-inf')).amax({d})
({a} == {a}.amax({d}, keepdim=True)).cumsum({d})
({a} > 0).float().argmax({d})
{a}.trace()
torch.vdot({a}, {b})
torch.mv({a}, {b})
torch.addmv({b}, {a}, {b})
torch.baddbmm({a}, {a}, {b})
torch.histc({a}.float(), 4, -3, 3)
torch.cdist({a}, {b})
torch.cdist({a}, {b}, p=1)
torch.searchsorted(torch.tensor([-1.0, 0.0, 2.0]).to({a}.dtype), {a}, right=True)
torch.isin({a}, torch.tensor([0.0, 1.0, -3.0]).to({a}.dtype))
"""

_ORDERS = """
{a}.sort(dim={d}, stable=True)[1]
{a}.sort(dim={d}, stable=True, descending=True)[1]
{a}.sort({d}, descending=True)[0]
{a}.topk({a}.size({d}) // 2 + 1, {d}, largest=False)[0]
{a}.topk({a}.size({d}), {d})[0]
{a}.argsort(dim={d}, stable=True).argsort(dim={d}, stable=True)
{a}.gather({d}, {a}.sort(dim={d}, stable=True)[1].flip({d}))
{a}.flatten().sort(stable=True, descending=True)[1].view({a}.shape)
{a}.flatten().cumsum(0).view({a}.shape)
{a}.flatten(0, 1)[-1]
{a}.roll(2)
{a}.roll({n})
{a}.roll(({n}, 1), ({d}, {e}))
{a}.flip(0, -1)
{a}.triu()
{a}.tril(-1)
{a}.diagonal(1)
{a}.diagonal(0, {d}, {e}).sum(-1)
torch.diag_embed({a})
torch.diag_embed({a}, 1)
torch.diagonal_scatter({a}, {a}.diagonal() * 2)
torch.slice_scatter({a}, {a}[1:] * 2, 0, 1)
torch.slice_scatter({a}, {a}[::2] * 2, 0, 0, None, 2)
torch.select_scatter({a}, {a}.select({d}, 0) + 1, {d}, -1)
{a}.squeeze((0, -1))
{a}.unfold({d}, 2, 2).amax(-1)
{a}.unsafe_split(2, {d})[0]
{a}.unsafe_split_with_sizes([1, {a}.size({d}) - 1], {d})[1]
torch.concat([{a}, {b}], {d}).argmax({d})
torch.cat([{a}, {b}], {d}).flip({d})
torch.cat([{a}, {b}, {a}], {d}).softmax({d})
torch.view_as_real(torch.complex({a}.float(), {a}.float())).sum(-1)
torch.view_as_complex(torch.stack([{a}.float(), {a}.float()], -1)).abs()
torch.view_copy({a}, {a}.shape)
F.pad({a}, (1, 1), mode='reflect')
F.pad({a}, (1, 1, 0, 1), mode='reflect')
F.pad({a}, (1, 1), mode='circular')
F.pad({a}, (1, 2, 1, 0), mode='replicate')
F.pad({a}, (1, 0), value=float('-inf'))
F.pixel_shuffle({a}.repeat(1, 4, 1, 1), 2)
F.channel_shuffle({a}.repeat(1, 2, 1, 1), 2)
torch.arange(1, {n} + 1)
torch.arange(0, {n}, 2)
torch.eye({n}, {m})
torch.full_like({a}, {n})
{a}.new_full(({n},), 2)
torch.ones_like({a}).cumsum({d})
torch.linspace(0, {n}, {a}.size({d}))
"""

_INDICES = """
{a}.gather({d}, {a}.long() % 2)
{a}.scatter({d}, {a}.long() % 2, {a})
{a}.scatter({d}, {a}.argsort(dim={d}, stable=True), {a}, reduce='multiply')
{a}.scatter({d}, {a}.argmax({d}, keepdim=True), 2, reduce='add')
{a}.scatter_reduce({d}, {a}.long() % 2, {a}, 'amax', include_self=False)
{a}.scatter_reduce({d}, {a}.long() % 2, {a}, 'mean')
{a}.scatter_reduce({d}, {a}.argsort(dim={d}, stable=True), {a}, 'prod')
torch.zeros_like({a}).scatter_reduce({d}, {a}.long() % 2, {a}, 'sum')
{a}.index_copy({d}, torch.tensor([0]), {a}.narrow({d}, -1, 1))
{a}.index_copy({d}, torch.arange({a}.size({d})).flip(0), {a})
{a}.index_fill({d}, torch.arange({n} // 2), 7)
{a}.index_fill({d}, torch.tensor([0, -1]), {a}.sum())
{a}.index_reduce({d}, torch.arange({a}.size({d})) // 2, {a}, 'amin', include_self=False)
{a}.index_reduce({d}, torch.arange({a}.size({d})) // 2, {a}, 'mean')
torch.zeros_like({a}).index_add({d}, torch.arange({a}.size({d})) // 2, {a}, alpha=2)
{a}.index_put((torch.arange({a}.size(0)) // 2,), {a}, accumulate=True)
{a}[torch.arange({a}.size(0)).flip(0), torch.arange({a}.size(0)) * 0]
{a}[:, torch.arange({a}.size(1)) // 2]
{a}[torch.arange({n}) % 2]
torch.ops.aten._unsafe_index({a}, [torch.arange({a}.size(0)) // 2])
torch.ops.aten._unsafe_index_put({a}, [torch.arange({a}.size(0))], {a})
F.embedding(torch.arange({a}.size(0)).flip(0), {a})
F.one_hot({a}.long() % 3, 4).cumsum({d})
"""

_LAYERS = """
F.max_pool1d({a}, 3, stride=2, padding=1)
F.max_pool1d({a}, 2, return_indices=True)[1]
F.max_pool2d({a}, 2, return_indices=True)[1]
F.max_pool2d({a}, (2, 1), stride=1, dilation=(2, 1))
F.avg_pool1d({a}, 3, stride=2, padding=1)
F.avg_pool2d({a}, 3, stride=2, divisor_override=4)
F.avg_pool3d({a}, (1, 2, 2))
F.adaptive_max_pool1d({a}, 1)
F.adaptive_max_pool2d({a}, (1, 1))
F.adaptive_max_pool3d({a}, 1)
F.adaptive_avg_pool3d({a}, (1, 2, 2))
F.interpolate({a}, scale_factor=2, mode='linear')
F.interpolate({a}, size={n}, mode='nearest-exact')
F.interpolate({a}, size=({n}, 3), mode='nearest-exact')
F.interpolate({a}[None], size=(2, {n}, 3), mode='trilinear')
F.interpolate({a}[None], scale_factor=2, mode='nearest-exact')
F.grid_sample({a}, T({a}.size(0), 2, 2, 2) / 4, align_corners=False)
F.grid_sample({a}[:, :, None], T({a}.size(0), 1, 2, 2, 3) / 4, align_corners=True)
F.conv1d({a}, T(2, 3, 3), padding=2, dilation=2)
F.conv1d({a}[:, :1], T(2, 1, 3), stride=2, padding=1)
F.conv2d({a}[:, :1], T(2, 1, 3, 2), stride=(2, 1), padding=1)
F.conv_transpose1d({a}[:, :1], T(1, 2, 3), stride=2, padding=1, output_padding=1)
F.cross_entropy({a}, {a}.argmax(1), ignore_index=1)
F.cross_entropy({a}, {a}.argmax(1), reduction='sum', label_smoothing=0.1)
F.nll_loss({a}, {a}.argmax(1), reduction='none', ignore_index=0)
F.huber_loss({a}, {b}, delta=0.5)
F.soft_margin_loss({a}, {b}.sign())
F.binary_cross_entropy({a}.sigmoid(), ({b} > 0).float())
F.binary_cross_entropy_with_logits({a}, ({b} > 0).float(), reduction='sum')
F.binary_cross_entropy_with_logits({a}, {a}.sigmoid(), pos_weight={a}[:1].abs())
F.scaled_dot_product_attention({a}[None], {b}[None], {b}[None], is_causal=True)
F.scaled_dot_product_attention({a}[None], {b}[None], {b}[None], attn_mask={a} @ {b}.mT > 0)
torch.gru_cell({a}, {a}, T(9, 3), T(9, 3))
torch.rnn_tanh_cell({a}, {a}, T(3, 3), T(3, 3))
torch.rnn_relu_cell({a}, {a}, T(3, 3), T(3, 3))
torch.lstm_cell({a}, ({a}, {a}), T(12, 3), T(12, 3))[1]
"""

_POINTWISE = """
{a}.sin() + {a}.cos()
{a}.tanh() * {a}.sigmoid()
{a}.exp().log1p()
{a}.erf()
{a}.floor() + {a}.ceil() + {a}.trunc() + {a}.round()
{a}.frac().sign()
{a}.reciprocal().nan_to_num()
{a}.isnan() | {a}.isinf()
{a}.logical_not()
({a} > 0) & ({b} > 0)
({a} > 0) | ({b} < 0)
({a} > 0) ^ ({b} == 0)
{a}.long() & 3
{a}.long() ^ {b}.long()
~{a}.long()
{a}.long() << 1
{a}.long() >> {b}.long() % 3
{a}.long() // 2
{a}.long() % 3
torch.div({a}.long(), {b}.long().abs() + 1, rounding_mode='floor')
torch.div({a}.long(), -2, rounding_mode='trunc')
torch.div({a}, {b}.abs() + 1, rounding_mode='trunc')
torch.gcd({a}.long() % 12, {b}.long() % 12)
torch.lcm({a}.long() % 12, {b}.long() % 12)
{a}.remainder({b}.abs() + 1)
{a}.fmod(2)
{a} == {b}
{a} <= {b}
{a} != {n}
torch.fmax({a}, {b})
torch.minimum({a}, {b})
torch.atan2({a}, {b})
torch.copysign({a}, {b})
torch.heaviside({a}, {b})
torch.logaddexp({a}, {b})
torch.xlogy({a}.abs(), {b}.abs())
torch.addcdiv({a}, {a}, {b}.abs() + 1)
{a}.lerp({b}, {a}.sigmoid())
{a}.clamp({b}, {b} + 1)
{a}.clamp(-1, 1)
{a}.clamp(max={n})
{n} - {a}
2.0 ** {a}
{a}.abs() ** ({b}.abs() / 2)
F.elu({a})
F.celu({a})
F.silu({a})
F.mish({a})
F.softplus({a})
F.logsigmoid({a})
F.hardtanh({a})
F.hardswish({a})
F.hardsigmoid({a})
F.hardshrink({a})
F.softshrink({a})
F.leaky_relu({a})
F.prelu({a}, T(1))
F.threshold({a}, 0.1, 20)
torch.logit({a}.sigmoid(), 0.1)
torch.special.entr({a}.abs())
torch.special.zeta({a}.abs() + 2, {b}.abs() + 1)
torch.digamma({a}.abs() + 1) + torch.lgamma({a}.abs() + 1)
torch.polar({a}.abs().float(), {a}.float()).angle()
({a} * 0 + 2) ** 2
{a} * torch.arange({a}.size(-1)).flip(0)
torch.where(torch.ones_like({a}, dtype=torch.bool), {b}, {a})
"""

_GRADIENTS = """
G(lambda x: F.adaptive_avg_pool2d(x, (1, 2)), {a})
G(lambda x: F.adaptive_avg_pool3d(x, 1), {a})
G(lambda x: F.avg_pool2d(x, 2), {a})
G(lambda x: F.avg_pool3d(x, (1, 2, 2)), {a})
G(lambda x: F.max_pool2d(x, 2), {a})
G(lambda x: F.max_pool1d(x, 3, stride=2, padding=1), {a})
G(lambda x: x.log_softmax({d}), {a})
G(lambda x: x.softmax({d}), {a})
G(lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], is_causal=True), {a})
G(lambda x: F.binary_cross_entropy(x.sigmoid(), ({a} > 0).float()), {a})
G(lambda x: F.binary_cross_entropy_with_logits(x, ({a} > 0).float()), {a})
G(lambda x: F.conv1d(x, T(2, 3, 2), padding=1), {a})
G(lambda x: F.conv2d(x[:, :1], T(2, 1, 2, 2), stride=2), {a})
G(lambda x: F.conv_transpose1d(x[:, :1], T(1, 2, 3), stride=2), {a})
G(lambda x: x.diagonal().cumsum(-1), {a})
G(lambda x: F.embedding(torch.arange(x.size(0)) // 2, x), {a})
G(lambda x: x[torch.arange(x.size(0)) // 2], {a})
G(lambda x: F.glu(x[..., :2]), {a})
G(lambda x: F.huber_loss(x, {b}), {a})
G(lambda x: F.mse_loss(x, {b}), {a})
G(lambda x: F.smooth_l1_loss(x, {b}, reduction='sum'), {a})
G(lambda x: F.soft_margin_loss(x, {b}.sign()), {a})
G(lambda x: F.logsigmoid(x), {a})
G(lambda x: F.group_norm(x, 1), {a})
G(lambda x: F.layer_norm(x, x.shape[-1:]), {a})
G(lambda x: F.batch_norm(x, torch.zeros(3), torch.ones(3)), {a})
G(lambda x: F.cross_entropy(x, {a}.argmax(1), ignore_index=1), {a})
G(lambda x: F.cross_entropy(x, {a}.argmax(1), label_smoothing=0.1), {a})
G(lambda x: x.select({d}, -1), {a})
G(lambda x: x[1:] * x[:-1], {a})
G(lambda x: x.unfold({d}, 2, 1), {a})
G(lambda x: F.interpolate(x, size=3, mode='linear'), {a})
G(lambda x: F.interpolate(x, size=(2, 3), mode='bilinear'), {a})
G(lambda x: F.interpolate(x, scale_factor=2), {a})
G(lambda x: x.amax({d}), {a})
G(lambda x: x.std({d}), {a})
G(lambda x: x.cumsum({d}).sin(), {a})
G(lambda x: x.sort(dim={d}, stable=True)[0] * torch.arange(x.size({d})).sum(), {a})
G(lambda x: x.gather({d}, {a}.long() % 2), {a})
G(lambda x: x.scatter_reduce({d}, {a}.long() % 2, x, 'amax'), {a})
G(lambda x: F.gelu(x) + F.silu(x) + F.elu(x) + F.mish(x), {a})
G(lambda x: F.hardswish(x) + F.hardsigmoid(x) + F.softplus(x), {a})
G(lambda x: F.leaky_relu(x) + F.threshold(x, 0.1, 20) + F.hardshrink(x), {a})
G(lambda x: x.sigmoid() * x.tanh() + x.softmax(-1), {a})
G(lambda x: torch.cat([x, x.flip(0)]).softmax(0), {a})
G(lambda x: F.pad(x, (1, -1)).cumsum(-1), {a})
G(lambda x: x.roll(1, {d}) * x.mean({d}, keepdim=True), {a})
G(lambda x: torch.cdist(x, {b}), {a})
G(lambda x: x @ {b}, {a})
"""

PADDED_LINES: tuple[str, ...] = tuple(
    line
    for group in (_REDUCTIONS, _ORDERS, _INDICES, _LAYERS, _POINTWISE, _GRADIENTS)
    for line in group.strip().splitlines()
)
"""All of them."""
