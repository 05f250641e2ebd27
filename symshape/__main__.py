"""``python -m symshape``: the command line."""

from __future__ import annotations

from symshape.frontends.cli import main

if __name__ == "__main__":
    main()
