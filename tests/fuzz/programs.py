"""Random programs as text: lines that work at the sizes they were grown at, with inputs that can be
made at any.
"""

from __future__ import annotations

import math
import random
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import torch
import torch.nn.functional

from tests.fuzz.padded_lines import G

Sizes = tuple[tuple[int, ...], ...]
SIZES = (0, 1, 1, 2, 2, 3, 4, 5, 6, 8)


def T(*sizes: int) -> torch.Tensor:
    """A contiguous tensor of small whole numbers."""
    return (torch.arange(math.prod(sizes)) * 7 % 11 - 5.0).reshape(sizes)


SPACE: Mapping[str, Any] = {
    "T": T,
    "G": G,
    "torch": torch,
    "F": torch.nn.functional,
    "math": math,
}

# How an argument of n dimensions is made; {s} are its sizes, {a}, {b} … each of them.
LAYOUTS = {
    "plain": "T({s})",
    "offset": "T({prod} + 3)[3:].view({s})",
    "transposed": "T({reversed}).permute({order})",
    "stepped": "T({s_first_doubled})[::2]",
    "sliced": "T({s_last_wider})[..., 1:-1]",
    "expanded": "T({s_first_one}).expand({s})",
    "last": "T({s}).to(memory_format=torch.channels_last)",  # of four dimensions
}
KINDS = (
    "",
    "",
    "",
    "",
    ".to(torch.int64)",
    ".double()",
    ".bfloat16()",
    " > 0",
    ".requires_grad_()",
)

