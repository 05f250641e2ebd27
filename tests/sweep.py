"""Architectures of transformers and of vision, tiny and with random weights: what a trace of each keeps dynamic.

    python -m tests.sweep                       # all; a line for each
    python -m tests.sweep --only bert,unet --seconds 120
    python -m tests.sweep --json tests/bench/results/sweep-cpu.json

Each is traced once with every size dynamic, at batch 3 and length 8, and called at four other shapes: is the result
eager's, or do guards turn the call away?  What cannot be built here (no such architecture in this version) is left out.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import torch
from torch import nn

import symshape
from symshape import SymShapeError

SHAPES = ((3, 8), (2, 8), (5, 8), (3, 12), (4, 16))
DECODERS = """
    gpt2 gpt_neo gpt_neox gpt_bigcode gptj llama mistral mixtral qwen2 qwen3 qwen2_moe gemma gemma2 phi phi3 opt bloom
    falcon mpt codegen stablelm starcoder2 cohere granite olmo olmo2 persimmon biogpt xglm ctrl openai-gpt mamba rwkv
    nemotron glm gemma3_text qwen3_moe smollm3 ernie4_5 arcee helium lfm2 seed_oss gpt_oss mamba2 recurrent_gemma
    deepseek_v2 deepseek_v3 olmoe exaone4 glm4 granitemoe cohere2 phimoe diffllama bitnet doge jamba zamba2 falcon_h1
    bamba minimax dots1 apertus hunyuan_v1_dense
"""
ENCODERS = """
    bert roberta distilbert albert electra deberta deberta-v2 mpnet camembert convbert roformer squeezebert mobilebert
    nystromformer funnel fnet ernie layoutlm xlm megatron-bert rembert data2vec-text ibert yoso modernbert esm
    xlm-roberta splinter longformer big_bird luke mra xmod roc_bert canine bert-generation
"""
PAIRS = "t5 bart mbart pegasus marian blenderbot m2m_100 mt5 led"
IMAGES = """
    vit deit beit convnext resnet swin dinov2 regnet mobilenet_v2 efficientnet segformer poolformer pvt levit cvt bit
    vit_msn focalnet swinv2 convnextv2 mobilevit dinov2_with_registers ijepa mobilenet_v1
"""
_TINY = {
    **dict.fromkeys(
        ("hidden_size", "d_model", "n_embd", "dim", "embedding_size", "emb_dim", "attention_hidden_size"), 32
    ),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "num_layers", "n_layers", "encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "num_heads", "n_heads", "encoder_attention_heads"), 4),
    **dict.fromkeys(("decoder_attention_heads", "num_key_value_heads"), 4),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "d_ff", "encoder_ffn_dim", "decoder_ffn_dim", "hidden_dim"), 64),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len"), 64),
    "vocab_size": 100,
    "head_dim": 8,
    "rotary_dim": 4,
    "d_kv": 8,
    "num_decoder_layers": 2,
    "image_size": 32,
    "patch_size": 8,
    "num_experts": 4,
    "num_local_experts": 4,
    "moe_intermediate_size": 32,
    "pad_token_id": 0,
    "shared_expert_intermediate_size": 32,
    "use_cache": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    "embedding_dim": 32,
    "state_size": 8,
    "attention_types": [[["global", "local"], 1]],
}


@attrs.frozen
class Row:
    """What became of one architecture."""

    name: str
    outcome: str
    kept: str = ""
    guards: int = 0
    seconds: float = 0.0
    reason: str = ""


Made = tuple[nn.Module, Callable[[int, int], Mapping[str, Any]]]


def _ids(b: int, n: int) -> torch.Tensor:
    return torch.randint(3, 100, (b, n))


def _of_transformers(name: str, kind: str) -> Made:
    import transformers

    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    config_class = transformers.models.auto.configuration_auto.CONFIG_MAPPING[name]
    given = vars(config_class())
    config = config_class(
        **{key: value for key, value in _TINY.items() if key in given or key in config_class.attribute_map}
    )
    model = transformers.AutoModel.from_config(config).eval()
    if kind == "images":
        return model, lambda b, n: {"pixel_values": torch.randn(b, 3, 32, 32)}
    if kind == "pairs":
        return model, lambda b, n: {"input_ids": _ids(b, n), "decoder_input_ids": _ids(b, n // 2)}
    return model, lambda b, n: {"input_ids": _ids(b, n), "attention_mask": torch.ones(b, n, dtype=torch.long)}


class _Residual(nn.Module):
    def __init__(self, *inner: nn.Module) -> None:
        super().__init__()
        self.inner = nn.Sequential(*inner)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The input and what is made of it."""
        return x + self.inner(x)


