"""What tests of compiled functions share: programs serve, however long a test calls them.

Whether the function itself is faster is measured, so it would be chance which of them a test looks at after its 64th
call; ``runtime/test_plain_calls.py`` tests that, and ``test_everyday_whole.py`` has both take turns.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from symshape.runtime.plain_calls import PlainCalls


@pytest.fixture(autouse=True, scope="session")
def programs_serve() -> Iterator[None]:
    """No trials, but where a test begins one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PlainCalls, "now_and_then", lambda *given: None)
        yield