TENSOR_LINES = (
    "{a} + 1",
    "{a} * 2.5",
    "-{a}",
    "{a}.relu()",
    "{a}.abs().sqrt()",
    "{a} * {n}",
    "{a} / ({n} + 1)",
    "{a} + {b}",
    "{a} * {b}",
    "{a} - {b}",
    "torch.maximum({a}, {b})",
    "torch.where({a} > 0, {a}, {b})",
    "{a} > {b}",
    "{a}.to(torch.float64)",
    "{a}.to(torch.int64)",
    "{a}.clamp(min=0)",
    "{a}.sum()",
    "{a}.sum({d})",
    "{a}.sum({d}, keepdim=True)",
    "{a}.mean({d})",
    "{a}.amax({d})",
    "{a}.argmax({d})",
    "{a}.cumsum({d})",
    "{a}.softmax({d})",
    "{a}.all({d})",
    "{a}.prod({d})",
    "{a}.var({d})",
    "{a}.sort({d})[0]",
    "{a}.topk(1, {d})[0]",
    "{a}.transpose({d}, {e})",
    "{a}.unsqueeze({d})",
    "{a}.squeeze({d})",
    "{a}.squeeze()",
    "{a}.t()",
    "{a}.mT",
    "{a}.movedim({d}, {e})",
    "{a}.permute(*reversed(range({a}.dim())))",
    "{a}.flatten()",
    "{a}.flatten(0, 1)",
    "{a}.reshape(-1)",
    "{a}.view(-1)",
    "{a}.reshape({a}.size({d}), -1)",
    "{a}.reshape(-1, {a}.size({d}))",
    "{a}.view({a}.size(0), -1)",
    "{a}.reshape({b}.shape)",
    "{a}.view({b}.shape)",
    "{a}.reshape({n}, -1)",
    "{a}.reshape(2, -1)",
    "{a}.unflatten({d}, (2, -1))",
    "{a}.expand(3, *{a}.shape)",
    "{a}.expand({n}, *{a}.shape)",
    "{a}.expand_as({b})",
    "{a}.repeat(2, *[1] * {a}.dim())",
    "{a}.repeat_interleave(2, {d})",
    "{a}.contiguous()",
    "{a}.clone()",
    "{a}.detach()",
    "{a}.flip({d})",
    "{a}.roll(1, {d})",
    "{a}.tril()",
    "{a}.diagonal()",
    "{a}.unfold({d}, 2, 1)",
    "{a}[0]",
    "{a}[-1]",
    "{a}[1:]",
    "{a}[:2]",
    "{a}[::2]",
    "{a}[..., -1]",
    "{a}[..., :-1]",
    "{a}[:, None]",
    "{a}[None]",
    "{a}[:{n}]",
    "{a}[{n}:]",
    "{a}[{n} // 2]",
    "{a}[..., :{n} // 2]",
    "{a}.narrow({d}, 0, {a}.size({d}) // 2)",
    "{a}.select({d}, -1)",
    "{a}.chunk(2, {d})[0]",
    "{a}.chunk(2, {d})[-1]",
    "{a}.split(2, {d})[0]",
    "{a}.split([1, {a}.size({d}) - 1], {d})[1]",
    "{a}.unbind({d})[0]",
    "{a}.index_select({d}, torch.tensor([0]))",
    "{a}[torch.tensor([0, -1])]",
    "{a}[torch.arange({a}.size(0))]",
    "{a}.gather({d}, {a}.argmax({d}, keepdim=True))",
    "{a}.masked_fill({a} > 0, 0.0)",
    "torch.cat([{a}, {b}], {d})",
    "torch.cat([{a}, {a}], {d})",
    "torch.stack([{a}, {b}], {d})",
    "torch.stack([{a}, {a}], {d})",
    "torch.outer({a}, {b})",
    "{a} @ {b}",
    "{a} @ {a}.mT",
    "torch.matmul({a}, {b}.mT)",
    "torch.einsum('...i,...i->...', {a}, {b})",
    "torch.broadcast_tensors({a}, {b})[0]",
    "torch.nn.functional.pad({a}, (1, 1))",
    "torch.nn.functional.pad({a}, (0, {n}))",
    "torch.nn.functional.pad({a}, (-1, 0))",
    "torch.nn.functional.layer_norm({a}, {a}.shape[-1:])",
    "torch.nn.functional.linear({a}, {b})",
    "torch.nn.functional.avg_pool1d({a}, 2)",
    "torch.nn.functional.conv1d({a}, T(2, 3, 2))",
    "torch.nn.functional.one_hot({a}.abs().long(), 6)",
    "torch.arange({n})",
    "torch.zeros({n}, {m})",
    "torch.full(({n},), {m})",
    "torch.eye({n})",
    "torch.linspace(0, 1, {n})",
    "{a}.new_zeros({n}, {a}.size({d}))",
    "{a}.new_ones({b}.shape)",
    "torch.zeros_like({a})",
    "torch.empty_strided({a}.shape, {a}.stride()).copy_({a})",
    "{a}.as_strided({a}.shape, {a}.stride())",
    "{a}.norm()",
    "torch.dist({a}, {b})",
    "torch.tensor([{n}, {m}])",
    "torch.meshgrid({a}, {b}, indexing='ij')[0]",
    "torch.bucketize({a}, torch.tensor([0.0, 1.0]))",
    "torch.nonzero_static({a}, size={n})",
    "{a} * ({n} / 2)",
    "{a} * (max({n}, 0) + 1) ** -0.5",
    "{a} / ({n} / ({m} + 1) + 1)",
    "{a} ** 2",
    "{a}.bool()",
    "{a}.to(torch.bfloat16)",
    "{a}.type_as({b})",
    "{a}[:, ::2]",
    "{a}[-2:]",
    "{a}[{n}:{m}]",
    "{a}[..., None].expand(*{a}.shape, {n})",
    "{a}[{a}.size(0) // 2:, ...]",
    "{a}[{a} > 0]",
    "{a}[{a}.sum(-1) > 0]",
    "{a}.nonzero()",
    "{a}.masked_select({a} > 1)",
    "{a}.unique()",
    "torch.bincount({a}.abs().long().flatten())",
    "torch.bincount({a}.abs().long().flatten(), minlength={n})",
    "{a}.aminmax(dim={d})[0]",
    "{a}.contiguous().median({d})[0]",
    "{a}.logsumexp({d})",
    "{a}.cumprod({d})",
    "{a}.diff(dim={d})",
    "{a}.scatter_add({d}, {a}.argsort({d}), {a})",
    "{a}.index_add({d}, torch.tensor([0]), {a}.narrow({d}, 0, 1))",
    "{a}.take_along_dim({a}.argsort({d}), {d})",
    "{a}.swapdims({d}, {e}).contiguous()",
    "{a}.transpose({d}, {e}).reshape(-1)",
    "{a}.transpose({d}, {e}).reshape({b}.shape)",
    "{a}.transpose({d}, {e}).flatten(0, 1)",
    "{a}.transpose({d}, {e}).view(-1)",
    "{a}.permute(*reversed(range({a}.dim()))).contiguous().view(-1)",
    "torch.stack(list({a}.unbind({d})), {e})",
    "torch.cat([{a}.reshape(-1), {b}.reshape(-1)])",
    "torch.cat([{a}, {b}, {a}], {d})",
    "torch.bmm({a}, {b})",
    "torch.bmm({a}, {a}.mT)",
    "torch.addmm({a}, {b}, {b}.t())",
    "torch.addmm({a}, {a}, {a}.t())",
    "torch.kron({a}, {b})",
    "torch.tril_indices({n}, {m})",
    "torch.triu_indices({n}, {n}, 1)",
    "torch.linalg.svdvals({a})",
    "torch.vmap(torch.vmap(lambda x: x * {n}))({a})",
    "torch.logspace(0, 1, {n})",
    "torch.rand({n})",
    "torch.rand_like({a})",
    "torch.randperm({n})",
    "F.dropout({a}, 0.5)",
    "F.gelu({a})",
    "F.normalize({a}, dim={d})",
    "F.mse_loss({a}, {b})",
    "F.smooth_l1_loss({a}, {a} * 2)",
    "F.cross_entropy({a}, {a}.argmax(-1))",
    "F.embedding({a}.long().abs() % 4, T(4, 3))",
    "F.scaled_dot_product_attention({a}, {a}, {a})",
    "F.scaled_dot_product_attention({a}, {a}, {a}, is_causal={n} > 1)",
    "F.batch_norm({a}, None, None, training=True)",
    "F.group_norm({a}, 1)",
    "F.instance_norm({a})",
    "F.rms_norm({a}, {a}.shape[-1:])",
    "F.conv1d({a}, T(2, 3, 2), padding=1)",
    "F.conv2d({a}, T(2, 3, 2, 2), stride=2)",
    "F.conv2d({a}, torch.ones(4, {a}.size(1), 1, 1))",
    "F.conv_transpose1d({a}, T(3, 2, 2))",
    "F.max_pool1d({a}, 2)",
    "F.max_pool2d({a}, 2, ceil_mode=True)",
    "F.avg_pool2d({a}, 2, padding=1)",
    "F.adaptive_avg_pool1d({a}, 2)",
    "F.adaptive_avg_pool2d({a}, (1, 2))",
    "F.interpolate({a}, scale_factor=2)",
    "F.interpolate({a}, size={n})",
    "F.pad({a}, (1, 2), mode='replicate')",
    "F.unfold({a}, 2)",
    "F.pixel_unshuffle({a}, 2)",
    "F.glu({a}, {d})",
    "sum({a} * i for i in range(3))",
    "torch.where({a} > 0)[0]",
    "{a}.to(memory_format=torch.channels_last)",
    "torch.empty_like({a}).fill_(2)",
    "{a}.new_empty({a}.shape).copy_({a}.expand({a}.shape))",
    "torch.vstack([{a}, {b}])",
    "torch.tensordot({a}, {b}, dims=1)",
    "{a}.repeat({n} % 3, *{a}.shape)",
    "{a}.tile(2)",
    "torch.atleast_2d({a})",
    "{a}.ravel()",
    "{a}.view_as({b})",
    "{a}.hsplit(2)[1]",
    "torch.hypot({a}, {b})",
    "torch.addcmul({a}, {b}, {b})",
    "torch.lerp({a}, {b}, 0.5)",
    "torch.autograd.grad((x0.double() * 2).sin().sum(), x0)[0]",
)

