"""Streams of calls through ``symshape.compile``, each call compared with eager: values, layouts,
aliasing, mutation.

A case makes a small program (a function of a module, from parts that branch on sizes, integers,
flags, modes and state), compiles it under a random policy and bounds, and calls it many times with
random shapes, dtypes, layouts, scalars, nesting, grad modes and autocast, while it changes the
state that the program reads: training flags, attributes, parameters, hooks, globals.  The oracle is
the same program in eager mode on a copy of the call.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn

import symshape
from symshape import Options
from tests.fuzz.harness import Counterexample, Outcome, run_fuzzer
from tests.symshape.eager import call_seen, copy_call, differences, shapes

Program = Callable[..., Any]
Part = Callable[[torch.Tensor, torch.Tensor, Any, "Block"], torch.Tensor]


class Block(nn.Module):
    """State to read and to change."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.drop = nn.Dropout(0.5)
        self.register_buffer("count", torch.zeros(3))
        self.scale = 2.0
        self.factors = [1, 2]
        self.options = {"shift": 0.5}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.drop(self.linear(x)) * self.scale


GLOBALS = {"gain": 1.0}
gain = 1.0


def _branch(x: torch.Tensor, y: torch.Tensor, k: Any, block: Block) -> torch.Tensor:
    return x * 2 if x.shape[0] > y.shape[0] else x - 1


def _parity(x: torch.Tensor, y: torch.Tensor, k: Any, block: Block) -> torch.Tensor:
    return x.flip(0) if x.shape[0] % 2 else x


def _together(x: torch.Tensor, y: torch.Tensor, k: Any, block: Block) -> torch.Tensor:
    return torch.cat([x, y.to(x.dtype)]).sum(0, keepdim=True) + x


def _scalar(x: torch.Tensor, y: torch.Tensor, k: Any, block: Block) -> torch.Tensor:
    return x if k is None or isinstance(k, str) else x * k if k else -x


def _integer(x: torch.Tensor, y: torch.Tensor, k: Any, block: Block) -> torch.Tensor:
    return x[: max(k, 0)].sum(0) + x if isinstance(k, int) and not isinstance(k, bool) else x


def _text(x: torch.Tensor, y: torch.Tensor, k: Any, block: Block) -> torch.Tensor:
    return x.abs() if k == "abs" else x


def _reads_module(x: torch.Tensor, y: torch.Tensor, k: Any, block: Block) -> torch.Tensor:
    return block(x.to(block.linear.weight.dtype)).to(x.dtype)


def _reads_flag(x: torch.Tensor, y: torch.Tensor, k: Any, block: Block) -> torch.Tensor:
    return x + 1 if block.training else x + 2


def _reads_lists(x: torch.Tensor, y: torch.Tensor, k: Any, block: Block) -> torch.Tensor:
    return x * block.factors[0] + block.options["shift"] + len(block.factors)


def _reads_global(x: torch.Tensor, y: torch.Tensor, k: Any, block: Block) -> torch.Tensor:
    return x * gain + GLOBALS["gain"]


def _reads_modes(x: torch.Tensor, y: torch.Tensor, k: Any, block: Block) -> torch.Tensor:
    return x * (2 if torch.is_grad_enabled() else 3)


def _writes(x: torch.Tensor, y: torch.Tensor, k: Any, block: Block) -> torch.Tensor:
    x = x.clone() if x.requires_grad else x
    x.mul_(2)
    return x


def _writes_second(x: torch.Tensor, y: torch.Tensor, k: Any, block: Block) -> torch.Tensor:
    if not y.requires_grad:
        y[:1].zero_()
    return x + 1


def _counts(x: torch.Tensor, y: torch.Tensor, k: Any, block: Block) -> torch.Tensor:
    block.count.add_(1)
    return x + block.count.to(x.dtype).detach()


def _layout(x: torch.Tensor, y: torch.Tensor, k: Any, block: Block) -> torch.Tensor:
    return x.reshape(-1, 3) if x.is_contiguous() else x.contiguous()


def _data(x: torch.Tensor, y: torch.Tensor, k: Any, block: Block) -> torch.Tensor:
    return x[x[:, 0] > 0].sum(0) + x


def _random_numbers(x: torch.Tensor, y: torch.Tensor, k: Any, block: Block) -> torch.Tensor:
    return x + torch.rand(x.shape[0], 1)


