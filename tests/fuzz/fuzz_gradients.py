"""Random functions whose caller runs the backward, against eager: results, gradients and errors.

A function is a few statements on matrices of ``n`` rows, two parameters and a buffer; it returns
some of what it made.  It is compiled as forward and backward, both padded, and called with rows
that vary.  The gradients of some of its results are asked for: once, again, as a graph, after
another call, in another layout, after a tensor was written to, or of one result after the other.
Eager is the oracle.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Sequence
from typing import Any

import attrs
import pytest
import torch
import torch.nn.functional as F

import symshape
from symshape.runtime.runners.gradients import halves
from symshape.runtime.runners.gradients.runner import GradientsRunner
from tests.fuzz.harness import Counterexample, Outcome, fuzz, fuzz_parser

Tensor = torch.Tensor
_LINES = (
    "{a} = {b} * 2 + {c}",
    "{a} = {b}.sin() * {c}",
    "{a} = ({b} @ w).tanh()",
    "{a} = {b} @ w + v",
    "{a} = {b} @ {c}.t() @ {b} / 9",
    "{a} = F.linear({b}, w, v)",
    "{a} = F.relu({b} - 0.1)",
    "{a} = F.gelu({b}) * v",
    "{a} = torch.where({b} > 0, {b}, {c} * 0.5)",
    "{a} = {b}.softmax(1) * {c}",
    "{a} = {b}.softmax(0) * 3",
    "{a} = F.layer_norm({b}, (3,), v)",
    "{a} = {b}.detach() * {c}",
    "{a} = {b}.detach()",
    "{a} = {b}.sum(0, keepdim=True) + {c}",
    "{a} = {b} / x.shape[0] + {c}.mean()",
    "{a} = torch.cat([{b}, {c}])[: x.shape[0]]",
    "{a} = torch.einsum('nd,nd->n', {b}, {c})[:, None] * {b}",
    "{a} = F.embedding((x.detach() > 0).long(), w)[:, 0] + {b}",
    "{a} = {b}.t().contiguous().t()",
    "{a} = {b}.reshape(-1).view(x.shape[0], 3)",
    "{a} = {b}.flip(0)",
    "{a} = {b}[:1].expand(x.shape[0], 3) * {c}",
    "{a} = {b}.chunk(3, 1)[1] * {c}",
    "{a} = {b}.clone().mul_(2) + {c}",
    "{a} = {b}.double().cumsum(0).float()",
    "{a} = {b}.argmax(1)[:, None] * {c}",
    "{a} = F.scaled_dot_product_attention({b}[None, None], {c}[None, None], {b}[None, None])[0, 0]",
    "{a} = {b} if {b}.shape[0] > 3 else {b} * 2",
    "{a} = {b} + k",
    "{a} = {b} * k",
    "{a} = {b} + 1",
    "{a} = {b} + y.view(x.shape[0], -1)",
    "{a} = {b} * (2 if y.view(x.shape[0], -1).shape[1] <= x.shape[1] else 3)",
    "{a} = {b} if y.shape[0] >= x.shape[0] else {b} + 1",
    "{a} = {b} + v / ({c}.detach() * 0)",  # infinite, and so are the gradients on this way
)
_HOW = (
    "once",
    "once",
    "again",
    "graph",
    "later",
    "layout",
    "write",
    "buffer",
    "some",
    "apart",
    "result",
)
_KINDS = ("leaf", "inner", "none")


@attrs.frozen
class Call:
    """One call: how many rows, what asks for gradients, how they are asked for, and a seed."""

    rows: int
    kind: str
    how: str
    seed: int


def source_of(rng: random.Random) -> str:
    """A function's source text."""
    names, lines = ["x", "y"], []
    for number in range(rng.randint(1, 5)):
        words = {"b": rng.choice(names), "c": rng.choice(names)}
        lines.append("    " + rng.choice(_LINES).format(a=f"t{number}", **words))
        names.append(f"t{number}")
    made = names[2:]
    results = [made[-1], *rng.sample(made[:-1], rng.randint(0, min(2, len(made) - 1)))]
    return "\n".join(["def f(x, y, w, v, k):", *lines, f"    return [{', '.join(results)}]", ""])


