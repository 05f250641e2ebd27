"""What a test sees inside a trace: carried out by an exception, as a list outside that grows is
refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from symshape import SymShapeError


class Found(SymShapeError):
    """Carries what was found; of our own kind, for which no trace is tried again with fixed
    sizes.
    """

    def __init__(self, found: Any) -> None:
        super().__init__()
        self.found = found


def found_by(run: Callable[[], Any]) -> Any:
    """What ``run`` carries out of its trace."""
    with pytest.raises(Found) as raised:
        run()
    return raised.value.found
