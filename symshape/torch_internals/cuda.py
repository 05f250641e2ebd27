"""CUDA functions of torch that have no public name; a torch that was built without CUDA has none of
them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from symshape.torch_internals.private import optional

current_stream: Callable[[int], int] = optional(
    "torch._C._cuda_getCurrentRawStream", lambda device: 0
)
"""The raw current stream of a device."""
is_capturing: Callable[[], bool] = optional(
    "torch._C._cuda_isCurrentStreamCapturing", lambda: False
)
"""Return whether the current stream is being captured.  May raise in CPU builds."""
end_allocation: Callable[[int, Any], None] = optional(
    "torch._C._cuda_endAllocateToPool", lambda device, pool: None
)
"""Tell the allocator of a device that no more memory comes from a pool."""
release_pool: Callable[[int, Any], None] = optional(
    "torch._C._cuda_releasePool", lambda device, pool: None
)
"""Tell the allocator of a device that one graph less uses a pool."""
storage_at: Callable[..., Any] | None = optional(
    "torch._C._construct_storage_from_data_pointer", None
)
"""Make a storage over memory that somebody else owns."""
compile_kernel: Callable[[str, str], Any] | None = optional("torch.cuda._compile_kernel", None)
"""Compiles CUDA source with NVRTC and loads it on the current device; returns the kernel of a name.
"""
records_history: Callable[[], bool] = optional("torch._C._cuda_isHistoryEnabled", lambda: True)
"""Return whether the allocator records the history of its requests."""
record_history: Callable[..., None] | None = optional(
    "torch.cuda.memory._record_memory_history", None
)
"""Begin to record the history of the allocator's requests; ``enabled=None`` ends it."""
allocator_snapshot: Callable[..., Any] | None = optional("torch.cuda.memory._snapshot", None)
"""Return the allocator's segments, and the recorded history of each device."""
