"""Random functions through ``torch.compile(backend="symshape")`` against eager: results, gradients,
writes and errors.

A function is a few statements on matrices of ``n`` rows: views, writes in place, interpolation,
one-hot rows, random numbers, calls that nothing reads.  One compiled function gets calls whose
sizes vary and whose arguments lie apart, overlap, are one tensor, or share memory through NumPy;
some of them ask for gradients.  Eager is the oracle, and each case takes one of two ways: the
defaults, or programs of what AOTAutograd makes (``runner="eager"``).

Where ``torch.compile(backend="eager")`` differs from eager too, Dynamo made another graph, and the
case says nothing.
"""

from __future__ import annotations

import random
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import torch

from symshape.frontends import dynamo
from symshape.frontends.dynamo import symshape_backend
from tests.fuzz.harness import Counterexample, Outcome, fuzz, fuzz_parser

Tensor = torch.Tensor
COUNTS: Counter[str] = Counter()
"""What the functions and calls of all cases had in them."""

_COMPUTES = (
    "{a} = {b} * 2 + {c}",
    "{a} = {b}.sin() * {c}",
    "{a} = {b} @ {c}.t() @ {b}",
    "{a} = F.relu({b} - 0.1)",
    "{a} = torch.where({b} > 0, {b}, {c} * 0.5)",
    "{a} = {b}.softmax(1) + k",
    "{a} = {b}.cumsum(0) / x.shape[0]",
    "{a} = torch.cat([{b}, {c}])[: x.shape[0]]",
    "{a} = F.layer_norm({b}, (3,))",
    "{a} = {b}.detach() * {c}",
    "{a} = torch.einsum('nd,nd->n', {b}, {c})[:, None] * {b}",
    "{a} = {b}.sort(0).values",
    "{a} = F.pad({b}, (0, 0, 1, 0))[1:] - {c}",
    "{a} = F.hardshrink({b}) + F.softshrink({c})",
    "{a} = F.dropout({b}, 0.5)",
    "{a} = {b} + torch.rand_like({c})",
    "{a} = F.one_hot(({c} > 0).sum(1), 4)[:, :3] * {b}",
    "{a} = F.one_hot(({c} > 0).sum(1), min(x.shape[0], 3)).sum() * {b}",
    "{a} = F.interpolate({b}[None, None], scale_factor=({s}, 1.5), mode='{m}').mean() + {c}",
    "{a} = F.interpolate({b}[None, None], size=(x.shape[0] * 2 + 1, 5), mode='{m}').sum() * {c}",
    "{a} = F.interpolate({b}.t()[None], scale_factor={s}, mode='{l}').mean() * {c}",
    "{a} = F.embedding((x.detach() > 0).long(), {c})[:, 0] + {b}",
    "{a} = F.max_pool1d({b}.t()[None], 1)[0].t() * {c}",
    "{a} = F.multi_margin_loss({b}, ({c} > 0).sum(1).clamp(max=2)) + {b}",
    "{a} = torch.nn.utils.rnn.pad_sequence([{b}, {c}]).sum(1)",
)
_VIEWS = (
    "{a} = {b}.view(-1, 3)",
    "{a} = {b}.t().t()",
    "{a} = {b}.reshape(-1).view(x.shape[0], 3)",
    "{a} = {b}.as_strided((x.shape[0], 3), (3, 1))",
    "{a} = {b}[:]",
    "{a} = {b}.flip(0)",
    "{a} = {b}[:1].expand(x.shape[0], 3)",
)
_WRITES = (
    "{b}.mul_(2)",
    "{b}.add_({c})",
    "{b} += 1",
    "{b}[1:] += 1",
    "{b}[1:].add_({b}[:-1])",
    "{b}[1:].copy_({c}[:-1])",
    "{b}.copy_({c})",
    "{b}[:, 0] = {c}[:, 1]",
    "{b}.t().mul_(0.5)",
    "{b}.as_strided((x.shape[0], 2), (3, 1)).add_(1)",
    "{b}.as_strided((2, 2), (1, 1)).mul_(2)",
    "{b}.relu_()",
    "F.relu({b}, inplace=True)",
    "torch.add({b}, 1, out={b})",
    "{b}.index_add_(0, torch.arange(x.shape[0]), {c})",
    "{b}.clamp_(-1, 1).neg_()",
    "{b}[0].zero_()",
)
_UNREAD = (
    "torch.linalg.cholesky({b} @ {b}.t())",
    "torch.linalg.inv({b}[:1, :1] * 0)",
    "F.embedding(({b} > 0).long() + 1, {c})",
    "{b}.exp()",
    "torch.multinomial({b}, 1)",
)
_MODES = ("nearest", "nearest-exact", "bilinear", "bicubic", "area")
_LINEAR = ("nearest", "nearest-exact", "linear", "area")
_HOW = ("apart", "apart", "apart", "overlap", "same", "numpy", "rows")
_WAYS: dict[str, Any] = {"default": None, "programs": {"runner": "eager"}}


