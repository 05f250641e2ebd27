"""``python -m symshape.native``: compile the C++ extensions for the installed torch, now, and
wait.
"""

from __future__ import annotations

import sys
import time

from symshape.native import cache
from symshape.native.building import CannotBuild, failure, plan
from symshape.native.compiling import compile_all
from symshape.native.extensions import EXTENSIONS


def main() -> int:
    """Compile all extensions into the cache, even those that are there; return 0 where all of them
    are now.
    """
    begun = time.monotonic()
    try:
        compile_all(plan(), again=True, wait=True, say=_say)
    except (CannotBuild, OSError) as error:
        _say(f"nothing was compiled: {error}")
        return 1
    report = cache.report()
    if report is None:
        _say(f"what was compiled cannot be used: {cache.distrust(cache.folder() / cache.REPORT)}")
        return 1
    for name, said in report["errors"].items():
        _say(f"{name} did not compile:\n{said}")
    _say(
        failure(report)
        or f"{len(EXTENSIONS)} extensions in {time.monotonic() - begun:.0f} s, in {cache.folder()}"
    )
    return 1 if report["errors"] else 0


def _say(text: str) -> None:
    sys.stderr.write(f"symshape: {text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
