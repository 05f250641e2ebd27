"""Hooks that do what the code they stand in would have done, and write down that they were
called.
"""

import builtins
import sys
import types
from typing import Any

from symshape.tracing.state.instrument.rewriter import Hooks

SEEN: list[tuple[Any, ...]] = []


def _enter(code: types.CodeType) -> None:
    SEEN.append(("enter", code.co_name))


def _load_global(name: str) -> Any:
    SEEN.append(("load_global", name))
    names = sys._getframe(1).f_globals
    if name in names:
        return names[name]
    try:
        return vars(builtins)[name]
    except KeyError:
        raise NameError(f"name {name!r} is not defined") from None


def _load_attr(owner: Any, name: str) -> Any:
    SEEN.append(("load_attr", name))
    return getattr(owner, name)


def _table(owner: Any) -> Any:
    SEEN.append(("table",))
    return owner.__dict__


def _table_item(owner: Any, key: str) -> Any:
    SEEN.append(("table_item", key))
    return owner.__dict__


def _table_of(owner: Any) -> Any:
    SEEN.append(("table_of",))
    return owner.__getattribute__


def _super_table_of(kind: Any, start: Any, owner: Any) -> Any:
    SEEN.append(("super_table_of",))
    return kind(start, owner).__getattribute__


def _get_of(value: Any) -> Any:
    SEEN.append(("get_of",))
    return value.get


def _load_super(kind: Any, start: Any, owner: Any, name: str) -> Any:
    SEEN.append(("load_super", name))
    return getattr(kind(start, owner), name)


def _loaded(module: Any, name: str) -> Any:
    SEEN.append(("loaded", name))
    return module


def _imported(module: Any, value: Any, name: str) -> Any:
    SEEN.append(("imported", module.__name__, name))
    return value


def _store_attr(owner: Any, name: str) -> None:
    SEEN.append(("store_attr", type(owner).__name__, name))


def _store_global(name: str) -> None:
    SEEN.append(("store_global", name))


def _delete_attr(owner: Any, name: str) -> None:
    SEEN.append(("delete_attr", type(owner).__name__, name))


def _delete_global(name: str) -> None:
    SEEN.append(("delete_global", name))


def _contains(item: Any, container: Any) -> bool:
    SEEN.append(("contains",))
    return item in container


def _is_same(one: Any, other: Any) -> bool:
    SEEN.append(("is_same",))
    return one is other


def _subject(value: Any) -> Any:
    SEEN.append(("subject",))
    return value


def _matched(value: Any, kind: Any) -> None:
    SEEN.append(("matched",))


def _called(function: Any) -> Any:
    SEEN.append(("called",))
    return function


HOOKS = Hooks(
    enter=_enter,
    load_global=_load_global,
    load_attr=_load_attr,
    load_super=_load_super,
    importing=lambda level, name: SEEN.append(("importing", level, name)),
    importing_from=lambda module, name: SEEN.append(("importing from", name)),
    loaded=_loaded,
    imported=_imported,
    store_attr=_store_attr,
    store_global=_store_global,
    delete_attr=_delete_attr,
    delete_global=_delete_global,
    is_same=_is_same,
    contains=_contains,
    table=_table,
    table_item=_table_item,
    table_of=_table_of,
    super_table_of=_super_table_of,
    get_of=_get_of,
    subject=_subject,
    matched=_matched,
    called=_called,
)
