"""Loops over layers in generated source; the oracle is the source of the same graph without one."""

from __future__ import annotations

import random
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import symshape
from symshape.graph import codegen
from symshape.graph.codegen import Run, compile_graph
from symshape.graph.program import symbol_positions
from tests.symshape.eager import agree, bits

Tensors = list[torch.Tensor]


class _Ops(TorchDispatchMode):
    """Notes the operators that run, and how many of the tensors' memories that they made are still
    there.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, int]] = []
        self._made: list[weakref.ref[Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        numbers = [each for each in args if isinstance(each, (int, float))]
        said = f"{func} {numbers} {torch.is_grad_enabled()}"
        self.seen.append((said, sum(each() is not None for each in self._made)))
        result = func(*args, **(kwargs or {}))
        for each in result if isinstance(result, (tuple, list)) else (result,):
            self._made.append(weakref.ref(each.untyped_storage()))
        return result


def _run(run: Run, leaves: Sequence[Any], values: Sequence[int]) -> tuple[Any, Any, Any]:
    """What a run returns (or the error that it raises and the step that failed), and what it
    did.
    """
    torch.manual_seed(3)
    with torch.no_grad(), _Ops() as ops:
        try:
            return [*map(bits, run(leaves, values))], None, ops.seen
        except (IndexError, RuntimeError) as error:
            steps = run.__symshape_steps__  # type: ignore[attr-defined]
            return type(error), steps.failed(error), ops.seen


def _both(fn: Callable[..., Any], *args: torch.Tensor) -> int:
    """Runs a function's graph from both sources; answers how many laps the loop has."""
    with torch.no_grad():
        program = symshape.trace(fn, *args).program
    positions = symbol_positions(program.slots)
    looped = compile_graph(program.graph, positions)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codegen, "rolled_loop", lambda *given: None)
        straight = compile_graph(program.graph, positions)
    sizes = [size for each in args for size in each.shape]
    assert _run(looped, list(args), sizes) == _run(straight, list(args), sizes)
    laps = looped.__symshape_steps__.laps  # type: ignore[attr-defined]
    assert ("for lap" in looped.__symshape_source__) is (laps is not None)  # type: ignore[attr-defined]
    return 0 if laps is None else laps.count


class _Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.into, self.out = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        q, k = self.into(self.norm(x)).chunk(2, -1)
        x = x + (q * k).masked_fill(mask, 0.0)
        return x + self.out(torch.cat([x, x.tanh()], -1))


class _Layers(nn.Module):
    def __init__(self, number: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_Layer() for _ in range(number))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = x > 1
        for layer in self.layers:
            x = layer(x, mask)
        return x.sum(-1)


def test_layers_are_one_loop() -> None:
    model = _Layers(12).eval()
    assert _both(model, torch.randn(3, 5, 8)) == 10
    with torch.no_grad():
        agree(model, *[(torch.randn(size),) for size in ((3, 5, 8), (2, 3, 8), (7, 4, 8))])


def test_a_loop_is_shorter() -> None:
    def lines(number: int) -> int:
        with torch.no_grad():
            run = symshape.trace(_Layers(number), torch.randn(3, 5, 8)).program.run
        return len(run.__symshape_source__.splitlines())

    assert lines(24) == lines(6) < 2 * lines(2)


@pytest.mark.parametrize("failing", range(9))
def test_the_step_that_failed_is_known(failing: int) -> None:
    tables = [torch.randn(4, 3) for _ in range(9)]
    indices = [torch.tensor([0, 1, 2]) for _ in range(9)]

    def fn(x: torch.Tensor) -> torch.Tensor:
        for table, index in zip(tables, indices, strict=True):
            x = ((x + table[index]).relu() * 2.0 - x.sum(0)).tanh() @ table.t()
            x = x[:, :3].contiguous()
        return x

    indices[failing].fill_(9)
    with torch.no_grad():
        program = symshape.trace(fn, torch.randn(3, 3)).program
    steps = [i for i, node in enumerate(program.graph.nodes) if "index.Tensor" in str(node.op)]
    assert _both(fn, torch.randn(3, 3)) >= 5
    error, failed, _ = _run(program.run, [torch.randn(3, 3)], [3])
    assert (error, failed) == (IndexError, steps[failing])


_WEIGHTS = [(torch.randn(4), torch.randn(4)) for _ in range(8)]


def _skipping(x: torch.Tensor) -> torch.Tensor:
    before = x
    for _ in range(8):  # a value of the layer before the last one
        x, before = ((x + 1).relu() * 2 - before).mul(5).sin().exp().cos(), x
    return x


def _keeping(x: torch.Tensor) -> Tensors:
    found = []
    for _ in range(8):
        x = ((x + 1).relu() * 2 - x).mul(5).sin().exp().cos()
        found.append(x)
    return found


def _kept_of_the_last(x: torch.Tensor, layers: int = 9, back: int = 1) -> torch.Tensor:
    kept = x
    for i in range(layers):
        y = (x + 1).relu() * 2
        x = (y - x).mul(5).sin().exp().cos()
        kept = y if i == layers - back else kept
    return x + kept


def _kept_of_the_last_but_one(x: torch.Tensor) -> torch.Tensor:
    return _kept_of_the_last(x, back=2)


def _kept_of_an_earlier_one(x: torch.Tensor) -> torch.Tensor:
    return _kept_of_the_last(x, back=3)


def _collected(x: torch.Tensor) -> torch.Tensor:
    return torch.stack(_keeping(x))


def _other_number(x: torch.Tensor) -> torch.Tensor:
    for i in range(8):
        x = ((x + (2 if i == 4 else 1)).relu() * 2 - x).mul(5).sin().exp().cos()
    return x


