"""Logs by topic: the events that are asked for, as records with data, and nothing once they are
switched off.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch

import symshape
from symshape import events
from symshape.frontends import logs
from symshape.frontends.logs import TOPICS


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def kept() -> Iterator[Kept]:
    handler = Kept()
    logging.getLogger("symshape").addHandler(handler)
    yield handler
    symshape.set_logs()
    logging.getLogger("symshape").removeHandler(handler)


def _work() -> None:
    compiled = symshape.compile(lambda x: x.view(-1, 4) if x.size(0) > 4 else x)
    for n in (8, 12, 2):
        compiled(torch.ones(n))


def test_every_event_has_a_topic() -> None:
    known = [kind for kinds in TOPICS.values() for kind in kinds]
    kinds = [
        each
        for each in vars(events).values()
        if isinstance(each, type) and issubclass(each, events.Event)
    ]
    assert {*known, events.Event} == set(kinds)
    assert len(known) == len(set(known))


def test_records_are_the_events(kept: Kept) -> None:
    seen: list[events.Event] = []
    unsubscribe = events.subscribe(seen.append)
    symshape.set_logs("recompiles")
    _work()
    unsubscribe()
    wanted = [each for each in seen if type(each) in TOPICS["recompiles"]]
    assert [record.symshape["event"] for record in kept.records] == [
        type(each).__name__ for each in wanted
    ]
    assert {record.name for record in kept.records} == {"symshape.recompiles"}
    missed = [record for record in kept.records if record.symshape["event"] == "CacheMiss"]
    assert len(missed) == 2
    assert "again: the nearest entry" in missed[-1].symshape["reason"] in missed[-1].getMessage()
    json.dumps([record.symshape for record in kept.records])


def test_topics_are_apart_and_can_be_switched_off(kept: Kept) -> None:
    symshape.set_logs("guards")
    _work()
    assert {record.name for record in kept.records} == {"symshape.guards"}
    kept.records.clear()
    symshape.set_logs()
    _work()
    assert not kept.records
    assert not events.anybody()
    symshape.set_logs("all")
    _work()
    assert {record.name for record in kept.records} == {
        "symshape.guards",
        "symshape.recompiles",
        "symshape.purchases",
    }


def test_a_fallback_is_a_warning(kept: Kept) -> None:
    symshape.set_logs("fallbacks")
    with pytest.warns(symshape.FallbackWarning):
        symshape.compile(lambda x: x if x.sum() > 0 else -x)(torch.ones(3))
    record = next(each for each in kept.records if each.symshape["event"] == "RanEagerly")
    assert record.levelno == logging.WARNING
    assert "known only at run time" in record.symshape["reason"]


def test_levels_of_the_program_s_own_are_kept() -> None:
    logger = logging.getLogger("symshape.guards")
    before = logger.level
    symshape.set_logs("guards")
    assert logger.isEnabledFor(logging.INFO)
    symshape.set_logs()
    assert logger.level == before
    assert not logging.getLogger("symshape").handlers
    with pytest.raises(
        symshape.InputError, match="there is no topic 'guard': the topics are recompiles, guards"
    ):
        symshape.set_logs("guard")


CODE = """
import torch, symshape
compiled = symshape.compile(lambda x: x * 2)
for n in (3, 4):
    compiled(torch.ones(n))
"""


def _run(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", CODE],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )


@pytest.mark.slow
def test_the_variable_and_torch_s_structured_log(tmp_path: object) -> None:
    """What ``TORCH_TRACE`` collects is what tlparse reads: a line of JSON, its payload indented
    below.
    """
    done = _run(SYMSHAPE_LOGS="recompiles,json", TORCH_TRACE=str(tmp_path))
    lines = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    assert [line["event"] for line in lines] == ["Traced", "Traced", "CacheMiss"]
    assert all(line["logger"] == "symshape.recompiles" for line in lines)
    (log,) = list(__import__("pathlib").Path(str(tmp_path)).glob("*.log"))
    found: dict[str, list[str]] = {}
    payload: list[str] | None = None
    for line in log.read_text().splitlines():
        if line.startswith("\t"):
            assert payload is not None
            payload.append(line[1:])
        else:
            data = json.loads(line[line.index("]") + 1 :])
            payload = found.setdefault(data["artifact"]["name"], []) if "artifact" in data else []
    assert {"symshape_<lambda>_graph", "symshape_<lambda>_guards"} <= set(found)
    assert any("aten.mul" in line for line in found["symshape_<lambda>_graph"])


def test_where_nobody_collects_no_program_is_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's handler is there until a record; a long text made for it took a tenth of a process's
    first trace.
    """
    written: list[object] = []
    monkeypatch.delenv("MAST_HPC_JOB_NAME", raising=False)
    monkeypatch.setattr(logs, "text", written.append)
    handler = torch._logging._internal.LazyTraceHandler(None)
    monkeypatch.setattr(torch._logging._internal.trace_log, "handlers", [handler])
    symshape.compile(lambda x: x * 2)(torch.ones(3))
    assert written == []


@pytest.mark.slow
def test_a_wrong_topic_in_the_variable_is_a_warning() -> None:
    done = _run(SYMSHAPE_LOGS="recompile")
    assert "there is no topic 'recompile'" in done.stderr
    assert "Traceback" not in done.stderr
