"""Rules made of other rules: all that is known of the functional one stays, and the results are
eager's.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import attrs
import pytest
import torch

from meta_fns import DtypeError, Rule, ShapeError, TensorSpec, lookup
from meta_fns.core import derived_rules
from symshape.errors import SymShapeError
from tests.meta_fns.eager import ALL_DTYPES, check_call, odd_sizes, odd_tensor
from tests.meta_fns.symbolic import guards_at, symbols

aten = torch.ops.aten
OF_ADD = (aten.add_.Tensor, aten.add.out)
OTHERS = {
    aten.squeeze_copy.dim: aten.squeeze.dim,
    aten.transpose_.default: aten.transpose.int,
    aten.__iand__.Tensor: aten.__and__.Tensor,
    aten.cat.out: aten.cat.default,
    aten.nonzero.out: aten.nonzero.default,
}


@attrs.frozen(eq=False)
class Padded(Rule):
    """A rule of which more is known, as one day of paddings and costs."""

    padding: Callable[..., Any] | None = None


@pytest.mark.parametrize("op", [*OF_ADD, *OTHERS])
def test_all_that_is_known_stays(op: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    functional = lookup(OTHERS.get(op, aten.add.Tensor))
    assert functional is not None
    known = Padded(
        functional.overload, functional.fn, functional.data_dependent, len, name="by any other name"
    )
    monkeypatch.setattr(derived_rules, "lookup", lambda candidate: known)
    found = derived_rules.derive(op)
    assert isinstance(found, Padded)
    changed = {"overload": str(op), "fn": found.fn}
    assert attrs.asdict(found) == {**attrs.asdict(known), **changed}
    assert (found.name, found.padding) == ("by any other name", len)
    assert found.fn is not known.fn or torch.Tag.inplace_view in op.tags


def test_what_has_no_functional_rule_has_none() -> None:
    assert derived_rules.derive(aten.add.Tensor) is None
    assert derived_rules.derive(aten.nonzero.default) is None
    assert derived_rules.derive(torch.ops.prims.add.default) is None


def test_results_are_eagers() -> None:
    rng = random.Random(0)
    accepted = 0
    for _ in range(300):
        sizes = odd_sizes(rng)
        a = odd_tensor(rng, sizes, rng.choice(ALL_DTYPES))
        b = odd_tensor(rng, sizes if rng.random() < 0.8 else odd_sizes(rng), rng.choice(ALL_DTYPES))
        out = odd_tensor(
            rng, sizes if rng.random() < 0.7 else odd_sizes(rng), rng.choice(ALL_DTYPES)
        )
        accepted += check_call("aten.mul_.Tensor", a, b)
        accepted += check_call("aten.mul.out", a, b, out=out)
        accepted += check_call("aten.permute_copy.default", a, list(range(a.dim()))[::-1])
        accepted += check_call("aten.fill_.Scalar", a, 1)
    assert accepted > 600


def test_written_into_self() -> None:
    spec = TensorSpec.contiguous((2, 3))
    assert derived_rules.written(spec, spec, convert=False) is spec
    with pytest.raises(
        ShapeError, match=r"result of sizes \(3, 2\) does not fit into self, \(2, 3\)"
    ):
        derived_rules.written(spec, TensorSpec.contiguous((3, 2)), convert=False)
    with pytest.raises(ShapeError, match="does not fit"):
        derived_rules.written(spec, TensorSpec.contiguous((1, 2, 3)), convert=False)
    complexes = spec.with_(dtype=torch.complex64)
    with pytest.raises(DtypeError, match=r"complex64 cannot be written into torch\.float32"):
        derived_rules.written(spec, complexes, convert=False)
    assert derived_rules.written(spec, complexes, convert=True) is spec
    row = TensorSpec((2, 3), (0, 1))
    with pytest.raises(ShapeError, match="share memory"):
        derived_rules.written(row, spec, convert=False)
    assert derived_rules.written(row, spec, convert=False, overlapping=True) is row


def test_need_writable_of_symbols() -> None:
    """An expanded dimension may be written to where it is of size 1, or where the tensor is
    empty.
    """
    env, (n,) = symbols(1)
    derived_rules.need_writable(TensorSpec((n, 3), (0, 1)))
    assert [guards_at(env, value) for value in (0, 1, 2)] == [True, True, False]
    _, (n,) = symbols(2)
    with pytest.raises((ShapeError, SymShapeError), match="share memory"):
        derived_rules.need_writable(TensorSpec((n, 3), (0, 1)))
    derived_rules.need_writable(TensorSpec((5, 0), (0, 1)))
    derived_rules.need_writable(TensorSpec((1, 3), (0, 1)))


def test_into_resizes() -> None:
    result = TensorSpec.contiguous((2, 3))
    same = TensorSpec((2, 3), (1, 2))
    assert derived_rules.into(same, result) is same
    grown = derived_rules.into(TensorSpec.contiguous((5,), torch.float64), result)
    assert (grown.sizes, grown.strides, grown.dtype) == ((2, 3), (3, 1), torch.float64)
    with pytest.raises(DtypeError, match=r"out of torch\.int64"):
        derived_rules.into(TensorSpec.contiguous((2, 3), torch.int64), result)
    with pytest.raises(DtypeError, match="out is on meta"):
        derived_rules.into(TensorSpec.contiguous((2, 3), device=torch.device("meta")), result)
