"""The texts of the golden files: the same on every machine (folders, lines of files that change,
and times masked).
"""

from __future__ import annotations

import difflib
import io
import re
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import attrs
import torch

import guards
import symshape
from guards import Guard, GuardSet, Origin, Size, Tree, parse
from symshape import Dim
from symshape.store.ranks import Ranks
from tests.discovery import REPOSITORY
from tests.golden.messages import messages

HERE = Path(__file__).resolve().parent
MODELS = {
    "gpt2": "gpt2, mask",
    "llama": "llama, mask",
    "bert": "bert",
    "t5": "t5",
    "resnet": "resnet",
}


def path_of(name: str) -> Path:
    """Where a text is kept."""
    return HERE / f"{name}.txt"


def difference(name: str, text: str) -> str:
    """What is kept against what was made, line by line; empty where they agree."""
    path = path_of(name)
    kept = path.read_text(encoding="utf-8") if path.exists() else ""
    lines = difflib.unified_diff(
        kept.splitlines(), text.splitlines(), f"{name}, kept", f"{name}, now", lineterm=""
    )
    return "\n".join(lines)


def masked(text: str) -> str:
    """Without what another machine or release would write differently: folders, and lines of files
    that are edited.
    """
    text = text.replace(str(REPOSITORY), "HERE")
    text = re.sub(r"[^\s\"'`(]*/site-packages/", "", text)
    return re.sub(r"\b(?!model\.py)(\w+\.py):\d+", r"\1:N", text)


# -- guards of models ------------------------------------------------------------------------------


def _model(name: str) -> str:
    from symshape.exploring.tables import guards_table, inputs_table, outputs_table, symbols_table
    from tests.models import MODELS as ALL

    model = next(each for each in ALL if each.name == MODELS[name])
    with torch.no_grad():
        traced = symshape.trace(model.build(), **model.call(2, 8))
    parts = [f"{model.name}: a call of batch 2, size 8 ({model.sizes})"]
    for make in (symbols_table, inputs_table, guards_table, outputs_table):
        table = make(traced.program)
        parts += ["", table.title]
        parts += [
            "    " + " | ".join(cell.replace("\n", " / ") for cell in row if cell)
            for row in table.rows
        ]
    return masked("\n".join(parts) + "\n")


# -- errors ----------------------------------------------------------------------------------------


