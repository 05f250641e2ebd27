"""Compares the golden files with what is made now, or writes them: ``python -m tests.golden
[--write] [NAME ...]``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tests.golden.texts import TEXTS, difference, path_of


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(TEXTS)} (all)")
    parser.add_argument("--write", action="store_true", help="write what is made now")
    asked = parser.parse_args(argv)
    unknown = set(asked.names) - TEXTS.keys()
    if unknown:
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(TEXTS)}")
    differing = 0
    for name in asked.names or TEXTS:
        text = TEXTS[name]()
        found = difference(name, text)
        differing += bool(found)
        print(found or f"{name} is as it was")
        if asked.write:
            path_of(name).write_text(text, encoding="utf-8")
    return 1 if differing and not asked.write else 0


if __name__ == "__main__":
    sys.exit(main())
