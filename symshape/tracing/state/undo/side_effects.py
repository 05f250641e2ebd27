"""The side effects of a traced function: undone after the trace, so that each call can repeat them.

A graph repeats the tensor operations of a program and nothing else.  A change of Python's state is
noted for each call to repeat (see ``changes``), or refused if no call can repeat it.
"""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from symshape.calls import variables
from symshape.calls.constant_keys import NOTHING
from symshape.calls.object_kinds import ReadOtherwise, flatten_from_now_on
from symshape.calls.variables import Variable
from symshape.errors import Problem, Reason, UnsupportedError
from symshape.tracing.state.instrument.stores import OUTSIDE_OF_DICTIONARIES, is_alone
from symshape.tracing.state.record.lru_caches import filled, is_watched, missing_in, take_back
from symshape.tracing.state.record.places import (
    MISSING,
    PLAIN,
    Answer,
    Attribute,
    Cell,
    Container,
    Keys,
    WeakAttribute,
    same,
    same_item,
)
from symshape.tracing.state.record.reads import Namespace
from symshape.tracing.state.record.recorder import Recorder
from symshape.tracing.state.undo.writes import (
    Changes,
    holds_symbolic,
    of_container,
    of_slot,
    same_order,
)
from symshape.tracing.symbolic.keys import plain_key
from symshape.tracing.symbolic.tensors import SymbolicTensor

_ADVICE = "a traced function must return its results (or write into a buffer in place)"
_OF_PYTHON = frozenset(
    {"__abstractmethods__", "_abc_impl", "__annotations__", "__builtins__", "__warningregistry__"}
)
_SIZES = {f"_{sym}{what}_capsule" for sym in ("", "sym_") for what in ("sizes", "strides")}
_NOTES = _OF_PYTHON | {"__dynamo_disable"} | _SIZES
"""The names under which Python and torch store notes of their own.

Torch marks functions that Dynamo must skip, at their first call, and stores on a wrapped tensor the
sizes that it read.
"""


def undo(recorder: Recorder) -> Changes:
    """Undo the changes of a trace to Python's state, and return them."""
    found = Changes(recorder)
    recorder.alone = recorder.alone and is_alone()
    for memo, before, keys, name in recorder.memos:
        now = memo.cache_info()
        # it may hold symbolic tensors now, and who else has them is unknown
        if now.misses != before.misses:
            watched = recorder.stays_here and is_watched(memo)
            found.missing += missing_in(memo, name, keys) if watched else []
            made = take_back(memo, keys)
            if made:
                text = f"makes {made} that the memo of {name} keeps; call {name} once before"
                (found.unmade if watched else found.problems).append(Problem(text, Reason.MEMO))
        # a result that was not computed again may differ once the cache is cleared
        if now.hits != before.hits:
            recorder.from_memos = True
            recorder.place(filled(memo, grows=now.misses == before.misses))
    back: list[Callable[[], object]] = []
    by_owner: dict[int, list[Any]] = {}
    for owner, key in recorder.stored:
        by_owner.setdefault(owner, []).append(key)
    for namespace in recorder.namespaces.values():
        if not namespace.unchanged() or (
            by_owner and id(namespace.kind or namespace.owner) in by_owner
        ):
            _undo_namespace(recorder, namespace, by_owner, found, back)
    for slot in recorder.slots.values():
        _undo_slot(recorder, slot, found, back)
    for cell in recorder.cells:
        _undo_cell(recorder, cell, found, back)
    containers = [each for each in recorder.containers if not each.unchanged()]
    for container in containers:  # first collect all current values: one container may hold another
        _add_container(recorder, container, found)
    others = [place for place in recorder.places if type(place) is not Cell or not recorder.alone]
    others = [
        place for place in others if type(place) is not Keys and not same(place.read(), place.value)
    ]
    # the class of an object first: its slots are there only in an object of that class
    for place in others:
        if place.key == "__class__":
            found.problems += [
                Problem(text, Reason.STATE) for text in _other_place(recorder, place)
            ]
    for put in back:
        put()
    for container in containers:
        container.put_back()
    for place in others:
        found.problems += [Problem(text, Reason.STATE) for text in _other_place(recorder, place)]
    return found