INPLACE_LINES = (
    "{a}.add_(1)",
    "{a}.mul_({b})",
    "{a}.copy_({b})",
    "{a}.zero_()",
    "{a}.relu_()",
    "{a}.clamp_(max=2)",
    "{a}.unsqueeze_({d})",
    "{a}.squeeze_()",
    "{a}.t_()",
    "{a}.transpose_({d}, {e})",
    "{a}[0] = 1",
    "{a}[:1] += 2",
    "{a}[..., -1] = {b}",
    "{a}[:{n}] = 3",
    "{a}.view(-1).add_(1)",
    "{a}[{a} > 0] = 0",
    "{a}.fill_diagonal_(1)",
    "{a}.masked_fill_({a} > 1, 7)",
    "{a}.index_fill_({d}, torch.tensor([0]), 4)",
    "torch.add({a}, 1, out={a})",
    "{a}.t().reshape(-1).zero_()",
    "{a}.transpose({d}, {e}).add_({b})",
    "{a}.unbind({d})[0].mul_(2)",
    "{a}.split(1, {d})[0].copy_({b})",
    "{a}.diagonal().zero_()",
    "{a}[torch.tensor([0])] = 3",
    "{a}.index_put_((torch.tensor([0]),), torch.tensor(2.0), accumulate=True)",
    "{a}.scatter_({d}, {a}.argmax({d}, keepdim=True), 9)",
    "{a}.detach().add_(1)",
    "{a}.data.mul_(2)",
    "{a}.clamp_(min={n})",
    "{a}.squeeze_({d})",
    "{a}.swapaxes_({d}, {e})",
    "{a}.expand_as({b}).contiguous().zero_()",
    "torch.cumsum({a}, {d}, out=torch.empty_like({a}))",
    "{a}.uniform_()",
)

