"""Rules on symbols: right at the hints, and at other values wherever the guards that they left
hold.

A sample of op_db's calls here; all of them with ``-m nightly``.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest
import torch

from tests.meta_fns.opdb import GAPS, Call, Verdict, record
from tests.meta_fns.symbolic import Symbolic, infer_symbolic, judge_at, other_values

# Eager kernels that read outside of arguments whose sizes do not fit: not to be run at other sizes.
DEADLY = ("_backward", "_ctc_loss", "_embedding_bag", "lu_unpack", "_scaled_dot_product")


def check(calls: list[Call], tries: int) -> Counter[str]:
    tally: Counter[str] = Counter()
    wrong = []
    for number, call in enumerate(calls):
        rng = random.Random(number)
        found = infer_symbolic(call, rng)
        if not isinstance(found, Symbolic):
            if isinstance(found, Verdict):
                wrong.append(found.detail)
            continue
        values = [dict(found.env.hints)]
        if str(call.op) not in GAPS and not any(part in str(call.op) for part in DEADLY):
            values += [other_values(found, rng) for _ in range(tries)]
        for at in values:
            verdict = judge_at(found, at)
            tally[verdict.label] += 1
            if verdict.label == "guarded":
                if at == found.env.hints:
                    wrong.append(verdict.detail)
            elif verdict.label == "strides" and any(size < 2 for size in at.values()):
                # The strides of the general case: no element is addressed through those that
                # differ.
                continue
            elif not verdict.fine:
                wrong.append(f"{verdict.label}: {verdict.detail}")
    assert not wrong, "\n".join(wrong[:20])
    return tally


@pytest.mark.slow
def test_formulas_hold_where_the_guards_do() -> None:
    torch.set_num_threads(1)
    calls = [call for call in record(first=2, step=13, most=4) if dense(call)]
    tally = check(calls, 3)
    assert tally["right"] > 500
    assert tally["refused"] > 50
    assert tally["guarded"] < tally["right"] / 10
    assert tally["strides"] < tally["right"] / 100


def dense(call: Call) -> bool:
    leaves = torch.utils._pytree.tree_leaves((call.args, call.kwargs))
    return all(x.layout is torch.strided for x in leaves if isinstance(x, torch.Tensor))


@pytest.mark.nightly
def test_every_recorded_call() -> None:
    torch.set_num_threads(1)
    tally = check([call for call in record(most=8) if dense(call)], 4)
    assert tally["right"] > 10_000