def _add_container(recorder: Recorder, container: Container, found: Changes) -> None:
    """Add the change of a container; of a dictionary with the same keys as before, the changes of
    its items.
    """
    owner, items, text = container.owner, container.items, _container_text(container)
    is_table = type(owner) in variables.CONTAINERS and isinstance(owner, dict)
    # symbolic sizes among keys are fixed by hashing
    if is_table and any(plain_key(key) is not key for key in owner):
        variables.refill(owner, {plain_key(key): value for key, value in owner.items()})
    whole = of_container(recorder, container)
    if (
        not isinstance(whole, variables.Contents)
        or not isinstance(owner, dict)
        or tuple(owner) != items[::2]
    ):
        found.add(whole, owner, text)
        return
    for key, then in zip(items[::2], items[1::2], strict=True):
        if not same_item(now := owner[key], then):
            found.add(
                variables.DictionaryItem(owner, key, recorder.item(container.name, key)), now, text
            )


def _is_own(recorder: Recorder, owner: Any, key: Any, now: Any) -> bool:
    """Return whether a difference is the program's: see ``stores``."""
    return recorder.alone or (id(owner), key) in recorder.stored or holds_symbolic(now)


def _undo_namespace(
    recorder: Recorder,
    namespace: Namespace,
    stored: dict[int, list[Any]],
    found: Changes,
    back: list[Callable[[], object]],
) -> None:
    owner, before = namespace.owner, namespace.before
    where = namespace.kind or owner
    # stored, but the same as before: a later call may find another value
    for key in stored.get(id(where), ()):
        if (then := before.get(key, MISSING)) is owner.get(key, MISSING) and not holds_symbolic(
            then
        ):
            recorder.place(Cell(owner, key, then, _name(namespace, key)))
    if namespace.unchanged():
        return
    ordered = same_order(before, owner)
    for key in [*(key for key in before if key not in owner), *owner]:
        then, now = before.get(key, MISSING), owner.get(key, MISSING)
        if then is now or key in _NOTES or isinstance(now, types.ModuleType):
            continue
        if _was_exchanged(recorder, namespace, key, then, now):
            text = (
                f"has {_name(namespace, key)} exchanged inside of torch; read it in the "
                "function before"
            )
            found.problems.append(Problem(text, Reason.UNCOMPARED))
            continue
        is_stored = (id(where), key) in recorder.stored
        if not (namespace.own or is_stored or holds_symbolic(now)):
            continue
        if not namespace.open and not _is_own(recorder, where, key, now):
            continue
        back.append(functools.partial(_put_back, namespace, key, then))
        name = _name(namespace, key)
        variable: Variable | None = None
        # a value stored without a record may have been read as it was before
        if namespace.kind is not None:
            variable = (
                variables.ClassAttribute(namespace.kind, key, name)
                if now is not MISSING and is_stored
                else None
            )
        elif (
            isinstance(owner, dict)
            and (namespace.own or is_stored)
            and not namespace.given
            and ordered
        ):
            variable = variables.DictionaryItem(owner, key, name)
            if now is MISSING:  # deleting reads whether the name is there
                recorder.place(Cell(owner, key, then, name))
        found.to_objects |= namespace.given
        shown = name if namespace.name else _name_at_top(recorder, owner, key)
        found.add(variable, now, _problem(shown, then, now))


def _was_exchanged(recorder: Recorder, namespace: Namespace, key: Any, then: Any, now: Any) -> bool:
    """Return whether torch had put an object of the trace there at the first read, and has restored
    the old value.
    """
    owner = id(namespace.owner)
    ours = (
        not recorder.planted.isdisjoint(((owner, key), (owner, "")))
        or owner in recorder.stand_ins
        or namespace.given
    )
    return not ours and not holds_symbolic(now) and _held_symbolic(recorder, then)


