"""What of code counts, and what does not."""

from __future__ import annotations

from typing import Any

import pytest

from symshape.store.code_digests import code_digest, makes_sets, nested, reads_documentation


def _code(text: str) -> Any:
    namespace: dict[str, Any] = {}
    exec(compile(text, f"<of a test {len(text)}>", "exec"), namespace)
    return namespace["f"].__code__


BASE = "def f(x, k=1):\n    for each in (1, 2):\n        x = x + each\n    return g(x, name='a')\n"


@pytest.mark.parametrize(
    "text",
    [
        "\n\n# a remark\n" + BASE,
        BASE.replace("    for", "    # a remark\n\n    for", 1),
        BASE.replace("    for", '    """Says something."""\n    for', 1),
        BASE.replace("k=1", "k=7"),  # defaults are no part of code
    ],
)
def test_what_does_not_count(text: str) -> None:
    assert code_digest(_code(text)) == code_digest(_code(BASE))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(1, 2)", "(1, 3)"),
        ("(1, 2)", "(1, 2.0)"),
        ("(1, 2)", "(True, 2)"),
        ("x + each", "x - each"),
        ("g(x", "h(x"),
        ("name='a'", "name='b'"),
        ("name='a'", "nome='a'"),
        ("(x, k=1)", "(x, *, k=1)"),
        ("(1, 2)", "(0.0, 2)"),
    ],
)
def test_what_counts(old: str, new: str) -> None:
    assert code_digest(_code(BASE.replace(old, new, 1))) != code_digest(_code(BASE))


def test_signs_of_zero_and_inner_functions_count() -> None:
    assert code_digest(_code("def f():\n    return 0.0")) != code_digest(
        _code("def f():\n    return -0.0")
    )
    inner = "def f():\n    def g(x):\n        return x + 1\n    return g"
    assert code_digest(_code(inner)) != code_digest(_code(inner.replace("1", "2")))
    assert code_digest(_code("\n" + inner)) == code_digest(_code(inner))


def test_a_text_that_is_loaded_counts_though_it_stands_first() -> None:
    text = "def f():\n    'a'\n    return 'a'"
    assert code_digest(_code(text)) != code_digest(_code(text.replace("'a'", "'b'")))


def test_sets_and_documentation_are_found() -> None:
    inner = _code("def f(x):\n    return {each for each in x}")
    assert any(map(makes_sets, nested([inner])))
    assert makes_sets(_code("def f(x):\n    return set(x)"))
    assert not makes_sets(_code("def f(x):\n    return x in {'a', 'b'}"))
    assert reads_documentation(_code("def f(x):\n    return x.__doc__"))
    assert not reads_documentation(_code("def f(x):\n    return x"))


def test_the_order_of_a_constant_set_counts_where_it_is_looped_over() -> None:
    from symshape.store.code_digests import _constant

    one, other = frozenset((1, 9)), frozenset((9, 17, 1))
    assert _constant(one, ordered=False) != _constant(other, ordered=False)
    shuffled = [frozenset(("a", "b")), frozenset(("b", "a"))]
    assert _constant(shuffled[0], ordered=False) == _constant(shuffled[1], ordered=False)
