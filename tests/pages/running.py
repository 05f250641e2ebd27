"""Run the code of pages: ``python -m tests.pages.running [PAGE ...]`` (all).

All blocks of a page run in order in one namespace, as a reader would paste them.  Lines of the code
are lines of the page, so that the origins that symshape reports (file, line, source) can be read.
A block whose library is not installed is skipped, and said to be.
"""

from __future__ import annotations

import doctest
import re
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import torch

from tests.discovery import REPOSITORY
from tests.pages.markdown import README, Block, blocks, pages

_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
_CODE_LINE = re.compile(r"^\[SYM\d+\] .*\n", re.MULTILINE)


class _Checker(doctest.OutputChecker):
    """Compares output; a traceback on a page may omit the note with the code, but must not show a
    wrong one.
    """

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        """Return whether the output is the expected one."""
        if not _CODE_LINE.search(want):
            got = _CODE_LINE.sub("", got)
        return super().check_output(want, got, optionflags)


@contextmanager
def _notes_compared() -> Iterator[None]:
    """Have doctest compare an exception with its notes; before Python 3.13 it compares the last
    line alone.
    """
    lines = traceback.format_exception_only

    def joined(*args: object, **kwargs: object) -> list[str]:
        return ["".join(lines(*args, **kwargs))]  # type: ignore[arg-type]

    with patch.object(traceback, "format_exception_only", joined):
        yield


def run(path: Path) -> int:
    """Run the blocks of a page and return how many of them failed."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    found = [block for block in blocks(path.read_text(encoding="utf-8")) if block.reason is None]
    torch._dynamo.reset()
    torch.manual_seed(0)
    with warnings.catch_warnings():
        return sum(_run_block(path, block, namespace) for block in found)


def _run_block(path: Path, block: Block, namespace: dict[str, object]) -> bool:
    """Run one block; return whether it failed."""
    if block.missing:
        print(f"{path.name}:{block.line}: skipped, {', '.join(block.missing)} cannot be imported")
        return False
    if block.language == "pycon":
        test = doctest.DocTestParser().get_doctest(
            block.code, namespace, path.name, str(path), block.line - 1
        )
        with _notes_compared():
            failed = (
                doctest.DocTestRunner(_Checker(), optionflags=_FLAGS)
                .run(test, clear_globs=False)
                .failed
            )
        namespace |= test.globs
        return bool(failed)
    try:
        exec(compile("\n" * (block.line - 1) + block.code, str(path), "exec"), namespace)
    except Exception:
        print(f"{path}:{block.line}", *traceback.format_exc().splitlines(), sep="\n  ")
        return True
    return False


def main(names: list[str]) -> int:
    """Run the pages of these names, or all, and return how many blocks failed."""
    failed = 0
    for path in [(REPOSITORY / name).resolve() for name in names] or [README, *pages()]:
        start = time.perf_counter()
        wrong = run(path)
        failed += wrong
        print(
            f"{path.relative_to(REPOSITORY)}: {wrong} failed, {time.perf_counter() - start:.1f} s",
            flush=True,
        )
    return failed


if __name__ == "__main__":
    sys.exit(1 if main(sys.argv[1:]) else 0)