def _held_symbolic(recorder: Recorder, value: Any, around: tuple[int, ...] = ()) -> bool:
    """Return whether a value held an object of the trace before it changed, except one planted for
    a variable.
    """
    if type(value) not in variables.CONTAINERS:
        return holds_symbolic(value)
    if (id(value), "") in recorder.planted or id(value) in around:
        return False
    noted = next((each.items for each in recorder.containers if each.owner is value), None)
    items = (value.values() if isinstance(value, dict) else value) if noted is None else noted
    return any(_held_symbolic(recorder, each, (*around, id(value))) for each in items)


def _name_at_top(recorder: Recorder, owner: Any, key: Any) -> str:
    """Return the name of an attribute of the module that is traced, or of a global."""
    root = recorder.root
    of_root = isinstance(root, torch.nn.Module) and owner is root.__dict__
    return f"{type(root).__name__}.{key}" if of_root else f"the global {key}"


def _name(namespace: Namespace, key: Any) -> str:
    return f"{namespace.name}.{key}" if namespace.name else str(key)


def _undo_slot(
    recorder: Recorder, slot: Attribute, found: Changes, back: list[Callable[[], object]]
) -> None:
    now = slot.read()
    if now is slot.value:
        if (id(slot.owner), slot.key) in recorder.stored and not holds_symbolic(now):
            recorder.attribute(slot.owner, slot.key, now, slot.name)
    elif _is_own(recorder, slot.owner, slot.key, now):
        back.append(functools.partial(_put_slot_back, slot))
        given = id(slot.owner) in recorder.given
        found.to_objects |= given
        variable = None if given else of_slot(slot)
        if now is MISSING and not given:
            recorder.attribute(slot.owner, slot.key, slot.value, slot.name)
        found.add(variable, now, _problem(slot.name, slot.value, now))


def _undo_cell(
    recorder: Recorder, cell: Cell, found: Changes, back: list[Callable[[], object]]
) -> None:
    now = cell.read()
    if now is not cell.value:
        variable = variables.ClosureVariable(cell.owner, cell.name)
        if now is MISSING:
            recorder.place(cell)
        back.append(
            functools.partial(variable.write, NOTHING if cell.value is MISSING else cell.value)
        )
        found.add(variable, now, _problem(f"the variable {cell.name} around it", cell.value, now))


def _put_back(namespace: Namespace, key: Any, then: Any) -> None:
    """Restore the old value of an entry; the attributes of a class are set on the class."""
    owner = namespace.owner
    if isinstance(owner, types.MappingProxyType):
        if then is MISSING:
            type.__delattr__(namespace.kind, key)
        else:
            type.__setattr__(namespace.kind, key, then)
    elif then is MISSING:
        owner.pop(key, None)
    else:
        owner[key] = then


def _put_slot_back(slot: Attribute) -> None:
    if slot.value is MISSING:
        object.__delattr__(slot.owner, slot.key)
    else:
        object.__setattr__(slot.owner, slot.key, slot.value)


def _other_place(recorder: Recorder, place: Any) -> Iterator[str]:
    """Yield a change that was not undone before: of an attribute outside of dictionaries, or of
    another thread.

    Such an attribute gets its old value back, because the function then runs in eager.
    """
    if not same(now := place.read(), place.value):
        namespace = recorder.namespaces.get(id(place.owner))
        if recorder.alone:
            if type(place) is not Cell:
                _put_attribute_back(place)
            yield _problem(place.name, place.value, now)
        elif namespace is None or namespace.own:
            yield (
                f"reads {place.name}, which another thread changed during the trace; a later "
                "call is traced"
            )


_SHOWN = 60  # characters of what a container holds, in a message
_PARTS_OF_PARTIALS = ("func", "args", "keywords")
_PARTS_OF_PROPERTIES = ("fget", "fset", "fdel", "__doc__")


