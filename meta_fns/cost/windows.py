"""Pooling and resampling: so many operations for each element that a window or a stencil looks
at.
"""

from __future__ import annotations

from meta_fns.core.cost_rule import CostRule, Formula, OpCall
from meta_fns.core.sizes import Size, product
from meta_fns.cost.charging import charge_all
from meta_fns.cost.movement import nothing
from meta_fns.cost.pointwise import for_each_result
from meta_fns.cost.reductions import for_each_element


def _window(dims: int) -> Formula:
    """A window of argument 1 (``kernel_size``) at each element of the result."""

    def flops(call: OpCall) -> Size:
        kernel = call.args[1]
        sizes = list(kernel) if isinstance(kernel, (list, tuple)) else [kernel]
        window = product(sizes if len(sizes) == dims else sizes * dims)
        return product(call.results[0].sizes) * window

    return flops


charge_all(CostRule("pooling", _window(1)), "max_pool1d")
charge_all(
    CostRule("pooling", _window(2)), "avg_pool2d max_pool2d_with_indices fractional_max_pool2d"
)
charge_all(
    CostRule("pooling", _window(3)), "avg_pool3d max_pool3d_with_indices fractional_max_pool3d"
)
charge_all(
    CostRule("pooling", for_each_element(1)),
    "_adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_max_pool2d adaptive_max_pool3d",
)
charge_all(
    CostRule("pooling", for_each_element(1)),
    """
    _adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward avg_pool2d_backward
    avg_pool3d_backward adaptive_max_pool2d_backward adaptive_max_pool3d_backward
    fractional_max_pool2d_backward fractional_max_pool3d_backward max_pool2d_with_indices_backward
    max_pool3d_with_indices_backward
    """,
)
charge_all(CostRule("pooling", nothing), "max_unpool2d max_unpool3d")

_STENCILS: dict[int, str] = {
    1: """
        upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d
        _upsample_nearest_exact2d _upsample_nearest_exact3d
        """,
    4: "upsample_linear1d",
    8: "upsample_bilinear2d _upsample_bilinear2d_aa grid_sampler_2d cudnn_grid_sampler",
    16: "upsample_trilinear3d grid_sampler_3d",
    32: "upsample_bicubic2d _upsample_bicubic2d_aa",
}
"""Operations an element: two for each neighbour."""

_BACKWARDS: dict[int, str] = {
    1: """
        upsample_nearest1d_backward upsample_nearest2d_backward upsample_nearest3d_backward
        _upsample_nearest_exact1d_backward _upsample_nearest_exact2d_backward
        _upsample_nearest_exact3d_backward
        """,
    4: "upsample_linear1d_backward",
    8: "upsample_bilinear2d_backward _upsample_bilinear2d_aa_backward",
    16: "upsample_trilinear3d_backward grid_sampler_2d_backward cudnn_grid_sampler_backward",
    32: "upsample_bicubic2d_backward _upsample_bicubic2d_aa_backward grid_sampler_3d_backward",
}

for _operations, _names in _STENCILS.items():
    charge_all(CostRule("resampling", for_each_result(_operations)), _names)
for _operations, _names in _BACKWARDS.items():
    charge_all(CostRule("resampling", for_each_element(_operations)), _names)
charge_all(CostRule("resampling", for_each_result(6)), "affine_grid_generator")
