"""Programs that are refused today, or fix a size that they should not: with what it would take.
Only to shrink.
"""

from __future__ import annotations

import attrs
import torch


@attrs.frozen
class Known:
    """What becomes of a program today (the sizes that it keeps, or ``refused``), and what it would
    take.
    """

    outcome: str
    reason: str


TEXTS = "a text counts as used when it is made: texts that show whether anybody looks at them"

KNOWN: dict[str, Known] = {
    "data dependent-arange_by_a_symbol": Known(
        "b", "floats round before they are compared with the end"
    ),
    "numbers and texts-text_of_an_error_never_raised": Known("", TEXTS),
    "numbers and texts-text_of_a_tensor_never_raised": Known("refused", TEXTS),
    "modules-grid_sampled": Known(
        "n", "affine_grid takes the least of the sizes: it only wants to know whether one is 0"
    ),
}
KNOWN_IN_INFERENCE: dict[str, Known] = (
    {}
    if torch.torch_version.TorchVersion(torch.__version__) >= "2.13"
    else {
        "modules-jvp_of_a_function": Known(
            "refused", "torch 2.11 itself finds tangents of zeros in inference mode"
        )
    }
)
"""In inference mode alone."""