CUTS = (
    "{a}[{a} > 0.01]",
    "{a}[{a}.flatten(1).sum(-1) > 0.01]",
    "{b}[({a} > 0.01).nonzero()[:, 0]]",
    "{a}.nonzero()",
    "{a}.nonzero() * 2",
    "{a}.unique()",
    "{a} + torch.rand_like({a}.float())",
    "F.dropout({a}, 0.5)",
    "{a} * {a}.abs().amax().item()",
    "{a}.narrow({d}, 0, ({a}.select({d}, 0) > 0.01).sum().item())",
    "torch.arange({a}.abs().long().sum().item() % 7)",
    "torch.bincount({a}.abs().long().flatten())",
)
"""What cannot be recorded: data that decides on sizes, random numbers."""

HAZARDS = (
    "{a}.sqrt()",
    "{a}.log()",
    "({a}[:1] * 2).expand({n}, *[-1] * ({a}.dim() - 1))",
    "{a}.unfold({d}, 3, 2).rsqrt()",
    "{a}.unfold({d}, 2, 1) * 2",
    "F.pad({a}, (-1, 0))",
    "F.pad({a}, (0, -1)).mT",
    "F.interpolate({a}, size={b}.shape[-2:], mode='bilinear')",
    "F.interpolate({a}, size={a}.shape[-2:], mode='bilinear')",
    "F.interpolate({a}, size=({a}.size(-2), {n}), mode='bilinear', align_corners=True)",
    "F.interpolate({a}, scale_factor=(1.1, 2.1), mode='bilinear')",
    "F.interpolate({a}, scale_factor=2.1)",
    "F.interpolate({a}, scale_factor=1.1, mode='bicubic')",
    "F.interpolate({a}, size={n}, mode='linear')",
    "F.scaled_dot_product_attention({a}.sqrt(), {b}, {b})",
    "F.scaled_dot_product_attention({a}, {b}, {b}.log())",
    "{a}.transpose({d}, {e}) * {b}",
    "{a}.movedim({d}, {e}) + 1",
    "({a} + 1).squeeze({d}).unsqueeze({e})",
    "{a}.mT.clone()",
    "{a}[:1] + {b}",
    "{a}.sum({d}, keepdim=True).expand_as({a})",
    "torch.empty_like({a}.mT).fill_(1)",
    "{a}.narrow({d}, 0, 1) * 2",
    "{a}.select({d}, 0).unsqueeze({e}) * 2",
    "{a}.to(memory_format=torch.channels_last) * 2",
    "{a}.transpose({d}, {e}).contiguous()",
    "torch.cat([{a}.transpose({d}, {e}), {b}.transpose({d}, {e})], {d})",
    "{a}.mT.softmax({d})",
    "{a}.mT.cumsum({d})",
    "{a}.transpose({d}, {e}).amax({d}, keepdim=True)",
)
"""Where strides at sizes of 0 and 1, and what is read though it weighs nothing, may differ from
eager's.
"""

