"""Watching calls of ``torch.autograd.Function.apply`` while a program is traced.

In torch 2.11 to 2.13 ``apply`` is a Python function: its code is replaced for the time of a trace.
From torch 2.14 on it is a C method, which reads ``_backward_cls``, ``forward`` and
``setup_context`` from the class: the metaclass answers these reads for the time of a trace.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from types import FunctionType
from typing import Any

import attrs
import torch

End = Callable[[tuple[Any, ...], Mapping[str, Any], Any, Any], None]
"""The callback at the end of a call: arguments by position and by name, result, and autograd's
node.

Where the node is None, the result shows it.
"""
Begin = Callable[[Any], End | None]
"""The callback at the start of a call: the class whose ``apply`` is called.

It returns the callback for the end, or None.
"""

_FUNCTION = torch.autograd.Function
_NAME = "symshape_apply"


def calls_watched(begin: Begin) -> AbstractContextManager[None]:
    """Report this thread's calls of ``Function.apply`` within the block, by whatever name ``apply``
    is called.

    The arguments and the result that ``begin``'s answer is told are those of ``forward`` where
    ``apply`` is a method of C: its result is then not yet part of autograd's graph.
    """
    return _by_code(begin) if APPLY is not None else _by_reads(begin)


# -- torch 2.11 to 2.13


def _replacement() -> FunctionType:
    """Return the function whose code ``Function.apply`` runs while calls are watched; it has
    torch's free variable.
    """
    __class__: Any = None

    def apply(cls, *args, **kwargs):  # type: ignore[no-untyped-def]
        return __class__ and symshape_apply(cls, args, kwargs)  # type: ignore[name-defined]  # noqa: F821

    return apply  # type: ignore[return-value]


def _python_apply() -> FunctionType | None:
    found = getattr(_FUNCTION.__dict__.get("apply"), "__func__", None)
    fits = (
        isinstance(found, FunctionType)
        and found.__code__.co_freevars == REPLACEMENT.__code__.co_freevars
    )
    return found if fits else None


REPLACEMENT = _replacement()
APPLY = _python_apply()
"""``Function.apply``, if it is a Python function; else None."""
_OWN: Any = APPLY and FunctionType(
    APPLY.__code__, APPLY.__globals__, "apply", APPLY.__defaults__, APPLY.__closure__
)


def unwatched(cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run ``Function.apply`` for a thread that began the call while another thread traced."""
    run = partial(_OWN, cls)
    return run(*args, **kwargs)


@contextmanager
def _by_code(begin: Begin) -> Iterator[None]:
    assert APPLY is not None
    names, code, own = APPLY.__globals__, APPLY.__code__, _OWN

    def apply(cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        run = partial(own, cls)
        end = begin(cls)
        result = run(*args, **kwargs)
        if end is not None:
            end(args, kwargs, result, None)
        return result

    before = names.get(_NAME)
    names[_NAME], APPLY.__code__ = apply, REPLACEMENT.__code__
    try:
        yield
    finally:
        APPLY.__code__ = code
        # another thread may be about to call it
        names[_NAME] = unwatched if before is None else before


# -- torch 2.14 and newer


@attrs.define(eq=False)
class _Call:
    """A call of ``apply`` that has begun: the class, autograd's node, and the name that C reads
    next.
    """

    cls: Any
    node: Any
    end: End
    reads: str = "forward"

    def forward(self, own: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run the function's ``forward``."""
        given = args[1:] if args and args[0] is self.node else args
        result = own(*args, **kwargs)
        if given is not args:
            marked = (*(self.node.dirty_tensors or ()), *(self.node.non_differentiable or ()))
            kept = {id(each) for each in given if isinstance(each, torch.Tensor)} - set(
                map(id, marked)
            )
            result = _as_views(result, kept)
        # without edges autograd records nothing
        node = self.node if self.node.next_functions else None
        told = partial(self.end, given, kwargs, result, node)
        if type.__getattribute__(self.cls, "setup_context") is _FUNCTION.setup_context:
            told()
        else:
            self.end, self.reads = lambda *_: told(), "setup_context"
            _reads.call = self
        return result

    def setup_context(self, own: Callable[..., Any], *args: Any) -> Any:
        """Run the function's ``setup_context``, after which the call is over."""
        result = own(*args)
        self.end((), {}, None, None)
        return result


def _as_views(result: Any, given: Set[int]) -> Any:
    """Return the result of ``forward`` with views of the arguments that it returns, which ``apply``
    would make.

    Args:
        result: what ``forward`` returned.
        given: the ids of the arguments of which ``apply`` makes views that have a gradient.
    """
    if type(result) is tuple:
        return tuple(_as_views(each, given) for each in result)
    return result.view_as(result) if id(result) in given else result


class _Reads(threading.local):
    """The state of this thread: its trace, and the call of ``apply`` whose C code is between two
    reads of the class.
    """

    begin: Begin | None = None
    call: _Call | None = None


_reads = _Reads()
_watching = 0
_lock = threading.Lock()


def _read(cls: Any, name: str) -> Any:
    """Return an attribute of a subclass of ``Function``, read while some thread traces."""
    found = type.__getattribute__(cls, name)
    begin, call = _reads.begin, _reads.call
    if begin is None:
        return found
    if name == "_backward_cls" and issubclass(cls, _FUNCTION):
        end = begin(cls)
        return found if end is None else partial(_begun, cls, found, end)
    if call is not None and call.cls is cls and name == call.reads:
        _reads.call = None
        return partial(getattr(call, name), found)
    return found


def _begun(cls: Any, make: Callable[[], Any], end: End) -> Any:
    """Begin a call: make autograd's node."""
    node = make()
    _reads.call = _Call(cls, node, end)
    return node


@contextmanager
def _by_reads(begin: Begin) -> Iterator[None]:
    global _watching
    kind: Any = type(_FUNCTION)
    before = _reads.begin, _reads.call
    with _lock:
        _watching += 1
        kind.__getattribute__ = _read
    _reads.begin, _reads.call = begin, None
    try:
        yield
    finally:
        _reads.begin, _reads.call = before
        with _lock:
            _watching -= 1
            if not _watching:
                del kind.__getattribute__