@attrs.frozen
class Call:
    """One call: how many rows, how the arguments lie in memory, whether gradients are asked for,
    and a seed.
    """

    rows: int
    how: str
    grad: bool
    seed: int

    def arguments(self) -> tuple[list[Tensor], list[Tensor]]:
        """The arguments, and the tensors whose memory or gradients are compared afterwards."""
        torch.manual_seed(self.seed)
        size = (self.rows + 1) * 3
        if self.how == "numpy":
            array = torch.randn(size).numpy()
            x, y = (torch.from_numpy(array[at : at + self.rows * 3]).view(-1, 3) for at in (0, 3))
            return [x, y], [x, y]
        leaves = [torch.randn(size, requires_grad=self.grad) for _ in range(2)]
        first, second = (leaf * 1 for leaf in leaves)
        x = (
            first[: self.rows * 3].view(-1, 3)
            if self.how != "apart"
            else torch.mul(first[:-3].view(-1, 3), 1)
        )
        if self.how == "apart":
            return [x, torch.mul(second[:-3].view(-1, 3), 1)], leaves
        if self.how == "same":
            return [x, x], leaves
        if self.how == "rows":  # one storage, no element in common
            whole = torch.cat([first, second])
            return [
                whole[: self.rows * 3].view(-1, 3),
                whole[size : size + self.rows * 3].view(-1, 3),
            ], leaves
        return [x, first[3:].view(-1, 3)], leaves


def source_of(rng: random.Random) -> tuple[str, set[str]]:
    """A function's source text, and labels of what is in it."""
    names, lines, labels = ["x", "y"], [], set[str]()
    for number in range(rng.randint(1, 4)):
        kind = rng.choices(("computes", "views", "writes", "unread"), (5, 3, 3, 1))[0]
        table = {"computes": _COMPUTES, "views": _VIEWS, "writes": _WRITES, "unread": _UNREAD}[kind]
        chosen = rng.choice(table)
        made = f"t{number}"
        scale = rng.choice(("1.3", "0.7", "2.0"))
        words = {"b": rng.choice(names), "c": rng.choice(names), "s": scale}
        lines.append(chosen.format(a=made, m=rng.choice(_MODES), l=rng.choice(_LINEAR), **words))
        labels |= {kind} | ({"interpolate"} if "interpolate" in chosen else set())
        if kind in ("computes", "views"):
            names.append(made)
    results = rng.sample(names, rng.randint(1, min(3, len(names))))
    body = "".join(f"    {line}\n" for line in lines)
    return f"def f(x, y, k):\n{body}    return [{', '.join(results)}]\n", labels


