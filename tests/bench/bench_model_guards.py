"""What a warm call of a whole model costs beside the model: ours against torch.compile's guards, on
a GPT-2.

The model is transformers' GPT-2 with 12 layers: its real number of modules and parameters, but
narrow.

- *look-up alone*: ours is everything until the program runs (key, memo, the state of all modules);
  theirs is Dynamo's check of its guards, the C++ guard manager called on the frame's locals, which
  is less than what a call costs them.
- *whole call, minus the work*: both run the same thing behind the look-up, a module whose forward
  returns at once but whose guards are those of the model: it reads every parameter's size.

Everything is sampled in turn in one process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

import symshape
from symshape.calls.call_key import read
from tests.bench.report import NotHere, Report, bench_parser
from tests.bench.timing import measure_together


def gpt2(layers: int) -> nn.Module:
    try:
        import transformers
    except ImportError as error:
        raise NotHere("transformers is not installed") from error
    transformers.logging.set_verbosity_error()
    config = transformers.GPT2Config(
        vocab_size=100,
        n_positions=64,
        n_embd=48,
        n_layer=layers,
        n_head=4,
        use_cache=False,
        bos_token_id=0,
        eos_token_id=0,
    )
    torch.manual_seed(0)
    model: nn.Module = transformers.GPT2LMHeadModel(config).eval()
    return model


def their_check(model: nn.Module, ids: torch.Tensor) -> tuple[Callable[[], Any], int]:
    """The guard check of torch.compile's largest graph of the model, and the number of lines of its
    guard tree.
    """
    from torch._dynamo import guards

    made: list[tuple[Any, dict[str, Any]]] = []
    original = guards.CheckFunctionManager.__init__

    def spy(self: Any, code: Any, output_graph: Any, *args: Any, **kwargs: Any) -> None:
        frame = dict(output_graph.local_scope)  # as it was at the call; Dynamo clears its own later
        original(self, code, output_graph, *args, **kwargs)
        made.append((self, frame))

    torch._dynamo.reset()
    guards.CheckFunctionManager.__init__ = spy  # type: ignore[method-assign]
    try:
        torch.compile(model, backend="eager", dynamic=False)(input_ids=ids)
    finally:
        guards.CheckFunctionManager.__init__ = original  # type: ignore[method-assign]
    manager, frame = max(made, key=lambda each: len(str(each[0].guard_manager)))
    check = manager.guard_manager.check
    if not check(frame):
        raise NotHere(str(manager.guard_manager.check_verbose(frame)).replace("\n", " ")[:200])
    return lambda: check(frame), len(str(manager.guard_manager).splitlines())


class Reads(nn.Module):
    """A module that reads the size of every parameter of a model, and computes next to nothing."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = 0
        for module in self.model.modules():
            total += module.training
            for parameter in module._parameters.values():
                total += 0 if parameter is None else parameter.shape[0]
        return x + total


def main(argv: Sequence[str] | None = None) -> Report:
    """Measures both."""
    args = bench_parser(__doc__).parse_args(argv)
    torch.set_num_threads(1)
    report = Report("model_guards")
    model = gpt2(2 if args.smoke else 12)
    ids = torch.zeros(1, 4, dtype=torch.long)
    x = torch.ones(1)
    with torch.no_grad():
        compiled = symshape.compiled_of(symshape.compile(model, options={"plain_calls": False}))
        compiled(input_ids=ids)
        state = compiled._cache.branches[0].state
        reads = Reads(model)
        our_reads = symshape.compile(reads, options={"plain_calls": False})
        torch._dynamo.reset()
        their_reads = torch.compile(reads, backend="eager", dynamic=False)
        our_reads(x), their_reads(x)
        calls: dict[str, Callable[[], Any]] = {
            "ours, state": state.unchanged,
            "ours, look-up": lambda: compiled._cache.find(*read(model, (), {"input_ids": ids})[1:]),
            "ours, whole": lambda: our_reads(x),
            "torch, whole": lambda: their_reads(x),
            "add": lambda: x + 1,
        }
        try:
            calls["torch, guards"], count = their_check(model, ids)
        except (AttributeError, NotHere) as error:
            report.note(f"Dynamo's guard check alone could not be called here: {error}")
            count = 0
        took = measure_together(calls, samples=20 if args.smoke else 300, sample_us=500.0)
    times = {name: timing.median for name, timing in took.items()}
    modules, tensors = len(list(model.modules())), len(list(model.parameters()))
    table = report.table(
        f"warm call of GPT-2 ({modules} modules, {tensors} parameters), µs", "what", "ours", "torch"
    )
    table.row("look-up of the model's call", times["ours, look-up"], times.get("torch, guards"))
    table.row("of it, the state of the modules", times["ours, state"], None)
    add = times["add"]
    table.row(
        "module that reads all sizes, whole call",
        times["ours, whole"] - add,
        times["torch, whole"] - add,
    )
    report.note(
        "the first row compares a look-up of ours (slow path: keywords, tree) with the guard check "
        "alone of torch"
    )
    if count:
        report.note(f"Dynamo's guard tree has {count:,} lines")
        report.goal(
            "look-up, ours / torch's guards",
            times["ours, look-up"] / times["torch, guards"],
            at_most=1.0,
        )
    report.goal(
        "whole call minus the add, ours / torch",
        (times["ours, whole"] - add) / (times["torch, whole"] - add),
        at_most=0.5,
    )
    return report
