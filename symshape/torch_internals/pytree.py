"""Torch's pytrees: flattening of nested containers into leaves, and unflattening."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from symshape.torch_internals.private import needed

if TYPE_CHECKING:
    from torch.utils._pytree import SUPPORTED_NODES as SUPPORTED_NODES
    from torch.utils._pytree import GetAttrKey as GetAttrKey
    from torch.utils._pytree import MappingKey as MappingKey
    from torch.utils._pytree import SequenceKey as SequenceKey
    from torch.utils._pytree import TreeSpec as TreeSpec
    from torch.utils._pytree import _get_node_type as _get_node_type
    from torch.utils._pytree import is_namedtuple_class as is_namedtuple_class
    from torch.utils._pytree import keystr as keystr
    from torch.utils._pytree import register_pytree_node as register_pytree_node
    from torch.utils._pytree import tree_flatten as tree_flatten
    from torch.utils._pytree import tree_flatten_with_path as tree_flatten_with_path
    from torch.utils._pytree import tree_leaves as tree_leaves
    from torch.utils._pytree import tree_map as tree_map
    from torch.utils._pytree import tree_map_only as tree_map_only
    from torch.utils._pytree import tree_structure as tree_structure
    from torch.utils._pytree import tree_unflatten as tree_unflatten
    from torch.utils._pytree import treespec_leaf as treespec_leaf
else:
    _NAMES = (
        *(
            "SUPPORTED_NODES",
            "GetAttrKey",
            "MappingKey",
            "SequenceKey",
            "TreeSpec",
            "_get_node_type",
        ),
        *("is_namedtuple_class", "keystr", "register_pytree_node", "treespec_leaf"),
        *("tree_flatten", "tree_flatten_with_path", "tree_leaves", "tree_map", "tree_map_only"),
        *("tree_structure", "tree_unflatten"),
    )
    globals().update({name: needed(f"torch.utils._pytree.{name}") for name in _NAMES})


def flatten_until(value: Any, is_leaf: Callable[[Any], bool]) -> tuple[list[Any], TreeSpec]:
    """Flatten as ``tree_flatten`` does, and keep nothing that ``is_leaf`` refers to alive.

    Torch's function that calls itself is a reference cycle, which holds ``is_leaf``.
    """
    held = [is_leaf]
    try:
        return tree_flatten(value, is_leaf=lambda each: held[0](each))
    finally:
        held.clear()
