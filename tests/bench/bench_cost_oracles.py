"""Formulas against what runs, on ten models of transformers, a ResNet, a U-Net and an LSTM: FLOPs
and memory.

Each is traced once at a small size, forward and a step of training, and its formulas are evaluated
at five others. *FLOPs*: those of the ops that ``torch.utils.flop_counter`` counts, against its
count, forward and backward; how much all ops are of that.  *peak*: least and greatest ratio of the
formula to the bytes of live tensors, by a dispatch mode. *graph*: the program as symshape runs it;
*eager*: the module as it is, on the paths that it takes when it is compiled (*compiled*), and on
those of plain eager, where transformers makes other masks.  *training*: a whole step of plain eager
with AdamW or SGD with momentum, its second one, when the optimizer's state is there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

import symshape
from symshape.cost.cost import Cost
from symshape.cost.live_bytes import LiveBytes
from symshape.tracing.traced_modes import compiling
from tests.bench.report import NotHere, Report, bench_parser
from tests.models import Model
from tests.symshape.cost.programs import SIZES, programs, sizes_of
from tests.symshape.cost.test_oracles import COUNTED, CPU_ATTENTION
from tests.symshape.frontends.test_training import measured
from tests.training import loss_of

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "adamw": torch.optim.AdamW,
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
}
Ratios = list[float]


def _counted(cost: Cost) -> Cost:
    return cost.only(lambda each: each.node.op.overloadpacket in COUNTED)


def _flops(
    cost: Cost, traced: symshape.Traced, calls: Sequence[dict[str, torch.Tensor]], run: Any
) -> tuple[int, float]:
    """At how many sizes the counts are equal, and all operations over those that are counted."""
    equal, counted = 0, _counted(cost)
    for call in calls:
        with FlopCounterMode(display=False, custom_mapping=CPU_ATTENTION) as theirs:
            run(call)
        equal += counted.at(**sizes_of(traced, call)).flops == theirs.get_total_flops() > 0
    at = sizes_of(traced, calls[-1])
    return equal, cost.at(**at).flops / counted.at(**at).flops


def _live(
    held: Sequence[torch.Tensor], run: Callable[[], Any], paths: Any = contextlib.nullcontext
) -> int:
    with paths(), LiveBytes(held) as seen:
        run()
    return seen.peak


def _range(ratios: Ratios) -> str:
    return f"{min(ratios):.3f}-{max(ratios):.3f}"


def _worst(ratios: Ratios) -> float:
    return max(max(each, 1 / each) for each in ratios)


def _forward(
    model: Model, module: torch.nn.Module, calls: Sequence[Any]
) -> tuple[list[Any], list[Ratios], int]:
    with torch.no_grad():
        traced = symshape.trace(module, **model.call(3, 12))
        equal, more = _flops(traced.cost(), traced, calls, lambda call: module(**call))
        graph, eager = traced.peak_memory(), traced.peak_memory(schedule="eager")
        found: list[Ratios] = [[], [], []]
        for call in calls:
            at, held = sizes_of(traced, call), [*call.values(), *traced.program.lifted_tensors]
            run = lambda call=call: module(**call)  # noqa: E731
            found[0].append(graph.at(**at).total / _live(held, lambda call=call: traced(**call)))  # type: ignore[misc]
            found[1].append(eager.at(**at).total / _live(held, run, compiling))
            found[2].append(eager.at(**at).total / _live(held, run))
    return [f"{equal}/{len(calls)}", more, *map(_range, found)], found, equal


def _training(
    model: Model, module: torch.nn.Module, calls: Sequence[Any]
) -> tuple[list[Any], list[Ratios], int]:
    traced = symshape.trace_training(module, loss=loss_of, **model.call(3, 12))

    trained = [each for each in module.parameters() if each.requires_grad]

    def step(call: dict[str, torch.Tensor]) -> None:
        torch.autograd.grad(loss_of(module(**call)), trained, allow_unused=True)

    equal, more = _flops(traced.cost(), traced, calls, step)
    found: list[Ratios] = []
    for make in OPTIMIZERS.values():
        optimizer = make(module.parameters())
        peak = symshape.TracedTraining(traced, optimizer, False).peak_memory()
        measured(module, calls[0], optimizer)
        ratios = []
        for call in calls:
            module.zero_grad()
            ratios.append(
                peak.at(**sizes_of(traced, call)).total / measured(module, call, optimizer)
            )
        found.append(ratios)
        module.zero_grad()
    return [f"{equal}/{len(calls)}", more, *map(_range, found)], found, equal


def main(argv: Sequence[str] | None = None) -> Report:
    """Runs the benchmark."""
    parser = bench_parser(__doc__)
    parser.add_argument("--models", default="", help="names with commas between (default: all)")
    args = parser.parse_args(argv)
    if args.device != "cpu":
        raise NotHere("this benchmark is for CPU; memory_device compares on a device")
    torch.manual_seed(args.seed)
    report = Report("cost_oracles", device=args.device)
    columns = (
        "model",
        "FLOPs equal",
        "all / counted",
        "peak, graph",
        "peak, compiled",
        "peak, eager",
    )
    forward = report.table(f"forward, {len(SIZES)} sizes", *columns)
    columns = ("model", "FLOPs equal", "all / counted", *(f"peak, {name}" for name in OPTIMIZERS))
    training = report.table(f"a step of training, {len(SIZES)} sizes", *columns)
    known = {name: model for name, model in programs().items() if "mask" not in name}
    wanted = [name for name in known if not args.models or name in args.models.split(",")]
    unequal = 0
    ratios: dict[str, Ratios] = {"forward": [], "eager": [], "training": []}
    for name in wanted[-1:] if args.smoke else wanted:
        model = known[name]
        module = model.build()
        calls = [model.call(batch, size) for batch, size in (SIZES[:2] if args.smoke else SIZES)]
        cells, found, equal = _forward(model, module, calls)
        forward.row(name, *cells)
        ratios["forward"] += [*found[0], *found[1]]
        ratios["eager"] += found[2]
        cells, found, also_equal = _training(model, module, calls)
        training.row(name, *cells)
        ratios["training"] += [each for part in found for each in part]
        unequal += 2 * len(calls) - equal - also_equal
    report.goal("sizes at which FLOPs differ", float(unequal), at_most=0)
    report.goal("worst ratio of the forward peak", _worst(ratios["forward"]), at_most=1.05)
    report.goal(
        "worst ratio of the forward peak, plain eager", _worst(ratios["eager"]), at_most=1.05
    )
    report.goal("worst ratio of training's peak", _worst(ratios["training"]), at_most=1.1)
    return report


if __name__ == "__main__":
    main()
