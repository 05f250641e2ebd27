"""What the host does in a call before its graph is launched, and after it: in C++, in Python, in
another checkout.

A small MLP by ``runner="cudagraph"`` beside copy, replay and clone written by hand; and a
Llama-shaped model by ``runner="padded"``, in calls of known sizes and of sizes never seen that a
known bucket holds.  *Cold* calls come after an eager call of the model, as between the peers of a
stream: what they need has left the processor's caches.

On the CPU a replay does nothing but note the time, so that all of it is the host's work; on CUDA it
is real, and each call is synchronised.  Checkouts (``--against``) are measured in turn, in
processes of their own.  Units: µs, medians; the least of the rounds.
"""

from __future__ import annotations

import inspect
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, cast

HERE = Path(__file__).resolve()
COMPILED = ("symshape.calls.compiled_reading", "symshape.runtime.runners.compiled_launch")
CASES = ("MLP, by hand", "MLP", "known", "known, cold", "never seen", "never seen, cold")
Figures = dict[str, tuple[float, float]]
"""By case: until the launch, and after it."""

_launched = [0]


def _note() -> None:
    _launched[0] = time.perf_counter_ns()


class _Graph:
    """What is captured on the CPU."""

    def replay(self) -> None:
        _note()


def _without_work() -> None:
    """From now on what is captured only notes when it is launched."""
    import torch

    from symshape.runtime.runners.cuda.capture import Recording
    from symshape.runtime.runners.cuda.static_outputs import Outputs
    from symshape.runtime.runners.exact import cuda_graph
    from symshape.runtime.runners.padded import bucket

    def captured(run: Callable[[], Any], device: Any, pool: Any, **more: Any) -> Recording:
        tensors = run()

        def replay() -> Any:
            _note()
            return tensors

        return Recording(replay)

    def capture(self: Any, key: Any, leaves: Sequence[Any], values: Sequence[int]) -> Any:
        static = [each.clone() if isinstance(each, torch.Tensor) else each for each in leaves]
        inputs = [static[position] for position in self._positions]
        flat = self._captured_run(static, values)
        outputs = Outputs(flat, dict(zip(self._positions, inputs, strict=True)), self._lifted)
        graph: Any = _Graph()
        if hasattr(self, "_captured"):
            # other checkouts have no copies inside
            wanted = len(inspect.signature(self._captured).parameters)
            return self._captured(graph, inputs, outputs, *[None][: wanted - 3])
        return cuda_graph.Captured(
            graph, inputs, outputs, [each.data_ptr() for each in self._lifted]
        )

    changed: Any = cuda_graph
    changed._check_fit = lambda program: torch.device("cpu")
    changed.is_capturing, changed._current_stream = lambda: False, lambda device: 0
    changed.CudaGraphRunner._capture = capture
    module: Any = bucket
    module.captured = captured


def _with_notes() -> None:
    """From now on graphs note when they are launched."""
    import torch

    replay, kind = torch.cuda.CUDAGraph.replay, torch.cuda.CUDAGraph

    def noted(self: Any) -> None:
        _note()
        replay(self)

    kind.replay = noted  # type: ignore[method-assign]
    try:
        from symshape.runtime.runners.cuda.copies_in_graph import Added
    except ImportError:  # another checkout
        return
    bind, changed = Added.bind, cast(Any, Added)
    changed.bind = lambda self, device: bind(self, -1)  # launched by torch, so that it is noted


def _once(call: Callable[[], Any], synchronise: Callable[[], object]) -> tuple[float, float]:
    synchronise()
    start = time.perf_counter_ns()
    call()
    end = time.perf_counter_ns()
    if _launched[0] < start:
        raise RuntimeError("a call that was to be measured launched no graph")
    return (_launched[0] - start) / 1e3, (end - _launched[0]) / 1e3


def _medians(taken: Sequence[tuple[float, float]]) -> tuple[float, float]:
    before, after = zip(*taken, strict=True)
    return median(before), median(after)


def _mlp(device: str, times: int, synchronise: Callable[[], object]) -> Figures:
    import torch

    import symshape

    layers = [torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8)]
    model = torch.nn.Sequential(*layers).to(device).eval()
    inputs = [torch.randn(4, 8, device=device) for _ in range(16)]
    static = inputs[0].clone()
    model(static)
    graph: Any = _Graph()
    if device == "cuda":
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            output = model(static)
    else:
        output = model(static)

    def by_hand(x: torch.Tensor) -> torch.Tensor:
        static.copy_(x)
        graph.replay()
        return output.clone()

    taken: dict[str, list[tuple[float, float]]] = {}
    for name, run in (
        ("MLP, by hand", by_hand),
        ("MLP", symshape.compile(model, runner="cudagraph")),
    ):
        for x in inputs * 4:
            run(x)
        taken[name] = [
            _once(lambda x=inputs[i % 16], run=run: run(x), synchronise) for i in range(times)
        ]
    return {name: _medians(found) for name, found in taken.items()}


