"""Other calls for steps: the oracle is the same graph with each step as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import symshape
from symshape.graph import codegen
from symshape.graph.codegen import Run, compile_graph
from symshape.graph.fast_calls import linear
from symshape.graph.program import Program, symbol_positions
from tests.symshape.eager import bits, leaf_seen

R = torch.randn
W, B, APART = R(5, 8), R(5), R(2, 3, 16)


class _Ops(TorchDispatchMode):
    """Notes the operators that run, with the numbers among their arguments (of a slice, its result
    tells).
    """

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        numbers = (
            [each for each in args if isinstance(each, int)] if "slice" not in str(func) else []
        )
        self.seen.append(f"{func} {numbers} {kwargs}")
        return func(*args, **(kwargs or {}))


def _compiled(program: Program) -> tuple[Run, Run]:
    """The graph's function, and the one with each step as it is."""
    positions = symbol_positions(program.slots)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codegen, "fast_calls", lambda *given: {})
        plain = compile_graph(program.graph, positions)
    return compile_graph(program.graph, positions), plain


def _called(run: Run, function: Any) -> int:
    """How often the source of a run calls a function."""
    names = [name for name, each in run.__globals__.items() if each is function]  # type: ignore[attr-defined]
    return sum(run.__symshape_source__.count(f" {name}(") for name in names)  # type: ignore[attr-defined]


def _both(fn: Callable[..., Any], *args: torch.Tensor, function: Any) -> int:
    """Runs a function's graph in both ways; answers how often the quicker one calls
    ``function``.
    """
    with torch.no_grad():
        program = symshape.trace(fn, *args).program
    quick, plain = _compiled(program)
    values = [size for each in args for size in each.shape]
    seen = []
    for grad in (False, True):
        for run in (quick, plain):
            with torch.set_grad_enabled(grad), _Ops() as ops:
                found = run(list(args), values)
            nodes = [str(each.grad_fn) and type(each.grad_fn).__name__ for each in found]
            seen.append(
                ([*map(leaf_seen, found)], [each._is_view() for each in found], nodes, ops.seen)
            )
    assert seen[0] == seen[1]
    assert seen[2] == seen[3]
    assert function is torch.Tensor.view or _called(plain, function) == 0
    return _called(quick, function)


@pytest.mark.parametrize(
    "sizes", [(3, 8), (2, 3, 8), (2, 1, 3, 8), (1, 1, 8), (0, 3, 8), (2, 0, 8)], ids=str
)
@pytest.mark.parametrize("bias", [False, True])
def test_linear_is_one_call(sizes: tuple[int, ...], bias: bool) -> None:
    layer = nn.Linear(8, 5, bias=bias)
    assert _both(lambda x: layer(x.view(*x.shape[:-1], 8)), R(*sizes), function=linear) == 1
    if not bias or len(sizes) < 4:  # torch may add the bias behind
        run = symshape.trace(lambda x: layer(x.view(*x.shape[:-1], 8)), R(*sizes)).program.run
        assert run.__symshape_source__.count(" = op") == 2  # type: ignore[attr-defined]


def test_gradients_are_those_of_the_steps() -> None:
    layer = nn.Linear(8, 5)

    def gradients(run: Run, x: torch.Tensor) -> list[bytes]:
        found = run([x], [*x.shape])[0]
        return [*map(bits, torch.autograd.grad(found.tanh().sum(), [x, *layer.parameters()]))]

    x = R(2, 3, 8, requires_grad=True)
    quick, plain = _compiled(symshape.trace(lambda x: layer(x.view(*x.shape[:-1], 8)), x).program)
    assert _called(quick, linear) == 1
    assert gradients(quick, x) == gradients(plain, x)


def _turned_too(x: torch.Tensor) -> Any:
    turned = W.t()
    return x.mm(turned), turned


def _read_twice(x: torch.Tensor) -> torch.Tensor:
    turned = W.t()
    return x.mm(turned) + turned.sum()


def _of_itself(x: torch.Tensor) -> torch.Tensor:
    turned = x.view(5, 5).t()
    return turned.mm(turned)


def _folded_weight(x: torch.Tensor) -> torch.Tensor:
    folded = x.view(5, 5)
    return torch.addmm(B, folded, folded.t()).view(5, 5, 1)


def _otherwise_folded(x: torch.Tensor) -> torch.Tensor:
    return torch.addmm(B, x.view(10, 8), W.t()).view(2, 5, 5)[:, :3]


def _unknown_rows(x: torch.Tensor) -> torch.Tensor:
    return torch.addmm(B, x.transpose(0, 1).reshape(-1, 8), W.t()).view(2, x.size(0), 5)


