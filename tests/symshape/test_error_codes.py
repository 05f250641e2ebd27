"""Codes of errors and reasons of refusal: unique, named at every raise site, shown on their pages
and to users.
"""

from __future__ import annotations

import ast
import copy
import pickle
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import symshape
import symshape.frontends.cli.error_pages  # so that every module with errors of its own is loaded
import symshape.frontends.dynamo
from symshape import errors, events
from symshape.errors import (
    PAGES,
    DataDependentError,
    MissError,
    Reason,
    SymShapeError,
    UnsupportedError,
    note_of,
)
from tests.discovery import REPOSITORY
from tests.pages.markdown import DOCS, anchors

SOURCES = sorted((REPOSITORY / "symshape").rglob("*.py"))


def below(kind: type) -> Iterator[type]:
    """Yield a class and every class that is derived from it."""
    yield kind
    for each in kind.__subclasses__():
        yield from below(each)


REFUSALS = {
    each.__name__ for each in below(UnsupportedError) if each.__module__.startswith("symshape.")
}
KINDS = [
    *(
        each
        for each in below(SymShapeError)
        if each is not SymShapeError and each.__module__.startswith("symshape.")
    ),
    symshape.FallbackWarning,
    symshape.UntestedTorchWarning,
]


def nameless(source: str) -> list[int]:
    """Return the lines that make or raise an error of a refusal and do not name a reason."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and _name(node.func) in REFUSALS:
            given = {each.arg: each.value for each in node.keywords}
            if "reason" not in given or isinstance(given["reason"], ast.Constant):
                found.append(node.lineno)
        elif isinstance(node, ast.Raise) and node.exc is not None and _name(node.exc) in REFUSALS:
            found.append(node.lineno)
    return found


def _name(node: ast.AST) -> str:
    return (
        node.id
        if isinstance(node, ast.Name)
        else node.attr
        if isinstance(node, ast.Attribute)
        else ""
    )


@pytest.mark.slow
def test_every_raise_site_of_a_refusal_names_its_reason() -> None:
    assert {"EffectError", "ReadOtherwise", "UnsupportedError", "_TrackedError"} <= REFUSALS
    found = [
        f"{path.relative_to(REPOSITORY)}:{line}"
        for path in SOURCES
        for line in nameless(path.read_text(encoding="utf-8"))
    ]
    assert not found


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("raise UnsupportedError('x')", [1]),
        ("raise UnsupportedError", [1]),
        ("\nerror = errors.EffectError('x', reason=None)", [2]),
        ("raise UnsupportedError('x', reason=Reason.STATE)", []),
        ("raise UnsupportedError('x', reason=restart.reason)", []),
    ],
)
def test_a_site_without_a_reason_is_found(source: str, lines: list[int]) -> None:
    assert nameless(source) == lines


@pytest.mark.slow
def test_every_reason_is_used() -> None:
    used = {
        node.attr
        for path in SOURCES
        if path != Path(errors.__file__)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and _name(node.value) == "Reason"
    }
    assert used == set(Reason.__members__)


def test_codes_are_unique() -> None:
    own = {each.__name__: each.code for each in KINDS if "code" in vars(each)}
    codes = [*own.values(), *(each.code for each in Reason)]
    assert len(set(codes)) == len(codes)
    assert set(codes) == set(PAGES)
    assert len(set(PAGES.values())) == len(PAGES)
    # an enum makes one member of two with the same value
    assert len(set(Reason)) == len(Reason.__members__)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.__name__))
def test_every_class_has_a_code_and_a_page_that_shows_it(kind: Any) -> None:
    assert kind.code, kind
    text = (DOCS / "errors" / PAGES[kind.code].partition("#")[0]).read_text(encoding="utf-8")
    assert f"\n`{kind.code}`\n" in text


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_a_section_with_its_code_a_program_that_raises_it_and_a_mended_one(
    reason: Reason,
) -> None:
    name, _, anchor = PAGES[reason.code].partition("#")
    text = (DOCS / "errors" / name).read_text(encoding="utf-8")
    assert anchor in anchors(text)
    (section,) = (each for each in text.split("\n## ") if f"\n`{reason.code}`\n" in each)
    assert anchors(f"## {section}") == {anchor}
    assert "**Why.**" in section
    failing, _, mended = section.partition("**The mend.**")
    assert f"\n{reason.note}\n```" in failing
    assert "Traceback" not in mended
    if reason is not Reason.GENERATOR:  # is mended as the section before it
        assert ">>> result = " in mended or ">>> with warnings" in mended


def test_every_code_is_in_the_index() -> None:
    index = (DOCS / "errors" / "index.md").read_text(encoding="utf-8")
    rows = {row.split("|")[1].strip(): row for row in index.splitlines() if row.startswith("| SYM")}
    assert rows.keys() == PAGES.keys()
    assert all(f"({PAGES[code]})" in row for code, row in rows.items())


# -- errors


def seeds(x: torch.Tensor) -> torch.Tensor:
    torch.manual_seed(0)
    return x * 2


def branches(x: torch.Tensor) -> torch.Tensor:
    return x if x[0] > 0 else -x


def test_a_traceback_ends_with_the_code_and_the_page_of_the_reason() -> None:
    with pytest.raises(UnsupportedError) as raised:
        symshape.compile(seeds, fullgraph=True)(torch.ones(3))
    error = raised.value
    assert (error.reason, error.code) == (Reason.SEEDING, "SYM204")
    assert traceback.format_exception(error)[-1] == f"{note_of('SYM204')}\n"
    assert "SYM" not in str(error)


MADE = (
    UnsupportedError("text", reason=Reason.STATE),
    UnsupportedError("text"),
    symshape.InputError("text"),
    MissError("text", {"x.size(0)": 8}),
    DataDependentError("text", ("u0",)),
    symshape.GuardViolation("text"),
)


@pytest.mark.parametrize("error", MADE, ids=lambda error: type(error).__name__)
def test_copies_and_pickles_have_the_note_once(error: SymShapeError) -> None:
    for each in (error, copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert (str(each), each.code, each.__notes__) == ("text", error.code, [note_of(error.code)])
        assert getattr(each, "reason", None) is getattr(error, "reason", None)


@pytest.mark.parametrize(
    "kind",
    [
        symshape.ProgramError,
        symshape.RuntimeAssertionError,
        partial(symshape.RuntimeAssertionError, kind=IndexError),
    ],
)
def test_what_eager_raises_too_has_no_note(kind: Callable[[str], SymShapeError]) -> None:
    assert not hasattr(kind("text"), "__notes__")
    assert errors.code_of(kind("text")) == ""
    assert kind("text").code in PAGES


def test_errors_quoted_in_others_are_quoted_without_the_note() -> None:
    with pytest.raises(UnsupportedError) as raised:
        symshape.compile(
            lambda x: torch.cond(x.sum() > 0, lambda x: x, lambda x: -x, (x,)), fullgraph=True
        )(torch.ones(3))
    assert str(raised.value).count("SYM") == 0
    error = UnsupportedError("text", reason=Reason.STATE)
    for each in ("more", "and more"):
        error.add_note(each)
    assert error.__notes__ == ["more", "and more", Reason.STATE.note], "the code stays last"
    assert errors.full_text(error) == "text\nmore\nand more"
    own = ValueError("text")
    own.add_note("more")
    assert errors.full_text(own) == "text\nmore"


# -- where calls run eagerly


@pytest.mark.parametrize(("fn", "code"), [(seeds, "SYM204"), (branches, "SYM103")])
def test_warning_report_and_event_of_a_refused_call_have_its_code(fn: Any, code: str) -> None:
    compiled, told = symshape.compile(fn), list[events.Event]()
    stop = events.subscribe(told.append)
    try:
        with pytest.warns(symshape.FallbackWarning) as warned:
            compiled(torch.ones(3))
    finally:
        stop()
    (warning,) = warned
    text = str(warning.message)
    assert text.splitlines()[-1].strip() == note_of(code)
    assert text.count(code) == 2, "in the note alone: the code and the command"
    assert compiled.explain_fallback().splitlines()[-1].endswith(f" [{code}]")
    (ran,) = (each for each in told if isinstance(each, events.RanEagerly))
    assert ran.code == code
    assert code not in ran.reason


def test_a_refused_argument_has_the_code_of_its_error() -> None:
    compiled = symshape.compile(lambda x: x.to_dense())
    with pytest.warns(symshape.FallbackWarning, match=r"\[SYM106\] docs/errors/input-error\.md"):
        compiled(torch.eye(3).to_sparse())
    assert "[SYM106]" in compiled.explain_fallback()


def test_an_error_that_the_program_raises_while_it_is_traced_has_the_code_of_the_warning() -> None:
    def contains_itself(x: torch.Tensor) -> Any:
        found: list[Any] = [x * 2]
        found.append(found)
        return found

    compiled = symshape.compile(contains_itself)
    with pytest.warns(symshape.FallbackWarning, match=r"\[SYM113\]"):
        compiled(torch.ones(3))
    with pytest.raises(UnsupportedError) as raised:
        symshape.compile(contains_itself, fullgraph=True)(torch.ones(3))
    assert raised.value.reason is Reason.RUNS_EAGERLY


def test_a_program_that_catches_a_refusal_is_refused_with_its_reason() -> None:
    def catches(x: torch.Tensor) -> torch.Tensor:
        try:
            torch.manual_seed(0)
        except Exception:
            return x
        return x * 2

    with pytest.raises(UnsupportedError) as raised:
        symshape.compile(catches, fullgraph=True)(torch.ones(3))
    assert raised.value.reason is Reason.SEEDING


def test_a_refusal_of_a_store_has_the_reason_of_the_trace(tmp_path: Path) -> None:
    compiled = symshape.compile(seeds, store=tmp_path)
    with pytest.raises(UnsupportedError) as raised:
        symshape.compiled_of(compiled)._dispatcher.entry_of((torch.ones(3),), {})
    assert raised.value.reason is Reason.SEEDING
