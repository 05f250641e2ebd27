"""An extension of griffe: doctests in docstrings are code wherever they stand in the text, roles
are left out.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_DOCTEST = re.compile(r"^(?P<indent> *)>>> .*(?:\n(?! *$).*)*", re.MULTILINE)

_ROLE = re.compile(r":(?:\w+:)+(?=`)")


class Doctests(griffe.Extension):
    """Put fences around the doctests of every docstring that is collected."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of one module, class, function or attribute."""
        if obj.docstring:
            obj.docstring.value = _ROLE.sub("", _DOCTEST.sub(_fenced, obj.docstring.value))


def _fenced(match: re.Match[str]) -> str:
    indent = match["indent"]
    return f"{indent}```pycon\n{match[0]}\n{indent}```"
