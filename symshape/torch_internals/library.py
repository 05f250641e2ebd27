"""Registrations for operators beside their kernels and for distributions, and higher-order
operators.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from symshape.torch_internals.private import needed, optional

CustomOpDef: Any = needed("torch._library.custom_ops.CustomOpDef")
generic_associative_scan: Callable[..., Any] = needed(
    "torch._higher_order_ops.associative_scan.generic_associative_scan"
)
generic_scan: Callable[..., Any] = needed("torch._higher_order_ops.scan.generic_scan")
registry: Any = optional("torch._library.simple_registry.singleton")
"""The registrations of each operator beside its kernels: fake implementations, autograd and vmap
rules.
"""
divergences: Any = optional("torch.distributions.kl._KL_REGISTRY", {})
"""The functions that ``torch.distributions.register_kl`` registered, by pairs of classes."""


def register_fake(library: torch.library.Library, name: str, fake: Callable[..., Any]) -> None:
    """Register a fake implementation for an operator of our own library, as
    ``torch.library.register_fake`` does.

    Torch's function finds out the caller's file for its messages. The search visits each loaded
    module, which takes 30 ms. Here the file is given.
    """
    qualified = f"{library.ns}::{name}"
    try:
        registry.find(qualified).fake_impl.register(fake, fake.__code__.co_filename, lib=library)
    except (AttributeError, TypeError):  # a torch whose registry differs
        torch.library.register_fake(qualified, fake, lib=library)