def _gradless(x: torch.Tensor, y: torch.Tensor, k: Any, block: Block) -> torch.Tensor:
    with torch.no_grad():
        z = y.sum() * 2
    return x + z.to(x.dtype)


PARTS: tuple[Part, ...] = (
    _branch,
    _parity,
    _together,
    _scalar,
    _integer,
    _text,
    _reads_module,
    _reads_flag,
    _reads_lists,
    _reads_global,
    _reads_modes,
    _writes,
    _writes_second,
    _counts,
    _layout,
    _data,
    _random_numbers,
    _gradless,
)
RESULTS: tuple[Callable[..., Any], ...] = (
    lambda x, y, z: z,
    lambda x, y, z: (z, x),
    lambda x, y, z: {"z": z, "view": x[1:], "n": x.shape[0]},
    lambda x, y, z: [z, [z[:1], y.shape[0] * 2], None],
)


def make_program(rng: random.Random, block: Block) -> tuple[Program, str]:
    """A program and what it is made of."""
    parts = rng.sample(PARTS, rng.randint(1, 4))
    finish = rng.choice(RESULTS)

    def run(x: Any, y: Any, k: Any, block: Block) -> Any:
        if isinstance(x, (list, tuple)):
            x = x[0]
        if isinstance(y, dict):
            y = y["y"]
        z = x
        for part in parts:
            z = part(z, y, k, block)
        return finish(x, y, z)

    def program(x: Any, y: Any, k: Any = 1) -> Any:
        return run(x, y, k, block)

    return program, "+".join(part.__name__.strip("_") for part in parts)


def make_tensor(rng: random.Random, dtype: torch.dtype) -> torch.Tensor:
    """A tensor of n by 3 in some layout."""
    n = rng.choice((0, 1, 1, 2, 3, 4, 5, 8))
    generator = torch.Generator().manual_seed(rng.randrange(1000))
    base = torch.randn(n + 2, 6, generator=generator, dtype=torch.float64).to(dtype)
    kind = rng.randrange(6)
    if kind == 0:
        return base[:n, ::2]
    if kind == 1:
        return base[1 : n + 1, 1:4]
    if kind == 2:
        return base[: n or 0, :3].t().contiguous().t()
    if kind == 3:
        return base.view(-1)[3 : 3 + 3 * n].view(n, 3)
    return base[:n, :3].clone()


