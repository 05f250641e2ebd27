"""Notes on a text: errors that point, and what is kept beside the term."""

from __future__ import annotations

import ast

import pytest

from guards.asking.reading import parse
from guards.errors import ParseError
from guards.terms.boolean import TRUE
from guards.text.transcript import Transcript, described


def test_the_error_says_where() -> None:
    with pytest.raises(ParseError) as caught:
        parse("x + y.z")
    assert caught.value.position == 4
    assert "character 5" in str(caught.value)


def test_what_is_required_carries_its_error() -> None:
    notes = Transcript("x + y.z")
    node = ast.parse(notes.text, mode="eval").body
    assert isinstance(node, ast.BinOp)
    notes.require(TRUE, "all must hold", node.right)
    (required,) = notes.required
    assert required.condition is TRUE
    assert str(required.error) == "all must hold at character 5: 'x + y.z'"
    with pytest.raises(ParseError) as caught:
        notes.fail("all must hold", node.right)
    assert str(caught.value) == str(required.error)


def test_nodes_are_described() -> None:
    node = ast.parse("x @ y", mode="eval").body
    assert isinstance(node, ast.BinOp)
    assert (described(node), described(node.op)) == ("a BinOp expression", "MatMult")
