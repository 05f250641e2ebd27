"""What a traced function read besides its arguments: the places that a recording found, compared at each call.

Parameters, buffers, submodules, functions and other objects are compared by identity, plain values by value, lists and
dictionaries item by item.  A change is a miss.
"""

from __future__ import annotations

import keyword
import types
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from operator import is_
from typing import Any

import torch

from symshape.calls.modes import modes
from symshape.tracing.state.places import Answer, Attribute, Container, Place, Table, items_of, same, same_items


class State:
    """The state that one program was traced in; ``unchanged`` is what each call asks.

    Args:
        places: what was read.
        containers: lists, dictionaries, sets … that were read.
        tables: dictionaries in which names were looked for in vain.
    """

    __slots__ = (
        "_known",
        "_metadata",
        "_places",
        "_quick",
        "_tables",
        "_tensor_checks",
        "_tensors",
        "_written",
        "containers",
    )

    def __init__(
        self, places: Iterable[Place] = (), containers: Iterable[Container] = (), tables: Iterable[Table] = ()
    ) -> None:
        self._places = list(places)
        self.containers = list(containers)
        self._tables = list(tables)
        self._known = {(id(place.owner), place.key) for place in self._places}
        self._known |= {(id(each.owner), "") for each in self.containers}
        self._known |= {(id(each.owner), key) for each in self._tables for key in each.names or ("",)}
        tensors = (each.value for each in self._places if isinstance(each.value, torch.Tensor))
        items = (item for each in self.containers for item in each.items if isinstance(item, torch.Tensor))
        self._tensors = list({id(each): each for each in (*tensors, *items)}.values())
        self._metadata = list(map(_metadata, self._tensors))
        self._quick: Callable[[], bool] | None = None
        self._written: dict[str, Any] = {}
        self._tensor_checks: dict[Any, Callable[..., bool]] = {}

    @property
    def empty(self) -> bool:
        """Whether the function reads nothing that can change."""
        return not self._places and not self.containers and not self._tables

    def covers(self, other: State) -> bool:
        """Whether this state compares everything that another one compares."""
        return other._known <= self._known

    def and_(self, other: State) -> State:
        """What either compares; both hold now."""
        known = self._known
        places = [each for each in other._places if (id(each.owner), each.key) not in known]
        containers = [each for each in other.containers if (id(each.owner), "") not in known]
        return State((*self._places, *places), (*self.containers, *containers), (*self._tables, *other._tables))

    # -- the question of each call
    def unchanged(self) -> bool:
        """Whether every place still holds what it held when the program was traced."""
        try:
            if (self._quick or self._write())() and self._same_tensors():
                return True
        except (KeyError, ValueError, AttributeError):
            return False  # a key, an attribute or a variable is gone
        if self.changes():
            return False
        self._refresh()  # other objects, but equal ones: remembered, so that the next call is quick
        return True

    def _write(self) -> Callable[[], bool]:
        """Generates the function that compares everything but tensors' metadata in one expression."""
        namespace: dict[str, Any] = {}
        owners: dict[int, str] = {}
        lines: list[str] = []
        for i, place in enumerate(self._places):
            owner = owners.setdefault(id(place.owner), f"o{len(owners)}")
            namespace[owner], namespace[f"v{i}"] = place.owner, place.value
            lines.append(f"{_reading(place, owner, namespace, i)} is v{i}")
        for i, container in enumerate(self.containers):
            if not container.items and not isinstance(container.owner, bytearray):
                continue
            namespace[f"c{i}"] = container.owner
            namespace[f"i{i}"] = container.items
            if type(container.owner) in (list, tuple, set, deque):
                lines.append(f"len(c{i}) == {len(container.items)} and all(map(same, c{i}, i{i}))")
            else:
                lines.append(f"all_same(items(c{i}), i{i})")
        namespace.update(all=all, map=map, len=len, any=any, same=is_, items=items_of, tuple=tuple)
        namespace.update(getattr=getattr, all_same=same_items)
        filled = [each for each in self._tables if each.known]
        namespace["tables"], namespace["lengths"] = [t.owner for t in filled], tuple(len(t.known) for t in filled)
        none = [each.owner for each in self.containers if not each.items and not isinstance(each.owner, bytearray)]
        namespace["empty"] = [*none, *(each.owner for each in self._tables if not each.known)]
        lines.append("tuple(map(len, tables)) == lengths and not any(empty)")
        source = "def quick():\n    return (\n        " + "\n        and ".join(lines) + "\n    )\n"
        exec(source, namespace)  # made of our own names, and of attributes' names as literals
        self._written = namespace
        self._quick = namespace["quick"]
        return self._quick

    def _refresh(self) -> None:
        namespace = self._written
        for i, place in enumerate(self._places):
            namespace[f"v{i}"] = place.read()
        for i, container in enumerate(self.containers):
            namespace[f"i{i}"] = container.read()
        namespace["lengths"] = tuple(map(len, namespace["tables"]))

    def _same_tensors(self) -> bool:
        """Whether tensors still have their metadata (``Tensor.data`` can be given another shape or dtype)."""
        if not self._tensors:
            return True
        now = modes()  # torch's check depends on them
        check = self._tensor_checks.get(now)
        if check is not None and check(*self._tensors):
            return True
        if list(map(_metadata, self._tensors)) != self._metadata:
            return False
        self._tensor_checks[now] = _tensor_check(self._tensors)
        return True

    def changes(self) -> list[str]:
        """What is different now, for people."""
        found = [place.name for place in self._places if not same(place.read(), place.value)]
        found += [each.name for each in self.containers if not same_items(each.read(), each.items)]
        for table in self._tables:
            new = table.owner.keys() - table.known
            keys = new if table.names is None else new & table.names
            found += [f"{table.name}.{key}" if table.name else str(key) for key in sorted(keys)]
        if self._metadata != list(map(_metadata, self._tensors)):
            then = dict(zip(map(id, self._tensors), self._metadata, strict=True))
            tensors = [place for place in self._places if id(place.value) in then and place.name not in found]
            changed = [each for each in self._tensors if _metadata(each) != then[id(each)]]
            names = {id(place.value): place.name for place in tensors}
            found += [f"{names.get(id(each), 'a tensor')}.data" for each in changed]
        return found


