"""All that a trace read, as steps from the function: another process must find it again to use the
entry.

Each thing read is a *check*: the owner, the step, and the value. An object gets a number and a
description where it is first met; wherever it is met again, it must be the same object. A place
whose owner is reached by no chain of checks cannot be found in another process: then the program
cannot be stored.
"""

from __future__ import annotations

import abc
import functools
import os
import sys
import types
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import torch

from symshape.calls.arguments import Call, identity_of
from symshape.store.code_digests import makes_sets, nested, reads_documentation
from symshape.store.descriptions import Describer, is_described_whole, present
from symshape.store.json_values import Json, from_json, integer_of, label_of, list_of, to_json
from symshape.store.object_paths import GROUPS, STEPS, Roots, default_of, flags_of_hooks
from symshape.store.store_errors import Differs, EntryError, NotStorable
from symshape.tracing.state.compare.state import State
from symshape.tracing.state.instrument import trusted_code
from symshape.tracing.state.record import dictionary_reads, process_groups
from symshape.tracing.state.record.class_lookups import Lookup, attributes_of, slots_of, static
from symshape.tracing.state.record.loads import decimal_context
from symshape.tracing.state.record.places import (
    MISSING,
    PLAIN,
    Answer,
    Attribute,
    Container,
    Keys,
    Place,
    WeakAttribute,
    items_of,
)
from symshape.tracing.state.record.recorder import TABLES
from symshape.tracing.state.record.torch_flags import FLAGS
from symshape.tracing.state.record.values import refers_to
from symshape.user_code import is_library

_MOST_CHECKS = 500_000
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_OF_MODULES = (*TABLES, *_HOOKS)
_GLOBAL = "torch.nn.modules.module"
_HIDDEN_NAMES = {
    "id": "may call id(), whose result differs between processes",
    **dict.fromkeys(
        trusted_code.words(
            "co_firstlineno co_lines co_positions co_linetable co_lnotab co_filename f_lineno "
            "tb_lineno getsource getsourcelines findsource getcomments getsourcefile"
        ),
        "may read its source, which is not compared between processes",
    ),
}
"""The names in code that cannot be stored, with the reason."""


