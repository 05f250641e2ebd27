"""Peak rates of a device, given or measured: operations a second by dtype, and bytes of memory a
second.

>>> h100 = DevicePeaks("H100 SXM", {"bfloat16": 989e12, "float32": 67e12}, 3.35e12)
>>> DevicePeaks.from_json(h100.to_json()) == h100
True
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import attrs
import torch

from symshape.cost.units import shown
from symshape.errors import InputError

_SAMPLES = 5
_SECONDS = 0.02
"""The minimum duration of a sample, in seconds."""


def _positive(instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    values = value.values() if isinstance(value, Mapping) else (value,)
    for each in values:
        if (
            isinstance(each, bool)
            or not isinstance(each, (int, float))
            or not 0 < each < float("inf")
        ):
            raise InputError(f"{attribute.name}={value!r} must be positive numbers a second")


def _copied(rates: Mapping[str, float]) -> dict[str, float]:
    return dict(rates)


@attrs.frozen
class DevicePeaks:
    """The peak rates of a device.

    Attributes:
        name: the device's.
        flops: operations a second in products of matrices, by dtype (``"bfloat16"``).
        bandwidth: bytes read and written a second.
    """

    name: str
    flops: Mapping[str, float] = attrs.field(converter=_copied, validator=_positive)
    bandwidth: float = attrs.field(validator=_positive)

    def to_json(self) -> str:
        """Return the peaks as JSON."""
        return json.dumps(attrs.asdict(self))

    @classmethod
    def from_json(cls, text: str | Path) -> DevicePeaks:
        """Read peaks from the JSON of ``to_json``, or from a file of it.

        Raises:
            InputError: it is something else.
        """
        try:
            return cls(
                **json.loads(text.read_text(encoding="utf-8") if isinstance(text, Path) else text)
            )
        except (ValueError, TypeError, OSError, RecursionError) as error:
            raise InputError(f"these are no peaks of a device: {error}") from None

    def __str__(self) -> str:
        rates = ", ".join(
            f"{shown(rate, 'FLOP/s')} in {dtype}" for dtype, rate in self.flops.items()
        )
        return f"{self.name}: {rates}, {shown(self.bandwidth, 'B/s')}"


def measure_device(
    device: str | torch.device = "cuda", dtypes: Sequence[torch.dtype] | None = None
) -> DevicePeaks:
    """Measure the rates that a device reaches: products of large matrices in each dtype, and a copy
    of a large tensor.

    It takes about a second on a GPU, and allocates under 1 GB (under 100 MB on a CPU).

    Args:
        device: a device of torch's.
        dtypes: of the products; without them ``float32``, and on a GPU ``bfloat16`` and ``float16``
            too.

    Raises:
        InputError: there is no such device here.
    """
    try:
        found = torch.device(device)
        torch.empty(1, device=found)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"device={device!r} is not here: {error}") from None
    on_gpu = found.type == "cuda"
    wanted = dtypes or (
        (torch.bfloat16, torch.float16, torch.float32) if on_gpu else (torch.float32,)
    )
    size = 8192 if on_gpu else 1024
    flops = {}
    for dtype in wanted:
        a, b = (torch.ones(size, size, device=found, dtype=dtype) for _ in range(2))
        out = torch.empty_like(a)
        seconds = _best(lambda a=a, b=b, out=out: torch.mm(a, b, out=out), on_gpu)  # type: ignore[misc]
        flops[str(dtype).removeprefix("torch.")] = 2 * size**3 / seconds
    elements = 2**27 if on_gpu else 2**23
    source = torch.ones(elements // 2, device=found, dtype=torch.float32)
    target = torch.empty_like(source)
    bandwidth = 2 * source.untyped_storage().nbytes() / _best(lambda: target.copy_(source), on_gpu)
    name = torch.cuda.get_device_name(found) if on_gpu else str(found)
    return DevicePeaks(name, flops, bandwidth)


def _best(run: Callable[[], object], on_gpu: bool) -> float:
    """Return the seconds of one run: the median of samples of several runs each."""

    def synchronize() -> None:
        if on_gpu:
            torch.cuda.synchronize()

    def sample(repeats: int) -> float:
        synchronize()
        start = perf_counter()
        for _ in range(repeats):
            run()
        synchronize()
        return (perf_counter() - start) / repeats

    sample(2)
    repeats = max(1, int(_SECONDS / sample(2)))
    return statistics.median(sample(repeats) for _ in range(_SAMPLES))
