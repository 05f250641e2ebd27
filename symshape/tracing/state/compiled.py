"""Our own checks of tensors and dictionaries in C++, where they were built for the torch that is installed.

``make`` builds them (``compiled_checks.cpp``); without them torch's own checks serve, which take longer.
"""

from __future__ import annotations

from typing import Any

import torch


def _checks() -> Any:
    try:
        from symshape.tracing.state import compiled_checks
    except ImportError:  # not built, or for another torch or Python
        return None
    return compiled_checks if torch.__version__ == compiled_checks.TORCH else None


_CHECKS = _checks()
METADATA: Any = getattr(_CHECKS, "Metadata", None)
"""``METADATA(tensors).same()``: whether a tuple of tensors still have their metadata; a TypeError for some kinds."""
VERSIONS: Any = getattr(_CHECKS, "Versions", None)
"""``VERSIONS(dicts)`` watches a tuple of dictionaries; ``unchanged(None)``: none was written; ``written()``: which."""
