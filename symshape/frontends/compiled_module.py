"""Compiled modules: a module with the same attributes, parameters, methods and class, whose calls
are compiled.

A compiled module is an object of a class made from the module's own, on the module's own dictionary
of attributes. So reads and writes of attributes are the module's. A method of the module that calls
``self(...)``, as ``generate`` does, calls the compiled module. Names that the module lacks are
found in its :class:`Compiled` (``stats``, ``entries`` …).
"""

from __future__ import annotations

import copy
import functools
import weakref
from collections.abc import Callable
from typing import Any

import torch

from symshape.errors import InputError
from symshape.frontends.compiled import Compiled

_COMPILED, _FORWARD = "__symshape_compiled__", "__symshape_forward__"
_API = frozenset(name for name in dir(Compiled) if not name.startswith("_")) | {"fn"}
_classes: weakref.WeakKeyDictionary[type, weakref.ref[type]] = weakref.WeakKeyDictionary()


class CompiledModule:
    """The base class that the class of a compiled module has before the class of the module."""

    __slots__ = (_COMPILED, _FORWARD)  # here, so that classes of compiled modules have one layout

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Skip the hook of the module's class, which may keep a registry of its subclasses."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module, with its hooks, through traced programs."""
        if _is_dynamo_compiling():  # part of a program that Dynamo compiles: run the module
            return super().__call__(*args, **kwargs)  # type: ignore[misc]
        return _call(_compiled(self), *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the module (parameters, submodules …), else of its
        :class:`Compiled`.
        """
        if torch.compiler.is_dynamo_compiling():
            return super().__getattr__(name)  # type: ignore[misc]
        compiled = compiled_of(self)
        try:
            return getattr(compiled.fn, name)
        except AttributeError:
            if name in _API:
                return getattr(compiled, name)
            raise

    def _get_name(self) -> str:
        return f"Compiled{type(compiled_of(self).fn).__name__}"

    def _replicate_for_data_parallel(self) -> Any:
        original: Any = compiled_of(self).fn
        return original._replicate_for_data_parallel()

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """Return a compiled copy of the module, without programs."""
        compiled = compiled_of(self)
        return module_of(compiled.again(copy.deepcopy(compiled.fn, memo)))

    def __copy__(self) -> Any:
        """Return a compiled shallow copy of the module."""
        compiled = compiled_of(self)
        return module_of(compiled.again(copy.copy(compiled.fn)))

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle the module and the options that it was compiled with."""
        return module_of, (compiled_of(self),)


# looked up once: each of these is read in every call
_is_dynamo_compiling = torch.compiler.is_dynamo_compiling
_call = Compiled.__call__
_compiled: Callable[[Any], Compiled] = CompiledModule.__dict__[_COMPILED].__get__


def compiled_of(module: Any) -> Compiled:
    """Return the :class:`Compiled` of a compiled module, whatever names the module has; of a
    compiled function, itself.

    Raises:
        InputError: this is neither.

    >>> import torch, symshape
    >>> module = symshape.compile(torch.nn.Linear(2, 3))
    >>> module(torch.ones(5, 2)).shape, symshape.compiled_of(module).stats().traces
    (torch.Size([5, 3]), 1)
    """
    if issubclass(type(module), Compiled):  # the class's own `__class__` is not asked
        found: Compiled = module
        return found
    try:
        return object.__getattribute__(module, _COMPILED)  # type: ignore[no-any-return]
    except AttributeError:
        raise InputError(
            f"this {type(module).__name__} was not returned by symshape.compile; pass a compiled "
            "function or module"
        ) from None


def can_be_module(fn: Any) -> bool:
    """Return whether the function is a module that another object can replace: all of its state is
    in attributes.
    """
    if not isinstance(fn, torch.nn.Module) or isinstance(fn, torch.jit.ScriptModule):
        return False
    return type(fn).__basicsize__ == torch.nn.Module.__basicsize__


def module_of(compiled: Compiled) -> Any:
    """Return the compiled module for a :class:`Compiled` of a module."""
    original = compiled.fn
    module: Any = object.__new__(_class_for(type(original)))
    object.__setattr__(module, "__dict__", original.__dict__)
    object.__setattr__(module, _COMPILED, compiled)
    return module


def _class_for(kind: type) -> type:
    """Return the class of compiled modules for a class; it is stored while an object of it
    lives.
    """
    known = _classes.get(kind)
    made = known() if known is not None else None
    if made is None:
        names = {
            "__module__": kind.__module__,
            "__qualname__": kind.__qualname__,
            "__doc__": kind.__doc__,
            "__class__": property(_class_of, _set_class),
            "forward": _forward_for(kind),
        }
        made = type.__new__(type(kind), kind.__name__, (CompiledModule, kind), names)
        _classes[kind] = weakref.ref(made)
    return made


def _class_of(module: Any) -> type:
    return type(compiled_of(module).fn)


def _set_class(module: Any, kind: type) -> None:
    """Change the class of the module, as parametrizations do, and with it the class of the compiled
    module.
    """
    compiled_of(module).fn.__class__ = kind
    _CLASS.__set__(module, _class_for(kind))


_CLASS: Any = object.__dict__["__class__"]


def _forward_for(kind: Any) -> Callable[..., Any]:
    """Return a ``forward`` without the module's hooks, compiled on its first call."""

    @functools.wraps(kind.forward)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_dynamo_compiling():
            return kind.forward(self, *args, **kwargs)
        try:
            compiled = object.__getattribute__(self, _FORWARD)
        except AttributeError:
            whole = compiled_of(self)
            original: Any = whole.fn
            compiled = whole.again(original.forward)
            object.__setattr__(self, _FORWARD, compiled)
        return compiled(*args, **kwargs)

    return forward