class StateWriter:
    """The state that one program read, while it is written.

    Attributes:
        checks: what was read, each as ``[owner, step, key, expected, name]``.
        objects: the descriptions of objects, by number.
    """

    def __init__(
        self, fn: Callable[..., Any], state: State, call: Call, leaves: Sequence[Any]
    ) -> None:
        self.checks: list[Json] = []
        self.objects: list[Json] = []
        self._numbers: dict[int, int] = {}
        self._kept: list[Any] = []  # so that ids stay theirs
        self._pending: deque[Any] = deque()
        self._wanted: dict[int, list[Callable[[int], None]]] = {}
        self._classes: dict[
            int, list[Callable[[int], None]]
        ] = {}  # by id of the dictionary behind a class
        self._left: dict[int, str] = {}
        begun = [each for reference in state.begun if (each := reference()) is not None]
        self._codes = [each.__code__ for each in begun]
        self._check_code()
        self._describing = Describer(any(map(reads_documentation, nested(self._codes))))
        self._sort(state)
        self._meet(fn, None, ("function", None))
        for position, key in enumerate(call.keys):
            if identity_of(key) is not None:
                self._meet(leaves[position], None, ("leaf", position))
        self._globals_of_torch()
        self._walk()
        self._others(begun)

    @property
    def documented(self) -> bool:
        """True if docstrings are a part of the descriptions of functions."""
        return self._describing.with_documentation

    def number_of(self, tensor: torch.Tensor, name: str) -> int:
        """Return the number of a tensor outside the arguments.

        Raises:
            NotStorable: no name leads to it.
        """
        found = self._numbers.get(id(tensor))
        if found is None:
            raise NotStorable(
                f"the tensor {name}, which another process could not find by the names that the "
                "program read"
            )
        return found

    def _check_code(self) -> None:
        for code in nested(self._codes):
            if trusted_code.is_trusted(code.co_filename):
                continue
            if makes_sets(code) and not is_library(code.co_filename):
                raise NotStorable(
                    f"{code.co_qualname} creates a set, whose order may differ between processes"
                )
            for name in code.co_names:
                if name in _HIDDEN_NAMES:
                    raise NotStorable(f"{code.co_qualname} {_HIDDEN_NAMES[name]}")

    # -- what is wanted
    def _sort(self, state: State) -> None:
        """Group the places that were read by the id of their owner."""
        for place in state.places:
            owner, step, table = owner_and_step(place)
            value = place.value
            if step[0] == "process group":
                value = GROUPS[step[1]][1]()
            elif step[0] == "abstract classes":
                value = 0  # the token differs between processes
            elif step[0] == "referent":
                value = owner()
            elif step[0] == "module" and value is MISSING:
                raise NotStorable(f"{place.name}, which is missing here; it may exist elsewhere")
            note = functools.partial(self._check, step, value, place.name)
            if owner is None:
                note(-1)
                continue
            self._kept.append(owner)
            (self._classes if table else self._wanted).setdefault(id(owner), []).append(note)
            self._left[id(note)] = place.name
            self._kept.append(note)
        for each in state.containers:
            items = functools.partial(self._items, each)
            self._wanted.setdefault(id(each.owner), []).append(items)
            self._left[id(items)] = each.name
            self._kept += [each.owner, items]

    def _globals_of_torch(self) -> None:
        """Add the hooks of all modules, which are global in torch."""
        module = sys.modules[_GLOBAL]
        self._meet(module, None, ("module", _GLOBAL))
        names = vars(module)
        for name in names:
            if name.startswith("_global_") and id(names[name]) in self._wanted:
                self._wanted.setdefault(id(names), []).append(
                    functools.partial(self._check, ("item", name), names[name], None)
                )

    # -- the walk
    def _walk(self) -> None:
        while self._pending:
            self._expand(self._pending.popleft())
            if len(self.checks) > _MOST_CHECKS:
                raise NotStorable("a program that reads more than half a million places")

    def _others(self, begun: Iterable[types.FunctionType]) -> None:
        """Find owners that no chain reaches, by the name of an imported module that is trusted not
        to change.
        """
        for module_name, module in list(sys.modules.items()):
            namespace = getattr(module, "__dict__", None)
            if (
                type(namespace) is dict
                and id(namespace) in self._wanted
                and id(namespace) not in self._numbers
            ):
                self._meet(module, None, ("module", module_name))
        self._walk()
        for name in ("Tensor",):
            kind = getattr(torch, name)
            if id(behind(kind)) in self._classes:
                self._meet_named(torch, name)
        kind = process_groups.kind()
        if kind is not None and self._is_wanted(kind):
            self._meet_named(torch.distributed, kind.__name__)
        self._walk()
        for function in [each for each in self._kept if isinstance(each, types.FunctionType)]:
            if self._is_wanted(function):
                self._begun(function)
        for function in begun:
            if (
                any(map(self._is_wanted, function.__closure__ or ()))
                and id(function) not in self._numbers
            ):
                self._begun(function)
        self._walk()
        if self._left:
            raise NotStorable(
                f"{next(iter(self._left.values()))}, which another process could not find by the "
                "names that the program read"
            )
        for each in begun:
            if id(each) not in self._numbers and not trusted_code.is_of_torch(
                each.__code__.co_filename
            ):
                self._begun(each)
        self._walk()

    def _begun(self, function: types.FunctionType) -> None:
        """Add a function that ran and that no place leads to: a method that Python calls
        implicitly.
        """
        for kind in [
            each for each in self._kept if isinstance(each, type) and id(each) in self._numbers
        ]:
            for key in (function.__name__, *function.__qualname__.rpartition(".")[2:]):
                found = static(kind, key)
                if any(
                    each is function
                    for each in (found, *(getattr(found, of, None) for of in ("fget", "__func__")))
                ):
                    self._meet(found, self._numbers[id(kind)], ("static", key))
                    return
        file = getattr(sys.modules.get(function.__module__), "__file__", None) or ""
        if not is_library(file) or not self._by_name(function):
            raise NotStorable(
                f"the function {function.__qualname__}, which another process could not find by "
                "the names that the program read"
            )

    def _by_name(self, function: types.FunctionType) -> bool:
        """Reach a library's function by its qualified name; return whether the name leads to it."""
        module = sys.modules.get(function.__module__)
        *outer, last = function.__qualname__.split(".")
        names = [*((each, "entry") for each in outer), (last, "entry")]
        owner: Any = module
        found: list[tuple[Any, Step]] = []
        for key, kind in names:
            inner = getattr(owner, "__dict__", {}).get(key)
            found.append((inner, ("item" if owner is module else kind, key)))
            owner = inner
        if module is None or owner is not function:
            return False
        self._meet(module, None, ("module", module.__name__))
        self._meet(vars(module), self._numbers[id(module)], ("attributes", None))
        number = self._numbers[id(vars(module))]
        for inner, step in found:
            self._meet(inner, number, step)
            number = self._numbers[id(inner)]
        return True

    def _meet_named(self, module: types.ModuleType, name: str) -> None:
        self._meet(module, None, ("module", module.__name__))
        self._pending.clear()
        self._meet(vars(module), self._numbers[id(module)], ("attributes", None))
        self._meet(vars(module)[name], self._numbers[id(vars(module))], ("item", name))
        self._pending.clear()
        self._expand(vars(module)[name])

    def _meet(self, value: Any, owner: int | None, step: Step, name: str | None = None) -> None:
        """Add a check: this value is there."""
        assert step[0] in STEPS
        self.checks.append([owner, step[0], to_json(step[1]), self._expected(value), name])

    def _check(self, step: Step, value: Any, name: str | None, owner: int) -> None:
        self._meet(value, None if owner < 0 else owner, step, name)

    def _items(self, container: Container, owner: int) -> None:
        if "hooks of " in container.name and all(type(key) is int for key in container.items[::2]):
            # their keys count all hooks of a process
            values = [self._expected(each) for each in container.items[1::2]]
            self.checks.append([owner, "hooks", None, values, container.name])
            return
        self.checks.append(
            [
                owner,
                "items",
                None,
                [self._expected(each) for each in container.items],
                container.name or None,
            ]
        )

    def _expected(self, value: Any) -> Json:
        """Return the expected value of a check: missing, a plain value, or the number of an
        object.
        """
        if value is MISSING:
            return {"missing": 0}
        if type(value) in PLAIN:
            return to_json(value)
        found = self._numbers.get(id(value))
        if found is None:
            found = self._numbers[id(value)] = len(self.objects)
            self._kept.append(value)
            self.objects.append(self._describing.of(value))
            self._pending.append(value)
        return {"object": found}

    def _expand(self, value: Any) -> None:
        """Add the checks of an object that was met: what was read of it, and what leads on."""
        number = self._numbers[id(value)]
        for step, inner in self._leads(value):
            self._meet(inner, number, step)
        for note in self._wanted.pop(id(value), ()):
            self._left.pop(id(note), None)
            note(number)
        if isinstance(value, type):
            for note in self._classes.pop(id(behind(value)), ()):
                self._left.pop(id(note), None)
                note(number)

    def _is_wanted(self, value: Any) -> bool:
        return id(value) in self._wanted and id(value) not in self._numbers

    # -- where an object leads to
    def _leads(self, value: Any) -> Iterator[tuple[Step, Any]]:
        """Yield the steps from an object: to its parts, and to what was read of it."""
        kind = type(value)
        attributes = None if isinstance(value, type) else attributes_of(value)
        if attributes is not None and self._is_wanted(attributes):
            yield ("attributes", None), attributes
        if isinstance(value, torch.nn.Module):
            yield from self._of_module(value)
        elif is_described_whole(kind):  # type: ignore[arg-type]
            yield from self._whole(value, attributes)
        if isinstance(value, types.FunctionType):
            yield from self._of_function(value)
        elif isinstance(value, type):
            yield from self._of_class(value)
        elif kind in _PARTS:
            for name, attribute in _PARTS[kind]:
                inner = getattr(value, attribute)
                if inner is not None and not (
                    name == "self" and isinstance(inner, (type, types.ModuleType))
                ):
                    yield (name, None), inner
        elif kind is dict:
            yield from self._of_namespace(value)
        elif isinstance(value, defaultdict):
            yield ("factory", None), value.default_factory
        elif isinstance(value, ContextVar):
            yield ("context default", None), default_of(value)
        elif isinstance(value, torch.Tensor) and value._base is not None:
            yield ("base of view", None), value._base
        elif isinstance(value, (tuple, frozenset)):
            for position, item in enumerate(value):
                yield ("nth", position), item
        if not isinstance(value, type) and (
            self._is_wanted(kind) or not trusted_code.is_of_c(kind)
        ):
            yield ("class", None), kind
        if hasattr(kind, "__symshape_compiled__") or kind.__module__.startswith(
            "symshape.frontends."
        ):
            inner = (
                value if not hasattr(kind, "__symshape_compiled__") else value.__symshape_compiled__
            )
            yield ("compiled", None), inner.fn

    def _whole(self, value: Any, attributes: dict[str, Any] | None) -> Iterator[tuple[Step, Any]]:
        """Yield everything that an object of Python's or torch's own holds, since its methods read
        it unseen.
        """
        if attributes is not None:
            yield ("attributes", None), attributes
            items = tuple(part for pair in attributes.items() for part in pair)
            whole = functools.partial(self._items, Container(attributes, items, ""))
            self._wanted.setdefault(id(attributes), []).append(whole)
        for key in slots_of(type(value)):
            yield ("slot", key), getattr(value, key, MISSING)

    def _of_module(self, value: torch.nn.Module) -> Iterator[tuple[Step, Any]]:
        attributes = value.__dict__
        yield ("flags of hooks", None), flags_of_hooks(value)
        tables = [
            name for name in _OF_MODULES if name in attributes and self._is_wanted(attributes[name])
        ]
        if tables:
            if id(attributes) not in self._numbers and not self._is_wanted(attributes):
                yield ("attributes", None), attributes
            self._wanted.setdefault(id(attributes), []).extend(
                functools.partial(self._check, ("item", name), attributes[name], None)
                for name in tables
            )

    def _of_function(self, value: types.FunctionType) -> Iterator[tuple[Step, Any]]:
        stays = trusted_code.is_trusted(value.__code__.co_filename)
        if self._is_wanted(value.__globals__):
            yield ("globals", None), value.__globals__
        for position, cell in enumerate(value.__closure__ or ()):
            if stays:
                yield ("cell", position), cell
                self._wanted.setdefault(id(cell), []).append(
                    functools.partial(self._contents, cell)
                )
            elif self._is_wanted(cell):
                yield ("cell", position), cell
        for step, inner in (
            ("defaults", value.__defaults__),
            ("keyword defaults", value.__kwdefaults__),
        ):
            if inner is not None:
                yield (step, None), inner
                if isinstance(inner, dict) and not self._is_wanted(inner):
                    items = tuple(part for pair in inner.items() for part in pair)
                    made = Container(inner, items, f"defaults of {value.__name__}")
                    self._wanted.setdefault(id(inner), []).append(
                        functools.partial(self._items, made)
                    )
        wrapped = value.__dict__.get("__wrapped__")
        if wrapped is not None and not stays:
            yield ("attributes", None), value.__dict__
            self._wanted.setdefault(id(value.__dict__), []).append(
                functools.partial(self._check, ("item", "__wrapped__"), wrapped, None)
            )

    def _contents(self, cell: types.CellType, owner: int) -> None:
        """Return the closure variable of trusted code: its function stood for it."""
        try:
            value = cell.cell_contents
        except ValueError:
            value = MISSING
        self._meet(value, owner, ("contents", None))

    def _of_class(self, value: type) -> Iterator[tuple[Step, Any]]:
        for position, base in enumerate(value.__mro__[1:], 1):
            if self._is_wanted(base) or id(behind(base)) in self._classes:
                yield ("base", position), base

    def _of_namespace(self, value: dict[Any, Any]) -> Iterator[tuple[Step, Any]]:
        builtins = value.get("__builtins__")
        if (isinstance(builtins, dict) and self._is_wanted(builtins)) or (
            isinstance(builtins, types.ModuleType) and self._is_wanted(vars(builtins))
        ):
            yield ("item", "__builtins__"), builtins


