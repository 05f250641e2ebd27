"""Hooks of MkDocs: links that leave docs/ become code, what scrolls is reached by keys, pages are Markdown, too."""

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


def on_page_content(html: str, **_: Any) -> str:
    """Let the keyboard reach tables, which may scroll; the theme does so for code that is on the screen."""
    return html.replace("<table>", '<table tabindex="0">')


def on_post_build(config: Any, **_: Any) -> None:
    """Copy each page as plain Markdown beside its HTML, for readers that are programs."""
    docs, site = Path(config["docs_dir"]), Path(config["site_dir"])
    for path in docs.rglob("*.md"):
        target = site / path.relative_to(docs)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
