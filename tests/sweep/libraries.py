"""Libraries that people use with PyTorch: einops, kornia, PyG, timm, diffusers and torchvision.

    python -m tests.sweep libraries                          # all that can be imported here
    python -m tests.sweep libraries --only einops,kornia --match blur
    python -m tests.sweep libraries --smoke

Each program is compiled with ``symshape.compile`` and called at nine batches and lengths, without
gradients and in training, and compared with eager: results, gradients, buffers.  A table says for
each library how many programs there are, how often they were traced, how many calls ran eagerly,
and how many gave something else than eager.
"""

from __future__ import annotations

import argparse
import copy
import random
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import attrs
import numpy
import torch
from torch import nn
from torch.utils import _pytree as pytree

import symshape
from tests.bench.report import Report
from tests.sweep import library_models, library_programs
from tests.sweep.judging import BATCHES, LEARNT, LENGTHS, TooLong, compared, limit
from tests.sweep.library_programs import LibraryProgram

LIBRARIES: Mapping[str, Callable[[], Iterator[LibraryProgram]]] = {
    "einops": library_programs.einops_programs,
    "kornia": library_programs.kornia_programs,
    "torch_geometric": library_programs.pyg_programs,
    "timm": library_models.timm_programs,
    "diffusers": library_models.diffusers_programs,
    "torchvision": library_models.torchvision_programs,
}
MODES = ("no_grad", "training")
SHAPES = (*LEARNT, *BATCHES, *LENGTHS, (1, 16), (4, 1))
SMOKE = 3  # programs of each library


@attrs.define
class Verdict:
    """The outcome of one program in one mode.

    Attributes:
        outcome: ``right``, ``wrong``, ``eager`` (calls ran eagerly), ``not here`` (eager fails),
            ``too long`` or ``crash``.
        calls: compared with eager.
        traces: made for these calls.
        eager: calls that ran eagerly.
        wrong: calls with another result or error than eager's.
        reason: for the first that is not right.
    """

    outcome: str = "right"
    calls: int = 0
    traces: int = 0
    eager: int = 0
    wrong: int = 0
    reason: str = ""


def _called(target: Any, arguments: Sequence[Any], gradients: bool) -> Any:
    """The results of a call from a fixed seed, with the gradients and buffers if asked for; or the
    error it raises.
    """
    torch.manual_seed(1)
    numpy.random.seed(1)
    random.seed(1)
    given = pytree.tree_map_only(torch.Tensor, lambda each: each.clone(), list(arguments))
    leaves = (
        [each for each in given if isinstance(each, torch.Tensor) and each.is_floating_point()]
        if gradients
        else []
    )
    for each in leaves:
        each.requires_grad_()
    result = target(*given)
    if not gradients:
        return result
    outputs = [
        each for each in pytree.tree_leaves(_plain(result)) if isinstance(each, torch.Tensor)
    ]
    losses = [(each.float() ** 2).mean() for each in outputs if each.requires_grad]
    module = target if isinstance(target, nn.Module) else None
    if losses:
        torch.stack(losses).sum().backward()  # type: ignore[no-untyped-call]
    state = (
        []
        if module is None
        else [*(p.grad for p in module.parameters()), *(b.clone() for b in module.buffers())]
    )
    if module is not None:
        module.zero_grad()
    return _plain(result), [each.grad for each in leaves], state


def _plain(result: Any) -> Any:
    return dict(result) if isinstance(result, Mapping) else result


def _outcome_of(call: Callable[[], Any]) -> tuple[Any, Exception | None]:
    try:
        return call(), None
    except Exception as error:
        return None, error


def judge(program: LibraryProgram, mode: str, seconds: int) -> Verdict:
    """Compile a program, call it at each shape, and compare each call with eager."""
    found = Verdict()
    gradients = mode == "training"
    torch.manual_seed(0)
    try:
        with limit(seconds), torch.set_grad_enabled(gradients), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = program.make()
            if isinstance(model, nn.Module):
                model.train(gradients)
            _judged(found, program, model, gradients)
    except TooLong:
        found.outcome = "too long"
    except (
        Exception
    ) as error:  # what cannot be made here is no fault of ours; the reason says what it was
        found.outcome, found.reason = "crash", f"{type(error).__name__}: {error}"
    return found


