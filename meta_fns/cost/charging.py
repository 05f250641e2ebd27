"""Giving one cost rule to many ops at once."""

from __future__ import annotations

from functools import lru_cache

from meta_fns.core import registry
from meta_fns.core.cost_rule import CostRule

__all__ = ["charge_all"]


def charge_all(cost: CostRule, names: str) -> None:
    """Charge every overload of the ops named (``"add sub"``), or one overload (``"max.other"``; in
    ``aten``).

    Raises: KeyError if a name has no rule to write the cost into; ValueError if it has a cost
    already.
    """
    for name in names.split():
        if "." in name:
            registry.charge(f"aten.{name}", cost)
            continue
        overloads = _overloads().get(name)
        if overloads is None:
            raise KeyError(f"no rule of aten.{name} to write its cost into")
        for overload in overloads:
            registry.charge(overload, cost)


@lru_cache(maxsize=1)
def _overloads() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in registry.rules():
        found.setdefault(row.overload.split(".")[1], []).append(row.overload)
    return found
