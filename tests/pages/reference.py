"""Pages of the reference that are made from the definitions in the code."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Iterator
from typing import Any

import attrs

import symshape
from symshape import events as _events
from symshape.environment_variables import Variable
from symshape.frontends import logs
from symshape.frontends.compiled import Compiled
from symshape.frontends.stats import metrics_of

_NOTE = "<!-- This page is made by `python -m tests.pages --write`; do not edit it. -->\n"


_EVENTS_EXAMPLE = """```pycon
>>> import torch, symshape
>>> seen = []
>>> stop = symshape.events.subscribe(seen.append)
>>> y = symshape.compile(lambda x: x.view(-1, 4) * 2, dynamic=True)(torch.ones(8))
>>> stop()
>>> [type(each).__name__ for each in seen[:2]]
['GuardAdded', 'Traced']
>>> seen[0].text, seen[1].ops
('s0 % 4 == 0', 2)
```
"""


def options() -> str:
    """Return the page of all options: default, type and meaning, from the class itself."""
    meanings = _attributes(symshape.Options)
    lines = [
        "# Options",
        _NOTE,
        "Options are given as `symshape.compile(fn, options=symshape.Options(...))`, or as a "
        "dictionary of the same "
        'names. `torch.compile(backend="symshape", options={...})` takes them too, besides '
        "`runner` and `fullgraph`.",
        "",
        "| option | default | what it sets |",
        "|---|---|---|",
    ]
    for field in attrs.fields(symshape.Options):
        meaning = meanings[field.name]
        first = re.split(r"(?<=[.;])\s", meaning, maxsplit=1)[0].rstrip(".;").replace("|", "\\|")
        lines.append(f"| [`{field.name}`](#{field.name}) | `{field.default!r}` | {first} |")
    lines.append("")
    for field in attrs.fields(symshape.Options):
        meaning = meanings[field.name]
        lines += [
            f"## `{field.name}`",
            "",
            f"Default `{field.default!r}`; type `{field.type}`.",
            "",
        ]
        lines += [meaning[0].upper() + meaning[1:], ""]
    return "\n".join(lines)


def events() -> str:
    """Return the page of all events, with their fields."""
    lines = [
        "# Events",
        _NOTE,
        "`symshape.events.subscribe(function)` calls the function with each event. It returns a "
        "function that ends this. `symshape.set_logs(...)` and `SYMSHAPE_LOGS` send events to "
        "Python's `logging` instead. *Ledger*, *offer* and *purchase* are explained under [What is "
        "made when](../how-it-works.md#what-is-made-when).",
        "",
        _EVENTS_EXAMPLE,
        (
            "A topic's events go to the logger `symshape.TOPIC`, at level INFO unless the table "
            "names another."
        ),
        "",
        "| event | topic | when | fields |",
        "|---|---|---|---|",
    ]
    topics = {kind: topic for topic, kinds in logs.TOPICS.items() for kind in kinds}
    for name, kind in vars(_events).items():
        if inspect.isclass(kind) and issubclass(kind, _events.Event) and kind is not _events.Event:
            fields = ", ".join(f"`{field.name}: {_type(field)}`" for field in attrs.fields(kind))
            level = logs.LEVELS.get(kind)
            topic = f"`{topics[kind]}`" + (
                f", {logging.getLevelName(level)}" if level is not None else ""
            )
            lines.append(f"| `{name}` | {topic} | {_code(kind.__doc__)} | {fields} |")
    return "\n".join(lines) + "\n"


def runners() -> str:
    """Return the table of runners: what each does, when ``auto`` chooses it, and what it needs."""
    from symshape.runtime.runners.choice import RUNNERS

    lines = [
        "| runner | what it does | chosen by `auto` for | what it needs |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| `{name}` | {row.does} | {row.chosen} | {row.needs} |" for name, row in RUNNERS.items()
    ]
    return "\n".join(lines) + "\n"


def variables() -> str:
    """Return the page of all environment variables, from the list that the code reads them by."""
    from symshape import environment_variables

    head = [
        "| variable | values | where it is unset | what it does | when it is read |",
        "|---|---|---|---|---|",
    ]
    lines = [
        "# Environment variables",
        _NOTE,
        "Every variable that symshape reads. They are defined in "
        "`symshape/environment_variables.py`, and read "
        "through it. [Options](options.md) are for one function; variables are for a process.",
        "",
        *head,
        *map(_variable_row, environment_variables.OWN),
        "",
        "## Variables of others",
        "",
        "symshape reads or follows these, too:",
        "",
        *head,
        *map(_variable_row, environment_variables.OTHERS),
    ]
    return "\n".join(lines) + "\n"


def _variable_row(each: Variable) -> str:
    return f"| `{each.name}` | {each.values} | {each.default} | {each.meaning} | {each.read} |"


def metrics() -> str:
    """Return the page of the metrics of one compiled function, from those that it reports."""
    import torch

    compiled = symshape.compile(lambda x: x * 2)
    assert isinstance(compiled, Compiled)
    compiled(torch.ones(3))
    stats = attrs.evolve(compiled.stats(), dispatch_us=1.0)  # which a function has after some calls
    found = metrics_of("f", stats, {0: 1}, 0)
    lines = [
        "# Metrics",
        _NOTE,
        "`compiled.metrics()` is text in Prometheus' format, for whatever serves it. "
        "Each sample has the label `function`; `symshape_entry_calls` has the label `entry` too. "
        "`symshape_graph_bytes` is the memory of CUDA graphs and buckets together, shared memory "
        "counted once: see "
        "[How many MB do 32 graphs take?](../guides/plan.md#how-many-mb-do-32-graphs-take).",
        "",
        "| metric | kind | what it counts |",
        "|---|---|---|",
    ]
    lines += [
        f"| `{each.name}` | {each.kind} | {each.help} |"
        for each in sorted(found, key=lambda each: each.name)
    ]
    return "\n".join(lines) + "\n"


def command_line() -> str:
    """Return the page of all commands, from their own help."""
    import typer
    from typer.testing import CliRunner

    from symshape.frontends.cli.commands import app

    lines = [
        "# Command line",
        _NOTE,
        "The command `symshape` comes with the extra `cli` (`pip install '.[cli]'` in a checkout "
        "of the source). PROGRAM is `gpt2` or `llama` (the demo's models), or `MODULE:FACTORY`, "
        "which answers `(fn, args)`.",
        "",
    ]
    for words in _below(typer.main.get_command(app), []):
        environment = {"COLUMNS": "100", "TERMINAL_WIDTH": "100", "NO_COLOR": "1"}
        said = CliRunner().invoke(app, [*words, "--help"], prog_name="symshape", env=environment)
        text = "\n".join(line.rstrip() for line in said.output.strip().splitlines())
        lines += [f"## symshape {' '.join(words)}".rstrip(), "", "```text", text, "```", ""]
    return "\n".join(lines)


def _type(field: Any) -> str:
    """Return the type of a field as it is written, without the names of modules."""
    return re.sub(
        r"[a-z_]+\.",
        "",
        field.type if isinstance(field.type, str) else getattr(field.type, "__name__", ""),
    )


def _below(command: Any, words: list[str]) -> Iterator[list[str]]:
    """Yield the words of a command and of those below it."""
    yield words
    for name, inner in sorted(getattr(command, "commands", {}).items()):
        yield from _below(inner, [*words, name])


def _attributes(kind: type) -> dict[str, str]:
    """Return the texts of a docstring's section *Attributes*, by name."""
    doc = inspect.getdoc(kind) or ""
    found: dict[str, list[str]] = {}
    last = ""
    for line in doc.partition("Attributes:\n")[2].splitlines():
        start = re.match(r"    (\w+): (.*)", line)
        if start:
            last = start[1]
            found[last] = [start[2]]
        elif last:
            found[last].append(line.strip())
    return {name: _code(" ".join(lines)) for name, lines in found.items()}


def _code(text: str | None) -> str:
    """Return a docstring's text as Markdown on one line."""
    text = re.sub(r":\w+:`([^`]+)`", r"`\1`", text or "")
    return " ".join(text.replace("``", "`").split())