class _Concatenated(_Residual):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The input beside what is made of it."""
        return torch.cat([x, self.inner(x)], 1)


def _conv(a: int, b: int, **options: Any) -> list[nn.Module]:
    return [nn.Conv2d(a, b, 3, padding=1, **options), nn.BatchNorm2d(b), nn.ReLU()]


def _head(width: int) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 5)]


def _vision() -> dict[str, nn.Module]:
    """Networks in the manner of torchvision's."""
    squeeze = [nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 8, 1), nn.Sigmoid()]
    shuffle = [nn.Conv2d(8, 8, 1, groups=2), nn.ChannelShuffle(2), *_conv(8, 8, groups=8)]
    up = [nn.MaxPool2d(2), *_conv(8, 8), nn.ConvTranspose2d(8, 8, 2, 2)]
    return {
        "alexnet": nn.Sequential(*_conv(3, 8, stride=2), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 5)),
        "vgg": nn.Sequential(*_conv(3, 8), nn.MaxPool2d(2), *_conv(8, 8), nn.MaxPool2d(2), *_head(8)),
        "resnet of blocks": nn.Sequential(*_conv(3, 8), _Residual(*_conv(8, 8)), *_conv(8, 8, stride=2), *_head(8)),
        "densenet": nn.Sequential(*_conv(3, 8), _Concatenated(*_conv(8, 4)), _Concatenated(*_conv(12, 4)), *_head(16)),
        "mobilenet": nn.Sequential(*_conv(3, 8), *_conv(8, 8, groups=8), nn.Conv2d(8, 8, 1), nn.Hardswish(), *_head(8)),
        "squeeze and excite": nn.Sequential(*_conv(3, 8), _Residual(*squeeze), *_head(8)),
        "shufflenet": nn.Sequential(*_conv(3, 8), *shuffle, *_head(8)),
        "unet": nn.Sequential(*_conv(3, 8), _Concatenated(*up), nn.Conv2d(16, 2, 1)),
        "fcn": nn.Sequential(*_conv(3, 8, stride=2), nn.Conv2d(8, 5, 1), nn.Upsample(scale_factor=2, mode="bilinear")),
        "superresolution": nn.Sequential(*_conv(3, 8), nn.Conv2d(8, 12, 1), nn.PixelShuffle(2)),
    }


def _architectures() -> Iterator[tuple[str, Callable[[], Made]]]:
    for kind, names in (("text", DECODERS + ENCODERS), ("pairs", PAIRS), ("images", IMAGES)):
        for name in names.split():
            yield name, lambda name=name, kind=kind: _of_transformers(name, kind)  # type: ignore[misc]
    for name, net in _vision().items():
        yield name, lambda net=net: (net.eval(), lambda b, n: {"input": torch.randn(b, 3, 4 * n, 4 * n)})  # type: ignore[misc]


class TooLong(BaseException):
    """The processor time of one architecture is over."""


@contextlib.contextmanager
def _limit(seconds: int) -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise TooLong

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _same(expected: Any, got: Any) -> bool:
    pairs = zip(*(torch.utils._pytree.tree_leaves(each) for each in (expected, got)), strict=True)
    return all(torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in pairs)


def judge(name: str, make: Callable[[], Made], seconds: int) -> Row:
    """One architecture."""
    torch.manual_seed(0)
    start = time.process_time()
    try:
        with _limit(seconds), torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                model, arguments = make()
                model(**arguments(*SHAPES[0]))
            except Exception as error:
                return Row(name, "not built", reason=f"{type(error).__name__}: {error}")
            run = model.forward if isinstance(model, nn.Sequential) else model
            try:
                traced = symshape.trace(run, **arguments(*SHAPES[0]), dynamic=True)
            except SymShapeError as error:
                return Row(name, "refused", reason=f"{type(error).__name__}: {error}")
            calls = [arguments(*shape) for shape in SHAPES]
            admitted = [traced.check(**call) for call in calls]
            wrong = [i for i, call in enumerate(calls) if admitted[i] and not _same(model(**call), traced(**call))]
    except TooLong:
        return Row(name, "too long", seconds=time.process_time() - start)
    except Exception as error:
        return Row(name, "crash", reason=f"{type(error).__name__}: {error}")
    kept = ("batch" if all(admitted[:3]) else "") + (" length" if admitted[3] and admitted[4] else "")
    outcome = "wrong" if wrong else "right"
    return Row(name, outcome, kept.strip() or "nothing", len(traced.guards), time.process_time() - start)


def main(argv: Sequence[str] | None = None) -> list[Row]:
    """Prints the table, a line for each architecture as it is done."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--json", type=Path, help="where the table is written")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    only = {each for each in args.only.split(",") if each}
    rows = []
    print("| architecture | outcome | keeps dynamic | guards | CPU s | reason |\n|---|---|---|---|---|---|", flush=True)
    for name, make in _architectures():
        if not only or name in only:
            row = judge(name, make, args.seconds)
            rows.append(row)
            reason = " ".join(row.reason.split())[:240].replace("|", "/")
            print(
                f"| {row.name} | {row.outcome} | {row.kept} | {row.guards} | {row.seconds:.1f} | {reason} |", flush=True
            )
    counts = {outcome: sum(row.outcome == outcome for row in rows) for outcome in sorted({row.outcome for row in rows})}
    whole = sum(row.kept == "batch length" for row in rows)
    print(f"\n{len(rows)} architectures: {counts}; {whole} keep batch and length")
    if args.json is not None:
        table = {"torch": torch.__version__, "shapes": SHAPES, "rows": [attrs.asdict(row) for row in rows]}
        args.json.write_text(json.dumps(table, indent=1) + "\n")
    return rows


if __name__ == "__main__":
    main()