OVERLAPS = (
    "{a}[1:].copy_({a}[:-1])",
    "{a}[1:].add_({a}[:-1])",
    "{a}[..., 1:] -= {a}[..., :-1]",
    "{a}.add_({a}.mT)",
    "{a}.copy_({a}.transpose({d}, {e}))",
    "{a}.mul_({a}[:1])",
    "{a}.mul_({a})",
    "{a}.sub_({a}[...])",
    "{a}.index_add_({d}, torch.arange({a}.size({d})), {a})",
    "{a}.index_copy_({d}, torch.arange({a}.size({d})), {a})",
    "{a}.scatter_({d}, {a}.argsort({d}), {a})",
    "{a}.scatter_add_({d}, {a}.argsort({d}), {a}.detach())",
    "{a}.index_put_((torch.arange({a}.size(0)),), {a})",
    "{a}[torch.arange({a}.size(0))] = {a}",
    "torch.add({a}[1:], 1, out={a}[:-1])",
    "torch._foreach_add_([{a}, {a}], 1)",
    "torch._foreach_mul_([{a}[1:], {a}[:-1]], 2)",
    "{a}.addcmul_({a}.mT, {b})",
    "{a}.masked_fill_({a} > 0, 2)",
    "{a}.lerp_({a}[:1], 0.5)",
    "{a}.diagonal().copy_({a}[0])",
)
"""Writes whose source may overlap what is written, which eager mostly refuses."""

INTEGER_LINES = (
    "{a}.size({d})",
    "{a}.shape[-1]",
    "{a}.numel()",
    "{a}.dim()",
    "len({a})",
    "{a}.stride({d})",
    "{a}.storage_offset()",
    "{n} + {m}",
    "{n} - {m}",
    "{n} * {m}",
    "{n} + 1",
    "{n} // 2",
    "{n} % 3",
    "{n} // ({m} + 1)",
    "{n} % ({m} + 1)",
    "-(-{n} // 4) * 4",
    "max({n}, {m})",
    "min({n}, {m})",
    "max({n}, 1)",
    "torch.sym_max({n}, {m})",
    "torch.sym_min({n}, 3)",
    "abs({n} - {m})",
    "int({n} / 2)",
    "math.ceil({n} / 3)",
    "math.floor({n} / 3)",
    "{n} ** 2",
    "sum({a}.shape)",
    "math.prod({a}.shape)",
    "int({n} > {m})",
    "round({n} / 2)",
    "({a} > 0).sum().item()",
    "{a}.nonzero().size(0)",
    "{a}.element_size()",
    "{n} // 2 * 2",
    "({n} + 7) // 8 * 8",
    "torch.sym_ite({n} > {m}, {n}, {m})",
    "math.prod({a}.shape[1:])",
    "{n} * {n} - {m}",
)

