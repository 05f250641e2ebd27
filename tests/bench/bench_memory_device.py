"""Memory predicted from a trace against what the device's allocator says, and the largest batch
that fits.

Three models of transformers in bfloat16, forward and in training (cross entropy, AdamW).  Each is
traced once, at a small size; its peak is evaluated at others and compared with
``torch.cuda.max_memory_allocated`` there.  Then the process may use so many bytes and no more, and
the largest batch that runs is looked for by trial.

*prediction*: bytes of the formula, allocations rounded up to 512 bytes, plus what libraries keep
once they are warm. *live*: bytes of the tensors that ops made, rounded alike, by a dispatch mode;
not what kernels allocate.  *requested*, *allocated*: what the allocator was asked for, and what it
handed out. *largest*: ``peak_memory().largest`` for the budget less what libraries keep and 2.5%
for the pages of the allocator and what kernels take for themselves, which a trace does not see (a
convolution's backward of a ViT: 6% of its peak). A trial runs what was traced: the paths that
transformers takes when it is compiled, and on a device without the masks that a trace leaves out
there (true everywhere, or causal).  The last column is what fits on the paths of eager, where
transformers makes other masks, and does not repeat the heads of keys.
"""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from time import perf_counter
from typing import Any

import attrs
import torch
from torch.overrides import TorchFunctionMode

import symshape
from symshape.cost.live_bytes import LiveBytes
from symshape.tracing.traced_modes import compiling
from tests.bench.report import NotHere, Report, Table, bench_parser

ALIGNMENT = 512
ROOM = 0.025
"""The part of a budget that is left to the allocator's pages, and to what kernels take for
themselves.
"""

Call = dict[str, torch.Tensor]


@attrs.frozen
class Sizes:
    """How large the models are."""

    hidden: int
    layers: int
    vocabulary: int
    length: int
    budget: int
    batches: Sequence[int]


FULL = Sizes(768, 6, 8192, 256, 12 * 10**9, (3, 7, 16, 24, 40))
SMOKE = Sizes(32, 1, 128, 16, 10**7, (3, 5))


def _llama(sizes: Sizes) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    heads = {"num_attention_heads": 4 if sizes.hidden < 64 else 12, "num_key_value_heads": 4}
    more = {"num_hidden_layers": sizes.layers, "vocab_size": sizes.vocabulary}
    config = LlamaConfig(
        hidden_size=sizes.hidden,
        intermediate_size=3 * sizes.hidden,
        **heads,
        **more,
        use_cache=False,
    )
    return LlamaForCausalLM(config)


def _gpt2(sizes: Sizes) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    heads = {
        "n_head": 4 if sizes.hidden < 64 else 12,
        "n_layer": sizes.layers,
        "vocab_size": sizes.vocabulary,
    }
    off = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return GPT2LMHeadModel(GPT2Config(n_embd=sizes.hidden, **heads, **off, use_cache=False))


def _vit(sizes: Sizes) -> Any:
    from transformers import ViTConfig, ViTForImageClassification

    heads = {
        "num_attention_heads": 4 if sizes.hidden < 64 else 12,
        "num_hidden_layers": sizes.layers,
    }
    inner = {"hidden_size": sizes.hidden, "intermediate_size": 4 * sizes.hidden}
    off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return ViTForImageClassification(
        ViTConfig(image_size=16 * int(sizes.length**0.5), **inner, **heads, **off)
    )


MODELS: dict[str, Callable[[Sizes], Any]] = {"llama": _llama, "gpt2": _gpt2, "vit": _vit}


@attrs.define
class Job:
    """A model on the device, forward or in training: what a trial runs and what a trace sees."""

    name: str
    module: torch.nn.Module
    sizes: Sizes
    device: str
    training: bool
    optimizer: torch.optim.Optimizer | None = None

    def call(self, batch: int, length: int) -> Call:
        """Arguments of one call; an image has as many patches as a text has words."""
        if self.name == "vit":
            side = 16 * int(self.sizes.length**0.5)
            return {
                "pixel_values": torch.randn(
                    batch, 3, side, side, device=self.device, dtype=torch.bfloat16
                )
            }
        words = torch.randint(0, self.sizes.vocabulary, (batch, length), device=self.device)
        return (
            {"input_ids": words, "labels": words.clone()} if self.training else {"input_ids": words}
        )

    def run(self, call: Call) -> None:
        """One call, or one step of training as people write it."""
        if self.optimizer is None:
            with torch.no_grad():
                self.module(**call)
            return
        result = self.module(**call)
        _loss(result).backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.optimizer.zero_grad()

    def trace(self) -> symshape.Traced:
        """The job as a program."""
        call = self.call(3, 24)
        names = {0: "batch"} if self.name == "vit" else {0: "batch", 1: "length"}
        dynamic = dict.fromkeys(call, names)
        if self.training:
            return symshape.trace_training(
                self.module, loss=_loss, optimizer=self.optimizer, dynamic=dynamic, **call
            )
        with torch.no_grad():
            return symshape.trace(self.module, dynamic=dynamic, **call)

    def tensors(self) -> Iterator[torch.Tensor]:
        """Parameters, buffers, and what the optimizer keeps on the device."""
        yield from self.module.parameters()
        yield from self.module.buffers()
        yield from self.kept_by_optimizer()

    def kept_by_optimizer(self) -> Iterator[torch.Tensor]:
        """The state of the optimizer."""
        states = self.optimizer.state.values() if self.optimizer is not None else ()
        yield from (
            each for state in states for each in state.values() if isinstance(each, torch.Tensor)
        )


