"""Recording of what a program reads besides its arguments, made while the program runs.

Code has to load a value before it can read it: a global name, an attribute, the variable of a
closure, an item of a loaded object.  The functions that run are instrumented (:mod:`instrument`)
when they are loaded.  Each load of a value that may change becomes a place, with the value from
before the trace.  An object that a recording cannot see into (a random generator, a clock, an
iterator, an object of C) is refused by name and never assumed to stay.
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
from symshape.errors import Problem, Reason, UnsupportedError
from symshape.graph.steps import Lifted
from symshape.torch_internals import functorch
from symshape.tracing.state.instrument.rewriter import Hooks
from symshape.tracing.state.record import torch_flags
from symshape.tracing.state.record.places import (
    MISSING,
    Answer,
    Attribute,
    Cell,
    Place,
    WeakAttribute,
    WeakQuestion,
    same,
)
from symshape.tracing.state.record.reads import Namespace, Reads, is_symbolic
from symshape.user_code import is_library

TABLES = ("_parameters", "_buffers", "_modules")
"""The names of a ``torch.nn.Module``'s dictionaries of parameters, buffers and submodules."""
_OF_A_TRANSFORM = (
    "the program reads {} outside its arguments, which a transform of torch.func (grad, vmap …) "
    "around the call has replaced by a tensor of its own; compile the function that applies the "
    "transform, or pass the tensor as an argument"
)
NOT_TO_SEE = "whose result symshape cannot see; pass that result as an argument"


