"""Checks of what eager torch can run on this machine: not every processor has a kernel for every
dtype.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

# oneDNN's words where a processor lacks the instructions: LSTMs in bfloat16 need AVX-512 or AMX.
_NO_KERNEL = ("could not create a primitive descriptor",)


def eager_has_kernels(fn: Callable[..., Any], *args: Any) -> bool:
    """Return whether ``fn(*args)`` runs in eager torch on this processor.

    Raises:
        RuntimeError: ``fn`` fails for another reason than a kernel that this processor lacks.
    """
    try:
        # the test itself says which warnings it expects
        with warnings.catch_warnings(action="ignore"):
            fn(*args)
    except RuntimeError as error:
        if not any(words in str(error) for words in _NO_KERNEL):
            raise
        return False
    return True


def skip_without_kernels(fn: Callable[..., Any], *args: Any) -> None:
    """Skip the test where eager torch has no kernel for ``fn(*args)`` on this processor."""
    if not eager_has_kernels(fn, *args):
        pytest.skip("eager torch has no kernel for this dtype on this processor")
