"""Random programs that record gradients, stop doing so, detach, write in place, run backward inside
and keep tensors.

The oracle is the same program in eager mode, with weights and a module of its own that are the
same.  After each of six calls at three sizes are compared: results and what is kept outside
(values, whether they ask for gradients, whether they are leaves), the weights and their gradients,
and, where a result asks for any, the gradients of a backward through it.  What nobody sees need not
be recorded; whatever can be seen has to be.
"""

from __future__ import annotations

import random
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils import _pytree as pytree

import symshape
from symshape.graph.autograd_history import RecordedHistory
from tests.fuzz.harness import Counterexample, Outcome, fuzz, fuzz_parser

COUNTS: Counter[str] = Counter()
_MADE = (
    "torch.tanh({a})",
    "{a} * 2",
    "{a} + {b}",
    "{a} * {b}",
    "{a} @ w",
    "torch.nn.functional.linear({a}, w, c)",
    "{a} + c",
    "{a}.detach()",
    "{a}.data * 1",
    "{a}.detach() * {b}",
    "{a}.clone()",
    "{a}.transpose(0, 1).transpose(0, 1)",
    "{a}.view({a}.shape)",
    "torch.where({a} > 0, {a}, {b})",
    "{a}.argmax(1, keepdim=True) + x",
    "({a} * 10).to(torch.int64).to({a}.dtype)",
    "torch.zeros_like({a}) + k",
    "{a}.softmax(1)",
    "torch.cat(({a}, {b}))[: x.shape[0]]",
    "k * {a}.mean()",
)
_LINES = (
    "{v} = {a}.clone().add_({b})",
    "{v} = {a} * 1; {v}.mul_({b})",
    "{v} = {a} * 1; {v}[:, 1:].relu_()",
    "{v} = torch.zeros_like(x); {v}[:, :2] = {a}[:, :2]",
    "{v} = {a} * 1; kept = {v}.detach(); kept.mul_(2)",
    "with torch.no_grad(): {v} = {a} * {b}",
    "with torch.no_grad(): {v} = ({a} * 3).view({a}.shape)",
    "with torch.no_grad():\n        with torch.enable_grad(): {v} = {a} * w.sum()",
    "{v} = {a} * 2 if {a}.requires_grad else {a} + 1",
    (
        "{v} = {a} * torch.autograd.grad({a}.sin().sum(), w, retain_graph=True)[0].sum() if "
        "{a}.requires_grad else {a}"
    ),
    "{v} = {a}\n    if {a}.requires_grad: {a}.sin().sum().backward(retain_graph=True)",
    "{v} = {a} * 1\n    if {v}.requires_grad: {v}.sin().sum().backward()",
    "{v} = ({a} * {b}).sum()\n    if {v}.requires_grad: {v}.backward()",
    "with torch.no_grad(): {v} = {a}.view({a}.shape)",
    "with torch.no_grad(): kept = w.t()\n    {v} = {a} @ kept",
    "with torch.no_grad(): kept = {a}[:, 1:]\n    {v} = {a} + kept.sum()",
    "{v} = {a}; module.state = {b} * 1",
    "{v} = {a} + module.buffer; module.buffer.mul_(0.5).add_({b}.detach().mean())",
    "{v} = {a}\n    with torch.no_grad(): w.mul_(0.9).add_({a}.mean())",
)
_ENDS = (
    "{a}.detach()",
    "{a}.argmax(1)",
    "{a}",
    "{a}.sum()",
    "{a}[1:]",
    "{a}.mean().detach()",
    "w",
    "w.t()",
)


def _program(rng: random.Random) -> str:
    names = ["x", "y", "k"]
    lines: list[str] = []
    for number in range(rng.randint(2, 9)):
        a, b, v = rng.choice(names[-3:]), rng.choice(names), f"v{number}"
        line = f"{v} = {rng.choice(_MADE)}" if rng.random() < 0.65 else rng.choice(_LINES)
        lines.append(line.format(a=a, b=b, v=v))
        names.append(v)
    detached = rng.random() < 0.5
    ends = _ENDS[:2] if detached else _ENDS
    results = ", ".join(
        rng.choice(ends).format(a=rng.choice(names[-4:])) for _ in range(rng.randint(1, 3))
    )
    body = "\n    ".join(lines)
    return f"def program(x, y):\n    {body}\n    return ({results},)\n"


