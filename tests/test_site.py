"""The site that `make docs` builds, in a real browser: everybody can use its pages, light, dark and narrow."""

from __future__ import annotations

import functools
import http.server
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
"""A page of each kind; the longest, benchmarks and the reference of names, take axe-core half a minute each."""

WINDOWS = [
    pytest.param(1280, False, id="light"),
    pytest.param(1280, True, id="dark"),
    pytest.param(620, False, id="narrow"),
]


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    if not (SITE / "index.html").is_file():
        pytest.skip("the site is not built: `make docs`")
    yield from windows()


@pytest.fixture(scope="module")
def served() -> Iterator[str]:
    """The address of the site on a server of this machine: there the theme's scripts do all that they can."""
    handler = functools.partial(Quiet, directory=str(SITE))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(("width", "dark"), WINDOWS)
def test_axe_finds_nothing_serious_and_nothing_is_wider_than_the_page(
    page: Page, served: str, width: int, dark: bool
) -> None:
    for name in PAGES:
        _look(page, served, name, width, dark)


@pytest.mark.slow
@pytest.mark.parametrize(("width", "dark"), WINDOWS)
def test_axe_finds_nothing_serious_on_any_page(page: Page, served: str, width: int, dark: bool) -> None:
    for path in sorted(SITE.rglob("*.html")):
        _look(page, served, path.relative_to(SITE).with_suffix("").as_posix(), width, dark)


def _look(page: Page, served: str, name: str, width: int, dark: bool) -> None:
    address = f"{served}/{name}.html"
    page.visit(address, width=width, dark=dark)
    page.driver.execute_script("localStorage.clear()")  # in which the theme keeps the scheme of the last page
    page.visit(address, width=width, dark=dark)
    scheme = page.driver.execute_script("return document.body.dataset.mdColorScheme")
    assert scheme == ("slate" if dark else "default"), name
    assert not page.serious_findings(), name
    root = "document.documentElement"
    assert page.driver.execute_script(f"return {root}.scrollWidth <= {root}.clientWidth"), f"{name} scrolls sideways"
    asked = [url for url in page.requests() if not url.startswith(served)]
    assert asked == [], f"{name} asks the network"


def test_pages_are_files_that_need_no_server(page: Page) -> None:
    page.visit(SITE / "start.html")
    assert not page.serious_findings()
    assert page.requests() == []


def test_the_search_finds_a_page(page: Page, served: str) -> None:
    page.visit(f"{served}/index.html")
    page.driver.execute_script("document.querySelector('#__search').click()")
    page.driver.execute_script("document.querySelector('.md-search__input').focus()")
    page.driver.switch_to.active_element.send_keys("MissError")
    page.wait("return document.querySelector('.md-search-result__link[href*=\"miss-error.html\"]') != null")


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A server of files that writes no log."""

    def log_message(self, *args: object) -> None:
        """Write nothing."""
