"""Say which generated pages are stale, or write them: ``python -m tests.pages [--write]``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tests.pages.generated import made, stale


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.pages", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write what is made now")
    asked = parser.parse_args(argv)
    found = stale()
    print(*(f"{name} is stale" for name in found), sep="\n")
    if asked.write:
        for path, text in made().items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return 1 if found and not asked.write else 0


if __name__ == "__main__":
    sys.exit(main())