_PARTS: dict[type, tuple[tuple[str, str], ...]] = {
    types.MethodType: (("self", "__self__"), ("method", "__func__")),
    types.BuiltinFunctionType: (("self", "__self__"),),
    types.MethodWrapperType: (("self", "__self__"),),
    functools.partial: (
        ("partial", "func"),
        ("partial args", "args"),
        ("partial keywords", "keywords"),
    ),
    staticmethod: (("method", "__func__"),),
    classmethod: (("method", "__func__"),),
    property: (("getter", "fget"), ("setter", "fset")),
    functools.cached_property: (("cached", "func"),),
    functools._lru_cache_wrapper: (("memo", "__wrapped__"),),
}
"""The parts of such objects, by class: names of steps, and attributes."""


# -- The owner of each place that a trace recorded, and the step from the owner to the place.
Step = tuple[str, Any]
"""A kind of step, and its key: see :mod:`symshape.store.object_paths`."""


def behind(kind: type) -> Any:
    """Return the real dictionary of a class, behind the view that ``__dict__`` makes anew each
    time.
    """
    return dictionary_reads.dict_behind(kind.__dict__)


def owner_and_step(place: Place) -> tuple[Any, Step, bool]:
    """Return a place's owner (None if it has none), the step to it, and whether the owner is a
    class's dictionary.

    Raises:
        NotStorable: it is an answer that no other process can ask for.
    """
    owner = place.owner
    if isinstance(place, Keys):
        step: Step = ("keys", place.key)
        return (
            (dictionary_reads.dict_behind(owner), step, True)
            if _is_view(owner)
            else (owner, step, False)
        )
    if isinstance(place, Attribute):
        of_a_class = isinstance(owner, type) and place.key != "__class__"
        return owner, ("static" if of_a_class else "slot", place.key), False
    if isinstance(place, Answer):
        return (*_of_answer(place), False)
    if owner is sys.modules:
        return None, ("module", place.key), False
    if isinstance(owner, types.CellType):
        return owner, ("contents", place.key), False
    if _is_view(owner):
        return dictionary_reads.dict_behind(owner), ("entry", place.key), True
    return owner, ("item", place.key), False


