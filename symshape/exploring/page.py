"""One HTML page that needs nothing else: the report as JSON, and the scripts and styles that show
it.

Nothing of a report becomes markup: it stands in a script element of a type that no browser runs,
with ``<`` escaped, and the scripts put it on the page as text alone.
"""

from __future__ import annotations

from functools import cache
from html import escape
from importlib import resources

from guards.text.escaping import encodable
from symshape.exploring.report_records import Report

SCRIPTS = (
    *(
        "tape",
        "dom",
        "space",
        "whatif",
        "regionmap",
        "guards",
        "dispatch",
        "serving",
        "timeline",
        "program",
    ),
    *("compare", "report"),
)
"""The scripts, in the order in which they are read: one module when put together."""

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; \
script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body class="symshape-page">
<main id="symshape">\
<noscript>This report needs JavaScript, and nothing from the network.</noscript></main>
<script type="application/json" id="symshape-data">{data}</script>
<script type="module">{script}
mountPage(document);
</script>
</body>
</html>
"""


@cache
def asset(name: str) -> str:
    """Return the text of a file in ``assets``."""
    return (
        resources.files("symshape.exploring").joinpath("assets", name).read_text(encoding="utf-8")
    )


@cache
def script() -> str:
    """Return all scripts as one module, whose default export is the one that anywidget expects."""
    return "\n".join(asset(f"{name}.js") for name in SCRIPTS)


def embedded(json: str) -> str:
    r"""Return JSON escaped for a script element.

    >>> print(embedded('{"a":"</script><!--"}'))
    {"a":"\u003c/script>\u003c!--"}
    """
    return json.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def page(report: Report) -> str:
    """Return the whole page.

    >>> page(Report("nothing", "guards", [], [], [], [])).count("<script")
    2
    """
    return _PAGE.format(
        title=encodable(escape(f"{report.title} – symshape")),
        style=asset("report.css"),
        data=embedded(report.to_json()),
        script=script(),
    )
