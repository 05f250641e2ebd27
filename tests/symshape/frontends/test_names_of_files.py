"""Programs whose files have names that are not UTF-8, and paths that users write."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import symshape
from symshape.store.disk import DiskStore, default_path, user_path

SOURCE = b"""
def rows(x):
    if x.shape[0] > 2:
        return x.view(-1, 4)
    return x

def answers(x):
    return x if x.sum() > 0 else x * 2
"""


@pytest.fixture
def program(tmp_path: Path) -> dict[str, Any]:
    """Functions of a file whose name is no UTF-8."""
    path = os.fsencode(tmp_path) + b"/caf\xe9\xff\x1b.py"
    try:
        with open(path, "wb") as file:
            file.write(SOURCE)
    except OSError:
        pytest.skip("this file system has no such names")
    found: dict[str, Any] = {}
    exec(compile(SOURCE, os.fsdecode(path), "exec"), found)
    return found


TEXTS: dict[str, Callable[[Any], str]] = {
    "report": lambda f: f.report(),
    "explain_miss": lambda f: f.explain_miss(),
    "explain_fallback": lambda f: f.explain_fallback(),
    "metrics": lambda f: f.metrics(),
    "html": lambda f: f._repr_html_(),
    "page": lambda f: symshape.explore(f).html(),
    "json": lambda f: symshape.explore(f).report.to_json(),
}


@pytest.mark.parametrize("what", TEXTS)
def test_what_is_told_of_a_file_whose_name_is_not_utf_8(program: dict[str, Any], what: str) -> None:
    for name, sizes in (("rows", (8, 12, 2)), ("answers", (3,))):
        compiled = symshape.compile(program[name], dynamic=True)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            for size in sizes:
                compiled(torch.ones(size))
        text = TEXTS[what](compiled)
        assert text.encode()
        assert "\x1b" not in text
        assert all(
            str(each.message).isprintable() or "\x1b" not in str(each.message) for each in told
        )


def test_a_page_of_such_a_file_is_saved(program: dict[str, Any], tmp_path: Path) -> None:
    compiled = symshape.compile(program["rows"], dynamic=True)
    compiled(torch.ones(8))
    saved = symshape.explore(compiled).save(tmp_path / "report.html")
    assert "caf\\\\xe9\\\\xff\\\\x1b.py" in saved.read_text(encoding="utf-8")


def test_names_of_modules_that_are_not_utf_8(tmp_path: Path) -> None:
    model = torch.nn.Module()
    model.register_buffer("scale", torch.ones(3))
    model.add_module("caf\udce9", torch.nn.Linear(3, 3))
    compiled = symshape.compile(lambda x: model._modules["caf\udce9"](x) * model.scale)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", symshape.FallbackWarning)
        compiled(torch.ones(2, 3))
    symshape.explore(compiled).save(tmp_path / "report.html")
    assert compiled.report().encode()


class TestPathsOfUsers:
    @pytest.mark.parametrize("path", ["~no_such_user_of_ours/x", "a\0b"])
    def test_no_such_home_folder(self, path: str) -> None:
        for use in (
            lambda: symshape.compile(torch.relu, store=path),
            lambda: symshape.compile(torch.relu, store=Path(path)),
            lambda: DiskStore(path),
            lambda: symshape.explore(symshape.compile(torch.relu)).save(path),
        ):
            with pytest.raises(symshape.InputError, match=r"write the whole path|NUL character"):
                use()

    def test_an_empty_path_is_a_mistake(self) -> None:
        """Of a variable that is not set, say: nothing is written to the current folder."""
        for use in (
            lambda: symshape.compile(torch.relu, store=""),
            lambda: DiskStore(""),
            lambda: symshape.explore(symshape.compile(torch.relu)).save(""),
        ):
            with pytest.raises(symshape.InputError, match="it is empty"):
                use()

    def test_of_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SYMSHAPE_STORE", "~no_such_user_of_ours/x")
        with pytest.raises(symshape.InputError, match="write the whole path"):
            default_path()
        monkeypatch.setenv("SYMSHAPE_STORE", "~/entries")
        assert default_path() == Path.home() / "entries"

    def test_the_home_folder(self) -> None:
        assert user_path("~/x") == Path.home() / "x"
        assert user_path(Path("a/~b")) == Path("a/~b")


def test_counters_are_never_negative_beside_threads_and_resets(tmp_path: Path) -> None:
    compiled = symshape.compile(lambda x: x * 2, dynamic=True, store=tmp_path)
    stop = threading.Event()

    def call() -> None:
        while not stop.is_set():
            compiled(torch.ones(3))

    threads = [threading.Thread(target=call) for _ in range(3)]
    for each in threads:
        each.start()
    try:
        for _ in range(300):
            compiled.reset()
            stats = compiled.stats()
            assert min(stats.calls, stats.traces, stats.hits, stats.misses, stats.loaded) >= 0, (
                stats
            )
            assert stats.hits <= stats.calls, stats
    finally:
        stop.set()
        for each in threads:
            each.join()


def test_hits_of_calls_that_began_before_a_reset() -> None:
    compiled = symshape.compile(lambda x: x * 2)
    compiled(torch.ones(3))
    compiled.reset()
    compiled._misses.traces += 2  # two calls that were traced meanwhile
    assert compiled.stats().hits == 0


def test_counters_are_of_one_moment() -> None:
    """However many calls other threads make while the counters are read."""
    compiled = symshape.compile(lambda x: x * 2)
    compiled(torch.ones(3))
    clocks = iter([1, 5, 9])

    class Meanwhile(type(compiled._cache)):  # type: ignore[misc]
        clock = property(lambda _: next(clocks), lambda *_: None)

    compiled._cache.__class__ = Meanwhile
    stats = compiled.stats()
    assert (stats.calls, stats.hits) == (1, 0)
