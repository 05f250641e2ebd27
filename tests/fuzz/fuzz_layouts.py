"""Views or copies: reshapes of strided arguments that share memory, writes between, each call
compared with eager.

A case is one program: an op that answers a view or a copy, a write through one of the tensors that
may share its memory, and results.  It is compiled once and called at sizes 0, 1, 2 and 5 on every
side, with arguments of one layout or of several.  What serves a call was traced at another one, so
the guards are what is tested.  The oracle is eager on copies of the arguments: values, strides (but
those of empty tensors), aliasing, writes.
"""

from __future__ import annotations

import math
import random
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import torch

import symshape
from symshape.runtime.verify import copy_call
from tests.fuzz.harness import Counterexample, Outcome, fuzz, fuzz_parser
from tests.fuzz.programs import SPACE
from tests.symshape.eager import EXPECTED_REFUSALS, Seen, call_seen, differences

SIZES = (0, 1, 1, 2, 2, 5)  # 0 ends most questions early
CALLS = 7

# How an argument `a` of sizes `s` lies in the memory `m`, a contiguous tensor that is larger than
# it needs to be.
LAYOUTS = {
    "plain": "m[:prod(s)].view(s)",
    "offset": "m[3 : 3 + prod(s)].view(s)",
    "reversed": "m[:prod(s)].view(s[::-1]).permute(*range(len(s))[::-1])",
    "swapped": "m[:prod(s)].view(*s[:-2], s[-1], s[-2]).mT",
    "rotated": "m[:prod(s)].view(*s[1:], s[0]).movedim(-1, 0)",
    "stepped": "m[: 2 * prod(s)].view(*s[:-1], 2 * s[-1])[..., ::2]",
    "rows": "m[: 2 * prod(s)].view(2 * s[0], *s[1:])[::2]",
    "narrow": "m[: prod(s[:-1]) * (s[-1] + 1)].view(*s[:-1], s[-1] + 1)[..., 1:]",
    "inner": "m[: prod(s[:-2]) * (s[-2] + 1) * s[-1]].view(*s[:-2], s[-2] + 1, s[-1])[..., 1:, :]",
    "expanded": "m[: prod(s[1:])].view(1, *s[1:]).expand(s)",
    "repeated": "m[: prod(s[:-1])].view(*s[:-1], 1).expand(s)",
    "last": "m[:prod(s)].view(s[0], *s[2:], s[1]).movedim(-1, 1)",
    "odd": "m.as_strided(s, [7 if size == 1 else stride for size, stride in zip(s, steps(s))])",
}
# What another argument is that may share the memory of the first.
ALIASES = (
    "m",
    "m[:prod(s)]",
    "m[: max(prod(s), 1)].view(-1)",
    "m[1:5]",
    "m[:1]",
    "a",
    "a.detach()",
    "a[...]",
    "a[:1]",
    "a.permute(*range(a.dim())[::-1])",
    "m[:prod(s)].view(s)",
    "m[:prod(s)].view(s[::-1])",
    "m.clone()[:prod(s)]",
    "m.clone()[:prod(s)].view(s)",
)
FIRST = (
    *("a", "a", "a", "a", "a"),
    *(
        "a.mT",
        "a[1:]",
        "a[:1]",
        "a[..., :1]",
        "a[..., 1:]",
        "a.unsqueeze(0)",
        "a.unsqueeze(-1)",
        "a.transpose(0, -1)",
    ),
    *(
        "a.unsqueeze(1).expand(-1, 2, *a.shape[1:])",
        "a.expand(a.shape)",
        "a * 1",
        "a.mT + 0",
        "a + b.sum()",
        "a[::2]",
    ),
    *(
        "a.squeeze()",
        "a.squeeze(0)",
        "a.diagonal()",
        "a.unfold(0, 1, 1)",
        "a.clone()",
        "a.movedim(0, -1)",
        "a.flip(0)",
    ),
)
OPS = (
    "x.reshape(-1)",
    "x.reshape(x.numel())",
    "x.reshape(-1, 1)",
    "x.reshape(1, -1)",
    "x.reshape(x.size(0), -1)",
    "x.reshape(-1, x.size(-1))",
    "x.reshape(x.shape[::-1])",
    "x.reshape(x.shape)",
    "x.reshape(*x.shape[1:], x.size(0))",
    "x.reshape(x.size(0) * x.size(1), *x.shape[2:])",
    "x.reshape(*x.shape[:-1], 1, x.size(-1))",
    "torch.reshape(x, (x.size(-1), -1))",
    "x.reshape_as(b)",
    "x.view_as(b)",
    "x.flatten()",
    "torch.flatten(x, 1)",
    "x.flatten(0, 1)",
    "x.flatten(-2)",
    "x.ravel()",
    "torch.ravel(x)",
    "x.unflatten(0, (-1, 1))",
    "x.view(-1)",
    "x.view(x.size(0), -1)",
    "x.view(x.shape[::-1])",
    "x.contiguous()",
    "x.contiguous(memory_format=torch.channels_last)",
    "x.to(memory_format=torch.channels_last)",
    "x.to(memory_format=torch.contiguous_format)",
    "x.clone(memory_format=torch.preserve_format)",
    "x.to(x.dtype)",
    "x.float()",
    "x.type_as(b)",
    "x.expand_as(x)",
    "x.squeeze()",
    "x.squeeze(-1)",
    "x.mT.contiguous()",
    "x.mT.reshape(-1)",
    "x.contiguous().view(-1)",
    "x.t().reshape(-1)",
    "x.movedim(0, -1).flatten()",
    "torch.atleast_3d(x)",
    "x.broadcast_to(x.shape).reshape(-1)",
    "x.unsqueeze(0).flatten(0, 1)",
    "x.tile((1, 1)).reshape(-1)",
    "torch.nn.Flatten(0)(x)",
    "torch.nn.functional.pixel_unshuffle(x, 1)",
    "torch.einsum('...ij->...ji', x).reshape(-1)",
    "(x if x.is_contiguous() else x.reshape(-1))",
    "(x.view(-1) if x.is_contiguous() else x)",
    "(x if x.is_contiguous(memory_format=torch.channels_last) else x.reshape(-1))",
    "x.reshape(-1).reshape(x.shape)",
    "x.reshape(-1)[1:]",
    "x.reshape(-1).unsqueeze(0).expand(2, -1)",
    "torch.cat([x.reshape(-1)])",
    "torch.stack(x.reshape(-1, 1).unbind(1))",
    "x.chunk(2, -1)[0].reshape(-1)",
)
WRITES = (
    *(
        "b.add_(1)",
        "b.add_(1)",
        "b.mul_(2)",
        "b.zero_()",
        "b.copy_(b + 3)",
        "b[:1].add_(1)",
        "b.view(-1)[:2].fill_(7)",
    ),
    *(
        "a.add_(1)",
        "a[:1].mul_(3)",
        "x.add_(1)",
        "y.add_(1)",
        "y.zero_()",
        "y[:1].fill_(9)",
        "y.reshape(-1).add_(1)",
    ),
    *(
        "torch.add(b, 1, out=b)",
        "b.reshape(-1).add_(1)",
        "a.reshape(-1).mul_(2)",
        "y.t_()",
        "pass",
        "pass",
        "pass",
    ),
)
RESULTS = (
    *(
        "y * 2",
        "y * 2",
        "y + 1",
        "y",
        "y, x",
        "y.sum(), a * 1",
        "y * 2, b * 2",
        "x * 2, y * 3",
        "y.clone()",
    ),
    *(
        "y.mT",
        "y.stride(), y * 1",
        "y.is_contiguous(), y * 1",
        "y.reshape(-1)",
        "y.reshape(-1) * 2",
        "y.view(-1)",
    ),
    *(
        "a + 0, b + 0",
        "y[:1]",
        "torch.relu(y)",
        "y.contiguous()",
        "y.unsqueeze(0) + 1",
        "y.storage_offset(), y * 1",
    ),
    *(
        "y.detach() * 2",
        "y.sum(-1)",
        "y.flip(0)",
        "y.softmax(-1)",
        "y.cumsum(-1)",
        "torch.empty_like(y).zero_()",
    ),
)