@attrs.define(eq=False)
class Member:
    """The result of looking up a name in the classes of an object.

    Attributes:
        kind: the class of the object.
        found: the unbound value in the class; ``MISSING`` if there is none.
        first: whether it has precedence over the object's own attributes.
        is_slot: whether the object stores it in a slot, outside of its attribute dictionary.
        is_cached: whether it is a ``functools.cached_property``, which stores its result.
        of_module: whether the class is a ``torch.nn.Module``.
        logs: whether it logs, or changes what is logged.
        plain: whether reading it records nothing but the places where it was looked for.
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
    """One recording of what a program reads and writes.

    Args:
        fn: the function that is traced.
        constants: its arguments other than tensors.
        classes: the classes of argument objects that are split into their attributes.
        hooks: the functions that instrumented code calls.
        handler_for: returns the handler of loaded values of a class; None if there is nothing to
            do.
        serves: whether a graph is to replace ``fn``, which then may not print.

    Attributes:
        places: what was read, each place once.
        containers: lists, dictionaries, sets … that were loaded.
        tensors: names of real tensors, by id.
        names: names of objects, by id.
        namespaces: the old contents of dictionaries and classes, by their id.
        slots: attributes that are stored in no dictionary, with their old values, by id of the
            owner and name.
        stored: by id of the owner (and of its dictionary) and name: what code set or deleted (see
            ``stores``).
        cells: variables of closures, with their old values.
        given: ids of objects with slots among the arguments.
        made: containers that the program made and stored where it reads them.
        hidden: by id, containers that stand-ins replace: see ``planting``.
        stand_ins: by id of a stand-in, the variable that writes into the container it replaces.
        planted: the places that hold stand-ins for the values of variables.
        fresh: whether the values loaded now were made by the program.
        alone: whether no other thread runs Python code.
        memos: functions with an ``lru_cache``, with its old statistics and contents, and their
            names.
        imported: the modules that were imported for the first time, or could not be.
        stays_here: whether the trace serves calls of this process only.
        from_memos: whether an ``lru_cache`` returned a result that was computed before.
        answered: by id, the results that an ``lru_cache`` returned in that way.
        on_memo: calls a function with an ``lru_cache``; None if such functions are called directly.
        refusals: the reads and calls that were refused.
        asker: the file of the code that reads now.
        flags: torch's flags before the trace.
        on_generator: called with each random generator that is loaded.
        on_exchange: called with the recording (which it must not keep alive) and each loaded
            function that recorded code may need a substitute for.
        exchanged: objects that are replaced by substitutes while this recording lasts.
        is_same: the meaning of ``is``.
        known: by id, what was loaded.
        pinned: ids of tensors, modules, lists and dictionaries that were reached in a way that no
            place describes.
        told: by id of an object and name: the objects for which repeating that load records nothing
            new.
        members: by id of a class and name: the look-up result for objects of the class.
        supers: by ids of the class after which the look-up starts and of the object's class, and
            name: these classes, if repeating that look-up records nothing new.
        seen: the places noted, by the ids of their owners, which are kept alive.
        kinds: ids of the classes whose special methods were noted.
        functions: by id of their code, the functions that may begin.
        begun: the functions that did begin.
        swapped: the functions that are instrumented, with their original code.
        busy: whether the recording itself loads something.
        weakly: whether loaded values must not be kept alive.
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
        self.imported: list[str] = []
        self.from_memos = False
        self.answered: dict[int, Any] = {}
        self.on_memo: Callable[..., Any] | None = None
        self.refusals: list[Problem] = []
        self.flags = torch_flags.now()
        self.on_exchange: Callable[[Recorder, Any], object] = lambda *_: None
        self.exchanged: list[Any] = []
        self.on_generator: Callable[[torch.Generator], object] = lambda _: None
        self.is_same: Callable[[Any, Any], bool] = lambda one, other: one is other
        self.supers: dict[tuple[int, int, str], tuple[type, type]] = {}
        self.kinds: set[int] = set()
        self.functions: dict[int, list[types.FunctionType]] = {}
        self.begun: list[weakref.ref[types.FunctionType]] = []
        self.swapped: list[tuple[types.FunctionType, types.CodeType]] = []

    def refuse(self, what: str, reason: Reason) -> None:
        """Note something that cannot be recorded, and raise.

        Raises:
            UnsupportedError: always; if the program catches it, the trace is refused at its end.
        """
        self.refusals.append(Problem(what, reason))
        raise UnsupportedError(f"the program {what}", reason=reason)

    def refuse_transformed(self, lifted: Iterable[Lifted]) -> None:
        """Refuse tensors outside the arguments that a ``torch.func`` transform around the call has
        wrapped.

        The program is traced outside transforms (``tracing/traced_modes.py``), where torch takes a
        wrapped tensor for the tensor inside it.  The graph would know nothing of the transform, and
        gradients would be zero. ``functional_call`` wraps tensors in this way.  A lifted tensor
        whose read was not recorded may be a wrapped one, so it is refused too.

        Raises:
            UnsupportedError: such a tensor was read.
        """
        if functorch.interpreters() is None:
            return
        read = [(each.value, each.name) for each in self.places]
        read += [(item, each.name) for each in self.containers for item in each.items or ()]
        for value, name in read:
            if isinstance(value, torch.Tensor) and functorch.is_wrapped(value):
                raise UnsupportedError(_OF_A_TRANSFORM.format(name), reason=Reason.TRANSFORMS)
        if not all(each.constant or id(each.tensor) in self.tensors for each in lifted):
            raise UnsupportedError(
                _OF_A_TRANSFORM.format("a default, a partial or the like"), reason=Reason.TRANSFORMS
            )

    def is_constant(self, value: Any) -> bool:
        """Return whether an object is the same in every call: the traced function, or a result of
        an ``lru_cache``.
        """
        return value is self.root or self.answered.get(id(value), MISSING) is value

    def tells(self, what: str) -> None:
        """Refuse output of the user's code (printing, logging …), which a graph would not repeat.

        Raises:
            UnsupportedError: if the graph is to replace the function.
        """
        if self.serves and not is_library(self.asker):
            text = f"{what}, which a compiled graph would not repeat; do that outside the function"
            self.refuse(text, Reason.OUTPUT)

    # -- values
    @contextmanager
    def weak(self) -> Iterator[None]:
        """Return a context in which loaded values are not kept alive."""
        outer, self.weakly = self.weakly, True
        try:
            yield
        finally:
            self.weakly = outer

    def touch_made(self, value: Any, name: str) -> None:
        """Record the load of a value that the program itself stored in its place."""
        outer, self.fresh = self.fresh, True
        try:
            self.touch(value, name)
        finally:
            self.fresh = outer

    def item(self, container: str, key: Any) -> str:
        """Return the name of an item of a container that has a name; a tensor that is the key is
        named, too.
        """
        return item_name(container, key, self.tensors)

    def name_inside(self, owner: Any, items: Sequence[Any], number: int, name: str) -> str:
        """Return the name of one of ``places.items_of(owner)``; keys and values of a dictionary
        alternate there.
        """
        if not isinstance(owner, dict):
            return f"{name}[{number}]"
        return self.item(name, items[number - 1]) if number % 2 else f"key {number // 2} of {name}"

    # -- places
    def place(self, place: Place) -> None:
        """Note a place, once."""
        key = (id(place.owner), place.key)
        if key not in self.seen:
            self.seen[key] = place.owner
            if not is_symbolic(type(place.value)):
                self.places.append(place)

    def ask(self, names: Iterable[str]) -> None:
        """Note flags of torch, by their names in
        :mod:`symshape.tracing.state.record.torch_flags`.
        """
        for name in names:
            self.place(Answer(torch_flags.FLAGS[name], self.flags[name], name))

    def of_tensor(
        self, question: Callable[[Any], Any], tensor: torch.Tensor, answer: Any, name: str
    ) -> None:
        """Note the answer to a question about a real tensor that later calls ask again."""
        if (id(tensor), name) not in self.seen:
            self.seen[id(tensor), name] = tensor
            label = f"{name} of {self.tensors.get(id(tensor), 'a tensor')}"
            self.places.append(Answer(WeakQuestion(tensor, question), answer, label, name))

    def attribute(self, owner: Any, key: str, value: Any, name: str) -> None:
        """Note an attribute that is stored in no dictionary; inside :meth:`weak`, refer to the
        owner only weakly.
        """
        if self.weakly and type(owner).__weakrefoffset__:
            if (id(owner), key) not in self.seen:
                self.seen[id(owner), key] = owner
                self.places.append(Answer(WeakAttribute(owner, key), value, name, key))
        else:
            self.place(Attribute(owner, key, value, name))

    def class_namespace(self, kind: type) -> Namespace:
        """Return the attributes of a class, with their values from when the class was first met."""
        found = self.namespaces.get(id(kind))
        if found is None:
            self.known.setdefault(id(kind), kind)
            found = self.namespaces[id(kind)] = Namespace(
                kind.__qualname__, kind.__dict__, True, kind
            )
        return found

    def _still(self, owner: Any, key: Any, name: str) -> None:
        """Refuse a value that differs from its first read though the program did not store it."""
        then = self._read.get((id(owner), key), MISSING)
        if (
            then is not MISSING
            and (id(owner), key) not in self.stored
            and not same(owner.get(key, MISSING), then)
        ):
            text = (
                f"reads {name}, which another thread changes during the trace; pass it as an "
                "argument"
            )
            self.refuse(text, Reason.UNCOMPARED)

    def enter(self, code: types.CodeType) -> None:
        """Note the beginning of a function, whose globals and closure variables may be read."""
        for function in self.functions.pop(id(code), ()):
            self.begun.append(weakref.ref(function))
            self.namespace("", function.__globals__)
            for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
                self.cell(cell, name)

    def cell(self, cell: types.CellType, name: str) -> None:
        """Note a variable of a closure, with its value from before the program can write it."""
        if id(cell) in self.known:
            return
        self.known[id(cell)] = cell
        found = Cell(cell, name, MISSING, name)
        found.value = value = found.read()
        self.cells.append(found)
        self.place(found)
        self.touch(value, name, True)


Handler = Callable[[Recorder, Any, str], None]
"""The type of functions that handle a loaded value (or an attribute of it) with a given name."""
