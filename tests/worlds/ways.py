"""The ways to run a program that are compared with eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch._dynamo

import symshape
from tests.worlds.world import Way, World, look


def _ours(made: World) -> Callable[..., Any]:
    return symshape.compile(made.fn, fullgraph=True, runner=made.runner)  # type: ignore[no-any-return]


def _default(made: World) -> Callable[..., Any]:
    return symshape.compile(made.fn, runner=made.runner)  # type: ignore[no-any-return]


def _dynamo(made: World) -> Callable[..., Any]:
    torch._dynamo.reset()
    return torch.compile(made.fn, backend="eager")


def _stale(made: World) -> Callable[..., Any]:
    """Answers what it answered first for arguments that look the same: what a corpus about state
    must convict.
    """
    known: dict[str, Any] = {}

    def call(*args: Any, **kwargs: Any) -> Any:
        key = repr(look((args, kwargs)))
        if key not in known:
            known[key] = made.fn(*args, **kwargs)
        return known[key]

    return call


OURS = Way("ours", _ours)  # refusals are seen
DEFAULT = Way("default", _default, ())  # what is refused runs as it is, and must be right
DYNAMO = Way("dynamo", _dynamo, (torch._dynamo.exc.TorchDynamoException,), limit=60.0)
STALE = Way("stale", _stale)
WAYS = {way.name: way for way in (OURS, DEFAULT, DYNAMO, STALE)}
