"""Finding and running what follows a naming convention: `tests/bench/bench_*.py` and
`tests/fuzz/fuzz_*.py`.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent


def names(kind: str) -> tuple[str, ...]:
    """The names of all modules of a kind (`"bench"` or `"fuzz"`), without prefix, sorted."""
    folder = REPOSITORY / "tests" / kind
    return tuple(sorted(path.stem.removeprefix(f"{kind}_") for path in folder.glob(f"{kind}_*.py")))


def main_of(kind: str, name: str) -> Callable[[Sequence[str]], Any]:
    """The `main(argv)` of one module of a kind.

    Raises: SystemExit with a sentence for the user where there is no such module or it has no
    `main`.
    """
    if name not in names(kind):
        raise SystemExit(
            f"no {kind} called {name!r}; there are: {', '.join(names(kind)) or 'none yet'}"
        )
    module = importlib.import_module(f"tests.{kind}.{kind}_{name}")
    main = getattr(module, "main", None)
    if not callable(main):
        raise SystemExit(f"tests/{kind}/{kind}_{name}.py has no main(argv), see CONTRIBUTING.md")
    return main  # type: ignore[no-any-return]


def split_names(argv: Sequence[str] | None) -> tuple[list[str], list[str]]:
    """Split a command line into the names it starts with and the flags after them."""
    words = list(sys.argv[1:] if argv is None else argv)
    flags = next((i for i, word in enumerate(words) if word.startswith("-")), len(words))
    return words[:flags], words[flags:]


def run_apart(
    kind: str, name: str, arguments: Sequence[str], *, timeout: float | None = None
) -> int:
    """Run one module of a kind in a process of its own, so that no cache of one reaches another;
    its exit status.
    """
    command = [sys.executable, "-m", f"tests.{kind}", name, *arguments]
    return subprocess.run(command, cwd=REPOSITORY, check=False, timeout=timeout).returncode
