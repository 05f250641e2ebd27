"""Events as log records, by topic: ``SYMSHAPE_LOGS=recompiles,fallbacks python train.py``, or
:func:`set_logs`.

Each record goes to the logger ``symshape.TOPIC`` and carries the event as data
(``record.symshape``, a dictionary), so that a handler of the program's own can store it; the word
``json`` among the topics prints JSON.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable
from typing import Any

import attrs

from symshape import events
from symshape.environment_variables import LOGS
from symshape.errors import InputError
from symshape.graph.program import Program
from symshape.graph.text import text
from symshape.torch_internals import structured_trace

TOPICS: dict[str, tuple[type[events.Event], ...]] = {
    "recompiles": (events.Traced, events.CacheMiss, events.Evicted),
    "guards": (events.GuardAdded, events.Specialized),
    "captures": (
        *(events.GraphCaptured, events.BucketMade, events.CompiledBeside, events.VariantChosen),
        events.PaddingRefused,
    ),
    "purchases": (events.Bought,),
    "fallbacks": (
        *(events.RanEagerly, events.TracingPaused, events.RunnerFallback, events.Fallback),
        *(events.Mismatch, events.NotVerified, events.Defect),
    ),
    "store": (
        *(events.Stored, events.NotStored, events.Loaded, events.NotServed, events.StoreFailed),
        events.Certified,
    ),
}
"""The events of each topic."""

LEVELS: dict[type[events.Event], int] = {
    events.RanEagerly: logging.WARNING,
    events.TracingPaused: logging.WARNING,
    events.Mismatch: logging.ERROR,
    events.Defect: logging.ERROR,
}
_TOPIC_OF = {kind: topic for topic, kinds in TOPICS.items() for kind in kinds}
_ROOT = "symshape"


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        data = getattr(record, "symshape", {"message": record.getMessage()})
        return json.dumps(
            {"time": record.created, "level": record.levelname, "logger": record.name, **data},
            default=str,
        )


class _State:
    """The logging state that is active now."""

    unsubscribe: Callable[[], None] | None = None
    handler: logging.Handler | None = None
    levels: dict[str, int] = {}  # noqa: RUF012 - what loggers were at, to be given back


def set_logs(*topics: str, json: bool = False) -> None:
    """Log the events of these topics from now on, and of no others; without topics, none.

    Records go to Python's loggers ``symshape.TOPIC``: to their handlers if the program has some,
    else to stderr.

    Args:
        *topics: ``recompiles``, ``guards``, ``captures``, ``purchases``, ``fallbacks``,
            ``store``, or ``all``.
        json: write one JSON object a line to stderr.

    Raises:
        InputError: there is no such topic.

    >>> import logging, symshape, torch
    >>> class Kept(logging.Handler):
    ...     records = []
    ...
    ...     def emit(self, record):
    ...         self.records.append(record)
    >>> logging.getLogger("symshape").addHandler(Kept())
    >>> symshape.set_logs("recompiles")
    >>> _ = symshape.compile(lambda x: x * 2)(torch.ones(3))
    >>> record = Kept.records[0]
    >>> (
    ...     record.name,
    ...     record.symshape["event"],
    ...     record.symshape["ops"],
    ...     record.getMessage().partition(",")[0],
    ... )
    ('symshape.recompiles', 'Traced', 1, "Traced: function='<lambda>'")
    >>> symshape.set_logs()
    >>> logging.getLogger("symshape").handlers.clear()
    """
    wanted = set(TOPICS) if "all" in topics else set(topics)
    unknown = sorted(wanted - set(TOPICS))
    if unknown:
        raise InputError(
            f"there is no topic {unknown[0]!r}: the topics are {', '.join(TOPICS)}, and all"
        )
    _reset()
    if not wanted:
        return
    root = logging.getLogger(_ROOT)
    if not root.hasHandlers():
        _State.handler = logging.StreamHandler()
        _State.handler.setFormatter(
            _Json() if json else logging.Formatter("[%(name)s] %(message)s")
        )
        root.addHandler(_State.handler)
    for topic in wanted:
        logger = logging.getLogger(f"{_ROOT}.{topic}")
        _State.levels[topic] = logger.level
        if not logger.isEnabledFor(logging.INFO):
            logger.setLevel(logging.INFO)
    kinds = {kind for topic in wanted for kind in TOPICS[topic]}
    _State.unsubscribe = events.subscribe(
        lambda event: _log(event) if type(event) in kinds else None
    )


def _reset() -> None:
    if _State.unsubscribe is not None:
        _State.unsubscribe()
        _State.unsubscribe = None
    if _State.handler is not None:
        logging.getLogger(_ROOT).removeHandler(_State.handler)
        _State.handler = None
    for topic, level in _State.levels.items():
        logging.getLogger(f"{_ROOT}.{topic}").setLevel(level)
    _State.levels = {}


def _log(event: events.Event) -> None:
    logger = logging.getLogger(f"{_ROOT}.{_TOPIC_OF[type(event)]}")
    level = LEVELS.get(type(event), logging.INFO)
    if logger.isEnabledFor(level):
        fields: dict[str, Any] = attrs.asdict(event)
        name = type(event).__name__
        shown = ", ".join(f"{key}={value!r}" for key, value in fields.items())
        logger.log(level, "%s: %s", name, shown, extra={"symshape": {"event": name, **fields}})


def set_logs_from_environment() -> None:
    """Turn on the logs that ``SYMSHAPE_LOGS`` names, when the package is imported; a wrong topic is
    a warning.
    """
    words = [word.strip() for word in LOGS.value().split(",") if word.strip()]
    if not words:
        return
    try:
        set_logs(*(word for word in words if word != "json"), json="json" in words)
    except InputError as error:
        warnings.warn(f"{LOGS.name}: {error}", stacklevel=2)


def recorded(program: Program) -> Program:
    """Return the program, after writing its ops and guards as artefacts of ``TORCH_TRACE``, if they
    are collected.
    """
    if structured_trace.collects():
        for what, payload in (
            ("graph", text(program.graph)),
            ("guards", program.guards.text() or "no guards"),
        ):
            structured_trace.write_artefact(f"symshape_{program.name}_{what}", payload)
    return program
