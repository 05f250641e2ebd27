"""Numbers, texts and containers of sizes; ops of plain numbers."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.symshape.everyday.program import Arguments, Made, everyday, flat, images, rows

Tensor = torch.Tensor
KIND = "numbers and texts"


@everyday(KIND)
def divided_numbers() -> Made:
    def run(x: Tensor) -> Tensor:
        return x[:, : torch.div(x.size(1), 2, rounding_mode="floor")]

    return run, flat


@everyday(KIND)
def divided_plain_numbers() -> Made:
    return lambda x: x * torch.div(7, 2, rounding_mode="trunc"), flat


@everyday(KIND)
def numbers_in_tensor_slots() -> Made:
    return lambda x: x + torch.add(2, 3) + torch.mul(2, x.size(0)) + torch.true_divide(1, 2), flat


@everyday(KIND)
def floor_divided_tensor_of_a_size() -> Made:
    return lambda x: torch.floor_divide(torch.tensor(x.size(0)), 2) * x, flat


@everyday(KIND)
def legacy_interpolate_linear() -> Made:
    return lambda x: F.interpolate(x, scale_factor=2.0, mode="linear"), rows


@everyday(KIND)
def interpolate_area() -> Made:
    return lambda x: F.interpolate(x, size=(8, 8), mode="area"), images


@everyday(KIND)
def interpolate_area_by_scale() -> Made:
    return lambda x: F.interpolate(x, scale_factor=0.5, mode="area"), images


@everyday(KIND)
def interpolate_nearest_by_scale() -> Made:
    return lambda x: F.interpolate(x, scale_factor=2), images


@everyday(KIND)
def interpolate_to_another() -> Made:
    return lambda x, y: F.interpolate(x, y.shape[2:], mode="bilinear"), lambda b, n: (
        *images(b, n),
        *images(b, n + 3),
    )


@everyday(KIND)
def interpolate_again_by_factor() -> Made:
    def run(x: Tensor) -> Tensor:
        return F.interpolate(
            x, scale_factor=1.5, mode="bicubic", recompute_scale_factor=True, align_corners=True
        )

    return run, images


@everyday(KIND)
def upsample_module() -> Made:
    return nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True), images


@everyday(KIND)
def old_upsample() -> Made:
    return lambda x: F.upsample(x, scale_factor=2), images


@everyday(KIND)
def parameter_in_another_dtype() -> Made:
    net = nn.Linear(8, 8)

    def run(x: Tensor) -> Tensor:
        return F.linear(x.double(), net.weight.to(torch.double), net.bias.to(x.double().dtype))

    return run, rows


@everyday(KIND)
def input_in_the_weights_dtype() -> Made:
    net = nn.Linear(8, 8)
    return lambda x: net(x.to(net.weight.dtype)), lambda b, n: (torch.randn(b, n, 8).double(),)


@everyday(KIND)
def text_of_an_error_never_raised() -> Made:
    def run(x: Tensor) -> Tensor:
        message = f"expected {x.size(0)} rows, got {x.shape}"
        if x.dim() != 2:
            raise ValueError(message)
        return x * 2

    return run, flat


@everyday(KIND)
def text_of_a_tensor_never_raised() -> Made:
    def run(x: Tensor) -> Tensor:
        message = f"strange values: {x}"
        if x.dim() != 2:
            raise ValueError(message)
        return x * 2

    return run, flat


@everyday(KIND)
def assertion_with_a_text() -> Made:
    def run(x: Tensor) -> Tensor:
        assert x.size(0) > 1, f"a batch of {x.size(0)} is too small for {x.shape}"
        return x * 2

    return run, flat


@everyday(KIND)
def check_with_a_text() -> Made:
    def run(x: Tensor) -> Tensor:
        torch._check(x.size(0) > 1, lambda: f"a batch of {x.size(0)}: {x}")
        return x * 2

    return run, flat


@everyday(KIND, "n")
def text_of_a_size_used() -> Made:
    def run(x: Tensor) -> Any:
        return {f"{x.size(0):>5}": x}

    return run, flat


@everyday(KIND, "b")
def size_as_a_key() -> Made:
    names = {5: 2.0, 7: 3.0}

    def run(x: Tensor) -> Tensor:
        return x * names.get(x.size(1), 1.0)

    return run, flat


@everyday(KIND, "b")
def size_in_a_set() -> Made:
    def run(x: Tensor) -> Tensor:
        return x * 2 if x.size(1) in {5, 7} else x

    return run, flat


@everyday(KIND, "")
def set_of_sizes() -> Made:
    return lambda x: x * len({x.size(0), x.size(1)}), flat


@functools.lru_cache
def _causal(n: int) -> Tensor:
    return torch.ones(n, n).tril()


@everyday(KIND, "b")
def cached_mask() -> Made:
    return lambda x: x @ _causal(x.size(1)), flat


@everyday(KIND)
def size_in_a_tuple() -> Made:
    def run(x: Tensor) -> Tensor:
        b, n = shape = (x.size(0), x.size(1))
        return x.new_ones(shape) * (b + n)

    return run, flat


@everyday(KIND)
def slices_as_arguments() -> Made:
    def run(x: Tensor, part: slice) -> Tensor:
        return x[part] * 2

    return run, lambda b, n: (torch.randn(b, n), slice(0, 2))


@everyday(KIND)
def slice_made_of_sizes() -> Made:
    def run(x: Tensor) -> Tensor:
        part = slice(1, x.size(1) - 1)
        return x[:, part] * 2

    return run, flat


@everyday(KIND)
def square_root_of_a_width() -> Made:
    return lambda x: x / math.sqrt(x.size(-1)), rows


@everyday(KIND)
def float_of_a_size() -> Made:
    return lambda x: x * (1.0 / x.size(1)) + x.size(0) ** 2, flat


@everyday(KIND)
def power_of_a_size() -> Made:
    return lambda x: x * x.size(1) ** 0.5, flat


@everyday(KIND)
def rounded_up_to_eight() -> Made:
    return lambda x: F.pad(x, (0, -x.size(1) % 8)), flat


@everyday(KIND)
def ceil_of_a_quotient() -> Made:
    return lambda x: F.pad(x, (0, math.ceil(x.size(1) / 4) * 4 - x.size(1))), flat


@everyday(KIND)
def chunks_in_half() -> Made:
    return lambda x: torch.cat(x.chunk(2, -1)[::-1], -1), rows


@everyday(KIND)
def split_at_a_size() -> Made:
    return lambda x: [each * 2 for each in x.split([2, x.size(1) - 2], 1)], flat


@everyday(KIND)
def zip_of_shapes() -> Made:
    def run(x: Tensor, y: Tensor) -> Tensor:
        same = all(a == b for a, b in zip(x.shape, y.shape, strict=True))
        return x + y if same else x

    return run, lambda b, n: (torch.randn(b, n), torch.randn(b, n))


@everyday(KIND)
def min_and_max_of_sizes() -> Made:
    return lambda x: x.new_ones(max(x.shape), min(x.shape)), lambda b, n: (torch.randn(b, b + n),)


@everyday(KIND)
def numbers_of_elements() -> Made:
    return lambda x: x.sum() / x.numel() + math.prod(x.shape), flat


@everyday(KIND)
def number_of_elements_of_a_shape() -> Made:
    return lambda x: x.sum() / x.shape.numel(), flat


@everyday(KIND)
def relative_positions() -> Made:
    table = nn.Embedding(33, 4)

    def run(x: Tensor) -> Tensor:
        places = torch.arange(x.size(1))
        return table((places[None] - places[:, None]).clamp(-16, 16) + 16)

    return run, flat


@everyday(KIND)
def sinusoids() -> Made:
    def run(x: Tensor) -> Tensor:
        places = torch.arange(x.size(1), dtype=torch.float)[:, None]
        rates = torch.exp(torch.arange(0, 8, 2) * (-math.log(10000.0) / 8))
        return x + torch.cat([(places * rates).sin(), (places * rates).cos()], 1)

    return run, rows


@everyday(KIND)
def alibi() -> Made:
    def run(x: Tensor) -> Tensor:
        slopes = 2.0 ** -torch.arange(1, 5)
        return slopes[:, None, None] * (torch.arange(x.size(1)) - x.size(1) + 1)

    return run, flat


@everyday(KIND)
def scalar_set_in_place() -> Made:
    def run(x: Tensor) -> Tensor:
        result = x.clone()
        result[0, 0] = x.size(1)
        result[:, -1] = 0.5
        return result

    return run, flat


@everyday(KIND)
def windows() -> Made:
    def run(x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        x = F.pad(x, (0, -w % 4, 0, -h % 4))
        high, wide = x.size(2) // 4, x.size(3) // 4
        return x.view(b, c, high, 4, wide, 4).permute(0, 2, 4, 3, 5, 1).reshape(-1, 16, c)

    return run, images


def _with_none(b: int, n: int) -> Arguments:
    return torch.randn(b, n), None, {"scale": 2, "names": ["a", "b"]}


@everyday(KIND)
def options_in_a_dict() -> Made:
    def run(x: Tensor, y: Tensor | None, options: dict[str, Any]) -> Tensor:
        return x * options["scale"] + len(options["names"]) if y is None else y

    return run, _with_none
