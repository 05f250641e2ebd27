"""Hooks of MkDocs: links that leave docs/ become code, and each page is also there as plain Markdown."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

_OUTSIDE = re.compile(r"\[(?P<text>[^\]]+)\]\((?:\.\./)+(?P<path>(?:tests|notebooks|CONTRIBUTING)[^)#]*)(?:#[^)]*)?\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Write links to files of the repository, which the site does not have, as their paths."""
    return _OUTSIDE.sub(
        lambda match: (
            f"{match['text']} (`{match['path']}`)" if match["text"] != match["path"] else f"`{match['path']}`"
        ),
        markdown,
    )


def on_post_build(config: Any, **_: Any) -> None:
    """Copy each page as plain Markdown beside its HTML, for readers that are programs."""
    docs, site = Path(config["docs_dir"]), Path(config["site_dir"])
    for path in docs.rglob("*.md"):
        target = site / path.relative_to(docs)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
