"""The result of ``symshape.explore``: a report that shows itself in a notebook, or is saved as a
page.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from symshape.exploring.page import page
from symshape.exploring.report_html import report_html
from symshape.exploring.report_records import Report
from symshape.store.disk import user_path


class Exploration:
    """A report: as data, as one HTML page, as a widget.

    Attributes:
        report: the records.
    """

    def __init__(self, report: Report) -> None:
        self.report = report

    def html(self) -> str:
        """Return the page: one self-contained document, which needs no server and no network."""
        return page(self.report)

    def save(self, path: str | Path) -> Path:
        """Write the page to a file; return its path.

        Raises:
            InputError: the path begins with ``~`` and a user that there is not.

        >>> import tempfile, guards, symshape
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     saved = symshape.explore(guards.GuardSet.read("n % 8 == 0")).save(
        ...         f"{folder}/report.html"
        ...     )
        ...     saved.read_text(encoding="utf-8")[:15]
        '<!DOCTYPE html>'
        """
        target = user_path(path)
        target.write_text(self.html(), encoding="utf-8")
        return target

    def widget(self) -> Any:
        """Return the report as a widget for notebooks.

        Raises:
            ImportError: anywidget is not installed (the extra ``notebook``).
        """
        from symshape.exploring.widget import widget_of

        return widget_of(self.report)

    def _repr_html_(self) -> str:
        return report_html(self.report)

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """Return the widget for a notebook that can show one, and tables for any other place."""
        static = {"text/plain": repr(self), "text/html": self._repr_html_()}
        if find_spec("anywidget") is None:
            return static
        found = self.widget()._repr_mimebundle_(**kwargs)
        data, metadata = found if isinstance(found, tuple) else (found or {}, {})
        return {**data, **static}, metadata

    def __repr__(self) -> str:
        facts = dict(self.report.facts)
        counted = [
            f"{facts[name]} {name}"
            for name in ("entries", "ops", "guards", "calls")
            if name in facts
        ]
        article, _, rest = self.report.title.partition(" ")
        title = f"{article.lower()} {rest}" if article in ("A", "The") else self.report.title
        return f"<Exploration of {title}: {', '.join(counted)}>"