def _rows_apart(x: torch.Tensor) -> torch.Tensor:
    return F.linear(APART[..., :8], W) + x


def _of_a_number(x: torch.Tensor) -> torch.Tensor:
    return torch.addmm(B, x.view(10, 8), W.t(), alpha=2).view(5, 2, 5)


def _with_a_bias_of_rows(x: torch.Tensor) -> torch.Tensor:
    return torch.addmm(x, x.view(5, 5), W[:, :5].contiguous().t())


@pytest.mark.parametrize(
    ("fn", "sizes", "views"),
    [
        (_turned_too, (3, 8), None),
        (_read_twice, (3, 8), None),
        (_of_itself, (25,), None),
        (_of_a_number, (5, 2, 8), None),
        (_with_a_bias_of_rows, (5, 5), None),
        (_folded_weight, (25,), 2),
        (_otherwise_folded, (5, 2, 8), 2),
        (_unknown_rows, (5, 2, 8), 1),
        (_rows_apart, (1,), None),
    ],
)
def test_what_is_not_linear_stays(
    fn: Callable[..., Any], sizes: tuple[int, ...], views: int | None
) -> None:
    """Or what is folded in another way: its views then, around a call of two dimensions."""
    assert _both(fn, R(*sizes), function=linear) == (views is not None)
    if views is not None:
        assert _both(fn, R(*sizes), function=torch.Tensor.view) == views


def test_a_slice_of_a_known_length_is_narrow() -> None:
    assert _both(lambda x: (W[:, 2:5] + x, W[1:], W[:, -3:] * x), R(1), function=torch.narrow) >= 2
    assert (
        _both(
            lambda x: (x[:, :0], x[:, 9:], x[:-1], W[::2] * x.sum()), R(3, 5), function=torch.narrow
        )
        == 0
    )


def test_a_cast_to_another_dtype_is_to() -> None:
    assert (
        _both(lambda x: (x.double(), x.to(torch.int64).float()), R(3), function=torch.Tensor.to)
        == 3
    )
    assert _both(lambda x: x.to(torch.float32, copy=True), R(3), function=torch.Tensor.to) == 0


def _looped(fn: Callable[..., Any], *args: torch.Tensor, function: Any) -> int:
    with torch.no_grad():
        run = symshape.trace(fn, *args).program.run
    assert "for lap" in run.__symshape_source__  # type: ignore[attr-defined]
    return _both(fn, *args, function=function)


def test_a_result_takes_the_name_of_what_it_is_made_of() -> None:
    """In a loop each lap's result has the name of the one before."""
    layers = [nn.Linear(8, 8, bias=False) for _ in range(9)]

    def fn(x: torch.Tensor) -> torch.Tensor:
        x = x.view(*x.shape[:-1], 8)
        total = x.sin()
        for layer in layers:
            total = (total + x.cos()).tanh() * 2 - 1
            x = layer(x)
        return total + x

    assert _looped(fn, R(2, 3, 8), function=linear) == 3  # the first, those of the loop, the last


def test_laps_whose_slices_are_of_other_lengths_stay_slices() -> None:
    def fn(x: torch.Tensor, tables: list[torch.Tensor]) -> torch.Tensor:
        for table in tables:
            x = (x + table[:, 4:].sum()).sin().cos().tanh().exp().neg() * 2
        return x

    alike, others = [R(2, 8) for _ in range(9)], [R(2, 8 + number) for number in range(9)]
    assert _looped(lambda x: fn(x, alike), R(3), function=torch.narrow) == 3
    assert _looped(lambda x: fn(x, others), R(3), function=torch.narrow) == 2


def test_laps_that_cast_to_what_is_there_copy() -> None:
    tables = [R(2, dtype=torch.float64 if number == 4 else torch.float32) for number in range(9)]

    def fn(x: torch.Tensor) -> torch.Tensor:
        for table in tables:
            x = (
                x + torch.ops.aten._to_copy(table, dtype=torch.float64).sum()
            ).sin().cos().tanh().exp().neg() * 2
        return x

    assert _looped(fn, R(3, dtype=torch.float64), function=torch.Tensor.to) == 2


def test_the_last_of_the_steps_is_said_to_have_failed() -> None:
    program = symshape.trace(lambda x: F.linear(x.view(2, 3, 8), W), R(2, 3, 8)).program
    quick, plain = _compiled(program)
    for run, last in ((quick, len(program.graph.steps) - 1), (plain, len(program.graph.steps) - 2)):
        with pytest.raises(RuntimeError) as raised:
            run([R(2, 3, 8).double()], [2, 3, 8])
        assert run.__symshape_steps__.failed(raised.value) == last  # type: ignore[attr-defined]
