"""Functions that a traced program means otherwise: they take symbolic numbers, or the recording
must see their answer.

A name of Python's or torch's that code loads while it is recorded is exchanged for the function
here: for kinds of numbers see ``intercept/builtins``; ``getattr`` and its like read attributes by
names that no code spells.
"""

from __future__ import annotations

import builtins
import dataclasses
import functools
import json
import math
import operator
import os
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from symshape.errors import Reason
from symshape.torch_internals import operators
from symshape.tracing import restart
from symshape.tracing.intercept.control_flow import CONTROL_FLOW, SCANS
from symshape.tracing.intercept.exchanges import standing_for
from symshape.tracing.intercept.python_numbers.builtins import REPLACED, PlainType, plain_bool
from symshape.tracing.intercept.python_numbers.identity import class_of
from symshape.tracing.intercept.python_numbers.math_functions import MATH
from symshape.tracing.restart import Restart, after
from symshape.tracing.symbolic.nodes.texts import plain_print
from symshape.user_code import is_optimisers


class Environment:
    """``os.environ``, of which single variables are read; whoever wants more reads it whole.

    Args:
        read: answers one variable.
        whole: told that all are about to be read.
    """

    __slots__ = ("_read", "_whole")

    def __init__(self, read: Callable[..., Any], whole: Callable[[Any], None]) -> None:
        self._read, self._whole = read, whole

    def get(self, key: str, default: Any = None) -> Any:
        """One variable."""
        return self._read(key, default)

    def __getitem__(self, key: str) -> str:
        self._read(key)
        return os.environ[key]

    def __contains__(self, key: str) -> bool:
        return self._read(key) is not None

    def __setitem__(self, key: str, value: str) -> None:
        self._whole(os.environ)
        os.environ[key] = value

    def __delitem__(self, key: str) -> None:
        self._whole(os.environ)
        del os.environ[key]

    def __iter__(self) -> Iterator[str]:
        self._whole(os.environ)
        return iter(os.environ)

    def __len__(self) -> int:
        self._whole(os.environ)
        return len(os.environ)

    def __getattr__(self, name: str) -> Any:
        self._whole(os.environ)
        return getattr(os.environ, name)


def is_compiling() -> bool:
    """Answer ``torch.compiler.is_compiling()`` for traced code.

    Optimisers get no, because a yes would make them compute other numbers than in eager mode.  The
    whole program gets no after an attempt with the answer yes has failed: some programs only work
    where the answer is no.
    """
    asker = sys._getframe(1).f_code.co_filename
    attempt = restart.current()
    denied = attempt.raised_compiling is not None
    yes = not denied and torch.compiler.is_compiling() and not is_optimisers(asker)
    attempt.compiling_asked |= yes
    return yes


def _causal_hints() -> dict[int, Any]:
    """Return torch's question whether a mask is causal by its ``id``, with what code gets instead.

    Only data tell the answer, or the size of a mask that the program makes. It is a hint:
    attention may then leave the mask out. Torch's own layers compute the same with the answer no.
    """
    asked = operators.is_causal_mask
    if not isinstance(asked, types.FunctionType):
        return {}
    names = {**asked.__globals__, "bool": plain_bool}
    plain = types.FunctionType(asked.__code__, names, asked.__name__, asked.__defaults__)

    def ours(mask: Any, is_causal: Any = None, *size: Any) -> Any:
        asker = sys._getframe(1).f_locals.get("self")
        hint = is_causal is None and isinstance(mask, torch.Tensor)
        return False if hint and _is_torchs_own(asker) else plain(mask, is_causal, *size)

    return {id(asked): ours}


def _is_torchs_own(module: Any) -> bool:
    """Return whether a module and all in it are of torch's own classes."""
    return isinstance(module, torch.nn.Module) and all(
        type(each).__module__.startswith("torch.nn.modules.") for each in module.modules()
    )


_SPACES = (
    builtins,
    math,
    operator,
    os,
    json,
    dataclasses,
    torch.func,
    torch.nn.utils.stateless,
    torch.compiler,
)
"""Modules in which the originals stand by their names."""