def ran(fn: Any, call: Call, weights: Sequence[Tensor], buffer: Tensor) -> dict[str, Any]:
    """What comes of a call: results and gradients, or the kind of error."""
    made = torch.Generator().manual_seed(call.seed)
    leaves = [torch.randn(call.rows, 3, generator=made).to(buffer.device) for _ in range(2)]
    if call.kind != "none":
        leaves = [each.requires_grad_() for each in leaves]
    given = [each * 1 for each in leaves] if call.kind == "inner" else leaves
    wanted = [*(leaves if call.kind != "none" else []), *weights]
    try:
        results = fn(*given)
    except Exception as error:  # whatever it is: eager's errors are compared
        return {"error": type(error).__name__}
    found = {f"result {number}": each.detach().clone() for number, each in enumerate(results)}
    found["requires"] = [each.requires_grad for each in results]
    asked = [each for each in results if each.requires_grad]
    if not asked:
        return found
    if call.how == "some":
        asked = asked[-1:]
    if call.how == "later":
        fn(*(torch.ones_like(each) for each in given))
    if call.how == "write":
        with torch.no_grad():
            (given[0] if call.seed % 2 else asked[0]).mul_(1.5)
    if call.how == "result" and len(asked) > 1:
        with torch.no_grad():
            asked[0].mul_(1.5)
        asked = asked[1:]
    if call.how == "buffer":
        buffer.mul_(1.5)
    if call.how == "apart":
        return found | _apart(asked, wanted)
    seeds = [_seed(each, call, made) for each in asked]
    how = {"retain_graph": call.how in ("again", "graph"), "create_graph": call.how == "graph"}
    try:
        for _ in range(1 + (call.how == "again")):
            gradients = torch.autograd.grad(asked, wanted, seeds, allow_unused=True, **how)
        if call.how == "graph":
            total = sum(e.sin().sum() for e in gradients if e is not None and e.requires_grad)
            if isinstance(total, Tensor):
                gradients += torch.autograd.grad(total, wanted, allow_unused=True)
    except Exception as error:  # of a tensor that was written to
        return {**found, "backward": f"{type(error).__name__}: {error}"[:200]}
    return found | {f"gradient {number}": each for number, each in enumerate(gradients)}


def _apart(asked: Sequence[Tensor], wanted: Sequence[Tensor]) -> dict[str, Any]:
    """The gradients of each result alone; None once one needs what another one freed."""
    found: dict[str, Any] = {}
    for place, each in enumerate(asked):
        try:
            made = torch.autograd.grad(each.sin().sum(), wanted, allow_unused=True)
        except RuntimeError:
            found[f"apart {place}"] = None
            continue
        found[f"apart {place}"] = "made"
        found |= {f"gradient {number} of {place}": grad for number, grad in enumerate(made)}
    return found


def _seed(result: Tensor, call: Call, made: torch.Generator) -> Tensor:
    dtype, device = result.dtype, result.device
    if call.how != "layout":
        return torch.randn(result.shape, generator=made, dtype=dtype).to(device)
    if call.seed % 2:
        return torch.ones((), dtype=dtype, device=device).expand(result.shape)
    return torch.randn((*result.shape, 2), generator=made, dtype=dtype).to(device)[..., 1]