def make_call(rng: random.Random) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments, positional and by name."""
    dtype = rng.choice((torch.float32, torch.float32, torch.float64, torch.bfloat16))
    x = make_tensor(rng, dtype)
    y: Any = x if rng.random() < 0.1 else x[:1] if rng.random() < 0.1 else make_tensor(rng, dtype)
    if rng.random() < 0.15:
        x = x.detach().requires_grad_()
    k = rng.choice(
        (
            1,
            2,
            3,
            0,
            -1,
            2**40,
            True,
            False,
            1.0,
            0.0,
            -0.0,
            2.5,
            float("inf"),
            None,
            "abs",
            "other",
        )
    )
    first: Any = [x] if rng.random() < 0.1 else (x,) if rng.random() < 0.1 else x
    second: Any = {"y": y} if rng.random() < 0.1 else y
    how = rng.randrange(4)
    if how == 0:
        return (first, second), {"k": k}
    if how == 1:
        return (first,), {"y": second, "k": k}
    if how == 2:
        return (), {"k": k, "y": second, "x": first}
    return (first, second, k), {}


def change(rng: random.Random, block: Block) -> str:
    """Changes the state that programs read."""
    global gain
    kind = rng.randrange(12)
    if kind == 0:
        block.train(rng.random() < 0.5)
    elif kind == 1:
        block.drop.train(rng.random() < 0.5)
    elif kind == 2:
        block.scale = rng.choice((2.0, 3.0, 2, -0.0, 0.0))
    elif kind == 3:
        block.factors[rng.randrange(len(block.factors))] = rng.randrange(4)
    elif kind == 4:
        block.factors = [*block.factors, 1][-3:]
    elif kind == 5:
        block.options["shift"] = rng.choice((0.5, 1.5))
    elif kind == 6:
        block.linear.weight = nn.Parameter(torch.randn(3, 3))
    elif kind == 7:
        block.linear.weight.data = torch.randn(3, 3)
    elif kind == 8:
        block.to(rng.choice((torch.float32, torch.float64)))
    elif kind == 9:
        gain = rng.choice((1.0, 2.0, 4.0))
    elif kind == 10:
        GLOBALS["gain"] = rng.choice((1.0, 2.0))
    else:
        block.linear._forward_hooks.clear()
        if rng.random() < 0.5:
            block.linear.register_forward_hook(double)
    return f"change {kind}"


def double(module: nn.Module, args: Any, result: torch.Tensor) -> torch.Tensor:
    return result * 2


def modes(rng: random.Random, stack: ExitStack) -> str:
    kind = rng.randrange(8)
    if kind == 0:
        stack.enter_context(torch.no_grad())
    elif kind == 1:
        stack.enter_context(torch.inference_mode())
    elif kind == 2:
        stack.enter_context(torch.autocast("cpu", dtype=torch.bfloat16))
    return ("no_grad", "inference", "autocast")[kind] if kind < 3 else ""


def options(rng: random.Random) -> tuple[bool | None, Options]:
    small = rng.random() < 0.3
    bounds = Options(max_entries=rng.choice((1, 2, 5)), memo_size=3) if small else Options()
    return rng.choice((None, None, None, True, False)), bounds


def outcome(program: Program, block: Block, call: tuple[Any, Any]) -> Any:
    """What a call shows, the buffer of the block included; or the error."""
    args, kwargs = copy_call(*call)
    before = block.count.clone()
    try:
        seen = call_seen(program, args, kwargs)
        return seen, block.count.tolist()
    except symshape.SymShapeError:
        raise
    except Exception as error:
        return error
    finally:
        with torch.no_grad():
            block.count.copy_(before)


def case(rng: random.Random) -> str:
    global gain
    gain, GLOBALS["gain"] = 1.0, 1.0
    torch.manual_seed(rng.randrange(1000))
    block = Block()
    program, name = make_program(rng, block)
    dynamic, chosen = options(rng)
    compiled = symshape.compile(program, dynamic=dynamic, fullgraph=True, options=chosen)
    log: list[str] = [name, repr(dynamic), repr(chosen)]
    label = "equal"
    calls = [make_call(rng) for _ in range(6)]
    for _ in range(14):
        if rng.random() < 0.25:
            log.append(change(rng, block))
        call = rng.choice(calls) if rng.random() < 0.4 else make_call(rng)
        with ExitStack() as stack:
            mode = modes(rng, stack)
            log.append(f"call {shapes(*call)} {mode}")
            state = copy.deepcopy(block.state_dict())
            expected = outcome(program, block, call)
            try:
                got = outcome(compiled, block, call)
            except symshape.SymShapeError as error:
                if isinstance(expected, Exception):
                    label = "equal error"
                    continue
                log.append(f"refused: {error}")
                raise Counterexample(
                    "\n".join([*log, f"eager runs, symshape raises {type(error).__name__}"])
                ) from error
            if isinstance(expected, Exception) or isinstance(got, Exception):
                if not (isinstance(expected, Exception) and isinstance(got, Exception)):
                    names = [
                        repr(each) if isinstance(each, Exception) else "a result"
                        for each in (expected, got)
                    ]
                    raise Counterexample("\n".join([*log, f"expected {names[0]}, got {names[1]}"]))
                label = "equal error"
                continue
            found = differences(expected[0], got[0])
            if expected[1] != got[1]:
                found.append(f"buffer: expected {expected[1]}, got {got[1]}")
            if any(not torch.equal(each, state[key]) for key, each in block.state_dict().items()):
                found.append("a parameter or buffer has changed")
            if found:
                raise Counterexample("\n".join([*log, *found, *map(repr, compiled.entries)]))
    if len(compiled.entries) > chosen.max_entries:
        raise Counterexample(f"{len(compiled.entries)} entries of at most {chosen.max_entries}")
    stats = compiled.stats()
    return label if stats.hits == 0 else "hits, evictions" if stats.evictions else "hits"


def main(argv: Sequence[str] | None = None) -> Outcome:
    torch.set_num_threads(1)
    return run_fuzzer(
        "compile", __doc__, argv, case, count=2_000, smoke=60, must_see=("hits", "hits, evictions")
    )