def _loss(result: Any) -> torch.Tensor:
    loss: torch.Tensor | None = result.loss
    return result.logits.float().square().mean() if loss is None else loss


def _rounded(storage: torch.UntypedStorage) -> int:
    # the numbers of the optimizer's steps
    if storage.device.type == "cpu" and torch.cuda.is_available():
        return 0
    return -(-storage.nbytes() // ALIGNMENT) * ALIGNMENT


def _bytes_of(tensors: Iterable[torch.Tensor]) -> int:
    storages = {each.untyped_storage()._cdata: each.untyped_storage() for each in tensors}
    return sum(map(_rounded, storages.values()))


@contextmanager
def _limited(fraction: float, device: str) -> Iterator[None]:
    if device != "cuda":
        yield
        return
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(fraction)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def _clean(device: str) -> None:
    gc.collect()
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


class _WithoutKnownMasks(TorchFunctionMode):
    """Attention without masks that are true everywhere or causal, as traces on a device have it."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        mask = kwargs.get("attn_mask")
        if (
            func is torch.nn.functional.scaled_dot_product_attention
            and mask is not None
            and mask.dtype is torch.bool
        ):
            causal = torch.ones(mask.shape[-2:], dtype=torch.bool, device=mask.device).tril()
            if bool(mask.all()) or bool((mask == causal).all()):
                kwargs |= {"attn_mask": None, "is_causal": not bool(mask.all())}
        return func(*args, **kwargs)


@contextmanager
def as_traced(device: str) -> Iterator[None]:
    """The paths of a module that were traced."""
    with compiling(), _WithoutKnownMasks() if device == "cuda" else contextlib.nullcontext():
        yield


def _fits(job: Job, batch: int, budget: int, paths: AbstractContextManager[None]) -> bool:
    """Whether a call of this size runs within the budget; on a CPU, by live bytes."""
    if job.device != "cuda":
        return _live(job, batch, paths) <= budget
    _clean(job.device)
    try:
        with paths:
            job.run(job.call(batch, job.sizes.length))
        torch.cuda.synchronize()
    except torch.OutOfMemoryError:
        fitted = False
    else:
        fitted = True
    job.module.zero_grad()
    return fitted


def _live(job: Job, batch: int, paths: AbstractContextManager[None]) -> int:
    call = job.call(batch, job.sizes.length)
    with paths, LiveBytes([*call.values(), *job.tensors()], _rounded) as seen:
        job.run(call)
    return seen.peak


def _found(
    job: Job, guess: int, budget: int, paths: Callable[[], AbstractContextManager[None]]
) -> int:
    """The largest batch that runs, from near a guess on, by doubling the step and halving it
    again.
    """
    good, step = guess, max(1, guess // 32)
    while good > 0 and not _fits(job, good, budget, paths()):
        good, step = good - step, step * 2
    good, bad, step = max(good, 0), None, max(1, guess // 32)
    while bad is None:
        if _fits(job, good + step, budget, paths()):
            good, step = good + step, step * 2
        else:
            bad = good + step
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if _fits(job, middle, budget, paths()) else (good, middle)
    return good


def _sizes(traced: symshape.Traced, batch: int, sizes: Sizes) -> dict[str, int]:
    return {name: batch if name == "batch" else sizes.length for name in traced.symbols}


def _measure(job: Job, report: Report, memory: Table, fitting: Table) -> None:
    sizes, on_gpu = job.sizes, job.device == "cuda"
    for _ in range(2):  # libraries allocate what they keep, and the optimizer its state
        with as_traced(job.device):
            job.run(job.call(2, sizes.length))
    job.module.zero_grad()
    _clean(job.device)
    start = perf_counter()
    traced = job.trace()
    peak = traced.peak_memory(schedule="eager", alignment=ALIGNMENT)
    traced_s = perf_counter() - start
    _clean(job.device)
    in_formula = _bytes_of([*traced.program.lifted_tensors, *job.kept_by_optimizer()])
    kept = torch.cuda.memory_allocated() - in_formula if on_gpu else 0
    kind = "training" if job.training else "forward"
    worst = 1.0
    for batch in sizes.batches:
        predicted = peak.at(**_sizes(traced, batch, sizes)).total + kept
        live = _live(job, batch, as_traced(job.device)) + kept
        allocated: int | None = None
        requested: int | None = None
        if on_gpu:
            _clean(job.device)
            call = job.call(batch, sizes.length)
            torch.cuda.reset_peak_memory_stats()
            with as_traced(job.device):
                job.run(call)
            torch.cuda.synchronize()
            allocated = torch.cuda.max_memory_allocated()
            requested = torch.cuda.memory_stats()["requested_bytes.all.peak"]
        ratio = predicted / (allocated or live)
        worst = max(worst, ratio, 1 / ratio)
        counts = (predicted, live, requested, allocated)
        memory.row(
            f"{job.name}, {kind}",
            batch,
            *(each and each / 1e6 for each in counts),
            predicted / live,
            ratio,
        )
        job.module.zero_grad()
    report.goal(
        f"{job.name}, {kind}: worst ratio of memory", worst, at_most=1.1 if job.training else 1.05
    )
    budget = sizes.budget
    others = {name: size for name, size in _sizes(traced, 1, sizes).items() if name != "batch"}
    guess = peak.largest("batch", bytes=int(budget * (1 - ROOM)) - kept, **others)
    total = torch.cuda.get_device_properties(0).total_memory if on_gpu else budget
    with _limited(budget / total, job.device):
        compiled = _found(job, guess, budget, lambda: as_traced(job.device))
        eager = _found(job, compiled, budget, contextlib.nullcontext)
    fitting.row(
        f"{job.name}, {kind}", guess, compiled, guess / compiled, eager, kept / 1e6, traced_s
    )
    report.goal(
        f"{job.name}, {kind}: predicted batch / found", guess / compiled, at_least=0.97, at_most=1.0
    )


def _expandable() -> str:
    """Asks the allocator for segments that grow; a sentence that says whether it gives them."""
    settings = "expandable_segments:True"
    for place, name in (
        (torch._C, "_accelerator_setAllocatorSettings"),
        (torch.cuda.memory, "_set_allocator_settings"),
    ):
        set_them = getattr(place, name, None)
        if set_them is not None:
            with contextlib.suppress(RuntimeError):
                set_them(settings)
                break
    probe = torch.empty(2**25, device="cuda")
    grows = any(segment.get("is_expandable") for segment in torch.cuda.memory_snapshot())
    del probe
    return f"segments of the allocator {'grow' if grows else 'are of fixed size'}"


def main(argv: Sequence[str] | None = None) -> Report:
    """Runs the benchmark."""
    os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")
    parser = bench_parser(__doc__, device="cuda")
    parser.add_argument("--models", default="", help="names with commas between (default: all)")
    parser.add_argument(
        "--seconds", type=float, default=110, help="no model is begun later (default: 110)"
    )
    args = parser.parse_args(argv)
    began = perf_counter()
    on_gpu = args.device == "cuda"
    if on_gpu and not torch.cuda.is_available():
        raise NotHere("there is no CUDA device; --device cpu compares with live bytes instead")
    sizes = SMOKE if args.smoke or not on_gpu else FULL
    report = Report("memory_device", device=args.device)
    if on_gpu:
        report.note(_expandable())
        report.note(f"peaks: {symshape.measure_device('cuda')}")
        _clean("cuda")
    amounts = (f"{each} MB" for each in ("predicted", "live", "requested", "allocated"))
    columns = ("batch", *amounts, "predicted / live", "predicted / allocated")
    memory = report.table(f"peak at length {sizes.length}", "job", *columns)
    columns = (
        "predicted",
        "found",
        "predicted / found",
        "found in eager",
        "libraries MB",
        "trace s",
    )
    fitting = report.table(f"largest batch within {sizes.budget / 1e9:g} GB", "job", *columns)
    wanted = [name for name in MODELS if not args.models or name in args.models.split(",")]
    for name in wanted[:1] if args.smoke else wanted:
        for training in (False, True):
            torch.manual_seed(args.seed)
            module = MODELS[name](sizes).to(args.device, torch.bfloat16).train(training)
            optimizer = torch.optim.AdamW(module.parameters()) if training else None
            job = Job(name, module, sizes, args.device, training, optimizer)
            kind = f"{name}, {'training' if training else 'forward'}"
            if perf_counter() - began > args.seconds:
                report.note(f"{kind} was left out: {args.seconds} s were over")
            else:
                try:
                    _measure(job, report, memory, fitting)
                except (symshape.SymShapeError, RuntimeError) as error:
                    report.note(f"{kind} broke off: {type(error).__name__}: {str(error)[:400]}")
                print(f"{kind}: {perf_counter() - began:.0f} s since the start", flush=True)
            del job, module, optimizer
            _clean(args.device)
    return report


if __name__ == "__main__":
    main()
