"""Memory of CUDA graphs foretold before the first capture, and of calls and steps of training,
against the allocator.

Ten models with random weights. Each is compiled with padded buckets, warmed up for 1, 8 and 32
sizes, and the segments of its graph pool are read from ``torch.cuda.memory_snapshot``. *pool*:
foretold and measured. *all*: the growth of ``torch.cuda.memory_reserved`` once cached memory is
given back: the pool and the buffers (workspaces are there since the first model; they have a table
of their own). *most*: ``max_memory_reserved`` while the graphs are captured. *driver*: the growth
of the device's used memory that is not the allocator's: CUDA's memory for the graphs.

*fits*: the most memory of a call and of two steps of training with AdamW at two sizes, by
``symshape.fits``, against ``max_memory_reserved`` and ``max_memory_allocated``.

``--requests`` also compares the requests that were foretold for one graph with those that the
allocator saw.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from time import perf_counter
from typing import Any, ClassVar
from unittest.mock import patch

import attrs
import torch
from torch import nn

import symshape
from symshape.cost.allocator import Allocator, Block, rounded
from symshape.cost.graph_memory import DeviceMemory, GraphMemory, graph_memory
from symshape.frontends.warming import foretold_buckets, planned_work
from symshape.runtime.runners.pieces.runner import padded_parts
from tests.bench.bench_memory_device import as_traced
from tests.bench.report import NotHere, Report, Table, bench_parser
from tests.bench.streams import UNet, transformers

COUNTS = (1, 8, 32)
NO_WORKSPACES = DeviceMemory(0, 0)
"""The device once the workspaces of its streams are there."""


@attrs.frozen
class Case:
    """A model, how to call it, and its sizes.

    Attributes:
        make: makes the module, small or tiny.
        call: the arguments by name, for a device and the sizes.
        dims: the sizes that vary: name and dimension of every argument.
        largest: the sizes of the largest bucket.
        growing: the size that the buckets differ in.
        loss: of the result; None if the result has one.
        labels: whether the argument ``input_ids`` is the labels, too, in training.
    """

    make: Callable[[bool], nn.Module]
    call: Callable[[str, Mapping[str, int]], dict[str, torch.Tensor]]
    dims: Mapping[str, int]
    largest: Mapping[str, int]
    growing: str
    loss: Callable[[Any], torch.Tensor] | None = None
    labels: bool = False

    def buckets(self, count: int, *, tiny: bool) -> list[dict[str, int]]:
        """So many sizes, evenly spaced up to the largest."""
        most = max(self.largest[self.growing] // (8 if tiny else 1), count)
        return [{**self.largest, self.growing: most * (i + 1) // count} for i in range(count)]


def _ids(device: str, sizes: Mapping[str, int]) -> dict[str, torch.Tensor]:
    return {"input_ids": torch.randint(0, 64, (sizes["batch"], sizes["length"]), device=device)}


def _masked(device: str, sizes: Mapping[str, int]) -> dict[str, torch.Tensor]:
    found = _ids(device, sizes)
    return {**found, "attention_mask": torch.ones_like(found["input_ids"])}


def _both(device: str, sizes: Mapping[str, int]) -> dict[str, torch.Tensor]:
    return {
        "input_ids": _ids(device, sizes)["input_ids"],
        "decoder_input_ids": _ids(device, sizes)["input_ids"],
    }


def _features(width: int) -> Callable[[str, Mapping[str, int]], dict[str, torch.Tensor]]:
    def call(device: str, sizes: Mapping[str, int]) -> dict[str, torch.Tensor]:
        return {"input": torch.randn(sizes["batch"], sizes["length"], width, device=device)}

    return call


def _image(
    name: str, channels: int, side: int
) -> Callable[[str, Mapping[str, int]], dict[str, torch.Tensor]]:
    def call(device: str, sizes: Mapping[str, int]) -> dict[str, torch.Tensor]:
        return {name: torch.randn(sizes["batch"], channels, side, side, device=device)}

    return call


def _hf(model: str, config: str, **wanted: Any) -> Callable[[bool], nn.Module]:
    """Makes a model of transformers; numbers of more than 32 are an eighth if it is tiny."""

    def make(tiny: bool) -> nn.Module:
        hf = transformers()
        given = {
            k: v // 8 if tiny and type(v) is int and v > 64 and k != "image_size" else v
            for k, v in wanted.items()
        }
        found: nn.Module = getattr(hf, model)(getattr(hf, config)(**given))
        return found

    return make


def _mlp(tiny: bool) -> nn.Module:
    wide = 64 if tiny else 2048
    return nn.Sequential(
        nn.Linear(512, wide), nn.GELU(), nn.Linear(wide, wide), nn.ReLU(), nn.Linear(wide, 512)
    )


def _convnet(tiny: bool) -> nn.Module:
    layers: list[nn.Module] = []
    before = 3
    for width in (8, 16) if tiny else (64, 128, 256):
        layers += [nn.Conv2d(before, width, 3, 2, 1), nn.BatchNorm2d(width), nn.ReLU()]
        before = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 100))


class _Recurrent(nn.Module):
    def __init__(self, tiny: bool) -> None:
        super().__init__()
        self.cell, self.out = (
            nn.LSTM(512, 32 if tiny else 512, batch_first=True),
            nn.Linear(32 if tiny else 512, 512),
        )

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.out(self.cell(input)[0])
        return found


def _mean(result: Any) -> torch.Tensor:
    found = result if isinstance(result, torch.Tensor) else result[0]
    return found.float().square().mean()


_TEXT = {"batch": 0, "length": 1}
_OFF = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
_NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
_LLAMA = {
    "hidden_size": 512,
    "intermediate_size": 1536,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
}
_MORE = {"num_hidden_layers": 4, "vocab_size": 4096, "use_cache": False}
_BERT = {
    "hidden_size": 512,
    "intermediate_size": 2048,
    "num_attention_heads": 8,
    "num_hidden_layers": 4,
}
_T5 = {
    "vocab_size": 4096,
    "d_model": 512,
    "d_ff": 2048,
    "num_layers": 3,
    "num_heads": 8,
    "d_kv": 64,
}
_T5 |= {"dropout_rate": 0.0, "use_cache": False}
_MODELS: dict[str, Case] = {
    "mlp": Case(_mlp, _features(512), _TEXT, {"batch": 8, "length": 2048}, "length", _mean),
    "llama": Case(
        *(
            _hf("LlamaForCausalLM", "LlamaConfig", **_LLAMA, **_MORE),
            _ids,
            _TEXT,
            {"batch": 4, "length": 1024},
        ),
        *("length", None, True),
    ),
    "bert": Case(
        *(_hf("BertModel", "BertConfig", vocab_size=4096, **_BERT, **_NO_DROPOUT), _masked, _TEXT),
        *({"batch": 8, "length": 512}, "length", lambda result: _mean(result.last_hidden_state)),
    ),
    "gpt2": Case(
        _hf(
            "GPT2LMHeadModel",
            "GPT2Config",
            n_embd=512,
            n_layer=4,
            n_head=8,
            vocab_size=4096,
            use_cache=False,
            **_OFF,
        ),
        *(_ids, _TEXT, {"batch": 4, "length": 1024}, "length", None, True),
    ),
    "vit": Case(
        _hf("ViTForImageClassification", "ViTConfig", image_size=224, **_BERT, **_NO_DROPOUT),
        *(
            _image("pixel_values", 3, 224),
            {"batch": 0},
            {"batch": 32},
            "batch",
            lambda result: _mean(result.logits),
        ),
    ),
    "convnet": Case(_convnet, _image("input", 3, 224), {"batch": 0}, {"batch": 64}, "batch", _mean),
    "unet": Case(
        lambda tiny: UNet(16 if tiny else 128),
        _image("x", 4, 64),
        {"batch": 0},
        {"batch": 32},
        "batch",
        _mean,
    ),
    "t5": Case(
        _hf(*("T5ForConditionalGeneration", "T5Config"), **_T5),
        *(_both, _TEXT, {"batch": 4, "length": 512}, "length", lambda result: _mean(result.logits)),
    ),
    "lstm": Case(
        _Recurrent, _features(512), {"batch": 0}, {"batch": 64, "length": 32}, "batch", _mean
    ),
    "mixtral": Case(
        _hf(
            "MixtralForCausalLM",
            "MixtralConfig",
            num_local_experts=4,
            num_experts_per_tok=2,
            **_LLAMA,
            **_MORE,
        ),
        *(_ids, _TEXT, {"batch": 4, "length": 512}, "length", lambda result: _mean(result.logits)),
    ),
}


def _clean() -> None:
    for _ in range(2):
        gc.collect()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


def _pools(compiled: Any) -> int:
    """The bytes of the segments of a function's graph pools."""
    stores = {
        id(runner.store): runner.store for each in compiled.entries for _, runner in _parts(each)
    }
    ids = {
        tuple(pool._handle)
        for store in stores.values()
        for pool in store._pools.values()
        if pool._handle
    }
    segments = torch.cuda.memory_snapshot()
    return sum(
        each["total_size"] for each in segments if tuple(each.get("segment_pool_id", (0, 0))) in ids
    )