def prod(sizes: Sequence[int]) -> int:
    return math.prod(sizes)


def steps(sizes: Sequence[int]) -> list[int]:
    """The strides of a contiguous tensor."""
    return list(torch.empty(tuple(sizes)).stride())


@attrs.frozen
class Program:
    """A program as text, and how its arguments may lie in memory."""

    lines: tuple[str, ...]
    layouts: tuple[str, ...]
    aliases: tuple[str, ...]

    def source(self) -> str:
        return "\n    ".join(["def f(a, b):", *self.lines])

    def function(self) -> Callable[..., Any]:
        space = dict(SPACE)
        exec(self.source(), space)
        return space["f"]  # type: ignore[no-any-return]

    def make(
        self, sizes: tuple[int, ...], layout: str, alias: str
    ) -> tuple[torch.Tensor, torch.Tensor]:
        space: dict[str, Any] = {"s": sizes, "prod": prod, "steps": steps, "torch": torch}
        space["m"] = torch.arange(
            float(4 * max(prod(tuple(max(each, 1) + 1 for each in sizes)), 2))
        )
        space["a"] = eval(LAYOUTS[layout], space)
        return space["a"], eval(alias, space)


def random_program(rng: random.Random) -> Program:
    """A program; it may refuse every call."""
    lines = [f"x = {rng.choice(FIRST)}", f"y = {rng.choice(OPS)}"]
    if rng.random() < 0.2:
        lines += ["x = y", f"y = {rng.choice(OPS)}"]
    lines.append(rng.choice(WRITES))
    if rng.random() < 0.25:
        lines.insert(rng.randrange(1, len(lines)), rng.choice(WRITES[:9]))
    lines.append(f"return {rng.choice(RESULTS)}")
    layouts = rng.sample(list(LAYOUTS), rng.choice((1, 1, 1, 2, 3)))
    return Program(tuple(lines), tuple(layouts), tuple(rng.sample(ALIASES, rng.choice((1, 1, 2)))))