def _is_view(owner: Any) -> bool:
    return isinstance(owner, types.MappingProxyType)


def _of_answer(place: Answer) -> tuple[Any, Step]:
    question = place.owner
    if isinstance(question, Lookup):
        return question.kind, ("look-up", question.key)
    if isinstance(question, WeakAttribute):
        owner = question.owner()
        if owner is not None:
            return owner, ("weak slot", place.key)
    if isinstance(question, functools.partial):
        if question.func is refers_to and type(question.args[0]) is weakref.ref:
            return question.args[0], ("referent", None)
        if question.func == os.environ.get and len(question.args) == 1:
            return None, ("environment", question.args[0])
        if question.func is getattr and isinstance(question.args[0], types.ModuleType):
            return question.args[0], ("flag of module", place.key)
        bound = getattr(question.func, "__self__", None)
        if isinstance(bound, ContextVar):
            return bound, ("context", None)
    if question is abc.get_cache_token:
        return None, ("abstract classes", None)
    if question is decimal_context:
        return None, ("decimal", None)
    for name, (here, _) in GROUPS.items():
        if question is here:
            return None, ("process group", name)
    if FLAGS.get(place.name) is question:
        return None, ("flag", place.name)
    raise NotStorable(f"{place.name}, whose value has a meaning in this process only")