def _llama(device: str, times: int, synchronise: Callable[[], object]) -> Figures:
    import torch

    import symshape
    from symshape import Options
    from tests.bench.streams import make

    stream = make("llama", torch.device(device), tiny=device == "cpu")
    run = symshape.compile(
        stream.run, dynamic=True, runner="padded", options=Options(kernels="eager")
    )
    arguments = {(b, n): stream.arguments((b, n)) for b in (4, 5, 6, 7, 8) for n in range(33, 49)}
    for sizes in ((4, 33), (4, 48), (8, 33), (8, 48), (8, 34)):
        run(*arguments[sizes])
    unseen = [(b, n) for b in (5, 6, 7) for n in range(33, 49)]
    random.Random(0).shuffle(unseen)

    def cold() -> None:
        stream.run(*arguments[8, 48])

    def warm() -> None:
        run(*arguments[8, 33])

    found: dict[str, list[tuple[float, float]]] = {name: [] for name in CASES[2:]}
    for number, sizes in enumerate(unseen[:times]):
        (cold if number % 2 else warm)()
        taken = _once(lambda sizes=sizes: run(*arguments[sizes]), synchronise)
        found["never seen, cold" if number % 2 else "never seen"].append(taken)
    for before, name in ((cold, "known, cold"), (warm, "known")):
        for _ in range(min(times, 60)):
            before()
            found[name].append(_once(lambda: run(*arguments[8, 34]), synchronise))
    return {name: _medians(each) for name, each in found.items()}


def measure_round(argv: Sequence[str]) -> Figures:
    """One round, here."""
    if "--python" in argv:
        sys.modules.update(dict.fromkeys(COMPILED))  # type: ignore[arg-type]
    import torch

    device, times = ("cuda" if "--cuda" in argv else "cpu"), 8 if "--smoke" in argv else 400
    torch.set_num_threads(1)
    (_with_notes if device == "cuda" else _without_work)()
    synchronise: Any = torch.cuda.synchronize if device == "cuda" else bool
    with torch.no_grad():
        return _mlp(device, times, synchronise) | _llama(device, times, synchronise)


def _round(checkout: Path, flags: Sequence[str]) -> Figures:
    """The figures of one checkout, from a fresh process that imports it."""
    paths = [str(checkout), str(HERE.parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, str(HERE), "--round", *flags]
    run = subprocess.run(
        command, cwd=checkout, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    figures: Figures = json.loads(run.stdout.splitlines()[-1])
    return figures


def main(argv: Sequence[str] | None = None) -> Any:
    """Measures this checkout with C++ and without, and another one where it is given."""
    import torch

    from tests.bench.report import NotHere, Report, against_parser

    args = against_parser(__doc__).parse_args(argv)
    if args.device == "cuda" and not torch.cuda.is_available():
        raise NotHere("needs a CUDA device")
    try:
        import transformers  # noqa: F401
    except ImportError as error:
        raise NotHere("transformers is not installed") from error
    flags = ["--smoke"] * args.smoke + ["--cuda"] * (args.device == "cuda")
    rows = {
        "in C++": (HERE.parents[2], flags),
        "in Python": (HERE.parents[2], [*flags, "--python"]),
    }
    if args.against:
        rows["other checkout"] = (args.against.resolve(), flags)
    rounds: dict[str, list[Figures]] = {name: [] for name in rows}
    for _ in range(1 if args.smoke else args.rounds):
        for name, (checkout, given) in rows.items():
            rounds[name].append(_round(checkout, given))
    report = Report("launch", device=args.device)
    table = report.table("host µs until the launch / after it", "who", *CASES)
    least = {
        name: {case: [min(each[case][i] for each in found) for i in (0, 1)] for case in CASES}
        for name, found in rounds.items()
    }
    for name, figures in least.items():
        table.row(name, *(f"{figures[case][0]:.1f} / {figures[case][1]:.1f}" for case in CASES))
    if args.against and not args.smoke:
        for case in CASES[1:]:
            ours, others = least["in C++"][case][0], least["other checkout"][case][0]
            report.goal(
                f"{case}, until the launch, ours / other checkout", ours / others, at_most=0.75
            )
    report.note(
        "on the CPU a replay does nothing, on CUDA it is real and each call is synchronised"
    )
    return report


if __name__ == "__main__":
    print(json.dumps(measure_round(sys.argv)) if "--round" in sys.argv else main().text())
