"""The programs that the command line traces: a model of the demo's, or the result of the user's
factory.
"""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import torch

from symshape.calls.policies import Dynamic
from symshape.cost.optimizers import OPTIMIZERS
from symshape.dims import Dim
from symshape.errors import InputError
from symshape.exploring.traffic import Batch
from symshape.frontends.trace import Traced, trace
from symshape.frontends.training import loss_of, trace_training

# -- The demo's models: small transformers architectures with random weights.
VOCABULARY = 512
POSITIONS = 256
"""The longest sequence that the models take, in tokens."""


@attrs.frozen
class Inputs:
    """One call of a language model: token ids and the attention mask, both
    ``(batch, sequence)``.
    """

    input_ids: torch.Tensor
    attention_mask: torch.Tensor

    @property
    def arguments(self) -> dict[str, torch.Tensor]:
        """Return the keyword arguments of the call."""
        return {"input_ids": self.input_ids, "attention_mask": self.attention_mask}


def _gpt2() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCABULARY,
            n_positions=POSITIONS,
            n_embd=64,
            n_layer=4,
            n_head=4,
            use_cache=False,
        )
    )


def _llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=POSITIONS,
            use_cache=False,
        )
    )


MODELS: Mapping[str, tuple[str, Callable[[], Any]]] = {
    "gpt2": ("GPT-2-shaped", _gpt2),
    "llama": ("Llama-shaped", _llama),
}
"""The models by name: a title, and a function that makes the model."""


def find_model(name: str) -> tuple[str, Callable[[], Any]]:
    """Return a model's title and maker.

    Raises:
        InputError: there is no such model.
    """
    if name not in MODELS:
        raise InputError(f"there is no model {name!r}; choose from {', '.join(MODELS)}")
    return MODELS[name]


def make_model(name: str, device: torch.device, seed: int = 0) -> torch.nn.Module:
    """Return a demo model in evaluation mode; the same seed gives the same weights.

    Raises:
        InputError: there is no such model, or transformers is not installed.
    """
    _, maker = find_model(name)
    try:
        import transformers
    except ModuleNotFoundError:
        raise InputError(
            "the demo's models come from transformers: pip install 'symshape[models]'"
        ) from None
    transformers.logging.set_verbosity_error()
    torch.manual_seed(seed)
    model: torch.nn.Module = maker()
    return model.eval().to(device)


def make_inputs(batch: Batch, generator: torch.Generator, device: torch.device) -> Inputs:
    """Return random tokens for a batch, padded on the right to its longest request, with the
    attention mask.
    """
    ids = torch.randint(0, VOCABULARY, (batch.size, batch.longest), generator=generator)
    lengths = torch.tensor(batch.lengths).unsqueeze(1)
    mask = (torch.arange(batch.longest).unsqueeze(0) < lengths).long()
    return Inputs((ids * mask).to(device), mask.to(device))


_LOSS = (
    "--train needs a module that returns its loss: let the factory return one whose forward "
    "computes it from the arguments"
)


def traced_program(name: str, wanted: Dynamic = None, train: str = "") -> Traced:
    """Return the trace of a model of the demo, of a factory's function, or of a step that trains
    it.

    Args:
        name: ``gpt2``, ``llama``, or ``module:factory``. The factory takes no arguments and returns
            ``(fn, args)``, ``(fn, args, kwargs)`` or ``(fn, args, kwargs, dynamic)``: an example
            call, and which sizes vary.
        wanted: the sizes that vary, in place of the model's or the factory's.
        train: one of ``OPTIMIZERS``; empty for none. The loss of the demo's models is the cross
            entropy of their logits; the result of a factory's module is the loss, or has it as
            ``.loss``.

    Raises:
        InputError: there is no such model, factory or optimizer, or the factory returns something
            else.
    """
    if train and train not in OPTIMIZERS:
        raise InputError(f"there is no optimizer {train!r}; choose from {', '.join(OPTIMIZERS)}")
    model, args, kwargs, dynamic = example_program(name)
    fn = _loss_of(model) if train and name in MODELS else model
    dynamic = dynamic if wanted is None else wanted
    if not train:
        with torch.no_grad():
            return trace(fn, *args, dynamic=dynamic, **kwargs)
    parameters = list(model.parameters()) if isinstance(model, torch.nn.Module) else []
    if not any(each.requires_grad for each in parameters):
        raise InputError(
            f"--train needs a module with parameters to train, and {name} gives none: let the "
            "factory return a torch.nn.Module"
        )
    return trace_training(
        fn,
        *args,
        loss=partial(loss_of, advice=_LOSS),
        optimizer=OPTIMIZERS[train],
        parameters=parameters,
        dynamic=dynamic,
        **kwargs,
    )


def example_program(name: str) -> tuple[Any, Sequence[Any], Mapping[str, Any], Any]:
    """Return a function, the arguments and keyword arguments of a call, and the sizes that vary.

    They come from a model of the demo or from a factory.

    Raises:
        InputError: there is no such model or factory, or the factory returns something else.
    """
    if name not in MODELS:
        return _example(name)
    ids = torch.randint(0, VOCABULARY, (3, 17))
    dims = {"input_ids": {0: Dim("batch", min=2), 1: Dim("length", min=2, max=POSITIONS)}}
    return make_model(name, torch.device("cpu")), (), {"input_ids": ids}, dims


def _loss_of(model: torch.nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
    def loss(input_ids: torch.Tensor) -> torch.Tensor:
        result = model(input_ids)
        logits = result if isinstance(result, torch.Tensor) else result.logits
        return torch.nn.functional.cross_entropy(logits.flatten(0, -2).float(), input_ids.flatten())

    return loss


def _example(name: str) -> tuple[Any, Sequence[Any], Mapping[str, Any], Any]:
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        raise InputError(
            f"{name!r} is no program: write one of {', '.join(MODELS)}, or MODULE:FACTORY"
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)  # as python -m does
    try:
        factory = pkgutil.resolve_name(name)
    except (ModuleNotFoundError, ValueError) as error:
        raise InputError(f"{module} cannot be imported: {error}") from None
    except AttributeError:
        raise InputError(f"{module} has no {attribute!r}") from None
    if not callable(factory):
        raise InputError(
            f"{name} is no function that answers (fn, args), but {factory!r}; a function is needed"
        )
    made = factory()
    if (
        not isinstance(made, tuple)
        or not 2 <= len(made) <= 4
        or not isinstance(made[1], (tuple, list))
    ):
        wanted = "(fn, args), (fn, args, kwargs) or (fn, args, kwargs, dynamic)"
        raise InputError(f"{name} must answer {wanted}, not {type(made).__name__}")
    return made[0], made[1], made[2] if len(made) > 2 else {}, made[3] if len(made) > 3 else None
