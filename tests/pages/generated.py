"""Pages, parts of pages and pictures that a script makes from the code and from recorded results.

``python -m tests.pages --write`` writes them; ``tests/test_docs.py`` fails where one is stale.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.discovery import REPOSITORY
from tests.pages import benchmarks, floors, layers, public_names, reference, streams
from tests.pages.markdown import DOCS, README, listed_pages, page_text, pages

_PART = re.compile(r"(<!-- generated: (?P<name>\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_PARTS = {
    "picture": lambda: streams.line("docs/pictures/stream.svg", "tests/bench/results"),
    "results": lambda: streams.table("tests/bench/results", short=True),
    "floors": lambda: floors.table(),
    "runners": reference.runners,
}
"""The generated parts of pages that people write, by the name in their marks."""


def made() -> dict[Path, str]:
    """Return the content of each generated file by its path, as the code and the recorded results
    give it now.
    """
    files: dict[Path, str] = {DOCS / name: make() for name, make in _PAGES.items()}
    for stream in streams.recorded():
        files[DOCS / "pictures" / f"stream-{stream.name}.svg"] = streams.picture(stream)
    files[DOCS / "pictures" / "layers.svg"] = layers.picture()
    files[DOCS / "pictures" / "stream.svg"] = streams.picture(streams.compared())
    written = [path for path in pages() if path not in files]
    for page in (README, README.with_name("CONTRIBUTING.md"), *written):
        text = page.read_text(encoding="utf-8")
        if page in written and not _PART.search(text):
            continue
        files[page] = _PART.sub(lambda found: found[1] + _PARTS[found["name"]]() + found[3], text)
    files[DOCS / "llms.txt"] = _llms(
        {path: text for path, text in files.items() if path.suffix == ".md"}
    )
    return files


def stale() -> list[str]:
    """Return the generated files that differ from what would be made now."""
    return [
        str(path.relative_to(REPOSITORY))
        for path, text in made().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]


def _llms(fresh: Mapping[Path, str]) -> str:
    """Return ``llms.txt``: each page with its title and its first sentence, for readers that are
    programs.
    """
    lines = [
        "# symshape",
        "",
        "> A symbolic shape and guard engine for PyTorch programs whose sizes vary.",
        "",
    ]
    for name in listed_pages():
        path = DOCS / name
        text = fresh[path] if path in fresh else page_text(name)
        title, _, rest = text.removeprefix("# ").partition("\n")
        first = next((each for each in rest.split("\n\n") if re.match(r"[\w`]", each.strip())), "")
        sentence = re.split(r"(?<=[.:?])\s", " ".join(first.split()), maxsplit=1)[0]
        lines.append(f"- [{title}]({name}): {sentence}")
    return "\n".join(lines) + "\n"


_PAGES: dict[str, Callable[[], str]] = {
    "benchmarks.md": benchmarks.page,
    "reference/symshape.md": lambda: public_names.page(
        "symshape", "The public names of the package `symshape`, with the first sentence of each."
    ),
    "reference/guards.md": lambda: public_names.page(
        "guards",
        "The public names of the package `guards`: integers and conditions, without torch.",
    ),
    "reference/meta_fns.md": lambda: public_names.page(
        "meta_fns",
        "The public names of the package `meta_fns`: shape, cost and padding rules of operators.",
    ),
    "reference/environment.md": reference.variables,
    "reference/options.md": reference.options,
    "reference/events.md": reference.events,
    "reference/metrics.md": reference.metrics,
    "reference/command-line.md": reference.command_line,
}