def case(rng: random.Random, counts: Counter[str]) -> str:
    """One program, called at several sizes."""
    program = random_program(rng)
    fn = program.function()
    dynamic = rng.choice((True, True, None))
    compiled = symshape.compile(fn, dynamic=dynamic, fullgraph=True)
    rank = rng.choice((2, 2, 2, 3, 4))
    needs = 4 if "channels_last" in program.source() or "last" in program.layouts else rank
    log: list[str] = []
    seen = {"eager refuses"}
    for _ in range(CALLS):
        sizes = tuple(rng.choice(SIZES) for _ in range(needs))
        how = sizes, rng.choice(program.layouts), rng.choice(program.aliases)
        log.append(f"c(*make{how})")
        try:
            given = program.make(*how)
        except (RuntimeError, IndexError):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected, mine = _outcome(fn, given), _outcome(compiled, given)
        if isinstance(mine, symshape.SymShapeError):
            if isinstance(expected, Exception):
                continue
            counts["calls refused: " + str(mine).partition(" (")[0][:90]] += 1
            seen.add("refused")
            continue
        found = _differences(expected, mine)
        if found:
            guards = [f"# guards: {entry}" for entry in compiled.entries]
            raise Counterexample(
                "\n".join([program.source(), f"# dynamic={dynamic}", *log, *found, *guards])
            )
        seen.add("equal error" if isinstance(expected, Exception) else "equal")
    counts["hits"] += compiled.stats().hits
    return next(
        label for label in ("refused", "equal", "equal error", "eager refuses") if label in seen
    )


def _outcome(fn: Callable[..., Any], given: tuple[torch.Tensor, ...]) -> Seen | Exception:
    """All that is seen of a call on copies of its arguments."""
    args, _ = copy_call(given, {})
    try:
        return call_seen(fn, args, {})
    except symshape.SymShapeError as error:
        return error
    except EXPECTED_REFUSALS as error:
        return error


def _differences(expected: Seen | Exception, mine: Seen | Exception) -> list[str]:
    if isinstance(expected, Exception) or isinstance(mine, Exception):
        if isinstance(expected, Exception) and isinstance(mine, Exception):
            return []
        what = [
            f"{type(e).__name__}: {e}" if isinstance(e, Exception) else "a result"
            for e in (expected, mine)
        ]
        return [f"expected {what[0]}, got {what[1]}"]
    return differences(expected, mine)


def main(argv: Sequence[str] | None = None) -> Outcome:
    """Runs the fuzzer; each case is one program at seven sizes."""
    torch.set_num_threads(1)
    counts: Counter[str] = Counter()
    args = fuzz_parser(__doc__, count=2_000, smoke=20).parse_args(argv)
    return fuzz("layouts", lambda rng: case(rng, counts), args, must_see=("equal",), counts=counts)
