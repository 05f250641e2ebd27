"""What tests of compiled functions share: programs serve, however long a test calls them.

Whether the function itself is faster is measured, so it would be chance which of them a test looks
at after its 64th call; ``runtime/test_eager_or_program.py`` tests that, and
``test_everyday_whole.py`` has both take turns.  Whether a trace finds room in the promise is
measured too; ``runtime/policy/test_programs.py`` and ``runtime/test_eager_calls.py`` test that.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from symshape.runtime.eager_or_program import EagerOrProgram
from symshape.runtime.policy.programs import Programs


@pytest.fixture(autouse=True, scope="session")
def programs_serve() -> Iterator[None]:
    """No trials, and room for each trace, but where a test wants it otherwise."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EagerOrProgram, "now_and_then", lambda *given: None)
        patch.setattr(Programs, "has_room", lambda *given: True)
        yield
