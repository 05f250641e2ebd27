"""What becomes of one architecture: compiled, called at sizes that vary, compared with eager."""

from __future__ import annotations

import contextlib
import copy
import random
import signal
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from unittest import mock

import attrs
import numpy
import torch
from torch import nn
from torch.utils import _pytree as pytree

import symshape
from symshape.runtime.runners.pieces.runner import padded_parts

LEARNT = ((3, 8), (2, 12), (5, 16))
BATCHES = ((4, 16), (7, 16))
LENGTHS = ((4, 20), (4, 28))
OTHERS = BATCHES + LENGTHS


@attrs.frozen
class Architecture:
    """A model, how it is called at a batch and a length, and the ways of calling that are tried."""

    name: str
    make: Callable[[], nn.Module]
    ways: Mapping[str, Callable[[int, int], Mapping[str, Any]]]


@attrs.frozen
class Asked:
    """How architectures are tried: where they run, by which runner, and the processor time of each
    in seconds.

    ``inference``: but for training, they are called in inference mode (and built outside), not
    without gradients alone.
    """

    device: str = "cpu"
    runner: Any = "auto"
    seconds: int = 60
    inference: bool = False


@attrs.frozen
class Row:
    """What became of one architecture, called in one way."""

    name: str
    way: str
    outcome: str
    traces: int = 0
    as_it_is: int = 0
    kept: str = "–"
    padded: str = "–"
    of_eager: float = 0.0
    seconds: float = 0.0
    reason: str = ""


class TooLong(BaseException):
    """The processor time of one architecture is over."""


@contextlib.contextmanager
def limit(seconds: int) -> Iterator[None]:
    """Raises `TooLong` when so much processor time has gone by."""

    def stop(*_: Any) -> None:
        raise TooLong

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _leaves(result: Any) -> list[Any]:
    leaves = pytree.tree_leaves(dict(result) if isinstance(result, Mapping) else result)
    return [
        leaf for leaf in leaves if leaf is None or isinstance(leaf, (torch.Tensor, int, float, str))
    ]


def compared(expected: Any, got: Any) -> str:
    """``right`` (equal bit for bit), ``close`` (as rounding differs) or ``wrong``.

    Kernels of a device round by the sizes in memory: what is close there is measured by the largest
    number.
    """
    theirs, ours = _leaves(expected), _leaves(got)
    if type(expected) is not type(got) or len(theirs) != len(ours):
        return "wrong"
    found = "right"
    for a, b in zip(theirs, ours, strict=True):
        if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
            same = a == b
        elif a.shape != b.shape or a.dtype != b.dtype or _steps(a) != _steps(b):
            same = False
        elif torch.allclose(a, b, rtol=0, atol=0, equal_nan=True):
            same = True
            found = found if a.stride() == b.stride() else "close"
        else:
            same = torch.allclose(a, b, rtol=1e-3, atol=1e-5, equal_nan=True) or _close_on_a_device(
                a, b
            )
            found = "close"
        if not same:
            return "wrong"
    return found


def _steps(tensor: torch.Tensor) -> list[int]:
    """The strides that say where an element lies: those of dimensions of more than one."""
    return [step for size, step in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]


