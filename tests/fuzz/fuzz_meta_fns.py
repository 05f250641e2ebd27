"""Rules of meta_fns against eager: calls of op_db at other sizes, layouts and values.

    python -m tests.fuzz meta_fns --count 100000 --seed 7

A case takes a recorded call, changes some sizes (0 and 1 among them) and compares sizes, strides,
offset, dtype and refusal. Eager runs in a process of its own: some kernels die of sizes that do not
fit.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch

from tests.fuzz.harness import Counterexample, Outcome, fuzz, fuzz_parser
from tests.meta_fns.opdb import GAPS, Call, judge_apart, record, vary


def main(argv: Sequence[str] | None = None) -> Outcome:
    """Record op_db's calls, then vary them."""
    parser = fuzz_parser(__doc__, count=2_000, smoke=60)
    parser.add_argument("--only", default="", help="overloads whose name starts so")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    recorded = record(step=97, most=8) if args.smoke else record()
    calls = [c for c in recorded if str(c.op) not in GAPS and str(c.op).startswith(args.only)]

    def case(rng: random.Random) -> str | None:
        call: Call | None = rng.choice(calls)
        for _ in range(rng.choice((1, 1, 2))):
            assert call is not None
            call = vary(call, rng)
            if call is None:
                return "nothing to vary"
        assert call is not None
        verdict = judge_apart([call])[0]
        if not verdict.fine:
            raise Counterexample(f"{verdict.label}: {verdict.detail}")
        return verdict.label

    return fuzz("meta_fns", case, args, must_see=("right", "refused"))