def _world(source: str) -> tuple[Callable[..., Any], dict[str, Any]]:
    """The program with weights, a constant and a module of its own."""
    generator = torch.Generator().manual_seed(1)
    drawn = [
        torch.randn(shape, generator=generator, dtype=torch.float64)
        for shape in ((4, 4), (4,), (1, 4))
    ]
    world: dict[str, Any] = {
        "torch": torch,
        "w": drawn[0].requires_grad_(),
        "c": drawn[1].requires_grad_(),
        "k": drawn[2],
        "module": SimpleNamespace(state=torch.zeros(1), buffer=torch.ones(1, dtype=torch.float64)),
    }
    exec(source, world)  # what this very module wrote
    return world["program"], world


def _seen(run: Callable[..., Any], world: dict[str, Any], arguments: Sequence[torch.Tensor]) -> Any:
    """All that a call leaves to be seen; the error where it raises one."""
    for each in (world["w"], world["c"]):
        each.grad = None
    try:
        results = run(*arguments)
        leaves = [each for each in pytree.tree_leaves(results) if isinstance(each, torch.Tensor)]
        found = [*leaves, world["module"].state, world["module"].buffer, world["w"], world["c"]]
        kinds = [(each.requires_grad, each.is_leaf) for each in found]
        values = [each.detach().clone() for each in found]
        gradients = [each.grad for each in (world["w"], world["c"], *arguments)]
        values += [torch.zeros(()) if each is None else each.clone() for each in gradients]
        asked = [each for each in found[:-3] if each.requires_grad and not each.is_leaf]
        if asked:
            torch.autograd.backward([each.sin().sum() for each in asked])
            gradients = [each.grad for each in (world["w"], world["c"], *arguments)]
            values += [torch.zeros(()) if each is None else each.clone() for each in gradients]
    except Exception as error:
        return error
    return kinds, values


def check(source: str, asks: bool, sizes: Sequence[int], runner: str) -> tuple[str, Any]:
    """Compiles a program and holds its calls to eager: a label, and what was compiled.

    Raises:
        AssertionError: they differ.
    """
    (ours, mine), (theirs, its) = _world(source), _world(source)
    compiled: Any = symshape.compile(ours, runner=runner)
    label = "equal"
    for seed, size in enumerate(sizes):
        generator = torch.Generator().manual_seed(seed)
        given = [torch.randn(size, 4, generator=generator, dtype=torch.float64) for _ in range(2)]
        pairs = [[each.clone().requires_grad_(asks) for each in given] for _ in range(2)]
        found, expected = _seen(compiled, mine, pairs[0]), _seen(theirs, its, pairs[1])
        if isinstance(expected, Exception) or isinstance(found, Exception):
            if not (isinstance(expected, Exception) and isinstance(found, Exception)):
                raise AssertionError(f"call {seed}: {found!r}, not {expected!r}")
            return "refused by eager", compiled
        if found[0] != expected[0]:
            raise AssertionError(
                f"call {seed}: asks for gradients, is a leaf: {found[0]}, not {expected[0]}"
            )
        for number, (one, other) in enumerate(zip(found[1], expected[1], strict=True)):
            torch.testing.assert_close(
                one, other, msg=lambda text, at=(seed, number): f"call, value {at}: {text}"
            )  # type: ignore[misc]
    return label, compiled


def _is_silent(compiled: Any) -> bool:
    for entry in compiled.entries:
        asking = [each.value for each in entry.program.graph.lifted if each.tensor.requires_grad]
        if asking and not RecordedHistory(entry.program.graph.steps, asking).silent:
            return False
    return bool(compiled.entries)


def case(rng: random.Random) -> str:
    """One program, compiled and called six times."""
    source, asks = _program(rng), rng.random() < 0.25
    sizes = [rng.randint(2, 6) for _ in range(3)] * 2
    runner = rng.choice(("eager", "eager", "padded"))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            label, compiled = check(source, asks, sizes, runner)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        again = (
            f"from tests.fuzz.fuzz_histories import check\nprint(check({source!r}, {asks}, "
            f"{sizes}, {runner!r}))"
        )
        raise Counterexample(f"{again}\n# {source}\n# {text}") from error
    stats = compiled.stats()
    COUNTS["calls"] += stats.calls
    COUNTS["calls that ran as they are"] += stats.fallbacks
    if label != "equal":
        return label
    return (
        "records nothing"
        if _is_silent(compiled)
        else "records"
        if compiled.entries
        else "ran as it is"
    )


def main(argv: Sequence[str] | None = None) -> Outcome:
    """Runs the fuzzer; each case makes six calls."""
    torch.set_num_threads(1)
    COUNTS.clear()
    args = fuzz_parser(__doc__, count=600, smoke=40).parse_args(argv)
    return fuzz("histories", case, args, must_see=("records nothing", "records"), counts=COUNTS)
