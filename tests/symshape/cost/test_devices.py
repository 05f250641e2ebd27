"""Peaks of devices: given, measured, kept as JSON."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import symshape
from symshape.cost.devices import DevicePeaks
from symshape.errors import InputError


def test_measured_on_the_cpu() -> None:
    peaks = symshape.measure_device("cpu", [torch.float32])
    assert peaks.name == "cpu"
    assert 1e8 < peaks.flops["float32"] < 1e14
    assert 1e7 < peaks.bandwidth < 1e13
    assert DevicePeaks.from_json(peaks.to_json()) == peaks
    assert "FLOP/s in float32" in str(peaks)


@pytest.mark.parametrize(
    ("flops", "bandwidth", "message"),
    [
        ({"float32": 0}, 1.0, "flops={'float32': 0} must be positive numbers a second"),
        ({"float32": 1.0}, float("inf"), "bandwidth=inf must be positive"),
        ({"float32": 1.0}, "fast", "bandwidth='fast' must be positive"),
    ],
)
def test_malformed(flops: Any, bandwidth: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        DevicePeaks("d", flops, bandwidth)


def test_refusals() -> None:
    with pytest.raises(InputError, match="device='nowhere' is not here"):
        symshape.measure_device("nowhere")
    for text in ("[", "{}", '{"name": 3}'):
        with pytest.raises(InputError, match="no peaks of a device"):
            DevicePeaks.from_json(text)