def _parts(entry: Any) -> list[Any]:
    return list(padded_parts(entry.runner, entry.program))


def _foretold(
    compiled: Any, sizes: Sequence[Mapping[str, int]], device: DeviceMemory
) -> GraphMemory:
    return graph_memory(foretold_buckets(planned_work(compiled.entries, sizes)[2]), device)


def _compiled(case: Case, module: nn.Module, device: str) -> Any:
    dynamic = {
        name: {dim: size for size, dim in case.dims.items()}
        for name in case.call("cpu", _few(case))
    }
    options = symshape.Options(kernels="eager")
    compiled = symshape.compile(module, runner="padded", dynamic=dynamic, options=options)
    with torch.no_grad():
        compiled(**case.call(device, _few(case)))
    for entry in compiled.entries:
        for _, runner in _parts(entry):
            runner.store.clear()  # the bucket of the first call
    return compiled


def _few(case: Case) -> dict[str, int]:
    return {**case.largest, **{name: 3 + 2 * dim for name, dim in case.dims.items()}}


def _measure_graphs(
    name: str, case: Case, module: nn.Module, report: Report, table: Table, args: Any
) -> None:
    module.eval().requires_grad_(False)
    on_gpu = args.device == "cuda"
    for count in COUNTS[:2] if args.smoke else COUNTS:
        start = perf_counter()
        compiled = _compiled(case, module, args.device)
        sizes = case.buckets(count, tiny=args.smoke)
        names = list(compiled.entries[0].program.positions)
        sizes = [{each: size[each] for each in names} for size in sizes]
        found = _foretold(compiled, sizes, NO_WORKSPACES)
        foretold_s = perf_counter() - start
        if found.unknown and on_gpu:
            report.note(f"{name}, {count} graphs: not measured: {', '.join(found.unknown)}")
        _clean()
        if not on_gpu:
            warm = compiled.warm_up(sizes, progress=False)
            row = (
                found.pool / 2**20,
                None,
                None,
                found.reserved / 2**20,
                None,
                None,
                found.most / 2**20,
            )
            table.row(
                name,
                count,
                *row,
                None,
                None,
                sum(each.kernels for each in found.buckets),
                foretold_s,
            )
            continue
        before, free = torch.cuda.memory_reserved(), torch.cuda.mem_get_info()[0]
        torch.cuda.reset_peak_memory_stats()
        if args.requests and count == 1:
            torch.cuda.memory._record_memory_history(context=None, max_entries=200_000)
        warm = compiled.warm_up(sizes, progress=False)
        if args.requests and count == 1:
            _compare_requests(name, compiled, sizes)
        most = torch.cuda.max_memory_reserved() - before
        _clean()
        grown, pool = torch.cuda.memory_reserved() - before, _pools(compiled)
        driver = free - torch.cuda.mem_get_info()[0] - grown
        ratio = found.pool / pool if pool else float("nan")
        whole = found.reserved / grown if grown else float("nan")
        figures = (found.pool, pool, ratio, found.reserved, grown, whole, found.most, most, driver)
        cells = [value if isinstance(value, float) else value / 2**20 for value in figures]
        table.row(name, count, *cells, sum(each.kernels for each in found.buckets), foretold_s)
        report.goal(
            f"{name}, {count} graphs: pool foretold / measured", ratio, at_least=0.99, at_most=1.03
        )
        if warm.failures:
            report.note(
                f"{name}, {count} graphs: {len(warm.failures)} failed: {warm.failures[0].reason}"
            )
        del compiled
        _clean()