def _close_on_a_device(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.device.type == "cpu" or not a.is_floating_point() or not a.numel():
        return False
    largest = float(a.nan_to_num(0, 0, 0).abs().max())
    return torch.allclose(a, b, rtol=1e-3, atol=1e-4 * max(largest, 1e-3), equal_nan=True)


def _called(model: Any, arguments: Mapping[str, Any], gradients: bool) -> Any:
    """The result of a call, and of training the gradients of all parameters; some models draw masks
    with NumPy.
    """
    torch.manual_seed(1)
    numpy.random.seed(1)
    random.seed(1)
    result = model(**arguments)
    if not gradients:
        return result
    floats = [x for x in _leaves(result) if isinstance(x, torch.Tensor) and x.requires_grad]
    torch.stack([(x.float() ** 2).mean() for x in floats]).sum().backward()  # type: ignore[no-untyped-call]
    grads = [p.grad for p in model.parameters()]
    model.zero_grad()
    buffers = [b.clone() for b in model.buffers()]
    return (result, grads, buffers)


def judge(it: Architecture, way: str, asked: Asked) -> Row:
    """One architecture, called in one way."""
    torch.manual_seed(0)
    start = time.process_time()
    gradients = way.endswith("training")
    try:
        with limit(asked.seconds), torch.set_grad_enabled(gradients), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                model = it.make().to(asked.device)
                if gradients:
                    model.train()
                    for module in model.modules():
                        if isinstance(module, nn.modules.dropout._DropoutNd):
                            module.p = 0.0
                arguments = _placed(
                    it.ways[way.removesuffix("training").strip() or next(iter(it.ways))],
                    asked.device,
                )
                _called(copy.deepcopy(model), arguments(*LEARNT[0]), gradients)
            except Exception as error:
                return Row(it.name, way, "not built", reason=f"{type(error).__name__}: {error}")
            with (
                torch.inference_mode()
                if asked.inference and not gradients
                else contextlib.nullcontext()
            ):
                return _judged(it.name, way, model, arguments, asked, start)
    except TooLong:
        return Row(it.name, way, "too long", seconds=time.process_time() - start)
    except Exception as error:
        return Row(it.name, way, "crash", reason=f"{type(error).__name__}: {error}")


def _placed(
    arguments: Callable[[int, int], Mapping[str, Any]], device: str
) -> Callable[[int, int], Any]:
    """The arguments of calls, on a device."""

    def placed(batch: int, length: int) -> Any:
        return pytree.tree_map_only(
            torch.Tensor, lambda each: each.to(device), dict(arguments(batch, length))
        )

    return placed


def _padded(entries: Sequence[Any]) -> str:
    """Whether calls are padded: in all sizes, in some of them or not at all, what refused the
    others; or in pieces.
    """
    parts = [part for each in entries for part in padded_parts(each.runner, each.program)]
    found = [runner.padding() for _, runner in parts]
    if not found:
        return "–"
    described = (each.runner.describe() for each in entries)
    cut = [
        f"{text.partition(' (')[0]}: {text.rpartition('run eagerly: ')[2][:-1]}"
        for text in described
        if "pieces (" in text
    ]
    if cut:
        return "; ".join(dict.fromkeys(cut))
    refused = [
        f"{refusal.op}: {refusal.reason}"
        for report in found
        for each in report.symbols.values()
        if (refusal := each.refusal) is not None
    ]
    some = "in part" if any(each.padded for each in found) else "no"
    return f"{some}: {'; '.join(dict.fromkeys(refused))}" if refused else "all"


def _judged(
    name: str, way: str, model: nn.Module, arguments: Any, asked: Asked, start: float
) -> Row:
    gradients = way.endswith("training")
    fast = symshape.compile(copy.deepcopy(model), runner=asked.runner)
    about = symshape.compiled_of(fast)
    found, traces = set(), []
    for shape in (*LEARNT, *LEARNT, *BATCHES, *LENGTHS):
        call = arguments(*shape)
        expected = _called(model, call, gradients)
        got = _called(fast, call, gradients)
        same = compared(expected, got)
        if same != "right":
            with (
                mock.patch("torch.compiler.is_compiling", return_value=True),
                contextlib.suppress(Exception),
            ):
                other = copy.deepcopy(model)  # some models fail with that flag alone
                seen = compared(_called(other, call, gradients), got)
                if seen == "right" or (same, seen) == ("wrong", "close"):
                    same = "as a compiler sees it"
        found.add(same)
        traces.append(about.stats().traces)
    n = 2 * len(LEARNT)
    kept = ["batch"] * (traces[n + len(BATCHES) - 1] == traces[n - 1]) + ["length"] * (
        traces[-1] == traces[n + 1]
    )
    seconds = time.process_time() - start
    outcome = next(
        each for each in ("wrong", "close", "as a compiler sees it", "right") if each in found
    )
    stats = about.stats()
    if not stats.traces:
        kept = ["–"]
    reason = (
        about.explain_fallback()
        if stats.fallbacks
        else (str(about.explain_miss()) if len(kept) < 2 else "")
    )
    if stats.fallbacks:
        outcome = "runs as it is" if outcome == "right" else outcome
    ratio = _ratio(model, fast, arguments(4, 16), gradients)
    whole, padded = " ".join(kept) or "nothing", _padded(about.entries)
    return Row(
        name, way, outcome, stats.traces, stats.fallbacks, whole, padded, ratio, seconds, reason
    )


def _ratio(model: Any, fast: Any, call: Mapping[str, Any], gradients: bool) -> float:
    """The time of a warm call over eager's: the least of calls in turn, for others use this machine
    too.
    """
    least = [float("inf")] * 2
    for _ in range(12):
        for i, who in enumerate((model, fast)):
            begun = time.perf_counter()
            _called(who, call, gradients)
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            least[i] = min(least[i], time.perf_counter() - begun)
    return least[1] / least[0]
