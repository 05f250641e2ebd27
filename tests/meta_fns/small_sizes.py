"""How many calls at sizes 0 and 1, which eager accepts, the guards of rules accept too.

    python -m tests.meta_fns.small_sizes --step 7

A call of op_db is inferred on symbols; then the sizes that are alike become 0 or 1 together, or one
of them alone. Where a guard turns down what eager runs, either the formulas would be wrong there
(the guard is *needed*: another number of results, of dimensions, or another size by broadcasting),
or they would be right: the guard is *too narrow*.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Iterator, Sequence

import attrs
import torch

from guards.terms import fold
from tests.meta_fns.opdb import GAPS, Call, compare, eager, record, values_matter
from tests.meta_fns.symbolic import Symbolic, at, call_at, infer_symbolic

# Eager kernels that read outside of arguments whose sizes do not fit: not to be run at other sizes.
DEADLY = ("_backward", "_ctc_loss", "_embedding_bag", "lu_unpack", "_scaled_dot_product")


@attrs.frozen
class Tally:
    """How often each thing happened, by overload: ``accepted``, ``needed``, ``too narrow``,
    ``wrongly accepted``.
    """

    counts: Counter[tuple[str, str]] = attrs.field(factory=Counter)
    examples: dict[tuple[str, str], str] = attrs.field(factory=dict)

    def add(self, op: str, label: str, example: str = "") -> None:
        """One more."""
        self.counts[op, label] += 1
        self.examples.setdefault((op, label), example)

    def total(self, label: str) -> int:
        """Over all overloads."""
        return sum(count for (_, which), count in self.counts.items() if which == label)

    def by_op(self, label: str) -> list[tuple[str, int]]:
        """Overloads with this label, the most frequent first."""
        found = [(op, count) for (op, which), count in self.counts.items() if which == label]
        return sorted(found, key=lambda each: -each[1])


def small_values(symbolic: Symbolic) -> Iterator[dict[str, int]]:
    """Values of the symbols where the sizes that are alike, or one of them alone, are 0 or 1."""
    hints = dict(symbolic.env.hints)
    for new in (0, 1):
        for old in sorted(set(hints.values()) - {new}):
            yield {name: new if value == old else value for name, value in hints.items()}
        for name, value in hints.items():
            if value != new and sum(other == value for other in hints.values()) > 1:
                yield {**hints, name: new}


def measure(calls: Sequence[Call]) -> Tally:
    """Infers each call and holds its guards against eager at small sizes."""
    tally = Tally()
    for number, call in enumerate(calls):
        op = str(call.op)
        symbolic = infer_symbolic(call, random.Random(number))
        if not isinstance(symbolic, Symbolic) or op in GAPS or any(part in op for part in DEADLY):
            continue
        for values in small_values(symbolic):
            _judge(symbolic, values, tally)
    return tally


def _judge(symbolic: Symbolic, values: dict[str, int], tally: Tally) -> None:
    call = call_at(symbolic, values)
    expected, error = eager(call)
    op, held = str(call.op), symbolic.holds(values)
    if error is not None:
        if held and not values_matter(call):
            tally.add(op, "wrongly accepted", f"{call}: {str(error)[:120]}")
        return
    if held:
        tally.add(op, "accepted")
        return
    verdict = compare(call, at(symbolic.result, values), expected)
    broken = [
        str(guard.term) for guard in symbolic.env.guards if not fold.evaluate(guard.term, values)
    ]
    label = "too narrow" if verdict.label in ("right", "strides") else "needed"
    tally.add(op, label, f"{call} at {values}: {broken}")


def main() -> None:
    """Prints the shares, and the overloads whose guards are too narrow."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--most", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    calls = record(step=args.step, most=args.most)
    dense = [
        call
        for call in calls
        if all(
            x.layout is torch.strided
            for x in torch.utils._pytree.tree_leaves((call.args, call.kwargs))
            if isinstance(x, torch.Tensor)
        )
    ]
    tally = measure(dense)
    labels = ("accepted", "needed", "too narrow", "wrongly accepted")
    accepted, needed, narrow, wrong = (tally.total(label) for label in labels)
    whole = accepted + needed + narrow
    print(
        f"{whole} calls that eager runs at sizes 0 and 1: {accepted} accepted "
        f"({accepted / whole:.1%}),"
    )
    print(
        f"{needed} turned down because the formulas differ there, {narrow} although they would be "
        "right"
    )
    print(
        f"{accepted / (accepted + narrow):.1%} of those for which they are right; {wrong} wrongly "
        "accepted"
    )
    for label in labels[1:]:
        for op, count in tally.by_op(label)[:40]:
            print(f"{label}: {count} {op}: {tally.examples[op, label][:300]}")


if __name__ == "__main__":
    main()