def difference(ours: dict[str, Any], theirs: dict[str, Any]) -> str:
    """What differs; empty if nothing does.

    Ours may have the gradients of a result that eager has freed with those of another one.
    """
    for name in [name for name, each in theirs.items() if name.startswith("apart") and not each]:
        more = [each for each in ours if each.endswith(f" of {name.removeprefix('apart ')}")]
        ours = {key: each for key, each in ours.items() if key not in more} | {name: None}
    if ours.keys() != theirs.keys():
        said = [each.get("backward", "no error in backward") for each in (ours, theirs)]
        return f"{sorted(ours)}: {said[0]}\n# eager has {sorted(theirs)}: {said[1]}"
    for name, mine in ours.items():
        other = theirs[name]
        if not isinstance(mine, Tensor) or not isinstance(other, Tensor):
            if mine != other and name != "backward":
                return f"{name}: {mine} for {other}"
        elif mine.shape != other.shape or mine.dtype is not other.dtype:
            return f"{name}: {mine.shape}, {mine.dtype} for {other.shape}, {other.dtype}"
        elif name.startswith("result") and mine.stride() != other.stride():
            return f"{name}: strides {mine.stride()} for {other.stride()}"
        elif not torch.allclose(mine, other, rtol=1e-3, atol=1e-4, equal_nan=True):
            return f"{name}: {mine.flatten()[:6].tolist()} for {other.flatten()[:6].tolist()}"
    return ""


def case(rng: random.Random, device: str = "cpu") -> str:
    """One function, compiled once, in a few calls."""
    source = source_of(rng)
    kind = rng.choice(_KINDS)
    # backward of one result frees what made the arguments of all of them
    ways = [each for each in _HOW if kind != "inner" or each != "apart"]
    calls = [
        Call(rng.choice((1, 2, 3, 4, 5, 7, 0)), kind, rng.choice(ways), rng.randrange(1000))
        for _ in range(rng.randint(4, 8))
    ]
    space: dict[str, Any] = {"torch": torch, "F": F}
    exec(compile(source, "<fuzz_gradients>", "exec"), space)
    made = torch.Generator().manual_seed(rng.randrange(1000))
    weights = [torch.randn(3, 3, generator=made), torch.randn(3, generator=made)]
    weights = [each.to(device).requires_grad_(rng.random() < 0.8) for each in weights]

    written = space["f"]

    buffer = torch.ones(3, device=device)

    def fn(x: Tensor, y: Tensor) -> list[Tensor]:
        found: list[Tensor] = written(x, y, *weights, buffer)
        return found

    wanted = [each for each in weights if each.requires_grad]
    tied = rng.random() < 0.4  # as if attention dropped elements
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")
        if tied:
            patch.setattr(halves, "_is_tied", lambda graph: True)
        compiled = symshape.compile(fn, runner="padded")
        for number, call in enumerate(calls):
            found_by = []
            for each in (compiled, fn):
                buffer.fill_(1.25)
                found_by.append(ran(each, call, wanted, buffer))
            ours, theirs = found_by
            if call.how in ("write", "result") and "backward" in theirs and "backward" not in ours:
                # backward does not read what was written to: it makes that again
                buffer.fill_(1.25)
                theirs = ran(fn, attrs.evolve(call, how="once"), wanted, buffer)
            found = difference(ours, theirs)
            if found:
                said = ", tied" if tied else ""
                raise Counterexample(f"{source}\n# call {number} of {calls}{said}\n# {found}")
    runners = [each.runner for each in compiled.entries]
    divided = [each for each in runners if isinstance(each, GradientsRunner) and each.halves]
    if not divided:
        return "op by op"
    return "tied forward and backward" if tied else "forward and backward"


def main(argv: Sequence[str] | None = None) -> Outcome:
    """Runs the fuzzer."""
    parser = fuzz_parser(__doc__, count=2000, smoke=12)
    parser.add_argument("--device", default="cpu", help="of all tensors (default: cpu)")
    args = parser.parse_args(argv)
    name = "gradients" if args.device == "cpu" else f"gradients --device {args.device}"
    must_see = ("forward and backward", "tied forward and backward")
    return fuzz(name, lambda rng: case(rng, args.device), args, must_see=must_see)