def _compare_requests(name: str, compiled: Any, sizes: Sequence[Mapping[str, int]]) -> None:
    """Prints the requests on the stream of the capture that differ from those foretold."""
    trace = torch.cuda.memory._snapshot()["device_traces"][torch.cuda.current_device()]
    torch.cuda.memory._record_memory_history(enabled=None)
    streams = Counter(each["stream"] for each in trace if each["action"] == "alloc")
    buckets = foretold_buckets(planned_work(compiled.entries, sizes)[2])
    foretold = Counter(
        rounded(n) for each in buckets for born, _ in each.requests.steps for _, n in born if n
    )
    print(
        f"requests of {name}: {sum(foretold.values())} foretold, streams {dict(streams)}",
        flush=True,
    )
    for stream in streams:
        seen = Counter(
            rounded(each["size"])
            for each in trace
            if each["action"] == "alloc" and each["stream"] == stream
        )
        more, less = seen - foretold, foretold - seen
        print(
            f"  stream {stream}: not foretold {sorted(more.items())[-12:]}; not seen "
            f"{sorted(less.items())[-12:]}"
        )
    segments = Counter(
        (each["stream"], each["size"]) for each in trace if each["action"] == "segment_alloc"
    )
    print(f"  segments {sorted(segments.items())}", flush=True)


