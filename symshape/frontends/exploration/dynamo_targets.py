"""The target of a report on Dynamo: the code, the object and the arguments of a compiled function.

Dynamo stores programs by code, and code is shared: by the instances of a class, and by all modules
of ``torch.nn`` and functions of torch, which run inside one frame that Dynamo lends them. The
guards of a program tell which object it is for. Written for torch 2.11 to 2.13.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping
from types import CodeType, FunctionType, MethodType
from typing import Any

import attrs
import torch

_UNKNOWN = object()
# the frame around objects that have none: see torch._dynamo.external_utils
_LENT = "wrap_inline.<locals>.inner"


@attrs.frozen
class Target:
    """A function or module that Dynamo compiled.

    Attributes:
        code: the code by which Dynamo stores programs.
        name: the name of the function or the module's class.
        local: the variable of the code that holds ``owner``; empty where there is none.
        owner: the module, instance or function that was compiled.
        arguments: the caller's name for each source text (``args[0]``).
    """

    code: CodeType
    name: str
    local: str = ""
    owner: object = None
    arguments: Mapping[str, str] = attrs.field(factory=dict)


def target_of(fn: object) -> Target | None:
    """Return the target for a result of ``torch.compile`` or a module on which ``module.compile()``
    was called.

    None for anything else.
    """
    if isinstance(fn, torch.nn.Module):
        inner = getattr(fn, "_orig_mod", None)
        if inner is not None:
            lent = getattr(fn.forward, "_torchdynamo_orig_callable", None)
            return _target(lent if _is_lent(lent) else inner.forward)
        return _target(fn.forward) if getattr(fn, "_compiled_call_impl", None) is not None else None
    return _target(getattr(fn, "_torchdynamo_orig_callable", None))


def _is_lent(fn: object) -> bool:
    return isinstance(fn, FunctionType) and fn.__code__.co_qualname == _LENT


def _target(fn: object) -> Target | None:
    if isinstance(fn, FunctionType) and _is_lent(fn):
        owner = inspect.getclosurevars(fn).nonlocals.get("fn")
        called = owner.forward if isinstance(owner, torch.nn.Module) else owner
        name = type(owner).__qualname__ if isinstance(owner, torch.nn.Module) else _name(owner)
        return Target(fn.__code__, name, "fn", owner, _arguments(called))
    if isinstance(fn, MethodType) and isinstance(fn.__func__, FunctionType):
        code, owner = fn.__func__.__code__, fn.__self__
        name = type(owner).__qualname__ if isinstance(owner, torch.nn.Module) else code.co_qualname
        local = code.co_varnames[0] if code.co_argcount else ""
        return Target(code, name, local, owner, _wrapped_arguments(code, fn))
    plain = getattr(fn, "__code__", None)
    if not isinstance(plain, CodeType):
        return None
    return Target(plain, plain.co_qualname, arguments=_wrapped_arguments(plain, fn))


def _name(fn: object) -> str:
    return str(getattr(fn, "__qualname__", type(fn).__qualname__))


def _arguments(fn: object) -> dict[str, str]:
    """Return the inner function's names for the arguments of a frame that takes
    ``*args, **kwargs``.
    """
    try:
        parameters = inspect.signature(fn).parameters.values() if callable(fn) else ()
    except (TypeError, ValueError):
        return {}
    found = {f"kwargs['{each.name}']": each.name for each in parameters}
    named = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    found.update(
        {f"args[{place}]": each.name for place, each in enumerate(parameters) if each.kind in named}
    )
    return found


def _wrapped_arguments(code: CodeType, fn: object) -> dict[str, str]:
    """Return the wrapped function's names for the arguments that a decorator of it takes as
    ``*args, **kwargs``.
    """
    only_stars = code.co_argcount == isinstance(fn, MethodType) and not code.co_kwonlyargcount
    stars = code.co_varnames[code.co_argcount :][:2]
    return _arguments(fn) if only_stars and stars == ("args", "kwargs") else {}


class Owned:
    """A reader of the object that was compiled, for its guards; runs no code of the object."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def denies(self, condition: str) -> bool:
        """Return whether a guard on a type or an identity is certainly false for the object."""
        checks: dict[str, Callable[[object], int]] = {
            "___check_type_id": lambda it: id(type(it)),
            "___check_obj_id": id,
        }
        try:
            tree = ast.parse(
                condition.partition("), type=")[0].removesuffix(")") + ")", mode="eval"
            ).body
        except SyntaxError:
            return False
        match tree:
            case ast.Call(
                func=ast.Name(id=name), args=[source, ast.Constant(value=int(wanted))]
            ) if name in checks:
                found = self._at(source)
                return found is not _UNKNOWN and checks[name](found) != wanted
        return False

    def tensor(self, source: str) -> torch.Tensor | None:
        """Return the tensor that the object has at a source (``L['self'].weight``), if it has one
        there.
        """
        try:
            found = self._at(ast.parse(source, mode="eval").body)
        except SyntaxError:
            return None
        return found if isinstance(found, torch.Tensor) else None

    def _at(self, source: ast.expr) -> object:
        match source:
            case ast.Subscript(value=ast.Name(id="L"), slice=ast.Constant(value=str(name))):
                return self._target.owner if name == self._target.local else _UNKNOWN
            case ast.Attribute(value=inner, attr=name):
                return _attribute(self._at(inner), name)
            case ast.Subscript(value=inner, slice=ast.Constant(value=key)):
                held = self._at(inner)
                plain = type(held) in (dict, list, tuple)
                try:
                    return held[key] if plain else _UNKNOWN  # type: ignore[index]
                except (LookupError, TypeError):
                    return _UNKNOWN
        return _UNKNOWN


def _attribute(held: Any, name: str) -> object:
    if held is _UNKNOWN:
        return _UNKNOWN
    own = getattr(held, "__dict__", {})
    if name == "__dict__":
        return own
    if name in own:
        return own[name]
    for kept in ("_parameters", "_buffers", "_modules"):
        if isinstance(held, torch.nn.Module) and name in own.get(kept, {}):
            return own[kept][name]
    return _UNKNOWN
