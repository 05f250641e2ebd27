"""Sorting and searching, as a radix sort does them: one pass for each byte of the key.

So the formulas are polynomials; a comparison sort's logarithm has no place in a formula of
integers.
"""

from __future__ import annotations

from meta_fns.core.cost_rule import (
    CostRule,
    Formula,
    OpCall,
    nbytes,
    reads,
    specs_in,
    total,
    writes,
)
from meta_fns.core.sizes import Size, product
from meta_fns.cost.charging import charge_all
from meta_fns.cost.reductions import for_each_element

_DEPTH = 16
"""Steps of a binary search: as many as 65,536 boundaries need."""


def _passes(call: OpCall) -> int:
    return next(iter(call.tensors)).dtype.itemsize


def _flops(call: OpCall) -> Size:
    return product(next(iter(call.tensors)).sizes) * _passes(call)


def _through_all(formula: Formula) -> Formula:
    """The traffic of all passes."""

    def traffic(call: OpCall) -> Size | None:
        once = formula(call)
        return None if once is None else once * _passes(call)

    return traffic


def _read_each_pass(call: OpCall) -> Size:
    """A selection reads its input in each pass, and writes what it found once."""
    return total(nbytes(spec) for spec in specs_in(call.args[:1])) * _passes(call)


def _searched(call: OpCall) -> Size:
    """A binary search for each element of the result."""
    return product(call.results[0].sizes) * _DEPTH


_SORT = CostRule("sort", _flops, _through_all(reads), _through_all(writes))
_SELECT = CostRule("sort", _flops, _read_each_pass)

charge_all(
    _SORT, "sort unique_consecutive unique_dim_consecutive unique_dim _unique _unique2 mode isin"
)
charge_all(_SELECT, "topk kthvalue median nanmedian")
charge_all(CostRule("sort", _searched), "searchsorted bucketize")
charge_all(CostRule("sort", for_each_element(2)), "histc bincount histogram _histogramdd_bin_edges")
charge_all(
    CostRule("sort", for_each_element(2)), "_histogramdd_from_bin_cts _histogramdd_from_bin_tensors"
)