def _compare_steps(name: str, found: symshape.Fits, sizes: Mapping[str, int]) -> None:
    """Prints the requests of two steps of training that differ from those foretold, and what lives
    at both peaks.
    """
    trace = torch.cuda.memory._snapshot()["device_traces"][torch.cuda.current_device()]
    torch.cuda.memory._record_memory_history(enabled=None)

    class Logged(Allocator):
        sizes: ClassVar[list[int]] = []
        live: ClassVar[dict[int, int]] = {}
        peak: ClassVar[tuple[int, list[int]]] = (0, [])

        def allocate(self, size: int, **where: Any) -> Block:
            block = super().allocate(size, **where)
            Logged.sizes.append(rounded(size))
            Logged.live[id(block)] = Logged.sizes[-1]
            now = sum(Logged.live.values())
            Logged.peak = max(Logged.peak, (now, sorted(Logged.live.values())))
            return block

        def free(self, block: Block) -> None:
            del Logged.live[id(block)]
            super().free(block)

    with patch("symshape.cost.step_memory.Allocator", Logged):
        found.reserved(**sizes)
    seen: list[int] = []
    live: dict[int, int] = {}
    peak: tuple[int, list[int]] = (0, [])
    for each in trace:
        if each["action"] == "alloc":
            seen.append(rounded(each["size"]))
            live[each["addr"]] = seen[-1]
            peak = max(peak, (sum(live.values()), sorted(live.values())))
        elif each["action"] == "free_completed":
            live.pop(each["addr"], None)
    more, less = Counter(seen) - Counter(Logged.sizes), Counter(Logged.sizes) - Counter(seen)
    parts = f"not foretold {sorted(more.items())[-14:]}; not seen {sorted(less.items())[-14:]}"
    print(f"steps of {name} {dict(sizes)}: {parts}")
    for what, (size, blocks) in (("foretold", Logged.peak), ("seen", peak)):
        large = sorted(Counter(n for n in blocks if n > 2**19).items())
        print(f"  peak {what} {size / 2**20:.1f} MiB: {large}", flush=True)