def halve(x: torch.Tensor, parts: int = 2) -> torch.Tensor:
    return x.view(x.size(0) // parts, parts)


def to_numpy(x: torch.Tensor) -> object:
    return x.numpy().sum()


def chosen(x: torch.Tensor) -> torch.Tensor:
    found = x.nonzero()
    return found if found.size(0) > 4 else found + 1


def asserted(x: torch.Tensor) -> torch.Tensor:
    found = x.nonzero()
    torch._check(found.size(0) >= 2, lambda: "at least two must be set")
    return found * 2


def fixed(x: torch.Tensor) -> torch.Tensor:
    return x + torch.ones(8)


def larger(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.size(0) > 4 else x


def _wrong_ops() -> dict[str, Callable[[], object]]:
    """The classes of meta_fns, each by a call that means it."""
    import meta_fns

    aten = torch.ops.aten

    def spec(*sizes: int, dtype: torch.dtype = torch.float32) -> meta_fns.TensorSpec:
        return meta_fns.TensorSpec.contiguous(sizes, dtype)

    return {
        "meta_fns.ShapeError": lambda: meta_fns.infer(aten.mm.default, (spec(2, 3), spec(4, 5))),
        "meta_fns.DtypeError": lambda: meta_fns.infer(
            aten.mm.default, (spec(2, 3), spec(3, 5, dtype=torch.float64))
        ),
        "meta_fns.UnsupportedOp": lambda: meta_fns.infer(
            aten._nested_tensor_size.default, (spec(2),)
        ),
        "meta_fns.DataDependentOutput": lambda: meta_fns.infer(aten.nonzero.default, (spec(2, 3),)),
    }


def _wrong_entry() -> None:
    compiled = symshape.compile(larger, options=symshape.Options(verify=1))
    compiled(torch.ones(8))
    compiled.entries[0].run = lambda leaves, values: [leaves[0] * 3]  # a runner gone wrong
    compiled(torch.ones(8))


def _missed() -> None:
    with tempfile.TemporaryDirectory() as folder:
        symshape.compile(larger, store=folder, options=symshape.Options(on_miss="error"))(
            torch.ones(8)
        )


def _fallen_back() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", symshape.FallbackWarning)
        symshape.compile(chosen)(torch.ones(8))


def _defect() -> None:
    from unittest.mock import patch

    from symshape.tracing import tracer

    def no_plan(*args: object) -> None:
        return None

    with patch.object(tracer, "plan_of", no_plan):
        symshape.trace(halve, torch.ones(8))


def _undecided() -> bool:
    n = guards.symbol("n")
    with guards.assuming("n > 2"):
        return bool(n > 5)


def _untested_torch() -> None:
    from symshape.torch_internals.private import warn_of_version

    with warnings.catch_warnings():
        warnings.simplefilter("error", symshape.UntestedTorchWarning)
        warn_of_version("9.9.0")


FAILING: dict[str, Callable[[], object]] = {
    "guards.ParseError": lambda: guards.parse("s0 + import"),
    "guards.Contradiction": lambda: guards.prove("s0 > 1", assume=["s0 < s1", "s1 < s0"]),
    "guards.RangeError": lambda: guards.prove("s0 > 1", ranges={"s0": (5, 2)}),
    "guards.CannotSolve": lambda: guards.solve("s0*s0*s0 + s0*s1 == 7*s2 + s0 % s1", "s0"),
    "guards.FormatError": lambda: guards.from_json('{"version": 99}'),
    "guards.Undecided": _undecided,
    "guards.ArgumentError": lambda: guards.prove("s0 > 1", ranges=[("s0", 1)]),  # type: ignore[arg-type]
    "guards.Missing": lambda: guards.GuardSet("s0 > s1").holds({"s0": 3}),
    **_wrong_ops(),
    "symshape.InputError": lambda: symshape.trace(halve, torch.ones(8), part=3),
    "symshape.DimError": lambda: symshape.trace(halve, torch.ones(8), dynamic={"y": {0: Dim("n")}}),
    "symshape.UnsupportedError": lambda: symshape.trace(to_numpy, torch.ones(8)),
    "symshape.InternalError": _defect,
    "symshape.MissError": _missed,
    "symshape.RankError": lambda: symshape.compile(larger, fullgraph=True, store=Ranks())(
        torch.ones(8)
    ),
    "symshape.ProgramError": lambda: symshape.trace(halve, torch.ones(9)),
    "symshape.ConstraintViolation": lambda: symshape.trace(
        fixed, torch.ones(8), dynamic={"x": {0: Dim("n")}}
    ),
    "symshape.DataDependentError": lambda: symshape.trace(chosen, torch.ones(8)),
    "symshape.GuardViolation": lambda: symshape.trace(larger, torch.ones(8))(torch.ones(3)),
    "symshape.RuntimeAssertionError": lambda: symshape.trace(asserted, torch.ones(8))(
        torch.zeros(8)
    ),
    "symshape.VerificationError": _wrong_entry,
    "symshape.FallbackWarning": _fallen_back,
    "symshape.UntestedTorchWarning": _untested_torch,
    "symshape.RunnerError": lambda: symshape.compile(larger, runner="fast"),
}


def _errors() -> str:
    parts = []
    for name, run in FAILING.items():
        try:
            run()
        except Exception as error:
            found = f"{type(error).__module__.partition('.')[0]}.{type(error).__name__}"
            said = "\n".join([str(error), *getattr(error, "__notes__", ())])
        else:
            found, said = "nothing", ""
        assert found == name, f"{name} is expected, not {found}: {said}"
        parts.append(
            f"{name}\n"
            + "".join(f"    {line}\n".replace("    \n", "\n") for line in said.splitlines())
        )
    return masked("\n".join(parts))


# -- explanations ----------------------------------------------------------------------------------

A = {"s0": Size("a", 0), "s1": Size("b", 0)}


def _said_of_sets() -> list[tuple[str, str]]:
    def guard(text: str, line: int, source: str) -> Guard:
        return Guard(parse(text), Origin("model.py", line, text=source))

    program = GuardSet(
        [
            guard("s0 + s1 > 20", 12, "if a.size(0) + b.size(0) > 20:"),
            guard("s0 % 8 == 0", 14, "a.view(-1, 8)"),
            guard("s0 == s1", 15, "a + b"),
        ]
    )
    loose = GuardSet([guard("s0 >= 4", 20, "if a.size(0) >= 4:")], {"s0": (2, 64), "s1": (0, None)})
    tree: Tree[str] = Tree(["s0", "s1"])
    none = guards.explain_miss(tree.miss((7, 4)), A)
    tree.insert(program, "first")
    one = guards.explain_miss(tree.miss((7, 4)), A)
    tree.insert(GuardSet.read("s0 == 16", "s1 == 2"), "second")
    violated = program.violations({"s0": 9, "s1": 8}, A)
    declared = GuardSet((), {"s0": (2, 30), "s1": (9, 11)})
    shown = [
        ("GuardSet", str(program)),
        ("GuardSet.violations", "\n".join(map(str, violated))),
        ("explain", str(guards.explain(program, {"s0": 9, "s1": 8}, A))),
        ("explain, one guard", str(guards.explain(loose, {"s0": 3, "s1": 8}, A))),
        ("explain, a declared range", str(guards.explain(loose, {"s0": 1, "s1": 8}, A))),
        ("explain, what holds", str(guards.explain(loose, {"s0": 5, "s1": 8}, A))),
        ("explain_miss, no entry", none),
        ("explain_miss, one entry", one),
        ("explain_miss, two entries", guards.explain_miss(tree.miss((17, 2)), A)),
        ("distinguish", str(guards.distinguish(program, loose, A))),
        ("distinguish, the same", str(guards.distinguish(loose, loose, A))),
        ("explain_conflict", str(guards.explain_conflict(declared, program, A))),
        (
            "explain_conflict, none",
            str(guards.explain_conflict(GuardSet((), {"s0": (8, 80)}), program, A)),
        ),
    ]
    shown += [
        (
            f"decide {query}",
            str(guards.decide(query, ranges={"x": (1, None)}, assume=["x % 4 == 0"])),
        )
        for query in ("x % 2 == 0", "x < y", "x // 8 * 8 == x + 1")
    ]
    return shown


def _said_of_programs() -> list[tuple[str, str]]:
    traced = symshape.trace(larger, torch.ones(8))
    compiled = symshape.compile(larger, runner="eager")
    for size in (8, 9, 3):
        compiled(torch.ones(size))
    fallen = symshape.compile(chosen, runner="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", symshape.FallbackWarning)
        for _ in range(3):
            fallen(torch.ones(8))
    return [
        ("Traced", str(traced)),
        ("Traced.explain", "\n".join(traced.explain(torch.ones(3)))),
        ("Compiled.explain_miss", compiled.explain_miss()),
        ("Compiled.explain_fallback", fallen.explain_fallback()),
    ]


def _explanations() -> str:
    shown = [*_said_of_sets(), *_said_of_programs()]
    return masked(
        "\n".join(
            f"{title}\n" + "".join(f"    {line}\n" for line in s.splitlines()) for title, s in shown
        )
    )


# -- the demo --------------------------------------------------------------------------------------


def _demo() -> str:
    from unittest.mock import patch

    from rich.console import Console

    from symshape.exploring.tables import Table
    from symshape.exploring.terminal import terminal_table
    from symshape.frontends.cli import demo

    def without_times(table: Table, **how: int | None) -> object:
        """Figures that are times, and this machine's versions, are X."""
        timed = [
            row
            for row in table.rows
            if "µs" in row[0] or "second" in row[0] or row[0].endswith(", s")
        ]
        hidden = table.rows if table.title == "environment" else timed
        rows = tuple(
            (row[0], *("X" for _ in row[1:])) if row in hidden else row for row in table.rows
        )
        return terminal_table(attrs.evolve(table, rows=rows), **how)

    console = Console(file=io.StringIO(), width=120, color_system=None)
    with patch.object(demo, "terminal_table", without_times):
        assert demo.run_demo(console, demo.Settings(models=("gpt2",), requests=12)) == 0
    text = console.file.getvalue()  # type: ignore[attr-defined]
    text = re.sub(r"traced in \d+ ms", "traced in X ms", text)
    text = re.sub(r"\(\d+ s in all\)", "(X s in all)", text)
    return masked("\n".join(line.rstrip() for line in text.splitlines()) + "\n")


TEXTS: dict[str, Callable[[], str]] = {
    **{f"guards_of_{name}": lambda name=name: _model(name) for name in MODELS},  # type: ignore[misc]
    "errors": _errors,
    "explanations": _explanations,
    "messages": messages,
    "demo": _demo,
}
