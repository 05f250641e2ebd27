"""What a program reads besides its arguments, written down while it runs.

Whatever code reads it has to load first: a global name, an attribute, the variable of a closure, an item of something
loaded.  The functions that run are instrumented (:mod:`instrument`) where they are loaded; each load of something that
may change becomes a place, with the value that was there before the trace.  What a recording cannot see into (a
generator of numbers, a clock, an iterator, an object of C) is refused by name and never taken to stay.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import attrs
import torch

from symshape.calls.naming import item_name
from symshape.calls.variables import Variable, Where
from symshape.errors import UnsupportedError
from symshape.graph.steps import Lifted
from symshape.torch_internals import functorch
from symshape.tracing.state import flags
from symshape.tracing.state.instrument import Hooks
from symshape.tracing.state.places import MISSING, Answer, Attribute, Cell, Place, WeakAttribute, same
from symshape.tracing.state.reads import Namespace, Reads, is_symbolic
from symshape.user_code import is_library

TABLES = ("_parameters", "_buffers", "_modules")
"""The dictionaries of a module of torch's."""
_OF_A_TRANSFORM = (
    "a transform of torch.func (grad, vmap …) around the call has put a tensor of its own in {}, which the program "
    "reads outside its arguments; compile the function that has the transform in it, or give the tensor as an argument"
)
NOT_TO_SEE = "of which symshape cannot see what it gives; pass what it gives as an argument"


@attrs.define(eq=False)
class Member:
    """What stands under a name in the classes of an object.

    Attributes:
        kind: the class.
        found: as it stands there; ``MISSING`` if nothing does.
        first: whether it is asked before the object's own attributes.
        is_slot: whether the object has a place for it, outside of its own attributes.
        is_cached: whether it is a ``functools.cached_property``, which stores what it finds.
        of_module: whether the class is of torch's modules.
        logs: whether it logs, or tells what is logged.
        plain: whether reading it tells nothing but the places where it was looked for.
    """

    kind: type
    found: Any
    first: bool
    is_slot: bool
    is_cached: bool
    of_module: bool
    logs: bool
    plain: bool


