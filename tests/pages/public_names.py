"""The public names of a package as a Markdown table: the kind of each, and the first sentence of
its docstring.
"""

from __future__ import annotations

import importlib
import inspect
import re

_NOTE = "<!-- This page is made by `python -m tests.pages --write`; do not edit it. -->\n"
_LONGEST = 60  # characters of a constant that is shown
_KINDS = ((inspect.isclass, "class"), (inspect.isroutine, "function"), (inspect.ismodule, "module"))


def page(package: str, about: str) -> str:
    """Return the page of a package: the table of its names, then the directive from which MkDocs
    makes the rest.
    """
    lines = [f"# {package}", _NOTE, about, "", names_table(package)]
    lines += [
        f"::: {package}",
        "    options:",
        "      members_order: alphabetical",
        "      show_submodules: false",
    ]
    return "\n".join(lines) + "\n"


def names_table(package: str) -> str:
    """Return the table of the names in a package's ``__all__``, in alphabetical order."""
    module = importlib.import_module(package)
    lines = ["| name | kind | meaning |", "|---|---|---|"]
    for name in sorted(module.__all__, key=str.lower):
        value = getattr(module, name)
        kind = next((word for check, word in _KINDS if check(value)), "constant")
        lines.append(f"| `{name}` | {kind} | {_meaning(value, kind)} |")
    return "\n".join(lines) + "\n"


def _meaning(value: object, kind: str) -> str:
    """Return the first sentence of an object's docstring; of a constant, its type or its value."""
    if kind == "constant":
        text = repr(value)
        return f"`{text}`" if len(text) < _LONGEST else f"of type `{type(value).__name__}`"
    return first_sentence(inspect.getdoc(value) or "")


def first_sentence(text: str) -> str:
    """Return the first sentence of a docstring as Markdown for a cell of a table."""
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text.partition("\n\n")[0]).replace("``", "`")
    sentence = re.split(r"(?<=[^.]{3}\.)\s+(?=[A-Z`])", " ".join(text.split()), maxsplit=1)[0]
    return sentence.replace("|", "\\|")