def _metadata(tensor: torch.Tensor) -> tuple[Any, ...]:
    if tensor.layout is not torch.strided:
        return tensor.dtype, tensor.device, tensor.requires_grad, tensor.shape, tensor.layout
    return tensor.dtype, tensor.device, tensor.requires_grad, tensor.shape, tensor.stride()


def _tensor_check(tensors: Sequence[torch.Tensor]) -> Callable[..., bool]:
    """Torch's own check of tensors' metadata, in C++; without it, one that never answers yes.

    (A private name, checked on 2.11 to 2.13.)
    """
    try:
        from torch._C._dynamo.guards import TensorGuards

        sizes: list[Any] = [list(tensor.shape) for tensor in tensors]
        strides: list[Any] = [list(tensor.stride()) for tensor in tensors]
        return TensorGuards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check
    except (ImportError, RuntimeError, TypeError):
        return lambda *_: False


def _reading(place: Place, owner: str, namespace: dict[str, Any], number: int) -> str:
    """The expression that reads a place again."""
    if isinstance(place, Answer):
        return f"{owner}()"
    if isinstance(place, Attribute):
        return f"{owner}.{place.key}" if place.key.isidentifier() and not keyword.iskeyword(place.key) else (
            f"getattr({owner}, {place.key!r})"
        )
    if isinstance(place.owner, types.CellType):
        return f"{owner}.cell_contents"
    if isinstance(place.key, str):
        return f"{owner}[{place.key!r}]"
    namespace[f"k{number}"] = place.key
    return f"{owner}[k{number}]"