def _measure_fits(
    name: str, case: Case, module: nn.Module, base: int, report: Report, table: Table, args: Any
) -> None:
    for training in (False, True):
        module.train(training).requires_grad_(training)
        arguments = case.call(args.device, _few(case))
        if training and case.labels:
            arguments["labels"] = arguments["input_ids"].clone()
        start = perf_counter()
        dims: dict[str, Any] = {
            size: dict.fromkeys(arguments, dim) for size, dim in case.dims.items()
        }
        more: dict[str, Any] = {"train": "adamw", "loss": case.loss} if training else {}
        found = symshape.fits(module, arguments, memory="80 GB", **more, **dims)
        found.assume(NO_WORKSPACES)
        fits_s = perf_counter() - start
        del arguments
        for share in (4, 1):
            sizes = {
                **case.largest,
                case.growing: max(
                    2, case.largest[case.growing] // share // (8 if args.smoke else 1)
                ),
            }
            known = {each: sizes[each] for each in case.dims}
            start = perf_counter()
            at = found.reserved(**known)
            fits_s += perf_counter() - start
            kind = f"{name}, {'training' if training else 'inference'}"
            if found.unknown and args.device == "cuda":
                report.note(f"{kind}: not measured: {', '.join(found.unknown)}")
            label = " ".join(f"{each}={size}" for each, size in known.items())
            if args.device != "cuda":
                table.row(
                    kind,
                    label,
                    at.reserved / 2**20,
                    None,
                    None,
                    at.allocated / 2**20,
                    None,
                    None,
                    fits_s,
                )
                continue
            _clean()
            torch.cuda.reset_peak_memory_stats()
            if args.requests and training and share == 1:
                torch.cuda.memory._record_memory_history(context=None, max_entries=200_000)
            _run(case, module, sizes, args.device, training=training)
            if args.requests and training and share == 1:
                _compare_steps(name, found, known)
            reserved, allocated = (
                torch.cuda.max_memory_reserved() - base,
                torch.cuda.max_memory_allocated() - base,
            )
            ratios = at.reserved / reserved, at.allocated / allocated
            cells = (
                at.reserved / 2**20,
                reserved / 2**20,
                ratios[0],
                at.allocated / 2**20,
                allocated / 2**20,
                ratios[1],
            )
            table.row(kind, label, *cells, fits_s)
            report.goal(
                f"{kind}, {label}: reserved foretold / measured",
                ratios[0],
                at_least=0.99,
                at_most=1.03,
            )


def _run(
    case: Case, module: nn.Module, sizes: Mapping[str, int], device: str, *, training: bool
) -> None:
    """One call, or two steps of training, with the gradients set to None after each."""
    arguments = case.call(device, sizes)
    with as_traced(device):
        if not training:
            with torch.no_grad():
                module(**arguments)
            return
        if case.labels:
            arguments["labels"] = arguments["input_ids"].clone()
        optimizer = torch.optim.AdamW(module.parameters())
        for _ in range(2):
            result = module(**arguments)
            (result.loss if case.loss is None else case.loss(result)).backward()
            optimizer.step()
            optimizer.zero_grad()
            del result
    torch.cuda.synchronize()


