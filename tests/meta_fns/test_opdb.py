"""Rules against eager on calls that op_db's samples make, and on variations of their sizes (0 and 1
among them).

A sample of the OpInfos here; all of them with ``-m nightly``, by ``python -m tests.meta_fns.opdb``,
and by the fuzzer.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest
import torch

import meta_fns
from tests.meta_fns.opdb import GAPS, Call, judge, judge_apart, record, resized, retyped, vary

# A step that is prime to the number of OpInfos of any family: neighbours in op_db are alike.
STEP = 9
# Recorded calls whose rule says that it does not know the case.
UNSUPPORTED = {"aten._local_scalar_dense.default"}


@pytest.fixture(scope="module")
def calls() -> list[Call]:
    torch.set_num_threads(1)
    return record(first=4, step=STEP, most=8)


def check(calls: list[Call]) -> Counter[str]:
    tally: Counter[str] = Counter()
    wrong = []
    for call in calls:
        verdict = judge(call)
        tally[verdict.label] += 1
        if verdict.label == "unsupported" and str(call.op) in UNSUPPORTED:
            continue
        if verdict.label == "no rule" or not verdict.fine:
            wrong.append(f"{verdict.label}: {verdict.detail or call}")
    assert not wrong, "\n".join(wrong[:20])
    return tally


@pytest.mark.slow
def test_recorded_calls(calls: list[Call]) -> None:
    tally = check(calls)
    assert tally["right"] > 500


_ON_REFUSAL = ("accepted", "over-refused")


def test_other_dtypes(calls: list[Call]) -> None:
    """What a rule gives is right; it may miss what a kernel refuses, or refuse a mix, in few of the
    cases.
    """
    rng = random.Random(0)
    # Eager runs in forked processes, where CUDA cannot be started.
    picked = [
        call
        for call in calls
        if str(call.op) not in GAPS and "cuda" not in str(call.kwargs.get("device"))
    ]
    retypings = [v for call in picked for _ in range(2) if (v := retyped(call, rng)) is not None]
    verdicts = judge_apart(retypings)
    tally = Counter(verdict.label for verdict in verdicts)
    wrong = [
        verdict
        for verdict in verdicts
        if verdict.label not in ("right", "refused", "skipped", *_ON_REFUSAL)
    ]
    assert not wrong, "\n".join(f"{verdict.label}: {verdict.detail}" for verdict in wrong)
    refusals = tally["accepted"] + tally["over-refused"]
    assert tally["right"] > 500
    assert tally["refused"] > 200
    assert refusals <= 0.04 * tally.total(), tally


def test_other_sizes(calls: list[Call]) -> None:
    rng = random.Random(0)
    picked = [call for call in calls if str(call.op) not in GAPS]
    rng.shuffle(picked)
    varied = [v for call in picked[:800] for _ in range(2) if (v := vary(call, rng)) is not None]
    verdicts = judge_apart(varied)
    tally = Counter(verdict.label for verdict in verdicts)
    wrong = [verdict.detail for verdict in verdicts if not verdict.fine]
    assert not wrong, "\n".join(wrong[:20])
    assert tally["right"] > 500
    assert tally["refused"] > 50


def test_gaps_have_rules() -> None:
    there = [name for name in GAPS if hasattr(torch.ops.aten, name.split(".")[1])]
    assert len(there) >= len(GAPS) - 1  # torch 2.14 has no aten.cholesky
    assert all(meta_fns.has_rule(name) for name in there)


@pytest.mark.nightly
def test_every_recorded_call() -> None:
    tally = check(record())
    assert tally["right"] > 10_000


# --- the harness itself ---------------------------------------------------------------------------


def test_judge_sees_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    call = Call(torch.ops.aten.mm.default, (torch.ones(2, 3), torch.ones(3, 4)), {})
    assert judge(call).label == "right"
    right = meta_fns.infer(call.op, call.args)
    for label, value in (
        ("sizes", right.with_(sizes=(4, 2))),
        ("strides", right.with_(strides=(1, 2))),
        ("dtype", right.with_(dtype=torch.int64)),
        ("storage_offset", right.with_(storage_offset=1)),
    ):
        monkeypatch.setattr(meta_fns, "infer", lambda *args, value=value, **kwargs: value)
        assert judge(call).label == label
    refused = Call(torch.ops.aten.mm.default, (torch.ones(2, 3), torch.ones(2, 4)), {})
    assert judge(refused).label == "accepted"
    monkeypatch.undo()
    assert judge(refused).label == "refused"


def test_resized_keeps_the_layout() -> None:
    assert resized(torch.ones(2, 3).t(), [5, 4], "same").stride() == (1, 5)
    assert resized(torch.ones(1, 3).expand(2, 3), [5, 3], "same").stride() == (0, 1)
    assert resized(torch.ones(2, 3), [0, 3], "zeros").stride() == (3, 1)
    assert resized(torch.arange(3), [5], "same").tolist() == [0, 1, 2, 0, 1]
