"""The exact metadata of a call's flat arguments as one hashable key: the quickest look-up there is.

The function for each number of arguments is generated once, so that a call runs straight-line code.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch

from symshape.tracing.state import modes

_PLAIN = (int, bool, str, type(None))


def _plain(leaf: Any) -> Any:
    """A constant argument's part of the key; None where only the slow path can tell."""
    kind = type(leaf)
    if kind in _PLAIN:
        return (kind, leaf)
    if kind is float:
        return (kind, repr(leaf))
    if kind is torch.nn.Parameter:
        return (kind, *_tensor(leaf))
    return None


def _tensor(leaf: torch.Tensor) -> tuple[Any, ...]:
    layout = leaf.is_contiguous() or leaf.stride()
    return leaf.shape, leaf.dtype, leaf.device, leaf.requires_grad, layout, leaf.storage_offset()


def _generate(number: int) -> Callable[[tuple[Any, ...]], Hashable]:
    names = [f"a{i}" for i in range(number)]
    lines = ["def key(leaves):", f"    {', '.join(names)}{',' if number == 1 else ''} = leaves"]
    for name in names:
        lines += [
            f"    if type({name}) is Tensor:",
            f"        k{name} = ({name}.shape, {name}.dtype, {name}.device, {name}.requires_grad,",
            f"            {name}.is_contiguous() or {name}.stride(), {name}.storage_offset())",
            "    else:",
            f"        k{name} = plain({name})",
            f"        if k{name} is None: return None",
        ]
    if number == 2:
        lines.append("    if a0 is a1 and isinstance(a0, Tensor): return None")
    elif number > 2:
        ids = ", ".join(f"id({name})" for name in names)
        lines.append(f"    if len({{{ids}}}) < {number} and repeats(leaves): return None")
    lines.append(f"    return (modes(), {', '.join(f'k{name}' for name in names)})")
    namespace = {"Tensor": torch.Tensor, "plain": _plain, "modes": modes, "repeats": _repeats}
    exec("\n".join(lines), namespace)  # made of our own names only
    return namespace["key"]  # type: ignore[return-value]


def _repeats(leaves: tuple[Any, ...]) -> bool:
    """Whether one tensor is passed twice."""
    tensors = [id(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor)]
    return len(set(tensors)) < len(tensors)


_generated = [_generate(number) for number in range(1, 17)]


def quick_key(leaves: tuple[Any, ...]) -> Hashable | None:
    """The key of flat arguments, or None where only the slow path can tell (nested arguments, one tensor twice)."""
    number = len(leaves)
    return _generated[number - 1](leaves) if 0 < number <= 16 else None
