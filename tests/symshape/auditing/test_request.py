"""Requests that do not fit the example are refused, with the name of what is wrong."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import symshape
from symshape.errors import InputError
from tests.symshape.auditing.programs import LENGTHS, MASK, X

PADDED = {"x": {1: "length"}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"padded": {}}, "names no dimension"),
        ({"padded": {"y": {1: "length"}}}, "the argument 'y', which is no tensor"),
        ({"padded": {"x": {3: "length"}}}, "dimension 3 of x, which has 3 dimensions"),
        ({"padded": {"x": {1: "length", 2: "length"}}}, "two dimensions of x"),
        ({"valid": "masks"}, "names no tensor"),
        ({"valid": {"width": "mask"}}, "must say which positions are valid for length"),
        ({"valid": "x"}, "a mask of"),
        ({"valid": "~x"}, "a mask of"),
        ({"valid": lambda **_: torch.ones(3)}, "must return a tensor"),
        ({"example": {"x": X, "mask": torch.ones(3, 5)}}, "has no padding"),
        ({"example": {"x": X, "mask": MASK[:2]}}, "the mask of length is"),
        (
            {"example": {"x": X, "mask": MASK * 2 - 1 + (MASK == 0) * 0.5}},
            "several numbers|has no padding",
        ),
        ({"side": "left"}, "not on the left"),
        ({"side": "up"}, "write 'right'"),
        ({"padding": "none"}, "write 'finite'"),
        ({"fixed": {"mask": 0}}, "which padded= does not"),
        ({"fixed": {"x": 7}}, "holds 7 at padding, but in the example it does not"),
        (
            {"padded": {"x": {1: "length"}, "mask": {1: "length"}}, "fixed": {"mask": 7}},
            "mask holds 7 at padding, but in the example it does not",
        ),
        ({"padded": {"mask": {1: "length"}}}, "names only mask for length, which is its mask"),
        ({"example": 3}, "is a mapping"),
        ({"example": (X, MASK, X)}, "cannot be called"),
    ],
)
def test_refused(change: dict[str, Any], message: str) -> None:
    request: dict[str, Any] = {
        "example": {"x": X, "mask": MASK},
        "padded": PADDED,
        "valid": "mask",
    } | change
    with pytest.raises(InputError, match=message):
        symshape.audit_padding(lambda x, mask: x + mask[..., None], **request)


def test_lengths_beyond_the_size() -> None:
    with pytest.raises(InputError, match="larger than 5"):
        symshape.audit_padding(
            lambda x, lengths: x, {"x": X, "lengths": LENGTHS + 1}, PADDED, "lengths"
        )


def test_an_argument_that_is_as_long_but_not_padded_is_noted() -> None:
    kinds = torch.zeros(3, 5)
    found = symshape.audit_padding(
        lambda x, mask, kinds: x + kinds[..., None],
        {"x": X, "mask": MASK, "kinds": kinds},
        PADDED,
        "mask",
    )
    assert found.proven
    assert any("kinds is as long as length" in note for note in found.notes)


def _pooled(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return (x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)


def _inverted(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return x.masked_fill(mask[..., None], 0).sum(1)


@pytest.mark.parametrize("valid", ["mask", "~mask"])
def test_a_mask_may_be_listed_as_padded(valid: str) -> None:
    """Its padding is what makes it the mask: it gets no other numbers."""
    mask = MASK if valid == "mask" else MASK == 0
    model = _pooled if valid == "mask" else _inverted
    padded = {**PADDED, "mask": {1: "length"}}
    found = symshape.audit_padding(model, {"x": X, "mask": mask}, padded, valid)
    assert found["result"].verdict == "proven"
    alone = symshape.audit_padding(model, {"x": X, "mask": mask}, PADDED, valid)
    assert str(found) == str(alone)
    leaking = symshape.audit_padding(
        lambda x, mask: x.mean(1), {"x": X, "mask": mask}, padded, valid
    )
    assert leaking["result"].verdict == "leaks"


def test_another_dimension_of_the_mask() -> None:
    square = torch.ones(5, 5)
    square[:, 3:] = 0
    with pytest.raises(InputError, match="mask of length, whose positions are its dimension 1"):
        symshape.audit_padding(
            _pooled,
            {"x": torch.ones(5, 5, 4), "mask": square},
            {**PADDED, "mask": {0: "length"}},
            "mask",
        )
