"""Whole programs that run as they are today, and those that make more than two programs: with the
reason.
"""

from __future__ import annotations

DATA = "branches on data; torch.compile breaks the graph there"
SPARSE = "tensors that are not strided"

KNOWN: dict[str, str] = {
    "optim_lbfgs": DATA,
    "sparse_inputs": SPARSE,
    "sparse_made_inside": SPARSE,
    "lazy_module": "its first call creates its parameters",
}
"""Programs of which at least one call runs as it is."""

TRACES: dict[str, int] = {
    "crf_forward_loop": 6,  # a loop over the length: a program for each, as with torch.compile
    "gae": 6,
    "linear_attention_scan": 6,
    "accumulated_in_a_loop": 5,
    "nms_loop_by_mask": 5,
    "early_exit_on_size": 4,  # branches on sizes
    "chunked_processing": 4,
    "swin_window_attention": 3,
    "spatial_transformer": 3,
    "kmeans": 3,
    # every other step, state that the first step makes, and what a step asks of tensors
    "gradient_accumulation": 5,
    "hook_collects_features": 3,
    "kv_cache_by_hand": 3,
    "lookahead_weights": 3,  # one for each way that they go
    "lora_merged_at_every_other_call": 3,
    "curriculum_by_stages": 4,
    "rollout_buffer": 3,
    "codebook_by_averages": 3,  # cdist: another kernel from 26 rows on
    "cache_of_ones_own": 3,  # nothing in it, a part of a larger tensor in it, then tensors
    "streaming_convolution": 3,
    "metrics_flushed": 6,  # a list that grows, and the call that empties it
    "plain_object": 3,  # known by which it is until a second one has come
    "slotted_object": 3,
}
"""Programs for which more than two are made."""