def _put_attribute_back(place: Attribute | Answer) -> None:
    """Restore an attribute that Python keeps outside of dictionaries and that was set without a
    hook, if that is one.

    (``types.FunctionType.__defaults__.__set__`` and ``partial.__setstate__`` are such ways to set
    one.)
    """
    owner: Any = place.owner
    key, then = place.key, place.value
    if type(owner) is WeakAttribute:
        owner = owner.owner()
    elif type(place) is Answer:
        return
    kind: Any = type(owner)
    if issubclass(kind, functools.partial) and key in _PARTS_OF_PARTIALS:
        parts = [then if each == key else getattr(owner, each) for each in _PARTS_OF_PARTIALS]
        kind.__setstate__(owner, (*parts, dict(vars(owner)) or None))
    elif issubclass(kind, (staticmethod, classmethod)) and key == "__func__":
        kind.__init__(owner, then)
    elif issubclass(kind, property) and key in _PARTS_OF_PROPERTIES:
        kind.__init__(
            owner, *(then if each == key else getattr(owner, each) for each in _PARTS_OF_PROPERTIES)
        )
    elif key in OUTSIDE_OF_DICTIONARIES and owner is not None and then is not MISSING:
        with contextlib.suppress(AttributeError, TypeError):
            (type if issubclass(kind, type) else object).__setattr__(owner, key, then)


def _container_text(container: Container) -> str:
    now = container.read()
    if holds_symbolic(now):
        return f"stores a tensor or a size in {container.name}; {_ADVICE}"
    return _changes(container.name, _held(container, container.items), _held(container, now))


def _held(container: Container, items: Sequence[Any]) -> str:
    """Return a text of what a container held or holds."""
    texts = list(map(_text, items))
    if isinstance(container.owner, dict):
        texts = [f"{key}: {value}" for key, value in zip(texts[::2], texts[1::2], strict=True)]
    held = ", ".join(texts) or "nothing"
    return held if len(held) <= _SHOWN else f"{held[:_SHOWN]}..."


def _problem(where: str, then: Any, now: Any) -> str:
    """Return the problem, in words, with a place whose value the trace has changed."""
    if holds_symbolic(now):
        return f"stores a tensor or a size in {where}; {_ADVICE}"
    return _changes(where, _text(then), _text(now))


def _text(value: Any) -> str:
    if value is MISSING:
        return "not there"
    return repr(value) if isinstance(value, PLAIN) else f"a {type(value).__name__}"


def _changes(where: str, then: str, now: str) -> str:
    return (
        f"changes {where} (from {then} to {now}), which a compiled graph would not repeat; do that "
        "outside the function, or use a buffer and write into it in place"
    )


def undo_gradients(tensors: Iterable[torch.Tensor]) -> list[Problem]:
    """Remove the gradients that ``backward()`` left on tensors while tracing; return the
    problem.
    """
    problems: list[Problem] = []
    for tensor in tensors:
        if tensor.is_leaf and tensor.requires_grad and type(tensor.grad) is SymbolicTensor:
            tensor.grad = None
            text = (
                "calls backward(), which sets gradients outside the function; return "
                "torch.autograd.grad(...) instead"
            )
            problems = [Problem(text, Reason.LEFT_GRADIENTS)]
    return problems


def refuse(problems: Sequence[Problem], name: str, arguments: Iterable[Any] = ()) -> None:
    """Raise the first problem, if there is one.

    Args:
        problems: the problems.
        name: the name of the function.
        arguments: objects that may have been written to.

    Raises:
        UnsupportedError: naming the function and what it does.
        ReadOtherwise: instead, if the objects are split into their attributes from now on; a new
            trace may work.
    """
    if problems:
        new = [each for each in arguments if flatten_from_now_on(each)]
        kind, first = ReadOtherwise if new else UnsupportedError, problems[0]
        raise kind(f"{name} {first.text}", reason=first.reason)