class Recorder(Reads):
    """One recording.

    Args:
        fn: what is traced.
        constants: what it is called with, but for tensors.
        classes: those of the objects that it is called with and that are taken apart.
        hooks: what instrumented code calls.
        handler_for: what is done when a value of a class is loaded; None for nothing.
        serves: whether a graph is to serve in the place of ``fn``, which then may not print.

    Attributes:
        places: what was read, each place once.
        containers: lists, dictionaries, sets … that were loaded.
        tensors: names of real tensors, by id.
        names: names of objects, by id.
        namespaces: by id of the dictionary or class: how it was.
        slots: by id of the owner and name: attributes that stand in no dictionary, as they were.
        stored: by id of the owner (and of its dictionary) and name: what code set or deleted (see ``stores``).
        cells: variables of closures, as they were.
        given: ids of objects with slots among the arguments.
        made: containers that the program made and stored where it reads them.
        hidden: by id, containers for which others stand: see ``planting``.
        stand_ins: by id, those others, and what writes into the containers for which they stand.
        planted: where stand-ins for the values of variables are.
        fresh: whether what is loaded was made by the program.
        alone: whether no other thread runs code of Python's.
        memos: functions with a memo (``lru_cache``), with what it had counted and kept, and their names.
        stays_here: whether what is traced serves calls of this process, and of no other.
        from_memos: whether one of them answered what it had computed before.
        answered: by id, what they answered so.
        on_memo: calls a function with a memo; None where it is called as it is.
        refusals: what was read that cannot be seen into, in words.
        asker: the file of the code that reads now.
        flags: torch's flags as they were before the trace.
        on_generator: told of each random generator that is loaded.
        on_exchange: told, with the recording (which must not hold itself), of each function that is loaded and may mean
            something else to code that is recorded.
        exchanged: objects that code gets something else for while this recording lasts.
        is_same: what ``is`` means.
        known: by id, what was loaded.
        pinned: ids of tensors, modules, lists and dictionaries that were reached by a way which no place says.
        told: by id of an object and name: the objects of which that load tells nothing more when it is repeated.
        members: by id of a class and name: what objects of the class find in it.
        supers: by ids of the class after which is looked and of the object's class, and name: these classes, where
            that look-up tells nothing more when it is repeated.
        seen: the places noted, by the ids of their owners, which are kept alive.
        kinds: the classes of which special methods were noted.
        functions: by id of their code, the functions that may begin.
        begun: those that did.
        swapped: the functions that are instrumented, with their own code.
        busy: whether the recording itself loads something.
        weakly: whether what is loaded must not be kept alive.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        constants: Iterable[Any],
        classes: Iterable[type],
        hooks: Hooks,
        handler_for: Callable[[type], Handler | None],
        *,
        serves: bool = True,
    ) -> None:
        super().__init__()
        self._handler_for = handler_for
        self.root = fn
        self.constants = tuple(constants)
        self.classes = frozenset(classes)
        self.hooks = hooks
        self.serves = serves
        self.tensors: dict[int, str] = {}
        self.slots: dict[tuple[int, str], Attribute] = {}
        self.stored: set[tuple[int, Any]] = set()
        self.cells: list[Cell] = []
        self.given: set[int] = set()
        self.made: list[Any] = []
        self.hidden: dict[int, Any] = {}
        self.stand_ins: dict[int, Variable] = {}
        self.planted: set[Where] = set()
        self.memos: list[tuple[Any, Any, tuple[Any, ...], str]] = []
        self.stays_here = False
        self.from_memos = False
        self.answered: dict[int, Any] = {}
        self.on_memo: Callable[..., Any] | None = None
        self.refusals: list[str] = []
        self.flags = flags.now()
        self.on_exchange: Callable[[Recorder, Any], object] = lambda *_: None
        self.exchanged: list[Any] = []
        self.on_generator: Callable[[torch.Generator], object] = lambda _: None
        self.is_same: Callable[[Any, Any], bool] = lambda one, other: one is other
        self.supers: dict[tuple[int, int, str], tuple[type, type]] = {}
        self.kinds: set[int] = set()
        self.functions: dict[int, list[types.FunctionType]] = {}
        self.begun: list[weakref.ref[types.FunctionType]] = []
        self.swapped: list[tuple[types.FunctionType, types.CodeType]] = []

    def refuse(self, what: str) -> None:
        """Notes what cannot be recorded.

        Raises:
            UnsupportedError: always; if the program catches it, the trace is refused at its end.
        """
        self.refusals.append(what)
        raise UnsupportedError(f"the program {what}")

    def refuse_transformed(self, lifted: Iterable[Lifted]) -> None:
        """Refuses tensors outside the arguments that a transform around the call has wrapped (``functional_call``).

        The program is traced outside transforms (``tracing/traced_modes.py``), where torch takes such a tensor for the
        one inside it: its graph would have nothing of the transform, and gradients of zero.  A tensor that was lifted
        and that nobody saw being read may be such a one.

        Raises:
            UnsupportedError: one was read.
        """
        if functorch.interpreters() is None:
            return
        read = [(each.value, each.name) for each in self.places]
        read += [(item, each.name) for each in self.containers for item in each.items or ()]
        for value, name in read:
            if isinstance(value, torch.Tensor) and functorch.is_wrapped(value):
                raise UnsupportedError(_OF_A_TRANSFORM.format(name))
        if not all(each.constant or id(each.tensor) in self.tensors for each in lifted):
            raise UnsupportedError(_OF_A_TRANSFORM.format("a default, a partial or the like"))

    def is_constant(self, value: Any) -> bool:
        """Whether an object is the same in every call: what is traced itself, and what a memo answered."""
        return value is self.root or self.answered.get(id(value), MISSING) is value

    def tells(self, what: str) -> None:
        """The user's code is about to tell people something, which a graph would not do again.

        Raises:
            UnsupportedError: if the graph is to serve in the place of the function.
        """
        if self.serves and not is_library(self.asker):
            self.refuse(f"{what}, which a graph would not do again; keep that out of the function")

    # -- values
    @contextmanager
    def weak(self) -> Iterator[None]:
        """Inside, what is loaded is not kept alive."""
        outer, self.weakly = self.weakly, True
        try:
            yield
        finally:
            self.weakly = outer

    def touch_made(self, value: Any, name: str) -> None:
        """A value was loaded that the program itself stored there."""
        outer, self.fresh = self.fresh, True
        try:
            self.touch(value, name)
        finally:
            self.fresh = outer

    def item(self, container: str, key: Any) -> str:
        """Return the name of an item of a container that has a name; a tensor that is the key is named, too."""
        return item_name(container, key, self.tensors)

    def name_inside(self, owner: Any, items: Sequence[Any], number: int, name: str) -> str:
        """Return the name of one of ``places.items_of(owner)``: of a dictionary, keys and values take turns."""
        if not isinstance(owner, dict):
            return f"{name}[{number}]"
        return self.item(name, items[number - 1]) if number % 2 else f"key {number // 2} of {name}"

    # -- places
    def place(self, place: Place) -> None:
        """Notes a place, once."""
        key = (id(place.owner), place.key)
        if key not in self.seen:
            self.seen[key] = place.owner
            if not is_symbolic(type(place.value)):
                self.places.append(place)

    def ask(self, names: Iterable[str]) -> None:
        """Notes flags of torch's, by their names in :mod:`symshape.tracing.state.flags`."""
        for name in names:
            self.place(Answer(flags.FLAGS[name], self.flags[name], name))

    def attribute(self, owner: Any, key: str, value: Any, name: str) -> None:
        """Notes an attribute that stands in no dictionary; an argument is not kept alive by that."""
        if self.weakly and type(owner).__weakrefoffset__:
            if (id(owner), key) not in self.seen:
                self.seen[id(owner), key] = owner
                self.places.append(Answer(WeakAttribute(owner, key), value, name, key))
        else:
            self.place(Attribute(owner, key, value, name))

    def class_namespace(self, kind: type) -> Namespace:
        """How the attributes of a class were when it was first met."""
        found = self.namespaces.get(id(kind))
        if found is None:
            self.known.setdefault(id(kind), kind)
            found = self.namespaces[id(kind)] = Namespace(kind.__qualname__, kind.__dict__, True, kind)
        return found

    def _still(self, owner: Any, key: Any, name: str) -> None:
        """Refuses what holds another value than it did when it was read first, which the program did not store."""
        then = self._read.get((id(owner), key), MISSING)
        if then is not MISSING and (id(owner), key) not in self.stored and not same(owner.get(key, MISSING), then):
            self.refuse(f"reads {name}, which another thread changes meanwhile")

    def enter(self, code: types.CodeType) -> None:
        """A function begins: the variables around it may be read."""
        for function in self.functions.pop(id(code), ()):
            self.begun.append(weakref.ref(function))
            self.namespace("", function.__globals__)
            for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
                try:
                    value = cell.cell_contents
                except ValueError:
                    value = MISSING
                found = Cell(cell, name, value, name)
                self.cells.append(found)
                self.place(found)
                self.touch(value, name, True)


Handler = Callable[[Recorder, Any, str], None]
"""What is done with a value (or an attribute of it) that is called so."""