def _other_weight(x: torch.Tensor) -> torch.Tensor:
    for i, (a, b) in enumerate(_WEIGHTS):
        x = ((x + a).relu() * b - (b if i == 4 else a)).mul(5).sin().exp().cos()
    return x


def _zeros(x: torch.Tensor) -> torch.Tensor:
    for i in range(8):
        x = ((x / (-0.0 if i == 4 else 0.0)).relu() * 2 - x).mul(5).sin().exp().cos()
    return x


def _read_in_the_middle(x: torch.Tensor) -> torch.Tensor:
    y, z = x.exp(), x.cos()
    for i in range(9):
        x = ((x + 1).relu() * 2 - (y if i < 5 else z)).mul(5).sin().exp().cos()
    return x + y + z


def _let_go_in_the_middle(x: torch.Tensor) -> torch.Tensor:
    y, z = x.exp(), x.cos()
    for i in range(9):
        x = ((x + 1).relu() * 2 - (y if i < 5 else z)).mul(5).sin().exp().cos()
    return x


def _other_operand(x: torch.Tensor) -> torch.Tensor:
    for i in range(9):
        y, z = (x + 1).mul(5).sin(), x.exp().cos()
        x = ((z - y) if i == 4 else (y - z)).mul(3).sin()
    return x


def _gradients(x: torch.Tensor) -> torch.Tensor:
    for _ in range(8):
        with torch.enable_grad():
            x = ((x + 1).relu() * 2 - x).tanh()
        x = x.exp().sin().cos() + 1
    return x


def _gradients_in_one(x: torch.Tensor) -> torch.Tensor:
    for i in range(8):
        with torch.set_grad_enabled(i == 4):
            x = ((x + 1).relu() * 2 - x).mul(5).sin().exp().cos()
    return x


def _same_place(x: torch.Tensor) -> torch.Tensor:
    y = x
    for _ in range(8):  # what is read last where the next one is made
        y = (((x + 1).relu() * 2 - x).mul(5).sin().exp().cos() + 1) * y
        x = x - 1
    return x + y


def _in_place(x: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    for _ in range(8):
        x.add_(1).mul_(2)
        x = ((x + 1).relu() * 2 - x).mul(5).exp().sin_().cos()
    return x


def _random(x: torch.Tensor) -> torch.Tensor:
    for _ in range(8):
        x = ((x + 1).relu() * 2 - torch.rand_like(x)).mul(5).sin().exp().cos()
    return x


@pytest.mark.parametrize(
    ("fn", "loops"),
    [
        *(
            (each, False)
            for each in (
                _skipping,
                _keeping,
                _collected,
                _other_number,
                _other_operand,
                _other_weight,
            )
        ),
        *(
            (each, False)
            for each in (_zeros, _read_in_the_middle, _let_go_in_the_middle, _gradients_in_one)
        ),
        *(
            (each, False)
            for each in (_gradients, _kept_of_the_last_but_one, _kept_of_an_earlier_one)
        ),
        *((each, True) for each in (_same_place, _in_place, _random, _kept_of_the_last)),
    ],
)
def test_what_a_loop_may_run(fn: Callable[..., Any], loops: bool) -> None:
    assert bool(_both(fn, torch.randn(3, 4))) is loops


_STEPS: list[Callable[[Tensors, int, int], torch.Tensor]] = [
    lambda held, a, b: held[a] + held[b],
    lambda held, a, b: held[a] * 2.0,
    lambda held, a, b: (held[a] * 5.0).sin() - held[b],
    lambda held, a, b: held[a].t().contiguous().t(),
    lambda held, a, b: torch.cat(held[a].chunk(2, 0)),
    lambda held, a, b: held[a].reshape(-1).view(4, 4),
    lambda held, a, b: (held[a] @ held[b]).sin(),
    lambda held, a, b: torch.cat([held[a][2:], held[b][:2]]),
]


def _drawn(seed: int) -> Callable[..., Any]:
    """A program of layers that are alike, but for what is drawn to differ in one of them."""
    draw = random.Random(seed)
    number, held_at_once = draw.randint(5, 9), draw.randint(1, 3)
    steps = [
        (draw.randrange(len(_STEPS)), *[draw.randrange(held_at_once) for _ in range(3)])
        for _ in range(draw.randint(5, 12))
    ]
    weights = [torch.randn(4, 4) for _ in range(number)]
    odd, oddity = (
        draw.randrange(number),
        draw.choice(["none", "none", "keep", "step", "weight", "order", "late"]),
    )
    other = steps[0][0], *[draw.randrange(held_at_once) for _ in range(3)]

    def fn(x: torch.Tensor) -> Any:
        held = [x + i for i in range(held_at_once)]
        early = x.exp()
        kept = []
        for layer in range(number):
            is_odd = layer == odd
            for i, (step, a, b, to) in enumerate(steps):
                if is_odd and i == 0 and oddity in ("step", "order"):
                    step, a, b, to = (
                        other if oddity == "order" else (len(_STEPS) - 1 - step, a, b, to)
                    )
                held[to] = _STEPS[step](held, a, b)
            held[0] = held[0] + weights[0 if is_odd and oddity == "weight" else layer]
            if is_odd and oddity == "keep":
                kept.append(held[-1])
            if oddity == "late" and layer <= odd:
                held[-1] = held[-1] + early
        return [*kept, *held]

    return fn


@pytest.mark.parametrize("seed", range(40))
def test_drawn_layers(seed: int) -> None:
    _both(_drawn(seed), torch.randn(4, 4))


def test_many_of_those_drawn_loop() -> None:
    assert sum(_both(_drawn(seed), torch.randn(4, 4)) > 0 for seed in range(40)) >= 10
