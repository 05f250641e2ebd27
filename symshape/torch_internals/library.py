"""Registrations for operators beside their kernels, and higher-order operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from symshape.torch_internals.private import needed

CustomOpDef: Any = needed("torch._library.custom_ops.CustomOpDef")
generic_associative_scan: Callable[..., Any] = needed(
    "torch._higher_order_ops.associative_scan.generic_associative_scan"
)
generic_scan: Callable[..., Any] = needed("torch._higher_order_ops.scan.generic_scan")
