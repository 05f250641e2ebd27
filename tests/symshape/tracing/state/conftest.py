"""What tests of state share."""

from __future__ import annotations

import pytest

from symshape.tracing.state.instrument import hooks
from symshape.tracing.state.undo import side_effects


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process with one thread: a worker of pytest-xdist has a second one, which reads what
    it is told.
    """
    for module in (hooks, side_effects):
        monkeypatch.setattr(module, "is_alone", lambda: True)