CONDITIONS = (
    "{n} > {m}",
    "{n} == {m}",
    "{n} != 1",
    "{n}",
    "not {n}",
    "{n} % 2 == 0",
    "{n} > 2 and {m} < 5",
    "{n} == 0 or {m} == 1",
    "2 < {n} <= 5",
    "{a}.shape == {b}.shape",
    "{a}.shape[-1] == 1",
    "{a}.is_contiguous()",
    "{a}.stride({d}) == 1",
    "{a}.numel() > 4",
    "{a}.dim() > 2",
    "{a}.dtype == torch.float32",
    "{n} / 2 > {m}",
    "{n} in (1, 2)",
    "torch.numel({a}) == {n} * {m}",
    "torch.is_floating_point({a})",
    "{n} ** 2 < {m} + 3",
    "{a}.size({d}) == {b}.size({e})",
    "{a}.size({d}) % 2",
    "all(size > 1 for size in {a}.shape)",
    "{n} // 2 == {m} // 2",
    "max({n}, {m}) > 2 * min({n}, {m})",
    "{a}.is_contiguous(memory_format=torch.channels_last)",
    "{a}.storage_offset() == 0",
    "{a}.stride() == {b}.stride()",
    "{a}.is_same_size({b})",
    "({n} > 1) == ({m} > 1)",
    "({n} > 1) == {m}",
    "({n} > 2) in ({m}, 3)",
    "{m} < ({n} > 1)",
    "{a}.requires_grad",
    "{a}.is_floating_point()",
)


@attrs.frozen
class Argument:
    """How one argument is made: a layout of fresh memory, or an earlier argument (a view of
    one).
    """

    name: str
    layout: str
    ndim: int
    alias: str = ""  # an expression over earlier arguments
    kind: str = ""  # what is done to the tensor: another dtype, a wish for gradients

    def text(self, sizes: Sequence[int]) -> str:
        """The expression that makes it at these sizes."""
        if self.alias:
            return self.alias
        if self.layout == "number":
            return str(sizes[0])
        n = self.ndim
        listed = ", ".join(map(str, sizes))
        order = ", ".join(str(n - 1 - d) for d in range(n))
        parts = {
            "s": listed,
            "prod": str(math.prod(sizes)),
            "reversed": ", ".join(map(str, reversed(sizes))),
            "order": order,
        }
        if n:
            first, rest = sizes[0], list(sizes[1:])
            parts["s_first_doubled"] = ", ".join(map(str, [2 * first, *rest]))
            parts["s_first_one"] = ", ".join(map(str, [1, *rest]))
            parts["s_last_wider"] = ", ".join(map(str, [*sizes[:-1], sizes[-1] + 2]))
        return LAYOUTS[self.layout].format(**parts) + self.kind


@attrs.frozen
class Program:
    """A function's text and how its arguments are made."""

    arguments: tuple[Argument, ...]
    lines: tuple[str, ...]
    sizes: Sizes  # that it was grown at

    def source(self) -> str:
        """The function, called ``program``."""
        head = f"def program({', '.join(each.name for each in self.arguments)}):"
        return "\n".join([head, *(f"    {line}" for line in self.lines)])

    def call(self, sizes: Sizes) -> str:
        """The lines that make the arguments."""
        return "\n".join(
            f"{each.name} = {each.text(s)}" for each, s in zip(self.arguments, sizes, strict=True)
        )

    def function(self) -> Callable[..., Any]:
        """The function itself."""
        space: dict[str, Any] = dict(SPACE)
        exec(compile(self.source(), "<program>", "exec"), space)
        found = space["program"]
        assert isinstance(found, types.FunctionType)
        return found

    @property
    def dynamic(self) -> bool | None:
        """What to trace it with: integer arguments are symbols where there are any."""
        return True if any(each.layout == "number" for each in self.arguments) else None

    def make(self, sizes: Sizes, device: str = "cpu") -> list[Any]:
        """Arguments at these sizes."""
        space: dict[str, Any] = dict(SPACE)
        exec(self.call(sizes), space)
        made = [space[each.name] for each in self.arguments]
        return made if device == "cpu" else _moved(made, device)