def _judged(found: Verdict, program: LibraryProgram, model: Any, gradients: bool) -> None:
    fast = symshape.compile(copy.deepcopy(model) if isinstance(model, nn.Module) else model)
    about = symshape.compiled_of(fast)
    failed = 0
    for number, shape in enumerate((*LEARNT, *SHAPES)):
        torch.manual_seed(number)
        arguments = program.arguments(*shape)
        expected, raised = _outcome_of(
            lambda arguments=arguments: _called(model, arguments, gradients)
        )  # type: ignore[misc]
        got, error = _outcome_of(lambda arguments=arguments: _called(fast, arguments, gradients))  # type: ignore[misc]
        found.calls += 1
        failed += raised is not None
        if raised is not None or error is not None:
            same = type(raised) is type(error)
        else:
            same = compared(expected, got) != "wrong"
        if not same:
            found.wrong += 1
            what = f"eager {raised!r}, ours {error!r}" if raised or error else "another result"
            found.reason = found.reason or f"{shape}: {what}"
    stats = about.stats()
    found.traces, found.eager = stats.traces, stats.fallbacks
    if failed == found.calls:
        found.outcome, found.reason = "not here", f"eager raises {raised!r}"
    elif found.wrong:
        found.outcome = "wrong"
    elif stats.fallbacks > failed:
        found.outcome, found.reason = "eager", about.explain_fallback()
    elif stats.traces > 4:
        found.reason = str(about.explain_miss())


def programs_of(library: str) -> tuple[list[LibraryProgram], str]:
    """The programs of a library, and its version or why it cannot be imported."""
    try:
        module = import_module(library)
        return list(LIBRARIES[library]()), str(getattr(module, "__version__", "?"))
    except Exception as error:  # a library that is built for another torch fails in ways of its own
        return [], f"not here: {type(error).__name__}: {' '.join(str(error).split())[:120]}"


def main(argv: Sequence[str] | None = None) -> Report:
    """Print a row for each program that is not served in few traces, and a table with a row for
    each library.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="libraries, with , between them")
    parser.add_argument("--match", default="", help="part of the names of programs")
    parser.add_argument(
        "--modes", default=",".join(MODES), help=f"{' and '.join(MODES)}: with , between them"
    )
    parser.add_argument(
        "--seconds", type=int, default=40, help="of processor time, for a program in a mode"
    )
    parser.add_argument(
        "--smoke", action="store_true", help=f"the first {SMOKE} programs of each library"
    )
    parser.add_argument(
        "--out", type=Path, help="folder in which sweep_libraries-cpu.json is written"
    )
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    report, start = Report("sweep_libraries", "cpu"), time.perf_counter()
    rows = report.table(
        "programs",
        "library",
        "program",
        "mode",
        "outcome",
        "calls",
        "traces",
        "eager",
        "wrong",
        "why",
    )
    whole = report.table(
        "libraries",
        "library",
        "version",
        "programs",
        "calls",
        "traces",
        "eager calls",
        "wrong calls",
    )
    only = [each for each in args.only.split(",") if each] or list(LIBRARIES)
    # before the first trace, as in a script: PyG replaces functions of torch when it is imported
    found = {library: programs_of(library) for library in only}
    for library, (programs, version) in found.items():
        chosen = [each for each in programs if args.match in each.name][
            : SMOKE if args.smoke else None
        ]
        verdicts: list[Verdict] = []
        for program in chosen:
            for mode in args.modes.split(","):
                if mode == "training" and not program.trains:
                    continue
                verdict = judge(program, mode, args.seconds)
                verdicts.append(verdict)
                why = " ".join(verdict.reason.split())[:300].replace("|", "/")
                cells = (library, program.name, mode, *attrs.astuple(verdict)[:-1], why or "–")
                rows.row(*cells)
                if verdict.outcome != "right" or why:
                    print("| " + " | ".join(map(str, cells)) + " |", flush=True)
        sums = [
            sum(getattr(each, name) for each in verdicts)
            for name in ("calls", "traces", "eager", "wrong")
        ]
        whole.row(library, version, len(chosen), *sums)
        outcomes = sorted({each.outcome for each in verdicts})
        counts = {
            outcome: sum(each.outcome == outcome for each in verdicts) for outcome in outcomes
        }
        print(
            f"{library} {version}: {len(chosen)} programs, calls/traces/eager/wrong {sums}, "
            f"{counts}",
            flush=True,
        )
    if args.out is not None:
        words = ["python -m tests.sweep libraries", *(sys.argv[2:] if argv is None else argv)]
        report.write(args.out, arguments=words, seconds=time.perf_counter() - start)
    return report