class Substitutes:
    """By ``id`` of the original: what code gets instead.

    Args:
        read: told of an object and the name of an attribute that is about to be read.
        listed: told of an object whose attributes are about to be listed.
        answered: told of a question and its answer.
        printed: told when something is about to be printed.
        stored: told of an object and the name of an attribute that is about to be set or deleted.
        exchanged: told of a module whose parameters torch is about to exchange for a while.
        own: returns the program's own code for code with hooks, and any other value unchanged.
    """

    def __init__(
        self,
        read: Callable[[Any, str], None],
        listed: Callable[[Any], None],
        answered: Callable[[Callable[[], Any], Any, str], None],
        printed: Callable[[], None],
        stored: Callable[[Any, str], None],
        exchanged: Callable[[Any], None],
        own: Callable[[Any], Any],
    ) -> None:
        self._read, self._listed, self._answered, self._printed = read, listed, answered, printed
        self._stored, self._exchanged, self._own = stored, exchanged, own
        self.table: dict[int, Any] = {
            id(getattr(builtins, name)): ours for name, ours in REPLACED.items()
        }
        self.table |= MATH | SCANS | CONTROL_FLOW | _causal_hints()
        self.table |= {
            id(getattr): self.getattr,
            id(hasattr): self.hasattr,
            id(setattr): self.setattr,
            id(delattr): self.delattr,
            id(vars): self.vars,
            id(dir): self.dir,
            id(print): self.print,
            id(os.getenv): self.getenv,
            id(torch.compiler.is_compiling): is_compiling,
            id(os.environ): Environment(self.getenv, listed),
            id(operator.attrgetter): self.attrgetter,
            id(operator.methodcaller): self.methodcaller,
        }
        for function in (torch.func.functional_call, torch.nn.utils.stateless.functional_call):
            self.table[id(function)] = functools.partial(self.functional_call, function)
        for fields_of in (dataclasses.replace, dataclasses.asdict, dataclasses.astuple):
            self.table[id(fields_of)] = functools.partial(self.of_fields, fields_of)
        for original in (each for space in _SPACES for each in vars(space).values()):
            if id(original) in self.table and callable(original):
                self.table[id(original)] = standing_for(original, self.table[id(original)])

    def getattr(self, owner: Any, name: str, *default: Any) -> Any:
        """``getattr``."""
        if type(name) is str:
            self._read(owner, name)
        return (
            class_of(owner)
            if name == "__class__"
            else self.of(self._own(getattr(owner, name, *default)))
        )

    def hasattr(self, owner: Any, name: str) -> bool:
        """``hasattr``."""
        if type(name) is str:
            self._read(owner, name)
        return hasattr(owner, name)

    def setattr(self, owner: Any, name: str, value: Any) -> None:
        """``setattr``."""
        if type(name) is str:
            self._stored(owner, name)
        setattr(owner, name, value)

    def delattr(self, owner: Any, name: str) -> None:
        """``delattr``."""
        if type(name) is str:
            self._read(owner, name)
            self._stored(owner, name)
        delattr(owner, name)

    def vars(self, *owner: Any) -> Any:
        """``vars`` of an object."""
        if owner:
            self._read(owner[0], "__dict__")
        return vars(*owner)

    def dir(self, *owner: Any) -> Any:
        """``dir`` of an object."""
        if owner:
            self._listed(owner[0])
        return dir(*owner)

    def attrgetter(self, *names: str) -> Callable[[Any], Any]:
        """``operator.attrgetter``."""
        operator.attrgetter(*names)  # for its errors

        def get(owner: Any) -> Any:
            found = tuple(functools.reduce(self.getattr, name.split("."), owner) for name in names)
            return found if len(names) > 1 else found[0]

        return get

    def methodcaller(self, name: str, /, *args: Any, **kwargs: Any) -> Callable[[Any], Any]:
        """``operator.methodcaller``."""
        operator.methodcaller(name)
        return lambda owner: self.getattr(owner, name)(*args, **kwargs)

    def of_fields(self, function: Callable[..., Any], owner: Any, *args: Any, **kwargs: Any) -> Any:
        """``dataclasses.replace`` and its like, which read all fields of an object, and of those in
        it.
        """
        self._fields(owner)
        return function(owner, *args, **kwargs)

    def _fields(self, value: Any) -> None:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            for each in dataclasses.fields(value):
                self._read(value, each.name)
                self._fields(getattr(value, each.name, None))
        elif isinstance(value, (list, tuple, dict)):
            for item in value.values() if isinstance(value, dict) else value:
                self._fields(item)

    def getenv(self, key: str, default: Any = None) -> Any:
        """``os.getenv``: one variable of the environment."""
        value = os.environ.get(key)
        self._answered(functools.partial(os.environ.get, key), value, f"the environment's {key}")
        return default if value is None else value

    def functional_call(self, function: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
        """``torch.func.functional_call``, in which a module holds other parameters for a while."""
        self._exchanged(module)
        return function(module, *args, **kwargs)

    def print(self, *items: Any, **options: Any) -> None:
        """``print``."""
        self._printed()
        plain_print(*items, **options)

    def of(self, value: Any) -> Any:
        """Return the value that traced code gets for a value that it loads."""
        return self.table.get(id(value), value)


# -- Libraries' preparations at first use: they run outside of the trace, which then starts again.
#
# A preparation writes under a lock: hooks into modules, and a flag that says that they are
# there. A graph could not repeat that. The time of a preparation does not matter, so it stays
# done, also when the trace fails after all.
_PREPARATIONS = (
    (
        "transformers.utils.output_capturing",
        "maybe_install_capturing_hooks",
        "_output_capturing_hooks_installed",
    ),
)
"""A module, a function of an object, and the object's attribute that is true once it is prepared
(transformers 5).
"""
_REGISTRIES = (("einops._backends", "get_backend", "_type2backend"),)
"""A module, a function of a tensor, and the module's dictionary where it looks the class up (einops
0.6 to 0.8).
"""


def preparations(read: Callable[[Any, str], None]) -> dict[int, Any]:
    """Return what traced code gets instead of each imported function that prepares something, by
    the function's ``id``.

    Args:
        read: called with an object and the name of an attribute before that is read.
    """

    def prepared(function: Callable[[Any], Any], flag: str, owner: Any) -> None:
        if not getattr(owner, flag, False):
            text = (
                f"prepares a {type(owner).__name__}, which it does in each call; call it once "
                "before"
            )
            raise Restart(
                text, after(functools.partial(function, owner)), Reason.MEMO, prepares=True
            )
        read(owner, flag)

    found = [
        (getattr(sys.modules.get(module), name, None), flag) for module, name, flag in _PREPARATIONS
    ]
    made = {
        id(each): functools.partial(prepared, each, flag)
        for each, flag in found
        if each is not None
    }
    return made | {id(each.args[0]): each for each in _registries()}


def _registries() -> list[functools.partial[Any]]:
    """For each function with a registry of classes that is imported, and traces: what code gets
    instead.
    """
    found = ((sys.modules.get(module), name, key) for module, name, key in _REGISTRIES)
    return [
        functools.partial(_registered, getattr(module, name), getattr(module, key))
        for module, name, key in found
        if isinstance(getattr(module, name, None), types.FunctionType)
        and type(getattr(module, key, None)) is dict
    ]


def _registered(
    function: Callable[[Any], Any], registry: dict[Any, Any], tensor: Any, *rest: Any, **more: Any
) -> Any:
    """Call a function that registers the class of the first tensor that it meets.

    Raises:
        Restart: the class is not registered yet; the function is called outside of the trace first.
    """
    if (
        isinstance(tensor, torch.Tensor)
        and PlainType(tensor) is torch.Tensor
        and torch.Tensor not in registry
    ):
        text = (
            f"makes {function.__name__} look up its tensor backend, which happens once in a "
            "process; call the function once before it is traced"
        )
        raise Restart(text, after(lambda: function(torch.empty(0))), Reason.MEMO, prepares=True)
    return function(tensor, *rest, **more)