# -- Comparison of an entry's recorded state with this process: each check in turn, without running
# any code.
class StateReader:
    """The state that an entry read, found again in this process.

    Args:
        checks: what ``StateWriter`` wrote.
        objects: the descriptions that it wrote.
        fn: the function that is compiled.
        leaves: those of the call.
        documented: whether docstrings count.

    Raises:
        Differs: something is not what it was.
        EntryError: it is no such thing.
    """

    def __init__(
        self,
        checks: Json,
        objects: Json,
        fn: Callable[..., Any],
        leaves: Sequence[Any],
        documented: bool,
    ) -> None:
        self._descriptions = list_of(objects)
        self._describing = Describer(documented)
        self._bound: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._places: list[Place] = []
        self._containers: list[Container] = []
        self._alterable: list[tuple[Any, Any]] = []
        self._groups: list[tuple[Any, Any]] = []
        roots = Roots(fn, leaves)
        for check in list_of(checks):
            if type(check) is not list or len(check) != 5:
                raise EntryError("an unknown kind of check")
            owner, kind, key, expected, name = check
            reached = (
                roots if owner is None else self._bound[integer_of(owner, 0, len(self._bound))]
            )
            if kind in ("items", "hooks"):
                self._items(reached, expected, name, 1 + (kind == "hooks"))
            else:
                self._check(reached, kind, key, expected, name)
        self._descriptions, self._numbers = [], {}

    def state(self) -> State:
        """Return the state for calls of this process."""
        return State(self._places, self._containers)

    def holds(self) -> bool:
        """Return whether the objects still match their descriptions: code, classes and tensors can
        be changed in place.

        (Values read *from* objects are compared by the state.)
        """
        if self._describing.with_documentation:  # texts too can be changed in place
            return False
        # a process can end its groups, and make others
        if any(GROUPS[key][1]() != then for key, then in self._groups):
            return False
        for value, then in self._alterable:
            if isinstance(value, torch.Tensor):
                same = value.layout is torch.strided and present(value) == then
            elif isinstance(value, defaultdict):
                same = value.default_factory is then
            else:
                same = self._describing.of(value) == then
            if not same:
                return False
        return True

    def tensor(self, number: int) -> torch.Tensor:
        """Return the tensor with a number."""
        found = self._bound[number] if number < len(self._bound) else None
        if not isinstance(found, torch.Tensor):
            raise EntryError(f"object {number} is no tensor")
        return found

    def _check(self, owner: Any, kind: Json, key: Json, expected: Json, name: Json) -> None:
        step = STEPS.get(kind) if type(kind) is str else None
        if step is None:
            raise EntryError(f"unknown kind of step: {str(kind)[:80]}")
        take, note = step
        plain = key if key is None or type(key) is str else from_json(key)
        value = take(owner, plain)
        self._compare(value, expected, kind, plain, name)
        if kind == "process group":
            self._groups.append((plain, value))
        if name is not None and note is not None:
            self._places.append(note(owner, plain, value, label_of(name)))

    def _items(self, owner: Any, expected: Json, name: Json, every: int) -> None:
        items = (
            items_of(owner)
            if isinstance(owner, _WITH_ITEMS) or type(owner).__module__ == "numpy"
            else None
        )
        wanted = list_of(expected)
        compared = () if items is None else items[every - 1 :: every]
        if items is None or len(compared) != len(wanted):
            raise Differs(_words("items", None, name))
        for item, each in zip(compared, wanted, strict=True):
            self._compare(item, each, "items", None, name)
        if name is not None:
            self._containers.append(Container(owner, items, label_of(name)))

    def _compare(self, value: Any, expected: Json, kind: str, key: Any, name: Json) -> None:
        if type(expected) is dict and len(expected) == 1:
            ((tag, number),) = expected.items()
            if tag == "object":
                self._compare_object(value, number, kind, key, name)
                return
            if tag == "missing":
                if value is not MISSING:
                    raise Differs(_words(kind, key, name))
                return
        kind_of = type(value)
        # is written as it is
        if kind_of is str or kind_of is bool or kind_of is int or value is None:
            alike = kind_of is type(expected) and value == expected
        else:
            alike = kind_of in PLAIN and _is_written(value, expected)
        if not alike:
            raise Differs(_words(kind, key, name))

    def _compare_object(self, value: Any, number: Json, kind: str, key: Any, name: Json) -> None:
        if value is MISSING or type(value) in PLAIN:
            raise Differs(_words(kind, key, name))
        known = self._numbers.get(id(value))
        if known is None and number == len(self._bound) and type(number) is int:
            try:
                description = self._describing.of(value)
            except NotStorable as error:
                raise Differs(_words(kind, key, name)) from error
            if number >= len(self._descriptions):
                raise EntryError("an object without a description")
            then = self._descriptions[number]
            if description != then:
                raise Differs(_words(kind, key, name), of_code=_is_of_code(description, then))
            self._numbers[id(value)] = number
            self._bound.append(value)
            if description[0] in ("function", "class"):
                self._alterable.append((value, description))
            elif description[0] == "tensor":
                self._alterable.append((value, present(value)))
            elif isinstance(value, defaultdict):
                self._alterable.append((value, value.default_factory))
        elif known is None or known != number:
            raise Differs(_words(kind, key, name))


def _is_written(value: Any, expected: Json) -> bool:
    written = to_json(value)
    return type(written) is type(expected) and bool(written == expected)


def _is_of_code(now: Json, then: Json) -> bool:
    """Return whether code differs: that of a function, or the functions of a class."""
    if now[0] in ("function", "code"):
        return True
    if now[0] != "class" or type(then) is not list or len(now) != len(then) or len(now) < 6:
        return False
    return bool(now[:4] == then[:4] and now[-1] != then[-1])


_WITH_ITEMS = (list, tuple, dict, set, frozenset, bytearray, deque)


def _words(kind: str, key: Any, name: Json) -> str:
    return name if type(name) is str else f"{kind} {key}" if key is not None else f"the {kind}"