def _measure_workspaces(report: Report, args: Any) -> None:
    """The workspaces of the two streams of captures, by the first function of the process."""
    case = _MODELS["mlp"]
    module = _mlp(True).to(args.device).eval().requires_grad_(False)
    table = report.table("workspaces, MiB", "device", "foretold", "measured")
    if args.device != "cuda":
        table.row("cpu", DeviceMemory.here().workspace / 2**20, None)
        return
    module(**case.call("cuda", _few(case)))  # those of the caller's stream
    module.requires_grad_(True)
    module(**case.call("cuda", _few(case))).sum().backward()  # those of autograd's thread
    module.requires_grad_(False).zero_grad()
    _clean()
    before = torch.cuda.memory_reserved()
    compiled = _compiled(case, module, "cuda")
    _clean()
    sizes = [dict.fromkeys(compiled.entries[0].program.positions, 8)]
    found = _foretold(compiled, sizes, DeviceMemory.here())
    measured = torch.cuda.memory_reserved() - before
    table.row(torch.cuda.get_device_name(), found.workspaces / 2**20, measured / 2**20)
    report.note(f"context: {_context() / 2**20:.0f} MiB on the device that are not the allocator's")


def _context() -> int:
    free, total = torch.cuda.mem_get_info()
    return total - free - torch.cuda.memory_reserved()


def main(argv: Sequence[str] | None = None) -> Report:
    """Runs the benchmark."""
    parser = bench_parser(__doc__, device="cuda")
    parser.add_argument("--models", default="", help="names with commas between (default: all)")
    parser.add_argument(
        "--seconds", type=float, default=140, help="no model is begun later (default: 140)"
    )
    parser.add_argument(
        "--requests", action="store_true", help="compare the requests for one graph, too"
    )
    args = parser.parse_args(argv)
    began = perf_counter()
    if args.device == "cuda" and not torch.cuda.is_available():
        raise NotHere("there is no CUDA device; --device cpu runs the forecasts alone")
    report = Report("memory_foretold", device=args.device)
    _measure_workspaces(report, args)
    columns = (
        "graphs",
        "pool",
        "measured",
        "ratio",
        "all",
        "measured",
        "ratio",
        "most",
        "measured",
        "driver",
    )
    graphs = report.table("CUDA graphs, MiB", "model", *columns, "kernels", "trace and foretell s")
    columns = (
        "sizes",
        "reserved",
        "measured",
        "ratio",
        "allocated",
        "measured",
        "ratio",
        "trace and foretell s",
    )
    calls = report.table("calls and steps of training, MiB", "job", *columns)
    wanted = [name for name in _MODELS if not args.models or name in args.models.split(",")]
    for name in wanted[:2] if args.smoke and not args.models else wanted:
        if perf_counter() - began > args.seconds:
            report.note(f"{name} was left out: {args.seconds:g} s were over")
            continue
        torch.manual_seed(args.seed)
        _clean()
        base = torch.cuda.memory_reserved() if args.device == "cuda" else 0
        case = _MODELS[name]
        module: Any = case.make(args.smoke).to(args.device).eval().requires_grad_(False)
        measures = {
            "fits": partial(_measure_fits, name, case, module, base, report, calls, args),
            "graphs": partial(_measure_graphs, name, case, module, report, graphs, args),
        }
        for what, measure in measures.items():
            start = perf_counter()
            try:
                measure()
            except (
                symshape.SymShapeError,
                RuntimeError,
                ValueError,
                KeyError,
                AssertionError,
            ) as error:
                report.note(f"{what} of {name} failed: {type(error).__name__}: {str(error)[:400]}")
                with suppress(RuntimeError, AttributeError):
                    torch.cuda.memory._record_memory_history(enabled=None)
            print(f"{what} of {name}: {perf_counter() - start:.1f} s", flush=True)
        del module, measures, measure
        if name == "vit" and args.device == "cuda":
            report.so_far()
    return report