def _moved(values: Sequence[Any], device: str) -> list[Any]:
    """The values with their tensors on a device, in the same layout; what shared memory still
    does.
    """
    memory: dict[int, torch.UntypedStorage] = {}

    def moved(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        here = value.untyped_storage()
        there = memory.setdefault(here._cdata, torch.UntypedStorage(here.nbytes(), device=device))
        there.copy_(here)
        made = torch.empty(0, dtype=value.dtype, device=device)
        made.set_(there, value.storage_offset(), value.size(), value.stride())
        return made.requires_grad_(value.requires_grad and value.is_leaf)

    return [moved(each) for each in values]


class _Grower:
    """Grows one program line by line, running each line; a line that fails is dropped."""

    def __init__(
        self, rng: random.Random, cuts: float, hazards: float, more: Sequence[str]
    ) -> None:
        self.rng = rng
        self.cuts = cuts
        self.hazards = hazards
        self.more = more
        self.arguments: list[Argument] = []
        self.sizes: list[tuple[int, ...]] = []
        self.lines: list[str] = []
        self.space: dict[str, Any] = dict(SPACE)
        self.tensors: list[str] = []
        self.integers: list[str] = []
        self.count = 0

    def argument(self) -> None:
        rng = self.rng
        name = f"x{len(self.arguments)}"
        if self.arguments and rng.random() < 0.08:
            number = rng.choice((0, 1, 2, 3, 5, -1))
            self.arguments.append(Argument(name, "number", 0))
            self.sizes.append((number,))
            self.space[name] = number
            self.integers.append(name)
            return
        if self.tensors and rng.random() < 0.08:
            other = self.arguments[int(rng.choice([t for t in self.tensors if t[0] == "x"])[1:])]
            alias = rng.choice([other.name, f"{other.name}[...]", f"{other.name}.detach()"])
            made = Argument(name, "plain", other.ndim, alias)
            sizes = self.sizes[self.arguments.index(other)]
        else:
            ndim = rng.choice((0, 1, 1, 2, 2, 2, 2, 3, 3, 3, 4))
            layout = rng.choice(("plain",) * 8 + tuple(LAYOUTS)) if ndim else "plain"
            if layout == "last" and ndim != 4:
                layout = "plain"
            used = [
                size
                for argument, each in zip(self.arguments, self.sizes, strict=True)
                if argument.layout != "number"
                for size in each
            ]
            sizes = tuple(
                rng.choice(used) if used and rng.random() < 0.5 else rng.choice(SIZES[2:])
                for _ in range(ndim)
            )
            made = Argument(
                name, layout, ndim, kind=rng.choice(KINDS) if layout != "expanded" else ""
            )
        self.arguments.append(made)
        self.sizes.append(sizes)
        exec(f"{name} = {made.text(sizes)}", self.space)
        self.tensors.append(name)

    def fill(self, template: str) -> str:
        rng = self.rng
        recent = self.tensors[-4:]
        a = rng.choice(recent)
        ndim = self.space[a].dim()
        places = {
            "a": a,
            "b": rng.choice(self.tensors),
            "d": rng.choice([-1, *range(max(ndim, 1))]),
            "e": rng.choice([-1, *range(max(ndim, 1))]),
            "n": rng.choice(self.integers) if self.integers else f"{a}.size(-1)",
            "m": rng.choice(self.integers) if self.integers else f"{a}.numel()",
        }
        return template.format(**places)

    def try_line(self, line: str) -> bool:
        try:
            exec(line, self.space)
        except Exception:  # the generator's own misses: only lines that run are kept
            return False
        return True

    def keep(self, name: str, line: str) -> None:
        value = self.space.get(name)
        if isinstance(value, torch.Tensor):
            if value.numel() > 4000 or value.dim() > 5:
                return
            self.tensors.append(name)
        elif type(value) is int:
            if abs(value) > 4000:
                return
            self.integers.append(name)
        else:
            return
        self.lines.append(line)

    def hazard(self) -> None:
        if self.rng.random() < 0.4:
            line = self.fill(self.rng.choice(OVERLAPS))
            if self.try_line(line):
                self.lines.append(line)
            return
        self.count += 1
        line = f"t{self.count} = {self.fill(self.rng.choice(HAZARDS))}"
        if self.try_line(line):
            self.keep(f"t{self.count}", line)

    def step(self) -> None:
        rng = self.rng
        if self.hazards and rng.random() < self.hazards:
            self.hazard()
            return
        kind = rng.random()
        if kind < 0.12:
            line = self.fill(rng.choice(INPLACE_LINES))
            into, _, source = line.partition(".copy_(")
            # copying onto itself does nothing, even where it overlaps
            if source != f"{into})" and self.try_line(line):
                self.lines.append(line)
            return
        self.count += 1
        if self.cuts and rng.random() < self.cuts:
            name, text = f"t{self.count}", self.fill(rng.choice(CUTS))
        elif kind < 0.3:
            name, text = f"n{self.count}", self.fill(rng.choice(INTEGER_LINES))
        elif self.more and rng.random() < 0.5:
            name, text = f"t{self.count}", self.fill(rng.choice(self.more))
        elif kind < 0.45:
            name = f"t{self.count}"
            then, otherwise = (self.fill(rng.choice(TENSOR_LINES)) for _ in range(2))
            text = f"({then}) if {self.fill(rng.choice(CONDITIONS))} else ({otherwise})"
        else:
            name, text = f"t{self.count}", self.fill(rng.choice(TENSOR_LINES))
        line = f"{name} = {text}"
        if self.try_line(line):
            self.keep(name, line)

    def grow(self) -> Program:
        for _ in range(self.rng.choice((1, 1, 2, 2, 3))):
            self.argument()
        wanted = self.rng.choice((2, 3, 5, 8, 12))
        for _ in range(6 * wanted):
            if len(self.lines) >= wanted:
                break
            self.step()
        names = self.tensors[-3:] + self.integers[-1:]
        if self.rng.random() < 0.3:
            names = self.tensors[-1:]
        self.lines.append(f"return {', '.join(names)}{',' if len(names) == 1 else ''}")
        return Program(tuple(self.arguments), tuple(self.lines), tuple(self.sizes))


def random_program(
    rng: random.Random, cuts: float = 0.0, hazards: float = 0.0, more: Sequence[str] = ()
) -> Program:
    """A program that eager accepts at its own sizes.

    Args:
        rng: the case.
        cuts: the share of lines that cannot be recorded.
        hazards: the share of lines that are ``HAZARDS`` or ``OVERLAPS``.
        more: lines that are drawn as often as all ``TENSOR_LINES``.
    """
    return _Grower(rng, cuts, hazards, more).grow()


def other_sizes(rng: random.Random, program: Program) -> Sizes:
    """Other sizes for the same arguments; equal sizes mostly stay equal, so that the program has a
    chance.
    """
    renamed: dict[int, int] = {}
    keep = rng.random() < 0.7

    def new(size: int) -> int:
        if keep:
            return renamed.setdefault(size, rng.choice(SIZES))
        return rng.choice((size, rng.choice(SIZES)))

    made: list[tuple[int, ...]] = []
    for argument, sizes in zip(program.arguments, program.sizes, strict=True):
        if argument.layout == "number":
            made.append((rng.choice((*sizes, -2, 0, 1, 3, 4)),))
        elif argument.alias:
            source = next(
                i
                for i, each in enumerate(program.arguments)
                if argument.alias.startswith(each.name)
            )
            made.append(made[source])
        else:
            made.append(tuple(new(size) for size in sizes))
    return tuple(made)