def ran(fn: Callable[..., Any], call: Call) -> dict[str, Any]:
    """What comes of a call: results, arguments and gradients, or the kind of error."""
    args, leaves = call.arguments()
    torch.manual_seed(call.seed + 1)
    try:
        results = fn(*args, 0.25 + call.rows)
    except Exception as error:  # whatever it is: eager's errors are compared
        return {"error": type(error).__name__}
    found: dict[str, Any] = {f"argument {number}": each for number, each in enumerate(args)}
    found |= {f"result {number}": each for number, each in enumerate(results)}
    shared = [number for number, each in enumerate(results) if _in_memory_of(each, args)]
    found |= {"shares": shared, "requires": [each.requires_grad for each in results]}
    asked = [each for each in results if each.requires_grad]
    if asked:
        try:
            (
                asked[-1].double() ** 2
            ).sum().backward()  # the last alone: others get no gradient at all
        except Exception as error:  # of a value that was written to since
            return {**found, "backward": type(error).__name__}
        found |= {f"gradient {number}": each.grad for number, each in enumerate(leaves)}
    return found


def _in_memory_of(tensor: Tensor, others: Sequence[Tensor]) -> bool:
    return any(
        tensor.untyped_storage().data_ptr() == each.untyped_storage().data_ptr() for each in others
    )


def difference(ours: dict[str, Any], theirs: dict[str, Any]) -> str:
    """What differs; empty if nothing does."""
    if ours.keys() != theirs.keys():
        return (
            f"{sorted(map(str, ours.items() if 'error' in ours else ours))} where eager has "
            f"{sorted(theirs)}"
        )
    for name, mine in ours.items():
        other = theirs[name]
        if isinstance(mine, Tensor) and isinstance(other, Tensor):
            if (
                mine.shape != other.shape
                or mine.stride() != other.stride()
                or mine.dtype is not other.dtype
            ):
                return (
                    f"{name}: {mine.shape}, strides {mine.stride()} for {other.shape}, strides "
                    f"{other.stride()}"
                )
            if not torch.allclose(mine, other, rtol=1e-4, atol=1e-5, equal_nan=True):
                return f"{name}: {mine.flatten()[:6].tolist()} for {other.flatten()[:6].tolist()}"
        # Dynamo wraps some errors in classes of its own
        elif name not in ("error", "backward") and mine != other:
            return f"{name}: {mine} for {other}"
    return ""


def case(rng: random.Random) -> str:
    """One function, compiled once, in a few calls."""
    source, labels = source_of(rng)
    way = rng.choice(sorted(_WAYS))
    calls = []
    for number in range(rng.randint(2, 4)):
        how = rng.choice(_HOW) if number else "apart"
        calls.append(
            Call(rng.choice((1, 2, 3, 4, 5, 7, 0)), how, rng.random() < 0.5, rng.randrange(1000))
        )
    space: dict[str, Any] = {"torch": torch, "F": torch.nn.functional}
    exec(compile(source, "<fuzz_backend>", "exec"), space)
    fn = space["f"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _compare(fn, calls, way, source)
    gradients = {"gradients"} if any(each.grad for each in calls) else set()
    COUNTS.update(labels | {each.how for each in calls} | gradients)
    return way


def _compare(fn: Callable[..., Any], calls: Sequence[Call], way: str, source: str) -> None:
    torch._dynamo.reset()
    dynamo.alive.clear()
    compiled = torch.compile(fn, backend=symshape_backend, options=_WAYS[way])
    for number, call in enumerate(calls):
        ours, theirs = ran(compiled, call), ran(fn, call)
        found = difference(ours, theirs)
        if not found:
            continue
        torch._dynamo.reset()
        dynamos = torch.compile(fn, backend="eager")
        if [difference(ran(dynamos, each), ran(fn, each)) for each in calls[: number + 1]][-1]:
            return  # Dynamo's own
        if "error" in theirs:
            aots = ran(torch.compile(fn, backend="aot_eager"), call)
            if "error" not in aots and not difference(ours, aots):
                return  # AOTAutograd removes what nothing reads, and its errors
        raise Counterexample(
            f"{source}\n# {way}: call {number} of {list(calls[: number + 1])}\n# {found}"
        )


def main(argv: Sequence[str] | None = None) -> Outcome:
    """Runs the fuzzer."""
    COUNTS.clear()
    args = fuzz_parser(__doc__, count=1000, smoke=6).parse_args(argv)
    return fuzz("backend", case, args, must_see=list(_WAYS), counts=COUNTS)
