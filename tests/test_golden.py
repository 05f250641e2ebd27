"""What users read is as it was: tests/golden, written again with
``python -m tests.golden --write``.
"""

from __future__ import annotations

import importlib.metadata
import re

import pytest
import torch

import guards
import meta_fns
import symshape
from tests.discovery import REPOSITORY
from tests.golden.messages import messages_of
from tests.golden.texts import FAILING, HERE, TEXTS, difference, masked, path_of

# Whose guards these are: the models' source lines and torch's decompositions are part of the texts.
PINNED = {
    name: re.search(
        rf"^{name}==([\d.]+)$",
        (REPOSITORY / "constraints.txt").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    for name in ("torch", "transformers")
}


def _other_versions() -> str:
    """Which of the packages that a traced model depends on is not the pinned one; empty where all
    are.
    """
    there = {"torch": torch.__version__.partition("+")[0]}
    try:
        there["transformers"] = importlib.metadata.version("transformers")
    except importlib.metadata.PackageNotFoundError:
        return "transformers is not installed"
    wrong = [
        f"{name} {there[name]}, not {pin[1]}"
        for name, pin in PINNED.items()
        if pin and pin[1] != there[name]
    ]
    return ", ".join(wrong)


@pytest.mark.parametrize("name", TEXTS)
def test_text(name: str) -> None:
    if (name.startswith("guards_of_") or name == "demo") and _other_versions():
        pytest.skip(f"written with other sources of the models and ops: {_other_versions()}")
    found = difference(name, TEXTS[name]())
    assert not found, f"{found}\n\nread it, then: python -m tests.golden {name} --write"


def test_pins_are_read() -> None:
    assert all(PINNED.values())


def test_every_file_has_its_text() -> None:
    assert {path.stem for path in HERE.glob("*.txt")} == set(TEXTS)


def test_every_public_error_has_its_text() -> None:
    public = {
        f"{package.__name__}.{name}"
        for package in (guards, meta_fns, symshape)
        for name in package.__all__
        if isinstance(value := getattr(package, name), type) and issubclass(value, Exception)
    }
    roots = {"guards.GuardsError", "meta_fns.MetaError", "symshape.SymShapeError"}
    assert public - roots == set(FAILING)


def test_masks() -> None:
    text = f"{REPOSITORY}/a.py:3 and /x/lib/site-packages/b/c.py:17"
    assert masked(text) == "HERE/a.py:N and b/c.py:N"


def test_a_difference_is_shown() -> None:
    kept = path_of("errors").read_text(encoding="utf-8")
    assert difference("errors", kept) == ""
    assert "+new" in difference("errors", kept + "new\n")


def test_messages_are_found_wherever_they_are_written() -> None:
    source = '''
"""A docstring is no message."""
HINT = "write it down"
def f(a, b):
    """Nor is this."""
    if a:
        raise ValueError(f"{a.name} is {b[0]}" + (" by accident" if b else "") + ", and wrong")
    if b:
        raise KeyError("missing") from None
    warnings.warn("careful", stacklevel=2)
    say(", ".join(["one thing", "another thing"]), kind="word")
    return f"line\\n{'of the caller' if a else b} here"
'''
    assert messages_of(source) == [
        "write it down",
        "ValueError: {name} is {b}{…}, and wrong",
        "ValueError:  by accident",
        "KeyError: missing",
        "warn: careful",
        "say: one thing",
        "say: another thing",
        r"line\n{…} here",
        "of the caller",
    ]
