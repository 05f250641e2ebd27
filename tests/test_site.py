"""The site that `make docs` builds, in a real browser: everybody can use its pages, light, dark and
narrow.
"""

from __future__ import annotations

import functools
import http.server
import importlib
import json
import re
import threading
from collections.abc import Iterator

import pytest

from tests.discovery import REPOSITORY
from tests.symshape.exploring.browser import Page, windows

SITE = REPOSITORY / "build" / "site"
PAGES = (
    "index",
    "start",
    "guides/plan",
    "notebooks/01_guards_of_a_model",
    "coming-from-torch-compile",
    "errors/constraint-violation",
    "reference/command-line",
    "how-it-works",
)
"""A page of each kind; the longest, benchmarks and the reference of names, take axe-core half a
minute each.
"""

WINDOWS = [
    pytest.param(1280, False, id="light"),
    pytest.param(1280, True, id="dark"),
    pytest.param(620, False, id="narrow"),
]


@pytest.fixture(scope="module")
def page(built: None) -> Iterator[Page]:
    yield from windows()


@pytest.fixture(scope="module")
def built() -> None:
    if not (SITE / "index.html").is_file():
        pytest.skip("the site is not built: `make docs`")


@pytest.mark.parametrize("package", ["symshape", "guards", "meta_fns"])
def test_the_plain_reference_has_every_public_name(built: None, package: str) -> None:
    """Also of Markdown, which nothing renders: the site writes the docstrings into it."""
    text = (SITE / "reference" / f"{package}.md").read_text(encoding="utf-8")
    assert not re.search("^:::", text, re.MULTILINE)
    module = importlib.import_module(package)
    described = [
        name
        for name in module.__all__
        if getattr(getattr(module, name), "__module__", "").startswith(package)
    ]
    headings = set(re.findall(r"^## `(\w+)", text, re.MULTILINE))
    assert described
    assert set(described) <= headings


@pytest.fixture(scope="module")
def served() -> Iterator[str]:
    """The address of the site on a server of this machine: there the theme's scripts do all that
    they can.
    """
    handler = functools.partial(Quiet, directory=str(SITE))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.slow
@pytest.mark.parametrize(("width", "dark"), WINDOWS)
def test_axe_finds_nothing_serious_and_nothing_is_wider_than_the_page(
    page: Page, served: str, width: int, dark: bool
) -> None:
    for name in PAGES:
        _look(page, served, name, width, dark)


@pytest.mark.nightly
@pytest.mark.parametrize(("width", "dark"), WINDOWS)
def test_axe_finds_nothing_serious_on_any_page(
    page: Page, served: str, width: int, dark: bool
) -> None:
    for path in sorted(SITE.rglob("*.html")):
        _look(page, served, path.relative_to(SITE).with_suffix("").as_posix(), width, dark)


def _look(page: Page, served: str, name: str, width: int, dark: bool) -> None:
    address = f"{served}/{name}.html"
    page.visit(address, width=width, dark=dark)
    # in which the theme keeps the scheme of the last page
    page.driver.execute_script("localStorage.clear()")
    page.visit(address, width=width, dark=dark)
    scheme = page.driver.execute_script("return document.body.dataset.mdColorScheme")
    assert scheme == ("slate" if dark else "default"), name
    assert not page.serious_findings(), name
    root = "document.documentElement"
    assert page.driver.execute_script(f"return {root}.scrollWidth <= {root}.clientWidth"), (
        f"{name} scrolls sideways"
    )
    asked = [url for url in page.requests() if not url.startswith(served)]
    assert asked == [], f"{name} asks the network"


def test_pages_are_files_that_need_no_server(page: Page) -> None:
    page.visit(SITE / "start.html")
    assert not page.serious_findings()
    assert page.requests() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "first"),
    [
        ("MissError", "errors/miss-error.html"),
        ("my batch of one recompiles", "questions.html#why-does-my-batch-of-one-recompile"),
        ("how many MB do 32 graphs take", "questions.html#how-many-mb-do-32-cuda-graphs-take"),
        ("which sizes should I capture", "questions.html#which-sizes-should-i-capture"),
        (
            "stop it from tracing in production",
            "questions.html#how-do-i-stop-it-from-tracing-in-production",
        ),
        (
            "why is my model refused",
            "questions.html#why-is-my-model-refused-or-why-does-it-fall-back-to-eager",
        ),
        (
            "falls back to eager",
            "questions.html#why-is-my-model-refused-or-why-does-it-fall-back-to-eager",
        ),
        ("is my padding safe", "questions.html#is-my-padding-safe"),
    ],
)
def test_the_search_answers_first(page: Page, served: str, words: str, first: str) -> None:
    page.visit(f"{served}/index.html")
    page.driver.execute_script("document.querySelector('#__search').click()")
    page.driver.execute_script("document.querySelector('.md-search__input').focus()")
    page.driver.switch_to.active_element.send_keys(words)
    # The first result is a page; the section that answers is the first of its sections that match.
    script = (
        "const found = document.querySelector('.md-search-result__item');"
        "return found != null && [...found.querySelectorAll('a')].slice(0, 2)"
        ".some((link) => decodeURI(link.href).replace(/\\?[^#]*/, '').endsWith(arguments[0]))"
    )
    page.wait(script.replace("arguments[0]", json.dumps(first)))


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A server of files that writes no log."""

    def log_message(self, *args: object) -> None:
        """Write nothing."""
